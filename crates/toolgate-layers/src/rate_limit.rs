//! Caps how many calls are made, in total and in stretches of time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Band, Call, Json, Layer, LayerTraits, Next, Outcome, RecordKey, SessionId, Status, Timestamp, ToolName,
};

use crate::{
    BadOption, Configurable, Parts, Span,
    owner::Owner,
    rate_window::{Full, Window},
    tool_globs::ToolGlobs,
};

/// A window that counts more calls than this would take too much memory.
const MOST_CALLS: u32 = 100_000;

/// Refuses calls beyond a total or beyond so many per stretch of time.
///
/// The model reads which limit it has met and when to try again. Each logical call counts once, whether it runs or is
/// refused further in, however many attempts it takes and however often it comes back from a suspension. A call has
/// to have room under all limits and then counts for all of them; calls made at the same time cannot overshoot.
/// Counts live in this process; they are not shared between processes yet.
///
/// ```
/// # use {toolgate_core::{Stack, Status}, toolgate_layers::RateLimit, toolgate_testkit::{call, echo}};
/// # futures::executor::block_on(async {
/// let stack = Stack::over(echo()).layer(RateLimit::max_calls(1)).build()?;
/// assert!(stack.run(call("echo")).await.is_ok());
/// assert_eq!(stack.run(call("echo")).await.status(), Some(Status::RateLimited));
/// # Ok::<(), toolgate_core::StackError>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct RateLimit {
    tools: Option<ToolGlobs>,
    max_calls: Option<u64>,
    limits: Vec<CallsPer>,
    counts: Mutex<Counts>,
}

/// How many calls may be made. At least one limit has to be given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimitOptions {
    /// How many calls may be made in total, for as long as this layer lives. 0 allows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// How many calls may be made in a stretch of time.
    pub limits: Vec<CallsPer>,
    /// Names and globs of the tools that are limited; all if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

/// So many calls within any stretch of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallsPer {
    /// How many calls. 0 allows none.
    pub calls: u32,
    /// Within which time.
    pub period: Span,
    /// What is counted apart.
    #[serde(default)]
    pub per: RateScope,
}

/// What is counted apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateScope {
    /// Nothing: all calls count together.
    #[default]
    All,
    /// Each tool.
    Tool,
    /// Each session.
    Session,
    /// Each principal, or each session where nobody is named.
    Principal,
}

#[derive(Debug)]
struct Counts {
    total: u64,
    windows: Vec<Window<Counted>>,
}

/// Under what a call is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Counted {
    All,
    Tool(ToolName),
    Session(SessionId),
    Owner(Owner),
}

impl Counted {
    fn of(call: &Call, per: RateScope) -> Self {
        match per {
            RateScope::All => Self::All,
            RateScope::Tool => Self::Tool(call.tool.clone()),
            RateScope::Session => Self::Session(call.turn().session),
            RateScope::Principal => Self::Owner(Owner::of(call)),
        }
    }
}

impl RateLimit {
    /// Allows `calls` calls in total.
    pub fn max_calls(calls: u64) -> Self {
        let counts = Mutex::new(Counts { total: 0, windows: Vec::new() });
        Self { tools: None, max_calls: Some(calls), limits: Vec::new(), counts }
    }

    /// Limits as `options` say.
    pub fn new(options: RateLimitOptions) -> Result<Self, BadOption> {
        let RateLimitOptions { max_calls, limits, tools } = options;
        if max_calls.is_none() && limits.is_empty() {
            return Err(BadOption::new("max_calls", "or at least one of limits has to be given"));
        }
        for limit in &limits {
            if limit.period.get().is_zero() {
                return Err(BadOption::new("limits", "a period has to be longer than nothing"));
            }
            if limit.calls > MOST_CALLS {
                return Err(BadOption::new("limits", format!("calls can be {MOST_CALLS} at most")));
            }
        }
        let tools = tools.as_deref().map(|tools| ToolGlobs::read("tools", tools)).transpose()?;
        let windows = limits.iter().map(|limit| Window::new(limit.calls as usize, limit.period.get())).collect();
        Ok(Self { tools, max_calls, limits, counts: Mutex::new(Counts { total: 0, windows }) })
    }

    // Counts are checked first and then changed whole.
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whether there is room for a call and, unless it is a rehearsal, takes it.
    fn take(&self, call: &Call) -> Result<(), Refusal> {
        let now = call.env().clock().now();
        let counts = &mut *self.counts();
        if let Some(max) = self.max_calls.filter(|max| counts.total >= *max) {
            return Err(Refusal::total(max));
        }
        for (limit, window) in self.limits.iter().zip(&mut counts.windows) {
            let full = window.check(&Counted::of(call, limit.per), now);
            full.map_err(|full| Refusal::window(limit, full, now))?;
        }
        if !call.is_rehearsal() {
            counts.total += 1;
            for (limit, window) in self.limits.iter().zip(&mut counts.windows) {
                window.take(&Counted::of(call, limit.per), now);
            }
        }
        Ok(())
    }
}

/// Why there is no room for a call.
struct Refusal {
    text: String,
    retry_at: Option<Timestamp>,
}

impl Refusal {
    fn total(max: u64) -> Self {
        Self { text: format!("the limit of {max} calls is used up; no further calls are made"), retry_at: None }
    }

    fn window(limit: &CallsPer, full: Full, now: Timestamp) -> Self {
        let CallsPer { calls, period, per } = limit;
        let whose = match per {
            RateScope::All => "",
            RateScope::Tool => " of this tool",
            RateScope::Session => " in this session",
            RateScope::Principal => " of this user",
        };
        match full {
            Full::For(left) => {
                // Rounded up: trying again after the time it says has to help.
                let secs = left.as_secs() + u64::from(left.subsec_nanos() > 0);
                let text = format!("only {calls} calls{whose} are allowed per {period}; try again in {secs} s");
                Self { text, retry_at: Some(now.plus(left)) }
            }
            Full::Always => Self { text: format!("no calls{whose} are allowed"), retry_at: None },
            Full::Crowded => {
                Self { text: "too many are calling at the moment; try again later".into(), retry_at: None }
            }
        }
    }

    fn into_outcome(self) -> Outcome {
        Outcome::refused(Status::RateLimited, self.text).noting(|notes| {
            notes.metadata.insert("rate_limit".into(), json!({ "retry_at": self.retry_at }));
        })
    }
}

impl Layer for RateLimit {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if self.tools.as_ref().is_some_and(|tools| !tools.matches(&call.tool)) {
            return next.run(call).await;
        }
        // A store that cannot tell makes the call count again, which never allows more than the limit.
        let counted = call.generation > 0 && was_counted(&call, &next).await;
        if !counted && let Err(refusal) = self.take(&call) {
            next.because("too many calls");
            return refusal.into_outcome();
        }
        let again = (call.clone(), next.clone());
        let outcome = next.run(call).await;
        let (call, next) = again;
        if outcome.suspension().is_some() && !counted && !call.is_rehearsal() {
            // If this is not kept, the call counts again when it comes back.
            let _ = next.once(&call, COUNTED, async || Json::null()).await;
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

const COUNTED: &str = "counted";

async fn was_counted(call: &Call, next: &Next) -> bool {
    let key = RecordKey::Layer(call.id, format!("{}/{COUNTED}", next.layer_name()).into());
    matches!(call.env().store().record(&key).await, Ok(Some(_)))
}

impl Configurable for RateLimit {
    const NAME: &'static str = "rate_limit";
    const SUMMARY: &'static str = "Refuses calls beyond a total or beyond so many per stretch of time.";
    type Options = RateLimitOptions;

    fn configure(options: RateLimitOptions, _: &Parts) -> Result<Self, BadOption> {
        Self::new(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::try_out::*;
    use std::time::Duration;
    use toolgate_core::{CallSeed, Stack};
    use toolgate_testkit::{Scripted, TestClock, echo, echo_under, run_twice};

    fn per(per: RateScope, calls: u32) -> RateLimit {
        let limits = vec![CallsPer { calls, period: Span::secs(60), per }];
        RateLimit::new(RateLimitOptions { limits, ..Default::default() }).expect("fine")
    }

    async fn passes(stack: &Stack, seed: CallSeed) -> bool {
        let outcome = stack.run(Call::new(seed)).await;
        assert!(outcome.is_ok() || outcome.status() == Some(Status::RateLimited), "{outcome:?}");
        outcome.is_ok()
    }

    #[tokio::test]
    async fn a_total_of_zero_allows_nothing() {
        let clock = TestClock::new();
        assert!(!passes(&echo_under(RateLimit::max_calls(0)), nth(&clock, 11, "look", json!({}))).await);
        assert!(!passes(&echo_under(per(RateScope::All, 0)), nth(&clock, 11, "look", json!({}))).await);
    }

    #[tokio::test]
    async fn a_window_opens_again_when_it_said_it_would() {
        let (clock, stack) = (TestClock::new(), echo_under(per(RateScope::All, 2)));
        let call = |n| nth(&clock, n, "look", json!({}));
        assert!(passes(&stack, call(11)).await);
        clock.advance(Duration::from_millis(20_500));
        assert!(passes(&stack, call(12)).await);
        let refused = stack.run(Call::new(call(13))).await;
        let settled = refused.settled().expect("settled");
        assert_eq!(settled.model_text(), "only 2 calls are allowed per 1m; try again in 40 s");
        assert_eq!(
            settled.notes.fields().expect("noted").metadata["rate_limit"],
            json!({ "retry_at": "2026-01-01T00:01:00.000000Z" })
        );
        clock.advance(Duration::from_secs(40));
        assert!(passes(&stack, call(14)).await);
    }

    #[tokio::test]
    async fn tools_sessions_and_principals_are_counted_apart() {
        let clock = TestClock::new();
        let look = |n| nth(&clock, n, "look", json!({}));
        for (scope, other) in [
            (RateScope::Tool, nth(&clock, 13, "change", json!({}))),
            (RateScope::Session, in_session(look(13), 9)),
            (RateScope::Principal, by(look(13), "ann")),
            (RateScope::Principal, in_session(look(13), 9)),
        ] {
            let stack = echo_under(per(scope, 1));
            assert!(passes(&stack, look(11)).await && !passes(&stack, look(12)).await, "{scope:?}");
            assert!(passes(&stack, other.clone()).await, "{scope:?}");
            let all = echo_under(per(RateScope::All, 1));
            assert!(passes(&all, look(11)).await && !passes(&all, other).await);
        }
    }

    #[tokio::test]
    async fn tools_that_are_not_named_are_not_limited() {
        let options = RateLimitOptions { max_calls: Some(0), tools: Some(vec!["ch*".into()]), ..Default::default() };
        let stack = echo_under(RateLimit::new(options).expect("fine"));
        let clock = TestClock::new();
        assert!(passes(&stack, nth(&clock, 11, "look", json!({}))).await);
        assert!(!passes(&stack, nth(&clock, 12, "change", json!({}))).await);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn calls_made_at_the_same_time_cannot_overshoot() {
        let options = RateLimitOptions {
            max_calls: Some(12),
            limits: vec![CallsPer { calls: 10, period: Span::secs(60), per: RateScope::Session }],
            tools: None,
        };
        let (clock, stack) = (TestClock::new(), echo_under(RateLimit::new(options).expect("fine")));
        let calls = (0..100).map(|n| tokio::spawn(stack.run(Call::new(nth(&clock, 100 + n, "look", json!({}))))));
        let outcomes = futures::future::try_join_all(calls).await.expect("no panic");
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 10);
    }

    #[tokio::test]
    async fn a_call_refused_by_one_limit_counts_for_none() {
        let limits = vec![
            CallsPer { calls: 2, period: Span::secs(600), per: RateScope::All },
            CallsPer { calls: 1, period: Span::secs(60), per: RateScope::Tool },
        ];
        let limit = RateLimit::new(RateLimitOptions { limits, ..Default::default() }).expect("fine");
        let (clock, stack) = (TestClock::new(), echo_under(limit));
        assert!(passes(&stack, nth(&clock, 11, "look", json!({}))).await);
        assert!(!passes(&stack, nth(&clock, 12, "look", json!({}))).await);
        assert!(passes(&stack, nth(&clock, 13, "change", json!({}))).await);
    }

    #[tokio::test]
    async fn a_call_that_comes_back_counts_once() {
        let clock = TestClock::new();
        run_twice(RateLimit::max_calls(1), seed_at(&clock, "look", json!({}))).await.assert_replays();

        let tool = Scripted::new().then_ask();
        let stack = Stack::over(tool).layer(RateLimit::max_calls(2)).build().expect("in order");
        let seed = seed_at(&clock, "look", json!({}));
        assert!(stack.run(Call::new(seed.clone())).await.suspension().is_some());
        assert!(passes(&stack, CallSeed { generation: 1, attempts_before: 1, ..seed }).await);
        assert!(passes(&stack, nth(&clock, 11, "look", json!({}))).await, "the first call took one place, not two");
        assert!(!passes(&stack, nth(&clock, 12, "look", json!({}))).await);
    }

    #[tokio::test]
    async fn a_call_that_comes_back_without_having_been_counted_counts_now() {
        let (clock, stack) = (TestClock::new(), echo_under(RateLimit::max_calls(1)));
        assert!(passes(&stack, CallSeed { generation: 1, ..nth(&clock, 11, "look", json!({})) }).await);
        assert!(!passes(&stack, CallSeed { generation: 1, ..nth(&clock, 12, "look", json!({})) }).await);
    }

    #[tokio::test]
    async fn a_rehearsal_is_judged_but_not_counted() {
        let clock = TestClock::new();
        let stack = Stack::over(echo()).layer(RateLimit::max_calls(1)).build().expect("in order");
        let rehearse = || Call::new(CallSeed { rehearsal: true, ..seed_at(&clock, "look", json!({})) });
        for _ in 0..3 {
            assert_eq!(stack.run(rehearse()).await.status(), Some(Status::DryRun));
        }
        assert!(passes(&stack, nth(&clock, 11, "look", json!({}))).await);
        assert_eq!(stack.run(rehearse()).await.status(), Some(Status::RateLimited));
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let window = |calls, secs| vec![CallsPer { calls, period: Span::secs(secs), per: RateScope::All }];
        for options in [
            RateLimitOptions::default(),
            RateLimitOptions { limits: window(1, 0), ..Default::default() },
            RateLimitOptions { limits: window(MOST_CALLS + 1, 1), ..Default::default() },
            RateLimitOptions { max_calls: Some(1), tools: Some(vec!["[".into()]), ..Default::default() },
        ] {
            assert!(RateLimit::new(options).is_err());
        }
        let read = serde_json::from_str::<RateLimitOptions>;
        assert!(read(r#"{ "limits": [{ "calls": 5, "period": "1m", "per": "tool" }] }"#).is_ok());
        assert!(read(r#"{ "limits": [{ "calls": 5, "period": "1m", "per": "tools" }] }"#).is_err());
    }
}
