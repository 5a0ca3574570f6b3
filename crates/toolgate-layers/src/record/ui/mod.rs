//! Progress, toasts and file changes: data that screens subscribe to.

pub(crate) mod detect;
pub(crate) mod file_changes;
pub(crate) mod file_watcher;
mod observable;
pub(crate) mod progress;
pub(crate) mod progress_manager;
pub(crate) mod toast_manager;
pub(crate) mod toasts;
