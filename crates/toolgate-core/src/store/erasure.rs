//! The data to erase with a session: its turns and calls, its agents' sessions, and their records.

use std::{collections::BTreeSet, ops::Bound};

use crate::{AccountMovement, ApprovalId, CallId, Event, EventBody, RecordKey, SessionId, TurnId};

/// Prefixes of [`RecordKey::Other`] records stored by session: `<word>/<session>/…`.
///
/// Code that stores a new kind of record by session adds its word here; otherwise the records
/// outlive their session.
const SESSION_PREFIXES: [&str; 11] = [
    "archive",
    "handoff",
    "handoff-calls",
    "imported",
    "memory-recall",
    "output",
    "recursive",
    "run-end",
    "session-options",
    "skill",
    "skill-refund",
];

/// Prefixes of [`RecordKey::Other`] records stored by call: `<word>/<call>` and `<word>/<call>/…`.
const CALL_PREFIXES: [&str; 1] = ["undo"];

/// The result of an erasure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErasedSessions {
    /// The deleted sessions that had events, in the order of their ids: the named one and those of
    /// its agents.
    pub sessions: Vec<SessionId>,
    /// The amounts booked as spent, because they were still reserved.
    pub booked: Vec<AccountMovement>,
}

/// The data that is deleted with a session; for implementers of stores.
///
/// A store reads the log of the session, adds its events, checks which of [`agents`](Self::agent_sessions)
/// it knows, and repeats this for those until there are no more.
///
/// ```
/// use toolgate_core::{SessionId, ErasureScope};
/// let session: SessionId = "01890a5d-ac96-774b-bcce-b302099a8057".parse()?;
/// let names = ErasureScope::for_session(session).record_names();
/// assert!(names.contains("message/01890a5d-ac96-774b-bcce-b302099a8057/000000000000"));
/// assert!(!names.contains("message/00000000-0000-0000-0000-000000000000/000000000000"));
/// # Ok::<(), uuid::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErasureScope {
    sessions: BTreeSet<SessionId>,
    turns: BTreeSet<TurnId>,
    calls: BTreeSet<CallId>,
}

impl ErasureScope {
    /// Creates the set for a session of which no event was read yet.
    pub fn for_session(session: SessionId) -> Self {
        Self {
            sessions: BTreeSet::from([session]),
            ..Self::default()
        }
    }

    /// Adds the turn and call of an event of one of the sessions.
    pub fn add_event(&mut self, event: &Event) {
        self.turns.insert(event.turn_info().turn);
        match event.body() {
            EventBody::Tool(invocation, _) => drop(self.calls.insert(invocation.id)),
            // The call id of a rejected input is not added: it may belong to another session.
            EventBody::Turn(..) | EventBody::Loop(..) => {}
        }
    }

    /// Returns the sessions that agents would have and that are not added yet.
    pub fn agent_sessions(&self) -> impl Iterator<Item = SessionId> {
        let named = self.calls.iter().map(|call| call.agent_session());
        named.filter(|session| !self.sessions.contains(session))
    }

    /// Adds sessions of agents.
    pub fn add_sessions(&mut self, sessions: impl IntoIterator<Item = SessionId>) {
        self.sessions.extend(sessions);
    }

    /// Returns the sessions, in the order of their ids.
    pub fn sessions(&self) -> &BTreeSet<SessionId> {
        &self.sessions
    }

    /// Checks whether the record with this key belongs to one of the sessions, turns or calls.
    ///
    /// It says the same as [`record_names`](Self::record_names), without building the names.
    pub fn owns_record(&self, key: &RecordKey) -> bool {
        match key {
            RecordKey::Outcome(call)
            | RecordKey::Question(call, _)
            | RecordKey::Answer(call, _)
            | RecordKey::Result(call, _)
            | RecordKey::Layer(call, _) => self.calls.contains(call),
            RecordKey::Requests(turn) | RecordKey::Ended(turn) | RecordKey::Successor(turn) => {
                self.turns.contains(turn)
            }
            RecordKey::Message(session, _) | RecordKey::Run(session, _) => {
                self.sessions.contains(session)
            }
            RecordKey::Other(name) => self.owns_other_record(name),
        }
    }

    fn owns_other_record(&self, name: &str) -> bool {
        let Some((word, rest)) = name.split_once('/') else {
            return false;
        };
        let (id, is_longer) = match rest.split_once('/') {
            Some((id, _)) => (id, true),
            None => (rest, false),
        };
        let is_call = || id.parse().is_ok_and(|call| self.calls.contains(&call));
        if word == "vote" {
            let approval: Option<ApprovalId> = id.parse().ok();
            return is_longer && approval.is_some_and(|id| self.calls.contains(&id.call_id()));
        }
        (CALL_PREFIXES.contains(&word) && is_call())
            || (SESSION_PREFIXES.contains(&word)
                && is_longer
                && id.parse().is_ok_and(|id| self.sessions.contains(&id)))
    }

    /// Returns the names of all their records.
    pub fn record_names(&self) -> ErasureNames {
        let mut names = ErasureNames::default();
        self.sessions
            .iter()
            .for_each(|session| names.add_session(*session));
        self.turns.iter().for_each(|turn| names.add_turn(*turn));
        self.calls.iter().for_each(|call| names.add_call(*call));
        names
    }
}

/// The names of the records to delete, as [`RecordKey`] displays them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErasureNames {
    /// Complete names.
    pub whole: BTreeSet<String>,
    /// Prefixes of other names. Each ends with a slash, and none is a prefix of another.
    pub starts: BTreeSet<String>,
}

impl ErasureNames {
    /// Checks whether a record of this name is among them.
    pub fn contains(&self, name: &str) -> bool {
        // No prefix is a prefix of another, so only the last one before the name can match.
        let before = self
            .starts
            .range::<str, _>((Bound::Unbounded, Bound::Included(name)))
            .next_back();
        self.whole.contains(name) || before.is_some_and(|start| name.starts_with(start.as_str()))
    }

    /// Returns the names as ranges in order: the first name, and the end, which is not part of it.
    pub fn ranges(&self) -> Vec<(String, String)> {
        let whole = self
            .whole
            .iter()
            .map(|name| (name.clone(), format!("{name}\0")));
        // `0` is the character after the slash.
        let end = |start: &str| format!("{}0", start.strip_suffix('/').unwrap_or(start));
        let starts = self.starts.iter().map(|start| (start.clone(), end(start)));
        let mut ranges: Vec<_> = whole.chain(starts).collect();
        ranges.sort();
        ranges
    }

    /// Adds the names of the records of a session itself.
    pub fn add_session(&mut self, session: SessionId) {
        self.starts.insert(format!("message/{session}/"));
        self.starts.insert(format!("run/{session}/"));
        self.starts
            .extend(SESSION_PREFIXES.map(|word| other_record_name(&format!("{word}/{session}/"))));
    }

    /// Adds the names of the records of a turn.
    pub fn add_turn(&mut self, turn: TurnId) {
        let keys = [
            RecordKey::Requests(turn),
            RecordKey::Ended(turn),
            RecordKey::Successor(turn),
        ];
        self.whole.extend(keys.map(|key| key.to_string()));
    }

    /// Adds the names of the records of a call.
    pub fn add_call(&mut self, call: CallId) {
        self.whole.insert(RecordKey::Outcome(call).to_string());
        // By prefix: the numbers of generations and attempts, and the keys of layers, are not known
        // here.
        self.starts.extend(
            ["question", "answer", "result", "layer"].map(|word| format!("{word}/{call}/")),
        );
        self.starts.insert(other_record_name(&format!(
            "vote/{}/",
            ApprovalId::for_call(call)
        )));
        self.whole
            .extend(CALL_PREFIXES.map(|word| other_record_name(&format!("{word}/{call}"))));
        self.starts
            .extend(CALL_PREFIXES.map(|word| other_record_name(&format!("{word}/{call}/"))));
    }
}

fn other_record_name(name: &str) -> String {
    RecordKey::Other(name.into()).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{InputKind, Invocation, RejectCode, Timestamp, ToolEvent, TurnEvent, TurnInfo};
    use uuid::Uuid;

    const SESSION: SessionId = SessionId::new(Uuid::from_u128(1));
    const TURN: TurnId = TurnId::new(Uuid::from_u128(2));
    const CALL: CallId = CallId::new(Uuid::from_u128(3));
    const STRANGER: CallId = CallId::new(Uuid::from_u128(4));

    fn sample_scope() -> ErasureScope {
        let at = Timestamp::EPOCH;
        let turn = Arc::new(TurnInfo::new(SESSION, TURN));
        let what = InputKind::Result;
        let code = RejectCode::TurnMismatch;
        let refused = TurnEvent::InputRejected {
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
        let mut traces = ErasureScope::for_session(SESSION);
        traces.add_event(&Event::for_turn(1, at, turn, refused).expect("valid"));
        let skipped = ToolEvent::ToolSkipped { reason: None };
        traces.add_event(&Event::for_invocation(2, at, Arc::new(head), skipped).expect("valid"));
        traces
    }

    #[test]
    fn every_kind_of_record_is_erased_with_its_session() {
        let names = sample_scope().record_names();
        let others = [
            format!("output/{SESSION}/x"),
            format!("recursive/{SESSION}/1/asked/2"),
            format!("memory-recall/{SESSION}/000000000001"),
            format!("run-end/{SESSION}/000000000001/memory/claim"),
            format!("skill/{SESSION}/pdf"),
            format!("skill-refund/{SESSION}/1/{TURN}"),
            format!("session-options/{SESSION}/000000"),
            format!("vote/approval_{CALL}/0/ann"),
            format!("undo/{CALL}"),
            format!("undo/{CALL}/1"),
            format!("imported/{SESSION}/origin"),
            format!("archive/{SESSION}/mark"),
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
            RecordKey::Run(SESSION, 12),
        ];
        for key in keys
            .into_iter()
            .chain(others.map(|name| RecordKey::Other(name.into())))
        {
            assert!(names.contains(&key.to_string()), "{key}");
            assert!(sample_scope().owns_record(&key), "{key}");
        }
    }

    #[test]
    fn records_of_other_sessions_are_not_erased() {
        let names = sample_scope().record_names();
        let others = [
            format!("undo/{STRANGER}"),
            format!("undo/{CALL}0"),
            format!("output/{STRANGER}/x"),
            "rule/x".into(),
            "rule".into(),
            format!("vote/approval_{STRANGER}/0/ann"),
            format!("skill/{STRANGER}/pdf"),
        ];
        let keys = [
            RecordKey::Outcome(STRANGER),
            RecordKey::Layer(STRANGER, "x".into()),
            RecordKey::Message(SessionId::new(TURN.uuid()), 0),
            RecordKey::Run(SessionId::new(TURN.uuid()), 0),
        ];
        for key in keys
            .into_iter()
            .chain(others.map(|name| RecordKey::Other(name.into())))
        {
            assert!(!names.contains(&key.to_string()), "{key}");
            assert!(!sample_scope().owns_record(&key), "{key}");
        }
    }

    #[test]
    fn agent_sessions_are_found_by_call_ids() {
        let mut traces = sample_scope();
        let agent = CALL.agent_session();
        assert_eq!(traces.agent_sessions().collect::<Vec<_>>(), [agent]);
        traces.add_sessions([agent]);
        assert_eq!(traces.agent_sessions().count(), 0);
        assert!(
            traces
                .record_names()
                .contains(&RecordKey::Message(agent, 0).to_string())
        );
    }
}
