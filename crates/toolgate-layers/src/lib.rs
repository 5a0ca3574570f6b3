//! The bundled layers of Toolgate.
//!
//! One file per layer, each short enough to read in one go.

mod catalog;
mod cut_text;
mod file_changes;
mod file_watcher;
mod found_changes;
mod handoff;
mod handoff_record;
mod hooks;
mod kept_text;
mod long_text;
mod observed;
mod options;
mod output_cap;
mod parts;
mod patch_files;
mod policy_override;
mod progress;
mod progress_store;
mod read_output;
mod require_reason;
mod toast_store;
mod toasts;

pub use catalog::{BadOption, Configurable};
pub use file_changes::{FileChanges, FileChangesOptions};
pub use file_watcher::{FileChange, FileChangeKind, FileWatcher, InvalidPattern, SubscriptionId};
pub use handoff::{Handoff, HandoffOptions, HandoffSink};
pub use handoff_record::HandoffRecord;
pub use hooks::{ConfiguredHooks, HooksOptions};
pub use options::{InvalidSpan, Span};
pub use output_cap::{OutputCap, OutputCapOptions};
pub use parts::{Parts, SharedRedactor, Workspace};
pub use policy_override::PolicyOverride;
pub use progress::{Progress, ProgressOptions};
pub use progress_store::{ProgressItem, ProgressManager};
pub use read_output::ReadOutput;
pub use require_reason::{OnMissing, RequireReason, RequireReasonOptions};
pub use toast_store::{Toast, ToastAction, ToastId, ToastLevel, ToastManager};
pub use toasts::{Toasts, ToastsLevel, ToastsOptions};
