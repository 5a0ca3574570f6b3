//! Retries a model after temporary failures.

use std::{fmt, sync::Arc, time::Duration};

use futures::{StreamExt, stream, stream::BoxStream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Clock, Delta, HumanDuration, Model, ModelError, ModelName, ModelRequest, ModelRetry,
};

/// Limits on retrying a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// The maximum number of requests; 1 sends no second one.
    pub attempts: u32,
    /// The maximum wait before a retry. A provider that asks for more is not asked again.
    pub max_wait: HumanDuration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            max_wait: HumanDuration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// Returns the policy that sends every request once.
    pub fn never() -> Self {
        Self {
            attempts: 1,
            ..Self::default()
        }
    }
}

/// The wait before the second attempt, unless the provider names one; each further wait is twice as
/// long.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The maximum random extension of a wait, so that many clients that failed at once do not come
/// back at once.
const JITTER: f64 = 0.2;

/// A model that is retried after temporary failures: too many requests, an overloaded or failing
/// provider, a lost connection.
///
/// If the provider names a wait, it is used; if it is longer than the policy allows, the failure is
/// returned at once. Each retry is reported as [`Delta::Retry`], which voids all pieces before it: a
/// reply that breaks off is requested again from its beginning.
pub struct RetryingModel<M> {
    model: M,
    patience: RetryPolicy,
    clock: Arc<dyn Clock>,
}

impl<M: Model> RetryingModel<M> {
    /// Creates a model that retries `model` according to `patience`, on `clock`.
    pub fn new(model: M, patience: RetryPolicy, clock: Arc<dyn Clock>) -> Self {
        Self {
            model,
            patience,
            clock,
        }
    }

    /// Returns how long to wait after attempt `attempt` failed, or nothing if the failure is final.
    /// `waited` is the sum of the waits before.
    fn retry_delay(&self, error: &ModelError, attempt: u32, waited: Duration) -> Option<Duration> {
        if !error.kind.is_transient() || attempt >= self.patience.attempts {
            return None;
        }
        let most = self.patience.max_wait.get();
        if let Some(asked) = error.retry_after {
            // An earlier retry than the provider asks for would only be rejected again.
            return (asked <= most).then_some(asked);
        }
        let doubled = FIRST_WAIT.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1)));
        let wait = doubled.min(most).mul_f64(1.0 + JITTER * fastrand::f64());
        let wait = wait.min(most);
        let Some(within) = error.retry_within else {
            return Some(wait);
        };
        let left = within.saturating_sub(waited);
        (!left.is_zero()).then(|| wait.min(left))
    }
}

impl<M: Model> Model for RetryingModel<M> {
    fn name(&self) -> &ModelName {
        self.model.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let asking = RetryRequest {
            retrying: self,
            request,
            attempt: 1,
            reply: Some(self.model.reply(request)),
            wait: None,
            waited: Duration::ZERO,
        };
        Box::pin(stream::unfold(asking, |mut asking| async move {
            Some((asking.next_delta().await?, asking))
        }))
    }
}

impl<M: Model> fmt::Debug for RetryingModel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryingModel")
            .field("model", self.model.name())
            .field("patience", &self.patience)
            .finish()
    }
}

/// A request under way.
struct RetryRequest<'a, M> {
    retrying: &'a RetryingModel<M>,
    request: &'a ModelRequest,
    /// The number of the attempt, counted from 1.
    attempt: u32,
    /// Its reply; nothing when it has ended.
    reply: Option<BoxStream<'a, Result<Delta, ModelError>>>,
    /// The wait before the next attempt.
    wait: Option<Duration>,
    /// The sum of all waits.
    waited: Duration,
}

impl<M: Model> RetryRequest<'_, M> {
    async fn next_delta(&mut self) -> Option<Result<Delta, ModelError>> {
        if let Some(wait) = self.wait.take() {
            self.retrying.clock.sleep(wait).await;
            self.attempt += 1;
            self.reply = Some(self.retrying.model.reply(self.request));
        }
        match self.reply.as_mut()?.next().await? {
            Ok(delta) => Some(Ok(delta)),
            Err(error) => Some(self.retry_or_fail(error)),
        }
    }

    /// Schedules a retry, or returns the failure.
    fn retry_or_fail(&mut self, error: ModelError) -> Result<Delta, ModelError> {
        self.reply = None;
        let delay = self.retrying.retry_delay(&error, self.attempt, self.waited);
        let Some(delay) = delay else {
            return Err(error);
        };
        self.wait = Some(delay);
        self.waited = self.waited.saturating_add(delay);
        Ok(Delta::Retry(ModelRetry { error, delay }))
    }
}

#[cfg(test)]
mod tests;
