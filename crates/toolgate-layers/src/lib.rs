//! The bundled layers of Toolgate.
//!
//! One file per layer, each short enough to read in one go.

mod catalog;
mod cut_text;
mod file_changes;
mod file_watcher;
mod found_changes;
mod hooks;
mod kept_text;
mod long_text;
mod observed;
mod options;
mod output_cap;
mod parts;
mod patch_files;
mod progress;
mod progress_store;
mod read_output;
mod toast_store;
mod toasts;

pub use catalog::{BadOption, Configurable};
pub use file_changes::{FileChanges, FileChangesOptions};
pub use file_watcher::{FileChange, FileChangeKind, FileWatcher, InvalidPattern, SubscriptionId};
pub use hooks::{ConfiguredHooks, HooksOptions};
pub use options::{InvalidSpan, Span};
pub use output_cap::{OutputCap, OutputCapOptions};
pub use parts::{Parts, SharedRedactor, Workspace};
pub use progress::{Progress, ProgressOptions};
pub use progress_store::{ProgressItem, ProgressManager};
pub use read_output::ReadOutput;
pub use toast_store::{Toast, ToastAction, ToastId, ToastLevel, ToastManager};
pub use toasts::{Toasts, ToastsLevel, ToastsOptions};
