//! The bundled layers of Toolgate.
//!
//! One file per layer, each short enough to read in one go.

mod bundled;
mod catalog;
mod commands;
mod config;
mod config_error;
mod cut_text;
mod detectors;
mod explain;
mod facts;
mod file_changes;
mod file_watcher;
mod found_changes;
mod handoff;
mod handoff_record;
mod hooks;
mod hosts;
mod judge;
mod keep;
mod kept_text;
mod limits;
mod lint;
mod lists;
mod long_text;
mod observed;
mod options;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "otlp")]
mod otlp_settings;
mod output_cap;
mod parts;
mod passage;
mod patch_files;
mod path_patterns;
mod paths;
mod policy;
mod policy_override;
mod progress;
mod progress_store;
mod read_output;
mod receipt;
mod receipt_file;
mod receipt_sinks;
mod receipts;
mod redact;
mod require_reason;
mod rules;
mod scope;
mod secret_files;
mod secrets;
mod shell;
mod span;
mod span_sinks;
mod summary;
mod telemetry;
mod telemetry_options;
mod timeout;
mod toast_store;
mod toasts;
mod tracer;
mod validate;

pub use catalog::{BadOption, Catalog, CatalogEntry, Configurable};
pub use config::{Config, StackSection, default_stack};
pub use config_error::ConfigError;
pub use explain::{Explained, ExplainedLayer, Explanation, explain};
pub use file_changes::{FileChanges, FileChangesOptions};
pub use file_watcher::{FileChange, FileChangeKind, FileWatcher, InvalidPattern, SubscriptionId};
pub use handoff::{Handoff, HandoffOptions, HandoffSink};
pub use handoff_record::HandoffRecord;
pub use hooks::{ConfiguredHooks, HooksOptions};
pub use judge::Judgement;
pub use limits::{Capability, ScopePolicy, Violation};
pub use lint::{Finding, lint};
pub use lists::OneOrMany;
pub use options::{InvalidSpan, Span};
#[cfg(feature = "otlp")]
pub use otlp::OtlpSpans;
#[cfg(feature = "otlp")]
pub use otlp_settings::OtlpSettings;
pub use output_cap::{OutputCap, OutputCapOptions};
pub use parts::{Parts, SharedRedactor, Workspace};
pub use policy::Policy;
pub use policy_override::PolicyOverride;
pub use progress::{Progress, ProgressOptions};
pub use progress_store::{ProgressItem, ProgressManager};
pub use read_output::ReadOutput;
pub use receipt::{LayerDecision, Receipt};
pub use receipt_file::JsonlReceipts;
pub use receipt_sinks::{
    BothReceipts, MemoryReceipts, ReceiptFn, ReceiptSink, SharedReceiptSink, SinkError, receipt_fn,
};
pub use receipts::{ReceiptSinkName, Receipts, ReceiptsOptions};
pub use redact::{Phase, Redact, RedactOptions};
pub use require_reason::{OnMissing, RequireReason, RequireReasonOptions};
pub use rules::{Effect, Fallback, PolicyOptions, Rule};
pub use scope::{OnViolation, Scope, ScopeOptions};
pub use secrets::{Secrets, SecretsOptions};
pub use span::{AttributeValue, Attributes, SpanEvent, SpanId, SpanLink, ToolSpan, TraceId};
pub use span_sinks::{Delivery, SharedSpanSink, SpanFn, SpanSink, SpanSinks, StderrSpans, TelemetryCounters, span_fn};
pub use summary::{Summary, SummaryOptions};
pub use telemetry::Telemetry;
pub use telemetry_options::{SpanSinkName, TelemetryOptions};
pub use timeout::{Timeout, TimeoutOptions};
pub use toast_store::{Toast, ToastAction, ToastId, ToastLevel, ToastManager};
pub use toasts::{Toasts, ToastsLevel, ToastsOptions};
pub use validate::{ParameterRule, Validate, ValidateOptions};
