//! The bundled layers of Toolgate.
//!
//! One file per layer, each short enough to read in one go.

mod catalog;
mod keep;
mod options;
mod parts;
mod passage;
mod receipt;
mod receipt_file;
mod receipt_sinks;
mod receipts;
mod summary;

pub use catalog::{BadOption, Configurable};
pub use options::{InvalidSpan, Span};
pub use parts::{Parts, SharedRedactor, Workspace};
pub use receipt::{LayerDecision, Receipt};
pub use receipt_file::JsonlReceipts;
pub use receipt_sinks::{
    BothReceipts, MemoryReceipts, ReceiptFn, ReceiptSink, SharedReceiptSink, SinkError, receipt_fn,
};
pub use receipts::{ReceiptSinkName, Receipts, ReceiptsOptions};
pub use summary::{Summary, SummaryOptions};
