//! Tries a call again when it failed in a way that passes.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Band, Call, CallError, Layer, LayerTraits, Next, Outcome, Status, contained_sync,
};

use crate::{BadOption, Configurable, Parts, Span};

/// Runs a call again, a little later each time, while its error is transient by type.
///
/// Only tools that only read or declare themselves idempotent are tried again; every other call is made once, and
/// the model reads its error as it is. The model sees one answer: the first that is not transient, or the last error.
/// Each attempt has the same idempotency key, and a time limit further in starts afresh with each. Whoever decides on
/// a call stands above and is asked once.
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

/// How often and how patiently a call is tried again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryOptions {
    /// How often a call is made at most, the first time included.
    pub max_attempts: u32,
    /// How long to wait before the second attempt.
    pub initial_delay: Span,
    /// The longest wait, jitter included.
    pub max_delay: Span,
    /// How much longer each wait is than the one before; at least 1.
    pub multiplier: f64,
    /// By which share a wait varies at random in either direction, from 0 to 1.
    pub jitter: f64,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            initial_delay: Span::millis(200),
            max_delay: Span::secs(5),
            multiplier: 2.0,
            jitter: 0.2,
        }
    }
}

impl Retry {
    /// Tries calls again as `options` say.
    pub fn new(options: RetryOptions) -> Result<Self, BadOption> {
        if options.max_attempts == 0 {
            return Err(BadOption::new(
                "max_attempts",
                "has to be at least 1, which makes each call once",
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

    /// Decides by `test` instead of by the type of the error which failures and time-outs are tried again.
    ///
    /// Tools that may not be repeated are still left alone. A test that panics has not asked for another attempt.
    pub fn retry_if(mut self, test: impl Fn(&CallError) -> bool + Send + Sync + 'static) -> Self {
        self.retry_if = Some(Arc::new(test));
        self
    }

    /// Makes the jitter the same in every run.
    pub fn seeded(mut self, seed: u64) -> Self {
        self.random = Mutex::new(fastrand::Rng::with_seed(seed));
        self
    }

    fn may_pass(&self, outcome: &Outcome) -> bool {
        let Some((status, error)) = outcome
            .settled()
            .and_then(|s| Some((s.status, s.error.as_ref()?)))
        else {
            return false;
        };
        match (&self.retry_if, status) {
            (None, Status::ExecutorError) => error.category.is_transient(),
            (Some(test), Status::ExecutorError | Status::Timeout) => {
                contained_sync(|| test(error)).unwrap_or(false)
            }
            (None | Some(_), _) => false,
        }
    }

    /// How long to wait after attempt `attempt`.
    // `backon` has jitter only as an on-off switch that adds up to the whole delay on top of its maximum, and counts
    // in `f32`; these lines keep both promises of the options.
    fn delay(&self, attempt: u32) -> Duration {
        let most = self.options.max_delay.get().as_secs_f64();
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
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

    /// Waits before the attempt that follows `attempt`, or says why there will be none.
    async fn wait(&self, attempt: u32, call: &Call, next: &Next) -> Result<(), Stop> {
        if attempt >= self.options.max_attempts {
            return Err(Stop::Exhausted);
        }
        // After a suspension, attempts whose results are known are walked through again: there is nothing to wait for.
        if call.resumed().result(attempt + 1).is_some() {
            return Ok(());
        }
        let (delay, clock) = (self.delay(attempt), call.env().clock());
        if call
            .deadline
            .is_some_and(|deadline| clock.now().plus(delay) >= deadline)
        {
            return Err(Stop::NoTimeLeft);
        }
        next.because(format!(
            "attempt {attempt} failed; the next one follows after {}",
            Span::from(delay)
        ));
        call.cancel
            .run_until_cancelled(clock.sleep(delay))
            .await
            .ok_or(Stop::Cancelled)
    }
}

/// Why there is no further attempt.
enum Stop {
    Exhausted,
    NoTimeLeft,
    Cancelled,
}

impl Layer for Retry {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if !call.annotations().may_repeat() {
            return next.run(call).await;
        }
        // Attempts from before a suspension count: it is the same call.
        let first = call.attempt;
        let mut attempt = first;
        loop {
            let outcome = next.clone().run(call.clone()).await;
            if !self.may_pass(&outcome) {
                if attempt > first {
                    next.because(format!("settled at attempt {attempt}"));
                }
                return outcome;
            }
            // Boxed, so that calls that need no second attempt have no room for it.
            match Box::pin(self.wait(attempt, &call, &next)).await {
                Ok(()) => attempt += 1,
                Err(Stop::Exhausted) => {
                    return gave_up(outcome, attempt, &next, "all attempts are used up");
                }
                Err(Stop::NoTimeLeft) => {
                    return gave_up(outcome, attempt, &next, "no time is left to wait");
                }
                Err(Stop::Cancelled) => {
                    next.because("cancelled while waiting for the next attempt");
                    let text = "the call failed and was cancelled before it was tried again";
                    return Outcome::refused(Status::Cancelled, text);
                }
            }
        }
    }

    fn band(&self) -> Band {
        Band::Repeat
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).repeating()
    }
}

fn gave_up(outcome: Outcome, attempts: u32, next: &Next, why: &'static str) -> Outcome {
    next.because(why);
    outcome.noting(|notes| {
        notes.metadata.insert(
            "retry".into(),
            json!({ "attempts": attempts, "gave_up": true }),
        );
    })
}

impl Configurable for Retry {
    const NAME: &'static str = "retry";
    const SUMMARY: &'static str =
        "Tries calls again that failed in a way that passes, if the tool may be repeated.";
    type Options = RetryOptions;

    fn configure(options: RetryOptions, _: &Parts) -> Result<Self, BadOption> {
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
#[path = "retry_tests.rs"]
mod tests;
