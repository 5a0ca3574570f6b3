//! Compares a ledger with the calls that settled: a ledger that lost receipts is not intact, even if
//! what is left of its chain is.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use toolgate_core::{
    CallId, HiddenSessions, NoteFields, SessionFilter, SessionId, Status, ToolName, note_keys,
};

use crate::{
    Ledger, LedgerError,
    record::{ledger::PAGE_SIZE, receipts::store::receipt_uri},
};

/// The result of comparing a ledger with the calls that settled in the sessions of its store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OutcomeComparison {
    /// The number of settled calls that have their receipt.
    pub matched: u64,
    /// Settled calls whose receipt is missing.
    pub missing: Vec<ComparedCall>,
    /// Receipts of calls that did not settle in their session, or that have another receipt.
    pub excess: Vec<ComparedCall>,
    /// Receipts with another status than the call settled with.
    pub differing: Vec<ComparedCall>,
    /// The number of settled calls whose stack wrote no receipt to this ledger. Not an error: the
    /// receipt may be in a file or another ledger, or the stack has no such layer.
    pub elsewhere: u64,
    /// The number of receipts of sessions that are not in the store, because they were erased.
    pub erased: u64,
}

/// A call for which ledger and outcomes disagree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComparedCall {
    /// The call.
    pub call: CallId,
    /// Its session.
    pub session: SessionId,
    /// Its tool.
    pub tool: ToolName,
}

/// The calls that settled, by session.
#[derive(Default)]
struct SettledCalls {
    sessions: HashSet<SessionId>,
    calls: HashMap<CallId, SettledCall>,
}

struct SettledCall {
    session: SessionId,
    tool: ToolName,
    status: Status,
    has_receipt: bool,
}

impl OutcomeComparison {
    /// Checks whether ledger and outcomes agree.
    pub fn agrees(&self) -> bool {
        self.missing.is_empty() && self.excess.is_empty() && self.differing.is_empty()
    }
}

impl Ledger {
    /// Compares the receipts with the calls that settled in the sessions of the store, also in
    /// hidden ones. The chain itself is not verified; [`Ledger::verify`] does that.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, or with the number of an entry that is not a receipt.
    pub async fn compare_outcomes(&self) -> Result<OutcomeComparison, LedgerError> {
        // Calls first: a receipt is written with its outcome, so what has settled by now is in the
        // ledger that is read afterwards.
        let mut settled = self.load_settled_calls().await?;
        let mut found = OutcomeComparison::default();
        let mut after = 0;
        loop {
            let entries = self.read_entries(after).await?;
            let Some(last) = entries.last() else { break };
            after = last.counter;
            for entry in &entries {
                self.compare_receipt(entry, &mut settled, &mut found)
                    .await?;
            }
        }
        self.find_missing(settled, &mut found).await?;
        Ok(found)
    }

    async fn compare_receipt(
        &self,
        entry: &toolgate_core::SealedEntry,
        settled: &mut SettledCalls,
        found: &mut OutcomeComparison,
    ) -> Result<(), LedgerError> {
        let receipt = self.parse_receipt(entry)?.receipt;
        let compared = || ComparedCall {
            call: receipt.invocation_id,
            session: receipt.session_id,
            tool: receipt.tool_name.clone(),
        };
        match settled.calls.get_mut(&receipt.invocation_id) {
            Some(call) if call.has_receipt => found.excess.push(compared()),
            Some(call) => {
                call.has_receipt = true;
                if call.status == receipt.status && call.session == receipt.session_id {
                    found.matched += 1;
                } else {
                    found.differing.push(compared());
                }
            }
            None if !settled.sessions.contains(&receipt.session_id) => {
                // A session that began after the calls were read is in the store, too.
                match self.store.revision(receipt.session_id).await? {
                    0 => found.erased += 1,
                    _ => {
                        self.check_late_receipt(compared(), receipt.status, found)
                            .await?
                    }
                }
            }
            None => {
                self.check_late_receipt(compared(), receipt.status, found)
                    .await?
            }
        }
        Ok(())
    }

    /// Compares a receipt with an outcome that was written after the calls were read.
    async fn check_late_receipt(
        &self,
        compared: ComparedCall,
        status: Status,
        found: &mut OutcomeComparison,
    ) -> Result<(), LedgerError> {
        match self.store.load_outcome(compared.call).await? {
            Some(outcome) if outcome.status == status => found.matched += 1,
            Some(_) => found.differing.push(compared),
            None => found.excess.push(compared),
        }
        Ok(())
    }

    /// Adds the settled calls that should have a receipt in this ledger and have none.
    async fn find_missing(
        &self,
        settled: SettledCalls,
        found: &mut OutcomeComparison,
    ) -> Result<(), LedgerError> {
        let left = settled
            .calls
            .into_iter()
            .filter(|(_, call)| !call.has_receipt);
        for (call, SettledCall { session, tool, .. }) in left {
            let outcome = self.store.load_outcome(call).await?;
            let notes = outcome.as_ref().and_then(|outcome| outcome.notes.fields());
            let uri = notes.and_then(NoteFields::receipt_location);
            let lost = notes.is_some_and(|notes| {
                matches!(notes.get(note_keys::RECEIPT_MISSING), Ok(Some(true)))
            });
            // Without its outcome nothing says that the call had no receipt.
            if outcome.is_some() && !lost && uri != Some(&*receipt_uri(self.name(), call)) {
                found.elsewhere += 1;
            } else if self.store.revision(session).await? > 0 {
                found.missing.push(ComparedCall {
                    call,
                    session,
                    tool,
                });
            }
        }
        found.missing.sort_by_key(|missing| missing.call);
        Ok(())
    }

    async fn load_settled_calls(&self) -> Result<SettledCalls, LedgerError> {
        let mut settled = SettledCalls::default();
        let mut after = None;
        loop {
            let filter = SessionFilter {
                after,
                hidden: HiddenSessions::Included,
                limit: PAGE_SIZE,
                ..SessionFilter::default()
            };
            let rows = self.store.sessions(filter).await?;
            let Some(last) = rows.last() else {
                return Ok(settled);
            };
            after = Some(last.session);
            for row in &rows {
                settled.sessions.insert(row.session);
                self.load_settled_in(row.session, &mut settled).await?;
            }
        }
    }

    async fn load_settled_in(
        &self,
        session: SessionId,
        settled: &mut SettledCalls,
    ) -> Result<(), LedgerError> {
        let mut after = 0;
        loop {
            let events = self.store.events(session, after, PAGE_SIZE).await?;
            let Some(last) = events.last() else {
                return Ok(());
            };
            after = last.sequence();
            for event in &events {
                let Some((invocation, happened)) = event.as_tool() else {
                    continue;
                };
                if let Some(status) = happened.terminal_status() {
                    let call = SettledCall {
                        session,
                        tool: invocation.tool.clone(),
                        status,
                        has_receipt: false,
                    };
                    settled.calls.insert(invocation.id, call);
                }
            }
        }
    }
}
