//! Retries a model after temporary failures.

use std::{fmt, sync::Arc, time::Duration};

use futures::{StreamExt, stream, stream::BoxStream};
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Clock, Delta, HumanDuration, Model, ModelError, ModelName, ModelRequest, RoutedModel,
};

/// Limits on retrying a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// The maximum number of attempts.
    pub attempts: u32,
    /// The maximum wait before a retry.
    pub max_wait: HumanDuration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 4,
            max_wait: HumanDuration::from_secs(60),
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
/// returned at once. After the first piece of a reply nothing is retried. Each retry is reported as
/// [`Delta::Routed`].
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
    fn retry_delay(&self, error: &ModelError, attempt: u32) -> Option<Duration> {
        if !error.kind.is_transient() || attempt >= self.patience.attempts {
            return None;
        }
        let most = self.patience.max_wait.get();
        let Some(asked) = error.retry_after else {
            let doubled =
                FIRST_WAIT.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1)));
            return Some(
                doubled
                    .min(most)
                    .mul_f64(1.0 + JITTER * fastrand::f64())
                    .min(most),
            );
        };
        // An earlier retry than the provider asks for would only be rejected again.
        (asked <= most).then_some(asked)
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
            said: false,
            wait: None,
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
    /// True if a piece of a reply was passed on.
    said: bool,
    /// The wait before the next attempt.
    wait: Option<Duration>,
}

impl<M: Model> RetryRequest<'_, M> {
    async fn next_delta(&mut self) -> Option<Result<Delta, ModelError>> {
        if let Some(wait) = self.wait.take() {
            self.retrying.clock.sleep(wait).await;
            self.attempt += 1;
            self.reply = Some(self.retrying.model.reply(self.request));
        }
        match self.reply.as_mut()?.next().await {
            Some(Ok(delta)) => {
                self.said |= !matches!(delta, Delta::Routed(_));
                Some(Ok(delta))
            }
            Some(Err(error)) => Some(self.retry_or_fail(error)),
            None => None,
        }
    }

    /// Schedules a retry, or returns the failure.
    fn retry_or_fail(&mut self, error: ModelError) -> Result<Delta, ModelError> {
        self.reply = None;
        // A retry after the first piece would give the caller two beginnings.
        let wait = if self.said {
            None
        } else {
            self.retrying.retry_delay(&error, self.attempt)
        };
        let Some(wait) = wait else { return Err(error) };
        self.wait = Some(wait);
        let name = self.retrying.model.name().to_string();
        let reason = format!("retry in {} ms after {error}", wait.as_millis());
        Ok(Delta::Routed(RoutedModel {
            requested: name.clone(),
            selected: name,
            reason,
            weight: self.request.weight,
        }))
    }
}

#[cfg(test)]
mod tests;
