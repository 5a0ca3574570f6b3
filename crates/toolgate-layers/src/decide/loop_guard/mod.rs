//! Detects and stops loops of a model.

mod history;

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use moka::{policy::EvictionPolicy, sync::Cache};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    AgentId, Band, Call, Layer, LayerCapabilities, Next, Outcome, Refusal, SessionId,
    SettledOutcome, Status,
};

use crate::{
    BadOption, Configurable, Resources,
    decide::loop_guard::history::{
        CallHistory, CallStep, DetectedLoop, LoopLimits, ModelIteration,
    },
};

/// Maximum number of agents with a history; the least recently active are evicted first.
const MAX_AGENTS: u64 = 10_000;

/// A layer that blocks the call that would close a loop, after one warning.
///
/// A loop is the same call with the same result, two alternating calls with the same results, or
/// the same error of the same tool, a number of times in a row for one agent of one session. One
/// before the limit the result carries a hint; then the call is blocked until the model does
/// something else. After repeated errors only calls with arguments that failed are blocked; others
/// may be tried. A call that was denied or blocked is not an error of the tool. Calls of one model
/// message that have the same result count once, because the model has not seen the first result
/// when it makes the second call.
///
/// The history is cleared when the iterations ([`TurnInfo::iteration`]) are counted from 0 again:
/// the user has sent a new message, and the same calls for it are not a loop. For a program that
/// does not count its iterations each one is the first, and the guard stops nothing.
///
/// A result that changes is progress. A tool that is polled and keeps returning "running" looks
/// like a loop: let it return something that changes, such as a percentage or the time, let it wait
/// by itself for a while, raise `identical`, or exclude it with `on`.
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
    limits: LoopLimits,
    agents: Cache<AgentKey, Arc<Mutex<CallHistory>>>,
}

type AgentKey = (SessionId, Option<AgentId>);

/// Limits from which a repetition is a loop. A limit that is never reached turns a rule off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoopGuardOptions {
    /// The number of the identical call with an identical result in a row that is blocked; at least
    /// 2. Polling with the same result each time is such a row.
    pub identical: u32,
    /// The number of the call that is blocked when two calls alternate, each with identical
    /// results; at least 4.
    pub ping_pong: u32,
    /// The number of the call that is blocked when a tool has only returned the same error, if its
    /// arguments have failed before; at least 2.
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
    /// Creates a guard from its configuration.
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
                return Err(BadOption::new(key, format!("must be at least {least}")));
            }
        }
        let agents = Cache::builder()
            .max_capacity(MAX_AGENTS)
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Ok(Self {
            limits: LoopLimits {
                identical,
                ping_pong,
                errors,
            },
            agents,
        })
    }

    /// Checks whether the call would close a loop, and counts it as begun unless it is a rehearsal.
    fn check_call(&self, call: &Call) -> Option<DetectedLoop> {
        let arguments = call.arguments.digest();
        let round = iteration_of(call);
        if call.is_rehearsal() {
            // A rehearsal must not evict the histories of active agents.
            let history = self.agents.get(&agent_key(call))?;
            let history = history.lock().unwrap_or_else(PoisonError::into_inner);
            return history
                .closed_loop(&call.tool, arguments, self.limits)
                .filter(|_| !history.starts_over(round));
        }
        self.with_history(call, |history| {
            history.begin(round);
            history.closed_loop(&call.tool, arguments, self.limits)
        })
    }

    fn with_history<T>(&self, call: &Call, f: impl FnOnce(&mut CallHistory) -> T) -> T {
        let agent = agent_key(call);
        // Usually the agent is known, and this lookup needs no copy of its key.
        let history = self
            .agents
            .get(&agent)
            .unwrap_or_else(|| self.agents.get_with(agent, Arc::default));
        // A poisoned lock is harmless: a history is plain numbers and at worst one step behind.
        f(&mut history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a settled call and adds a hint if the next one would close a loop.
    fn record_settled(&self, call: &Call, next: &Next, settled: &mut SettledOutcome) {
        let round = iteration_of(call);
        let step = step_of(call, settled);
        if let Some(near) = self.with_history(call, |history| {
            history.record_step(step, round, self.limits)
        }) {
            next.note_reason("the next identical call would be a loop");
            settled.text = Some(format!("{}\n\n{}", settled.model_text(), hint_text(near)).into());
        }
    }
}

fn agent_key(call: &Call) -> AgentKey {
    (call.turn().session, call.turn().agent_id.clone())
}

fn iteration_of(call: &Call) -> ModelIteration {
    (call.turn().turn, call.turn().iteration)
}

/// Checks whether the tool, or the arguments that the model wrote for it, failed. A call that was
/// blocked or denied has not failed.
fn is_failure(status: Status) -> bool {
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

fn step_of(call: &Call, settled: &SettledOutcome) -> CallStep {
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
        .filter(|_| is_failure(settled.status));
    let error = error.map(|error| hash(&|hasher| (settled.status, &error.model).hash(hasher)));
    CallStep {
        tool: call.tool.clone(),
        arguments: call.arguments.digest(),
        outcome,
        error,
    }
}

fn hint_text(near: DetectedLoop) -> String {
    match near {
        DetectedLoop::Identical(times) => {
            format!(
                "[You have made this call {times} times with the same result; the next one will be blocked.]"
            )
        }
        DetectedLoop::PingPong(times) => format!(
            "[You have alternated between two calls, {times} in total, with the same results; the next one will be blocked.]"
        ),
        DetectedLoop::Errors(times) => format!(
            "[This tool has failed {times} times in a row with the same error; calls that failed will be blocked \
             unless you do something else first.]"
        ),
    }
}

fn blocked_outcome(closed: DetectedLoop) -> Outcome {
    let text = match closed {
        DetectedLoop::Identical(times) => {
            format!(
                "loop detected: this call was made {times} times with the same result; do something else"
            )
        }
        DetectedLoop::PingPong(times) => {
            format!(
                "loop detected: two calls alternated, {times} in total, with the same results; do something else"
            )
        }
        DetectedLoop::Errors(times) => {
            format!(
                "loop detected: this tool failed {times} times in a row with the same error, also for this call; change it or do something else first"
            )
        }
    };
    Outcome::refused(Refusal::LoopGuard, text)
}

impl Layer for LoopGuard {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        // A call that resumes was let through before, and a call that has run is not blocked
        // afterwards.
        let is_new = call.generation == 0 && call.resume_state().results.is_empty();
        if let Some(closed) = is_new.then(|| self.check_call(&call)).flatten() {
            next.note_reason("the call would close a loop");
            return blocked_outcome(closed);
        }
        let mut outcome = next.clone().run(call.clone()).await;
        // A suspended call has no result yet, and a cancelled one has none to compare.
        if let Outcome::Settled(settled) = &mut outcome
            && !call.is_rehearsal()
            && settled.status != Status::Cancelled
        {
            self.record_settled(&call, &next, settled);
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME).answering()
    }
}

impl Configurable for LoopGuard {
    const NAME: &'static str = "loop_guard";
    const SUMMARY: &'static str = "Blocks the call that would close a loop, after one warning.";
    type Options = LoopGuardOptions;

    fn configure(options: LoopGuardOptions, _: &Resources) -> Result<Self, BadOption> {
        Self::new(&options)
    }
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self::new(&LoopGuardOptions::default()).expect("the defaults are valid")
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
mod tests;
