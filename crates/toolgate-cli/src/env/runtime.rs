//! The async runtimes of commands, started only when a command needs one.

use std::future::Future;

use tokio::runtime::{Builder, Runtime};

use crate::CliError;

/// Runs short work on this thread: a lookup, one call, one decision.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    run_on(Builder::new_current_thread(), work)
}

/// Runs long work on all cores: whole runs, and displays that must not wait for them.
pub(crate) fn block_on_all<T>(
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    run_on(Builder::new_multi_thread(), work)
}

fn run_on<T>(
    mut builder: Builder,
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let runtime: Runtime = builder.enable_all().build().map_err(|error| {
        CliError::from(error)
            .while_doing("no async runtime could be started")
            .with_hint(
                "the system allows no more threads or open files; `ulimit -a` shows the limits",
            )
    })?;
    runtime.block_on(work)
}
