//! Signed checkpoints of a chain, so that not even its end can be truncated unnoticed.

use std::{fmt, str::FromStr, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Digest, LedgerHead, LedgerName, Timestamp, canonical_json, canonical_text};

/// The signed end of a chain at some time.
///
/// A chain alone proves that nothing inside it was changed. It cannot prove that no entries are
/// missing at its end, or that it was not rewritten as a whole. A checkpoint can, if it or the key
/// is stored where an attacker has no access.
///
/// ```
/// use toolgate_core::{Checkpoint, LedgerHead, LedgerKey, LedgerName, LedgerVerifier, Timestamp};
/// let key = LedgerKey::from_bytes(&[7; 32]);
/// let first = LedgerHead::start_of(LedgerName::main()).seal_entry("{}".into());
/// let checkpoint = Checkpoint::sign(&first.head(), Timestamp::EPOCH, &key);
/// let verifier = LedgerVerifier::trusting_none().trusting(key.public_bytes())?;
/// assert!(verifier.verify(&checkpoint).is_ok());
/// assert!(verifier.verify(&Checkpoint { counter: 2, ..checkpoint }).is_err());
/// # Ok::<(), toolgate_core::InvalidLedgerKey>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
// An unknown field would look signed, and the signature does not cover it.
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The chain.
    pub ledger: LedgerName,
    /// The number of its last entry; 0 for a chain without entries.
    pub counter: u64,
    /// The hash of that entry.
    pub hash: Digest,
    /// The time it was signed.
    pub at: Timestamp,
    /// The digest of the public key that verifies the signature.
    pub key: Digest,
    /// The signature over all of the above.
    pub signature: LedgerSignature,
}

impl Checkpoint {
    /// Signs the end of a chain.
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
        let signature = key.sign_bytes(&unsigned.signed_bytes());
        Self {
            signature,
            ..unsigned
        }
    }

    /// Returns the position it is about.
    pub fn head(&self) -> LedgerHead {
        LedgerHead {
            ledger: self.ledger.clone(),
            counter: self.counter,
            hash: self.hash,
        }
    }

    /// Returns the checkpoint as canonical JSON.
    pub fn to_text(&self) -> String {
        canonical_text(self).expect("a checkpoint is plain data")
    }

    /// Returns the bytes to sign.
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
        // The prefix separates domains: the signature cannot pass for one over another kind of
        // data.
        format!("toolgate checkpoint\0{}", canonical_json(&claims)).into_bytes()
    }
}

/// An Ed25519 key that signs checkpoints. The secret is wiped from memory with the last copy.
#[derive(Clone)]
pub struct LedgerKey(Arc<SigningKey>);

impl LedgerKey {
    /// Creates the key with this secret: 32 random bytes from the caller.
    pub fn from_bytes(secret: &[u8; 32]) -> Self {
        Self(Arc::new(SigningKey::from_bytes(secret)))
    }

    /// Returns the public key, for verifiers.
    pub fn public_bytes(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    /// Returns the key's id on checkpoints: the digest of the public key.
    pub fn id(&self) -> Digest {
        Digest::of_bytes(&self.public_bytes())
    }

    /// Signs `bytes`, which name their domain.
    pub(super) fn sign_bytes(&self, bytes: &[u8]) -> LedgerSignature {
        LedgerSignature(self.0.sign(bytes).to_bytes())
    }

    /// Creates a verifier that trusts this key and no other.
    pub fn to_verifier(&self) -> LedgerVerifier {
        LedgerVerifier::trusting_none().with_key(self.0.verifying_key())
    }
}

impl fmt::Debug for LedgerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LedgerKey").field(&self.id()).finish()
    }
}

/// The trusted public keys of checkpoints.
#[derive(Debug, Clone, Default)]
pub struct LedgerVerifier(Vec<(Digest, VerifyingKey)>);

/// An error for bytes that are not a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are not an Ed25519 public key that can be trusted")]
pub struct InvalidLedgerKey;

/// The reason verification of a checkpoint failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The key is not trusted.
    #[error("it is signed with the key {0}, which is not trusted here")]
    UnknownKey(Digest),
    /// The signature does not match.
    #[error("its signature does not match: it was changed or forged")]
    Forged,
}

impl LedgerVerifier {
    /// Creates a verifier that trusts no key.
    pub fn trusting_none() -> Self {
        Self::default()
    }

    /// Adds a trusted public key.
    ///
    /// # Errors
    ///
    /// [`InvalidLedgerKey`] if the bytes are not a public key or a weak one.
    pub fn trusting(self, public: [u8; 32]) -> Result<Self, InvalidLedgerKey> {
        let key = VerifyingKey::from_bytes(&public).map_err(|_| InvalidLedgerKey)?;
        // A weak key verifies signatures that its owner never made.
        if key.is_weak() {
            Err(InvalidLedgerKey)
        } else {
            Ok(self.with_key(key))
        }
    }

    /// Checks that a checkpoint was signed with a trusted key and not changed since.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] if the key is not trusted or the signature does not match.
    pub fn verify(&self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        self.verify_bytes(
            checkpoint.key,
            &checkpoint.signed_bytes(),
            &checkpoint.signature,
        )
    }

    /// Checks a signature over `bytes`, which name their domain.
    pub(super) fn verify_bytes(
        &self,
        key: Digest,
        bytes: &[u8],
        signature: &LedgerSignature,
    ) -> Result<(), CheckpointError> {
        let known = self.0.iter().find(|(id, _)| *id == key);
        let (_, key) = known.ok_or(CheckpointError::UnknownKey(key))?;
        key.verify_strict(bytes, &Signature::from_bytes(&signature.0))
            .map_err(|_| CheckpointError::Forged)
    }

    /// Adds the keys that `other` trusts.
    pub fn with_keys_of(mut self, other: &Self) -> Self {
        self.0.extend(other.0.iter().copied());
        self
    }

    fn with_key(mut self, key: VerifyingKey) -> Self {
        self.0.push((Digest::of_bytes(key.as_bytes()), key));
        self
    }
}

/// An Ed25519 signature, written in base64.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LedgerSignature([u8; 64]);

/// An error for text that is not a signature.
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

crate::value::text::serde_as_text!(LedgerSignature);

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(key: &LedgerKey) -> Checkpoint {
        let entry = LedgerHead::start_of(LedgerName::main()).seal_entry("{}".into());
        Checkpoint::sign(&entry.head(), Timestamp::EPOCH, key)
    }

    #[test]
    fn a_changed_checkpoint_fails_verification() {
        let key = LedgerKey::from_bytes(&[1; 32]);
        let checkpoint = signed(&key);
        let verifier = key.to_verifier();
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
                Err(CheckpointError::Forged),
                "{changed:?}"
            );
        }
    }

    #[test]
    fn an_untrusted_key_proves_nothing() {
        let ours = LedgerKey::from_bytes(&[1; 32]);
        let theirs = LedgerKey::from_bytes(&[2; 32]);
        let checkpoint = signed(&theirs);
        assert_eq!(
            ours.to_verifier().verify(&checkpoint),
            Err(CheckpointError::UnknownKey(theirs.id()))
        );
        let renamed = Checkpoint {
            key: ours.id(),
            ..checkpoint.clone()
        };
        assert_eq!(
            ours.to_verifier().verify(&renamed),
            Err(CheckpointError::Forged)
        );
        let both = ours
            .to_verifier()
            .trusting(theirs.public_bytes())
            .expect("a key");
        assert_eq!(both.verify(&checkpoint), Ok(()));
        assert!(
            LedgerVerifier::trusting_none().trusting([0; 32]).is_err(),
            "a weak key can be forged"
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
