//! The last step of a call: runs the executor and stops the work it leaves behind.

use std::sync::Arc;

use crate::{
    Call, CallError, ErrorCategory, Failure, Outcome, Status, StopActions, StopConfirmation,
    Suspension,
    stack::{descend::panic_outcome, executor::DynExecutor, panic::contain_panic},
};

/// Runs the executor on a call that passed every check.
pub(crate) async fn run_executor(
    executor: Arc<dyn DynExecutor>,
    call: Call,
    outside: bool,
) -> Outcome {
    let tag = call.shown_tool().map(|shown| shown.entry.executor.clone());
    let stops = call.stops().clone();
    let cancel = call.cancel.clone();
    let writes = call.annotations().may_write();
    let known = call.spec().is_some();
    let mut unfinished = StopOnDrop(Some(stops.clone()));
    let done = contain_panic(executor.execute(call)).await;
    // The executor returned: from here on the code below decides what is stopped.
    unfinished.0 = None;
    let mut outcome = match done {
        Ok(outcome) => {
            let stopped = stop_leftover_work(&stops, cancel.is_cancelled());
            settle_unknown_end(check_suspension(outcome, outside), stopped, writes, known)
        }
        Err(report) => {
            // Also if a layer took the stops over: for that layer the call has returned by itself,
            // so it stops nothing.
            stops.run_all();
            panic_outcome(report)
        }
    };
    if let Outcome::Settled(settled) = &mut outcome {
        // The error is what the model should read, and nothing may count this as a success.
        if settled.contradicts_itself() {
            settled.status = Status::ExecutorError;
        }
        settled.executor = settled.executor.take().or(tag);
    }
    outcome
}

/// Runs the registered stops if the executor's future is dropped.
struct StopOnDrop(Option<StopActions>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(stops) = self.0.take().filter(|stops| !stops.is_taken_over()) {
            stops.run_all();
        }
    }
}

/// Stops the work of an executor that returned because it was cancelled.
fn stop_leftover_work(stops: &StopActions, cancelled: bool) -> StopConfirmation {
    if !cancelled {
        // The tool finished. Its process ids may belong to other processes by now, so killing them
        // later would be dangerous.
        stops.clear();
        return StopConfirmation::Confirmed;
    }
    if stops.is_taken_over() {
        // The layer that bounds the call runs the stops itself, with a limit on the wait.
        return StopConfirmation::Confirmed;
    }
    // It returned because of the cancellation and may have left work running.
    stops.run_all()
}

/// Settles a writing tool as `outcome_unknown` if it timed out or its processes may still run.
fn settle_unknown_end(
    mut outcome: Outcome,
    stopped: StopConfirmation,
    writes: bool,
    known: bool,
) -> Outcome {
    // A tool that only reads has no effect that could be unknown, and may simply be called again.
    let Some(settled) = outcome.settled_mut().filter(|_| writes) else {
        return outcome;
    };
    let lives_on = settled.status == Status::Cancelled && stopped == StopConfirmation::Unconfirmed;
    // For a tool without a spec the executor's status is all the evidence there is.
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

/// Rejects a suspension for a result unless the executor announced an external run beforehand.
fn check_suspension(outcome: Outcome, outside: bool) -> Outcome {
    match outcome {
        Outcome::Suspended(mut suspension) => {
            match &mut *suspension {
                Suspension::Result if outside => {}
                // The start was recorded as running here, so a result from outside would be
                // rejected and the call would wait forever.
                Suspension::Result => {
                    let detail = "the executor waits for an external result but did not announce an external run";
                    let error =
                        CallError::new(ErrorCategory::Internal, "the tool could not be run")
                            .with_operator_detail(detail);
                    return Outcome::error(Failure::ExecutorError, error);
                }
                // Overwritten, so that an executor cannot ask in a layer's name.
                Suspension::Decision(request) => request.asked_by = Some("executor".into()),
            }
            Outcome::Suspended(suspension)
        }
        settled @ Outcome::Settled(_) => settled,
    }
}
