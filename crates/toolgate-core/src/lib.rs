//! The vocabulary, rules and traits of Toolgate.
//!
//! A model asks for calls. A [`View`] checks each request against what the model was shown, a [`Stack`] of
//! [`Layer`]s decides on it, shapes it and bounds it, an [`Executor`] runs it, and a [`Turn`] settles each
//! invocation once. Nothing here performs I/O, reads a clock or needs an async runtime: ids and time come in
//! from outside, so that every interleaving can be tested and replayed.
//!
//! ```
//! use toolgate_core::{Call, Arguments, Registry, Stack, ToolError, tool_fn};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Greet { name: String }
//!
//! # futures::executor::block_on(async {
//! let registry = Registry::new();
//! registry.register(tool_fn("greet", "Greets somebody.", async |input: Greet, _cx| {
//!     Ok::<_, ToolError>(format!("Hello, {}!", input.name))
//! }))?;
//! let stack = Stack::over(registry).build()?;
//! let outcome = stack.run(Call::detached("greet", Arguments::parse(r#"{"name":"Ann"}"#)?)).await;
//! assert_eq!(outcome.settled().unwrap().model_text(), "Hello, Ann!");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! The three types to know are [`Call`], [`Outcome`] and [`Layer`]. Running many calls at once, writing events
//! to a store and publishing them is left to `toolgate-runtime`; models, real stores and bundled layers to the
//! other crates.

mod annotations;
mod approval;
mod approval_rules;
mod budget;
mod budget_rule;
mod call;
mod charge;
mod checkpoint;
mod clock;
mod diff;
mod digest;
mod env;
mod event;
mod executor;
mod hooks;
mod ids;
mod json;
mod keys;
mod last_step;
mod layer;
mod lease;
mod ledger;
mod lifecycle;
mod loop_event;
mod matcher;
mod memory;
mod memory_accounts;
mod memory_erase;
mod message;
mod model;
mod notes;
mod outcome;
mod panic;
mod price;
mod registry;
mod rows;
mod run;
mod schema;
mod schema_dialect;
mod stack;
mod status;
mod stop;
mod store;
mod store_handle;
mod sugar;
mod text;
mod token;
mod tool;
#[cfg(feature = "tower")]
mod tower;
mod traces;
mod transform;
mod turn;
mod verify;
mod view;

pub use annotations::{Annotations, ConflictKey, Hints, Kind, Resource, ResourceKind, SideEffect};
pub use approval::{
    Answer, ApprovalRequest, Approver, Changed, Decision, DynApprover, Edits, FileState, Question,
    Quorum, Verdict,
};
pub use approval_rules::{Admitted, Vote, admit};
pub use budget::{
    BudgetAlert, BudgetError, BudgetPeriod, BudgetScope, BudgetUnit, Budgets, Expense, Payer,
    THRESHOLDS, UnknownPrice, crossed,
};
pub use budget_rule::{BadBudget, BudgetRule, MissingPayer};
pub use call::{Call, CallData, CallSeed, RawArguments, Resumed, ToolRequest, TurnInfo};
pub use charge::{
    AccountKey, AccountRow, AccountRows, Charge, ChargeFilter, ChargeId, ChargeLine,
    InvalidAccountKey, InvalidChargeId, MAX_AMOUNT, Movement,
};
pub use checkpoint::{
    Checkpoint, DoubtfulCheckpoint, InvalidLedgerKey, InvalidLedgerSignature, LedgerKey,
    LedgerSignature, LedgerVerifier,
};
pub use clock::{Clock, InvalidTimestamp, StoppedClock, Timestamp};
pub use diff::{Change, ChangeOp};
pub(crate) use digest::is_canonical_object;
pub use digest::{Digest, InvalidDigest, canonical_json};
pub use env::{
    Env, LogLevel, Probe, Progress, ProgressKind, RedactionFailed, Redactor, Starting, StopReason,
    Unwatched,
};
pub use event::{Event, EventBody, InvalidEvent, Invocation, PostKind, TurnEvent};
pub use executor::{Executor, ExecutorTag, HostExecutor, Reconciled, UnknownExecutor};
pub use hooks::{HookAction, Hooks};
pub use ids::{
    AgentId, ApprovalId, CallId, IdSource, IdempotencyKey, InvalidApprovalId, InvalidToolName,
    LayerName, Principal, SessionId, ToolName, TurnId,
};
pub use json::{Arguments, Json, JsonError, MAX_DEPTH};
pub use keys::{InvalidKeyId, KeyId, KeyKind, Keyring, SecretKey};
pub use layer::{Adjusted, AnyLayer, Band, Layer, LayerExt, LayerTraits, Next};
pub use lease::{Lease, LeaseRequest, Post};
pub use ledger::{
    EntryOutline, InvalidLedgerName, LedgerDraft, LedgerHead, LedgerName, SealedEntry,
};
pub use lifecycle::{IllegalEvent, Phase, ToolEvent};
pub use loop_event::{Cost, LoopEvent, RunEnd};
pub use matcher::{Matcher, MatcherError};
pub use memory::MemoryStore;
pub use message::{
    Content, Media, MediaSource, Message, Native, Part, ProviderCall, Role, Said, ToolAnswer,
};
pub use model::{
    Delta, Effort, Finish, InvalidModelName, Model, ModelError, ModelErrorKind, ModelName,
    ModelRequest, OutputFormat, Reply, Routed, ToolChoice, Usage, Weight,
};
pub use notes::{
    Consent, LayerNote, LayerStatus, NoteFields, Notes, Provenance, Subject, Superseded, Unsettled,
};
pub use outcome::{CallError, ErrorCategory, Outcome, Settled, Suspension, denied_text};
pub use panic::{contained, contained_sync};
pub use price::{CacheLife, Dollars, Price, PriceTable, PriceTier, Prices, ProviderPrices};
pub use registry::{Existing, RegisterError, Registered, Registry, ToolEntry, Trust};
pub use rows::{
    ApprovalFilter, ApprovalRow, ApprovalState, Hidden, RowChange, SessionFilter, SessionRow,
    TurnFilter, TurnRow,
};
pub use run::Trail;
pub use schema::{Problem, Schema, SchemaError};
pub use stack::{Stack, StackBuilder, StackError, StackWarning};
pub use status::{Status, UnknownStatus};
pub use stop::{StopHandle, Stopped, Stops};
pub use store::{Batch, Position, Record, RecordKey, Store, StoreError, TakenCall, TurnRequests};
pub use store_handle::StoreHandle;
pub use sugar::{FromFn, after, around, before, from_fn, map_call, map_outcome, observe, on_error};
pub use token::{AskClaims, GrantClaims, TokenError, claimed_approval};
pub use tool::{Context, Tool, ToolError, ToolFn, ToolOutput, ToolSpec, tool_fn, typed};
#[cfg(feature = "tower")]
pub use tower::{Below, Passage, TowerLayer};
pub use traces::{Erased, TraceNames, Traces};
pub use transform::Transform;
pub use turn::{PostCode, Slot, Step, Turn, TurnError};
pub use verify::{LedgerCheck, Tampered, Tampering, Verified};
pub use view::{Admission, Injected, ShownTool, View, ViewError};

/// What the code that `#[tool]` writes needs; not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use {schemars, serde};
}
