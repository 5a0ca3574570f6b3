//! The problems that a check of a database can find.

use toolgate_core::{CallId, LedgerHead, LedgerName, SealedEntry, SessionId};

/// A problem with the content of a database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntegrityProblem {
    /// The database itself reports that it is damaged.
    #[error("the database reports: {message}")]
    Database {
        /// The message of the database.
        message: String,
    },
    /// The log of a session does not consist of the events 1 to its revision.
    #[error(
        "session {session} is at revision {revision}, but has {events} events and ends with {last}"
    )]
    Log {
        /// The session.
        session: SessionId,
        /// The revision that the session's row states.
        revision: u64,
        /// The number of events in the log.
        events: u64,
        /// The sequence number of the last event.
        last: u64,
    },
    /// A chain is broken: this entry is missing, was changed, or does not follow the one before it.
    #[error("ledger {ledger} is broken at entry {counter}")]
    Chain {
        /// The ledger.
        ledger: LedgerName,
        /// The first bad entry.
        counter: u64,
    },
    /// A chain does not end where the list of ledgers says.
    #[error("ledger {ledger} should end with entry {expected}, but ends with {found}")]
    ChainEnd {
        /// The ledger.
        ledger: LedgerName,
        /// The last entry according to the list of ledgers.
        expected: u64,
        /// The last entry that was found.
        found: u64,
    },
    /// An approval is listed, but its approval request is missing.
    #[error("approval request {generation} of call {call} is missing")]
    MissingRequest {
        /// The call.
        call: CallId,
        /// The generation: how often approval of the call was requested.
        generation: u32,
    },
    /// A row of another table is damaged: it differs from its checksum, or from the log that it
    /// follows from.
    #[error("the row {row} of the table {table} {problem}")]
    Row {
        /// The table.
        table: &'static str,
        /// The key of the row.
        row: String,
        /// The problem.
        problem: String,
    },
    /// A stored value cannot be parsed.
    #[error("{what} cannot be read")]
    Unreadable {
        /// A description of the value.
        what: String,
    },
}

/// Lists the documents of search whose event is not there; that of a title has the number 0 and needs
/// the row of its session. The ids are texts, because they are shown.
pub(crate) const DOCUMENTS_WITHOUT_SOURCE: &str = "SELECT CAST(id AS text) FROM search_documents AS document
    WHERE (sequence = 0 AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = document.session))
        OR (sequence != 0 AND NOT EXISTS (SELECT 1 FROM events
            WHERE events.session = document.session AND events.sequence = document.sequence))
    ORDER BY document.id";

/// Returns the problem of a row that is damaged.
pub(crate) fn damaged_row(table: &'static str, row: String) -> IntegrityProblem {
    let problem = "is damaged".into();
    IntegrityProblem::Row {
        table,
        row,
        problem,
    }
}

/// Verifies one chain after the other and records the first bad entry of each.
#[derive(Default)]
pub(crate) struct ChainCheck {
    at: Option<(LedgerHead, bool)>,
    ends: Vec<LedgerHead>,
    pub(crate) problems: Vec<IntegrityProblem>,
}

impl ChainCheck {
    /// Checks the next entry; entries have to come sorted by ledger and counter.
    pub(crate) fn add_entry(&mut self, entry: &SealedEntry) {
        let (before, broken) = match self.at.take() {
            Some((head, broken)) if head.ledger == entry.ledger => (head, broken),
            other => {
                self.ends.extend(other.map(|(head, _)| head));
                (LedgerHead::start_of(entry.ledger.clone()), false)
            }
        };
        // After the first break every later entry would mismatch, too; one problem per chain is
        // enough.
        let breaks = !broken && !entry.follows(&before);
        if breaks {
            let counter = entry.counter.min(before.counter + 1);
            self.problems.push(IntegrityProblem::Chain {
                ledger: entry.ledger.clone(),
                counter,
            });
        }
        self.at = Some((entry.head(), broken || breaks));
    }

    /// Compares the ends with those in the list of ledgers.
    pub(crate) fn finish(mut self, heads: &[LedgerHead]) -> Vec<IntegrityProblem> {
        self.ends.extend(self.at.take().map(|(head, _)| head));
        for head in heads {
            let end = self.ends.iter().find(|end| end.ledger == head.ledger);
            if end != Some(head) {
                let expected = head.counter;
                let found = end.map_or(0, |end| end.counter);
                self.problems.push(IntegrityProblem::ChainEnd {
                    ledger: head.ledger.clone(),
                    expected,
                    found,
                });
            }
        }
        // Entries without a listed ledger are a problem as well: dropping a row from the list must
        // not hide them.
        for end in self
            .ends
            .iter()
            .filter(|end| !heads.iter().any(|head| head.ledger == end.ledger))
        {
            self.problems.push(IntegrityProblem::ChainEnd {
                ledger: end.ledger.clone(),
                expected: 0,
                found: end.counter,
            });
        }
        self.problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain() -> Vec<SealedEntry> {
        let mut head = LedgerHead::start_of(LedgerName::main());
        let mut chain = Vec::new();
        for n in 1..=4 {
            chain.push(head.seal_entry(format!("{{\"n\":{n}}}").into()));
            head = chain[n - 1].head();
        }
        chain
    }

    fn check(chain: &[SealedEntry], head: LedgerHead) -> Vec<IntegrityProblem> {
        let mut check = ChainCheck::default();
        chain.iter().for_each(|entry| check.add_entry(entry));
        check.finish(&[head])
    }

    #[test]
    fn an_intact_chain_has_no_problems() {
        let chain = chain();
        assert_eq!(check(&chain, chain[3].head()), []);
    }

    #[test]
    fn the_first_bad_entry_is_named() {
        let whole = chain();
        let head = whole[3].head();
        let main = LedgerName::main();
        let mut changed = whole.clone();
        changed[1].body = "{}".into();
        assert_eq!(
            check(&changed, head.clone()),
            [IntegrityProblem::Chain {
                ledger: main.clone(),
                counter: 2
            }]
        );
        let mut short = whole.clone();
        short.remove(2);
        assert_eq!(
            check(&short, head.clone()),
            [IntegrityProblem::Chain {
                ledger: main.clone(),
                counter: 3
            }]
        );
        let truncated = &whole[..3];
        assert_eq!(
            check(truncated, head),
            [IntegrityProblem::ChainEnd {
                ledger: main,
                expected: 4,
                found: 3
            }]
        );
    }
}
