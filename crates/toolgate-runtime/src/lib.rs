//! The async driver around `toolgate-core`.
//!
//! A [`Session`] is a conversation with a model that runs tools: it asks the model, runs its calls,
//! and stores everything as it happens, so that another process can resume it. A [`Dispatcher`]
//! runs the turns below it: it records the calls a model asked for, sends them through a stack with
//! a limit on how many run at once, writes every event to the store before it is published on the
//! [`Bus`], and reports the results in the order the model asked. A turn can be interrupted, wait
//! for decisions and external results, and be resumed by another process.
//!
//! The types to know are [`Session`], [`Dispatcher`], [`TurnHandle`] and [`Bus`]. Layers, calls and
//! turns, and which events may follow each other, are defined in `toolgate-core`; stores, models
//! and layers come from their own crates.
//!
//! The folders of this crate:
//!
//! | Folder | Purpose |
//! |---|---|
//! | `session` | a conversation and its runs, in managed and host-driven mode, and the billing of model requests |
//! | `turn` | the dispatcher: opens, schedules, drives, settles, resumes and recovers turns |
//! | `journal` | writes events in order, durable before visible, and publishes them on the bus |
//! | `lease` | the right to drive a session: holder, renewal, fencing, mailbox |
//! | `approvals` | lists approval requests and decides on them from any process; votes, messages, signing keys |
//! | `memory` | memories: stored, recalled in a run, extracted at its end, and the tools `remember` and `recall` |
//! | `agent` | agents to delegate to, and strategies: skills and the recursive strategy |
//! | `routing` | chooses among models, falls back and retries |

mod agent;
mod approvals;
mod background_index;
mod clock;
mod journal;
mod lease;
mod memory;
mod routing;
mod schedule;
mod session;
mod turn;

pub use agent::Agent;
pub use agent::recursive::documents::{DocumentError, Documents, TextDocument};
pub use agent::recursive::state::RecursiveLimits;
pub use agent::recursive::{RecursiveBuilder, RecursiveStrategy};
pub use agent::skills::file::{SkillFault, SkillFile};
pub use agent::skills::skill::{ReferenceError, Skill, SkillError};
pub use agent::skills::{DiscoveredSkills, SkillProblem, Skills};
pub use agent::strategy::{RequestContext, Strategy, StrategyAction, StrategyError, TurnContext};
#[cfg(unix)]
pub use approvals::key_file::{KeyFile, KeyFileError, KeyInfo, random_keyring};
pub use approvals::messages::{
    MalformedResponse, MessageError, SuspendedCalls, ToolApprovalRequest, ToolApprovalResponse,
    append_approval_response, apply_approval_responses, approval_requests, approval_responses,
    find_approval_response, suspended_messages,
};
pub use approvals::store_approver::StoreApprover;
pub use approvals::{ApprovalDetails, ApprovalService, DecisionTarget, DeliverError};
pub use background_index::index_after_runs;
pub use clock::{SystemClock, TimeOrderedIds};
pub use journal::bus::{
    AttachedConsumer, Bus, BusDelivery, BusSubscription, SessionFollower, StreamPiece,
};
pub use journal::{Journal, JournalError};
pub use lease::holder::{
    HolderState, LeaseHolder, describe_holder, holder_process_id, is_holder_replaceable,
};
pub use memory::extractor::{MemoryExtraction, MemoryExtractor};
pub use memory::model_extractor::{ExtractionBudget, ModelExtractor};
pub use memory::recall::MemoryRecall;
pub use memory::tools::install_memory_tools;
pub use memory::{ImportedMemories, Memory, MemoryEdit, MemoryError, MemoryPage, NewMemory};
pub use routing::retrying::{RetryPolicy, RetryingModel};
pub use routing::router::ModelRouter;
pub use routing::{
    Candidate, RouteRule, RoutingConfig, RoutingDecision, RoutingError, RoutingHook,
};
pub use session::Session;
pub use session::billing::{BudgetReservation, ModelBilling, SettledCharge};
pub use session::builder::{Gated, SessionBuildError, SessionBuilder, Ungated};
pub use session::handle::RunHandle;
pub use session::options::{RunInput, RunOptions};
pub use session::report::{IncompleteRun, PendingCall, RunError, RunReport, SessionError};
pub use session::run::armed::{ArmedError, ArmedOutcome, ArmedTool, ArmedTools, ArmedTurn};
pub use session::run::hosted::{HostAction, HostCall, HostStep, HostedRun};
pub use session::run_end::{
    CapturedCall, CapturedRun, RunEndError, RunEndHook, RunEndState, run_end_state,
};
pub use session::stream::{RunStream, RunUpdate};
pub use toolgate_core::OnCap;
pub use turn::builder::DispatcherBuilder;
pub use turn::driver::TurnRun;
pub use turn::handle::TurnHandle;
pub use turn::queue::{InputQueue, Urgency};
pub use turn::recovery::{RecoveredCall, RecoveredState, RecoveredTurn, Recovery};
pub use turn::report::{CallResult, DispatchError, TurnEnd, TurnReport};
pub use turn::request::TurnRequest;
pub use turn::{Dispatcher, OnFailure};
