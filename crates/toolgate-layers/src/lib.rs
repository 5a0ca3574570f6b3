//! The bundled layers of Toolgate, and the configuration that assembles them into a stack.
//!
//! Each layer has its own file or folder, grouped by band. [`default_stack`] returns the layers in
//! order, [`Config`] loads `toolgate.toml`, [`lint`] reports hazards in an order, [`describe`]
//! gives the reason for each position, and [`explain`] says what a stack would do with a call.
//!
//! ```
//! use toolgate_core::{Arguments, Call, Registry, Stack};
//! use toolgate_layers::{Config, Resources, default_stack};
//!
//! # futures::executor::block_on(async {
//! let parts = Resources::new();
//! let config = Config::parse("[layers.scope]\nallowed_tools = ['read_file']")?;
//! let stack = Stack::over(Registry::new()).any_layers(default_stack(&config, &parts)?).build()?;
//! let outcome = stack.run(Call::detached("delete_file", Arguments::empty())).await;
//! assert_eq!(outcome.status(), Some(toolgate_core::Status::OutOfScope));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! The three types to know are [`Config`], [`Resources`] (services that no file can hold) and
//! [`Catalog`] (the layers that a file can name). Asking for approval, running turns and writing
//! the journal are left to `toolgate-runtime`; limits that several processes share are left to the
//! stores.

mod bound;
mod config;
mod decide;
mod identity;
mod inspect;
mod record;
mod repeat;
mod shape;
#[cfg(test)]
mod testing;

pub use bound::catch_panic::{CatchPanic, CatchPanicOptions};
pub use bound::dry_run::{DryRun, DryRunOptions};
pub use bound::timeout::{Timeout, TimeoutOptions};
pub use config::catalog::{BadOption, Catalog, CatalogEntry, Configurable};
pub use config::error::{BuildError, ConfigError};
pub use config::lists::OneOrMany;
pub use config::resources::{KnownSecrets, PathBase, Resources, SharedRedactor, redact_fn};
pub use config::section::ProgramSection;
pub use config::{Config, StackSection, default_stack};
pub use decide::approval::Approval;
pub use decide::approval::approvers::{FirstOf, FixedApprover, Prompt, SuspendingApprover};
pub use decide::approval::options::{ApprovalOptions, AskWhen};
pub use decide::approval::preview::{CallPreview, FilePreview, Preview, SharedPreview};
pub use decide::approval::rule::{
    ArgumentPattern, InvalidRule, RuleEffect, RuleScope, StandingRule,
};
pub use decide::approval::rule_book::{RuleBook, RuleError, StoredRule, UnreadableRule};
pub use decide::approval::rule_draft::{RuleCoverage, RuleDraft, UndraftableRule};
pub use decide::approval::rule_preview::MatchedCall;
pub use decide::approval::rule_signer::RuleSigner;
pub use decide::budget::{Budget, BudgetOptions, OnUnknownCost};
pub use decide::loop_guard::{LoopGuard, LoopGuardOptions};
pub use decide::policy::Policy;
pub use decide::policy::arguments::{ArgumentCondition, TextPattern};
pub use decide::policy::judge::Judgement;
pub use decide::policy::rules::{PolicyEffect, PolicyFallback, PolicyOptions, PolicyRule};
pub use decide::rate_limit::{CallRate, RateLimit, RateLimitOptions, RateScope, TotalScope};
pub use decide::scope::limits::{Capability, ScopePolicy, ScopeViolation};
pub use decide::scope::{OnViolation, Scope, ScopeOptions};
pub use decide::validate::{ParameterRule, Validate, ValidateOptions};
pub use inspect::describe::{StackLine, describe};
pub use inspect::explain::{CallVerdict, ExplainedLayer, Explanation, explain};
pub use inspect::lint::{LintFinding, lint};
pub use inspect::tool_names::{KnownTools, UnknownTool};
pub use record::ledger::export::{VerifiedExport, verify_export};
pub use record::ledger::mirror::LedgerMirror;
pub use record::ledger::outcomes::{ComparedCall, OutcomeComparison};
pub use record::ledger::{
    CheckpointSchedule, Ledger, LedgerError, LostHead, ReceiptFilter, ReceiptPage, SealedReceipt,
};
pub use record::receipts::commitment::{Commitment, CommitmentKey, DigestedValue};
pub use record::receipts::jsonl::JsonlReceipts;
pub use record::receipts::receipt::{LayerDecision, Receipt, ReceiptApproval};
pub use record::receipts::sink::{
    BothReceipts, MemoryReceipts, ReceiptFn, ReceiptSink, SharedReceiptSink, SinkError, receipt_fn,
};
pub use record::receipts::store::StoreReceipts;
pub use record::receipts::{ReceiptSinkName, Receipts, ReceiptsOptions};
pub use record::summary::{Summary, SummaryOptions};
pub use record::telemetry::Telemetry;
pub use record::telemetry::options::{SpanSinkName, TelemetryOptions};
#[cfg(feature = "otlp")]
pub use record::telemetry::otlp::OtlpSpans;
#[cfg(feature = "otlp")]
pub use record::telemetry::otlp_settings::OtlpSettings;
pub use record::telemetry::sink::{
    SharedSpanSink, SpanDelivery, SpanFn, SpanSink, SpanSinks, StderrSpans, TelemetryCounters,
    span_fn,
};
pub use record::telemetry::span::{
    AttributeValue, SpanAttributes, SpanEvent, SpanId, SpanLink, ToolSpan, TraceId,
};
pub use record::ui::file_changes::{FileChanges, FileChangesOptions};
pub use record::ui::file_watcher::{FileWatcher, InvalidPattern, SubscriptionId};
pub use record::ui::progress::{ProgressLayer, ProgressOptions};
pub use record::ui::progress_manager::{ProgressItem, ProgressManager};
pub use record::ui::toast_manager::{Toast, ToastId, ToastManager};
// They are part of events; screens use them together with the managers.
pub use record::ui::toasts::{ToastLevelOption, Toasts, ToastsOptions};
pub use repeat::circuit_breaker::{CircuitBreaker, CircuitBreakerOptions, CircuitScope};
pub use repeat::idempotency::{AllArguments, Idempotency, IdempotencyKeyBy, IdempotencyOptions};
pub use repeat::retry::{Retry, RetryOptions};
pub use shape::handoff::record::HandoffRecord;
pub use shape::handoff::{Handoff, HandoffOptions, HandoffSink};
pub use shape::hooks::command::{CommandHook, CommandHooks, HookCommandLine, HookFailure};
pub use shape::hooks::{ConfiguredHooks, HooksOptions};
pub use shape::output_cap::read_tool::ReadOutput;
pub use shape::output_cap::{OutputCap, OutputCapOptions};
pub use shape::redact::scanner::{SecretScanner, SecretScannerOptions};
pub use shape::redact::{Redact, RedactOptions};
pub use shape::require_reason::{OnMissing, RequireReason, RequireReasonOptions};
pub use toolgate_core::PolicyOverride;
pub use toolgate_core::{
    FileChange, FileChangeKind, ToastAction, ToastLevel, ToastNotice, strip_dot_slash,
};
pub use toolgate_core::{HumanDuration, InvalidDuration};
