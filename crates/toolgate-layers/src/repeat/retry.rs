//! Retries a call that failed with a transient error.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Band, Call, CallError, Layer, LayerCapabilities, Next, Outcome, Refusal, Status, note_keys,
    run_contained_sync,
};

use crate::{BadOption, Configurable, HumanDuration, Resources};

/// Retries a call with increasing delays while its error is transient by type.
///
/// Only tools that only read or declare themselves idempotent are retried; every other call runs
/// once, and the model reads its error unchanged. The model sees one answer: the first that is not
/// transient, or the last error. Each attempt has the same idempotency key, and a time limit
/// further in starts anew with each. The deciding layers are above and decide once.
///
/// ```
/// # use {toolgate_core::Stack, toolgate_layers::{Retry, RetryOptions}, toolgate_testkit::echo};
/// let retry = Retry::new(RetryOptions { max_attempts: 5, ..RetryOptions::default() })?;
/// let stack = Stack::over(echo()).layer(retry).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Retry {
    options: RetryOptions,
    retry_if: Option<RetryIf>,
    random: Mutex<fastrand::Rng>,
}

type RetryIf = Arc<dyn Fn(&CallError) -> bool + Send + Sync>;

/// The options of [`Retry`]: the number of attempts and the delays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryOptions {
    /// The maximum number of attempts, including the first.
    pub max_attempts: u32,
    /// The delay before the second attempt.
    pub initial_delay: HumanDuration,
    /// The longest delay, including jitter.
    pub max_delay: HumanDuration,
    /// The factor between a delay and the one before; at least 1.
    pub multiplier: f64,
    /// The share by which a delay varies at random in either direction, from 0 to 1.
    pub jitter: f64,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            initial_delay: HumanDuration::from_millis(200),
            max_delay: HumanDuration::from_secs(5),
            multiplier: 2.0,
            jitter: 0.2,
        }
    }
}

impl Retry {
    /// Creates the layer from its options.
    ///
    /// # Errors
    ///
    /// Rejects values that make no sense, such as 0 attempts.
    pub fn new(options: RetryOptions) -> Result<Self, BadOption> {
        if options.max_attempts == 0 {
            return Err(BadOption::new(
                "max_attempts",
                "has to be at least 1, which means no retry",
            ));
        }
        if options.initial_delay > options.max_delay {
            return Err(BadOption::new(
                "initial_delay",
                "cannot be longer than max_delay",
            ));
        }
        if !(options.multiplier.is_finite() && options.multiplier >= 1.0) {
            return Err(BadOption::new(
                "multiplier",
                "has to be a number of at least 1",
            ));
        }
        if !(0.0..=1.0).contains(&options.jitter) {
            return Err(BadOption::new("jitter", "has to be between 0 and 1"));
        }
        Ok(Self {
            options,
            retry_if: None,
            random: Mutex::new(fastrand::Rng::new()),
        })
    }

    /// Retries the failures and timeouts for which `test` returns true, instead of deciding by the
    /// type of the error.
    ///
    /// Tools that may not be repeated are still never retried. If the test panics, there is no
    /// retry.
    pub fn retry_if(mut self, test: impl Fn(&CallError) -> bool + Send + Sync + 'static) -> Self {
        self.retry_if = Some(Arc::new(test));
        self
    }

    /// Makes the jitter reproducible, for tests.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.random = Mutex::new(fastrand::Rng::with_seed(seed));
        self
    }

    /// Checks whether an outcome is worth a retry.
    fn is_retryable(&self, outcome: &Outcome) -> bool {
        let Some((status, error)) = outcome
            .settled()
            .and_then(|s| Some((s.status, s.error.as_ref()?)))
        else {
            return false;
        };
        match (&self.retry_if, status) {
            (None, Status::ExecutorError) => error.category.is_transient(),
            (Some(test), Status::ExecutorError | Status::Timeout) => {
                run_contained_sync(|| test(error)).unwrap_or(false)
            }
            (None | Some(_), _) => false,
        }
    }

    /// Returns the delay after attempt `attempt`.
    // Not `backon`: its jitter is an on-off switch that adds up to the whole delay on top of the
    // maximum, and it computes in `f32`. The options promise a share in either direction and a hard
    // maximum.
    fn delay_after(&self, attempt: u32) -> Duration {
        let most = self.options.max_delay.get().as_secs_f64();
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        // Not infinite: times a delay of zero that would be no number, which `min` turns into the
        // longest delay.
        let growth = self.options.multiplier.powi(exponent).min(f64::MAX);
        let plain = (self.options.initial_delay.get().as_secs_f64() * growth).min(most);
        let random = self
            .random
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .f64();
        let jittered = plain * (1.0 + self.options.jitter * (2.0 * random - 1.0));
        Duration::try_from_secs_f64(jittered)
            .unwrap_or(Duration::MAX)
            .min(self.options.max_delay.get())
    }

    /// Waits before the attempt that follows `attempt`, or returns the reason that there is none.
    async fn wait_for_next(&self, attempt: u32, call: &Call, next: &Next) -> Result<(), RetryStop> {
        if attempt >= self.options.max_attempts {
            return Err(RetryStop::Exhausted);
        }
        // A replay after a suspension: the result of the next attempt is known, so there is nothing
        // to wait for.
        if call.resume_state().result_of_attempt(attempt + 1).is_some() {
            return Ok(());
        }
        let delay = self.delay_after(attempt);
        let clock = call.env().clock();
        // Given up before the wait: afterwards the model would read about a deadline instead of the
        // error of the tool.
        if call
            .deadline
            .is_some_and(|deadline| clock.now().plus(delay) >= deadline)
        {
            return Err(RetryStop::NoTimeLeft);
        }
        next.note_reason(format!(
            "attempt {attempt} failed; the next one follows after {}",
            HumanDuration::from(delay)
        ));
        call.cancel
            .run_until_cancelled(clock.sleep(delay))
            .await
            .ok_or(RetryStop::Cancelled)
    }
}

/// The reason that there is no further attempt.
enum RetryStop {
    Exhausted,
    NoTimeLeft,
    Cancelled,
}

impl Layer for Retry {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        // A failed write may have taken effect before the error; repeating it could do it twice.
        // A rehearsal tells what the first attempt would answer.
        if !call.annotations().may_repeat() || call.is_rehearsal() {
            return next.run(call).await;
        }
        // Attempts before a suspension count: it is the same call.
        let first = call.attempt;
        let mut attempt = first;
        loop {
            let outcome = next.clone().run(call.clone()).await;
            if !self.is_retryable(&outcome) {
                if attempt > first {
                    next.note_reason(format!("settled at attempt {attempt}"));
                }
                return outcome;
            }
            // Boxed, so that the futures of calls without a retry stay small.
            match Box::pin(self.wait_for_next(attempt, &call, &next)).await {
                Ok(()) => attempt += 1,
                Err(RetryStop::Exhausted) => {
                    return mark_gave_up(
                        outcome,
                        attempt,
                        &next,
                        "the limit of attempts is reached",
                    );
                }
                Err(RetryStop::NoTimeLeft) => {
                    return mark_gave_up(
                        outcome,
                        attempt,
                        &next,
                        "no time is left for another attempt",
                    );
                }
                Err(RetryStop::Cancelled) => {
                    next.note_reason("cancelled while waiting for the next attempt");
                    let text = "the call failed and was cancelled before it was retried";
                    return Outcome::refused(Refusal::Cancelled, text);
                }
            }
        }
    }

    fn waits_for_outcome(&self, _: &Call) -> bool {
        true
    }

    fn wants_outcome(&self, call: &Call, outcome: &Outcome) -> bool {
        call.annotations().may_repeat() && self.is_retryable(outcome)
    }

    fn band(&self) -> Band {
        Band::Repeat
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME).repeating()
    }
}

/// Marks an outcome after the last attempt. The model reads how often the call was attempted, so that
/// it does not simply repeat it.
fn mark_gave_up(mut outcome: Outcome, attempts: u32, next: &Next, why: &'static str) -> Outcome {
    next.note_reason(why);
    let error = outcome.settled_mut();
    if let Some(error) = error.and_then(|settled| settled.error.as_mut())
        && attempts > 1
    {
        error.model = format!("{} (failed after {attempts} attempts)", error.model);
    }
    let note = json!({ "attempts": attempts, "gave_up": true });
    outcome.with_notes(|notes| notes.insert(note_keys::RETRY, &note))
}

impl Configurable for Retry {
    const NAME: &'static str = "retry";
    const SUMMARY: &'static str =
        "Retries calls that failed with a transient error, if the tool may be repeated.";
    type Options = RetryOptions;

    fn configure(options: RetryOptions, _: &Resources) -> Result<Self, BadOption> {
        Self::new(options)
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::new(RetryOptions::default()).expect("the defaults make sense")
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
