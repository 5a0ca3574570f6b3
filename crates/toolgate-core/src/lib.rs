//! The vocabulary, rules and traits of Toolgate.
//!
//! A model asks for calls. A [`View`] checks each request against what the model was shown, a
//! [`Stack`] of [`Layer`]s decides on it, shapes it and bounds it, an [`Executor`] runs it, and a
//! [`Turn`] settles each invocation once. Nothing here performs I/O, reads a clock or needs an
//! async runtime: ids and time come from the caller, so that every interleaving can be tested and
//! replayed.
//!
//! ```
//! use toolgate_core::{Call, Arguments, Registry, Stack, ToolError, tool_fn};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Greet { name: String }
//!
//! # futures::executor::block_on(async {
//! let registry = Registry::new();
//! registry.register(tool_fn("greet", "Greets a person.", async |input: Greet, _cx| {
//!     Ok::<_, ToolError>(format!("Hello, {}!", input.name))
//! }))?;
//! let stack = Stack::over(registry).build()?;
//! let outcome = stack.run(Call::detached("greet", Arguments::parse(r#"{"name":"Ann"}"#)?)).await;
//! assert_eq!(outcome.settled().unwrap().model_text(), "Hello, Ann!");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! The three types to know are [`Call`], [`Outcome`] and [`Layer`]. Running many calls at once,
//! writing events to a store and publishing them is left to `toolgate-runtime`; models, real stores
//! and bundled layers to the other crates.

mod approval;
mod budget;
mod call;
mod ledger;
mod memory;
mod model;
pub mod patch;
mod search;
mod stack;
mod store;
mod tool;
mod turn;
mod value;

pub use approval::callbacks::{DecisionCallbacks, MadeDecision, decision_claim_key};
pub use approval::identity::{ApproverIdentity, IdentitySource};
pub use approval::keys::{InvalidKeyId, KeyId, KeyKind, Keyring, SecretKey};
pub use approval::rule_signature::{InvalidRuleKey, RulePublicKey, RuleSignature};
pub use approval::rules::{AdmittedDecision, Vote, admit_decision, meets_quorum};
pub use approval::seal::ChangedRequest;
pub use approval::shown::mask::{SecretSource, SecretSpan};
pub use approval::shown::visible::{VisiblePart, VisibleText, escape_invisible};
pub use approval::shown::{SHOWN_MARGIN, ShownField, ShownKind, ShownRequest};
pub use approval::token::{AskClaims, GrantClaims, TokenError, unverified_approval_id};
pub use approval::{
    ApprovalAnswer, ApprovalChange, ApprovalRequest, ApprovalRequestRef, Approver, Decision,
    DynApprover, EditStage, FileState, PathLink, Quorum, StatedReason, Verdict,
};
pub use budget::alert::{
    AlertThresholds, AlertUnit, BudgetAlert, BudgetAlertLevel, BudgetAmounts, InvalidThreshold,
};
pub use budget::billing::{BillingService, ExpenseState};
pub use budget::charge::{
    AccountKey, AccountMovement, AccountRow, AccountRows, Charge, ChargeFilter, ChargeId,
    ChargeLine, InvalidAccountKey, InvalidChargeId, MAX_AMOUNT,
};
pub use budget::price::{
    CacheLife, DollarsPerMillion, Price, PriceTable, PriceTier, Prices, ProviderPrices,
    convert_dollars,
};
pub use budget::rule::{BudgetRule, InvalidBudget, MissingPayer};
pub use budget::{
    BudgetError, BudgetPeriod, BudgetScope, BudgetUnit, Budgets, Expense, Payer, UnknownPrice,
};
pub use call::access::{Access, AccessJudge, AccessVerdict};
pub use call::env::{
    CallEnv, LogLevel, NoProbe, Probe, Progress, ProgressKind, RedactionError, Redactor,
    StartPermit, StopReason,
};
pub use call::notes::keys::{self as note_keys, InvalidNote, NoteKey};
pub use call::notes::{
    ChangeSubject, ConsentNote, LayerNote, LayerStatus, NoteFields, Notes, Provenance,
    SupersededNote, UnsettledReason,
};
pub use call::outcome::{CallError, ErrorCategory, Outcome, SettledOutcome, Suspension};
pub use call::reports::{
    FileChange, FileChangeKind, LongRunningLabel, ToastAction, ToastLevel, ToastNotice,
    strip_dot_slash,
};
pub use call::requirement::ApprovalRequirement;
pub use call::status::{ErrorStatus, Failure, Refusal, Status, UnknownStatus};
pub use call::stop::{StopActions, StopConfirmation, StopHandle};
pub use call::{Call, CallData, CallSeed, RawArguments, ResumeState, ToolRequest, TurnInfo};
pub use ledger::checkpoint::{
    Checkpoint, CheckpointError, InvalidLedgerKey, InvalidLedgerSignature, LedgerKey,
    LedgerSignature, LedgerVerifier,
};
pub use ledger::restore::AcceptedRestore;
pub use ledger::verify::{
    LedgerVerification, TamperKind, TamperedLedger, UncheckedCheckpoint, VerifiedLedger,
};
pub use ledger::{
    EntryOutline, InvalidLedgerName, LedgerDraft, LedgerHead, LedgerName, SealedEntry,
};
pub use memory::extract::{
    FoundMemory, MAX_FOUND_MEMORIES, find_memories, remember_command, said_texts,
};
pub use memory::patterns::{ExtractionPattern, SaidBy};
pub use memory::quote::{quote_memories, quote_ranked};
pub use memory::rank::{
    RankedMemory, RecallCandidate, RecallOptions, estimate_tokens, rank_memories,
};
pub use memory::scope::{RecallScope, ScopeWord};
pub use memory::text::{InvalidMemoryText, MemoryText};
pub use memory::transfer::{
    InvalidMemoryFile, TransferredMemory, TransferredScope, read_memory_file, write_memory_file,
};
pub use memory::vector::MemoryVector;
pub use memory::{MemoryKind, MemoryOrigin, MemoryRecord, MemorySource, UnknownMemoryKind};
pub use model::embedder::{EmbedError, Embedder, EmbedderId};
pub use model::message::{
    Media, MediaSource, Message, MessagePart, MessageRecord, NativeItem, PartContent, ProviderCall,
    Role, ToolAnswer,
};
pub use model::source::ModelSource;
pub use model::{
    Delta, Effort, FinishReason, InvalidModelName, Model, ModelError, ModelErrorKind, ModelName,
    ModelRequest, ModelRetry, OutputFormat, Reply, RoutedModel, TaskComplexity, ToolChoice, Usage,
};
pub use search::answer::{
    InvalidSearchCursor, SearchAnswer, SearchCursor, SearchError, SearchHit, SearchMode,
    SearchRequest,
};
pub use search::document::{SearchDocument, SearchDocumentId, SearchKind};
pub use search::entry::{IndexEntry, WordCounts};
pub use search::filter::{
    InvalidSearchFilter, SEARCH_FILTER_WORDS, SearchFilter, SearchTime, is_project,
};
pub use search::indexing::SearchProgress;
pub use search::query::SearchQuery;
pub use search::rank::{RankedDocument, fuse_rankings, rank_text};
pub use search::service::{SearchService, SearchStatus};
pub use search::snippet::SearchSnippet;
pub use search::terms::{MatchTerm, SearchFacet, SearchRequirement, TextSearch};
pub use search::vectors::{
    NearestVectors, VectorIndex, VectorQuery, best_documents, decode_vector, encode_signs,
    encode_vector,
};
pub use search::words::{SEARCH_INDEX_VERSION, SearchWord, joined_names, split_words};
pub use stack::adapters::{
    BeforeExecution, FromFn, after, around, before, from_fn, map_call, map_outcome, observe,
    on_error,
};
pub use stack::executor::{
    Executor, ExecutorTag, HostExecutor, ReconciledAttempt, UnknownExecutor,
};
pub use stack::hooks::{HookAction, HookEntry, HookId, HookMoment, Hooks};
pub use stack::layer::{AdjustedLayer, AnyLayer, Band, Layer, LayerCapabilities, LayerExt, Next};
pub use stack::matcher::{Matcher, MatcherError};
pub use stack::panic::{run_contained, run_contained_sync};
#[cfg(feature = "tower")]
pub use stack::tower::{NextService, TowerLayer, TowerRequest};
pub use stack::trail::Trail;
pub use stack::{Stack, StackBuilder, StackError, StackRank, StackWarning};
pub use store::accounts::AccountStore;
pub use store::catalogue::CatalogueStore;
pub use store::erasure::{ErasedSessions, ErasureNames, ErasureScope};
pub use store::events::{EventStore, Lease, LeaseRequest, LeaseTerm, LogPosition, WriteBatch};
pub use store::handle::StoreHandle;
pub use store::import_origin::ImportOrigin;
pub use store::ledgers::LedgerStore;
pub use store::mailbox::{MailboxItem, MailboxStore};
pub use store::memories::{
    ChangedMemory, ExpiryFilter, ForgottenMemories, MemoryChange, MemoryDraft, MemoryFilter,
    MemoryOwner, MemoryRecordStore, PutMemory, StoredMemory, TextRemains,
};
pub use store::memory::MemoryStore;
pub use store::record_key::RecordKey;
pub use store::records::{AcceptedCall, RecordContent, RecordStore, StoreRecord, TurnRequests};
pub use store::rows::{
    ApprovalFilter, ApprovalRow, ApprovalState, HiddenSessions, LastRun, RowChange, RunState,
    SessionFilter, SessionOrder, SessionRow, SessionTitle, SessionUpdate, TurnFilter, TurnRow,
};
pub use store::run_record::{OnCap, RunInstructions, RunRecord};
pub use store::search::{
    FREQUENCY_SAMPLE, IndexBatch, SearchCandidate, SearchCounts, SearchStore, StaleSession,
    TermMatches, TextMatches, VectorMatches, VectorSearch, estimate_frequency,
};
pub use store::session_totals::{SessionTotals, UnsettledWork};
pub use store::{Store, StoreError, UnavailableReason};
pub use tool::annotations::{
    Annotations, ConflictKey, Resource, ResourceKind, SideEffect, ToolHints, ToolKind,
};
pub use tool::host_values::{FilledTool, HostValues};
pub use tool::policy_override::PolicyOverride;
pub use tool::registry::{
    OnExisting, RegisterError, Registration, Registry, SourceTrust, ToolEntry,
};
pub use tool::state::State;
pub use tool::transform::Transform;
pub use tool::view::{Admission, InjectedParameter, ShownTool, View, ViewError};
pub use tool::{Context, Tool, ToolError, ToolFn, ToolOutput, ToolSpec, parse_arguments, tool_fn};
pub use turn::event::{Event, EventBody, InputKind, InvalidEvent, Invocation, TurnEvent};
pub use turn::lifecycle::{IllegalEvent, Phase, ToolEvent};
pub use turn::session_event::{Cost, RunEnd, SessionEvent};
pub use turn::{InvocationSlot, RejectCode, Turn, TurnError, TurnStep};
pub use value::acting_files::{acting_file, acting_file_names};
pub use value::canonical::canonical_text;
pub use value::clock::{Clock, InvalidTimestamp, StoppedClock, Timestamp};
pub use value::diff::{JsonChange, JsonChangeOp};
pub(crate) use value::digest::is_canonical_object;
pub use value::digest::{Digest, InvalidDigest, canonical_json};
pub use value::duration::{HumanDuration, InvalidDuration};
pub use value::ids::{
    AgentId, ApprovalId, CallId, IdSource, IdempotencyKey, InvalidApprovalId, InvalidToolName,
    LayerName, MemoryId, Principal, SessionId, ToolName, TurnId,
};
pub use value::json::{Arguments, Json, JsonError, MAX_DEPTH, within_depth};
pub use value::labels::{InvalidLabel, Labels};
pub use value::pointer::{
    argument_pointer, parse_argument_pointer, unescape_pointer_token, within_pointer,
};
pub use value::schema::{Schema, SchemaError, SchemaProblem};
pub use value::text::{backticked_words, error_chain, line_and_column, serialized_word};

/// Dependencies of the code that `#[tool]` generates; not for direct use.
#[doc(hidden)]
pub mod __private {
    pub use crate::{
        Annotations, Arguments, Context, HostValues, Resource, Schema, SideEffect, State, Tool,
        ToolError, ToolKind, ToolOutput, ToolSpec, parse_arguments,
        tool::argument::assert_argument,
    };
    pub use {schemars, serde};
}
