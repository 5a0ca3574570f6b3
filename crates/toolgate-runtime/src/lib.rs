//! The async driver around `toolgate-core`.
//!
//! A [`Dispatcher`] takes in what a model asked for, sends the calls through a stack with a cap on how many run
//! at once, writes every event to the store before it is published on the [`Bus`], and reports what came of
//! them in the order the model asked. A turn can be interrupted, wait for decisions and results from outside,
//! and be taken up again by another process.
//!
//! The three types to know are [`Dispatcher`], [`TurnHandle`] and [`Bus`]. What a layer, a call or a turn is, and
//! which events may follow each other, is said in `toolgate-core`.

mod active;
mod agent;
mod answering;
mod approvals;
mod armed;
mod bus;
mod clock;
mod conversation;
mod dispatch;
mod documents;
mod drive;
mod ended;
mod front_matter;
mod handle;
mod holder;
mod host_model;
mod hosted;
mod inbox;
mod inbox_approver;
mod journal;
mod keeper;
mod kernel;
#[cfg(unix)]
mod key_file;
mod lanes;
mod late;
mod lease;
mod messages;
mod output;
mod paying;
mod posts;
mod recovery;
mod recursive;
mod recursive_bill;
mod recursive_delegate;
mod recursive_state;
mod recursive_strategy;
mod recursive_tools;
mod rehearse;
mod resume;
mod retrying;
mod rooted;
mod router;
mod routing;
mod run_loop;
mod run_options;
mod run_report;
mod run_stream;
mod session;
mod session_builder;
mod shown;
mod skill;
mod skill_file;
mod skill_strategy;
mod skill_tools;
mod skills;
mod spending;
mod strategy;
mod tools_of_run;
mod turn_report;
mod turn_request;

pub use agent::Agent;
pub use approvals::{Approvals, DecideOn, ShownApproval};
pub use armed::{ArmedError, ArmedOutcome, ArmedTool};
pub use bus::{Attached, Bus, Delivery, Follow, Piece, Subscription};
pub use clock::{SystemClock, TimeOrderedIds};
pub use dispatch::{Dispatcher, DispatcherBuilder, OnFailure};
pub use documents::{Document, DocumentError, Documents};
pub use drive::TurnRun;
pub use handle::{PostError, TurnHandle};
pub use hosted::{Gate, HostStep, Hosted};
pub use inbox::{Inbox, Urgency};
pub use inbox_approver::InboxApprover;
pub use journal::{Journal, JournalError};
#[cfg(unix)]
pub use key_file::{KeyFile, KeyFileError, ListedKey};
pub use messages::{
    MalformedResponse, MessageError, ToolApprovalRequest, ToolApprovalResponse,
    append_approval_response, apply_approval_responses, approval_requests, approval_responses,
    suspended_messages,
};
pub use recovery::{CallFound, FoundCall, Recovery, TurnFound};
pub use recursive::{Recursive, RecursiveBuilder};
pub use recursive_state::RecursiveLimits;
pub use retrying::{Patience, Retrying};
pub use router::Router;
pub use routing::{Choice, RouteRule, Routing, RoutingDecision, RoutingError, RoutingHook};
pub use run_options::{Input, OnCap, RunOptions};
pub use run_report::{Pending, RunError, RunReport, SessionError};
pub use run_stream::{RunStream, Update};
pub use session::Session;
pub use session_builder::{SessionBuildError, SessionBuilder};
pub use skill::{ReferenceError, Skill, SkillError};
pub use skill_file::{SkillFault, SkillFile};
pub use skills::{FoundSkills, SkillProblem, Skills};
pub use spending::{Hold, Paid, Spending};
pub use strategy::{Onward, Round, Strategy, StrategyError, Turned};
pub use turn_report::{CallResult, DispatchError, TurnEnd, TurnReport};
pub use turn_request::TurnRequest;
