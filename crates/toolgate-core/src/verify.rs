//! Goes through a chain of entries in order and says where it was tampered with, if it was.

use std::{collections::BTreeMap, fmt};

use crate::{
    Checkpoint, Digest, DoubtfulCheckpoint, EntryOutline, LedgerHead, LedgerName, LedgerVerifier,
    SealedEntry, is_canonical_object,
};

/// Checks a chain while it is read. It needs no store and keeps nothing but the place it has come to.
///
/// ```
/// use toolgate_core::{LedgerCheck, LedgerHead, LedgerName, SealedEntry, Tampering};
/// let first = LedgerHead::start(LedgerName::main()).seal(r#"{"n":1}"#.into());
/// let second = first.head().seal(r#"{"n":2}"#.into());
/// let mut check = LedgerCheck::of(LedgerName::main());
/// check.feed(&first)?;
/// let bad = check.clone().feed(&SealedEntry { body: r#"{"n":3}"#.into(), ..second.clone() }).unwrap_err();
/// assert_eq!((bad.counter, bad.what), (2, Tampering::Changed));
/// check.feed(&second)?;
/// assert_eq!(check.finish()?.counter, 2);
/// # Ok::<(), Box<toolgate_core::Tampered>>(())
/// ```
#[derive(Debug, Clone)]
pub struct LedgerCheck {
    head: LedgerHead,
    /// What was signed about places that have not been reached yet.
    ahead: BTreeMap<u64, Vec<Digest>>,
    /// The last place that a checkpoint vouches for.
    signed: Option<u64>,
}

/// A chain in which nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Which chain.
    pub ledger: LedgerName,
    /// The number of its last entry.
    pub counter: u64,
    /// The hash of that entry.
    pub hash: Digest,
    /// Up to which entry a checkpoint vouches for it. Behind that, nothing shows whether entries are missing at the end.
    pub signed: Option<u64>,
}

/// A chain that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ledger {ledger}, record {counter}: {what}")]
pub struct Tampered {
    /// Which chain.
    pub ledger: LedgerName,
    /// The number of the first record that is not as it should be.
    pub counter: u64,
    /// What is wrong with it.
    pub what: Tampering,
}

/// What is wrong with a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tampering {
    /// It was changed: its hash is not the one of its contents.
    Changed,
    /// It is missing; the record with this number stands in its place.
    Missing(u64),
    /// The record with this number stands in its place, which comes again or too late.
    Repeated(u64),
    /// It does not continue the record before it: one of the two was put in or written anew.
    Unconnected,
    /// It belongs to another chain.
    WrongLedger(LedgerName),
    /// Its body is not a JSON object in its canonical form.
    NotCanonical,
    /// Its body cannot be read as what it should be.
    Unreadable,
    /// It is missing, and everything behind it; a checkpoint says that the chain went on to this number.
    Truncated(u64),
    /// A checkpoint says that another record stood here. What lies behind the checkpoint before it was written anew.
    NotAsSigned {
        /// The number of the last record that was signed and is as it was.
        since: u64,
    },
    /// A checkpoint about it cannot be believed.
    Checkpoint(DoubtfulCheckpoint),
}

impl fmt::Display for Tampering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("it was changed"),
            Self::Missing(found) => write!(f, "it is missing; record {found} stands in its place"),
            Self::Repeated(found) => {
                write!(f, "record {found} stands in its place, again or too late")
            }
            Self::Unconnected => f.write_str("it does not continue the record before it"),
            Self::WrongLedger(found) => write!(f, "it belongs to the ledger {found}"),
            Self::NotCanonical => f.write_str("its body is not a JSON object in canonical form"),
            Self::Unreadable => f.write_str("it cannot be read"),
            Self::Truncated(counter) => write!(
                f,
                "it is missing, though the ledger once went on to record {counter}"
            ),
            Self::NotAsSigned { since } => {
                write!(
                    f,
                    "it is not the one that was signed; changed behind record {since}"
                )
            }
            Self::Checkpoint(doubt) => {
                write!(f, "the checkpoint about it is not to be believed: {doubt}")
            }
        }
    }
}

impl LedgerCheck {
    /// Checks a chain from its beginning, by itself.
    pub fn of(ledger: LedgerName) -> Self {
        Self {
            head: LedgerHead::start(ledger),
            ahead: BTreeMap::new(),
            signed: None,
        }
    }

    /// Checks what comes behind a place that is known to be good.
    pub fn behind(head: LedgerHead) -> Self {
        Self {
            head,
            ahead: BTreeMap::new(),
            signed: None,
        }
    }

    /// Checks it against what was signed about it as well. Each checkpoint has to be by somebody whom `verifier`
    /// believes.
    pub fn against<'a>(
        ledger: LedgerName,
        checkpoints: impl IntoIterator<Item = &'a Checkpoint>,
        verifier: &LedgerVerifier,
    ) -> Result<Self, Box<Tampered>> {
        let mut check = Self::of(ledger);
        for checkpoint in checkpoints {
            if checkpoint.ledger != check.head.ledger {
                return check.bad(
                    checkpoint.counter,
                    Tampering::WrongLedger(checkpoint.ledger.clone()),
                );
            }
            if let Err(doubt) = verifier.verify(checkpoint) {
                return check.bad(checkpoint.counter, Tampering::Checkpoint(doubt));
            }
            check
                .ahead
                .entry(checkpoint.counter)
                .or_default()
                .push(checkpoint.hash);
        }
        check.compare_with_signed()?;
        Ok(check)
    }

    /// Where it has come to.
    pub fn head(&self) -> &LedgerHead {
        &self.head
    }

    /// Takes the next entry. After an error there is no going on.
    pub fn feed(&mut self, entry: &SealedEntry) -> Result<(), Box<Tampered>> {
        self.fits(&entry.outline())?;
        if !is_canonical_object(&entry.body) {
            return self.bad(entry.counter, Tampering::NotCanonical);
        }
        self.move_to(entry.head())
    }

    /// Takes the next entry, of which only the outline is known.
    pub fn pass(&mut self, outline: &EntryOutline) -> Result<(), Box<Tampered>> {
        self.fits(outline)?;
        self.move_to(outline.head())
    }

    fn move_to(&mut self, head: LedgerHead) -> Result<(), Box<Tampered>> {
        self.head = head;
        self.compare_with_signed()
    }

    fn fits(&self, entry: &EntryOutline) -> Result<(), Box<Tampered>> {
        let expected = self.head.counter + 1;
        let what = if entry.ledger != self.head.ledger {
            Some(Tampering::WrongLedger(entry.ledger.clone()))
        } else if entry.counter > expected {
            Some(Tampering::Missing(entry.counter))
        } else if entry.counter < expected {
            Some(Tampering::Repeated(entry.counter))
        } else if !entry.is_whole() {
            Some(Tampering::Changed)
        } else if entry.previous != self.head.hash {
            Some(Tampering::Unconnected)
        } else {
            None
        };
        what.map_or(Ok(()), |what| self.bad(expected, what))
    }

    /// Says that the entry which was expected next cannot be what it should be.
    pub fn unreadable(&self) -> Box<Tampered> {
        self.tampered(self.head.counter + 1, Tampering::Unreadable)
    }

    /// There are no more entries.
    pub fn finish(self) -> Result<Verified, Box<Tampered>> {
        if let Some(last) = self.ahead.keys().next_back() {
            return self.bad(self.head.counter + 1, Tampering::Truncated(*last));
        }
        let LedgerHead {
            ledger,
            counter,
            hash,
        } = self.head;
        Ok(Verified {
            ledger,
            counter,
            hash,
            signed: self.signed,
        })
    }

    fn compare_with_signed(&mut self) -> Result<(), Box<Tampered>> {
        let Some(signed) = self.ahead.remove(&self.head.counter) else {
            return Ok(());
        };
        if signed.iter().any(|hash| *hash != self.head.hash) {
            return self.bad(
                self.head.counter,
                Tampering::NotAsSigned {
                    since: self.signed.unwrap_or(0),
                },
            );
        }
        self.signed = Some(self.head.counter);
        Ok(())
    }

    fn tampered(&self, counter: u64, what: Tampering) -> Box<Tampered> {
        Box::new(Tampered {
            ledger: self.head.ledger.clone(),
            counter,
            what,
        })
    }

    fn bad<T>(&self, counter: u64, what: Tampering) -> Result<T, Box<Tampered>> {
        Err(self.tampered(counter, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LedgerKey, Timestamp};

    fn chain(length: u64) -> Vec<SealedEntry> {
        let mut head = LedgerHead::start(LedgerName::main());
        let next = |n| {
            let entry = head.seal(format!(r#"{{"n":{n}}}"#).into());
            head = entry.head();
            entry
        };
        (1..=length).map(next).collect()
    }

    fn checked(
        entries: &[SealedEntry],
        checkpoints: &[Checkpoint],
    ) -> Result<Verified, (u64, Tampering)> {
        let all = || {
            let mut check =
                LedgerCheck::against(LedgerName::main(), checkpoints, &key().verifier())?;
            entries.iter().try_for_each(|entry| check.feed(entry))?;
            check.finish()
        };
        all().map_err(|bad| (bad.counter, bad.what))
    }

    fn key() -> LedgerKey {
        LedgerKey::from_bytes(&[3; 32])
    }

    fn signed(entry: &SealedEntry) -> Checkpoint {
        Checkpoint::sign(&entry.head(), Timestamp::EPOCH, &key())
    }

    #[test]
    fn a_chain_as_it_was_written_is_verified_to_its_end() {
        let chain = chain(5);
        let verified =
            checked(&chain, &[signed(&chain[1]), signed(&chain[3])]).expect("as written");
        assert_eq!(
            (verified.counter, verified.hash, verified.signed),
            (5, chain[4].hash, Some(4))
        );
        assert_eq!(
            checked(&[], &[])
                .expect("nothing is wrong with nothing")
                .counter,
            0
        );
    }

    #[test]
    fn each_way_to_tamper_has_its_name_and_names_the_first_bad_record() {
        let whole = chain(5);
        let with = |change: &dyn Fn(&mut Vec<SealedEntry>)| {
            let mut chain = whole.clone();
            change(&mut chain);
            checked(&chain, &[]).expect_err("tampered with")
        };
        let resealed = |entry: &SealedEntry, body: &str| {
            let before = LedgerHead {
                counter: entry.counter - 1,
                hash: entry.previous,
                ledger: entry.ledger.clone(),
            };
            before.seal(body.into())
        };
        assert_eq!(with(&|c| c[1].body = "{}".into()), (2, Tampering::Changed));
        assert_eq!(with(&|c| drop(c.remove(1))), (2, Tampering::Missing(3)));
        assert_eq!(
            with(&|c| c.insert(2, c[1].clone())),
            (3, Tampering::Repeated(2))
        );
        assert_eq!(with(&|c| c.swap(1, 3)), (2, Tampering::Missing(4)));
        assert_eq!(
            with(&|c| c[1] = resealed(&c[1], "{}")),
            (3, Tampering::Unconnected)
        );
        assert_eq!(
            with(&|c| c[4] = resealed(&c[4], r#"{ "n": 1 }"#)),
            (5, Tampering::NotCanonical)
        );
        assert_eq!(
            with(&|c| c[4] = resealed(&c[4], "[1]")),
            (5, Tampering::NotCanonical)
        );
        let other: LedgerName = "other".parse().expect("a name");
        let moved = LedgerHead {
            ledger: other.clone(),
            counter: 1,
            hash: whole[0].hash,
        }
        .seal("{}".into());
        assert_eq!(
            with(&|c| c[1] = moved.clone()),
            (2, Tampering::WrongLedger(other.clone()))
        );
    }

    #[test]
    fn checkpoints_tell_what_a_chain_alone_cannot() {
        let whole = chain(5);
        let marks = [signed(&whole[1]), signed(&whole[4])];
        assert_eq!(
            checked(&whole[..4], &marks),
            Err((5, Tampering::Truncated(5)))
        );
        assert_eq!(checked(&[], &marks), Err((1, Tampering::Truncated(5))));
        let mut anew = whole[..2].to_vec();
        for n in 3..=5 {
            anew.push(
                anew.last()
                    .expect("two")
                    .head()
                    .seal(format!(r#"{{"m":{n}}}"#).into()),
            );
        }
        assert!(
            checked(&anew, &marks[..1]).is_ok(),
            "nobody had signed the rest"
        );
        assert_eq!(
            checked(&anew, &marks),
            Err((5, Tampering::NotAsSigned { since: 2 }))
        );
    }

    #[test]
    fn a_checkpoint_that_cannot_be_believed_is_tampering_too() {
        let whole = chain(3);
        let theirs = LedgerKey::from_bytes(&[4; 32]);
        let unknown = Checkpoint::sign(&whole[2].head(), Timestamp::EPOCH, &theirs);
        let doubt = DoubtfulCheckpoint::UnknownKey(theirs.id());
        assert_eq!(
            checked(&whole, &[unknown]),
            Err((3, Tampering::Checkpoint(doubt)))
        );
        let forged = Checkpoint {
            counter: 2,
            ..signed(&whole[2])
        };
        assert_eq!(
            checked(&whole, &[forged]),
            Err((2, Tampering::Checkpoint(DoubtfulCheckpoint::Forged)))
        );
        let other: LedgerName = "other".parse().expect("a name");
        let start = Checkpoint::sign(&LedgerHead::start(other.clone()), Timestamp::EPOCH, &key());
        assert_eq!(
            checked(&whole, &[start]),
            Err((0, Tampering::WrongLedger(other)))
        );
    }
}
