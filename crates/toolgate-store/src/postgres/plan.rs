//! The plan of a group of writes: they are decided one after the other, and the rows of those that
//! are not rejected are collected. Each kind of write adds to the plan in the file of its trait.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use toolgate_core::{
    ApprovalRow, ApprovalState, CallId, Digest, LedgerHead, LedgerName, SealedEntry, SessionId,
    Timestamp, TurnId, TurnRow,
};

use super::locked_rows::{LockedRows, PostgresSessionState};
use crate::checksum::RowChecksum;

/// The result of a group of writes. Each write sees the changes of those before it in the group.
#[derive(Default)]
pub(super) struct PostgresWritePlan {
    pub(super) facts: LockedRows,
    /// The sessions that are not in the database yet.
    pub(super) new_sessions: BTreeSet<SessionId>,
    pub(super) changed_sessions: BTreeSet<SessionId>,
    pub(super) events: Vec<(SessionId, u64, String, RowChecksum)>,
    pub(super) records: Vec<(String, String, RowChecksum)>,
    pub(super) posts: BTreeMap<(SessionId, u64), String>,
    pub(super) taken: BTreeMap<SessionId, u64>,
    pub(super) turns: BTreeMap<(SessionId, TurnId), TurnRow>,
    pub(super) settled_turns: BTreeMap<(SessionId, TurnId), Timestamp>,
    pub(super) approvals: BTreeMap<CallId, ApprovalRow>,
    pub(super) marks: BTreeMap<CallId, ApprovalState>,
    pub(super) entries: Vec<SealedEntry>,
    pub(super) new_ledgers: BTreeSet<LedgerName>,
    pub(super) changed_ledgers: BTreeSet<LedgerName>,
    pub(super) blobs: HashMap<Digest, Bytes>,
}

impl PostgresWritePlan {
    pub(super) fn new(facts: LockedRows) -> Self {
        Self {
            facts,
            ..Self::default()
        }
    }

    /// Returns the state of a session after the writes so far.
    pub(super) fn session_state(&self, session: SessionId) -> PostgresSessionState {
        self.facts
            .sessions
            .get(&session)
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the end of a chain after the writes so far.
    pub(super) fn ledger_head(&self, ledger: &LedgerName) -> &LedgerHead {
        &self.facts.ledgers[ledger]
    }

    pub(super) fn change_session(&mut self, session: SessionId) -> &mut PostgresSessionState {
        if !self.facts.sessions.contains_key(&session) {
            self.new_sessions.insert(session);
        } else if !self.new_sessions.contains(&session) {
            self.changed_sessions.insert(session);
        }
        self.facts.sessions.entry(session).or_default()
    }
}
