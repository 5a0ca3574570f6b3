//! One running attempt of a call, and how it is stopped: dropped, its task aborted, its stop actions
//! run.

use std::{pin::pin, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, Either, join, pending, ready, select},
};
use tokio::runtime::{Handle, RuntimeFlavor};
use toolgate_core::{
    Call, CallError, Clock, ErrorCategory, Failure, Next, Outcome, StopActions, StopConfirmation,
};

/// A running attempt, on its own task if the runtime has several threads.
pub(super) struct RunningAttempt {
    pub(super) run: BoxFuture<'static, Outcome>,
    task: Option<tokio::task::AbortHandle>,
    stops: StopActions,
    over: bool,
}

impl RunningAttempt {
    /// Starts the attempt and takes responsibility for its stop actions.
    pub(super) fn start(call: Call, next: Next) -> Self {
        let stops = call.stops().clone();
        // From here on this layer runs the stop actions, or they would run twice: here and in the
        // runtime.
        stops.take_over();
        // A tool that blocks also blocks the thread that polls it. On its own task that is not the
        // caller's thread; a single-threaded runtime has no other thread.
        let many = Handle::try_current()
            .ok()
            .filter(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
        let Some(handle) = many else {
            return Self {
                run: Box::pin(next.run(call)),
                task: None,
                stops,
                over: false,
            };
        };
        let task = handle.spawn(next.run(call));
        let abort = task.abort_handle();
        let run = task.map(|joined| joined.unwrap_or_else(|_| lost_outcome()));
        Self {
            run: Box::pin(run),
            task: Some(abort),
            stops,
            over: false,
        }
    }

    /// Records that the attempt returned by itself, so that dropping stops nothing.
    pub(super) fn mark_done(&mut self, outcome: Outcome) -> Outcome {
        self.over = true;
        outcome
    }

    /// Drops an attempt that did not return, runs its stop actions, and returns whether everything
    /// is known to have stopped.
    pub(super) async fn stop(
        mut self,
        answered: bool,
        clock: &dyn Clock,
        within: Duration,
    ) -> StopConfirmation {
        let stops = self.stops.take_all();
        // A dropped future may have sent its request long ago; only what was registered can be
        // known to be dead.
        let vouched = answered || !stops.is_empty();
        let gone = self.drop_attempt(answered);
        let killed = run_stops(stops);
        match select(pin!(join(killed, gone)), clock.sleep(within)).await {
            Either::Left(((stopped, ()), _)) if vouched => stopped,
            Either::Left(_) | Either::Right(_) => StopConfirmation::Unconfirmed,
        }
    }

    /// Drops an attempt that did not return and runs its stop actions, without waiting for them.
    pub(super) fn abandon(mut self) {
        let stops = self.stops.take_all();
        drop(self.drop_attempt(false));
        drop(run_stops(stops));
    }

    /// Drops the attempt and returns a future that ends when it is gone.
    ///
    /// A task that is stuck in blocking code is gone only when that code ends.
    fn drop_attempt(&mut self, answered: bool) -> BoxFuture<'static, ()> {
        self.over = true;
        let run = std::mem::replace(&mut self.run, Box::pin(pending()));
        match &self.task {
            Some(task) if !answered => {
                // A drop alone would detach the task and leave it running.
                task.abort();
                Box::pin(run.map(drop))
            }
            Some(_) | None => Box::pin(ready(())),
        }
    }
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        // A layer or driver above dropped the call: an interruption, a dropped turn.
        if !self.over {
            // Synchronously: a runtime that is shutting down no longer starts tasks.
            self.stops.take_all().run_all();
            drop(self.drop_attempt(false));
        }
    }
}

/// Runs the registered stop actions, on a blocking thread if there is a runtime: they may wait for
/// processes.
fn run_stops(stops: StopActions) -> BoxFuture<'static, StopConfirmation> {
    match Handle::try_current() {
        Ok(handle) if !stops.is_empty() => {
            let task = handle.spawn_blocking(move || stops.run_all());
            Box::pin(task.map(|word| word.unwrap_or(StopConfirmation::Unconfirmed)))
        }
        Ok(_) | Err(_) => Box::pin(ready(stops.run_all())),
    }
}

/// Returns the outcome of a task that was lost with its runtime.
fn lost_outcome() -> Outcome {
    let error = CallError::new(
        ErrorCategory::Unknown,
        "the call was lost; it is not known whether it took effect",
    );
    Outcome::error(Failure::OutcomeUnknown, error)
}
