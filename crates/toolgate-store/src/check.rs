//! What a check of a database can find.

use toolgate_core::{CallId, LedgerHead, LedgerName, SealedEntry, SessionId};

/// Something that is wrong with what a database holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The database itself says that it is damaged.
    #[error("the database reports: {message}")]
    Database {
        /// What it says.
        message: String,
    },
    /// The log of a session does not have the events 1 to its revision.
    #[error(
        "session {session} is at revision {revision}, but has {events} events and ends with {last}"
    )]
    Log {
        /// Which session.
        session: SessionId,
        /// Where it says its log ends.
        revision: u64,
        /// How many events there are.
        events: u64,
        /// The number of the last one.
        last: u64,
    },
    /// A chain is broken: this entry is missing, was changed, or does not follow the one before it.
    #[error("ledger {ledger} is broken at entry {counter}")]
    Chain {
        /// Which chain.
        ledger: LedgerName,
        /// The first bad entry.
        counter: u64,
    },
    /// The end of a chain is not where the list of chains says it is.
    #[error("ledger {ledger} should end with entry {expected}, but ends with {found}")]
    End {
        /// Which chain.
        ledger: LedgerName,
        /// Where it should end.
        expected: u64,
        /// Where it ends.
        found: u64,
    },
    /// An approval is listed, but its question is not there.
    #[error("the question {generation} about call {call} is missing")]
    Question {
        /// About which call.
        call: CallId,
        /// Asked for the how-manieth time.
        generation: u32,
    },
    /// Something that is stored cannot be read.
    #[error("{what} cannot be read")]
    Unreadable {
        /// What it is.
        what: String,
    },
}

/// Follows one chain after the other and notes the first bad entry of each.
#[derive(Default)]
pub(crate) struct ChainCheck {
    at: Option<(LedgerHead, bool)>,
    ends: Vec<LedgerHead>,
    pub(crate) problems: Vec<Problem>,
}

impl ChainCheck {
    /// Takes the next entry; entries come by ledger and number.
    pub(crate) fn entry(&mut self, entry: &SealedEntry) {
        let (before, broken) = match self.at.take() {
            Some((head, broken)) if head.ledger == entry.ledger => (head, broken),
            other => {
                self.ends.extend(other.map(|(head, _)| head));
                (LedgerHead::start(entry.ledger.clone()), false)
            }
        };
        let breaks = !broken && !entry.follows(&before);
        if breaks {
            let counter = entry.counter.min(before.counter + 1);
            self.problems.push(Problem::Chain {
                ledger: entry.ledger.clone(),
                counter,
            });
        }
        self.at = Some((entry.head(), broken || breaks));
    }

    /// Compares the ends with those that the list of chains names.
    pub(crate) fn finish(mut self, heads: &[LedgerHead]) -> Vec<Problem> {
        self.ends.extend(self.at.take().map(|(head, _)| head));
        for head in heads {
            let end = self.ends.iter().find(|end| end.ledger == head.ledger);
            if end != Some(head) {
                let (expected, found) = (head.counter, end.map_or(0, |end| end.counter));
                self.problems.push(Problem::End {
                    ledger: head.ledger.clone(),
                    expected,
                    found,
                });
            }
        }
        for end in self
            .ends
            .iter()
            .filter(|end| !heads.iter().any(|head| head.ledger == end.ledger))
        {
            self.problems.push(Problem::End {
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
        let mut head = LedgerHead::start(LedgerName::main());
        let mut chain = Vec::new();
        for n in 1..=4 {
            chain.push(head.seal(format!("{{\"n\":{n}}}").into()));
            head = chain[n - 1].head();
        }
        chain
    }

    fn check(chain: &[SealedEntry], head: LedgerHead) -> Vec<Problem> {
        let mut check = ChainCheck::default();
        chain.iter().for_each(|entry| check.entry(entry));
        check.finish(&[head])
    }

    #[test]
    fn a_whole_chain_has_no_problems() {
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
            [Problem::Chain {
                ledger: main.clone(),
                counter: 2
            }]
        );
        let mut short = whole.clone();
        short.remove(2);
        assert_eq!(
            check(&short, head.clone()),
            [Problem::Chain {
                ledger: main.clone(),
                counter: 3
            }]
        );
        let truncated = &whole[..3];
        assert_eq!(
            check(truncated, head),
            [Problem::End {
                ledger: main,
                expected: 4,
                found: 3
            }]
        );
    }
}
