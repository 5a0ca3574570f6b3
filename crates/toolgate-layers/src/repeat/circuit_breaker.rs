//! Stops calling a tool for a while after it failed several times in a row.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Failure, Layer, LayerCapabilities, Next, Outcome,
    Principal, Status, Timestamp, ToolName,
};

use crate::{BadOption, Configurable, HumanDuration, Resources};

/// The most circuits of failing tools that are tracked. Further ones never open.
const MAX_CIRCUITS: usize = 10_000;

/// Answers for a tool that keeps failing, until it has had time to recover.
///
/// After a number of failures in a row, the circuit of that tool is open: calls are answered at
/// once, and the model reads until when and that it should use other tools. Then a few probes are
/// let through. The first success closes the circuit, a failure opens it again.
///
/// Only the health of the tool counts: transient errors, timeouts and panics are failures, one per
/// call, however many attempts it made. An error about the arguments or about a thing that does not
/// exist proves that the tool works; any other error that it reports, and a blocked or cancelled
/// call, proves nothing. The answer of an open circuit is not transient, so a `Retry` around it does
/// not wait for it.
///
/// A circuit belongs to a tool and is shared by all who call it, because a service that is down is
/// down for all. With [`CircuitScope::Principal`] each principal has its own, for tools that work
/// with the credentials of the user.
///
/// ```
/// # use {toolgate_core::Stack, toolgate_layers::{CircuitBreaker, Retry}, toolgate_testkit::echo};
/// let stack = Stack::over(echo()).layer(Retry::default()).layer(CircuitBreaker::default()).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CircuitBreaker {
    options: CircuitBreakerOptions,
    circuits: Mutex<CircuitMap>,
}

/// The options of [`CircuitBreaker`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CircuitBreakerOptions {
    /// The number of failures in a row that opens the circuit.
    pub failure_threshold: u32,
    /// The time the circuit stays open.
    pub open_for: HumanDuration,
    /// The number of calls that may probe the tool at the same time afterwards.
    pub half_open_probes: u32,
    /// Whose calls share a circuit.
    pub per: CircuitScope,
}

/// Whose calls share a circuit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CircuitScope {
    /// All calls of a tool.
    #[default]
    Tool,
    /// The calls of a tool on behalf of one principal; those without one share a circuit.
    Principal,
}

impl Default for CircuitBreakerOptions {
    fn default() -> Self {
        Self {
            failure_threshold: 5,
            open_for: HumanDuration::from_secs(30),
            half_open_probes: 1,
            per: CircuitScope::Tool,
        }
    }
}

/// The circuits of tools that have failed recently; a working tool has none.
#[derive(Debug, Default)]
struct CircuitMap {
    by_key: HashMap<CircuitKey, ToolCircuit>,
    /// The number of the latest series of probes, so that late reports of an earlier one are
    /// ignored.
    series: u64,
}

/// The calls that share a circuit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CircuitKey {
    tool: ToolName,
    /// The principal, if each has its own circuit.
    principal: Option<Principal>,
}

/// The circuit of one tool.
#[derive(Debug, Clone, Copy)]
struct ToolCircuit {
    failures: u32,
    state: CircuitState,
}

/// The state of a circuit.
#[derive(Debug, Clone, Copy)]
enum CircuitState {
    Closed,
    Open { until: Timestamp },
    HalfOpen { probes: u32, series: u64 },
}

/// The terms under which a call was let through.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CallAdmission {
    Normal,
    Probe { series: u64 },
}

/// The health of a tool, as an outcome shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ToolHealth {
    Works,
    Fails,
    Unclear,
}

impl CircuitBreaker {
    /// Creates the layer from its options.
    ///
    /// # Errors
    ///
    /// Rejects values of zero.
    pub fn new(options: CircuitBreakerOptions) -> Result<Self, BadOption> {
        if options.failure_threshold == 0 {
            return Err(BadOption::new("failure_threshold", "has to be at least 1"));
        }
        if options.open_for.get() == Duration::ZERO {
            return Err(BadOption::new("open_for", "has to be longer than 0s"));
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

    // A poisoned lock is usable: circuits are plain values that are replaced as a whole.
    fn lock_circuits(&self) -> MutexGuard<'_, CircuitMap> {
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key_of(&self, call: &Call) -> CircuitKey {
        let principal = match self.options.per {
            CircuitScope::Tool => None,
            CircuitScope::Principal => call.turn().principal.clone(),
        };
        CircuitKey {
            tool: call.tool.clone(),
            principal,
        }
    }

    /// Checks whether a call of the same circuit has failed recently.
    fn has_circuit(&self, call: &Call) -> bool {
        let circuits = self.lock_circuits();
        // Almost always: no tool fails, and no key is needed.
        !circuits.by_key.is_empty() && circuits.by_key.contains_key(&self.key_of(call))
    }

    /// Lets a call through or answers it. With `look`, the state does not change.
    fn admit_call(&self, call: &Call, look: bool) -> Result<CallAdmission, Outcome> {
        let circuits = &mut *self.lock_circuits();
        // Almost always: no tool fails, and no key is needed.
        if circuits.by_key.is_empty() {
            return Ok(CallAdmission::Normal);
        }
        let Some(circuit) = circuits.by_key.get_mut(&self.key_of(call)) else {
            return Ok(CallAdmission::Normal);
        };
        let pass = match circuit.state {
            CircuitState::Closed => return Ok(CallAdmission::Normal),
            CircuitState::Open { until } if call.env().clock().now() < until => {
                return Err(unavailable_outcome(
                    &call.tool,
                    circuit.failures,
                    Some(until),
                ));
            }
            // The time is over: this call is the first probe of a new series.
            CircuitState::Open { .. } => (1, circuits.series + 1),
            CircuitState::HalfOpen { probes, series } if probes < self.options.half_open_probes => {
                (probes + 1, series)
            }
            CircuitState::HalfOpen { .. } => {
                return Err(unavailable_outcome(&call.tool, circuit.failures, None));
            }
        };
        let (probes, series) = pass;
        if !look {
            // Monotonic over all tools, so that a series number is never reused for a tool that
            // failed again.
            circuits.series = circuits.series.max(series);
            circuit.state = CircuitState::HalfOpen { probes, series };
        }
        Ok(CallAdmission::Probe { series })
    }

    /// Updates the circuit after a call.
    fn report_health(
        &self,
        key: CircuitKey,
        pass: CallAdmission,
        health: ToolHealth,
        now: Timestamp,
    ) {
        let circuits = &mut *self.lock_circuits();
        if !circuits.by_key.contains_key(&key) {
            if health != ToolHealth::Fails || circuits.by_key.len() >= MAX_CIRCUITS {
                return;
            }
            circuits.by_key.insert(
                key.clone(),
                ToolCircuit {
                    failures: 0,
                    state: CircuitState::Closed,
                },
            );
        }
        let Some(circuit) = circuits.by_key.get_mut(&key) else {
            return;
        };
        let opened = CircuitState::Open {
            until: now.plus(self.options.open_for.get()),
        };
        match (circuit.state, pass, health) {
            // Failures have to be in a row, so a success forgets them.
            (CircuitState::Closed, _, ToolHealth::Works) => drop(circuits.by_key.remove(&key)),
            (CircuitState::Closed, _, ToolHealth::Fails) => {
                circuit.failures = circuit.failures.saturating_add(1);
                if circuit.failures >= self.options.failure_threshold {
                    circuit.state = opened;
                }
            }
            (
                CircuitState::HalfOpen { probes, series },
                CallAdmission::Probe { series: mine },
                _,
            ) if series == mine => match health {
                ToolHealth::Works => drop(circuits.by_key.remove(&key)),
                ToolHealth::Fails => {
                    *circuit = ToolCircuit {
                        failures: circuit.failures.saturating_add(1),
                        state: opened,
                    };
                }
                ToolHealth::Unclear => {
                    circuit.state = CircuitState::HalfOpen {
                        probes: probes - 1,
                        series,
                    }
                }
            },
            // Calls that began before the circuit opened, or in an earlier series of probes, are
            // outdated.
            (
                CircuitState::Closed | CircuitState::Open { .. } | CircuitState::HalfOpen { .. },
                _,
                _,
            ) => {}
        }
    }
}

/// A guard that reports the health after a call, even if the call is dropped.
struct HealthReport<'a> {
    breaker: &'a CircuitBreaker,
    call: &'a Call,
    pass: CallAdmission,
    health: ToolHealth,
}

impl Drop for HealthReport<'_> {
    fn drop(&mut self) {
        // A plain call without a finding changes nothing; a probe has to free its slot, or the
        // circuit stays half-open.
        if (self.pass, self.health) != (CallAdmission::Normal, ToolHealth::Unclear) {
            self.breaker.report_health(
                self.breaker.key_of(self.call),
                self.pass,
                self.health,
                self.call.env().clock().now(),
            );
        }
    }
}

impl Layer for CircuitBreaker {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let known = |attempt| call.resume_state().result_of_attempt(attempt).is_some();
        // A call that the layer was woken for has run already, and counts as a plain one.
        let admitted = if next.has_outcome() {
            Ok(CallAdmission::Normal)
        } else {
            self.admit_call(&call, call.is_rehearsal())
        };
        let pass = match admitted {
            // An external result exists already: answering in its place would discard work that was
            // done.
            Err(_) if known(call.attempt) => CallAdmission::Normal,
            Err(refusal) => {
                next.note_reason("the circuit is open");
                return refusal;
            }
            Ok(pass) => pass,
        };
        // A rehearsal runs no tool, so its outcome must not count.
        if call.is_rehearsal() {
            return next.run(call).await;
        }
        let mut report = HealthReport {
            breaker: self,
            call: &call,
            pass,
            health: ToolHealth::Unclear,
        };
        if pass != CallAdmission::Normal {
            next.note_reason("probes whether the tool works again");
        }
        let outcome = next.run(call.clone()).await;
        // A replayed attempt that a later one followed was counted when it happened.
        if !known(call.attempt + 1) {
            report.health = tool_health(&outcome);
        }
        // The failure of the first attempt has counted for the call.
        if report.health == ToolHealth::Fails && pass == CallAdmission::Normal && call.attempt > 1 {
            report.health = ToolHealth::Unclear;
        }
        outcome
    }

    fn waits_for_outcome(&self, call: &Call) -> bool {
        !self.has_circuit(call)
    }

    fn wants_outcome(&self, call: &Call, outcome: &Outcome) -> bool {
        match tool_health(outcome) {
            ToolHealth::Fails => true,
            // Another call may have failed meanwhile: a success ends its series.
            ToolHealth::Works => self.has_circuit(call),
            ToolHealth::Unclear => false,
        }
    }

    fn band(&self) -> Band {
        Band::Repeat
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME)
            .answering()
            .breaking()
    }
}

/// Returns the health of the tool, as the outcome shows it.
fn tool_health(outcome: &Outcome) -> ToolHealth {
    let Some(settled) = outcome.settled() else {
        return ToolHealth::Unclear;
    };
    match settled.status {
        // A cached result says nothing about the tool, which did not run.
        Status::Ok if settled.cached => ToolHealth::Unclear,
        Status::Ok => ToolHealth::Works,
        Status::Timeout | Status::Exception | Status::OutcomeUnknown => ToolHealth::Fails,
        Status::ExecutorError => match settled.error.as_ref().map(|error| error.category) {
            // The tool works and rejected the call.
            Some(
                ErrorCategory::InvalidInput
                | ErrorCategory::NotFound
                | ErrorCategory::Permission
                | ErrorCategory::Conflict,
            ) => ToolHealth::Works,
            Some(category) if category.is_transient() => ToolHealth::Fails,
            Some(ErrorCategory::Timeout | ErrorCategory::Panic) => ToolHealth::Fails,
            // Most errors that tools report are about one call, such as an order that is not there,
            // and say nothing about the next one.
            Some(_) | None => ToolHealth::Unclear,
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
        | Status::LayerException => ToolHealth::Unclear,
    }
}

/// Returns the outcome of an open circuit.
// The category is `Refused`, not a transient one: nothing failed now, and a `Retry` outside must
// not wait for it.
fn unavailable_outcome(tool: &ToolName, failures: u32, until: Option<Timestamp>) -> Outcome {
    let until = until.map_or_else(
        || "while it is being probed".to_owned(),
        |until| format!("until {until}"),
    );
    let text = format!(
        "the tool {tool} is unavailable {until} after {failures} failures in a row; use another tool or retry later"
    );
    Outcome::error(
        Failure::ExecutorError,
        CallError::new(ErrorCategory::Refused, text),
    )
}

impl Configurable for CircuitBreaker {
    const NAME: &'static str = "circuit_breaker";
    const SUMMARY: &'static str =
        "Answers at once for a tool that keeps failing, until it has had time to recover.";
    type Options = CircuitBreakerOptions;

    fn configure(options: CircuitBreakerOptions, _: &Resources) -> Result<Self, BadOption> {
        Self::new(options)
    }
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self::new(CircuitBreakerOptions::default()).expect("the defaults make sense")
    }
}

#[cfg(test)]
mod tests;
