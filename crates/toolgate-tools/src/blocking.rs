//! Work on files happens on threads that may wait, and stops when its call does.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use toolgate_core::{Context, StopHandle, Stopped, ToolError};

/// Tells work on another thread to stop, up to the point from which it has to be finished.
#[derive(Debug, Clone, Default)]
pub(crate) struct Halt(Arc<AtomicU8>);

const GOING: u8 = 0;
const BEGUN: u8 = 1;
const HALTED: u8 = 2;

impl Halt {
    /// Whether the work should end here.
    pub(crate) fn check(&self) -> Result<(), ToolError> {
        match self.0.load(Ordering::Acquire) {
            HALTED => Err(ToolError::cancelled()),
            _ => Ok(()),
        }
    }

    /// Begins what must not be left half-way, unless the work was stopped before.
    pub(crate) fn begin(&self) -> Result<(), ToolError> {
        let begun = self
            .0
            .compare_exchange(GOING, BEGUN, Ordering::AcqRel, Ordering::Acquire);
        begun.map(drop).map_err(|_| ToolError::cancelled())
    }

    /// Stops the work; confirmed if it has not begun to change anything, and never will.
    fn halt(&self) -> Stopped {
        match self
            .0
            .compare_exchange(GOING, HALTED, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) | Err(HALTED) => Stopped::Confirmed,
            Err(_) => Stopped::Unconfirmed,
        }
    }

    /// Lets the runtime stop the work, and tells it whether anything may have happened.
    pub(crate) fn on_stop(&self, cx: &Context) -> StopHandle {
        let halt = self.clone();
        cx.on_stop(move || halt.halt())
    }
}

/// Halts the work when the future that waits for it is dropped.
struct HaltOnDrop(Option<Halt>);

impl Drop for HaltOnDrop {
    fn drop(&mut self) {
        if let Some(halt) = self.0.take() {
            halt.halt();
        }
    }
}

/// Runs `work` on a thread that may wait. If the call is cancelled or dropped, `work` is told.
pub(crate) async fn blocking<T: Send + 'static>(
    cx: &Context,
    halt: &Halt,
    work: impl FnOnce(&Halt) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let (mine, mut dropped) = (halt.clone(), HaltOnDrop(Some(halt.clone())));
    let mut task = tokio::task::spawn_blocking(move || work(&mine));
    let joined = tokio::select! {
        joined = &mut task => joined,
        () = cx.cancelled() => {
            halt.halt();
            task.await
        }
    };
    dropped.0 = None;
    match joined {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(ToolError::cancelled()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_begun_is_stopped_for_certain_and_never_begins() {
        let halt = Halt::default();
        assert_eq!(halt.halt(), Stopped::Confirmed);
        assert!(halt.begin().is_err() && halt.check().is_err());
        let begun = Halt::default();
        begun.begin().expect("nobody has stopped it");
        assert_eq!(begun.halt(), Stopped::Unconfirmed);
        assert!(begun.check().is_ok(), "what has begun is finished");
    }
}
