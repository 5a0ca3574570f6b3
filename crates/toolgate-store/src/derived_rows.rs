//! The rows that follow from the events of a database, to compare the stored ones with.
//!
//! The lists of turns and approvals and some columns of sessions are written with the events that
//! change them. A check derives them again: a row that was damaged differs from its log.

use std::collections::{BTreeMap, BTreeSet};

use toolgate_core::{
    ApprovalRow, ApprovalState, CallId, Event, RowChange, SessionId, SessionTotals, SessionUpdate,
    TurnId, TurnRow,
};

use crate::{IntegrityProblem, encoded::encode_json};

/// The rows that follow from the events so far.
#[derive(Default)]
pub(crate) struct DerivedRows {
    sessions: BTreeMap<SessionId, DerivedSession>,
    turns: BTreeMap<(SessionId, TurnId), TurnRow>,
    approvals: BTreeMap<CallId, ApprovalRow>,
    /// The sessions with an event that cannot be read. Nothing follows from their logs.
    unreadable: BTreeSet<SessionId>,
    found_turns: BTreeSet<(SessionId, TurnId)>,
    found_approvals: BTreeSet<CallId>,
}

/// The columns of a session that follow from its events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DerivedSession {
    pub(crate) created_at: i64,
    pub(crate) updated_at: i64,
    pub(crate) principal: Option<String>,
    /// JSON, if there are any.
    pub(crate) labels: Option<String>,
    pub(crate) run: Option<i64>,
    pub(crate) run_state: Option<String>,
    pub(crate) run_at: Option<i64>,
    /// Nothing in a stored session whose events could not be counted.
    pub(crate) totals: Option<SessionTotals>,
}

impl DerivedRows {
    /// Applies the next event of a session; the events of each session have to come in order.
    pub(crate) fn add_event(&mut self, session: SessionId, event: Event) {
        let row = self.sessions.entry(session).or_default();
        let at = event.at().as_micros();
        if event.sequence() == 1 {
            row.created_at = at;
        }
        row.updated_at = at;
        match RowChange::from_event(&event) {
            Some(RowChange::TurnOpened(turn)) => {
                self.turns.insert((turn.session, turn.turn), turn);
            }
            Some(RowChange::TurnSettled(session, turn, at)) => {
                if let Some(row) = self.turns.get_mut(&(session, turn)) {
                    row.settled_at = Some(at);
                }
            }
            Some(RowChange::Asked(row)) => {
                let call = row.request.approval_id.call_id();
                self.approvals.insert(call, *row);
            }
            Some(RowChange::Answered(call)) => self.set_state(call, ApprovalState::Answered),
            Some(RowChange::Started(call)) => self.set_state(call, ApprovalState::Running),
            Some(RowChange::Settled(call, status)) => {
                self.set_state(call, ApprovalState::Settled(status));
            }
            None => {}
        }
        self.sessions
            .entry(session)
            .or_default()
            .totals
            .get_or_insert_default()
            .add_event(&event);
        let event = std::sync::Arc::new(event);
        if let Some(update) = SessionUpdate::from_events([&event].into_iter()) {
            self.sessions.entry(session).or_default().apply(update);
        }
    }

    fn set_state(&mut self, call: CallId, state: ApprovalState) {
        if let Some(row) = self.approvals.get_mut(&call) {
            row.state = state;
        }
    }

    /// Notes that an event of a session cannot be read.
    pub(crate) fn skip_session(&mut self, session: SessionId) {
        self.unreadable.insert(session);
    }

    /// Checks whether a stored session agrees with its events. One without events has nothing to
    /// compare.
    pub(crate) fn check_session(&self, session: SessionId, stored: &DerivedSession) -> bool {
        let derived = self.sessions.get(&session);
        let is_equal = |derived: &DerivedSession| {
            let mut derived = derived.clone();
            derived.totals = derived.totals.filter(|_| stored.totals.is_some());
            derived == *stored
        };
        self.unreadable.contains(&session) || derived.is_none_or(is_equal)
    }

    /// Checks whether a stored turn agrees with the events of its session.
    pub(crate) fn check_turn(&mut self, stored: &TurnRow) -> bool {
        let key = (stored.session, stored.turn);
        self.found_turns.insert(key);
        self.unreadable.contains(&stored.session) || self.turns.get(&key) == Some(stored)
    }

    /// Checks whether a stored approval agrees with the events of its session. `is_answered` says
    /// whether there is an answer that the driver has not recorded
    /// yet.
    pub(crate) fn check_approval(
        &mut self,
        call: CallId,
        stored: Option<&ApprovalRow>,
        is_answered: impl FnOnce(&ApprovalRow) -> bool,
    ) -> bool {
        self.found_approvals.insert(call);
        let Some(stored) = stored else {
            return false;
        };
        if self.unreadable.contains(&stored.session) {
            return true;
        }
        let Some(derived) = self.approvals.get(&call) else {
            return false;
        };
        // An answer is listed at once, and its event follows when the driver applies it.
        let is_ahead = derived.state == ApprovalState::Pending
            && stored.state == ApprovalState::Answered
            && is_answered(derived);
        let state = if is_ahead {
            derived.state
        } else {
            stored.state
        };
        let stored = ApprovalRow {
            state,
            ..stored.clone()
        };
        *derived == stored
    }

    /// Returns the rows that should be there and were not compared.
    pub(crate) fn missing_rows(&self) -> Vec<IntegrityProblem> {
        let is_readable = |session: &SessionId| !self.unreadable.contains(session);
        let turns = self
            .turns
            .iter()
            .filter(|(key, row)| is_readable(&row.session) && !self.found_turns.contains(key));
        let approvals = self.approvals.iter().filter(|(call, row)| {
            is_readable(&row.session) && !self.found_approvals.contains(*call)
        });
        let turns = turns.map(|(_, row)| missing("turns", row.turn));
        let approvals = approvals.map(|(call, _)| missing("approvals", *call));
        turns.chain(approvals).collect()
    }
}

impl DerivedSession {
    fn apply(&mut self, update: SessionUpdate) {
        let principal = update.principal.map(|principal| principal.to_string());
        self.principal = principal.or(self.principal.take());
        self.labels = (!update.labels.is_empty())
            .then(|| encode_json(&update.labels).ok())
            .flatten();
        if let Some(last) = update.last_run {
            self.run = i64::try_from(last.run).ok();
            self.run_state = Some(last.state.as_str().to_owned());
            self.run_at = Some(last.at.as_micros());
        }
    }
}

fn missing(table: &'static str, row: impl ToString) -> IntegrityProblem {
    IntegrityProblem::Row {
        table,
        row: row.to_string(),
        problem: "is missing, but is in the log of its session".into(),
    }
}
