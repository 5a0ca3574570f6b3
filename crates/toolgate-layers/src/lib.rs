//! The bundled layers of Toolgate.
//!
//! One file per layer, each short enough to read in one go.

mod bundled;
mod catalog;
mod config;
mod config_error;
mod detectors;
mod explain;
mod keep;
mod lint;
mod options;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "otlp")]
mod otlp_settings;
mod parts;
mod passage;
mod receipt;
mod receipt_file;
mod receipt_sinks;
mod receipts;
mod redact;
mod secrets;
mod span;
mod span_sinks;
mod summary;
mod telemetry;
mod telemetry_options;
mod timeout;
mod tracer;

pub use catalog::{BadOption, Catalog, CatalogEntry, Configurable};
pub use config::{Config, StackSection, default_stack};
pub use config_error::ConfigError;
pub use explain::{Explained, ExplainedLayer, Explanation, explain};
pub use lint::{Finding, lint};
pub use options::{InvalidSpan, Span};
#[cfg(feature = "otlp")]
pub use otlp::OtlpSpans;
#[cfg(feature = "otlp")]
pub use otlp_settings::OtlpSettings;
pub use parts::{Parts, SharedRedactor, Workspace};
pub use receipt::{LayerDecision, Receipt};
pub use receipt_file::JsonlReceipts;
pub use receipt_sinks::{
    BothReceipts, MemoryReceipts, ReceiptFn, ReceiptSink, SharedReceiptSink, SinkError, receipt_fn,
};
pub use receipts::{ReceiptSinkName, Receipts, ReceiptsOptions};
pub use redact::{Phase, Redact, RedactOptions};
pub use secrets::{Secrets, SecretsOptions};
pub use span::{AttributeValue, Attributes, SpanEvent, SpanId, SpanLink, ToolSpan, TraceId};
pub use span_sinks::{Delivery, SharedSpanSink, SpanFn, SpanSink, SpanSinks, StderrSpans, TelemetryCounters, span_fn};
pub use summary::{Summary, SummaryOptions};
pub use telemetry::Telemetry;
pub use telemetry_options::{SpanSinkName, TelemetryOptions};
pub use timeout::{Timeout, TimeoutOptions};
