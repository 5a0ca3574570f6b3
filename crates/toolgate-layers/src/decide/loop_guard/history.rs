//! The recent calls of one agent, to detect loops.

use std::collections::VecDeque;

use toolgate_core::{Digest, ToolName, TurnId};

/// Maximum number of different steps of one iteration that are stored.
const MAX_SIBLINGS: usize = 64;

/// Maximum number of different arguments with the same error that are stored, the newest.
const MAX_FAILED: usize = 64;

/// One message of the model: its turn and the number of its iteration.
pub(crate) type ModelIteration = (TurnId, u32);

/// A call and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallStep {
    pub(crate) tool: ToolName,
    pub(crate) arguments: Digest,
    /// Hash of status, value and text.
    pub(crate) outcome: u64,
    /// Hash of the error, if the call failed. A call that was blocked or denied did not.
    pub(crate) error: Option<u64>,
}

impl CallStep {
    fn is_call(&self, tool: &ToolName, arguments: Digest) -> bool {
        self.tool == *tool && self.arguments == arguments
    }

    fn fails_like(&self, other: &Self) -> bool {
        self.error.is_some() && self.tool == other.tool && self.error == other.error
    }
}

/// Limits from which a repetition is a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoopLimits {
    pub(crate) identical: u32,
    pub(crate) ping_pong: u32,
    pub(crate) errors: u32,
}

/// A loop, with its number of repetitions so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetectedLoop {
    /// The same call with the same result.
    Identical(u32),
    /// Two alternating calls, each with the same result.
    PingPong(u32),
    /// The same error of the same tool.
    Errors(u32),
}

/// The recent steps of one agent since its last user message: the last two steps and three counts,
/// the arguments with the same error, and the steps of the current iteration.
#[derive(Debug, Default)]
pub(crate) struct CallHistory {
    /// The last iteration that has begun.
    begun: Option<ModelIteration>,
    last: Option<CallStep>,
    before_last: Option<CallStep>,
    identical: u32,
    alternating: u32,
    errors: u32,
    /// The arguments of the last `errors` steps.
    failed: VecDeque<Digest>,
    /// The iteration of the last step.
    iteration: Option<ModelIteration>,
    siblings: Vec<CallStep>,
}

impl CallHistory {
    /// Checks whether a call of this iteration belongs to a new task: iterations are counted from 0
    /// again, so the agent has a new message. The same calls as for an earlier message are not a
    /// loop.
    pub(crate) fn starts_over(&self, iteration: ModelIteration) -> bool {
        self.begun
            .is_some_and(|begun| begun != iteration && (iteration.1 == 0 || iteration.1 < begun.1))
    }

    /// Records that a call of this iteration is made, and clears the history if it belongs to a new
    /// task.
    pub(crate) fn begin(&mut self, iteration: ModelIteration) {
        if self.starts_over(iteration) {
            *self = Self::default();
        }
        self.begun = Some(iteration);
    }

    /// Checks whether this call would close a loop now.
    pub(crate) fn closed_loop(
        &self,
        tool: &ToolName,
        arguments: Digest,
        limits: LoopLimits,
    ) -> Option<DetectedLoop> {
        let last = self.last.as_ref()?;
        let again = last.is_call(tool, arguments);
        if again && self.identical + 1 >= limits.identical {
            return Some(DetectedLoop::Identical(self.identical));
        }
        let back = self
            .before_last
            .as_ref()
            .is_some_and(|step| step.is_call(tool, arguments));
        if back && !again && self.alternating + 1 >= limits.ping_pong {
            return Some(DetectedLoop::PingPong(self.alternating));
        }
        // Other arguments may succeed; these are known to fail.
        let failed = last.tool == *tool && self.failed.contains(&arguments);
        (failed && self.errors + 1 >= limits.errors).then_some(DetectedLoop::Errors(self.errors))
    }

    /// Records a step of the given iteration, and returns the loop that one more step of the kind
    /// would close.
    pub(crate) fn record_step(
        &mut self,
        step: CallStep,
        iteration: ModelIteration,
        limits: LoopLimits,
    ) -> Option<DetectedLoop> {
        if self.iteration != Some(iteration) {
            self.iteration = Some(iteration);
            self.siblings.clear();
        }
        // A model that makes the same call twice in one iteration has not seen the first result:
        // that counts once.
        if self.siblings.contains(&step) {
            return None;
        }
        let same_failure = self
            .siblings
            .iter()
            .any(|sibling| sibling.fails_like(&step));
        self.count_step(&step, same_failure);
        self.before_last = self.last.replace(step.clone());
        if self.siblings.len() < MAX_SIBLINGS {
            self.siblings.push(step);
        }
        self.near_loop(limits)
    }

    fn count_step(&mut self, step: &CallStep, same_failure: bool) {
        let again = self.last.as_ref() == Some(step);
        let back = self.before_last.as_ref() == Some(step);
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
        self.add_failed(step, alike);
    }

    fn add_failed(&mut self, step: &CallStep, alike: bool) {
        if !alike {
            self.failed.clear();
        }
        if step.error.is_some() && !self.failed.contains(&step.arguments) {
            if self.failed.len() == MAX_FAILED {
                self.failed.pop_front();
            }
            self.failed.push_back(step.arguments);
        }
    }

    fn near_loop(&self, limits: LoopLimits) -> Option<DetectedLoop> {
        // Once is not a pattern, however low the limit.
        let near = |count: u32, limit: u32| count >= 2 && count + 1 >= limit;
        if near(self.identical, limits.identical) {
            return Some(DetectedLoop::Identical(self.identical));
        }
        if near(self.alternating, limits.ping_pong) {
            return Some(DetectedLoop::PingPong(self.alternating));
        }
        near(self.errors, limits.errors).then_some(DetectedLoop::Errors(self.errors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LoopLimits = LoopLimits {
        identical: 3,
        ping_pong: 6,
        errors: 4,
    };

    /// Returns iteration `n` of a single task.
    fn iteration(n: u32) -> ModelIteration {
        (format!("{n:032x}").parse().expect("an id"), n)
    }

    fn arguments_of(call: &str) -> Digest {
        Digest::of_bytes(call.as_bytes())
    }

    fn step_with(call: &str, outcome: u64) -> CallStep {
        CallStep {
            tool: "t".into(),
            arguments: arguments_of(call),
            outcome,
            error: None,
        }
    }

    /// Records each step in its own iteration; returns the hint after the last step, and the loop
    /// that `then` would close.
    fn loops_after(steps: &[CallStep], then: &str) -> (Option<DetectedLoop>, Option<DetectedLoop>) {
        let mut history = CallHistory::default();
        let mut said = None;
        for (n, step) in (1..).zip(steps) {
            said = history.record_step(step.clone(), iteration(n), LIMITS);
        }
        (
            said,
            history.closed_loop(&"t".into(), arguments_of(then), LIMITS),
        )
    }

    #[test]
    fn the_third_identical_step_in_a_row_is_a_loop() {
        assert_eq!(loops_after(&[step_with("a", 1)], "a"), (None, None));
        assert_eq!(
            loops_after(&[step_with("a", 1), step_with("a", 1)], "a"),
            (
                Some(DetectedLoop::Identical(2)),
                Some(DetectedLoop::Identical(2))
            )
        );
        assert_eq!(
            loops_after(&[step_with("a", 1), step_with("a", 1)], "b").1,
            None
        );
        assert_eq!(
            loops_after(
                &[step_with("a", 1), step_with("b", 1), step_with("a", 1)],
                "a"
            ),
            (None, None),
            "not in a row"
        );
    }

    #[test]
    fn a_changing_result_is_progress() {
        let polls: Vec<CallStep> = (0..20).map(|n| step_with("a", n)).collect();
        assert_eq!(loops_after(&polls, "a"), (None, None));
        let in_turn: Vec<CallStep> = (0..20)
            .map(|n| step_with(if n % 2 == 0 { "a" } else { "b" }, n))
            .collect();
        assert_eq!(loops_after(&in_turn, "a"), (None, None));
    }

    #[test]
    fn alternating_calls_are_a_loop() {
        let steps: Vec<CallStep> = ["a", "b", "a", "b", "a"]
            .map(|call| step_with(call, 1))
            .to_vec();
        assert_eq!(loops_after(&steps[..4], "a"), (None, None));
        assert_eq!(
            loops_after(&steps, "b"),
            (
                Some(DetectedLoop::PingPong(5)),
                Some(DetectedLoop::PingPong(5))
            )
        );
        assert_eq!(loops_after(&steps, "c").1, None);
    }

    #[test]
    fn the_same_error_of_the_same_tool_is_a_loop_for_the_arguments_that_failed_and_no_others() {
        let failing = |call: &str, error| CallStep {
            error: Some(error),
            ..step_with(call, error)
        };
        let three = [failing("a", 7), failing("b", 7), failing("c", 7)];
        assert_eq!(
            loops_after(&three, "d"),
            (Some(DetectedLoop::Errors(3)), None),
            "a hint, but the call may be tried"
        );
        for known in ["a", "b", "c"] {
            assert_eq!(
                loops_after(&three, known).1,
                Some(DetectedLoop::Errors(3)),
                "{known}"
            );
        }
        let recovered = [&three[..], &[step_with("d", 1)]].concat();
        assert_eq!(
            loops_after(&recovered, "a").1,
            None,
            "something else worked"
        );
        assert_eq!(
            loops_after(&[failing("a", 7), failing("b", 8), failing("c", 7)], "d"),
            (None, None)
        );
        assert_eq!(
            loops_after(
                &[
                    failing("a", 7),
                    step_with("b", 1),
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
        let mut history = CallHistory::default();
        for n in 0..1000 {
            history.record_step(
                CallStep {
                    error: Some(7),
                    ..step_with(&n.to_string(), 7)
                },
                iteration(n),
                LIMITS,
            );
        }
        assert_eq!(history.failed.len(), MAX_FAILED);
        assert!(
            history
                .closed_loop(&"t".into(), arguments_of("999"), LIMITS)
                .is_some()
        );
    }

    #[test]
    fn a_new_task_starts_over() {
        let id = |n: u32| iteration(n).0;
        let begins = |before: ModelIteration, now: ModelIteration| {
            let mut history = CallHistory::default();
            history.begin(before);
            history.starts_over(now)
        };
        assert!(!CallHistory::default().starts_over((id(1), 0)));
        assert!(
            begins((id(1), 0), (id(2), 0)),
            "a message that takes one iteration"
        );
        assert!(
            begins((id(1), 3), (id(2), 1)),
            "the calls of its iteration 0 were made elsewhere"
        );
        assert!(begins((id(1), 3), (id(1), 0)));
        assert!(!begins((id(1), 0), (id(1), 0)), "a sibling");
        assert!(!begins((id(1), 0), (id(2), 1)));
        assert!(!begins((id(1), 1), (id(2), 1)), "in parallel");
    }

    #[test]
    fn the_same_call_twice_in_one_turn_counts_once() {
        let mut history = CallHistory::default();
        for _ in 0..10 {
            assert_eq!(
                history.record_step(step_with("a", 1), iteration(1), LIMITS),
                None
            );
            assert_eq!(
                history.record_step(step_with("b", 1), iteration(1), LIMITS),
                None
            );
        }
        assert_eq!(
            history.closed_loop(&"t".into(), arguments_of("a"), LIMITS),
            None
        );
        let failing = |call: &str| CallStep {
            error: Some(7),
            ..step_with(call, 7)
        };
        for call in ["a", "b", "c", "d", "e"] {
            assert_eq!(
                history.record_step(failing(call), iteration(2), LIMITS),
                None
            );
        }
    }
}
