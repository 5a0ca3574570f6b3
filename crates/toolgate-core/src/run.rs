//! One run of a call through a stack: enters layers, watches over them, and keeps the trail.
//!
//! The runtime's own checks sit at the edges between bands. Where `record` ends, a call that the view
//! refused is answered. Where `decide` begins, arguments that were reshaped are checked against the tool's
//! own schema. In front of the executor, the arguments have to be the ones that were decided on.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;

use crate::{
    Arguments, Band, Call, CallError, CallId, Clock, Edits, ErrorCategory, Json, LayerName,
    LayerNote, LayerStatus, Next, Notes, Outcome, Provenance, Settled, Starting, Status,
    StopReason, Subject, Suspension, Timestamp, ToolName, Unsettled, Verdict,
    call::Origin,
    diff::changes,
    outcome::denied_text,
    panic::{PanicReport, contain, contain_sync, poll_quietly, quietly},
    stack::Plan,
};

/// The entry of "no layer": the top of the stack.
pub(crate) const TOP: usize = usize::MAX;

/// Who changed arguments that a person edited, on the trail.
const EDIT: &str = "approval edit";

/// One run of one call.
pub(crate) struct Run {
    plan: Arc<Plan>,
    id: CallId,
    tool: ToolName,
    origin: Origin,
    clock: Arc<dyn Clock>,
    started_at: Timestamp,
    state: Mutex<State>,
}

struct State {
    entries: Vec<Entry>,
    changes: Vec<Provenance>,
    attempts: u32,
    /// The arguments that deciding layers saw, without repeats.
    decided: Vec<Arguments>,
    /// The arguments that were last found to fit the tool's own schema.
    valid: Option<Arguments>,
    /// The arguments that the executor was last given.
    executed: Option<Arguments>,
}

/// One pass through one layer.
struct Entry {
    frame: usize,
    attempt: u32,
    started_at: Timestamp,
    ended_at: Timestamp,
    status: LayerStatus,
    changed: bool,
    ran_next: bool,
    reason: Option<Arc<str>>,
    error: Option<&'static str>,
    /// What the layer was last given from below.
    inner: Option<Inner>,
}

struct Inner {
    status: Option<Status>,
    value: Option<Json>,
    text: Option<Arc<str>>,
    notes: Notes,
}

/// Runs a call through a whole stack.
// The first step down is made here, so that the future holds two pointers and not the whole call.
pub(crate) fn run(plan: Arc<Plan>, call: Call) -> impl Future<Output = Outcome> + Send + 'static {
    let (run, below) = start(plan, call);
    async move {
        let outcome = poll_quietly(below).await;
        run.finish(outcome)
    }
}

/// The same, and keeps what happened to the call, also if it does not settle.
pub(crate) async fn trace(plan: Arc<Plan>, call: Call) -> (Outcome, Trail) {
    let (run, below) = start(plan, call);
    let outcome = poll_quietly(below).await;
    (run.finish(outcome), Trail(run))
}

fn start(plan: Arc<Plan>, call: Call) -> (Arc<Run>, BoxFuture<'static, Outcome>) {
    let run = Arc::new(Run::new(plan, &call));
    let below = quietly(|| descend(run.clone(), 0, TOP, call));
    (run, below)
}

/// Goes down from frame `at`: past layers that do not want the call, into the first that does, or to the executor.
pub(crate) fn descend(
    run: Arc<Run>,
    mut at: usize,
    parent: usize,
    call: Call,
) -> BoxFuture<'static, Outcome> {
    let attempt = run.state().attempts + 1;
    let mut call = call.with_attempt(attempt);
    loop {
        if let Some(end) = call.closing().filter(|_| at == run.plan.frames.len()) {
            let end = Outcome::from(Settled::clone(end));
            run.told(parent, &end);
            return Box::pin(std::future::ready(end));
        }
        if at == run.plan.seal_at {
            call = run.begin_deciding(call);
        }
        let refusal = match run.edge(at, &call) {
            Some(refusal) => refusal,
            None => match run.plan.frames.get(at) {
                None => return Box::pin(execute(run, parent, call)),
                Some(frame) => match frame.wants(&call) {
                    Ok(true) => return frame.layer.clone().enter(Place { run, at, parent }, call),
                    Ok(false) => {
                        at += 1;
                        continue;
                    }
                    // One that panics has not said that the layer may be left out.
                    Err(report) => layer_exception(
                        &frame.name,
                        "it panicked over whether it wants the call",
                        Some(report),
                    ),
                },
            },
        };
        run.told(parent, &refusal);
        return Box::pin(std::future::ready(refusal));
    }
}

/// Where in a run a layer is entered.
pub(crate) struct Place {
    run: Arc<Run>,
    at: usize,
    parent: usize,
}

/// Lets one layer handle the call and writes down how that went.
pub(crate) async fn enter<Fut>(
    place: Place,
    call: Call,
    handle: impl FnOnce(Call, Next) -> Fut,
) -> Outcome
where
    Fut: Future<Output = Outcome>,
{
    let Place { run, at, parent } = place;
    let entry = run.entered(at, parent, &call);
    let mut pass = Pass {
        run: &run,
        entry,
        over: false,
    };
    let next = Next {
        run: run.clone(),
        at: at + 1,
        entry,
        given: call.arguments.clone(),
    };
    let outcome = match contain(handle(call, next)).await {
        Ok(outcome) => outcome,
        Err(report) => {
            run.state().entries[entry].error = Some("panicked");
            layer_exception(&run.plan.frames[at].name, "it panicked", Some(report))
        }
    };
    pass.over = true;
    run.left(entry, parent, outcome)
}

/// Marks a pass whose future was dropped, so that its note is complete too.
struct Pass<'a> {
    run: &'a Run,
    entry: usize,
    over: bool,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if !self.over {
            let now = self.run.clock.now();
            self.run.state().entries[self.entry].ended_at = now;
        }
    }
}

/// The last step: makes sure that this call may run, says that it starts, and runs it.
async fn execute(run: Arc<Run>, parent: usize, call: Call) -> Outcome {
    let outcome = attempt(&run, call).await;
    run.told(parent, &outcome);
    outcome
}

async fn attempt(run: &Run, call: Call) -> Outcome {
    if let Some(refusal) = run.last_check(&call) {
        return refusal;
    }
    if call.is_rehearsal() {
        return Outcome::refused(Status::DryRun, "the call would run").noting(|notes| {
            notes.metadata.insert("rehearsal".into(), true.into());
        });
    }
    let attempt = run.next_attempt(&call.arguments);
    let call = call.with_attempt(attempt);
    if let Some(result) = call.resumed().result(call.attempt) {
        let mut settled = Settled::clone(result);
        settled.executor = settled
            .executor
            .or_else(|| call.shown().map(|shown| shown.entry.executor.clone()));
        return Outcome::from(settled);
    }
    // Known before anything is said to start: a tool that is gone or has changed never does.
    let refusal = contain_sync(|| run.plan.executor.refuse(&call))
        .unwrap_or_else(|report| Some(exception(report)));
    if let Some(refusal) = refusal {
        run.state().attempts -= 1;
        return refusal;
    }
    let outside = match contain_sync(|| run.plan.executor.runs_outside(&call)) {
        Ok(outside) => outside,
        Err(report) => return exception(report),
    };
    let started = match call.env().probe().starting(&call, outside) {
        Starting::Now(started) => started,
        Starting::Later(starting) => starting.await,
    };
    if let Err(stop) = started {
        run.state().attempts -= 1;
        return stop.into();
    }
    if call.cancel.is_cancelled() {
        return Outcome::refused(
            Status::Cancelled,
            "the call was cancelled before it had an effect",
        );
    }
    crate::last_step::run(run.plan.executor.clone(), call, outside).await
}

impl Run {
    fn new(plan: Arc<Plan>, call: &Call) -> Self {
        let clock = call.env().clock().clone();
        let state = State {
            entries: Vec::with_capacity(plan.frames.len()),
            changes: Vec::new(),
            attempts: call.attempts_before(),
            decided: Vec::new(),
            // The view has checked these; if it shows the tool's own schema, that was the check.
            valid: call
                .shown()
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

    // The state is plain data that every method leaves whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether edits have been put in for the layer whose `next` begins at frame `below`.
    pub(crate) fn edits_above(&self, below: usize) -> Edits {
        if below > self.plan.seal_at {
            Edits::PutIn
        } else {
            Edits::NotYet
        }
    }

    pub(crate) fn layer_name(&self, entry: usize) -> &LayerName {
        let frame = self.state().entries[entry].frame;
        &self.plan.frames[frame].name
    }

    pub(crate) fn explain(&self, entry: usize, reason: Arc<str>) {
        self.state().entries[entry].reason = Some(reason);
    }

    fn entered(&self, frame: usize, parent: usize, call: &Call) -> usize {
        let now = self.clock.now();
        let state = &mut *self.state();
        if let Some(parent) = state.entries.get_mut(parent) {
            parent.ran_next = true;
        }
        let decides = self.plan.frames[frame].band == Band::Decide;
        if decides
            && !state
                .decided
                .last()
                .is_some_and(|seen| seen.same(&call.arguments))
        {
            state.decided.push(call.arguments.clone());
        }
        state.entries.push(Entry {
            frame,
            attempt: call.attempt,
            started_at: now,
            ended_at: now,
            status: LayerStatus::Open(Unsettled::Dropped),
            changed: false,
            ran_next: false,
            reason: None,
            error: None,
            inner: None,
        });
        state.entries.len() - 1
    }

    fn left(&self, entry: usize, parent: usize, mut outcome: Outcome) -> Outcome {
        let now = self.clock.now();
        let mut state = self.state();
        let this = &mut state.entries[entry];
        let frame = &self.plan.frames[this.frame];
        this.ended_at = now;
        let inner = this.inner.take();
        let mut change = None;
        match &mut outcome {
            Outcome::Settled(settled) => {
                this.status = LayerStatus::Settled(settled.status);
                if let Some(inner) = &inner {
                    // What a redacting layer took out of the notes stays out; nobody else can lose any.
                    if !frame.redacts {
                        settled.notes.absorb(&inner.notes);
                    }
                    change = inner.changes_to(settled, &frame.name);
                    this.changed |= change.is_some()
                        || inner.status != Some(settled.status)
                        || inner.text != settled.text;
                }
            }
            // What ran would run again, so a layer asks before it lets a call through or not at all.
            Outcome::Suspended(_) if inner.as_ref().is_some_and(|inner| inner.status.is_some()) => {
                outcome =
                    layer_exception(&frame.name, "it suspended a call that had come back", None);
                this.status = LayerStatus::Settled(Status::LayerException);
            }
            Outcome::Suspended(suspension) => {
                this.status = LayerStatus::Open(Unsettled::Suspended);
                // Written here and not by the layer: nobody asks in another one's name.
                if let (Suspension::Decision(request), None) = (&mut **suspension, &inner) {
                    request.asked_by = Some(frame.name.clone());
                }
            }
        }
        state.changes.extend(change);
        state.tell(parent, &outcome);
        outcome
    }

    /// Remembers what a layer was given from below, where no layer is left.
    fn told(&self, parent: usize, outcome: &Outcome) {
        if parent != TOP {
            self.state().tell(parent, outcome);
        }
    }

    pub(crate) fn handed_down(&self, entry: usize, given: &Arguments, handed: &Arguments) {
        if given.same(handed) {
            return;
        }
        let (places, truncated) = changes(given.as_json(), handed.as_json());
        if places.is_empty() {
            return;
        }
        let state = &mut *self.state();
        let entry = &mut state.entries[entry];
        entry.changed = true;
        let layer = self.plan.frames[entry.frame].name.clone();
        state.changes.push(Provenance {
            layer,
            subject: Subject::Arguments,
            changes: places,
            truncated,
        });
    }

    /// What the runtime itself has to say where one band ends and another begins.
    fn edge(&self, at: usize, call: &Call) -> Option<Outcome> {
        if call.closing().is_some() {
            return None;
        }
        if at == self.plan.admit_at
            && let Some(refusal) = call.refusal()
        {
            return Some(refusal.clone());
        }
        if at == self.plan.seal_at {
            self.check_contract(call)
        } else {
            None
        }
    }

    /// Where deciding begins, the arguments that a person wrote take the place of the model's.
    fn begin_deciding(&self, call: Call) -> Call {
        let call = self.put_in_edits(call);
        if self.plan.decides {
            // Also for deciding layers that pass these arguments over: that is a decision too.
            self.state().decided = vec![call.arguments.clone()];
        }
        call
    }

    fn put_in_edits(&self, call: Call) -> Call {
        let Some(edited) = call
            .resumed()
            .edits()
            .filter(|edited| **edited != call.arguments)
            .cloned()
        else {
            return call;
        };
        let (places, truncated) = changes(call.arguments.as_json(), edited.as_json());
        let change = Provenance {
            layer: EDIT.into(),
            subject: Subject::Arguments,
            changes: places,
            truncated,
        };
        self.state().changes.push(change);
        call.with_arguments(edited)
    }

    fn next_attempt(&self, arguments: &Arguments) -> u32 {
        let mut state = self.state();
        state.attempts += 1;
        state.executed = Some(arguments.clone());
        state.attempts
    }

    /// Checks reshaped arguments against the tool's own schema.
    fn check_contract(&self, call: &Call) -> Option<Outcome> {
        let shown = call.shown()?;
        if self
            .state()
            .valid
            .as_ref()
            .is_some_and(|valid| valid.same(&call.arguments))
        {
            return None;
        }
        match shown.entry.spec.input.check(call.arguments.as_json()) {
            Ok(()) => {
                self.state().valid = Some(call.arguments.clone());
                None
            }
            Err(problems) => Some(crate::view::schema_violation(&problems)),
        }
    }

    /// What must be true of a call the moment before it runs, whatever the layers did.
    fn last_check(&self, call: &Call) -> Option<Outcome> {
        if call.id != self.id || call.tool != self.tool || !call.is_of(&self.origin) {
            return Some(layer_exception(
                &"a layer".into(),
                "it handed on another call",
                None,
            ));
        }
        for answer in &call.resumed().answers {
            if let Verdict::Deny { reason } = &answer.decision.verdict {
                return Some(Outcome::refused(
                    Status::Denied,
                    denied_text(reason.as_deref()),
                ));
            }
        }
        if let Some(refusal) = self.check_decided(call) {
            return Some(refusal);
        }
        if call
            .resumed()
            .edits()
            .is_some_and(|edited| edited.digest() != call.arguments.digest())
        {
            let text = "the arguments are not the ones that were approved";
            return Some(Outcome::refused(Status::Blocked, text));
        }
        if let Some(refusal) = self.check_contract(call) {
            return Some(refusal);
        }
        call.cancel.is_cancelled().then(|| {
            Outcome::refused(
                Status::Cancelled,
                "the call was cancelled before it started",
            )
        })
    }

    /// The final-argument guarantee: what runs is what every deciding layer saw.
    fn check_decided(&self, call: &Call) -> Option<Outcome> {
        let state = self.state();
        let differs = |seen: &&Arguments| {
            !seen.same(&call.arguments) && seen.digest() != call.arguments.digest()
        };
        let seen = state.decided.iter().find(differs)?;
        let text = "the arguments were changed after they had been decided on";
        Some(Outcome::refused(Status::Blocked, text).noting(|notes| {
            notes
                .metadata
                .insert("decided_digest".into(), seen.digest().to_string().into());
            notes.metadata.insert(
                "final_digest".into(),
                call.arguments.digest().to_string().into(),
            );
        }))
    }

    /// Completes a settled outcome with what only the runtime knows.
    fn finish(&self, mut outcome: Outcome) -> Outcome {
        let now = self.clock.now();
        if let Outcome::Settled(settled) = &mut outcome {
            settled.started_at = self.started_at;
            settled.ended_at = now;
            settled.attempts = self.state().attempts;
            let (layers, provenance) = self.notes();
            // Also where there is no layer: the trail is the runtime's, whatever a tool noted.
            if !layers.is_empty() || !provenance.is_empty() || !settled.notes.is_empty() {
                let notes = settled.notes.edit();
                notes.layers = layers;
                notes.provenance = provenance;
            }
        }
        outcome
    }

    fn notes(&self) -> (Vec<LayerNote>, Vec<Provenance>) {
        let state = self.state();
        let note = |entry: &Entry| {
            let frame = &self.plan.frames[entry.frame];
            LayerNote {
                name: frame.name.clone(),
                band: frame.band,
                status: entry.status,
                started_at: entry.started_at,
                ended_at: entry.ended_at,
                changed: entry.changed,
                answered: !entry.ran_next && entry.status != LayerStatus::Open(Unsettled::Dropped),
                attempt: entry.attempt,
                reason: entry.reason.clone(),
                error: entry.error.map(str::to_owned),
            }
        };
        (
            state.entries.iter().map(note).collect(),
            state.changes.clone(),
        )
    }
}

impl State {
    /// Remembers what a layer was given from below.
    fn tell(&mut self, parent: usize, outcome: &Outcome) {
        let Some(parent) = self.entries.get_mut(parent) else {
            return;
        };
        parent.ran_next = true;
        let mut told = Inner::of(outcome);
        if let Some(before) = &parent.inner {
            told.notes.absorb(&before.notes);
        }
        parent.inner = Some(told);
    }
}

impl Inner {
    fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Suspended(_) => Self {
                status: None,
                value: None,
                text: None,
                notes: Notes::default(),
            },
            Outcome::Settled(settled) => Self {
                status: Some(settled.status),
                value: Some(settled.value.clone()),
                text: settled.text.clone(),
                notes: settled.notes.clone(),
            },
        }
    }

    fn changes_to(&self, settled: &Settled, layer: &LayerName) -> Option<Provenance> {
        let value = self
            .value
            .as_ref()
            .filter(|value| !value.same(&settled.value))?;
        let (changes, truncated) = changes(value, &settled.value);
        let layer = layer.clone();
        (!changes.is_empty()).then_some(Provenance {
            layer,
            subject: Subject::Result,
            changes,
            truncated,
        })
    }
}

/// What has happened to a call below a layer so far.
#[derive(Clone)]
pub struct Trail(pub(crate) Arc<Run>);

impl Trail {
    /// One note per layer entered, in order of entering; a layer still waiting counts as dropped.
    pub fn layers(&self) -> Vec<LayerNote> {
        self.0.notes().0
    }

    /// Who changed what.
    pub fn provenance(&self) -> Vec<Provenance> {
        self.0.notes().1
    }

    /// How often the executor was started.
    pub fn attempts(&self) -> u32 {
        self.0.state().attempts
    }

    /// The arguments that the executor was last given, if the call got that far.
    pub fn executed(&self) -> Option<Arguments> {
        self.0.state().executed.clone()
    }
}

impl std::fmt::Debug for Trail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Trail").field(&self.layers()).finish()
    }
}

pub(crate) fn exception(PanicReport(report): PanicReport) -> Outcome {
    let error =
        CallError::new(ErrorCategory::Panic, "the tool failed unexpectedly").with_operator(report);
    Outcome::error(Status::Exception, error)
}

fn layer_exception(layer: &LayerName, what: &str, report: Option<PanicReport>) -> Outcome {
    let detail = report.map_or_else(String::new, |PanicReport(report)| format!(": {report}"));
    let error = CallError::new(ErrorCategory::Panic, "an internal error stopped the call");
    Outcome::error(
        Status::LayerException,
        error.with_operator(format!("{layer}: {what}{detail}")),
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
                Self::error(Status::ExecutorError, error.with_operator(detail))
            }
        }
    }
}
