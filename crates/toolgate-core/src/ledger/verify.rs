//! Verification of a chain, entry by entry, up to the first one that was tampered with.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::{
    Checkpoint, CheckpointError, Digest, EntryOutline, LedgerHead, LedgerName, LedgerVerifier,
    SealedEntry, is_canonical_object,
};

/// Verifies a chain while it is read. It needs no store and only remembers its position.
///
/// ```
/// use toolgate_core::{LedgerVerification, LedgerHead, LedgerName, SealedEntry, TamperKind};
/// let first = LedgerHead::start_of(LedgerName::main()).seal_entry(r#"{"n":1}"#.into());
/// let second = first.head().seal_entry(r#"{"n":2}"#.into());
/// let mut check = LedgerVerification::from_start(LedgerName::main());
/// check.verify_entry(&first)?;
/// let bad = check.clone().verify_entry(&SealedEntry { body: r#"{"n":3}"#.into(), ..second.clone() }).unwrap_err();
/// assert_eq!((bad.counter, bad.what), (2, TamperKind::Changed));
/// check.verify_entry(&second)?;
/// assert_eq!(check.finish()?.counter, 2);
/// # Ok::<(), Box<toolgate_core::TamperedLedger>>(())
/// ```
#[derive(Debug, Clone)]
pub struct LedgerVerification {
    head: LedgerHead,
    /// The checkpoints of positions that were not reached yet.
    ahead: BTreeMap<u64, Vec<Digest>>,
    /// The last position confirmed by a checkpoint.
    signed: Option<u64>,
    /// The checkpoints of keys that are not trusted.
    not_checked: Vec<UncheckedCheckpoint>,
}

/// A checkpoint that was not checked, because its key is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UncheckedCheckpoint {
    /// The number of the entry that it is about.
    pub counter: u64,
    /// The digest of the key.
    pub key: Digest,
}

/// The result for a chain that passed verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedLedger {
    /// The chain.
    pub ledger: LedgerName,
    /// The number of its last entry.
    pub counter: u64,
    /// The hash of that entry.
    pub hash: Digest,
    /// The last entry confirmed by a checkpoint. After it, missing entries at the end would go
    /// unnoticed.
    pub signed: Option<u64>,
    /// The checkpoints of keys that are not trusted. They prove nothing and were not checked.
    pub not_checked: Vec<UncheckedCheckpoint>,
}

impl VerifiedLedger {
    /// Returns the position of its last entry.
    pub fn head(&self) -> LedgerHead {
        LedgerHead {
            ledger: self.ledger.clone(),
            counter: self.counter,
            hash: self.hash,
        }
    }
}

/// An error for a chain that failed verification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ledger {ledger}, record {counter}: {what}")]
pub struct TamperedLedger {
    /// The chain.
    pub ledger: LedgerName,
    /// The number of the first record that failed verification.
    pub counter: u64,
    /// The problem with it.
    pub what: TamperKind,
}

/// The problem with a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TamperKind {
    /// It was changed: its hash does not match its content.
    Changed,
    /// It is missing; the record with this number is at its position.
    Missing(u64),
    /// The record with this number is at its position, repeated or out of order.
    Repeated(u64),
    /// It does not continue the record before it: one of the two was inserted or rewritten.
    Unconnected,
    /// It belongs to another chain.
    WrongLedger(LedgerName),
    /// Its body is not a JSON object in its canonical form.
    NotCanonical,
    /// Its body cannot be parsed.
    Unreadable,
    /// It is missing, and everything after it; a checkpoint proves that the chain reached this
    /// number.
    Truncated(u64),
    /// A checkpoint proves that another record was here. Everything after the checkpoint before it
    /// was rewritten.
    SignatureMismatch {
        /// The number of the last signed record that is unchanged.
        since: u64,
    },
    /// Verification of a checkpoint about it failed.
    Checkpoint(CheckpointError),
}

impl fmt::Display for TamperKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("it was changed"),
            Self::Missing(found) => write!(f, "it is missing; record {found} is at its position"),
            Self::Repeated(found) => {
                write!(
                    f,
                    "record {found} is at its position, repeated or out of order"
                )
            }
            Self::Unconnected => f.write_str("it does not continue the record before it"),
            Self::WrongLedger(found) => write!(f, "it belongs to the ledger {found}"),
            Self::NotCanonical => f.write_str("its body is not a JSON object in canonical form"),
            Self::Unreadable => f.write_str("it cannot be read"),
            Self::Truncated(counter) => write!(
                f,
                "it is missing, although the ledger once reached record {counter}"
            ),
            Self::SignatureMismatch { since } => {
                write!(
                    f,
                    "it is not the one that was signed; changed after record {since}"
                )
            }
            Self::Checkpoint(doubt) => {
                write!(f, "verification of its checkpoint failed: {doubt}")
            }
        }
    }
}

impl LedgerVerification {
    /// Starts verification at the beginning of a chain, without checkpoints.
    pub fn from_start(ledger: LedgerName) -> Self {
        Self {
            head: LedgerHead::start_of(ledger),
            ahead: BTreeMap::new(),
            signed: None,
            not_checked: Vec::new(),
        }
    }

    /// Starts verification after a position that is known to be valid.
    pub fn after_head(head: LedgerHead) -> Self {
        Self {
            head,
            ahead: BTreeMap::new(),
            signed: None,
            not_checked: Vec::new(),
        }
    }

    /// Starts verification at the beginning of a chain, against its checkpoints. Those of keys that
    /// `verifier` does not trust are listed in the result and change nothing: who can write a
    /// foreign checkpoint must not be able to switch off the check of our own.
    ///
    /// # Errors
    ///
    /// [`TamperedLedger`] if a checkpoint of a trusted key is forged, or belongs to another chain.
    pub fn with_checkpoints<'a>(
        ledger: LedgerName,
        checkpoints: impl IntoIterator<Item = &'a Checkpoint>,
        verifier: &LedgerVerifier,
    ) -> Result<Self, Box<TamperedLedger>> {
        let mut check = Self::from_start(ledger);
        for checkpoint in checkpoints {
            if checkpoint.ledger != check.head.ledger {
                return check.fail_at(
                    checkpoint.counter,
                    TamperKind::WrongLedger(checkpoint.ledger.clone()),
                );
            }
            match verifier.verify(checkpoint) {
                Ok(()) => {}
                Err(CheckpointError::UnknownKey(key)) => {
                    let counter = checkpoint.counter;
                    check.not_checked.push(UncheckedCheckpoint { counter, key });
                    continue;
                }
                Err(doubt @ CheckpointError::Forged) => {
                    return check.fail_at(checkpoint.counter, TamperKind::Checkpoint(doubt));
                }
            }
            check
                .ahead
                .entry(checkpoint.counter)
                .or_default()
                .push(checkpoint.hash);
        }
        // A checkpoint of the empty chain is at position 0, which is already reached.
        check.compare_with_signed()?;
        Ok(check)
    }

    /// Returns the position it has reached.
    pub fn head(&self) -> &LedgerHead {
        &self.head
    }

    /// Verifies the next entry. After an error the verification cannot continue.
    ///
    /// # Errors
    ///
    /// [`TamperedLedger`] if the entry is not the one that has to follow.
    pub fn verify_entry(&mut self, entry: &SealedEntry) -> Result<(), Box<TamperedLedger>> {
        self.check_next(&entry.outline())?;
        // A body that can be read in two ways, with a key twice for example, is no evidence.
        if !is_canonical_object(&entry.body) {
            return self.fail_at(entry.counter, TamperKind::NotCanonical);
        }
        self.move_to(entry.head())
    }

    /// Verifies the next entry by its outline.
    ///
    /// # Errors
    ///
    /// [`TamperedLedger`] if the entry is not the one that has to follow.
    pub fn verify_outline(&mut self, outline: &EntryOutline) -> Result<(), Box<TamperedLedger>> {
        self.check_next(outline)?;
        self.move_to(outline.head())
    }

    fn move_to(&mut self, head: LedgerHead) -> Result<(), Box<TamperedLedger>> {
        self.head = head;
        self.compare_with_signed()
    }

    fn check_next(&self, entry: &EntryOutline) -> Result<(), Box<TamperedLedger>> {
        let expected = self.head.counter + 1;
        // Positions before hashes: a missing entry also breaks the chain, but "missing" says more.
        let what = if entry.ledger != self.head.ledger {
            Some(TamperKind::WrongLedger(entry.ledger.clone()))
        } else if entry.counter > expected {
            Some(TamperKind::Missing(entry.counter))
        } else if entry.counter < expected {
            Some(TamperKind::Repeated(entry.counter))
        } else if !entry.is_intact() {
            Some(TamperKind::Changed)
        } else if entry.previous != self.head.hash {
            Some(TamperKind::Unconnected)
        } else {
            None
        };
        what.map_or(Ok(()), |what| self.fail_at(expected, what))
    }

    /// Returns the error for a next entry that cannot be parsed.
    pub fn unreadable_entry(&self) -> Box<TamperedLedger> {
        self.tamper_error(self.head.counter + 1, TamperKind::Unreadable)
    }

    /// Ends the verification after the last entry.
    ///
    /// # Errors
    ///
    /// [`TamperedLedger`] if a checkpoint proves that there were more entries.
    pub fn finish(self) -> Result<VerifiedLedger, Box<TamperedLedger>> {
        // A checkpoint beyond the last entry proves that the end was removed.
        if let Some(last) = self.ahead.keys().next_back() {
            return self.fail_at(self.head.counter + 1, TamperKind::Truncated(*last));
        }
        let LedgerHead {
            ledger,
            counter,
            hash,
        } = self.head;
        Ok(VerifiedLedger {
            ledger,
            counter,
            hash,
            signed: self.signed,
            not_checked: self.not_checked,
        })
    }

    fn compare_with_signed(&mut self) -> Result<(), Box<TamperedLedger>> {
        let Some(signed) = self.ahead.remove(&self.head.counter) else {
            return Ok(());
        };
        if signed.iter().any(|hash| *hash != self.head.hash) {
            return self.fail_at(
                self.head.counter,
                TamperKind::SignatureMismatch {
                    since: self.signed.unwrap_or(0),
                },
            );
        }
        self.signed = Some(self.head.counter);
        Ok(())
    }

    fn tamper_error(&self, counter: u64, what: TamperKind) -> Box<TamperedLedger> {
        Box::new(TamperedLedger {
            ledger: self.head.ledger.clone(),
            counter,
            what,
        })
    }

    fn fail_at<T>(&self, counter: u64, what: TamperKind) -> Result<T, Box<TamperedLedger>> {
        Err(self.tamper_error(counter, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LedgerKey, Timestamp};

    fn chain(length: u64) -> Vec<SealedEntry> {
        let mut head = LedgerHead::start_of(LedgerName::main());
        let next = |n| {
            let entry = head.seal_entry(format!(r#"{{"n":{n}}}"#).into());
            head = entry.head();
            entry
        };
        (1..=length).map(next).collect()
    }

    fn verify_chain(
        entries: &[SealedEntry],
        checkpoints: &[Checkpoint],
    ) -> Result<VerifiedLedger, (u64, TamperKind)> {
        let all = || {
            let mut check = LedgerVerification::with_checkpoints(
                LedgerName::main(),
                checkpoints,
                &key().to_verifier(),
            )?;
            entries
                .iter()
                .try_for_each(|entry| check.verify_entry(entry))?;
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
    fn an_unchanged_chain_is_verified_to_its_end() {
        let chain = chain(5);
        let verified =
            verify_chain(&chain, &[signed(&chain[1]), signed(&chain[3])]).expect("as written");
        assert_eq!(
            (verified.counter, verified.hash, verified.signed),
            (5, chain[4].hash, Some(4))
        );
        assert_eq!(
            verify_chain(&[], &[])
                .expect("an empty chain is valid")
                .counter,
            0
        );
    }

    #[test]
    fn each_kind_of_tampering_names_the_first_bad_record() {
        let whole = chain(5);
        let with = |change: &dyn Fn(&mut Vec<SealedEntry>)| {
            let mut chain = whole.clone();
            change(&mut chain);
            verify_chain(&chain, &[]).expect_err("tampered with")
        };
        let resealed = |entry: &SealedEntry, body: &str| {
            let before = LedgerHead {
                counter: entry.counter - 1,
                hash: entry.previous,
                ledger: entry.ledger.clone(),
            };
            before.seal_entry(body.into())
        };
        assert_eq!(with(&|c| c[1].body = "{}".into()), (2, TamperKind::Changed));
        assert_eq!(with(&|c| drop(c.remove(1))), (2, TamperKind::Missing(3)));
        assert_eq!(
            with(&|c| c.insert(2, c[1].clone())),
            (3, TamperKind::Repeated(2))
        );
        assert_eq!(with(&|c| c.swap(1, 3)), (2, TamperKind::Missing(4)));
        assert_eq!(
            with(&|c| c[1] = resealed(&c[1], "{}")),
            (3, TamperKind::Unconnected)
        );
        assert_eq!(
            with(&|c| c[4] = resealed(&c[4], r#"{ "n": 1 }"#)),
            (5, TamperKind::NotCanonical)
        );
        assert_eq!(
            with(&|c| c[4] = resealed(&c[4], "[1]")),
            (5, TamperKind::NotCanonical)
        );
        let other: LedgerName = "other".parse().expect("a name");
        let moved = LedgerHead {
            ledger: other.clone(),
            counter: 1,
            hash: whole[0].hash,
        }
        .seal_entry("{}".into());
        assert_eq!(
            with(&|c| c[1] = moved.clone()),
            (2, TamperKind::WrongLedger(other.clone()))
        );
    }

    #[test]
    fn checkpoints_reveal_truncation_and_rewriting() {
        let whole = chain(5);
        let marks = [signed(&whole[1]), signed(&whole[4])];
        assert_eq!(
            verify_chain(&whole[..4], &marks),
            Err((5, TamperKind::Truncated(5)))
        );
        assert_eq!(
            verify_chain(&[], &marks),
            Err((1, TamperKind::Truncated(5)))
        );
        let mut anew = whole[..2].to_vec();
        for n in 3..=5 {
            anew.push(
                anew.last()
                    .expect("two")
                    .head()
                    .seal_entry(format!(r#"{{"m":{n}}}"#).into()),
            );
        }
        assert!(
            verify_chain(&anew, &marks[..1]).is_ok(),
            "the rest was not signed"
        );
        assert_eq!(
            verify_chain(&anew, &marks),
            Err((5, TamperKind::SignatureMismatch { since: 2 }))
        );
    }

    #[test]
    fn a_foreign_checkpoint_is_listed_and_never_switches_off_our_own() {
        let whole = chain(5);
        let stranger = LedgerKey::from_bytes(&[4; 32]);
        let theirs =
            |entry: &SealedEntry| Checkpoint::sign(&entry.head(), Timestamp::EPOCH, &stranger);
        let beyond = Checkpoint {
            counter: 99,
            ..theirs(&whole[4])
        };
        let unreadable = Checkpoint {
            hash: whole[0].hash,
            ..theirs(&whole[3])
        };
        for foreign in [theirs(&whole[0]), theirs(&whole[4]), beyond, unreadable] {
            let marks = [foreign.clone(), signed(&whole[4]), foreign.clone()];
            let verified = verify_chain(&whole, &marks).expect("as written");
            let expected = UncheckedCheckpoint {
                counter: foreign.counter,
                key: stranger.id(),
            };
            assert_eq!(verified.signed, Some(5));
            assert_eq!(verified.not_checked, [expected; 2]);
            assert_eq!(
                verify_chain(&whole[..4], &marks),
                Err((5, TamperKind::Truncated(5)))
            );
            let alone = verify_chain(&whole, &[foreign]).expect("nothing was checked");
            assert_eq!(alone.signed, None);
        }
    }

    #[test]
    fn a_forged_checkpoint_counts_as_tampering() {
        let whole = chain(3);
        let forged = Checkpoint {
            counter: 2,
            ..signed(&whole[2])
        };
        assert_eq!(
            verify_chain(&whole, &[forged]),
            Err((2, TamperKind::Checkpoint(CheckpointError::Forged)))
        );
        let other: LedgerName = "other".parse().expect("a name");
        let start = Checkpoint::sign(
            &LedgerHead::start_of(other.clone()),
            Timestamp::EPOCH,
            &key(),
        );
        assert_eq!(
            verify_chain(&whole, &[start]),
            Err((0, TamperKind::WrongLedger(other)))
        );
    }
}
