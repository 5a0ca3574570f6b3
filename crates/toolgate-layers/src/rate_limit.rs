//! Caps how many calls are made, in total and in stretches of time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Band, Call, Json, Layer, LayerTraits, Next, Outcome, RecordKey, SessionId, Status, Timestamp,
    ToolName,
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
        let counts = Mutex::new(Counts {
            total: 0,
            windows: Vec::new(),
        });
        Self {
            tools: None,
            max_calls: Some(calls),
            limits: Vec::new(),
            counts,
        }
    }

    /// Limits as `options` say.
    pub fn new(options: RateLimitOptions) -> Result<Self, BadOption> {
        let RateLimitOptions {
            max_calls,
            limits,
            tools,
        } = options;
        if max_calls.is_none() && limits.is_empty() {
            return Err(BadOption::new(
                "max_calls",
                "has to be given if there are no `limits`",
            ));
        }
        for limit in &limits {
            if limit.period.get().is_zero() {
                return Err(BadOption::new(
                    "limits",
                    "a period has to be longer than nothing",
                ));
            }
            if limit.calls > MOST_CALLS {
                return Err(BadOption::new(
                    "limits",
                    format!("calls can be {MOST_CALLS} at most"),
                ));
            }
        }
        let tools = tools
            .as_deref()
            .map(|tools| ToolGlobs::read("tools", tools))
            .transpose()?;
        let windows = limits
            .iter()
            .map(|limit| Window::new(limit.calls as usize, limit.period.get()))
            .collect();
        Ok(Self {
            tools,
            max_calls,
            limits,
            counts: Mutex::new(Counts { total: 0, windows }),
        })
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
        Self {
            text: format!("the limit of {max} calls is used up; no further calls are made"),
            retry_at: None,
        }
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
                let text = format!(
                    "only {calls} calls{whose} are allowed per {period}; try again in {secs} s"
                );
                Self {
                    text,
                    retry_at: Some(now.plus(left)),
                }
            }
            Full::Always => Self {
                text: format!("no calls{whose} are allowed"),
                retry_at: None,
            },
            Full::Crowded => Self {
                text: "too many are calling at the moment; try again later".into(),
                retry_at: None,
            },
        }
    }

    fn into_outcome(self) -> Outcome {
        Outcome::refused(Status::RateLimited, self.text).noting(|notes| {
            notes
                .metadata
                .insert("rate_limit".into(), json!({ "retry_at": self.retry_at }));
        })
    }
}

impl Layer for RateLimit {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if self
            .tools
            .as_ref()
            .is_some_and(|tools| !tools.matches(&call.tool))
        {
            return next.run(call).await;
        }
        // A store that cannot tell makes the call count again, which never allows more than the limit.
        let counted = was_counted(&call, &next).await;
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

/// Whether the call was let through before. What has run outside was, whatever the store says, and is not refused now.
async fn was_counted(call: &Call, next: &Next) -> bool {
    if !call.resumed().results.is_empty() {
        return true;
    }
    if call.generation == 0 {
        return false;
    }
    let key = RecordKey::Layer(call.id, format!("{}/{COUNTED}", next.layer_name()).into());
    matches!(call.env().store().record(&key).await, Ok(Some(_)))
}

impl Configurable for RateLimit {
    const NAME: &'static str = "rate_limit";
    const SUMMARY: &'static str =
        "Refuses calls beyond a total or beyond so many per stretch of time.";
    type Options = RateLimitOptions;

    fn configure(options: RateLimitOptions, _: &Parts) -> Result<Self, BadOption> {
        Self::new(options)
    }
}

#[cfg(test)]
#[path = "rate_limit_tests.rs"]
mod tests;
