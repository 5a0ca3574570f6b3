//! The last step of a call: runs the executor, and sees to what it leaves behind.

use std::sync::Arc;

use crate::{
    Call, CallError, ErrorCategory, Outcome, Status, Stopped, Stops, Suspension,
    executor::DynExecutor, panic::contain, run::exception,
};

/// Runs a call that may run.
pub(crate) async fn run(executor: Arc<dyn DynExecutor>, call: Call, outside: bool) -> Outcome {
    let tag = call.shown().map(|shown| shown.entry.executor.clone());
    let (stops, cancel) = (call.stops().clone(), call.cancel.clone());
    let (writes, known) = (call.annotations().may_write(), call.spec().is_some());
    let mut unfinished = Unfinished(Some(stops.clone()));
    let done = contain(executor.execute(call)).await;
    unfinished.0 = None;
    let mut outcome = match done {
        Ok(outcome) => {
            let stopped = stopped(&stops, cancel.is_cancelled());
            checked_end(checked_suspension(outcome, outside), stopped, writes, known)
        }
        Err(report) => {
            stops.run();
            exception(report)
        }
    };
    if let Outcome::Settled(settled) = &mut outcome {
        settled.executor = settled.executor.take().or(tag);
    }
    outcome
}

/// Stops what an executor has started if it is dropped.
struct Unfinished(Option<Stops>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(stops) = self.0.take().filter(|stops| !stops.is_taken_over()) {
            stops.run();
        }
    }
}

/// Sees to what an executor that came back has started.
fn stopped(stops: &Stops, cancelled: bool) -> Stopped {
    match cancelled {
        // Whoever bounds the call runs them, and waits only so long.
        true if stops.is_taken_over() => Stopped::Confirmed,
        // It gave up, and leaves behind what it has started.
        true => stops.run(),
        // What it started is its own business now: the numbers of its processes may belong to others.
        false => {
            stops.clear();
            Stopped::Confirmed
        }
    }
}

/// A writing tool that stopped waiting, or whose processes may live on, does not know what came of its work.
fn checked_end(mut outcome: Outcome, stopped: Stopped, writes: bool, known: bool) -> Outcome {
    let Some(settled) = outcome.settled_mut().filter(|_| writes) else {
        return outcome;
    };
    let lives_on = settled.status == Status::Cancelled && stopped == Stopped::Unconfirmed;
    // Of a tool that nobody described, the executor's word is all there is.
    let unknown = lives_on || (known && settled.status == Status::Timeout);
    if unknown {
        settled.status = Status::OutcomeUnknown;
        let told = settled
            .error
            .take()
            .unwrap_or_else(|| CallError::new(ErrorCategory::Unknown, "the call was stopped"));
        let model = format!(
            "{}; it is not known whether it took effect",
            told.model.trim_end_matches('.')
        );
        settled.error = Some(CallError {
            category: ErrorCategory::Unknown,
            model,
            ..told
        });
    }
    outcome
}

/// An executor may only wait for a result if it said beforehand that something outside runs the call.
fn checked_suspension(outcome: Outcome, outside: bool) -> Outcome {
    match outcome {
        Outcome::Suspended(mut suspension) => {
            match &mut *suspension {
                Suspension::Result if outside => {}
                Suspension::Result => {
                    let detail = "the executor waits for a result but did not say that the call runs outside";
                    let error =
                        CallError::new(ErrorCategory::Internal, "the tool could not be run")
                            .with_operator(detail);
                    return Outcome::error(Status::ExecutorError, error);
                }
                Suspension::Decision(request) => request.asked_by = Some("executor".into()),
            }
            Outcome::Suspended(suspension)
        }
        settled @ Outcome::Settled(_) => settled,
    }
}
