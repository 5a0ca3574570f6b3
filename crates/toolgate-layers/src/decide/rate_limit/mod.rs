//! Limits the number of calls, in total and per period.

mod window;

use std::sync::{Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Band, Call, Json, Layer, LayerCapabilities, Next, Outcome, RecordKey, Refusal, SessionId,
    Timestamp, ToolName, note_keys,
};

use crate::{
    BadOption, Configurable, HumanDuration, Resources,
    config::tool_globs::ToolGlobs,
    decide::rate_limit::window::{SlidingWindow, WindowFull},
    identity::CallOwner,
};

/// Maximum number of calls of one window. A larger window would take too much memory.
const MAX_WINDOW_CALLS: u32 = 100_000;

/// A layer that rejects calls beyond a total or beyond a number per period.
///
/// The model reads which limit was reached and when to retry. Each logical call counts once,
/// whether it runs or is rejected further in, however many attempts it takes and however often it
/// resumes from a suspension. A call has to have room under all limits and then counts for all of
/// them; concurrent calls cannot exceed a limit. Counts are kept in this process; they are not
/// shared between processes.
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
    limits: Vec<CallRate>,
    counts: Mutex<CallCounts>,
}

/// Limits on the number of calls. At least one is required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimitOptions {
    /// Maximum number of calls in total, for the lifetime of this layer. 0 allows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// Maximum numbers of calls per period.
    pub limits: Vec<CallRate>,
    /// Names and globs of the tools that are limited; by default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

/// A number of calls within any period of a given length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallRate {
    /// Maximum number of calls. 0 allows none.
    pub calls: u32,
    /// Length of the period.
    pub period: HumanDuration,
    /// The unit that is counted separately.
    #[serde(default)]
    pub per: RateScope,
}

/// The unit that is counted separately.
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
    /// Each principal, or each session if there is no principal.
    Principal,
}

#[derive(Debug)]
struct CallCounts {
    total: u64,
    windows: Vec<SlidingWindow<CountKey>>,
}

/// The key under which a call is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum CountKey {
    All,
    Tool(ToolName),
    Session(SessionId),
    Owner(CallOwner),
}

impl CountKey {
    fn for_call(call: &Call, per: RateScope) -> Self {
        match per {
            RateScope::All => Self::All,
            RateScope::Tool => Self::Tool(call.tool.clone()),
            RateScope::Session => Self::Session(call.turn().session),
            RateScope::Principal => Self::Owner(CallOwner::for_call(call)),
        }
    }
}

impl RateLimit {
    /// Creates a layer that allows `calls` calls in total.
    pub fn max_calls(calls: u64) -> Self {
        let counts = Mutex::new(CallCounts {
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

    /// Creates a layer from its configuration.
    pub fn new(options: RateLimitOptions) -> Result<Self, BadOption> {
        let RateLimitOptions {
            max_calls,
            limits,
            tools,
        } = options;
        if max_calls.is_none() && limits.is_empty() {
            return Err(BadOption::new(
                "max_calls",
                "is required if there are no `limits`",
            ));
        }
        for limit in &limits {
            if limit.period.get().is_zero() {
                return Err(BadOption::new(
                    "limits",
                    "a period must be longer than zero",
                ));
            }
            if limit.calls > MAX_WINDOW_CALLS {
                return Err(BadOption::new(
                    "limits",
                    format!("calls can be {MAX_WINDOW_CALLS} at most"),
                ));
            }
        }
        let tools = tools
            .as_deref()
            .map(|tools| ToolGlobs::parse("tools", tools))
            .transpose()?;
        let windows = limits
            .iter()
            .map(|limit| SlidingWindow::new(limit.calls as usize, limit.period.get()))
            .collect();
        Ok(Self {
            tools,
            max_calls,
            limits,
            counts: Mutex::new(CallCounts { total: 0, windows }),
        })
    }

    // A poisoned lock is harmless: counts are checked first and then changed together.
    fn lock_counts(&self) -> MutexGuard<'_, CallCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether there is room for a call and, unless it is a rehearsal, counts it.
    fn take_place(&self, call: &Call) -> Result<(), RateRejection> {
        let now = call.env().clock().now();
        let counts = &mut *self.lock_counts();
        if let Some(max) = self.max_calls.filter(|max| counts.total >= *max) {
            return Err(RateRejection::total_reached(max));
        }
        for (limit, window) in self.limits.iter().zip(&mut counts.windows) {
            let full = window.check_room(&CountKey::for_call(call, limit.per), now);
            full.map_err(|full| RateRejection::window_full(limit, full, now))?;
        }
        // Counted only after every limit has room, under one lock: a rejected call takes no place
        // anywhere.
        if !call.is_rehearsal() {
            counts.total += 1;
            for (limit, window) in self.limits.iter().zip(&mut counts.windows) {
                window.count_call(&CountKey::for_call(call, limit.per), now);
            }
        }
        Ok(())
    }
}

/// The reason why there is no room for a call.
struct RateRejection {
    text: String,
    retry_at: Option<Timestamp>,
}

impl RateRejection {
    fn total_reached(max: u64) -> Self {
        Self {
            text: format!("the limit of {max} calls is reached; no further calls are made"),
            retry_at: None,
        }
    }

    fn window_full(limit: &CallRate, full: WindowFull, now: Timestamp) -> Self {
        let CallRate { calls, period, per } = limit;
        let whose = match per {
            RateScope::All => "",
            RateScope::Tool => " of this tool",
            RateScope::Session => " in this session",
            RateScope::Principal => " of this user",
        };
        match full {
            WindowFull::RetryAfter(left) => {
                // Rounded up: a retry after the stated time must succeed.
                let secs = left.as_secs() + u64::from(left.subsec_nanos() > 0);
                let text = format!(
                    "only {calls} calls{whose} are allowed per {period}; retry in {secs} s"
                );
                Self {
                    text,
                    retry_at: Some(now.plus(left)),
                }
            }
            WindowFull::Always => Self {
                text: format!("no calls{whose} are allowed"),
                retry_at: None,
            },
            WindowFull::TooManyKeys => Self {
                text: "too many callers at the moment; retry later".into(),
                retry_at: None,
            },
        }
    }

    fn into_outcome(self) -> Outcome {
        Outcome::refused(Refusal::RateLimited, self.text).with_notes(|notes| {
            notes.insert(note_keys::RATE_LIMIT, &json!({ "retry_at": self.retry_at }));
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
        // If the store cannot answer, the call counts again, which never allows more than the
        // limit.
        let counted = was_counted(&call, &next).await;
        if !counted && let Err(refusal) = self.take_place(&call) {
            next.note_reason("too many calls");
            return refusal.into_outcome();
        }
        let again = (call.clone(), next.clone());
        let outcome = next.run(call).await;
        let (call, next) = again;
        // Only a suspended call comes back, so only its count has to be stored.
        if outcome.suspension().is_some() && !counted && !call.is_rehearsal() {
            // If this cannot be recorded, the call counts again when it resumes.
            let _ = next
                .perform_once(&call, COUNTED_RECORD, async || Json::null())
                .await;
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME)
            .answering()
            .counting()
    }
}

const COUNTED_RECORD: &str = "counted";

/// Checks whether the call was counted before. A call that has run outside was, whatever the store
/// returns, and is not rejected now.
async fn was_counted(call: &Call, next: &Next) -> bool {
    if !call.resume_state().results.is_empty() {
        return true;
    }
    if call.generation == 0 {
        return false;
    }
    let key = RecordKey::Layer(
        call.id,
        format!("{}/{COUNTED_RECORD}", next.layer_name()).into(),
    );
    matches!(call.env().store().load_json(&key).await, Ok(Some(_)))
}

impl Configurable for RateLimit {
    const NAME: &'static str = "rate_limit";
    const SUMMARY: &'static str = "Rejects calls beyond a total or beyond a number per period.";
    type Options = RateLimitOptions;

    fn configure(options: RateLimitOptions, _: &Resources) -> Result<Self, BadOption> {
        Self::new(options)
    }
}

#[cfg(test)]
mod tests;
