//! Stops a model that goes round in circles.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use moka::{policy::EvictionPolicy, sync::Cache};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    AgentId, Band, Call, Layer, LayerTraits, Next, Outcome, SessionId, Settled, Status,
};

use crate::{
    BadOption, Configurable, Parts,
    loop_history::{History, Limits, Loop, Round, Step},
};

/// How many agents are watched at a time; those that did nothing the longest are forgotten first.
const MOST_AGENTS: u64 = 10_000;

/// Refuses the call that would close a loop, after having said so once.
///
/// A loop is the same call with the same result, two calls in turn with the same results, or the same error of the
/// same tool, so many times in a row for one agent of one session. One before the limit the result carries a hint; then
/// the call is refused until something else is done first. After the same error that holds for calls with arguments
/// that failed; others may be tried. What was refused by somebody or something is not an error of the tool. Calls that
/// one message of the model makes side by side and that come to the same count once, because the model has not seen the
/// first result when it asks for the second.
///
/// Everything starts anew when the rounds of the loop ([`TurnInfo::iteration`]) are counted from 0 again: the user has
/// written something, and to do the same for it as for the last message is no loop. A program that does not count its
/// rounds tells the guard that each one is the first, and the guard stops nothing.
///
/// A result that changes is progress. A tool that is polled and keeps saying "running" looks like a loop all the same:
/// let it say something that changes, such as a percentage or the time, let it wait by itself for a while, raise
/// `identical`, or leave it out with `on`.
///
/// [`TurnInfo::iteration`]: toolgate_core::TurnInfo::iteration
///
/// ```
/// # use toolgate_core::{Stack, Status};
/// # use {toolgate_layers::LoopGuard, toolgate_testkit::echo};
/// let stack = Stack::over(echo()).layer(LoopGuard::default()).build()?;
/// # Ok::<(), toolgate_core::StackError>(())
/// ```
pub struct LoopGuard {
    limits: Limits,
    agents: Cache<Agent, Arc<Mutex<History>>>,
}

type Agent = (SessionId, Option<AgentId>);

/// From how many on something is a loop. A limit that is never reached turns a rule off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoopGuardOptions {
    /// Which identical call with an identical result in a row is refused; at least 2. Polling that says the same each
    /// time is such a row.
    pub identical: u32,
    /// Which call of two that alternate, each with identical results, is refused; at least 4.
    pub ping_pong: u32,
    /// Which call of a tool is refused that has only returned the same error, if it is one of those that failed; at
    /// least 2.
    pub errors: u32,
}

impl Default for LoopGuardOptions {
    fn default() -> Self {
        Self {
            identical: 5,
            ping_pong: 6,
            errors: 4,
        }
    }
}

impl LoopGuard {
    /// Guards as `options` say.
    pub fn new(options: &LoopGuardOptions) -> Result<Self, BadOption> {
        let LoopGuardOptions {
            identical,
            ping_pong,
            errors,
        } = *options;
        for (key, limit, least) in [
            ("identical", identical, 2),
            ("ping_pong", ping_pong, 4),
            ("errors", errors, 2),
        ] {
            if limit < least {
                return Err(BadOption::new(key, format!("has to be at least {least}")));
            }
        }
        let agents = Cache::builder()
            .max_capacity(MOST_AGENTS)
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Ok(Self {
            limits: Limits {
                identical,
                ping_pong,
                errors,
            },
            agents,
        })
    }

    /// Whether the call would close a loop. From now on it counts as begun, unless it is only rehearsed.
    fn closes(&self, call: &Call) -> Option<Loop> {
        let (arguments, round) = (call.arguments.digest(), round(call));
        if call.is_rehearsal() {
            // Looking must not push out those that are at work.
            let history = self.agents.get(&agent(call))?;
            let history = history.lock().unwrap_or_else(PoisonError::into_inner);
            return history
                .closes(&call.tool, arguments, self.limits)
                .filter(|_| !history.starts_over(round));
        }
        self.history(call, |history| {
            history.begin(round);
            history.closes(&call.tool, arguments, self.limits)
        })
    }

    fn history<T>(&self, call: &Call, f: impl FnOnce(&mut History) -> T) -> T {
        let agent = agent(call);
        // Mostly it is known, and looking needs no copy of its name.
        let history = self
            .agents
            .get(&agent)
            .unwrap_or_else(|| self.agents.get_with(agent, Arc::default));
        // A history is plain numbers; at worst it is one step behind.
        f(&mut history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes note of a call that is over and adds a hint if the next one would close a loop.
    fn record(&self, call: &Call, next: &Next, settled: &mut Settled) {
        let (round, step) = (round(call), step(call, settled));
        if let Some(near) = self.history(call, |history| history.record(step, round, self.limits)) {
            next.because("one more of the same would be a loop");
            settled.text = Some(format!("{}\n\n{}", settled.model_text(), hint(near)).into());
        }
    }
}

fn agent(call: &Call) -> Agent {
    (call.turn().session, call.turn().agent_id.clone())
}

fn round(call: &Call) -> Round {
    (call.turn().turn, call.turn().iteration)
}

/// Whether the tool, or what the model wrote for it, went wrong. Who is refused has not failed.
fn went_wrong(status: Status) -> bool {
    match status {
        Status::SchemaViolation | Status::ExecutorError | Status::Timeout | Status::Exception => {
            true
        }
        Status::Ok
        | Status::ToolNotFound
        | Status::Denied
        | Status::Expired
        | Status::Blocked
        | Status::OutOfScope
        | Status::RateLimited
        | Status::BudgetExceeded
        | Status::LoopGuard
        | Status::Cancelled
        | Status::OutcomeUnknown
        | Status::Redacted
        | Status::DryRun
        | Status::LayerException => false,
    }
}

fn step(call: &Call, settled: &Settled) -> Step {
    let hash = |parts: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        parts(&mut hasher);
        hasher.finish()
    };
    let outcome = hash(&|hasher| {
        (settled.status, settled.value.digest(), &settled.text).hash(hasher);
        settled
            .error
            .as_ref()
            .map(|error| &error.model)
            .hash(hasher);
    });
    let error = settled
        .error
        .as_ref()
        .filter(|_| went_wrong(settled.status));
    let error = error.map(|error| hash(&|hasher| (settled.status, &error.model).hash(hasher)));
    Step {
        tool: call.tool.clone(),
        arguments: call.arguments.digest(),
        outcome,
        error,
    }
}

fn hint(near: Loop) -> String {
    match near {
        Loop::Identical(times) => {
            format!(
                "[You have made this call {times} times with the same result; a further one will be refused.]"
            )
        }
        Loop::PingPong(times) => format!(
            "[You have made two calls in turn, {times} in all, with the same results; a further one will be refused.]"
        ),
        Loop::Errors(times) => format!(
            "[This tool has failed {times} times in a row with the same error; calls that failed will be refused \
             unless you do something else first.]"
        ),
    }
}

fn refusal(closed: Loop) -> Outcome {
    let text = match closed {
        Loop::Identical(times) => {
            format!(
                "this call was made {times} times with the same result and is not made again; do something else"
            )
        }
        Loop::PingPong(times) => {
            format!(
                "two calls were made in turn, {times} in all, with the same results; do something else"
            )
        }
        Loop::Errors(times) => {
            format!(
                "this tool failed {times} times in a row with the same error, also for this call; change it or do something else first"
            )
        }
    };
    Outcome::refused(Status::LoopGuard, text)
}

impl Layer for LoopGuard {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        // A call that comes back was let through before, and what has run since is not refused afterwards.
        let is_new = call.generation == 0 && call.resumed().results.is_empty();
        if let Some(closed) = is_new.then(|| self.closes(&call)).flatten() {
            next.because("the call would close a loop");
            return refusal(closed);
        }
        let mut outcome = next.clone().run(call.clone()).await;
        if let Outcome::Settled(settled) = &mut outcome
            && !call.is_rehearsal()
            && settled.status != Status::Cancelled
        {
            self.record(&call, &next, settled);
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).answering()
    }
}

impl Configurable for LoopGuard {
    const NAME: &'static str = "loop_guard";
    const SUMMARY: &'static str =
        "Refuses the call that would close a loop, after having said so once.";
    type Options = LoopGuardOptions;

    fn configure(options: LoopGuardOptions, _: &Parts) -> Result<Self, BadOption> {
        Self::new(&options)
    }
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self::new(&LoopGuardOptions::default()).expect("the defaults make sense")
    }
}

impl fmt::Debug for LoopGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopGuard")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "loop_guard_tests.rs"]
mod tests;
