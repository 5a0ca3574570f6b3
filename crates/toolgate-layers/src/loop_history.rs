//! Sees when a model goes round in circles.

use std::collections::VecDeque;

use toolgate_core::{Digest, ToolName, TurnId};

/// How many different steps of one turn are told apart.
const MOST_SIBLINGS: usize = 64;

/// How many different arguments that failed alike are kept, the newest.
const MOST_FAILED: usize = 64;

/// One message of the model: a turn and which round of the loop it is.
pub(crate) type Round = (TurnId, u32);

/// One call together with what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) tool: ToolName,
    pub(crate) arguments: Digest,
    /// Stands for status, value and text.
    pub(crate) outcome: u64,
    /// Stands for the error, if the call went wrong. A call that was refused did not.
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

/// What one agent did lately, since it was last given something to do. Only the last two steps and three numbers are
/// kept, the arguments that failed alike, and the steps of the current round.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The round that was last begun.
    begun: Option<Round>,
    last: Option<Step>,
    before_last: Option<Step>,
    identical: u32,
    alternating: u32,
    errors: u32,
    /// With which arguments the last `errors` steps failed.
    failed: VecDeque<Digest>,
    /// The round of the last step.
    round: Option<Round>,
    siblings: Vec<Step>,
}

impl History {
    /// Whether a call of this round starts something new: the rounds are counted from 0 again, so somebody has given
    /// the agent something to do. To do again what was done for an earlier message is not to go round in circles.
    pub(crate) fn starts_over(&self, round: Round) -> bool {
        self.begun
            .is_some_and(|begun| begun != round && (round.1 == 0 || round.1 < begun.1))
    }

    /// Takes note that a call of this round is made, and forgets what was before if it starts something new.
    pub(crate) fn begin(&mut self, round: Round) {
        if self.starts_over(round) {
            *self = Self::default();
        }
        self.begun = Some(round);
    }

    /// Whether making this call now would close a loop.
    pub(crate) fn closes(
        &self,
        tool: &ToolName,
        arguments: Digest,
        limits: Limits,
    ) -> Option<Loop> {
        let last = self.last.as_ref()?;
        let again = last.is_call(tool, arguments);
        if again && self.identical + 1 >= limits.identical {
            return Some(Loop::Identical(self.identical));
        }
        let back = self
            .before_last
            .as_ref()
            .is_some_and(|step| step.is_call(tool, arguments));
        if back && !again && self.alternating + 1 >= limits.ping_pong {
            return Some(Loop::PingPong(self.alternating));
        }
        // Other arguments may be what it takes; these are known not to be.
        let failed = last.tool == *tool && self.failed.contains(&arguments);
        (failed && self.errors + 1 >= limits.errors).then_some(Loop::Errors(self.errors))
    }

    /// Takes note of a step of `round`, and says if one more of the kind would close a loop.
    ///
    /// A model that makes the same call twice in one round has not seen what came of the first: that counts once.
    pub(crate) fn record(&mut self, step: Step, round: Round, limits: Limits) -> Option<Loop> {
        if self.round != Some(round) {
            self.round = Some(round);
            self.siblings.clear();
        }
        if self.siblings.contains(&step) {
            return None;
        }
        let same_failure = self
            .siblings
            .iter()
            .any(|sibling| sibling.fails_like(&step));
        self.count(&step, same_failure);
        self.before_last = self.last.replace(step.clone());
        if self.siblings.len() < MOST_SIBLINGS {
            self.siblings.push(step);
        }
        self.near(limits)
    }

    fn count(&mut self, step: &Step, same_failure: bool) {
        let (again, back) = (
            self.last.as_ref() == Some(step),
            self.before_last.as_ref() == Some(step),
        );
        self.identical = if again {
            self.identical.saturating_add(1)
        } else {
            1
        };
        self.alternating = match &self.last {
            None => 1,
            Some(_) if again => 1,
            Some(_) if back => self.alternating.saturating_add(1),
            Some(_) => 2,
        };
        let alike = self.last.as_ref().is_some_and(|last| last.fails_like(step));
        self.errors = match step.error {
            None => 0,
            Some(_) if alike && same_failure => self.errors,
            Some(_) if alike => self.errors.saturating_add(1),
            Some(_) => 1,
        };
        self.keep_failed(step, alike);
    }

    fn keep_failed(&mut self, step: &Step, alike: bool) {
        if !alike {
            self.failed.clear();
        }
        if step.error.is_some() && !self.failed.contains(&step.arguments) {
            if self.failed.len() == MOST_FAILED {
                self.failed.pop_front();
            }
            self.failed.push_back(step.arguments);
        }
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

    const LIMITS: Limits = Limits {
        identical: 3,
        ping_pong: 6,
        errors: 4,
    };

    /// Message number `n` of a model that was given one thing to do.
    fn round(n: u32) -> Round {
        (format!("{n:032x}").parse().expect("an id"), n)
    }

    fn arguments(call: &str) -> Digest {
        Digest::of_bytes(call.as_bytes())
    }

    fn step(call: &str, outcome: u64) -> Step {
        Step {
            tool: "t".into(),
            arguments: arguments(call),
            outcome,
            error: None,
        }
    }

    /// Makes calls in rounds of their own; returns what is said after the last, and about making `then` next.
    fn after(steps: &[Step], then: &str) -> (Option<Loop>, Option<Loop>) {
        let mut history = History::default();
        let mut said = None;
        for (n, step) in (1..).zip(steps) {
            said = history.record(step.clone(), round(n), LIMITS);
        }
        (said, history.closes(&"t".into(), arguments(then), LIMITS))
    }

    #[test]
    fn the_third_identical_step_in_a_row_is_a_loop() {
        assert_eq!(after(&[step("a", 1)], "a"), (None, None));
        assert_eq!(
            after(&[step("a", 1), step("a", 1)], "a"),
            (Some(Loop::Identical(2)), Some(Loop::Identical(2)))
        );
        assert_eq!(after(&[step("a", 1), step("a", 1)], "b").1, None);
        assert_eq!(
            after(&[step("a", 1), step("b", 1), step("a", 1)], "a"),
            (None, None),
            "not in a row"
        );
    }

    #[test]
    fn a_changing_result_is_progress() {
        let polls: Vec<Step> = (0..20).map(|n| step("a", n)).collect();
        assert_eq!(after(&polls, "a"), (None, None));
        let in_turn: Vec<Step> = (0..20)
            .map(|n| step(if n % 2 == 0 { "a" } else { "b" }, n))
            .collect();
        assert_eq!(after(&in_turn, "a"), (None, None));
    }

    #[test]
    fn going_to_and_fro_is_a_loop() {
        let steps: Vec<Step> = ["a", "b", "a", "b", "a"].map(|call| step(call, 1)).to_vec();
        assert_eq!(after(&steps[..4], "a"), (None, None));
        assert_eq!(
            after(&steps, "b"),
            (Some(Loop::PingPong(5)), Some(Loop::PingPong(5)))
        );
        assert_eq!(after(&steps, "c").1, None);
    }

    #[test]
    fn the_same_error_of_the_same_tool_is_a_loop_for_the_arguments_that_failed_and_no_others() {
        let failing = |call: &str, error| Step {
            error: Some(error),
            ..step(call, error)
        };
        let three = [failing("a", 7), failing("b", 7), failing("c", 7)];
        assert_eq!(
            after(&three, "d"),
            (Some(Loop::Errors(3)), None),
            "a hint, but it may be tried"
        );
        for known in ["a", "b", "c"] {
            assert_eq!(after(&three, known).1, Some(Loop::Errors(3)), "{known}");
        }
        let recovered = [&three[..], &[step("d", 1)]].concat();
        assert_eq!(after(&recovered, "a").1, None, "something else worked");
        assert_eq!(
            after(&[failing("a", 7), failing("b", 8), failing("c", 7)], "d"),
            (None, None)
        );
        assert_eq!(
            after(
                &[
                    failing("a", 7),
                    step("b", 1),
                    failing("c", 7),
                    failing("d", 7)
                ],
                "e"
            ),
            (None, None)
        );
    }

    #[test]
    fn the_arguments_that_failed_are_bounded() {
        let mut history = History::default();
        for n in 0..1000 {
            history.record(
                Step {
                    error: Some(7),
                    ..step(&n.to_string(), 7)
                },
                round(n),
                LIMITS,
            );
        }
        assert_eq!(history.failed.len(), MOST_FAILED);
        assert!(
            history
                .closes(&"t".into(), arguments("999"), LIMITS)
                .is_some()
        );
    }

    #[test]
    fn being_given_something_new_to_do_starts_over() {
        let id = |n: u32| round(n).0;
        let begins = |before: Round, now: Round| {
            let mut history = History::default();
            history.begin(before);
            history.starts_over(now)
        };
        assert!(!History::default().starts_over((id(1), 0)));
        assert!(
            begins((id(1), 0), (id(2), 0)),
            "a message that is answered in one round"
        );
        assert!(
            begins((id(1), 3), (id(2), 1)),
            "the calls of its round 0 were made elsewhere"
        );
        assert!(begins((id(1), 3), (id(1), 0)));
        assert!(!begins((id(1), 0), (id(1), 0)), "a sibling");
        assert!(!begins((id(1), 0), (id(2), 1)));
        assert!(!begins((id(1), 1), (id(2), 1)), "side by side");
    }

    #[test]
    fn what_one_turn_asks_for_twice_counts_once() {
        let mut history = History::default();
        for _ in 0..10 {
            assert_eq!(history.record(step("a", 1), round(1), LIMITS), None);
            assert_eq!(history.record(step("b", 1), round(1), LIMITS), None);
        }
        assert_eq!(history.closes(&"t".into(), arguments("a"), LIMITS), None);
        let failing = |call: &str| Step {
            error: Some(7),
            ..step(call, 7)
        };
        for call in ["a", "b", "c", "d", "e"] {
            assert_eq!(history.record(failing(call), round(2), LIMITS), None);
        }
    }
}
