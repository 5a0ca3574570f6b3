//! Limits the number of calls, in total and per period.

mod uses;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Band, Call, CallError, CallId, ErrorCategory, Failure, Layer, LayerCapabilities, LayerName,
    Next, Outcome, Refusal, StoreError, Timestamp, note_keys,
};

use crate::{
    BadOption, Configurable, HumanDuration, Resources,
    config::tool_globs::ToolGlobs,
    decide::rate_limit::uses::{
        CallEntry, CountName, CountedCall, CountedUnit, OwnUses, QuotaFull,
    },
};

/// Maximum number of calls of one window. A larger window would take too long to count.
const MAX_WINDOW_CALLS: u32 = 100_000;

/// A layer that rejects calls beyond a total or beyond a number per period.
///
/// The model reads which limit was reached and when to retry. Each logical call counts once,
/// whether it runs or is rejected further in, however many attempts it takes and however often it
/// resumes from a suspension; one that resumes after the period counts in the period in which it
/// runs. A call has to have room under all limits and then counts for all of them.
///
/// Counts are records in the store, written with the start or the outcome of their call, so all
/// processes of a store share them. Concurrent calls of one process cannot exceed a limit. Calls that
/// several processes start in the same moment can: a process sees the calls of another one when they
/// have started. If the counts cannot be read, the call is not made.
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
    /// The names and globs of `tools`, sorted; a part of the names of counts.
    tool_names: Vec<String>,
    quotas: Vec<CallQuota>,
    own: Mutex<OwnUses>,
}

/// Limits on the number of calls. At least one is required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimitOptions {
    /// Maximum number of calls in total: of a session with its agents, over all its runs and in all
    /// processes, unless `max_calls_per` says otherwise. 0 allows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// The unit that `max_calls` counts. Other totals than that of a session last as long as the
    /// database.
    pub max_calls_per: TotalScope,
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

/// The unit of a total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TotalScope {
    /// Each session, together with those of its agents.
    #[default]
    Session,
    /// Each tool.
    Tool,
    /// Each principal, or each session if there is no principal.
    Principal,
    /// Nothing: all calls of the store count together.
    All,
}

impl From<TotalScope> for RateScope {
    fn from(total: TotalScope) -> Self {
        match total {
            TotalScope::Session => Self::Session,
            TotalScope::Tool => Self::Tool,
            TotalScope::Principal => Self::Principal,
            TotalScope::All => Self::All,
        }
    }
}

/// A number of calls, in a period or in total.
#[derive(Debug, Clone, Copy)]
struct CallQuota {
    calls: u64,
    period: Option<Duration>,
    per: RateScope,
}

/// A quota as it applies to one call: the name of its count, and the uses in the store.
struct CallCount<'a> {
    quota: &'a CallQuota,
    name: CountName,
    stored: Vec<(CallId, Timestamp)>,
}

impl RateLimit {
    /// Creates a layer that allows `calls` calls in total for each session.
    pub fn max_calls(calls: u64) -> Self {
        let options = RateLimitOptions {
            max_calls: Some(calls),
            ..RateLimitOptions::default()
        };
        Self::new(options).expect("a total needs no other option")
    }

    /// Creates a layer from its configuration.
    pub fn new(options: RateLimitOptions) -> Result<Self, BadOption> {
        let RateLimitOptions {
            max_calls,
            max_calls_per,
            limits,
            tools,
        } = options;
        if max_calls.is_none() && limits.is_empty() {
            return Err(BadOption::new(
                "max_calls",
                "is required if there are no `limits`",
            ));
        }
        limits.iter().try_for_each(CallRate::check)?;
        let total = max_calls.map(|calls| CallQuota {
            calls,
            period: None,
            per: max_calls_per.into(),
        });
        let windows = limits.iter().map(|limit| CallQuota {
            calls: limit.calls.into(),
            period: Some(limit.period.get()),
            per: limit.per,
        });
        let mut tool_names = tools.clone().unwrap_or_default();
        tool_names.sort();
        Ok(Self {
            tools: tools
                .as_deref()
                .map(|tools| ToolGlobs::parse("tools", tools))
                .transpose()?,
            tool_names,
            quotas: total.into_iter().chain(windows).collect(),
            own: Mutex::default(),
        })
    }

    // A poisoned lock is harmless: counts are checked first and then changed together.
    fn lock_uses(&self) -> MutexGuard<'_, OwnUses> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads what has been counted for the quotas of a call.
    async fn load_counts(
        &self,
        call: &Call,
        layer: &LayerName,
    ) -> Result<Vec<CallCount<'_>>, StoreError> {
        let mut counts = Vec::with_capacity(self.quotas.len());
        for quota in &self.quotas {
            let unit = CountedUnit::for_call(call, quota.per).await?;
            let name = CountName::new(layer, &self.tool_names, quota, &unit);
            let limit = usize::try_from(quota.calls).unwrap_or(usize::MAX);
            let stored = name.load_uses(call.env().store(), limit).await?;
            counts.push(CallCount {
                quota,
                name,
                stored,
            });
        }
        Ok(counts)
    }

    /// Checks whether there is room for a call and, unless it is a rehearsal, counts it.
    fn take_place(&self, call: &Call, counts: Vec<CallCount<'_>>) -> Result<(), RateRejection> {
        let now = call.env().clock().now();
        let entry = CallEntry {
            call: call.id,
            is_reentry: call.generation > 0 || call.attempts_before() > 0,
            now,
        };
        let mut own = self.lock_uses();
        let mut uncounted = Vec::new();
        let mut records = Vec::new();
        for count in counts {
            let CallCount {
                quota,
                name,
                stored,
            } = count;
            let counted = own
                .check_room(&name, quota, &stored, entry)
                .map_err(|full| RateRejection::new(quota, full, now))?;
            match counted {
                // Two limits of the same unit and period share their count.
                CountedCall::Not if uncounted.contains(&name) => {}
                CountedCall::Not => uncounted.push(name),
                // It was suspended, and what was handed over then may be gone with its turn. The same
                // record again: a call that has not started has not written it.
                CountedCall::Here(at) if call.attempts_before() == 0 => {
                    records.push(name.record(at, call.id));
                }
                CountedCall::Here(_) | CountedCall::InStore => {}
            }
        }
        // Counted only after every limit has room, under one lock: a rejected call takes no place
        // anywhere.
        records.extend(uncounted.iter().map(|name| name.record(now, call.id)));
        if !call.is_rehearsal() && !records.is_empty() {
            let is_handed_over = call.env().probe().write_with_call(call, records);
            for name in uncounted {
                own.count_call(name, call.id, now, is_handed_over);
            }
        }
        Ok(())
    }
}

impl CallRate {
    fn check(&self) -> Result<(), BadOption> {
        if self.period.get().is_zero() {
            return Err(BadOption::new(
                "limits",
                "a period must be longer than zero",
            ));
        }
        if self.calls > MAX_WINDOW_CALLS {
            return Err(BadOption::new(
                "limits",
                format!("calls can be {MAX_WINDOW_CALLS} at most"),
            ));
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
    fn new(quota: &CallQuota, full: QuotaFull, now: Timestamp) -> Self {
        let whose = match quota.per {
            RateScope::All => "",
            RateScope::Tool => " of this tool",
            RateScope::Session => " in this session",
            RateScope::Principal => " of this user",
        };
        let calls = quota.calls;
        let mut retry_at = None;
        let text = match (full, quota.period) {
            (QuotaFull::TooManyCounts, _) => "too many callers at the moment; retry later".into(),
            (QuotaFull::RetryAfter(left), Some(period)) => {
                retry_at = Some(now.plus(left));
                // Rounded up: a retry after the stated time must succeed.
                let secs = left.as_secs() + u64::from(left.subsec_nanos() > 0);
                let period = HumanDuration::from(period);
                format!("only {calls} calls{whose} are allowed per {period}; retry in {secs} s")
            }
            (_, None) if calls > 0 => {
                format!("the limit of {calls} calls{whose} is reached; no further calls are made")
            }
            (QuotaFull::Always | QuotaFull::RetryAfter(_), _) => {
                format!("no calls{whose} are allowed")
            }
        };
        Self { text, retry_at }
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
        // A call that has run outside was counted, and is not rejected now.
        if !call.resume_state().results.is_empty() {
            return next.run(call).await;
        }
        let counts = match self.load_counts(&call, next.layer_name()).await {
            Ok(counts) => counts,
            // Fails closed: it is unknown whether there is room.
            Err(error) => {
                let text = "the store could not be read, so the call was not made";
                let error = CallError::new(ErrorCategory::Internal, text)
                    .with_operator_detail(format!("rate_limit: {error}"));
                return Outcome::error(Failure::LayerException, error);
            }
        };
        if let Err(refusal) = self.take_place(&call, counts) {
            next.note_reason("too many calls");
            return refusal.into_outcome();
        }
        next.run(call).await
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
