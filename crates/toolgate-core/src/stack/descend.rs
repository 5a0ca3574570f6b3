//! One descent of a call through a stack: enters the layers that apply, contains their panics, and
//! starts the executor.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;

use crate::{
    Arguments, Call, CallError, CallId, Clock, EditStage, ErrorCategory, LayerName, Next, Outcome,
    Provenance, SettledOutcome, StartPermit, Status, StopReason, Timestamp, ToolName, Trail,
    call::{CallOrigin, requirement::ApprovalRequirements},
    note_keys,
    stack::{
        StackPlan,
        panic::{PanicReport, contain_panic, contain_panic_sync, poll_quietly, run_quietly},
        trail::{LayerVisit, NO_PARENT},
    },
};

/// One descent of one call, shared by all the layers it enters.
pub(crate) struct CallDescent {
    pub(super) plan: Arc<StackPlan>,
    pub(super) id: CallId,
    pub(super) tool: ToolName,
    pub(super) origin: CallOrigin,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) started_at: Timestamp,
    state: Mutex<DescentState>,
}

pub(super) struct DescentState {
    pub(super) entries: Vec<LayerVisit>,
    pub(super) changes: Vec<Provenance>,
    pub(super) attempts: u32,
    /// The arguments that deciding layers saw, without repeats.
    pub(super) decided: Vec<Arguments>,
    /// The arguments that were last found to fit the tool's own schema.
    pub(super) valid: Option<Arguments>,
    /// The arguments that the executor was last given.
    pub(super) executed: Option<Arguments>,
}

/// Runs a call through a whole stack.
// The first step down is made here, so that the future holds two pointers and not the whole call.
pub(crate) fn run_call(
    plan: Arc<StackPlan>,
    call: Call,
) -> impl Future<Output = Outcome> + Send + 'static {
    let (run, below) = start_descent(plan, call);
    async move {
        let outcome = poll_quietly(below).await;
        run.complete_outcome(outcome)
    }
}

/// Runs a call like [`run_call`] and returns its trail, also if it does not settle.
pub(crate) async fn trace_call(plan: Arc<StackPlan>, call: Call) -> (Outcome, Trail) {
    let (run, below) = start_descent(plan, call);
    let outcome = poll_quietly(below).await;
    (run.complete_outcome(outcome), Trail(run))
}

fn start_descent(
    plan: Arc<StackPlan>,
    call: Call,
) -> (Arc<CallDescent>, BoxFuture<'static, Outcome>) {
    // Nothing was approved on this way down yet, whatever the call passed through before.
    let call = call
        .without_extensions()
        .inherit_requirements(&ApprovalRequirements::default());
    let run = Arc::new(CallDescent::new(plan, &call));
    let below = run_quietly(|| descend_from(run.clone(), 0, NO_PARENT, call));
    (run, below)
}

/// Descends from frame `at`: skips layers that do not apply to the call and enters the first that
/// does, or the executor.
pub(crate) fn descend_from(
    run: Arc<CallDescent>,
    mut at: usize,
    parent: usize,
    call: Call,
) -> BoxFuture<'static, Outcome> {
    // The number of the attempt that would start next: layers see it on the way down.
    let attempt = run.lock_state().attempts + 1;
    let mut call = call.with_attempt(attempt);
    loop {
        // A call that ended elsewhere visits the closing layers, then returns its own end: no
        // executor.
        if let Some(end) = call
            .closing_outcome()
            .filter(|_| at == run.plan.frames.len())
        {
            let end = Outcome::from(SettledOutcome::clone(end));
            run.observe_inner(parent, &end);
            return Box::pin(std::future::ready(end));
        }
        // On every descent: a shaping layer may retry with other arguments, which are decided on
        // anew.
        let blocked = if at == run.plan.seal_at {
            run.begin_deciding(&mut call)
        } else {
            None
        };
        let refusal = match blocked.or_else(|| run.check_band_edge(at, &call)) {
            Some(refusal) => refusal,
            None => match run.plan.frames.get(at) {
                None => return Box::pin(execute_call(run, parent, call)),
                Some(frame) => match frame.wants_call(&call) {
                    Ok(true) => {
                        return frame
                            .layer
                            .clone()
                            .enter_boxed(StackPosition { run, at, parent }, call);
                    }
                    Ok(false) => {
                        at += 1;
                        continue;
                    }
                    // Fail closed: a layer that panicked here did not say that it may be skipped.
                    Err(report) => layer_failure(
                        &frame.name,
                        "it panicked while checking whether it applies to the call",
                        Some(report),
                    ),
                },
            },
        };
        // No layer was entered, so nothing else completes the parent's note.
        run.observe_inner(parent, &refusal);
        return Box::pin(std::future::ready(refusal));
    }
}

/// The position in the stack at which a layer is entered.
pub(crate) struct StackPosition {
    run: Arc<CallDescent>,
    at: usize,
    parent: usize,
}

/// Runs one layer on the call and records the visit.
pub(crate) async fn enter_layer<Fut>(
    place: StackPosition,
    call: Call,
    handle: impl FnOnce(Call, Next) -> Fut,
) -> Outcome
where
    Fut: Future<Output = Outcome>,
{
    let StackPosition { run, at, parent } = place;
    let entry = run.begin_visit(at, parent, &call);
    let mut pass = VisitGuard {
        run: &run,
        entry,
        over: false,
    };
    let next = Next {
        run: run.clone(),
        at: at + 1,
        entry,
        given: call.arguments.clone(),
        required: call.requirements().clone(),
    };
    let outcome = match contain_panic(handle(call, next)).await {
        Ok(outcome) => outcome,
        Err(report) => {
            run.lock_state().entries[entry].error = Some("panicked");
            layer_failure(&run.plan.frames[at].name, "it panicked", Some(report))
        }
    };
    // `leave_layer` completes the note from here on; the guard must not overwrite its end time.
    pass.over = true;
    run.leave_layer(entry, parent, outcome)
}

/// Ends the note of a visit whose future was dropped.
struct VisitGuard<'a> {
    run: &'a CallDescent,
    entry: usize,
    over: bool,
}

impl Drop for VisitGuard<'_> {
    fn drop(&mut self) {
        if !self.over {
            let now = self.run.clock.now();
            self.run.lock_state().entries[self.entry].ended_at = now;
        }
    }
}

/// Runs the last step: checks that this call may run, announces the start, and executes it.
async fn execute_call(run: Arc<CallDescent>, parent: usize, call: Call) -> Outcome {
    let outcome = run_attempt(&run, call).await;
    run.observe_inner(parent, &outcome);
    outcome
}

async fn run_attempt(run: &CallDescent, call: Call) -> Outcome {
    if let Some(refusal) = run.check_before_execution(&call) {
        return refusal;
    }
    // After the last check, so that a rehearsal reports the same rejections as a real call.
    if call.is_rehearsal() {
        return Outcome::refused(Status::DryRun, "the call would run")
            .with_notes(|notes| notes.insert(note_keys::REHEARSAL, &true));
    }
    // Counted before the executor is asked, so that an external result finds its attempt; undone
    // below where nothing started.
    let attempt = run.begin_attempt(&call.arguments);
    let call = call.without_requirements().with_attempt(attempt);
    // Replay: the result of this attempt arrived while the call was suspended. It must not run
    // again.
    if let Some(result) = call.resume_state().result_of_attempt(call.attempt) {
        let mut settled = SettledOutcome::clone(result);
        settled.executor = settled
            .executor
            .or_else(|| call.shown_tool().map(|shown| shown.entry.executor.clone()));
        return Outcome::from(settled);
    }
    // Before the start is announced: a tool that is gone or has changed never starts.
    let refusal = contain_panic_sync(|| run.plan.executor.reject_early(&call))
        .unwrap_or_else(|report| Some(panic_outcome(report)));
    if let Some(refusal) = refusal {
        run.lock_state().attempts -= 1;
        return refusal;
    }
    let outside = match contain_panic_sync(|| run.plan.executor.runs_externally(&call)) {
        Ok(outside) => outside,
        Err(report) => return panic_outcome(report),
    };
    // The intent is recorded before the tool can have an effect, as durably as this tool needs.
    let started = match call.env().probe().before_start(&call, outside) {
        StartPermit::Now(started) => started,
        StartPermit::Later(starting) => starting.await,
    };
    if let Err(stop) = started {
        run.lock_state().attempts -= 1;
        return stop.into();
    }
    // Storing the start may have taken a while. This is the last moment without an effect.
    if call.cancel.is_cancelled() {
        // The attempt stays counted, because its start is in the log.
        return Outcome::refused(
            Status::Cancelled,
            "the call was cancelled before it had an effect",
        );
    }
    crate::stack::execute::run_executor(run.plan.executor.clone(), call, outside).await
}

impl CallDescent {
    fn new(plan: Arc<StackPlan>, call: &Call) -> Self {
        let clock = call.env().clock().clone();
        let state = DescentState {
            entries: Vec::with_capacity(plan.frames.len()),
            changes: Vec::new(),
            attempts: call.attempts_before(),
            decided: Vec::new(),
            // The view has checked these; if it shows the tool's own schema, that was the check.
            valid: call
                .shown_tool()
                .filter(|shown| shown.is_plain())
                .map(|_| call.arguments.clone()),
            executed: None,
        };
        Self {
            plan,
            id: call.id,
            tool: call.tool.clone(),
            origin: call.origin(),
            started_at: clock.now(),
            clock,
            state: Mutex::new(state),
        }
    }

    // A poisoned lock is usable: the state is plain data that no method leaves half-written.
    pub(super) fn lock_state(&self) -> MutexGuard<'_, DescentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether edits are already applied for the layer whose `next` begins at frame
    /// `below`.
    pub(crate) fn edits_above(&self, below: usize) -> EditStage {
        if below > self.plan.seal_at {
            EditStage::Applied
        } else {
            EditStage::NotApplied
        }
    }

    fn begin_attempt(&self, arguments: &Arguments) -> u32 {
        let mut state = self.lock_state();
        state.attempts += 1;
        state.executed = Some(arguments.clone());
        state.attempts
    }
}

pub(crate) fn panic_outcome(PanicReport(report): PanicReport) -> Outcome {
    let error = CallError::new(ErrorCategory::Panic, "the tool failed unexpectedly")
        .with_operator_detail(report);
    Outcome::error(Status::Exception, error)
}

pub(super) fn layer_failure(layer: &LayerName, what: &str, report: Option<PanicReport>) -> Outcome {
    let detail = report.map_or_else(String::new, |PanicReport(report)| format!(": {report}"));
    // The model learns nothing about layers; the detail is for the operator.
    let error = CallError::new(ErrorCategory::Panic, "an internal error stopped the call");
    Outcome::error(
        Status::LayerException,
        error.with_operator_detail(format!("{layer}: {what}{detail}")),
    )
}

impl From<StopReason> for Outcome {
    fn from(stop: StopReason) -> Self {
        match stop {
            StopReason::Interrupted => Self::refused(
                Status::Cancelled,
                "the call was cancelled before it started",
            ),
            StopReason::NotRecorded(detail) => {
                let error = CallError::new(
                    ErrorCategory::Internal,
                    "the call was not run because it could not be recorded",
                );
                Self::error(Status::ExecutorError, error.with_operator_detail(detail))
            }
        }
    }
}
