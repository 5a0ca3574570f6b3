//! Sees when a model goes round in circles.

use toolgate_core::{Digest, ToolName, TurnId};

/// How many different steps of one turn are told apart.
const MOST_SIBLINGS: usize = 64;

/// One call together with what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) tool: ToolName,
    pub(crate) arguments: Digest,
    /// Stands for status, value and text.
    pub(crate) outcome: u64,
    /// Stands for the error, if it was one.
    pub(crate) error: Option<u64>,
}

impl Step {
    fn is_call(&self, tool: &ToolName, arguments: Digest) -> bool {
        self.tool == *tool && self.arguments == arguments
    }

    fn fails_like(&self, other: &Self) -> bool {
        self.error.is_some() && self.tool == other.tool && self.error == other.error
    }
}

/// From how many on something is a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) identical: u32,
    pub(crate) ping_pong: u32,
    pub(crate) errors: u32,
}

/// A loop, with how often it went round so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loop {
    /// The same call with the same result.
    Identical(u32),
    /// Two calls in turn, each with the same result.
    PingPong(u32),
    /// The same error of the same tool.
    Errors(u32),
}

/// What one agent did lately. Only the last two steps and three numbers are kept, and the steps of the current turn.
#[derive(Debug, Default)]
pub(crate) struct History {
    last: Option<Step>,
    before_last: Option<Step>,
    identical: u32,
    alternating: u32,
    errors: u32,
    turn: Option<(TurnId, u32)>,
    siblings: Vec<Step>,
}

impl History {
    /// Whether making this call now would close a loop.
    pub(crate) fn closes(&self, tool: &ToolName, arguments: Digest, limits: Limits) -> Option<Loop> {
        let last = self.last.as_ref()?;
        let again = last.is_call(tool, arguments);
        if again && self.identical + 1 >= limits.identical {
            return Some(Loop::Identical(self.identical));
        }
        let back = self.before_last.as_ref().is_some_and(|step| step.is_call(tool, arguments));
        if back && !again && self.alternating + 1 >= limits.ping_pong {
            return Some(Loop::PingPong(self.alternating));
        }
        (last.tool == *tool && self.errors + 1 >= limits.errors).then_some(Loop::Errors(self.errors))
    }

    /// Takes note of a step of `turn`, and says if one more of the kind would close a loop.
    ///
    /// A model that makes the same call twice in one turn has not seen what came of the first: that counts once.
    pub(crate) fn record(&mut self, step: Step, turn: (TurnId, u32), limits: Limits) -> Option<Loop> {
        if self.turn != Some(turn) {
            (self.turn, self.siblings) = (Some(turn), Vec::new());
        }
        if self.siblings.contains(&step) {
            return None;
        }
        let same_failure = self.siblings.iter().any(|sibling| sibling.fails_like(&step));
        self.count(&step, same_failure);
        self.before_last = self.last.replace(step.clone());
        if self.siblings.len() < MOST_SIBLINGS {
            self.siblings.push(step);
        }
        self.near(limits)
    }

    fn count(&mut self, step: &Step, same_failure: bool) {
        let (again, back) = (self.last.as_ref() == Some(step), self.before_last.as_ref() == Some(step));
        self.identical = if again { self.identical.saturating_add(1) } else { 1 };
        self.alternating = match &self.last {
            None => 1,
            Some(_) if again => 1,
            Some(_) if back => self.alternating.saturating_add(1),
            Some(_) => 2,
        };
        self.errors = match (step.error, &self.last) {
            (None, _) => 0,
            (Some(_), Some(last)) if last.fails_like(step) && same_failure => self.errors,
            (Some(_), Some(last)) if last.fails_like(step) => self.errors.saturating_add(1),
            (Some(_), _) => 1,
        };
    }

    fn near(&self, limits: Limits) -> Option<Loop> {
        // Once is not a pattern, however low the limit.
        let near = |count: u32, limit: u32| count >= 2 && count + 1 >= limit;
        if near(self.identical, limits.identical) {
            return Some(Loop::Identical(self.identical));
        }
        if near(self.alternating, limits.ping_pong) {
            return Some(Loop::PingPong(self.alternating));
        }
        near(self.errors, limits.errors).then_some(Loop::Errors(self.errors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { identical: 3, ping_pong: 6, errors: 4 };

    fn turn(n: u128) -> (TurnId, u32) {
        (format!("{n:032x}").parse().expect("an id"), 0)
    }

    fn arguments(call: &str) -> Digest {
        Digest::of_bytes(call.as_bytes())
    }

    fn step(call: &str, outcome: u64) -> Step {
        Step { tool: "t".into(), arguments: arguments(call), outcome, error: None }
    }

    /// Makes calls in turns of their own; returns what is said after the last, and about making `then` next.
    fn after(steps: &[Step], then: &str) -> (Option<Loop>, Option<Loop>) {
        let mut history = History::default();
        let mut said = None;
        for (n, step) in (1..).zip(steps) {
            said = history.record(step.clone(), turn(n), LIMITS);
        }
        (said, history.closes(&"t".into(), arguments(then), LIMITS))
    }

    #[test]
    fn the_third_identical_step_in_a_row_is_a_loop() {
        assert_eq!(after(&[step("a", 1)], "a"), (None, None));
        assert_eq!(after(&[step("a", 1), step("a", 1)], "a"), (Some(Loop::Identical(2)), Some(Loop::Identical(2))));
        assert_eq!(after(&[step("a", 1), step("a", 1)], "b").1, None);
        assert_eq!(after(&[step("a", 1), step("b", 1), step("a", 1)], "a"), (None, None), "not in a row");
    }

    #[test]
    fn a_changing_result_is_progress() {
        let polls: Vec<Step> = (0..20).map(|n| step("a", n)).collect();
        assert_eq!(after(&polls, "a"), (None, None));
        let in_turn: Vec<Step> = (0..20).map(|n| step(if n % 2 == 0 { "a" } else { "b" }, n)).collect();
        assert_eq!(after(&in_turn, "a"), (None, None));
    }

    #[test]
    fn going_to_and_fro_is_a_loop() {
        let steps: Vec<Step> = ["a", "b", "a", "b", "a"].map(|call| step(call, 1)).to_vec();
        assert_eq!(after(&steps[..4], "a"), (None, None));
        assert_eq!(after(&steps, "b"), (Some(Loop::PingPong(5)), Some(Loop::PingPong(5))));
        assert_eq!(after(&steps, "c").1, None);
    }

    #[test]
    fn the_same_error_of_the_same_tool_is_a_loop_whatever_the_arguments() {
        let failing = |call: &str, error| Step { error: Some(error), ..step(call, error) };
        let three = [failing("a", 7), failing("b", 7), failing("c", 7)];
        assert_eq!(after(&three, "d"), (Some(Loop::Errors(3)), Some(Loop::Errors(3))));
        assert_eq!(after(&[failing("a", 7), failing("b", 8), failing("c", 7)], "d"), (None, None));
        assert_eq!(after(&[failing("a", 7), step("b", 1), failing("c", 7), failing("d", 7)], "e"), (None, None));
    }

    #[test]
    fn what_one_turn_asks_for_twice_counts_once() {
        let mut history = History::default();
        for _ in 0..10 {
            assert_eq!(history.record(step("a", 1), turn(1), LIMITS), None);
            assert_eq!(history.record(step("b", 1), turn(1), LIMITS), None);
        }
        assert_eq!(history.closes(&"t".into(), arguments("a"), LIMITS), None);
        let failing = |call: &str| Step { error: Some(7), ..step(call, 7) };
        for call in ["a", "b", "c", "d", "e"] {
            assert_eq!(history.record(failing(call), turn(2), LIMITS), None);
        }
    }
}
