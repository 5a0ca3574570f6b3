//! One descent of a call through a stack: enters the layers that apply, contains their panics, and
//! starts the executor.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use smallvec::SmallVec;

use crate::{
    Arguments, Call, CallError, CallId, Clock, EditStage, ErrorCategory, Failure, LayerName, Next,
    Outcome, Provenance, Refusal, SettledOutcome, StartPermit, StopReason, Timestamp, ToolName,
    Trail,
    call::{CallOrigin, requirement::ApprovalRequirements},
    note_keys,
    stack::{
        LayerEntry, StackPlan,
        checks::PassViolation,
        panic::{PanicReport, contain_panic, contain_panic_sync, poll_quietly, run_quietly},
        trail::{LayerVisit, NO_PARENT},
        waiting::{PassedLayers, PassedOutcome, ReadyOutcome, wake_layers, wake_next_layer},
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
    /// The passes through the deciding layers, oldest first. Nearly always one: no allocation.
    pub(super) passes: SmallVec<[DecidingPass; 1]>,
    /// The arguments that were last found to fit the tool's own schema.
    pub(super) valid: Option<Arguments>,
    /// The arguments that the executor was last given.
    pub(super) executed: Option<Arguments>,
    /// What runs when the executor is first started, by the frame that asked for it.
    start_hooks: Vec<(usize, StartHook)>,
}

/// One pass of the call from where deciding begins down to the executor. A layer above that runs
/// `next` again, or twice at once, makes further passes.
pub(super) struct DecidingPass {
    /// The arguments that are decided on.
    pub(super) arguments: Arguments,
    /// True once the outermost layer of the pass has returned or was dropped.
    pub(super) ended: bool,
}

/// The pass of a layer above the point where deciding begins: none.
pub(crate) const NO_PASS: usize = usize::MAX;

/// A function that runs immediately before the first attempt of a call.
pub(crate) type StartHook = Arc<dyn Fn(Call) -> BoxFuture<'static, ()> + Send + Sync>;

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
    let top = StackPosition {
        run: run.clone(),
        at: 0,
        parent: NO_PARENT,
        pass: NO_PASS,
        opens_pass: false,
        passed: PassedLayers::default(),
        unsealed: None,
        ready: None,
    };
    let below = run_quietly(|| descend_from(top, call));
    (run, below)
}

/// Descends from a position: skips layers that do not apply to the call and enters the first that
/// does, or the executor.
pub(crate) fn descend_from(mut place: StackPosition, call: Call) -> BoxFuture<'static, Outcome> {
    let checked = place.run.lock_state().check_descent(place.pass, &call);
    let attempt = match checked {
        Ok(attempt) => attempt,
        Err(violation) => {
            let refusal = place.run.refuse_in_pass(violation, place.parent, &call);
            return place.answer(call, refusal);
        }
    };
    let mut call = call.with_attempt(attempt);
    loop {
        let run = &place.run;
        // A call that ended elsewhere visits the closing layers, then returns its own end: no
        // executor.
        if let Some(end) = call
            .closing_outcome()
            .filter(|_| place.at == run.plan.frames.len())
        {
            let end = Outcome::from(SettledOutcome::clone(end));
            return place.answer(call, end);
        }
        if place.at == run.plan.seal_at {
            // On every descent: a shaping layer may retry with other arguments, which are decided
            // on anew.
            // Layers above this point never see edits and host values, also if they are woken.
            if !place.passed.is_empty() {
                place.unsealed = Some(call.clone());
            }
            let edited = run.apply_edits(call);
            call = match run.fill_host_values(&edited) {
                Ok(None) => edited,
                Ok(Some(filled)) => filled,
                Err(blocked) => return place.answer(edited, blocked),
            };
            let pass = run.begin_pass(&call);
            place.opens_pass = pass.is_some();
            place.pass = pass.unwrap_or(NO_PASS);
        }
        let run = &place.run;
        let refusal = match run.check_band_edge(place.at, &call) {
            Some(refusal) => refusal,
            None => match run.plan.frames.get(place.at) {
                None => return Box::pin(execute_call(place, call)),
                Some(frame) => match frame.entry_for(&call) {
                    Ok(LayerEntry::Skip) => {
                        place.at += 1;
                        continue;
                    }
                    Ok(LayerEntry::Wait) if place.passed.add(place.at) => {
                        place.at += 1;
                        continue;
                    }
                    Ok(LayerEntry::Enter | LayerEntry::Wait) => {
                        return frame.layer.clone().enter_boxed(place, call);
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
        return place.answer(call, refusal);
    }
}

/// A position in the stack, at which a call enters the next layer that applies to it.
pub(crate) struct StackPosition {
    pub(super) run: Arc<CallDescent>,
    /// The frame.
    pub(super) at: usize,
    /// The visit of the layer above, on the trail.
    pub(super) parent: usize,
    /// The pass through the deciding layers, or [`NO_PASS`].
    pub(super) pass: usize,
    /// True if the layer at this position is the outermost one of the pass.
    pub(super) opens_pass: bool,
    /// The layers between the parent and this position that wait for the outcome.
    pub(super) passed: PassedLayers,
    /// The call as the passed layers above the point where deciding begins know it.
    pub(super) unsealed: Option<Call>,
    /// The outcome for which the layer at this position is woken.
    pub(super) ready: Option<ReadyOutcome>,
}

impl StackPosition {
    /// Answers without entering a layer, so that nothing else completes the parent's note.
    fn answer(self, call: Call, outcome: Outcome) -> BoxFuture<'static, Outcome> {
        let outcome = self.run.hand_up(self.parent, outcome);
        if self.passed.is_empty() {
            return Box::pin(std::future::ready(outcome));
        }
        Box::pin(async move { self.wake_passed(&call, outcome).await })
    }

    /// Enters the layers above this position that waited for the outcome and want it.
    async fn wake_passed(&self, call: &Call, outcome: Outcome) -> Outcome {
        match wake_next_layer(self, call, self.passed, outcome) {
            PassedOutcome::Done(outcome) => outcome,
            // Boxed because it is rare: the future of every layer stays small without it.
            PassedOutcome::Woken { layer, above } => {
                Box::pin(wake_layers(self, call, layer, above)).await
            }
        }
    }
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
    // Used in place: moved into variables, its fields would be in the future twice.
    let run = &place.run;
    let entry = run.begin_visit(place.at, place.parent, &call);
    if let Some(ready) = &place.ready {
        // At the entry: the notes of the outcome stay, whatever the layer does with it.
        run.record_ready(entry, ready);
    }
    let mut visit = VisitGuard {
        run,
        entry,
        over: false,
        ends_pass: if place.opens_pass {
            place.pass
        } else {
            NO_PASS
        },
    };
    let next = Next {
        run: run.clone(),
        at: place.at + 1,
        entry,
        pass: place.pass,
        given: call.arguments.clone(),
        required: call.requirements().clone(),
        ready: place.ready.clone(),
    };
    let waited_for = (!place.passed.is_empty()).then(|| call.clone());
    let outcome = match contain_panic(handle(call, next)).await {
        Ok(outcome) => outcome,
        Err(report) => {
            run.lock_state().entries[entry].error = Some("panicked");
            let frame = &run.plan.frames[place.at];
            layer_failure(&frame.name, "it panicked", Some(report))
        }
    };
    // `leave_layer` completes the note from here on; the guard must not overwrite its end time.
    visit.over = true;
    let outcome = run.leave_layer(entry, place.parent, outcome);
    // Before the guard ends the pass: a woken layer of the pass may run the call again.
    match waited_for {
        Some(call) => place.wake_passed(&call, outcome).await,
        None => outcome,
    }
}

/// Ends the note of a visit whose future was dropped, and the pass that began with the visit.
struct VisitGuard<'a> {
    run: &'a CallDescent,
    entry: usize,
    over: bool,
    /// The pass that ends with the visit, or [`NO_PASS`].
    ends_pass: usize,
}

impl Drop for VisitGuard<'_> {
    fn drop(&mut self) {
        if !self.over {
            let now = self.run.clock.now();
            self.run.lock_state().entries[self.entry].ended_at = now;
        }
        if self.ends_pass != NO_PASS {
            self.run.lock_state().passes[self.ends_pass].ended = true;
        }
    }
}

/// Ends a pass that no visit of a layer began.
struct PassGuard<'a> {
    run: &'a CallDescent,
    pass: usize,
}

impl Drop for PassGuard<'_> {
    fn drop(&mut self) {
        if self.pass != NO_PASS {
            self.run.lock_state().passes[self.pass].ended = true;
        }
    }
}

/// Runs the last step: checks that this call may run, announces the start, and executes it.
async fn execute_call(place: StackPosition, call: Call) -> Outcome {
    // If every deciding layer was passed, no visit ends the pass.
    let _pass = PassGuard {
        run: &place.run,
        pass: if place.opens_pass {
            place.pass
        } else {
            NO_PASS
        },
    };
    let waited_for = (!place.passed.is_empty()).then(|| call.clone());
    let outcome = run_attempt(&place.run, call).await;
    let outcome = place.run.hand_up(place.parent, outcome);
    match waited_for {
        Some(call) => place.wake_passed(&call, outcome).await,
        None => outcome,
    }
}

async fn run_attempt(run: &CallDescent, call: Call) -> Outcome {
    if let Some(refusal) = run.check_before_execution(&call) {
        return refusal;
    }
    // After the last check, so that a rehearsal reports the same rejections as a real call.
    if call.is_rehearsal() {
        return rehearse_attempt(run, call).await;
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
            Refusal::Cancelled,
            "the call was cancelled before it had an effect",
        );
    }
    if let Some(failure) = run_start_hooks(run, &call).await {
        return failure;
    }
    crate::stack::execute::run_executor(run.plan.executor.clone(), call, outside).await
}

/// Returns what the executor would answer, as far as it can tell without running the call.
async fn rehearse_attempt(run: &CallDescent, call: Call) -> Outcome {
    let failed = contain_panic(run.plan.executor.rehearse(call.without_requirements())).await;
    let outcome = match failed {
        Ok(None) => Outcome::refused(Refusal::DryRun, "the call would run"),
        Ok(Some(failed)) => failed,
        Err(report) => panic_outcome(report),
    };
    outcome.with_notes(|notes| notes.insert(note_keys::REHEARSAL, &true))
}

/// Runs what layers want to happen before the first attempt. Returns the outcome if it panicked.
async fn run_start_hooks(run: &CallDescent, call: &Call) -> Option<Outcome> {
    // Only once per call, whatever repeats it and however often it is resumed.
    if call.attempt != 1 {
        return None;
    }
    let hooks = std::mem::take(&mut run.lock_state().start_hooks);
    for (frame, hook) in hooks {
        if let Err(report) = contain_panic(async { hook(call.clone()).await }).await {
            let layer = &run.plan.frames[frame].name;
            return Some(layer_failure(layer, "it panicked", Some(report)));
        }
    }
    None
}

impl CallDescent {
    fn new(plan: Arc<StackPlan>, call: &Call) -> Self {
        let clock = call.env().clock().clone();
        let state = DescentState {
            entries: Vec::with_capacity(plan.frames.len()),
            changes: Vec::new(),
            attempts: call.attempts_before(),
            passes: SmallVec::new(),
            // The view has checked these; if it shows the tool's own schema, that was the check.
            valid: call
                .shown_tool()
                .filter(|shown| shown.is_plain())
                .map(|_| call.arguments.clone()),
            executed: None,
            start_hooks: Vec::new(),
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

    /// Runs `hook` before the first attempt; once, however often the layer of `frame` is entered.
    pub(super) fn add_start_hook(&self, frame: usize, hook: StartHook) {
        let hooks = &mut self.lock_state().start_hooks;
        if !hooks.iter().any(|(known, _)| *known == frame) {
            hooks.push((frame, hook));
        }
    }

    fn begin_attempt(&self, arguments: &Arguments) -> u32 {
        let mut state = self.lock_state();
        state.attempts += 1;
        state.executed = Some(arguments.clone());
        state.attempts
    }
}

impl DescentState {
    /// Checks that a call may be passed on in its pass. Returns the number of the attempt that would
    /// start next, which layers see on the way down.
    fn check_descent(&self, pass: usize, call: &Call) -> Result<u32, PassViolation> {
        if let Some(pass) = self.passes.get(pass) {
            pass.check_call(call)?;
        }
        Ok(self.attempts + 1)
    }
}

pub(crate) fn panic_outcome(PanicReport(report): PanicReport) -> Outcome {
    let error = CallError::new(ErrorCategory::Panic, "the tool failed unexpectedly")
        .with_operator_detail(report);
    Outcome::error(Failure::Exception, error)
}

pub(super) fn layer_failure(layer: &LayerName, what: &str, report: Option<PanicReport>) -> Outcome {
    let detail = report.map_or_else(String::new, |PanicReport(report)| format!(": {report}"));
    // The model learns nothing about layers; the detail is for the operator.
    let error = CallError::new(ErrorCategory::Panic, "an internal error stopped the call");
    Outcome::error(
        Failure::LayerException,
        error.with_operator_detail(format!("{layer}: {what}{detail}")),
    )
}

impl From<StopReason> for Outcome {
    fn from(stop: StopReason) -> Self {
        match stop {
            StopReason::Interrupted => Self::refused(
                Refusal::Cancelled,
                "the call was cancelled before it started",
            ),
            StopReason::NotRecorded(detail) => {
                let error = CallError::new(
                    ErrorCategory::Internal,
                    "the call was not run because it could not be recorded",
                );
                Self::error(Failure::ExecutorError, error.with_operator_detail(detail))
            }
        }
    }
}
