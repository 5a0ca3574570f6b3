//! What a session leaves in a store: its turns and calls, the sessions of its agents, and the names of their records.

use std::{collections::BTreeSet, ops::Bound};

use crate::{ApprovalId, CallId, Event, EventBody, Movement, RecordKey, SessionId, TurnId};

/// Records of [`RecordKey::Other`] that are kept by session: `<word>/<session>/…`.
///
/// Whoever keeps others that way adds the word here, or they outlast their session.
const BY_SESSION: [&str; 4] = ["output", "recursive", "skill", "skill-refund"];

/// Records of [`RecordKey::Other`] that are kept by call: `<word>/<call>` and `<word>/<call>/…`.
const BY_CALL: [&str; 1] = ["undo"];

/// What was erased.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Erased {
    /// The sessions that had events and are gone, in the order of their ids: the one that was named and those of its
    /// agents.
    pub sessions: Vec<SessionId>,
    /// How much more was spent from accounts, because of what was still set aside.
    pub booked: Vec<Movement>,
}

/// All that goes when a session goes: for those who write stores.
///
/// A store reads the log of the session, takes in its events, looks which of [`agents`](Self::agents) it knows, and
/// goes on with those until there are no more.
///
/// ```
/// use toolgate_core::{SessionId, Traces};
/// let session: SessionId = "01890a5d-ac96-774b-bcce-b302099a8057".parse()?;
/// let names = Traces::of(session).names();
/// assert!(names.has("message/01890a5d-ac96-774b-bcce-b302099a8057/000000000000"));
/// assert!(!names.has("message/00000000-0000-0000-0000-000000000000/000000000000"));
/// # Ok::<(), uuid::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traces {
    sessions: BTreeSet<SessionId>,
    turns: BTreeSet<TurnId>,
    calls: BTreeSet<CallId>,
}

impl Traces {
    /// A session of which nothing was read yet.
    pub fn of(session: SessionId) -> Self {
        Self {
            sessions: BTreeSet::from([session]),
            ..Self::default()
        }
    }

    /// Takes in what an event of one of the sessions is about.
    pub fn take_in(&mut self, event: &Event) {
        self.turns.insert(event.turn_info().turn);
        match event.body() {
            EventBody::Tool(invocation, _) => drop(self.calls.insert(invocation.id)),
            // What was refused may have been meant for a call of somebody else.
            EventBody::Turn(..) | EventBody::Loop(..) => {}
        }
    }

    /// The sessions that agents would have, as far as they are not taken up yet: they are named after their calls.
    pub fn agents(&self) -> impl Iterator<Item = SessionId> {
        let named = self.calls.iter().map(|call| SessionId::new(call.uuid()));
        named.filter(|session| !self.sessions.contains(session))
    }

    /// Adds sessions of agents.
    pub fn add(&mut self, sessions: impl IntoIterator<Item = SessionId>) {
        self.sessions.extend(sessions);
    }

    /// The sessions, in the order of their ids.
    pub fn sessions(&self) -> &BTreeSet<SessionId> {
        &self.sessions
    }

    /// The names of all their records.
    pub fn names(&self) -> TraceNames {
        let mut names = TraceNames::default();
        self.sessions
            .iter()
            .for_each(|session| names.session(*session));
        self.turns.iter().for_each(|turn| names.turn(*turn));
        self.calls.iter().for_each(|call| names.call(*call));
        names
    }
}

/// The names of the records that belong together, as [`RecordKey`] shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceNames {
    /// Whole names.
    pub whole: BTreeSet<String>,
    /// What other names start with. Each ends with a slash, and none starts with another.
    pub starts: BTreeSet<String>,
}

impl TraceNames {
    /// Whether a record of this name is among them.
    pub fn has(&self, name: &str) -> bool {
        // Because none starts with another, only the last one before the name can be its start.
        let before = self
            .starts
            .range::<str, _>((Bound::Unbounded, Bound::Included(name)))
            .next_back();
        self.whole.contains(name) || before.is_some_and(|start| name.starts_with(start.as_str()))
    }

    fn session(&mut self, session: SessionId) {
        self.starts.insert(format!("message/{session}/"));
        self.starts
            .extend(BY_SESSION.map(|word| other(&format!("{word}/{session}/"))));
    }

    fn turn(&mut self, turn: TurnId) {
        let keys = [
            RecordKey::Requests(turn),
            RecordKey::Ended(turn),
            RecordKey::Successor(turn),
        ];
        self.whole.extend(keys.map(|key| key.to_string()));
    }

    fn call(&mut self, call: CallId) {
        self.whole.insert(RecordKey::Outcome(call).to_string());
        self.starts.extend(
            ["question", "answer", "result", "layer"].map(|word| format!("{word}/{call}/")),
        );
        self.starts
            .insert(other(&format!("vote/{}/", ApprovalId::of(call))));
        self.whole
            .extend(BY_CALL.map(|word| other(&format!("{word}/{call}"))));
        self.starts
            .extend(BY_CALL.map(|word| other(&format!("{word}/{call}/"))));
    }
}

fn other(name: &str) -> String {
    RecordKey::Other(name.into()).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Invocation, PostCode, PostKind, Timestamp, ToolEvent, TurnEvent, TurnInfo};
    use uuid::Uuid;

    const SESSION: SessionId = SessionId::new(Uuid::from_u128(1));
    const TURN: TurnId = TurnId::new(Uuid::from_u128(2));
    const CALL: CallId = CallId::new(Uuid::from_u128(3));
    const STRANGER: CallId = CallId::new(Uuid::from_u128(4));

    fn traces() -> Traces {
        let (at, turn) = (Timestamp::EPOCH, Arc::new(TurnInfo::new(SESSION, TURN)));
        let (what, code) = (PostKind::Result, PostCode::TurnMismatch);
        let refused = TurnEvent::PostRefused {
            invocation_id: STRANGER,
            what,
            code,
        };
        let head = Invocation {
            id: CALL,
            call_id: "c".into(),
            tool: "t".into(),
            emit_order: 0,
            turn: turn.clone(),
        };
        let mut traces = Traces::of(SESSION);
        traces.take_in(&Event::turn(1, at, turn, refused).expect("valid"));
        let skipped = ToolEvent::ToolSkipped { reason: None };
        traces.take_in(&Event::tool(2, at, Arc::new(head), skipped).expect("valid"));
        traces
    }

    #[test]
    fn every_kind_of_record_goes_with_what_it_is_about() {
        let names = traces().names();
        let others = [
            format!("output/{SESSION}/x"),
            format!("recursive/{SESSION}/1/asked/2"),
            format!("skill/{SESSION}/pdf"),
            format!("skill-refund/{SESSION}/1/{TURN}"),
            format!("vote/approval_{CALL}/0/ann"),
            format!("undo/{CALL}"),
            format!("undo/{CALL}/1"),
        ];
        let keys = [
            RecordKey::Outcome(CALL),
            RecordKey::Requests(TURN),
            RecordKey::Ended(TURN),
            RecordKey::Successor(TURN),
            RecordKey::Question(CALL, 0),
            RecordKey::Answer(CALL, 7),
            RecordKey::Result(CALL, 1),
            RecordKey::Layer(CALL, "".into()),
            RecordKey::Layer(CALL, "receipts".into()),
            RecordKey::Message(SESSION, 12),
        ];
        for key in keys
            .into_iter()
            .chain(others.map(|name| RecordKey::Other(name.into())))
        {
            assert!(names.has(&key.to_string()), "{key}");
        }
    }

    #[test]
    fn nothing_of_others_goes_along() {
        let names = traces().names();
        let others = [
            format!("undo/{STRANGER}"),
            format!("undo/{CALL}0"),
            format!("output/{STRANGER}/x"),
            "rule/x".into(),
        ];
        let keys = [
            RecordKey::Outcome(STRANGER),
            RecordKey::Layer(STRANGER, "x".into()),
            RecordKey::Message(SessionId::new(TURN.uuid()), 0),
        ];
        for key in keys
            .into_iter()
            .chain(others.map(|name| RecordKey::Other(name.into())))
        {
            assert!(!names.has(&key.to_string()), "{key}");
        }
    }

    #[test]
    fn agents_are_looked_for_under_the_ids_of_calls_until_they_are_known() {
        let mut traces = traces();
        let agent = SessionId::new(CALL.uuid());
        assert_eq!(traces.agents().collect::<Vec<_>>(), [agent]);
        traces.add([agent]);
        assert_eq!(traces.agents().count(), 0);
        assert!(
            traces
                .names()
                .has(&RecordKey::Message(agent, 0).to_string())
        );
    }
}
