//! Limits the time of each attempt, and really stops the work when it times out.

mod attempt;

use std::{collections::BTreeMap, pin::pin, time::Duration};

use futures::{
    FutureExt,
    future::{Either, select},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Failure, Layer, LayerCapabilities, Next, NoteKey,
    Outcome, Status, StopConfirmation, note_keys,
};

use crate::{
    BadOption, Configurable, HumanDuration, Resources, bound::timeout::attempt::RunningAttempt,
};

/// Limits the time of one attempt.
///
/// When the attempt times out or the call is cancelled, the work is stopped in steps. First the
/// call's cancellation token is cancelled, which tools, MCP connections and child processes react
/// to. In the last quarter of the grace period the future is dropped and the stop actions that the
/// tool has registered are run (process groups are killed). The caller returns within limit and
/// grace period, even if the tool is stuck in code that does not yield.
///
/// The status is `timeout` (or `cancelled`, if that was the cause) if the tool returned, said so
/// and left nothing running, if everything it started is known to be dead, or if it only reads.
/// Otherwise the work may have taken effect, and the status is `outcome_unknown`. A result that
/// arrives during the grace period counts as a result.
///
/// ```
/// # use {std::time::Duration, toolgate_core::Stack, toolgate_layers::Timeout, toolgate_testkit::echo};
/// let stack = Stack::over(echo()).layer(Timeout::after(Duration::from_secs(30))).build()?;
/// # Ok::<(), toolgate_core::StackError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Timeout {
    max: Duration,
    per_tool: BTreeMap<String, Duration>,
    grace: Duration,
    message: Option<String>,
    observe: bool,
}

/// The options of [`Timeout`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutOptions {
    /// The time limit of one attempt; `0s` for no limit. A shorter limit of the tool itself applies.
    pub max: HumanDuration,
    /// Limits for single tools by name; `0s` for no limit.
    pub per_tool: BTreeMap<String, HumanDuration>,
    /// The time a tool has to stop after it was cancelled; in the last quarter it is stopped by
    /// force.
    pub grace: HumanDuration,
    /// A text for the model that replaces the default one.
    pub message: Option<String>,
    /// If true, only notes that a call took too long, and stops nothing.
    pub observe: bool,
}

impl Default for TimeoutOptions {
    fn default() -> Self {
        let per_tool = BTreeMap::new();
        let message = None;
        let observe = false;
        Self {
            max: HumanDuration::from_secs(120),
            per_tool,
            grace: HumanDuration::from_secs(2),
            message,
            observe,
        }
    }
}

impl Timeout {
    /// Creates the layer with the limit `max` for every attempt.
    pub fn after(max: Duration) -> Self {
        let grace = TimeoutOptions::default().grace.get();
        Self {
            max,
            per_tool: BTreeMap::new(),
            grace,
            message: None,
            observe: false,
        }
    }

    /// Sets another limit for one tool; zero for no limit.
    pub fn tool(mut self, tool: &str, max: Duration) -> Self {
        self.per_tool.insert(tool.to_owned(), max);
        self
    }

    /// Sets the time a tool has to stop after it was cancelled; in the last quarter it is stopped
    /// by force.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Only notes that a call took too long, and stops nothing.
    pub fn observe(mut self) -> Self {
        self.observe = true;
        self
    }

    /// Returns the limit for this call. An operator's limit for one tool overrides the tool's own.
    fn limit_for(&self, call: &Call) -> Option<Duration> {
        let limit = match (
            self.per_tool.get(call.tool.as_str()),
            call.annotations().timeout(),
        ) {
            (Some(limit), _) => *limit,
            (None, Some(own)) if self.max.is_zero() => own,
            (None, Some(own)) => own.min(self.max),
            (None, None) => self.max,
        };
        (!limit.is_zero()).then_some(limit)
    }

    /// Runs the call without stopping it, and notes if it took too long.
    async fn run_observed(&self, call: Call, next: Next, limit: Duration) -> Outcome {
        let clock = call.env().clock().clone();
        let start = clock.now();
        let outcome = next.clone().run(call).await;
        let spent = clock.now().since(start);
        if spent <= limit {
            return outcome;
        }
        next.note_reason(
            "it took longer than its limit; nothing was stopped, because `observe` is set",
        );
        outcome.with_notes(|notes| {
            let late = json!({ "limit_ms": whole_millis(limit), "spent_ms": whole_millis(spent), "observed": true });
            notes.insert(note_keys::TIMEOUT, &late);
        })
    }

    /// Runs the call and stops it when it times out or is cancelled.
    async fn run_limited(&self, call: Call, next: Next, limit: Duration) -> Outcome {
        // A child token: stopping this attempt must not cancel the call, or a retry above could
        // never start.
        let bounded = call.clone().with_time_limit(limit);
        let mut work = RunningAttempt::start(bounded.clone(), next.clone());
        let clock = call.env().clock();
        let cancelled = pin!(call.cancel.cancelled());
        let over = select(clock.sleep(limit), cancelled);
        // Both may be ready in one poll. A result that exists counts: the tool has already had its
        // effect.
        let (answered, end) = match select(&mut work.run, over).await {
            // This cause is used only if a cancellation arrived together with the answer.
            Either::Left((outcome, _)) => (Some(outcome), StopCause::Cancelled),
            Either::Right((Either::Left(_), run)) => (run.now_or_never(), StopCause::OutOfTime),
            Either::Right((Either::Right(_), run)) => (run.now_or_never(), StopCause::Cancelled),
        };
        match answered {
            // After a cancellation an answer may only say that the tool gave up, and what it
            // started may still run.
            Some(outcome) if !bounded.cancel.is_cancelled() => work.mark_done(outcome),
            // It has no effect whose end would have to be waited for.
            None if end == StopCause::OutOfTime && !call.annotations().may_write() => {
                next.note_reason(end.reason());
                bounded.cancel.cancel();
                work.abandon();
                let stopped = StopConfirmation::Unconfirmed;
                self.stopped_outcome(&bounded, limit, end, None, stopped)
            }
            // Boxed, so that the futures of calls that return in time stay small.
            answered => {
                Box::pin(self.stop_attempt(&bounded, &next, work, limit, end, answered)).await
            }
        }
    }

    /// Stops a call that timed out or was cancelled, first by asking and then by force.
    async fn stop_attempt(
        &self,
        call: &Call,
        next: &Next,
        mut work: RunningAttempt,
        limit: Duration,
        end: StopCause,
        answered: Option<Outcome>,
    ) -> Outcome {
        let clock = call.env().clock();
        // A tool that cooperates gets three quarters of the grace period; the rest is needed to
        // kill one that does not.
        let force = self.grace / 4;
        let answered = match answered {
            Some(outcome) => Some(outcome),
            None => {
                // Only here: a call that has already answered was not stopped, so it has no such
                // reason.
                next.note_reason(end.reason());
                call.cancel.cancel();
                match select(&mut work.run, clock.sleep(self.grace.saturating_sub(force))).await {
                    Either::Left((outcome, _)) => Some(outcome),
                    Either::Right(((), _)) => None,
                }
            }
        };
        let stopped = work
            .stop(answered.is_some(), &**clock, force.max(MIN_FORCE_TIME))
            .await;
        self.stopped_outcome(call, limit, end, answered, stopped)
    }

    /// Builds the outcome of a call that was told to stop.
    fn stopped_outcome(
        &self,
        call: &Call,
        limit: Duration,
        end: StopCause,
        answered: Option<Outcome>,
        stopped: StopConfirmation,
    ) -> Outcome {
        // A write whose end is not confirmed may still take effect: claiming `timeout` would invite
        // a retry.
        let known = stopped == StopConfirmation::Confirmed || !call.annotations().may_write();
        let how = match answered {
            // It finished after all, or reports an unknown outcome itself, or suspended.
            Some(outcome) if !is_abandoned(&outcome) => return end.mark_late(outcome, limit),
            // The tool's own text about a cancellation says more than ours.
            Some(outcome) if known && end == StopCause::Cancelled => return outcome,
            Some(_) if known => "it stopped when it was told to",
            Some(_) => "it returned when it was told to, but what it had started may still run",
            None if end == StopCause::OutOfTime && !call.annotations().may_write() => {
                "it only reads, so its end was not waited for"
            }
            None => "it did not stop when it was told to",
        };
        let failure = end.failure(known);
        let usual = end.model_text(known, limit);
        // The operator's message is about the limit, so it does not fit a cancellation.
        let own = self.message.clone().filter(|_| end == StopCause::OutOfTime);
        let category = ErrorCategory::for_status(failure.into());
        let error = CallError::new(category, own.unwrap_or(usual)).with_operator_detail(how);
        Outcome::error(failure, error).with_notes(|notes| {
            let ladder = json!({ "limit_ms": whole_millis(limit), "stopped": known, "how": how });
            notes.insert(end.note_key(), &ladder);
        })
    }
}

/// The minimum time for stopping by force: a kill takes a moment, however short the grace period.
const MIN_FORCE_TIME: Duration = Duration::from_millis(100);

/// The reason that a call was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopCause {
    OutOfTime,
    Cancelled,
}

impl StopCause {
    /// Returns the reason for the trail.
    const fn reason(self) -> &'static str {
        match self {
            Self::OutOfTime => "its time was up",
            Self::Cancelled => "it was cancelled",
        }
    }

    /// Returns the key of the note.
    const fn note_key(self) -> NoteKey<Value> {
        match self {
            Self::OutOfTime => note_keys::TIMEOUT,
            Self::Cancelled => note_keys::CANCELLED,
        }
    }

    /// Returns the failure, which depends on whether the work is known to have stopped.
    const fn failure(self, known: bool) -> Failure {
        match (known, self) {
            (true, Self::OutOfTime) => Failure::Timeout,
            (true, Self::Cancelled) => Failure::Cancelled,
            (false, _) => Failure::OutcomeUnknown,
        }
    }

    /// Returns the default text for the model.
    fn model_text(self, known: bool, limit: Duration) -> String {
        let what = match self {
            Self::OutOfTime => format!("the call took longer than {}", human_duration(limit)),
            Self::Cancelled => "the call was cancelled".to_owned(),
        };
        what + if known {
            " and was stopped"
        } else {
            "; it is not known whether it took effect"
        }
    }

    /// Marks a result that arrived after the call had been told to stop.
    fn mark_late(self, outcome: Outcome, limit: Duration) -> Outcome {
        outcome.with_notes(|notes| {
            let late = json!({ "limit_ms": whole_millis(limit), "finished_in_grace": true });
            notes.insert(self.note_key(), &late);
        })
    }
}

/// Checks whether an outcome that arrived after cancelling says only that the work was abandoned.
fn is_abandoned(outcome: &Outcome) -> bool {
    let Some(settled) = outcome.settled() else {
        return false;
    };
    let cancelled = settled
        .error
        .as_ref()
        .is_some_and(|error| error.category == ErrorCategory::Cancelled);
    cancelled || matches!(settled.status, Status::Cancelled | Status::Timeout)
}

/// Returns whole milliseconds, saturating.
fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Converts a duration for display.
fn human_duration(span: Duration) -> HumanDuration {
    HumanDuration::from(span)
}

impl Layer for Timeout {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        match self.limit_for(&call) {
            None => next.run(call).await,
            Some(limit) if self.observe => self.run_observed(call, next, limit).await,
            Some(limit) => self.run_limited(call, next, limit).await,
        }
    }

    fn band(&self) -> Band {
        Band::Bound
    }

    fn capabilities(&self) -> LayerCapabilities {
        // For the linter, which compares the longest limit with the deadline of the turn.
        // Zero is no limit.
        let long = |limit: Duration| {
            if limit.is_zero() {
                Duration::MAX
            } else {
                limit
            }
        };
        let longest = self
            .per_tool
            .values()
            .copied()
            .map(long)
            .fold(long(self.max), Duration::max);
        LayerCapabilities::for_kind(Self::NAME).limiting(longest)
    }
}

impl Configurable for Timeout {
    const NAME: &'static str = "timeout";
    const SUMMARY: &'static str =
        "Limits the time of each attempt and stops the work when it times out.";
    type Options = TimeoutOptions;

    fn configure(options: TimeoutOptions, _: &Resources) -> Result<Self, BadOption> {
        let TimeoutOptions {
            max,
            per_tool,
            grace,
            message,
            observe,
        } = options;
        if message
            .as_ref()
            .is_some_and(|message| message.trim().is_empty())
        {
            return Err(BadOption::new(
                "message",
                "must not be empty; omit it for the default text",
            ));
        }
        let per_tool = per_tool
            .into_iter()
            .map(|(tool, limit)| (tool, limit.get()))
            .collect();
        Ok(Self {
            max: max.get(),
            per_tool,
            grace: grace.get(),
            message,
            observe,
        })
    }
}
