//! Checks any stream of events against the rules of the lifecycle.
//!
//! The rules are written a second time here, without the state machine of the core, so that a
//! mistake there does not hide itself.

use std::collections::{HashMap, HashSet};

use toolgate_core::{CallId, Event, Invocation, SessionId, Status, ToolEvent, TurnEvent, TurnId};

/// A checker of event streams. Feed it every event in order, then call
/// [`LifecycleChecker::finish`].
#[derive(Debug, Default)]
pub struct LifecycleChecker {
    sequences: HashMap<SessionId, u64>,
    invocations: HashMap<CallId, InvocationLife>,
    turns: HashMap<TurnId, TurnProgress>,
    turn_of_label: HashSet<(TurnId, String)>,
}

#[derive(Debug)]
struct InvocationLife {
    head: Invocation,
    asked: bool,
    asked_generation: Option<u32>,
    approved: bool,
    attempts: u32,
    ended: Option<Status>,
}

#[derive(Debug, Default)]
struct TurnProgress {
    size: Option<u32>,
    requested: u32,
    ended: u32,
    settled: bool,
}

/// The rule that an event broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleViolation {
    /// The number of the event; 0 for something that is missing at the end.
    pub sequence: u64,
    /// The broken rule.
    pub rule: String,
}

impl std::fmt::Display for LifecycleViolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "event {}: {}", self.sequence, self.rule)
    }
}

impl std::error::Error for LifecycleViolation {}

/// The content of a checked stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleSummary {
    /// The status of each settled invocation.
    pub ended: HashMap<CallId, Status>,
    /// The invocations that are not settled.
    pub open: HashSet<CallId>,
    /// The number of turns that settled as a whole: each of them is continued once.
    pub settled_turns: usize,
}

impl LifecycleChecker {
    /// Creates a checker that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks a whole stream.
    pub fn check_all<'a>(
        events: impl IntoIterator<Item = &'a Event>,
    ) -> Result<LifecycleSummary, LifecycleViolation> {
        let mut checker = Self::new();
        events
            .into_iter()
            .try_for_each(|event| checker.check(event))?;
        checker.finish()
    }

    /// Checks the next event.
    pub fn check(&mut self, event: &Event) -> Result<(), LifecycleViolation> {
        let sequence = event.sequence();
        let violation = |rule: String| LifecycleViolation { sequence, rule };
        let last = self.sequences.entry(event.turn_info().session).or_default();
        if sequence != *last + 1 {
            return Err(violation(format!("follows event {last}")));
        }
        *last = sequence;
        let checked = match (event.as_tool(), event.as_turn()) {
            (Some((head, event)), _) => self.check_tool(head, event),
            (None, Some(turn)) => self.check_turn(event.turn_info().turn, turn),
            (None, None) => Ok(()),
        };
        checked.map_err(violation)
    }

    /// Checks the rules that need the whole stream.
    pub fn finish(self) -> Result<LifecycleSummary, LifecycleViolation> {
        let missing = |rule: String| LifecycleViolation { sequence: 0, rule };
        for (turn, life) in &self.turns {
            if life.size.is_some_and(|size| size != life.requested) {
                return Err(missing(format!(
                    "turn {turn} did not request all its invocations"
                )));
            }
        }
        let (ended, open): (Vec<_>, Vec<_>) = self
            .invocations
            .into_iter()
            .partition(|(_, life)| life.ended.is_some());
        Ok(LifecycleSummary {
            ended: ended
                .into_iter()
                .filter_map(|(id, life)| Some((id, life.ended?)))
                .collect(),
            open: open.into_iter().map(|(id, _)| id).collect(),
            settled_turns: self.turns.values().filter(|life| life.settled).count(),
        })
    }

    fn check_turn(&mut self, turn: TurnId, event: &TurnEvent) -> Result<(), String> {
        let life = self.turns.entry(turn).or_default();
        match event {
            TurnEvent::TurnOpened { .. } if life.size.is_some() => {
                Err("the turn is opened twice".into())
            }
            TurnEvent::TurnOpened { size, .. } => {
                life.size = Some(*size);
                Ok(())
            }
            TurnEvent::TurnSettled if life.settled => Err("the turn is settled twice".into()),
            TurnEvent::TurnSettled if Some(life.ended) != life.size => {
                Err("the turn is settled before its calls".into())
            }
            TurnEvent::TurnSettled => {
                life.settled = true;
                Ok(())
            }
            TurnEvent::TurnInterrupted { .. } if life.settled => {
                Err("a settled turn is interrupted".into())
            }
            TurnEvent::TurnInterrupted { .. } | TurnEvent::InputRejected { .. } => Ok(()),
        }
    }

    fn check_tool(&mut self, head: &Invocation, event: &ToolEvent) -> Result<(), String> {
        if let ToolEvent::ToolRequested { .. } = event {
            return self.check_requested(head);
        }
        let life = self
            .invocations
            .get_mut(&head.id)
            .ok_or("an event of the invocation before it is requested")?;
        if life.head != *head {
            return Err(
                "the invocation has another name, label, position or turn than when it was requested"
                    .into(),
            );
        }
        if life.ended.is_some() {
            return Err(format!("{} after the end", event.name()));
        }
        life.apply_event(event)?;
        if let Some(status) = event.terminal_status() {
            life.ended = Some(status);
            self.turns.entry(head.turn.turn).or_default().ended += 1;
        }
        Ok(())
    }

    fn check_requested(&mut self, head: &Invocation) -> Result<(), String> {
        let turn = head.turn.turn;
        let life = InvocationLife {
            head: head.clone(),
            asked: false,
            asked_generation: None,
            approved: false,
            attempts: 0,
            ended: None,
        };
        if self.invocations.insert(head.id, life).is_some() {
            return Err("the invocation is requested twice".into());
        }
        if !self.turn_of_label.insert((turn, head.call_id.to_string())) {
            return Err("two invocations of the turn have the same label".into());
        }
        let turn = self.turns.entry(turn).or_default();
        if turn.settled || head.emit_order != turn.requested {
            return Err("the invocation is requested out of the model's order".into());
        }
        turn.requested += 1;
        Ok(())
    }
}

impl InvocationLife {
    fn apply_event(&mut self, event: &ToolEvent) -> Result<(), String> {
        let started = self.attempts > 0;
        match event {
            // A request that cannot be decided is replaced by one of the next generation.
            ToolEvent::ToolApprovalRequested(request)
                if self.asked
                    && self.asked_generation.map(|asked| asked + 1) != Some(request.generation) =>
            {
                return Err("asked for approval while a request is pending".into());
            }
            ToolEvent::ToolApprovalRequested(request)
                if self.asked_generation >= Some(request.generation) =>
            {
                return Err("asked for approval again in the same generation".into());
            }
            ToolEvent::ToolApprovalRequested(request) => {
                self.asked = true;
                self.asked_generation = Some(request.generation);
                self.approved = false;
            }
            // A standing rule approves without a request, but only before the start.
            ToolEvent::ToolApproved { .. } if self.approved || (started && !self.asked) => {
                return Err("approved without a pending request".into());
            }
            ToolEvent::ToolApproved { .. } => {
                self.asked = false;
                self.approved = true;
            }
            ToolEvent::ToolExecutionStarted { .. } if self.asked => {
                return Err("started while an approval is pending".into());
            }
            ToolEvent::ToolExecutionStarted { attempt, .. } if *attempt != self.attempts + 1 => {
                return Err("started twice for one attempt, or an attempt is missing".into());
            }
            ToolEvent::ToolExecutionStarted { .. } => self.attempts += 1,
            ToolEvent::ToolExecutionProgress { .. } if !started => {
                return Err("progress before the start".into());
            }
            ToolEvent::ToolDenied { .. } | ToolEvent::ToolSkipped { .. } if started => {
                return Err("a denied or skipped invocation had started".into());
            }
            ToolEvent::ToolExecutionSucceeded { .. } if self.asked => {
                return Err("succeeded while an approval is pending".into());
            }
            ToolEvent::ToolExecutionSucceeded { attempts, .. } if *attempts != self.attempts => {
                return Err("succeeded with another number of attempts than started".into());
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use toolgate_core::{Digest, SettledOutcome, Timestamp, TurnInfo};
    use uuid::Uuid;

    fn head() -> Arc<Invocation> {
        let turn = Arc::new(TurnInfo::new(
            SessionId::new(Uuid::from_u128(1)),
            TurnId::new(Uuid::from_u128(2)),
        ));
        let id = CallId::new(Uuid::from_u128(3));
        Arc::new(Invocation {
            id,
            call_id: "c".into(),
            tool: "t".into(),
            emit_order: 0,
            turn,
        })
    }

    fn requested() -> ToolEvent {
        let digest = Digest::of_bytes(b"");
        ToolEvent::ToolRequested {
            arguments: None,
            arguments_digest: digest,
            arguments_bytes: 0,
            executor: None,
        }
    }

    fn started(attempt: u32) -> ToolEvent {
        let digest = Digest::of_bytes(b"");
        ToolEvent::ToolExecutionStarted {
            attempt,
            executor: None,
            external: false,
            arguments_digest: digest,
            arguments: None,
        }
    }

    fn ended(status: Status, started: bool) -> ToolEvent {
        let mut settled = SettledOutcome::new(status);
        settled.attempts = u32::from(started);
        ToolEvent::from_settled(&settled, started, None, None)
    }

    fn check(events: Vec<ToolEvent>) -> Result<LifecycleSummary, String> {
        let events = (1..).zip(events);
        let events: Vec<Event> = events
            .map(|(n, event)| {
                Event::for_invocation(n, Timestamp::EPOCH, head(), event).expect("valid")
            })
            .collect();
        LifecycleChecker::check_all(&events).map_err(|violation| violation.rule)
    }

    #[test]
    fn a_valid_life_passes() {
        let summary = check(vec![requested(), started(1), ended(Status::Ok, true)]).expect("legal");
        assert_eq!(summary.ended.values().collect::<Vec<_>>(), [&Status::Ok]);
        check(vec![requested(), ended(Status::Blocked, false)])
            .expect("a blocked call never starts");
    }

    #[test]
    fn each_broken_rule_is_named() {
        for (events, word) in [
            (vec![started(1)], "before it is requested"),
            (vec![requested(), requested()], "requested twice"),
            (vec![requested(), started(1), started(1)], "started twice"),
            (vec![requested(), started(2)], "an attempt is missing"),
            (
                vec![requested(), started(1), ended(Status::Denied, false)],
                "had started",
            ),
            (
                vec![requested(), ended(Status::Denied, false), started(1)],
                "after the end",
            ),
            (
                vec![
                    requested(),
                    started(1),
                    ended(Status::Ok, true),
                    ended(Status::Ok, true),
                ],
                "after the end",
            ),
        ] {
            let rule = check(events).expect_err(word);
            assert!(rule.contains(word), "{rule}");
        }
    }
}
