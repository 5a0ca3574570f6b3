//! The async runtimes that commands work on, made when a command needs one and not before.

use std::future::Future;

use tokio::runtime::{Builder, Runtime};

use crate::CliError;

/// Does short work on this thread: looking things up, one call, one decision.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    on(Builder::new_current_thread(), work)
}

/// Does long work on all cores: whole runs, and screens that must not wait for them.
pub(crate) fn block_on_all<T>(
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    on(Builder::new_multi_thread(), work)
}

fn on<T>(
    mut builder: Builder,
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let runtime: Runtime = builder.enable_all().build().map_err(|error| {
        CliError::from(error)
            .while_doing("no async runtime could be started")
            .hint("the system allows no more threads or open files; `ulimit -a` shows the limits")
    })?;
    runtime.block_on(work)
}
