#![doc = include_str!("../../../README.md")]
//!
//! ---
//!
//! # The guided tour
//!
//! This is the one crate to add; everything here comes from the others. The modules are the table of contents:
//! [`mod@tool`], [`stack`], [`layers`], [`session`], [`approval`], [`ledger`], [`budget`], [`model`], [`store`],
//! [`event`] and [`value`]. `use toolgate::prelude::*` imports the names that a program usually needs.
//!
//! 1. [Write a tool](guide::write_a_tool): the attribute [`macro@tool`] on an async function, [`tool_fn`] for a
//!    closure, or [`Tool`].
//! 2. [Write a layer](guide::write_a_layer): [`Layer`], [`from_fn`] and the adapters beside it; a [`Stack`] holds
//!    layers in order.
//! 3. [Watch events](guide::watch_events): a [`Dispatcher`](session::Dispatcher) runs a turn and publishes its
//!    events on a [`Bus`](event::Bus).
//! 4. [Configure a stack](guide::configure_a_stack): [`default_stack`] and the bundled [`layers`], a [`Config`]
//!    file, [`lint`](layers::lint()) and [`explain`](layers::explain()).
//! 5. [Store everything](guide::keep_everything): a [`store`] on disk, one driver per session, recovery after a
//!    crash.
//! 6. [Ask for approval](guide::ask_people): the [`ApprovalService`](approval::ApprovalService), signed tokens,
//!    quorums, standing rules, diffs, messages.
//! 7. [Write receipts](guide::keep_receipts): the [`Ledger`](ledger::Ledger), checkpoints, verification, export.
//! 8. [Run an agent](guide::run_an_agent): a [`Session`] asks a model and runs the calls it makes; [`Agent`]s,
//!    limits, output formats.
//! 9. Models of providers, scripts and recordings: [`model`].
//! 10. [Sessions and modes](guide::sessions_and_modes): a host drives a [`HostedRun`](session::HostedRun), or is
//!     handed [`ArmedTool`](session::ArmedTool)s.
//! 11. [Budgets](guide::budgets): [`Budgets`](budget::Budgets) reserved in the store, [`Prices`](budget::Prices),
//!     alerts.
//! 12. [Give it skills](guide::skills): [`Skills`](session::Skills) from folders, loaded when they help.
//! 13. [Work over a large context](guide::recursive_strategy): a
//!     [`RecursiveStrategy`](session::RecursiveStrategy) over [`Documents`](session::Documents) of any size.

pub use toolgate_core::{
    Annotations, Approver, Arguments, Band, Call, Decision, Event, Layer, Message, Model, Next,
    Outcome, Registry, RunEnd, SideEffect, Stack, Status, Tool, ToolError, View, from_fn, tool_fn,
};
pub use toolgate_layers::{Config, Resources, default_stack};
pub use toolgate_macros::tool;
pub use toolgate_runtime::{Agent, RunReport, Session};

/// The bundled layers, their configuration, and the linter and explanations of a stack.
pub use toolgate_layers as layers;
/// Tests of one's own: fakes, a test clock, a lifecycle checker and conformance suites.
#[cfg(feature = "testing")]
pub use toolgate_testkit as testing;

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
        AdjustedLayer, AnyLayer, Band, Call, CallData, CallEnv, CallError, CallSeed, ChangeSubject,
        ConsentNote, ErrorCategory, Executor, ExecutorTag, FromFn, HookAction, Hooks, HostExecutor,
        InvalidNote, Layer, LayerCapabilities, LayerExt, LayerNote, LayerStatus, LogLevel, Matcher,
        MatcherError, Next, NoProbe, NoteFields, NoteKey, Notes, Outcome, Probe, Progress,
        ProgressKind, Provenance, RawArguments, ReconciledAttempt, RedactionError, Redactor,
        ResumeState, SettledOutcome, Stack, StackBuilder, StackError, StackWarning, StartPermit,
        Status, StopActions, StopConfirmation, StopHandle, StopReason, SupersededNote, Suspension,
        ToolRequest, Trail, TurnInfo, UnknownExecutor, UnknownStatus, UnsettledReason, after,
        around, before, from_fn, map_call, map_outcome, note_keys, observe, on_error,
        run_contained, run_contained_sync,
    };
    #[cfg(feature = "tower")]
    pub use toolgate_core::{NextService, TowerLayer, TowerRequest};
}

/// Sessions, runs and turns: managed mode, host-driven mode, agents, skills and strategies.
pub mod session {
    pub use toolgate_core::{InvocationSlot, RejectCode, Turn, TurnError, TurnStep};
    pub use toolgate_runtime::{
        Agent, ArmedError, ArmedOutcome, ArmedTool, BudgetReservation, CallResult, DeliverError,
        DiscoveredSkills, DispatchError, Dispatcher, DispatcherBuilder, DocumentError, Documents,
        HostAction, HostStep, HostedRun, InputQueue, ModelBilling, OnCap, OnFailure, PendingCall,
        RecoveredCall, RecoveredState, RecoveredTurn, Recovery, RecursiveBuilder, RecursiveLimits,
        RecursiveStrategy, ReferenceError, RequestContext, RunError, RunInput, RunOptions,
        RunReport, RunStream, RunUpdate, Session, SessionBuildError, SessionBuilder, SessionError,
        SettledCharge, Skill, SkillError, SkillFault, SkillFile, SkillProblem, Skills, Strategy,
        StrategyAction, StrategyError, TextDocument, TurnContext, TurnEnd, TurnHandle, TurnReport,
        TurnRequest, TurnRun, Urgency, holder_process_id,
    };
}

/// Approval requests, decisions, signed tokens, keys, and approvals that travel in messages.
pub mod approval {
    pub use toolgate_core::{
        AdmittedDecision, ApprovalAnswer, ApprovalChange, ApprovalRequest, ApprovalRequestRef,
        ApprovalRequirement, Approver, AskClaims, Decision, DynApprover, EditStage, FileState,
        GrantClaims, InvalidKeyId, KeyId, KeyKind, Keyring, Quorum, SecretKey, TokenError, Verdict,
        Vote, admit_decision, unverified_approval_id,
    };
    pub use toolgate_runtime::{
        ApprovalDetails, ApprovalService, DecisionTarget, MalformedResponse, MessageError,
        StoreApprover, ToolApprovalRequest, ToolApprovalResponse, append_approval_response,
        apply_approval_responses, approval_requests, approval_responses, suspended_messages,
    };
    #[cfg(unix)]
    pub use toolgate_runtime::{KeyFile, KeyFileError, KeyInfo};
}

/// Receipts, the tamper-evident ledger, checkpoints, verification and export.
pub mod ledger {
    pub use toolgate_core::{
        Checkpoint, CheckpointError, EntryOutline, InvalidLedgerKey, InvalidLedgerName,
        InvalidLedgerSignature, LedgerDraft, LedgerHead, LedgerKey, LedgerName, LedgerSignature,
        LedgerVerification, LedgerVerifier, SealedEntry, TamperKind, TamperedLedger,
        VerifiedLedger,
    };
    pub use toolgate_layers::{
        CheckpointSchedule, Commitment, CommitmentKey, DigestedValue, LayerDecision, Ledger,
        LedgerError, LedgerMirror, Receipt, ReceiptApproval, ReceiptFilter, ReceiptPage,
        SealedReceipt, VerifiedExport, verify_export,
    };
}

/// Budgets, billing, charges and prices.
pub mod budget {
    pub use toolgate_core::{
        ALERT_THRESHOLDS, AccountKey, AccountMovement, AccountRow, AccountRows, BillingService,
        BudgetAlert, BudgetError, BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets,
        CacheLife, Charge, ChargeFilter, ChargeId, ChargeLine, DollarsPerMillion, Expense,
        ExpenseState, InvalidAccountKey, InvalidBudget, InvalidChargeId, MAX_AMOUNT, MissingPayer,
        Payer, Price, PriceTable, PriceTier, Prices, ProviderPrices, UnknownPrice, convert_dollars,
        crossed_thresholds,
    };
}

/// Models: providers, a scripted one, recording and replaying, routing and retries.
pub mod model {
    pub use toolgate_core::{
        Delta, Effort, FinishReason, InvalidModelName, Media, MediaSource, Message, MessagePart,
        MessageRecord, Model, ModelError, ModelErrorKind, ModelName, ModelRequest, NativeItem,
        OutputFormat, PartContent, ProviderCall, Reply, Role, RoutedModel, TaskComplexity,
        ToolAnswer, ToolChoice, Usage,
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
        ErasedSessions, ErasureNames, ErasureScope, EventStore, HiddenSessions, Lease,
        LeaseRequest, LedgerStore, LogPosition, MailboxItem, MailboxStore, MemoryStore,
        RecordContent, RecordKey, RecordStore, RowChange, SessionFilter, SessionRow, Store,
        StoreError, StoreHandle, StoreRecord, TurnFilter, TurnRequests, TurnRow, WriteBatch,
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
        IdempotencyKey, InvalidApprovalId, InvalidDigest, InvalidDuration, InvalidTimestamp,
        InvalidToolName, Json, JsonChange, JsonChangeOp, JsonError, LayerName, MAX_DEPTH,
        Principal, Schema, SchemaError, SchemaProblem, SessionId, StoppedClock, Timestamp,
        ToolName, TurnId, argument_pointer, canonical_json, error_chain, parse_argument_pointer,
        serialized_word,
    };
    pub use toolgate_runtime::{SystemClock, TimeOrderedIds};
}

/// The names that a program usually needs.
///
/// It has no name that axum, tower or anyhow also use, so that all can be imported side by side:
/// [`Layer`], [`Next`], [`from_fn`], [`tool::Context`] and [`tool::State`] are imported one by one.
pub mod prelude {
    pub use toolgate_core::{
        Annotations, Approver, Arguments, Call, Decision, Event, LayerExt, Model, Outcome,
        Registry, RunEnd, SideEffect, Stack, Status, Tool, ToolError, ToolOutput, tool_fn,
    };
    pub use toolgate_macros::tool;
    pub use toolgate_runtime::Session;
}

/// The chapters of the guide, with their snippets as tests.
pub mod guide {
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
}

/// Names for the code that `#[tool]` generates; not for direct use.
#[doc(hidden)]
pub mod __private {
    pub use toolgate_core::__private::*;
}
