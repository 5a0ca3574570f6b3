//! Runs work on files on blocking threads, and stops it when its call is stopped.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use toolgate_core::{Context, StopConfirmation, StopHandle, ToolError};

/// A stop signal for work on another thread, effective until the work starts to write.
#[derive(Debug, Clone, Default)]
pub(crate) struct HaltFlag(Arc<AtomicU8>);

const RUNNING: u8 = 0;
const WRITING: u8 = 1;
const HALTED: u8 = 2;

impl HaltFlag {
    /// Fails if the work was stopped.
    pub(crate) fn check_running(&self) -> Result<(), ToolError> {
        match self.0.load(Ordering::Acquire) {
            HALTED => Err(ToolError::cancelled()),
            _ => Ok(()),
        }
    }

    /// Begins the part that must not be interrupted; fails if the work was stopped before.
    pub(crate) fn begin_writing(&self) -> Result<(), ToolError> {
        // One exchange decides the race with `halt`: the work either writes or is confirmed stopped.
        let begun = self
            .0
            .compare_exchange(RUNNING, WRITING, Ordering::AcqRel, Ordering::Acquire);
        begun.map(drop).map_err(|_| ToolError::cancelled())
    }

    /// Stops the work; confirmed if it has not changed anything and never will.
    fn halt(&self) -> StopConfirmation {
        match self
            .0
            .compare_exchange(RUNNING, HALTED, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) | Err(HALTED) => StopConfirmation::Confirmed,
            Err(_) => StopConfirmation::Unconfirmed,
        }
    }

    /// Registers the signal with the call, so that the runtime can stop the work.
    pub(crate) fn on_stop(&self, cx: &Context) -> StopHandle {
        let halt = self.clone();
        cx.on_stop(move || halt.halt())
    }
}

/// Halts the work when the future that waits for it is dropped.
struct HaltOnDrop(Option<HaltFlag>);

impl Drop for HaltOnDrop {
    fn drop(&mut self) {
        if let Some(halt) = self.0.take() {
            halt.halt();
        }
    }
}

/// Runs `work` on a blocking thread.
///
/// # Errors
///
/// Returns the error of `work`, or "cancelled" if the thread never ran.
///
/// # Cancel safety
///
/// If the future is dropped or the call is cancelled, `halt` is set. The thread itself cannot be
/// interrupted: it ends at its next check.
pub(crate) async fn run_blocking<T: Send + 'static>(
    cx: &Context,
    halt: &HaltFlag,
    work: impl FnOnce(&HaltFlag) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let mine = halt.clone();
    let mut dropped = HaltOnDrop(Some(halt.clone()));
    let mut task = tokio::task::spawn_blocking(move || work(&mine));
    let joined = tokio::select! {
        joined = &mut task => joined,
        () = cx.cancelled() => {
            halt.halt();
            // Still awaited: if the work has begun to write, its result is the truth.
            task.await
        }
    };
    // Disarmed: a plan and its commit share one flag, and a halt left behind by the finished plan
    // would cancel the commit.
    dropped.0 = None;
    match joined {
        Ok(result) => result,
        // Raised again on the task of the call, where the stack catches the panic of any tool.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ToolError::cancelled()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_has_not_begun_is_confirmed_stopped_and_never_begins() {
        let halt = HaltFlag::default();
        assert_eq!(halt.halt(), StopConfirmation::Confirmed);
        assert!(halt.begin_writing().is_err() && halt.check_running().is_err());
        let begun = HaltFlag::default();
        begun.begin_writing().expect("it was not stopped");
        assert_eq!(begun.halt(), StopConfirmation::Unconfirmed);
        assert!(
            begun.check_running().is_ok(),
            "work that has begun is finished"
        );
    }
}
