//! Stops a model that goes round in circles.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use moka::{policy::EvictionPolicy, sync::Cache};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{AgentId, Band, Call, Layer, LayerTraits, Next, Outcome, SessionId, Settled, Status};

use crate::{
    BadOption, Configurable, Parts,
    loop_history::{History, Limits, Loop, Step},
};

/// How many agents are watched at a time; those that did nothing the longest are forgotten first.
const MOST_AGENTS: u64 = 10_000;

/// Refuses the call that would close a loop, after having said so once.
///
/// A loop is the same call with the same result, two calls in turn with the same results, or the same error of the
/// same tool, so many times in a row within one session. One before the limit the result carries a hint; then the call
/// is refused until something else is done first. A result that changes is progress: polling is not a loop. Calls that
/// one message of the model makes side by side and that come to the same count once, because the model has not seen the
/// first result when it asks for the second. Agents of one session are watched apart.
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
    /// Which identical call with an identical result in a row is refused; at least 2.
    pub identical: u32,
    /// Which call of two that alternate, each with identical results, is refused; at least 4.
    pub ping_pong: u32,
    /// Which call of a tool is refused that has only returned the same error; at least 2.
    pub errors: u32,
}

impl Default for LoopGuardOptions {
    fn default() -> Self {
        Self { identical: 3, ping_pong: 6, errors: 4 }
    }
}

impl LoopGuard {
    /// Guards as `options` say.
    pub fn new(options: &LoopGuardOptions) -> Result<Self, BadOption> {
        let LoopGuardOptions { identical, ping_pong, errors } = *options;
        for (key, limit, least) in [("identical", identical, 2), ("ping_pong", ping_pong, 4), ("errors", errors, 2)] {
            if limit < least {
                return Err(BadOption::new(key, format!("has to be at least {least}")));
            }
        }
        let agents = Cache::builder().max_capacity(MOST_AGENTS).eviction_policy(EvictionPolicy::lru()).build();
        Ok(Self { limits: Limits { identical, ping_pong, errors }, agents })
    }

    fn history<T>(&self, call: &Call, f: impl FnOnce(&mut History) -> T) -> T {
        let agent = (call.turn().session, call.turn().agent_id.clone());
        let history = self.agents.get_with(agent, Arc::default);
        // A history is plain numbers; at worst it is one step behind.
        f(&mut history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes note of a call that is over and adds a hint if the next one would close a loop.
    fn record(&self, call: &Call, next: &Next, settled: &mut Settled) {
        let (turn, step) = ((call.turn().turn, call.turn().iteration), step(call, settled));
        if let Some(near) = self.history(call, |history| history.record(step, turn, self.limits)) {
            next.because("one more of the same would be a loop");
            settled.text = Some(format!("{}\n\n{}", settled.model_text(), hint(near)).into());
        }
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
        settled.error.as_ref().map(|error| &error.model).hash(hasher);
    });
    let error = settled.error.as_ref().map(|error| hash(&|hasher| (settled.status, &error.model).hash(hasher)));
    Step { tool: call.tool.clone(), arguments: call.arguments.digest(), outcome, error }
}

fn hint(near: Loop) -> String {
    match near {
        Loop::Identical(times) => {
            format!("[You have made this call {times} times with the same result; a further one will be refused.]")
        }
        Loop::PingPong(times) => format!(
            "[You have made two calls in turn, {times} in all, with the same results; a further one will be refused.]"
        ),
        Loop::Errors(times) => format!(
            "[This tool has failed {times} times in a row with the same error; a further call of it will be refused \
             unless you do something else first.]"
        ),
    }
}

fn refusal(closed: Loop) -> Outcome {
    let text = match closed {
        Loop::Identical(times) => {
            format!("this call was made {times} times with the same result and is not made again; do something else")
        }
        Loop::PingPong(times) => {
            format!("two calls were made in turn, {times} in all, with the same results; do something else")
        }
        Loop::Errors(times) => {
            format!("this tool failed {times} times in a row with the same error; do something else first")
        }
    };
    Outcome::refused(Status::LoopGuard, text)
}

impl Layer for LoopGuard {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let closed = self.history(&call, |history| history.closes(&call.tool, call.arguments.digest(), self.limits));
        // A call that comes back was let through before, and what has run since is not refused afterwards.
        if let Some(closed) = closed.filter(|_| call.generation == 0) {
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
    const SUMMARY: &'static str = "Refuses the call that would close a loop, after having said so once.";
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
        f.debug_struct("LoopGuard").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::try_out::*;
    use serde_json::json;
    use toolgate_core::{CallSeed, Stack, ToolError};
    use toolgate_testkit::{Scripted, TestClock, echo_under, run_twice};

    fn nth_look(n: u128) -> CallSeed {
        nth(&TestClock::new(), n, "look", json!({ "path": "a" }))
    }

    async fn text(stack: &Stack, seed: CallSeed) -> (Option<Status>, String) {
        let outcome = stack.run(Call::new(seed)).await;
        (outcome.status(), outcome.settled().expect("settled").model_text().into_owned())
    }

    #[tokio::test]
    async fn the_second_identical_call_is_hinted_at_and_the_third_refused() {
        let tool = Scripted::new().then(Outcome::ok("x")).then(Outcome::ok("x"));
        let stack = Stack::over(tool.clone()).layer(LoopGuard::default()).build().expect("in order");
        assert_eq!(text(&stack, nth_look(11)).await, (Some(Status::Ok), "x".to_owned()));
        let hinted =
            "x\n\n[You have made this call 2 times with the same result; a further one will be refused.]".to_owned();
        assert_eq!(text(&stack, nth_look(12)).await, (Some(Status::Ok), hinted));
        for n in [13, 14] {
            assert_eq!(text(&stack, nth_look(n)).await.0, Some(Status::LoopGuard));
        }
        assert_eq!(tool.seen().len(), 2);
        assert!(stack.run(Call::new(nth(&TestClock::new(), 15, "look", json!({})))).await.is_ok());
        assert_eq!(text(&stack, nth_look(16)).await.0, Some(Status::Ok), "something else was done in between");
    }

    #[tokio::test]
    async fn the_value_stays_what_it_was_when_a_hint_is_added() {
        let stack = echo_under(LoopGuard::default());
        stack.run(Call::new(nth_look(11))).await;
        let hinted = stack.run(Call::new(nth_look(12))).await;
        assert_eq!(hinted.settled().expect("settled").value.as_value(), &json!({ "path": "a" }));
    }

    #[tokio::test]
    async fn polling_with_a_changing_result_is_progress() {
        let tool = (0..10).fold(Scripted::new(), |tool, n| tool.then(Outcome::ok(json!({ "percent": n }))));
        let stack = Stack::over(tool).layer(LoopGuard::default()).build().expect("in order");
        for n in 11..21 {
            let (status, text) = text(&stack, nth_look(n)).await;
            assert!(status == Some(Status::Ok) && !text.contains("refused"));
        }
    }

    #[tokio::test]
    async fn the_same_error_over_and_over_stops_the_tool() {
        let fail = || Outcome::failed(ToolError::new("no such table"));
        let tool = (0..9).fold(Scripted::new(), |tool, _| tool.then(fail()));
        let stack = Stack::over(tool.clone()).layer(LoopGuard::default()).build().expect("in order");
        for n in 11..15_u64 {
            stack.run(Call::new(nth(&TestClock::new(), n.into(), "look", numbered(n)))).await;
        }
        assert_eq!(tool.seen().len(), 3, "the fourth was refused");
    }

    #[tokio::test]
    async fn sessions_are_watched_apart() {
        let stack = echo_under(LoopGuard::default());
        for n in 11..17_u128 {
            assert!(stack.run(Call::new(in_session(nth_look(n), 50 + n % 3))).await.is_ok());
        }
        assert_eq!(text(&stack, in_session(nth_look(17), 50)).await.0, Some(Status::LoopGuard));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn siblings_of_one_turn_count_once() {
        let stack = echo_under(LoopGuard::default());
        let sibling = |n| CallSeed { turn: nth_look(11).turn, ..nth_look(n) };
        let calls = (0..20).map(|n| tokio::spawn(stack.run(Call::new(sibling(100 + n)))));
        let outcomes = futures::future::try_join_all(calls).await.expect("no panic");
        assert!(outcomes.iter().all(Outcome::is_ok));
        assert_eq!(text(&stack, nth_look(12)).await.0, Some(Status::Ok), "this is the second time");
        assert_eq!(text(&stack, nth_look(13)).await.0, Some(Status::LoopGuard));
    }

    #[tokio::test]
    async fn a_rehearsal_is_judged_but_not_counted() {
        let stack = echo_under(LoopGuard::default());
        let rehearse = |n| CallSeed { rehearsal: true, ..nth_look(n) };
        for n in 11..20 {
            let (status, text) = text(&stack, rehearse(n)).await;
            assert!(status == Some(Status::DryRun) && !text.contains("refused"));
        }
        for n in 21..23 {
            assert!(stack.run(Call::new(nth_look(n))).await.is_ok());
        }
        assert_eq!(text(&stack, rehearse(23)).await.0, Some(Status::LoopGuard));
    }

    #[tokio::test]
    async fn a_call_that_comes_back_counts_once_and_is_not_refused() {
        run_twice(LoopGuard::default(), nth_look(11)).await.assert_replays();
        let tool = Scripted::new().then_ask();
        let stack = Stack::over(tool).layer(LoopGuard::default()).build().expect("in order");
        assert!(stack.run(Call::new(nth_look(11))).await.suspension().is_some());
        let again = CallSeed { generation: 1, attempts_before: 1, ..nth_look(11) };
        assert!(!text(&stack, again).await.1.contains("refused"), "the first time that it is over");
        stack.run(Call::new(nth_look(12))).await;
        assert!(stack.run(Call::new(CallSeed { generation: 1, ..nth_look(13) })).await.is_ok());
    }

    #[test]
    fn limits_that_make_no_sense_are_refused() {
        let defaults = LoopGuardOptions::default;
        for (options, key) in [
            (LoopGuardOptions { identical: 1, ..defaults() }, "identical"),
            (LoopGuardOptions { ping_pong: 3, ..defaults() }, "ping_pong"),
            (LoopGuardOptions { errors: 0, ..defaults() }, "errors"),
        ] {
            assert_eq!(LoopGuard::new(&options).expect_err("refused").key, key);
        }
    }
}
