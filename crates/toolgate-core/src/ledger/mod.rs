//! Tamper-evident chains of entries: each entry contains the hash of the one before it, so that no
//! change, removal or insertion goes unnoticed.

pub(crate) mod checkpoint;
pub(crate) mod restore;
pub(crate) mod verify;

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::Digest;

/// The name of a chain: up to 200 characters of `A-Z a-z 0-9 . _ - / :`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LedgerName(Arc<str>);

/// An error for text that cannot name a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot name a ledger: use 1 to 200 characters of A-Z a-z 0-9 . _ - / :")]
pub struct InvalidLedgerName(pub String);

impl LedgerName {
    /// Returns the name of the default chain.
    pub fn main() -> Self {
        Self("main".into())
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LedgerName {
    type Error = InvalidLedgerName;
    fn try_from(name: String) -> Result<Self, InvalidLedgerName> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
        if name.is_empty() || name.len() > 200 || !name.chars().all(fits) {
            return Err(InvalidLedgerName(name));
        }
        Ok(Self(name.into()))
    }
}

impl std::str::FromStr for LedgerName {
    type Err = InvalidLedgerName;
    fn from_str(name: &str) -> Result<Self, InvalidLedgerName> {
        name.to_owned().try_into()
    }
}

impl From<LedgerName> for String {
    fn from(name: LedgerName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl Borrow<str> for LedgerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LedgerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An entry to be added to the end of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerDraft {
    /// The chain.
    pub ledger: LedgerName,
    /// The content: a JSON object in canonical form.
    pub body: Arc<str>,
}

/// The end of a chain, or the position of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerHead {
    /// The chain.
    pub ledger: LedgerName,
    /// The number of the entry, counted from 1 without gaps; 0 for a chain without entries.
    pub counter: u64,
    /// The hash of the entry; of the name, for a chain without entries.
    pub hash: Digest,
}

/// One entry of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedEntry {
    /// The chain.
    pub ledger: LedgerName,
    /// Its number, counted from 1 without gaps.
    pub counter: u64,
    /// The hash of the entry before it.
    pub previous: Digest,
    /// The content.
    pub body: Arc<str>,
    /// The hash of all of the above.
    pub hash: Digest,
}

/// An entry without its body: enough to verify the chain past it, not to read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryOutline {
    /// The chain.
    pub ledger: LedgerName,
    /// Its number, counted from 1 without gaps.
    pub counter: u64,
    /// The hash of the entry before it.
    pub previous: Digest,
    /// The digest of its body.
    pub body_digest: Digest,
    /// The hash of the entry.
    pub hash: Digest,
}

impl LedgerHead {
    /// Creates the beginning of a chain. It depends on the name, so that no entry can be moved to
    /// another chain.
    pub fn start_of(ledger: LedgerName) -> Self {
        let hash = Digest::of_bytes(format!("toolgate ledger\0{ledger}").as_bytes());
        Self {
            ledger,
            counter: 0,
            hash,
        }
    }

    /// Creates the entry that follows this one.
    pub fn seal_entry(&self, body: Arc<str>) -> SealedEntry {
        let ledger = self.ledger.clone();
        let counter = self.counter + 1;
        let previous = self.hash;
        let hash = entry_hash(
            &ledger,
            counter,
            previous,
            Digest::of_bytes(body.as_bytes()),
        );
        SealedEntry {
            ledger,
            counter,
            previous,
            body,
            hash,
        }
    }
}

impl SealedEntry {
    /// Returns its position.
    pub fn head(&self) -> LedgerHead {
        LedgerHead {
            ledger: self.ledger.clone(),
            counter: self.counter,
            hash: self.hash,
        }
    }

    /// Checks whether the hash matches the rest of the entry.
    pub fn is_intact(&self) -> bool {
        self.outline().is_intact()
    }

    /// Returns the entry without its body.
    pub fn outline(&self) -> EntryOutline {
        let Self {
            ledger,
            counter,
            previous,
            body,
            hash,
        } = self;
        let body_digest = Digest::of_bytes(body.as_bytes());
        EntryOutline {
            ledger: ledger.clone(),
            counter: *counter,
            previous: *previous,
            body_digest,
            hash: *hash,
        }
    }

    /// Checks whether its hash matches and it directly follows `before`.
    pub fn follows(&self, before: &LedgerHead) -> bool {
        self.ledger == before.ledger
            && self.counter == before.counter + 1
            && self.previous == before.hash
            && self.is_intact()
    }
}

impl EntryOutline {
    /// Returns the entry's position.
    pub fn head(&self) -> LedgerHead {
        LedgerHead {
            ledger: self.ledger.clone(),
            counter: self.counter,
            hash: self.hash,
        }
    }

    /// Checks whether the hash matches the rest.
    pub fn is_intact(&self) -> bool {
        self.hash == entry_hash(&self.ledger, self.counter, self.previous, self.body_digest)
    }
}

/// Returns the hash of an entry.
fn entry_hash(ledger: &LedgerName, counter: u64, previous: Digest, body: Digest) -> Digest {
    // Every part but the last has a fixed length, so no two entries share an input.
    let mut input: SmallVec<[u8; 256]> = SmallVec::new();
    // The prefix separates entries from the beginnings of chains, which are hashes, too.
    input.extend_from_slice(b"toolgate entry\0");
    input.extend_from_slice(previous.as_bytes());
    input.extend_from_slice(&counter.to_be_bytes());
    // The digest and not the body, so that an outline without the body can be verified.
    input.extend_from_slice(body.as_bytes());
    input.extend_from_slice(ledger.as_str().as_bytes());
    Digest::of_bytes(&input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_follows_only_the_one_it_was_sealed_after() {
        let start = LedgerHead::start_of(LedgerName::main());
        let first = start.seal_entry(r#"{"n":1}"#.into());
        let second = first.head().seal_entry(r#"{"n":2}"#.into());
        assert!(first.follows(&start) && second.follows(&first.head()) && !second.follows(&start));
        let other = LedgerHead::start_of("other".parse().expect("a name"));
        assert!(!first.follows(&other));
        for changed in [
            SealedEntry {
                body: r#"{"n":3}"#.into(),
                ..second.clone()
            },
            SealedEntry {
                counter: 3,
                ..second.clone()
            },
            SealedEntry {
                previous: start.hash,
                ..second.clone()
            },
            SealedEntry {
                ledger: other.ledger,
                ..second.clone()
            },
            SealedEntry {
                hash: first.hash,
                ..second
            },
        ] {
            assert!(!changed.is_intact());
        }
    }

    #[test]
    fn ledger_names_have_plain_characters() {
        assert!("sessions/a-1:b".parse::<LedgerName>().is_ok());
        for bad in ["", "a b", "ä", "a\n", &"x".repeat(201)] {
            assert!(bad.parse::<LedgerName>().is_err(), "{bad:?}");
        }
    }
}
