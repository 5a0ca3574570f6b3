//! The signed note that a person accepted the loss of records, because a backup was restored.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    ApproverIdentity, CheckpointError, Digest, LedgerHead, LedgerKey, LedgerSignature,
    LedgerVerifier, Timestamp, canonical_json,
};

/// A person's acceptance that a ledger no longer contains a head that was signed.
///
/// The chain cannot tell a restored backup from an attack. So the loss stays on record: what was
/// signed before, what is left, who accepted it and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedRestore {
    /// The head that was signed and is not in the ledger any more.
    pub lost: LedgerHead,
    /// The head of the ledger when the loss was accepted.
    pub kept: LedgerHead,
    /// The person who accepted it.
    pub accepted: ApproverIdentity,
    /// The time it was accepted.
    pub at: Timestamp,
    /// The digest of the public key that verifies the signature.
    pub key: Digest,
    /// The signature over all of the above.
    pub signature: LedgerSignature,
}

impl AcceptedRestore {
    /// Signs the acceptance.
    pub fn sign(
        lost: LedgerHead,
        kept: LedgerHead,
        accepted: ApproverIdentity,
        at: Timestamp,
        key: &LedgerKey,
    ) -> Self {
        let signature = key.sign_bytes(&signed_bytes(&lost, &kept, &accepted, at, key.id()));
        Self {
            lost,
            kept,
            accepted,
            at,
            key: key.id(),
            signature,
        }
    }

    /// Checks that the note was signed with a trusted key and not changed since.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] if the key is not trusted or the signature does not match.
    pub fn verify(&self, verifier: &LedgerVerifier) -> Result<(), CheckpointError> {
        let bytes = signed_bytes(&self.lost, &self.kept, &self.accepted, self.at, self.key);
        verifier.verify_bytes(self.key, &bytes, &self.signature)
    }
}

fn signed_bytes(
    lost: &LedgerHead,
    kept: &LedgerHead,
    accepted: &ApproverIdentity,
    at: Timestamp,
    key: Digest,
) -> Vec<u8> {
    // Counters as text: beyond 2^53 they are not numbers in canonical JSON.
    let head = |head: &LedgerHead| json!({ "ledger": head.ledger, "counter": head.counter.to_string(), "hash": head.hash });
    let claims = json!({ "lost": head(lost), "kept": head(kept), "accepted": accepted, "at": at, "key": key });
    // The prefix separates domains: the note cannot pass for a checkpoint.
    format!("toolgate restore\0{}", canonical_json(&claims)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LedgerName;

    #[test]
    fn a_changed_or_foreign_note_is_not_valid() {
        let key = LedgerKey::from_bytes(&[3; 32]);
        let start = LedgerHead::start_of(LedgerName::main());
        let lost = start.seal_entry("{}".into()).head();
        let note = |by: &str| {
            AcceptedRestore::sign(
                lost.clone(),
                start.clone(),
                by.into(),
                Timestamp::EPOCH,
                &key,
            )
        };
        let trusted = key.to_verifier();
        let ours = note("ann");
        assert_eq!(ours.verify(&trusted), Ok(()));
        for changed in [
            AcceptedRestore {
                lost: start.clone(),
                ..ours.clone()
            },
            AcceptedRestore {
                kept: lost.clone(),
                ..ours.clone()
            },
            AcceptedRestore {
                accepted: "bob".into(),
                ..ours.clone()
            },
            AcceptedRestore {
                at: Timestamp::from_micros(1),
                ..ours.clone()
            },
            AcceptedRestore {
                signature: note("bob").signature,
                ..ours.clone()
            },
        ] {
            assert_eq!(changed.verify(&trusted), Err(CheckpointError::Forged));
        }
        let stranger = LedgerKey::from_bytes(&[4; 32]).to_verifier();
        assert_eq!(
            ours.verify(&stranger),
            Err(CheckpointError::UnknownKey(key.id()))
        );
    }
}
