//! The bundled layers of Toolgate, and what puts them together.
//!
//! One file per layer, each short enough to read in one go. [`default_stack`] returns them in order, [`Config`] reads
//! `toolgate.toml`, [`lint`] finds what is wrong with an order, [`describe`] says why each layer stands where it does,
//! and [`explain`] what would happen to a call.
//!
//! ```
//! use toolgate_core::{Arguments, Call, Registry, Stack};
//! use toolgate_layers::{Config, Parts, default_stack};
//!
//! # futures::executor::block_on(async {
//! let parts = Parts::new();
//! let config = Config::parse("[layers.scope]\nallowed_tools = ['read_file']")?;
//! let stack = Stack::over(Registry::new()).any_layers(default_stack(&config, &parts)?).build()?;
//! let outcome = stack.run(Call::detached("delete_file", Arguments::empty())).await;
//! assert_eq!(outcome.status(), Some(toolgate_core::Status::OutOfScope));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! The three types to know are [`Config`], [`Parts`] (what no file can hold) and [`Catalog`] (which layers there are).
//! Asking people, running turns and writing the journal is left to `toolgate-runtime`; shared limits
//! to the stores.

mod accounts;
mod allow_rule;
mod approval;
mod approval_options;
mod approvers;
mod argument_names;
mod asks;
mod boundary;
mod budget;
mod budget_section;
mod bundled;
mod catalog;
mod catch_panic;
mod circuit_breaker;
mod commands;
mod commitment;
mod config;
mod config_error;
mod config_schema;
mod consent;
mod cut_text;
mod describe;
mod detectors;
mod dry_run;
mod explain;
mod facts;
mod file_changes;
mod file_watcher;
mod found_changes;
mod handoff;
mod handoff_record;
mod hooks;
mod hosts;
mod idempotency;
mod judge;
mod keep;
mod kept_text;
mod ledger_export;
mod ledger_mirror;
mod limits;
mod lint;
mod lists;
mod long_text;
mod loop_guard;
mod loop_history;
mod observed;
mod options;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "otlp")]
mod otlp_settings;
mod output_cap;
mod owner;
mod parts;
mod passage;
mod patch_files;
mod path_patterns;
mod paths;
mod policy;
mod policy_override;
mod preview;
mod preview_edits;
mod progress;
mod progress_store;
mod rate_limit;
mod rate_window;
mod read_output;
mod receipt;
mod receipt_file;
mod receipt_ledger;
mod receipt_sinks;
mod receipt_store;
mod receipts;
mod redact;
mod require_reason;
mod retry;
mod rule_book;
mod rules;
mod scope;
mod secret_files;
mod secrets;
mod section;
mod shell;
mod single_flight;
mod small_notes;
mod span;
mod span_sinks;
mod store_accounts;
mod summary;
mod telemetry;
mod telemetry_options;
mod timeout;
mod toast_store;
mod toasts;
mod tool_globs;
mod tracer;
#[cfg(test)]
mod try_out;
mod validate;
mod variables;

pub use accounts::{
    Accounts, AccountsDown, BudgetAccount, BudgetRefusal, MemoryAccounts, Reservation,
    SharedAccounts,
};
pub use allow_rule::{AllowRule, ArgumentPattern, BadRule, RuleEffect, RuleScope};
pub use approval::Approval;
pub use approval_options::{ApprovalOptions, AskWhen};
pub use approvers::{FirstOf, Fixed, NoName, Prompt, Suspend};
pub use budget::{Budget, BudgetOptions, OnUnknownCost};
pub use catalog::{BadOption, Catalog, CatalogEntry, Configurable};
pub use catch_panic::{CatchPanic, CatchPanicOptions};
pub use circuit_breaker::{CircuitBreaker, CircuitBreakerOptions};
pub use commitment::{Commitment, CommitmentKey, Within};
pub use config::{Config, StackSection, default_stack};
pub use config_error::{BuildError, ConfigError};
pub use describe::{StackLine, describe};
pub use dry_run::{DryRun, DryRunOptions};
pub use explain::{Explained, ExplainedLayer, Explanation, explain};
pub use file_changes::{FileChanges, FileChangesOptions};
pub use file_watcher::{FileChange, FileChangeKind, FileWatcher, InvalidPattern, SubscriptionId};
pub use handoff::{Handoff, HandoffOptions, HandoffSink};
pub use handoff_record::HandoffRecord;
pub use hooks::{ConfiguredHooks, HooksOptions};
pub use idempotency::{Idempotency, IdempotencyKeyBy, IdempotencyOptions};
pub use judge::Judgement;
pub use ledger_export::{VerifiedExport, verify_export};
pub use ledger_mirror::LedgerMirror;
pub use limits::{Capability, ScopePolicy, Violation};
pub use lint::{Finding, lint};
pub use lists::OneOrMany;
pub use loop_guard::{LoopGuard, LoopGuardOptions};
pub use options::{InvalidSpan, Span};
#[cfg(feature = "otlp")]
pub use otlp::OtlpSpans;
#[cfg(feature = "otlp")]
pub use otlp_settings::OtlpSettings;
pub use output_cap::{OutputCap, OutputCapOptions};
pub use parts::{Parts, SharedRedactor, Workspace};
pub use policy::Policy;
pub use policy_override::PolicyOverride;
pub use preview::{FilePreview, Preview, Previewed, SharedPreview};
pub use progress::{Progress, ProgressOptions};
pub use progress_store::{ProgressItem, ProgressManager};
pub use rate_limit::{CallsPer, RateLimit, RateLimitOptions, RateScope};
pub use read_output::ReadOutput;
pub use receipt::{LayerDecision, Receipt, ReceiptApproval};
pub use receipt_file::JsonlReceipts;
pub use receipt_ledger::{
    Checkpoints, Ledger, LedgerError, ReceiptFilter, ReceiptPage, SealedReceipt,
};
pub use receipt_sinks::{
    BothReceipts, MemoryReceipts, ReceiptFn, ReceiptSink, SharedReceiptSink, SinkError, receipt_fn,
};
pub use receipt_store::StoreReceipts;
pub use receipts::{ReceiptSinkName, Receipts, ReceiptsOptions};
pub use redact::{Phase, Redact, RedactOptions};
pub use require_reason::{OnMissing, RequireReason, RequireReasonOptions};
pub use retry::{Retry, RetryOptions};
pub use rule_book::{MatchedCall, RuleBook, RuleError};
pub use rules::{Effect, Fallback, PolicyOptions, Rule};
pub use scope::{OnViolation, Scope, ScopeOptions};
pub use secrets::{Secrets, SecretsOptions};
pub use section::Section;
pub use span::{AttributeValue, Attributes, SpanEvent, SpanId, SpanLink, ToolSpan, TraceId};
pub use span_sinks::{
    Delivery, SharedSpanSink, SpanFn, SpanSink, SpanSinks, StderrSpans, TelemetryCounters, span_fn,
};
pub use store_accounts::StoreAccounts;
pub use summary::{Summary, SummaryOptions};
pub use telemetry::Telemetry;
pub use telemetry_options::{SpanSinkName, TelemetryOptions};
pub use timeout::{Timeout, TimeoutOptions};
pub use toast_store::{Toast, ToastAction, ToastId, ToastLevel, ToastManager};
pub use toasts::{Toasts, ToastsLevel, ToastsOptions};
pub use validate::{ParameterRule, Validate, ValidateOptions};
