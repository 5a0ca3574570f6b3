//! Gives each attempt a time, and really stops the work when it is over.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, Either, join, pending, ready, select},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Handle, RuntimeFlavor};
use toolgate_core::{
    Band, Call, CallError, Clock, ErrorCategory, Layer, LayerTraits, Next, Outcome, Status,
    Stopped, Stops,
};

use crate::{BadOption, Configurable, Parts, Span};

/// Bounds one attempt in time.
///
/// When the time is up or somebody cancels the call, the work is stopped by a ladder: the call's cancellation token
/// first, which tools, MCP connections and child processes answer; in the last quarter of the grace the future is
/// dropped and everything that the tool has registered to be stopped is run (process groups are killed). The caller
/// returns within limit and grace, even if the tool is stuck in code that does not yield. The status is honest:
/// `timeout` (`cancelled`, if that was the cause) if the tool came back and said so and left nothing behind, if all it
/// started is known to be dead, or if it only reads; otherwise the work may have had its effect, and it is
/// `outcome_unknown`. A result that arrives during the grace is a result.
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

/// What can be set about time limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutOptions {
    /// How long one attempt may take, in milliseconds; 0 for no limit. A shorter limit of the tool itself counts.
    pub max_ms: u64,
    /// Other limits by the name of the tool, in milliseconds; 0 for no limit.
    pub per_tool: BTreeMap<String, u64>,
    /// How long a tool may take to stop after it was told to; the last quarter is for stopping it by force.
    pub grace: Span,
    /// What the model is told instead of the usual words.
    pub message: Option<String>,
    /// Only notes that a call took too long, and stops nothing.
    pub observe: bool,
}

impl Default for TimeoutOptions {
    fn default() -> Self {
        let (per_tool, message, observe) = (BTreeMap::new(), None, false);
        Self {
            max_ms: 120_000,
            per_tool,
            grace: Span::secs(2),
            message,
            observe,
        }
    }
}

impl Timeout {
    /// Gives every attempt `max`.
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

    /// Gives attempts of one tool another time; zero for no limit.
    pub fn tool(mut self, tool: &str, max: Duration) -> Self {
        self.per_tool.insert(tool.to_owned(), max);
        self
    }

    /// How long a tool may take to stop after it was told to; the last quarter is for stopping it by force.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Only notes that a call took too long, and stops nothing.
    pub fn observe(mut self) -> Self {
        self.observe = true;
        self
    }

    /// The limit for this call. A word about one tool stands above what the tool says of itself.
    fn limit(&self, call: &Call) -> Option<Duration> {
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

    /// The label-only behaviour: the result stands, and the notes say that it came late.
    async fn watch(&self, call: Call, next: Next, limit: Duration) -> Outcome {
        let (clock, start) = (call.env().clock().clone(), call.env().clock().now());
        let outcome = next.clone().run(call).await;
        let spent = clock.now().since(start);
        if spent <= limit {
            return outcome;
        }
        next.because("it took longer than its limit, and was only watched");
        outcome.noting(|notes| {
            let late = serde_json::json!({ "limit_ms": millis(limit), "spent_ms": millis(spent), "observed": true });
            notes.metadata.insert("timeout".into(), late);
        })
    }

    async fn bound(&self, call: Call, next: Next, limit: Duration) -> Outcome {
        let bounded = call.clone().with_time_limit(limit);
        let mut work = Work::start(bounded.clone(), next.clone());
        let clock = call.env().clock();
        let cancelled = pin!(call.cancel.cancelled());
        let over = select(clock.sleep(limit), cancelled);
        // Both at once: what is there is there.
        let (answered, end) = match select(&mut work.run, over).await {
            Either::Left((outcome, _)) => (Some(outcome), End::Cancelled),
            Either::Right((Either::Left(_), run)) => (run.now_or_never(), End::OutOfTime),
            Either::Right((Either::Right(_), run)) => (run.now_or_never(), End::Cancelled),
        };
        match answered {
            Some(outcome) if !bounded.cancel.is_cancelled() => work.done(outcome),
            // Boxed, so that calls that come back in time have no room for it.
            answered => Box::pin(self.stop(&bounded, &next, work, (limit, end), answered)).await,
        }
    }

    /// The ladder, for a call whose time is up or that somebody cancelled.
    async fn stop(
        &self,
        call: &Call,
        next: &Next,
        mut work: Work,
        why: (Duration, End),
        answered: Option<Outcome>,
    ) -> Outcome {
        let (clock, force) = (call.env().clock(), self.grace / 4);
        let answered = match answered {
            Some(outcome) => Some(outcome),
            None => {
                next.because(why.1.reason());
                call.cancel.cancel();
                match select(&mut work.run, clock.sleep(self.grace.saturating_sub(force))).await {
                    Either::Left((outcome, _)) => Some(outcome),
                    Either::Right(((), _)) => None,
                }
            }
        };
        let stopped = work
            .stop(answered.is_some(), &**clock, force.max(FORCE))
            .await;
        self.ended(call, why, answered, stopped)
    }

    /// Says what came of a call that was told to stop.
    fn ended(
        &self,
        call: &Call,
        why: (Duration, End),
        answered: Option<Outcome>,
        stopped: Stopped,
    ) -> Outcome {
        let (limit, end) = why;
        let known = stopped == Stopped::Confirmed || !call.annotations().may_write();
        let how = match answered {
            // It finished after all, or says itself that it cannot tell, or asks.
            Some(outcome) if !gave_up(&outcome) => return end.late(outcome, limit),
            Some(outcome) if known && end == End::Cancelled => return outcome,
            Some(_) if known => "it stopped when it was told to",
            Some(_) => "it came back when it was told to, but what it had started may go on",
            None => "it did not stop when it was told to",
        };
        let status = end.status(known);
        let usual = end.text(known, limit);
        let own = self.message.clone().filter(|_| end == End::OutOfTime);
        let error =
            CallError::new(ErrorCategory::of(status), own.unwrap_or(usual)).with_operator(how);
        Outcome::error(status, error).noting(|notes| {
            let ladder =
                serde_json::json!({ "limit_ms": millis(limit), "stopped": known, "how": how });
            notes.metadata.insert(end.key().into(), ladder);
        })
    }
}

/// The least time for stopping by force: a kill takes a moment, however short the grace.
const FORCE: Duration = Duration::from_millis(100);

/// Why a call was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    OutOfTime,
    Cancelled,
}

impl End {
    const fn reason(self) -> &'static str {
        match self {
            Self::OutOfTime => "its time was up",
            Self::Cancelled => "it was cancelled",
        }
    }

    const fn key(self) -> &'static str {
        match self {
            Self::OutOfTime => "timeout",
            Self::Cancelled => "cancelled",
        }
    }

    const fn status(self, known: bool) -> Status {
        match (known, self) {
            (true, Self::OutOfTime) => Status::Timeout,
            (true, Self::Cancelled) => Status::Cancelled,
            (false, _) => Status::OutcomeUnknown,
        }
    }

    fn text(self, known: bool, limit: Duration) -> String {
        let what = match self {
            Self::OutOfTime => format!("the call took longer than {}", shown(limit)),
            Self::Cancelled => "the call was cancelled".to_owned(),
        };
        what + if known {
            " and was stopped"
        } else {
            "; it is not known whether it took effect"
        }
    }

    /// A result that came although the call had been told to stop.
    fn late(self, outcome: Outcome, limit: Duration) -> Outcome {
        outcome.noting(|notes| {
            let late = serde_json::json!({ "limit_ms": millis(limit), "finished_in_grace": true });
            notes.metadata.insert(self.key().into(), late);
        })
    }
}

/// Whether an outcome that came after cancelling says no more than that the work was given up.
fn gave_up(outcome: &Outcome) -> bool {
    let Some(settled) = outcome.settled() else {
        return false;
    };
    let cancelled = settled
        .error
        .as_ref()
        .is_some_and(|error| error.category == ErrorCategory::Cancelled);
    cancelled || matches!(settled.status, Status::Cancelled | Status::Timeout)
}

/// The attempt, on a task of its own where that helps.
struct Work {
    run: BoxFuture<'static, Outcome>,
    task: Option<tokio::task::AbortHandle>,
    stops: Stops,
    over: bool,
}

impl Work {
    fn start(call: Call, next: Next) -> Self {
        let stops = call.stops().clone();
        stops.take_over();
        // A tool that blocks holds the thread that polls it. On a task of its own that is not the caller's thread;
        // with a single thread there is no other.
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
        let run = task.map(|joined| joined.unwrap_or_else(|_| lost()));
        Self {
            run: Box::pin(run),
            task: Some(abort),
            stops,
            over: false,
        }
    }

    /// The attempt came back by itself.
    fn done(&mut self, outcome: Outcome) -> Outcome {
        self.over = true;
        outcome
    }

    /// The end of the ladder: lets go of an attempt that did not answer, kills what was started, and says whether all
    /// of it is known to be over.
    async fn stop(mut self, answered: bool, clock: &dyn Clock, within: Duration) -> Stopped {
        let stops = self.stops.take();
        // A future that is dropped may have sent its request long ago; only what was registered can be known to be dead.
        let vouched = answered || !stops.is_empty();
        let gone = self.let_go(answered);
        let killed = run_stops(stops);
        match select(pin!(join(killed, gone)), clock.sleep(within)).await {
            Either::Left(((stopped, ()), _)) if vouched => stopped,
            Either::Left(_) | Either::Right(_) => Stopped::Unconfirmed,
        }
    }

    /// Drops the attempt. A task that is stuck in blocking code is not gone before that ends.
    fn let_go(&mut self, answered: bool) -> BoxFuture<'static, ()> {
        self.over = true;
        let run = std::mem::replace(&mut self.run, Box::pin(pending()));
        match &self.task {
            Some(task) if !answered => {
                task.abort();
                Box::pin(run.map(drop))
            }
            Some(_) | None => Box::pin(ready(())),
        }
    }
}

/// Runs what was registered where it holds nobody, if there is such a place.
fn run_stops(stops: Stops) -> BoxFuture<'static, Stopped> {
    match Handle::try_current() {
        Ok(handle) if !stops.is_empty() => {
            let task = handle.spawn_blocking(move || stops.run());
            Box::pin(task.map(|word| word.unwrap_or(Stopped::Unconfirmed)))
        }
        Ok(_) | Err(_) => Box::pin(ready(stops.run())),
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Somebody above stopped waiting: an interruption, a dropped turn.
        if !self.over {
            // Right here: a runtime that is shutting down starts nothing any more.
            self.stops.take().run();
            drop(self.let_go(false));
        }
    }
}

/// The task was lost with its runtime.
fn lost() -> Outcome {
    let error = CallError::new(
        ErrorCategory::Unknown,
        "the call was lost; it is not known whether it took effect",
    );
    Outcome::error(Status::OutcomeUnknown, error)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn shown(span: Duration) -> Span {
    Span::from(span)
}

impl Layer for Timeout {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        match self.limit(&call) {
            None => next.run(call).await,
            Some(limit) if self.observe => self.watch(call, next, limit).await,
            Some(limit) => self.bound(call, next, limit).await,
        }
    }

    fn band(&self) -> Band {
        Band::Bound
    }

    fn traits(&self) -> LayerTraits {
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
        LayerTraits::of(Self::NAME).limiting(longest)
    }
}

impl Configurable for Timeout {
    const NAME: &'static str = "timeout";
    const SUMMARY: &'static str =
        "Gives each attempt a time and really stops the work when it is over.";
    type Options = TimeoutOptions;

    fn configure(options: TimeoutOptions, _: &Parts) -> Result<Self, BadOption> {
        let TimeoutOptions {
            max_ms,
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
                "the model has to be told something; leave it out for the usual words",
            ));
        }
        let per_tool = per_tool
            .into_iter()
            .map(|(tool, ms)| (tool, Duration::from_millis(ms)))
            .collect();
        Ok(Self {
            max: Duration::from_millis(max_ms),
            per_tool,
            grace: grace.get(),
            message,
            observe,
        })
    }
}
