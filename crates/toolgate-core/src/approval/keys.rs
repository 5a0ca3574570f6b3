//! The keys that sign approvals: one signs, older ones still verify.

use std::{fmt, str::FromStr, sync::Arc};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use ed25519_dalek::{Signature, Signer, SigningKey};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::{LedgerKey, LedgerVerifier};

/// The signing keys of a server. Cloning shares them.
///
/// New tokens are signed with the active key. Tokens signed with one of the others still verify,
/// until that key is no longer in the ring. The secrets are wiped from memory with the last clone,
/// and `{:?}` shows ids only.
///
/// ```
/// use toolgate_core::{KeyKind, Keyring, SecretKey};
/// let old = SecretKey::new("k1".parse()?, KeyKind::HmacSha256, [7; 32]);
/// let new = SecretKey::new("k2".parse()?, KeyKind::Ed25519, [8; 32]);
/// let ring = Keyring::new(new).verifying(old);
/// assert_eq!(ring.active_key_id().to_string(), "k2");
/// assert_eq!(format!("{ring:?}"), r#"Keyring(["k2", "k1"])"#);
/// # Ok::<(), toolgate_core::InvalidKeyId>(())
/// ```
#[derive(Clone)]
pub struct Keyring(Arc<Vec<SecretKey>>);

/// One key with its secret.
#[derive(Clone)]
pub struct SecretKey {
    id: KeyId,
    kind: KeyKind,
    secret: Zeroizing<[u8; 32]>,
}

/// The signature algorithm of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// A secret that signs and verifies.
    HmacSha256,
    /// A key pair: the private key signs, the public key verifies.
    Ed25519,
}

/// The name of a key: up to 32 characters of `A-Z a-z 0-9 _ -`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(Arc<str>);

/// An error for text that cannot name a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key id has 1 to 32 characters of A-Z a-z 0-9 _ -")]
pub struct InvalidKeyId;

/// The reason a signature is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadSignature {
    #[error("the key is not in the ring")]
    KeyGone,
    #[error("the signature does not match")]
    Mismatch,
}

impl Keyring {
    /// Creates a ring whose only key signs.
    pub fn new(active: SecretKey) -> Self {
        Self(Arc::new(vec![active]))
    }

    /// Adds an older key that verifies but does not sign. A key whose id is already in the ring
    /// changes nothing.
    pub fn verifying(mut self, older: SecretKey) -> Self {
        if self.find_key(&older.id).is_none() {
            Arc::make_mut(&mut self.0).push(older);
        }
        self
    }

    /// Returns the id of the key that signs.
    pub fn active_key_id(&self) -> &KeyId {
        &self.signing_key().id
    }

    /// Returns the ids of all keys, the active one first.
    pub fn key_ids(&self) -> impl Iterator<Item = &KeyId> {
        self.0.iter().map(|key| &key.id)
    }

    /// Returns the secrets of all keys in the forms in which a text may hold them, for a redactor.
    pub fn secret_texts(&self) -> impl Iterator<Item = String> {
        self.0.iter().flat_map(|key| {
            let secret = key.expose_secret();
            let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
            // Without the padding, which a text may lack.
            let encode = |engine: &base64::engine::GeneralPurpose| engine.encode(secret);
            let encoded = [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD].map(encode);
            [hex.to_uppercase(), hex].into_iter().chain(encoded)
        })
    }

    /// Returns the key that signs ledger checkpoints, derived from the key that signs.
    pub fn ledger_key(&self) -> LedgerKey {
        self.signing_key().ledger_key()
    }

    /// Returns a verifier that accepts checkpoints signed with any of the keys.
    pub fn ledger_verifier(&self) -> LedgerVerifier {
        let trust = |verifier: LedgerVerifier, key: &SecretKey| {
            let public = key.ledger_key().public_bytes();
            verifier
                .trusting(public)
                .expect("a key that was derived from a secret is not weak")
        };
        self.0.iter().fold(LedgerVerifier::trusting_none(), trust)
    }

    /// Checks whether what this ring signs is valid for `verifier`.
    pub fn signs_for(&self, verifier: &Self) -> bool {
        const PROBE: &[u8] = b"toolgate keyring probe 1";
        verifier
            .verify(self.active_key_id(), PROBE, &self.sign(PROBE))
            .is_ok()
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.signing_key().sign(message)
    }

    pub(crate) fn verify(
        &self,
        id: &KeyId,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), BadSignature> {
        self.find_key(id)
            .ok_or(BadSignature::KeyGone)?
            .verify(message, signature)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &SecretKey> {
        self.0.iter()
    }

    pub(crate) fn signing_key(&self) -> &SecretKey {
        self.0
            .first()
            .expect("a ring is created with its active key")
    }

    fn find_key(&self, id: &KeyId) -> Option<&SecretKey> {
        self.0.iter().find(|key| key.id == *id)
    }
}

impl SecretKey {
    /// Derives the key that signs ledger checkpoints. Neither key reveals the other.
    pub fn ledger_key(&self) -> LedgerKey {
        let derived = self.derive_secret(b"toolgate ledger key 1");
        LedgerKey::from_bytes(&Zeroizing::new(derived))
    }

    /// Derives the secret of a key for one purpose.
    pub(crate) fn derive_secret(&self, purpose: &[u8]) -> [u8; 32] {
        // No token is signed over a purpose, because tokens begin with `tg1.`: otherwise an HMAC
        // signature would be the derived key.
        self.start_mac(purpose).finalize().into_bytes().into()
    }

    /// Creates a key from 32 random bytes.
    pub fn new(id: KeyId, kind: KeyKind, secret: [u8; 32]) -> Self {
        Self {
            id,
            kind,
            secret: Zeroizing::new(secret),
        }
    }

    /// Returns the key's id.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// Returns the signature algorithm.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Returns the secret, for storing the key in a file. It must not be used for anything else.
    pub fn expose_secret(&self) -> &[u8; 32] {
        &self.secret
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        match self.kind {
            KeyKind::HmacSha256 => self.start_mac(message).finalize().into_bytes().to_vec(),
            KeyKind::Ed25519 => self.key_pair().sign(message).to_bytes().to_vec(),
        }
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), BadSignature> {
        let fits = match self.kind {
            // `verify_slice` compares in constant time.
            KeyKind::HmacSha256 => self.start_mac(message).verify_slice(signature).is_ok(),
            // `verify_strict` also rejects weak keys and malleable signatures.
            KeyKind::Ed25519 => Signature::from_slice(signature).is_ok_and(|signature| {
                self.key_pair()
                    .verifying_key()
                    .verify_strict(message, &signature)
                    .is_ok()
            }),
        };
        if fits {
            Ok(())
        } else {
            Err(BadSignature::Mismatch)
        }
    }

    fn start_mac(&self, message: &[u8]) -> Hmac<Sha256> {
        let mac =
            Hmac::<Sha256>::new_from_slice(&*self.secret).expect("HMAC accepts keys of any length");
        mac.chain_update(message)
    }

    fn key_pair(&self) -> SigningKey {
        SigningKey::from_bytes(&self.secret)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keyring")
            .field(&self.0.iter().map(|key| &*key.id.0).collect::<Vec<_>>())
            .finish()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKey")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl KeyKind {
    /// Returns the word for it in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HmacSha256 => "hmac-sha256",
            Self::Ed25519 => "ed25519",
        }
    }

    /// Returns the kind that this word names.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::HmacSha256, Self::Ed25519]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

impl KeyId {
    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyId {
    type Err = InvalidKeyId;
    fn from_str(text: &str) -> Result<Self, InvalidKeyId> {
        let fits = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
        if text.is_empty() || text.len() > 32 || !text.bytes().all(fits) {
            return Err(InvalidKeyId);
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str, kind: KeyKind, byte: u8) -> SecretKey {
        SecretKey::new(id.parse().expect("a name"), kind, [byte; 32])
    }

    #[test]
    fn ledger_keys_are_derived_from_the_secret() {
        let one = key("a", KeyKind::HmacSha256, 1);
        let two = key("b", KeyKind::HmacSha256, 2);
        assert_eq!(
            one.ledger_key().public_bytes(),
            one.clone().ledger_key().public_bytes()
        );
        assert_ne!(
            one.ledger_key().public_bytes(),
            two.ledger_key().public_bytes()
        );
        assert_ne!(
            one.ledger_key().public_bytes(),
            crate::LedgerKey::from_bytes(&[1; 32]).public_bytes()
        );
    }

    #[test]
    fn only_the_key_that_signed_verifies_and_only_what_it_signed() {
        for kind in [KeyKind::HmacSha256, KeyKind::Ed25519] {
            let ring = Keyring::new(key("a", kind, 1)).verifying(key("b", kind, 2));
            let signature = ring.sign(b"yes");
            let a = key("a", kind, 1).id;
            let b = key("b", kind, 2).id;
            assert_eq!(ring.verify(&a, b"yes", &signature), Ok(()));
            assert_eq!(
                ring.verify(&a, b"no", &signature),
                Err(BadSignature::Mismatch)
            );
            assert_eq!(
                ring.verify(&b, b"yes", &signature),
                Err(BadSignature::Mismatch)
            );
            for cut in [0, 1, signature.len() - 1] {
                assert_eq!(
                    ring.verify(&a, b"yes", &signature[..cut]),
                    Err(BadSignature::Mismatch)
                );
            }
            let without = Keyring::new(key("b", kind, 2));
            assert_eq!(
                without.verify(&a, b"yes", &signature),
                Err(BadSignature::KeyGone)
            );
        }
    }

    #[test]
    fn an_older_key_verifies_and_does_not_sign() {
        let old = key("old", KeyKind::HmacSha256, 1);
        let signature = Keyring::new(old.clone()).sign(b"x");
        let ring = Keyring::new(key("new", KeyKind::HmacSha256, 2)).verifying(old.clone());
        assert_eq!(ring.verify(old.id(), b"x", &signature), Ok(()));
        assert_ne!(ring.sign(b"x"), signature);
        assert_eq!(ring.active_key_id().as_str(), "new");
    }

    #[test]
    fn a_second_key_of_the_same_id_changes_nothing() {
        let ring = Keyring::new(key("a", KeyKind::HmacSha256, 1)).verifying(key(
            "a",
            KeyKind::HmacSha256,
            2,
        ));
        assert_eq!(ring.key_ids().count(), 1);
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!(
            "{:?}",
            (
                key("a", KeyKind::Ed25519, 0xab),
                Keyring::new(key("b", KeyKind::Ed25519, 0xab))
            )
        );
        assert!(
            !shown.contains("171") && !shown.to_lowercase().contains("abab"),
            "{shown}"
        );
    }

    #[test]
    fn key_ids_have_plain_characters() {
        for bad in ["", "a.b", "a b", "ä", &"x".repeat(33)] {
            assert!(bad.parse::<KeyId>().is_err(), "{bad:?}");
        }
    }
}
