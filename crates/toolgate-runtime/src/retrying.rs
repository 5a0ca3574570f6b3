//! Asks a model again after failures that pass.

use std::{fmt, sync::Arc, time::Duration};

use futures::{StreamExt, stream, stream::BoxStream};
use serde::{Deserialize, Serialize};
use toolgate_core::{Clock, Delta, Model, ModelError, ModelName, ModelRequest, Routed};

/// How patient somebody is with a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Patience {
    /// How often it is asked at most.
    pub attempts: u32,
    /// How many milliseconds are waited at most before it is asked again.
    pub max_wait_ms: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 4,
            max_wait_ms: 60_000,
        }
    }
}

/// What is waited before the second attempt, where the provider does not say; each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// By which share a wait is longer at random, so that many who failed at once do not come back at once.
const JITTER: f64 = 0.2;

/// A model that is asked again after failures that pass: too many requests, an overloaded or failing provider, a
/// connection that broke.
///
/// If the provider says how long to wait, that is how long; if it is longer than patience lasts, the failure is passed
/// on at once. After the first piece of a reply nothing is asked again. Each new attempt is told as [`Delta::Routed`].
pub struct Retrying<M> {
    model: M,
    patience: Patience,
    clock: Arc<dyn Clock>,
}

impl<M: Model> Retrying<M> {
    /// Is as patient with `model` as said, on `clock`.
    pub fn new(model: M, patience: Patience, clock: Arc<dyn Clock>) -> Self {
        Self {
            model,
            patience,
            clock,
        }
    }

    /// How long to wait after attempt `attempt` failed, or nothing if the failure is final.
    fn wait(&self, error: &ModelError, attempt: u32) -> Option<Duration> {
        if !error.kind.is_passing() || attempt >= self.patience.attempts {
            return None;
        }
        let most = Duration::from_millis(self.patience.max_wait_ms);
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
        (asked <= most).then_some(asked)
    }
}

impl<M: Model> Model for Retrying<M> {
    fn name(&self) -> &ModelName {
        self.model.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let asking = Asking {
            retrying: self,
            request,
            attempt: 1,
            reply: Some(self.model.reply(request)),
            said: false,
            wait: None,
        };
        Box::pin(stream::unfold(asking, |mut asking| async move {
            Some((asking.next().await?, asking))
        }))
    }
}

impl<M: Model> fmt::Debug for Retrying<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retrying")
            .field("model", self.model.name())
            .field("patience", &self.patience)
            .finish()
    }
}

/// A request on its way.
struct Asking<'a, M> {
    retrying: &'a Retrying<M>,
    request: &'a ModelRequest,
    /// Which attempt this is, counted from 1.
    attempt: u32,
    /// The reply to it; nothing when it is over.
    reply: Option<BoxStream<'a, Result<Delta, ModelError>>>,
    /// Whether a piece of a reply was passed on.
    said: bool,
    /// How long to wait before the reply is asked for.
    wait: Option<Duration>,
}

impl<M: Model> Asking<'_, M> {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
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
            Some(Err(error)) => Some(self.failed(error)),
            None => None,
        }
    }

    /// Sees to it that the model is asked again, or passes the failure on.
    fn failed(&mut self, error: ModelError) -> Result<Delta, ModelError> {
        self.reply = None;
        let wait = if self.said {
            None
        } else {
            self.retrying.wait(&error, self.attempt)
        };
        let Some(wait) = wait else { return Err(error) };
        self.wait = Some(wait);
        let name = self.retrying.model.name().to_string();
        let reason = format!("asked again in {} ms after {error}", wait.as_millis());
        Ok(Delta::Routed(Routed {
            requested: name.clone(),
            selected: name,
            reason,
            weight: self.request.weight,
        }))
    }
}

#[cfg(test)]
#[path = "retrying_tests.rs"]
mod tests;
