//! Signed statements about where a chain of entries stood, so that not even its end can be cut off unseen.

use std::{fmt, str::FromStr, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Digest, LedgerHead, LedgerName, Timestamp, canonical_json};

/// Where a chain stood at some time, signed.
///
/// A chain alone shows that nothing inside it was changed. It cannot show that entries at its end are missing, or
/// that all of it was not written anew. A checkpoint can, if it or the key is kept where whoever could do that has no
/// access.
///
/// ```
/// use toolgate_core::{Checkpoint, LedgerHead, LedgerKey, LedgerName, LedgerVerifier, Timestamp};
/// let key = LedgerKey::from_bytes(&[7; 32]);
/// let first = LedgerHead::start(LedgerName::main()).seal("{}".into());
/// let checkpoint = Checkpoint::sign(&first.head(), Timestamp::EPOCH, &key);
/// let verifier = LedgerVerifier::none().trusting(key.public_bytes())?;
/// assert!(verifier.verify(&checkpoint).is_ok());
/// assert!(verifier.verify(&Checkpoint { counter: 2, ..checkpoint }).is_err());
/// # Ok::<(), toolgate_core::InvalidLedgerKey>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Which chain.
    pub ledger: LedgerName,
    /// The number of its last entry; 0 for a chain without entries.
    pub counter: u64,
    /// The hash of that entry.
    pub hash: Digest,
    /// When it was signed.
    pub at: Timestamp,
    /// The digest of the public key that verifies the signature.
    pub key: Digest,
    /// The signature over all of the above.
    pub signature: LedgerSignature,
}

impl Checkpoint {
    /// Signs where a chain stands.
    pub fn sign(head: &LedgerHead, at: Timestamp, key: &LedgerKey) -> Self {
        let LedgerHead {
            ledger,
            counter,
            hash,
        } = head.clone();
        let unsigned = Self {
            ledger,
            counter,
            hash,
            at,
            key: key.id(),
            signature: LedgerSignature([0; 64]),
        };
        let signature = LedgerSignature(key.0.sign(&unsigned.signed_bytes()).to_bytes());
        Self {
            signature,
            ..unsigned
        }
    }

    /// The place it speaks about.
    pub fn head(&self) -> LedgerHead {
        LedgerHead {
            ledger: self.ledger.clone(),
            counter: self.counter,
            hash: self.hash,
        }
    }

    /// The checkpoint as canonical JSON.
    pub fn to_text(&self) -> String {
        canonical_json(&serde_json::to_value(self).expect("a checkpoint is plain data"))
    }

    /// What is signed. The words in front keep the signature from being taken for one over something else.
    fn signed_bytes(&self) -> Vec<u8> {
        let Self {
            ledger,
            counter,
            hash,
            at,
            key,
            signature: _,
        } = self;
        // As text: a counter beyond 2^53 is not a number in canonical JSON.
        let claims = json!({ "ledger": ledger, "counter": counter.to_string(), "hash": hash, "at": at, "key": key });
        format!("toolgate checkpoint\0{}", canonical_json(&claims)).into_bytes()
    }
}

/// Signs checkpoints with Ed25519. The secret is wiped from memory when the last copy goes.
#[derive(Clone)]
pub struct LedgerKey(Arc<SigningKey>);

impl LedgerKey {
    /// The key with this secret: 32 random bytes from outside.
    pub fn from_bytes(secret: &[u8; 32]) -> Self {
        Self(Arc::new(SigningKey::from_bytes(secret)))
    }

    /// The public half, for those who verify.
    pub fn public_bytes(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    /// What the key is called on checkpoints: the digest of its public half.
    pub fn id(&self) -> Digest {
        Digest::of_bytes(&self.public_bytes())
    }

    /// Trusts this key and no other.
    pub fn verifier(&self) -> LedgerVerifier {
        LedgerVerifier::none().adding(self.0.verifying_key())
    }
}

impl fmt::Debug for LedgerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LedgerKey").field(&self.id()).finish()
    }
}

/// The public keys whose checkpoints are believed.
#[derive(Debug, Clone, Default)]
pub struct LedgerVerifier(Vec<(Digest, VerifyingKey)>);

/// The bytes are not a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are not an Ed25519 public key that can be trusted")]
pub struct InvalidLedgerKey;

/// Why a checkpoint is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DoubtfulCheckpoint {
    /// Nobody here knows the key.
    #[error("it is signed with the key {0}, which is not known here")]
    UnknownKey(Digest),
    /// The signature is not over this.
    #[error("its signature does not fit: it was changed or forged")]
    Forged,
}

impl LedgerVerifier {
    /// Believes nobody.
    pub fn none() -> Self {
        Self::default()
    }

    /// Believes the holder of this key, too.
    pub fn trusting(self, public: [u8; 32]) -> Result<Self, InvalidLedgerKey> {
        let key = VerifyingKey::from_bytes(&public).map_err(|_| InvalidLedgerKey)?;
        if key.is_weak() {
            Err(InvalidLedgerKey)
        } else {
            Ok(self.adding(key))
        }
    }

    /// Whether a checkpoint was signed by somebody who is believed, over exactly what it says.
    pub fn verify(&self, checkpoint: &Checkpoint) -> Result<(), DoubtfulCheckpoint> {
        let known = self.0.iter().find(|(id, _)| *id == checkpoint.key);
        let (_, key) = known.ok_or(DoubtfulCheckpoint::UnknownKey(checkpoint.key))?;
        let signature = Signature::from_bytes(&checkpoint.signature.0);
        key.verify_strict(&checkpoint.signed_bytes(), &signature)
            .map_err(|_| DoubtfulCheckpoint::Forged)
    }

    fn adding(mut self, key: VerifyingKey) -> Self {
        self.0.push((Digest::of_bytes(key.as_bytes()), key));
        self
    }
}

/// An Ed25519 signature, written in base64.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LedgerSignature([u8; 64]);

/// The text is not a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a signature is 64 bytes in base64")]
pub struct InvalidLedgerSignature;

impl fmt::Display for LedgerSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for LedgerSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for LedgerSignature {
    type Err = InvalidLedgerSignature;
    fn from_str(text: &str) -> Result<Self, InvalidLedgerSignature> {
        let bytes = STANDARD.decode(text).map_err(|_| InvalidLedgerSignature)?;
        bytes
            .try_into()
            .map(Self)
            .map_err(|_| InvalidLedgerSignature)
    }
}

crate::text::serde_as_text!(LedgerSignature);

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(key: &LedgerKey) -> Checkpoint {
        let entry = LedgerHead::start(LedgerName::main()).seal("{}".into());
        Checkpoint::sign(&entry.head(), Timestamp::EPOCH, key)
    }

    #[test]
    fn a_checkpoint_is_believed_only_as_it_was_signed() {
        let key = LedgerKey::from_bytes(&[1; 32]);
        let (checkpoint, verifier) = (signed(&key), key.verifier());
        assert_eq!(verifier.verify(&checkpoint), Ok(()));
        let other = "other".parse().expect("a name");
        for changed in [
            Checkpoint {
                ledger: other,
                ..checkpoint.clone()
            },
            Checkpoint {
                counter: 0,
                ..checkpoint.clone()
            },
            Checkpoint {
                hash: Digest::of_bytes(b""),
                ..checkpoint.clone()
            },
            Checkpoint {
                at: Timestamp::EPOCH.plus(std::time::Duration::from_secs(1)),
                ..checkpoint.clone()
            },
            Checkpoint {
                signature: LedgerSignature([9; 64]),
                ..checkpoint.clone()
            },
        ] {
            assert_eq!(
                verifier.verify(&changed),
                Err(DoubtfulCheckpoint::Forged),
                "{changed:?}"
            );
        }
    }

    #[test]
    fn a_key_that_nobody_trusts_proves_nothing() {
        let (ours, theirs) = (
            LedgerKey::from_bytes(&[1; 32]),
            LedgerKey::from_bytes(&[2; 32]),
        );
        let checkpoint = signed(&theirs);
        assert_eq!(
            ours.verifier().verify(&checkpoint),
            Err(DoubtfulCheckpoint::UnknownKey(theirs.id()))
        );
        let renamed = Checkpoint {
            key: ours.id(),
            ..checkpoint.clone()
        };
        assert_eq!(
            ours.verifier().verify(&renamed),
            Err(DoubtfulCheckpoint::Forged)
        );
        let both = ours
            .verifier()
            .trusting(theirs.public_bytes())
            .expect("a key");
        assert_eq!(both.verify(&checkpoint), Ok(()));
        assert!(
            LedgerVerifier::none().trusting([0; 32]).is_err(),
            "anybody can sign for a weak key"
        );
    }

    #[test]
    fn checkpoints_round_trip_as_text_and_keys_hide_their_secret() {
        let key = LedgerKey::from_bytes(&[5; 32]);
        let checkpoint = signed(&key);
        assert_eq!(
            serde_json::from_str::<Checkpoint>(&checkpoint.to_text()).expect("reads"),
            checkpoint
        );
        let shown = format!("{key:?}");
        assert!(
            shown.contains(&key.id().to_string()) && !shown.contains("5, 5"),
            "{shown}"
        );
    }
}
