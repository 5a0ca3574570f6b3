//! Leaves a tool alone for a while after it failed several times in a row.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Layer, LayerTraits, Next, Outcome, Status, Timestamp,
    ToolName,
};

use crate::{BadOption, Configurable, Parts, Span};

/// More tools in trouble than this are not told apart any further.
const MOST_TOOLS: usize = 10_000;

/// Answers for a tool that keeps failing, until it had time to recover.
///
/// After a number of failures in a row the circuit of that tool is open: calls are answered at once, and the model
/// reads until when and is pointed to other tools. Then a few probes are let through; the first that succeeds closes
/// the circuit, one that fails opens it again. What counts is whether the tool works: an error about the arguments is
/// an answer, a refusal or cancellation says nothing. The answer of an open circuit is not transient, so a `Retry`
/// around it does not wait for it.
///
/// ```
/// # use {toolgate_core::Stack, toolgate_layers::{CircuitBreaker, Retry}, toolgate_testkit::echo};
/// let stack = Stack::over(echo()).layer(Retry::default()).layer(CircuitBreaker::default()).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CircuitBreaker {
    options: CircuitBreakerOptions,
    circuits: Mutex<Circuits>,
}

/// When a circuit opens and how it closes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CircuitBreakerOptions {
    /// After how many failures in a row a tool is left alone.
    pub failure_threshold: u32,
    /// For how long.
    pub open_for: Span,
    /// How many calls may probe the tool at the same time afterwards.
    pub half_open_probes: u32,
}

impl Default for CircuitBreakerOptions {
    fn default() -> Self {
        Self {
            failure_threshold: 5,
            open_for: Span::secs(30),
            half_open_probes: 1,
        }
    }
}

/// The circuits of tools that have failed lately; a tool that works has none.
#[derive(Debug, Default)]
struct Circuits {
    by_tool: HashMap<ToolName, Circuit>,
    /// Tells one round of probes from the next.
    round: u64,
}

#[derive(Debug, Clone, Copy)]
struct Circuit {
    failures: u32,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed,
    Open { until: Timestamp },
    HalfOpen { probes: u32, round: u64 },
}

/// Under which terms a call was let through.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pass {
    Plain,
    Probe { round: u64 },
}

/// What an outcome says about the tool.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Health {
    Works,
    Fails,
    Unclear,
}

impl CircuitBreaker {
    /// Breaks circuits as `options` say.
    pub fn new(options: CircuitBreakerOptions) -> Result<Self, BadOption> {
        if options.failure_threshold == 0 {
            return Err(BadOption::new("failure_threshold", "has to be at least 1"));
        }
        if options.open_for.get() == Duration::ZERO {
            return Err(BadOption::new("open_for", "has to be longer than nothing"));
        }
        if options.half_open_probes == 0 {
            return Err(BadOption::new(
                "half_open_probes",
                "has to be at least 1, or an open circuit never closes",
            ));
        }
        Ok(Self {
            options,
            circuits: Mutex::default(),
        })
    }

    // Circuits are plain values that are replaced whole.
    fn circuits(&self) -> MutexGuard<'_, Circuits> {
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call through or answers it. With `look` nothing is changed.
    fn admit(&self, call: &Call, look: bool) -> Result<Pass, Outcome> {
        let circuits = &mut *self.circuits();
        let Some(circuit) = circuits.by_tool.get_mut(&call.tool) else {
            return Ok(Pass::Plain);
        };
        let pass = match circuit.state {
            State::Closed => return Ok(Pass::Plain),
            State::Open { until } if call.env().clock().now() < until => {
                return Err(unavailable(&call.tool, circuit.failures, Some(until)));
            }
            State::Open { .. } => (1, circuits.round + 1),
            State::HalfOpen { probes, round } if probes < self.options.half_open_probes => {
                (probes + 1, round)
            }
            State::HalfOpen { .. } => return Err(unavailable(&call.tool, circuit.failures, None)),
        };
        let (probes, round) = pass;
        if !look {
            circuits.round = circuits.round.max(round);
            circuit.state = State::HalfOpen { probes, round };
        }
        Ok(Pass::Probe { round })
    }

    /// Takes note of how a call went.
    fn report(&self, tool: &ToolName, pass: Pass, health: Health, now: Timestamp) {
        let circuits = &mut *self.circuits();
        if !circuits.by_tool.contains_key(tool) {
            if health != Health::Fails || circuits.by_tool.len() >= MOST_TOOLS {
                return;
            }
            circuits.by_tool.insert(
                tool.clone(),
                Circuit {
                    failures: 0,
                    state: State::Closed,
                },
            );
        }
        let Some(circuit) = circuits.by_tool.get_mut(tool) else {
            return;
        };
        let opened = State::Open {
            until: now.plus(self.options.open_for.get()),
        };
        match (circuit.state, pass, health) {
            (State::Closed, _, Health::Works) => drop(circuits.by_tool.remove(tool)),
            (State::Closed, _, Health::Fails) => {
                circuit.failures = circuit.failures.saturating_add(1);
                if circuit.failures >= self.options.failure_threshold {
                    circuit.state = opened;
                }
            }
            (State::HalfOpen { probes, round }, Pass::Probe { round: mine }, _)
                if round == mine =>
            {
                match health {
                    Health::Works => drop(circuits.by_tool.remove(tool)),
                    Health::Fails => {
                        *circuit = Circuit {
                            failures: circuit.failures.saturating_add(1),
                            state: opened,
                        };
                    }
                    Health::Unclear => {
                        circuit.state = State::HalfOpen {
                            probes: probes - 1,
                            round,
                        }
                    }
                }
            }
            // Calls that began before the circuit opened, or in an earlier round, have no say in it.
            (State::Closed | State::Open { .. } | State::HalfOpen { .. }, _, _) => {}
        }
    }
}

/// Reports how a call went, also if the call is dropped.
struct Report<'a> {
    breaker: &'a CircuitBreaker,
    call: &'a Call,
    pass: Pass,
    health: Health,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        // A plain call that says nothing changes nothing; a probe has to give its place back.
        if (self.pass, self.health) != (Pass::Plain, Health::Unclear) {
            self.breaker.report(
                &self.call.tool,
                self.pass,
                self.health,
                self.call.env().clock().now(),
            );
        }
    }
}

impl Layer for CircuitBreaker {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let known = |attempt| call.resumed().result(attempt).is_some();
        let pass = match self.admit(&call, call.is_rehearsal()) {
            // What has already run outside is not refused afterwards.
            Err(_) if known(call.attempt) => Pass::Plain,
            Err(refusal) => {
                next.because("the circuit is open");
                return refusal;
            }
            Ok(pass) => pass,
        };
        if call.is_rehearsal() {
            return next.run(call).await;
        }
        let mut report = Report {
            breaker: self,
            call: &call,
            pass,
            health: Health::Unclear,
        };
        if pass != Pass::Plain {
            next.because("probes whether the tool works again");
        }
        let outcome = next.run(call.clone()).await;
        // An attempt that is walked through again after a later one was counted when it happened.
        if !known(call.attempt + 1) {
            report.health = health(&outcome);
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Repeat
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).answering()
    }
}

fn health(outcome: &Outcome) -> Health {
    let Some(settled) = outcome.settled() else {
        return Health::Unclear;
    };
    match settled.status {
        Status::Ok if settled.cached => Health::Unclear,
        Status::Ok => Health::Works,
        Status::Timeout | Status::Exception | Status::OutcomeUnknown => Health::Fails,
        Status::ExecutorError => match settled.error.as_ref().map(|error| error.category) {
            // The tool is there and found fault with the call.
            Some(
                ErrorCategory::InvalidInput
                | ErrorCategory::NotFound
                | ErrorCategory::Permission
                | ErrorCategory::Conflict,
            ) => Health::Works,
            Some(ErrorCategory::Cancelled | ErrorCategory::Refused) => Health::Unclear,
            Some(_) | None => Health::Fails,
        },
        Status::ToolNotFound
        | Status::SchemaViolation
        | Status::Denied
        | Status::Expired
        | Status::Blocked
        | Status::OutOfScope
        | Status::RateLimited
        | Status::BudgetExceeded
        | Status::LoopGuard
        | Status::Cancelled
        | Status::Redacted
        | Status::DryRun
        | Status::LayerException => Health::Unclear,
    }
}

// The category is `Refused`: nothing failed now, and a `Retry` around this one must not wait for it.
fn unavailable(tool: &ToolName, failures: u32, until: Option<Timestamp>) -> Outcome {
    let until = until.map_or_else(
        || "while it is being probed".to_owned(),
        |until| format!("until {until}"),
    );
    let text = format!(
        "the tool {tool} is unavailable {until} after {failures} failures in a row; use another tool or try later"
    );
    Outcome::error(
        Status::ExecutorError,
        CallError::new(ErrorCategory::Refused, text),
    )
}

impl Configurable for CircuitBreaker {
    const NAME: &'static str = "circuit_breaker";
    const SUMMARY: &'static str =
        "Answers at once for a tool that keeps failing, until it had time to recover.";
    type Options = CircuitBreakerOptions;

    fn configure(options: CircuitBreakerOptions, _: &Parts) -> Result<Self, BadOption> {
        Self::new(options)
    }
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self::new(CircuitBreakerOptions::default()).expect("the defaults make sense")
    }
}

#[cfg(test)]
#[path = "circuit_breaker_tests.rs"]
mod tests;
