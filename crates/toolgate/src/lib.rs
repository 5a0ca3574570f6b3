//! Toolgate runs tools for language models. Every call that a model makes passes one gate: it is
//! identified, checked, decided on by policy and by people, executed only as often as is safe,
//! limited, recorded, and visible while it runs.
//!
//! ```no_run
//! use toolgate::prelude::*;
//!
//! /// Sends money back.
//! #[tool(side_effect = "network")]
//! async fn refund(amount: u32) -> String { format!("sent {amount}") }
//!
//! #[tokio::main]
//! async fn main() -> toolgate::Result<()> {
//!     let gate = Gate::open("sqlite:agent.db").await?.tool(refund)?.approver(Prompt::terminal("ann"));
//!     let session = gate.session("anthropic:claude-sonnet-4-5").await?;
//!     println!("{}", session.run("Send Ann her 20 back.").await?.text);
//!     Ok(())
//! }
//! ```
//!
//! The model asks for a refund, the person at the terminal is shown the call and decides, the tool
//! runs once, and a receipt says so. If the process is lost, another one continues from the
//! database. `ScriptedModel` of [`model`] takes the place of the provider where there is no key, and
//! [`Gate::in_memory`] that of the file.
//!
//! # What a gate owns
//!
//! | | by default | to change it |
//! |---|---|---|
//! | store | the database that is named | [`Gate::open`], [`Gate::in_memory`] |
//! | keys, which sign approvals and checkpoints | in the user's state directory, `TOOLGATE_HOME` | [`GateBuilder::state_dir`], [`GateBuilder::keyring`] |
//! | configuration and stack of layers | the default stack: tools that only read run, all others need an approval | [`Gate::config`], [`GateBuilder::rule`], [`GateBuilder::layer`], [`GateBuilder::edit_layer`] |
//! | redactor of everything that is shown or stored | known secrets and secret-like values | [`GateBuilder::redactor`] |
//! | approver | none: a run suspends, and [`Gate::approvals`] decides, in any process | [`Gate::approver`], [`GateBuilder::approve`] |
//! | tools | `read_output`, which reads long results | [`Gate::tool`], [`Gate::install`] |
//! | budgets and prices | no budget, bundled prices | [`GateBuilder::budget`], [`GateBuilder::prices`] |
//! | ledger of receipts | one receipt for each call | [`Gate::ledger`] |
//!
//! Every session of a gate uses exactly these. What is wrong with them is an [`Error`] when the gate
//! is opened; how a run ended is in its [`RunReport`].
//!
//! # Where to look next
//!
//! This is the one crate to add; everything here comes from the others. The modules are the table of contents:
//! [`mod@gate`], [`mod@tool`], [`stack`], [`layers`], [`session`], [`approval`], [`ledger`], [`budget`], [`model`],
//! [`store`], [`event`] and [`value`]. `use toolgate::prelude::*` imports the names that a program usually needs.
//!
//! The guide begins with [Start here](guide::start_here): an agent, a tool, an approval, a receipt. Then, as you need it:
//!
//! - [Write a tool](guide::write_a_tool): the attribute [`macro@tool`] on an async function, [`tool_fn`] for a
//!   closure, or [`Tool`].
//! - [Run an agent](guide::run_an_agent): a [`Session`] asks a model and runs the calls it makes; [`Agent`]s,
//!   limits, output formats. [`model`] has the providers, scripts and recordings.
//! - [Ask for approval](guide::ask_people): the [`ApprovalService`](approval::ApprovalService), signed tokens,
//!   quorums, standing rules, diffs, messages.
//! - [Write receipts](guide::keep_receipts): the [`Ledger`](ledger::Ledger), checkpoints, verification, export.
//! - [Store everything](guide::keep_everything): a [`store`] on disk, one driver per session, recovery after a
//!   crash.
//! - [Budgets](guide::budgets): [`BudgetRule`](budget::BudgetRule)s reserved in the store,
//!   [`Prices`](budget::Prices), alerts.
//! - [Give it skills](guide::skills): [`Skills`](session::Skills) from folders, loaded when they help.
//! - [Work over a large context](guide::recursive_strategy): a
//!   [`RecursiveStrategy`](session::RecursiveStrategy) over [`Documents`](session::Documents) of any size.
//! - [Find, share, remember](guide::find_share_remember): [`search`](mod@search) over all sessions, the
//!   [`archive`](mod@archive) that exports and imports them, and [`memory`](mod@memory).
//!
//! And the parts below a gate, for those who change them or wire them by hand:
//!
//! - [Configure a stack](guide::configure_a_stack): [`default_stack`] and the bundled [`layers`], a [`Config`]
//!   file, [`lint`](layers::lint()) and [`explain`](layers::explain()).
//! - [Write a layer](guide::write_a_layer): [`Layer`], [`from_fn`] and the adapters beside it; a [`Stack`] holds
//!   layers in order.
//! - [Watch events](guide::watch_events): a [`Dispatcher`](session::Dispatcher) runs a turn and publishes its
//!   events on a [`Bus`](event::Bus).
//! - [Sessions and modes](guide::sessions_and_modes): a host drives a [`HostedRun`](session::HostedRun), or is
//!   handed [`ArmedTool`](session::ArmedTool)s.

#[cfg(not(unix))]
compile_error!("Toolgate runs on Linux and macOS; other systems are not supported");

mod error;
mod evidence;
pub mod gate;
pub mod search;

pub use error::{Error, Result};
pub use evidence::EvidenceService;
pub use gate::{Gate, GateBuilder};
pub use toolgate_core::{
    Annotations, Approver, Arguments, Band, Call, Decision, Event, Layer, Message, Model, Next,
    Outcome, Registry, RunEnd, SideEffect, Stack, Status, Tool, ToolError, View, from_fn, tool_fn,
};
pub use toolgate_layers::{Config, Resources, default_stack};
pub use toolgate_macros::tool;
pub use toolgate_runtime::{Agent, RunReport, Session};

/// Export and import of sessions; a gate has an [`Exporter`](Gate::exporter) and an
/// [`Importer`](Gate::importer) with its store and redactor.
pub use toolgate_archive as archive;
/// The bundled layers, their configuration, and the linter and explanations of a stack.
pub use toolgate_layers as layers;
/// Tests of one's own: fakes, a test clock, a lifecycle checker and conformance suites.
#[cfg(feature = "testing")]
pub use toolgate_testkit as testing;
/// The built-in tools for files, search, commands and pages.
#[cfg(feature = "tools")]
pub use toolgate_tools as tools;

/// Tools: writing them, their annotations, the registry, and the view that one model is shown.
pub mod tool {
    pub use toolgate_core::{
        Admission, Annotations, ConflictKey, Context, FilledTool, HostValues, InjectedParameter,
        OnExisting, RegisterError, Registration, Registry, Resource, ResourceKind, ShownTool,
        SideEffect, SourceTrust, State, Tool, ToolEntry, ToolError, ToolFn, ToolHints, ToolKind,
        ToolOutput, ToolSpec, Transform, View, ViewError, parse_arguments, tool_fn,
    };
}

/// Calls, layers and stacks: what a layer sees, how an outcome settles, and the executor below.
pub mod stack {
    pub use toolgate_core::{
        Access, AccessJudge, AccessVerdict, AdjustedLayer, AnyLayer, Band, BeforeExecution, Call,
        CallData, CallEnv, CallError, CallSeed, ChangeSubject, ConsentNote, ErrorCategory,
        ErrorStatus, Executor, ExecutorTag, Failure, FromFn, HookAction, HookEntry, HookId,
        HookMoment, Hooks, HostExecutor, InvalidNote, Layer, LayerCapabilities, LayerExt,
        LayerNote, LayerStatus, LogLevel, Matcher, MatcherError, Next, NoProbe, NoteFields,
        NoteKey, Notes, Outcome, Probe, Progress, ProgressKind, Provenance, RawArguments,
        ReconciledAttempt, RedactionError, Redactor, Refusal, ResumeState, SettledOutcome, Stack,
        StackBuilder, StackError, StackRank, StackWarning, StartPermit, Status, StopActions,
        StopConfirmation, StopHandle, StopReason, SupersededNote, Suspension, ToolRequest, Trail,
        TurnInfo, UnknownExecutor, UnknownStatus, UnsettledReason, after, around, before, from_fn,
        map_call, map_outcome, note_keys, observe, on_error, run_contained, run_contained_sync,
    };
    #[cfg(feature = "tower")]
    pub use toolgate_core::{NextService, TowerLayer, TowerRequest};
}

/// Sessions, runs and turns: managed mode, host-driven mode, agents, skills and strategies.
pub mod session {
    pub use toolgate_core::{InvocationSlot, RejectCode, Turn, TurnError, TurnStep};
    pub use toolgate_runtime::{
        Agent, ArmedError, ArmedOutcome, ArmedTool, ArmedTools, ArmedTurn, BudgetReservation,
        CallResult, DeliverError, DiscoveredSkills, DispatchError, Dispatcher, DispatcherBuilder,
        DocumentError, Documents, Gated, HolderState, HostAction, HostCall, HostStep, HostedRun,
        IncompleteRun, InputQueue, LeaseHolder, ModelBilling, OnCap, OnFailure, PendingCall,
        RecoveredCall, RecoveredState, RecoveredTurn, Recovery, RecursiveBuilder, RecursiveLimits,
        RecursiveStrategy, ReferenceError, RequestContext, RunError, RunHandle, RunInput,
        RunOptions, RunReport, RunStream, RunUpdate, Session, SessionBuildError, SessionBuilder,
        SessionError, SettledCharge, Skill, SkillError, SkillFault, SkillFile, SkillProblem,
        Skills, Strategy, StrategyAction, StrategyError, TextDocument, TurnContext, TurnEnd,
        TurnHandle, TurnReport, TurnRequest, TurnRun, Ungated, Urgency, describe_holder,
        holder_process_id, is_holder_replaceable,
    };
}

/// Approval requests, decisions, signed tokens, keys, and approvals that travel in messages.
pub mod approval {
    pub use toolgate_core::{
        AdmittedDecision, ApprovalAnswer, ApprovalChange, ApprovalRequest, ApprovalRequestRef,
        ApprovalRequirement, Approver, ApproverIdentity, AskClaims, ChangedRequest, Decision,
        DecisionCallbacks, DynApprover, EditStage, FileState, GrantClaims, IdentitySource,
        InvalidKeyId, InvalidRuleKey, KeyId, KeyKind, Keyring, MadeDecision, PathLink, Quorum,
        RulePublicKey, RuleSignature, SHOWN_MARGIN, SecretKey, ShownField, ShownKind, ShownRequest,
        StatedReason, TokenError, Verdict, VisiblePart, VisibleText, Vote, admit_decision,
        escape_invisible, meets_quorum, unverified_approval_id,
    };
    pub use toolgate_layers::{FirstOf, FixedApprover, Prompt, SuspendingApprover};
    pub use toolgate_runtime::{
        ApprovalDetails, ApprovalService, DecisionTarget, MalformedResponse, MessageError,
        StoreApprover, SuspendedCalls, ToolApprovalRequest, ToolApprovalResponse,
        append_approval_response, apply_approval_responses, approval_requests, approval_responses,
        find_approval_response, suspended_messages,
    };
    pub use toolgate_runtime::{KeyFile, KeyFileError, KeyInfo};
}

/// Receipts, the tamper-evident ledger, checkpoints, verification and export.
pub mod ledger {
    pub use crate::evidence::{EvidenceReport, EvidenceService, RememberedHead};
    pub use toolgate_core::{
        AcceptedRestore, Checkpoint, CheckpointError, EntryOutline, InvalidLedgerKey,
        InvalidLedgerName, InvalidLedgerSignature, LedgerDraft, LedgerHead, LedgerKey, LedgerName,
        LedgerSignature, LedgerVerification, LedgerVerifier, SealedEntry, TamperKind,
        TamperedLedger, UncheckedCheckpoint, VerifiedLedger,
    };
    pub use toolgate_layers::{
        CheckpointSchedule, Commitment, CommitmentKey, ComparedCall, DigestedValue, LayerDecision,
        Ledger, LedgerError, LedgerMirror, LostHead, OutcomeComparison, Receipt, ReceiptApproval,
        ReceiptFilter, ReceiptPage, SealedReceipt, VerifiedExport, verify_export,
    };
}

/// Budgets, billing, charges and prices.
pub mod budget {
    pub use toolgate_core::{
        AccountKey, AccountMovement, AccountRow, AccountRows, AlertThresholds, AlertUnit,
        BillingService, BudgetAlert, BudgetAlertLevel, BudgetAmounts, BudgetError, BudgetPeriod,
        BudgetRule, BudgetScope, BudgetUnit, Budgets, CacheLife, Charge, ChargeFilter, ChargeId,
        ChargeLine, DollarsPerMillion, Expense, ExpenseState, InvalidAccountKey, InvalidBudget,
        InvalidChargeId, InvalidThreshold, MAX_AMOUNT, MissingPayer, Payer, Price, PriceTable,
        PriceTier, Prices, ProviderPrices, UnknownPrice, convert_dollars,
    };
}

/// Memories: stored, recalled in a run, extracted at its end, and the hook at the end of a run.
pub mod memory {
    pub use toolgate_core::{
        ChangedMemory, EmbedError, Embedder, EmbedderId, ExpiryFilter, ExtractionPattern,
        ForgottenMemories, FoundMemory, InvalidMemoryFile, InvalidMemoryText, MemoryFilter,
        MemoryId, MemoryKind, MemoryOrigin, MemoryOwner, MemoryRecord, MemorySource, MemoryText,
        MemoryVector, PutMemory, RankedMemory, RecallOptions, RecallScope, SaidBy, ScopeWord,
        TextRemains, TransferredMemory, TransferredScope, UnknownMemoryKind, estimate_tokens,
        find_memories, quote_memories, rank_memories, read_memory_file, remember_command,
        write_memory_file,
    };
    pub use toolgate_runtime::{
        CapturedCall, CapturedRun, ExtractionBudget, ImportedMemories, Memory, MemoryEdit,
        MemoryError, MemoryExtraction, MemoryExtractor, MemoryPage, MemoryRecall, ModelExtractor,
        NewMemory, RunEndError, RunEndHook, RunEndState, install_memory_tools, run_end_state,
    };
}

/// Models: providers, a scripted one, recording and replaying, routing and retries.
pub mod model {
    pub use toolgate_core::{
        Delta, Effort, EmbedError, Embedder, EmbedderId, FinishReason, InvalidModelName, Media,
        MediaSource, Message, MessagePart, MessageRecord, Model, ModelError, ModelErrorKind,
        ModelName, ModelRequest, ModelRetry, ModelSource, NativeItem, OutputFormat, PartContent,
        ProviderCall, Reply, Role, RoutedModel, TaskComplexity, ToolAnswer, ToolChoice, Usage,
    };
    pub use toolgate_models::*;
    pub use toolgate_runtime::{
        Candidate, ModelRouter, RetryPolicy, RetryingModel, RouteRule, RoutingConfig,
        RoutingDecision, RoutingError, RoutingHook,
    };
}

/// Storage for sessions, approvals and receipts: SQLite, PostgreSQL, memory.
pub mod store {
    pub use toolgate_core::{
        AcceptedCall, AccountStore, ApprovalFilter, ApprovalRow, ApprovalState, CatalogueStore,
        ErasedSessions, ErasureNames, ErasureScope, EventStore, HiddenSessions, ImportOrigin,
        LastRun, Lease, LeaseRequest, LeaseTerm, LedgerStore, LogPosition, MailboxItem,
        MailboxStore, MemoryChange, MemoryDraft, MemoryRecordStore, MemoryStore, RecordContent,
        RecordKey, RecordStore, RowChange, RunInstructions, RunRecord, RunState, SearchStore,
        SessionFilter, SessionOrder, SessionRow, SessionTitle, SessionTotals, SessionUpdate, Store,
        StoreError, StoreHandle, StoreRecord, StoredMemory, TurnFilter, TurnRequests, TurnRow,
        UnavailableReason, UnsettledWork, WriteBatch,
    };
    pub use toolgate_store::*;
}

/// Events: the life of a call, a turn and a run, the journal and the bus.
pub mod event {
    pub use toolgate_core::{
        Cost, Event, EventBody, IllegalEvent, InputKind, InvalidEvent, Invocation, Phase, RunEnd,
        SessionEvent, ToolEvent, TurnEvent,
    };
    pub use toolgate_runtime::{
        AttachedConsumer, Bus, BusDelivery, BusSubscription, Journal, JournalError,
        SessionFollower, StreamPiece,
    };
}

/// Values without behaviour: JSON, schemas, digests, ids and times.
pub mod value {
    pub use toolgate_core::{
        AgentId, ApprovalId, Arguments, CallId, Clock, Digest, HumanDuration, IdSource,
        IdempotencyKey, InvalidApprovalId, InvalidDigest, InvalidDuration, InvalidLabel,
        InvalidTimestamp, InvalidToolName, Json, JsonChange, JsonChangeOp, JsonError, Labels,
        LayerName, MAX_DEPTH, Principal, Schema, SchemaError, SchemaProblem, SessionId,
        StoppedClock, Timestamp, ToolName, TurnId, argument_pointer, canonical_json,
        canonical_text, error_chain, parse_argument_pointer, serialized_word,
    };
    pub use toolgate_runtime::{SystemClock, TimeOrderedIds};
}

/// The names that a program usually needs.
///
/// It has no name that axum, tower or anyhow also use, so that all can be imported side by side:
/// [`Layer`], [`Next`], [`from_fn`], [`tool::Context`] and [`tool::State`] are imported one by one.
pub mod prelude {
    pub use crate::Gate;
    pub use toolgate_core::{
        Annotations, Approver, Arguments, Call, Decision, Event, LayerExt, Model, Outcome, Refusal,
        Registry, RunEnd, SideEffect, Stack, Status, Tool, ToolError, ToolOutput, tool_fn,
    };
    pub use toolgate_layers::Prompt;
    pub use toolgate_macros::tool;
    pub use toolgate_runtime::Session;
}

/// The chapters of the guide, with their snippets as tests.
pub mod guide {
    #[doc = include_str!("../../../docs/guide/00-start-here.md")]
    pub mod start_here {}
    #[doc = include_str!("../../../docs/guide/01-write-a-tool.md")]
    pub mod write_a_tool {}
    #[doc = include_str!("../../../docs/guide/02-write-a-layer.md")]
    pub mod write_a_layer {}
    #[doc = include_str!("../../../docs/guide/03-watch-events.md")]
    pub mod watch_events {}
    #[doc = include_str!("../../../docs/guide/04-configure-a-stack.md")]
    pub mod configure_a_stack {}
    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../../docs/guide/05-keep-everything.md")]
    pub mod keep_everything {}
    #[cfg(all(unix, feature = "sqlite"))]
    #[doc = include_str!("../../../docs/guide/06-ask-people.md")]
    pub mod ask_people {}
    #[doc = include_str!("../../../docs/guide/07-keep-receipts.md")]
    pub mod keep_receipts {}
    #[doc = include_str!("../../../docs/guide/08-run-an-agent.md")]
    pub mod run_an_agent {}
    #[cfg(feature = "http")]
    #[doc = include_str!("../../../docs/guide/09-models.md")]
    pub mod models {}
    #[doc = include_str!("../../../docs/guide/10-sessions-and-modes.md")]
    pub mod sessions_and_modes {}
    #[doc = include_str!("../../../docs/guide/11-budgets.md")]
    pub mod budgets {}
    #[doc = include_str!("../../../docs/guide/12-skills.md")]
    pub mod skills {}
    #[doc = include_str!("../../../docs/guide/13-recursive-strategy.md")]
    pub mod recursive_strategy {}
    #[cfg(feature = "local-embeddings")]
    #[doc = include_str!("../../../docs/guide/14-find-share-remember.md")]
    pub mod find_share_remember {}
}

/// The program of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

/// Names for the code that `#[tool]` generates; not for direct use.
#[doc(hidden)]
pub mod __private {
    pub use toolgate_core::__private::*;
}
