//! Signatures of standing rules: which key has signed a rule, as it is.

use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{Digest, Keyring, SecretKey};

/// The public key that verifies the rules signed with a [`SecretKey`], written `ed25519:BASE64`.
///
/// Several people may share a store. A user lists the keys of others whose rules count too.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RulePublicKey(VerifyingKey);

/// An error for text that is not a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key for rules is written ed25519:BASE64, as `toolgate approvals rules key` prints it")]
pub struct InvalidRuleKey;

/// A signature over the digest of a standing rule.
///
/// ```
/// use toolgate_core::{Digest, KeyKind, Keyring, SecretKey};
/// let ring = Keyring::new(SecretKey::new("k1".parse()?, KeyKind::HmacSha256, [7; 32]));
/// let signature = ring.sign_rule(Digest::of_bytes(b"a rule"));
/// assert_eq!(signature.key, ring.rule_key());
/// assert!(signature.is_valid_for(Digest::of_bytes(b"a rule")));
/// assert!(!signature.is_valid_for(Digest::of_bytes(b"another rule")));
/// # Ok::<(), toolgate_core::InvalidKeyId>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSignature {
    /// The key that signed. Whether it counts is for the reader to say.
    pub key: RulePublicKey,
    /// The signature in base64.
    pub signature: String,
}

impl RuleSignature {
    /// Checks whether the key has signed this digest.
    pub fn is_valid_for(&self, rule: Digest) -> bool {
        let bytes = STANDARD.decode(&self.signature).unwrap_or_default();
        Signature::from_slice(&bytes).is_ok_and(|signature| {
            self.key
                .0
                .verify_strict(&signed_bytes(rule), &signature)
                .is_ok()
        })
    }
}

impl Keyring {
    /// Returns the public key of the rules that this ring signs.
    pub fn rule_key(&self) -> RulePublicKey {
        self.signing_key().rule_key().into()
    }

    /// Returns the public keys of the rules that this ring has signed, with older keys too.
    pub fn rule_keys(&self) -> impl Iterator<Item = RulePublicKey> {
        self.keys().map(|key| key.rule_key().into())
    }

    /// Signs the digest of a standing rule.
    pub fn sign_rule(&self, rule: Digest) -> RuleSignature {
        let key = self.signing_key().rule_key();
        let signature = key.sign(&signed_bytes(rule));
        RuleSignature {
            key: (&key).into(),
            signature: STANDARD.encode(signature.to_bytes()),
        }
    }
}

impl SecretKey {
    /// Derives the key that signs rules. It signs nothing else, and neither key reveals the other.
    fn rule_key(&self) -> SigningKey {
        let derived = self.derive_secret(b"toolgate rule key 1");
        SigningKey::from_bytes(&Zeroizing::new(derived))
    }
}

/// Returns the bytes to sign. The prefix separates domains: the signature cannot pass for one over
/// another kind of data.
fn signed_bytes(rule: Digest) -> Vec<u8> {
    format!("toolgate standing rule\0{rule}").into_bytes()
}

impl From<SigningKey> for RulePublicKey {
    fn from(key: SigningKey) -> Self {
        (&key).into()
    }
}

impl From<&SigningKey> for RulePublicKey {
    fn from(key: &SigningKey) -> Self {
        Self(key.verifying_key())
    }
}

impl fmt::Display for RulePublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519:{}", STANDARD.encode(self.0.as_bytes()))
    }
}

impl fmt::Debug for RulePublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RulePublicKey {
    type Err = InvalidRuleKey;
    fn from_str(text: &str) -> Result<Self, InvalidRuleKey> {
        let encoded = text.strip_prefix("ed25519:").ok_or(InvalidRuleKey)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| InvalidRuleKey)?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| InvalidRuleKey)?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| InvalidRuleKey)?;
        // A weak key verifies signatures that its owner never made.
        if key.is_weak() {
            Err(InvalidRuleKey)
        } else {
            Ok(Self(key))
        }
    }
}

crate::value::text::serde_as_text!(RulePublicKey);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyKind;

    fn ring(byte: u8) -> Keyring {
        let key = SecretKey::new("k".parse().expect("an id"), KeyKind::HmacSha256, [byte; 32]);
        Keyring::new(key)
    }

    #[test]
    fn a_signature_is_valid_for_one_rule_and_one_key() {
        let rule = Digest::of_bytes(b"rule");
        let signature = ring(1).sign_rule(rule);
        assert!(signature.is_valid_for(rule));
        let forged = [
            RuleSignature {
                key: ring(2).rule_key(),
                ..signature.clone()
            },
            RuleSignature {
                signature: String::new(),
                ..signature.clone()
            },
            RuleSignature {
                signature: "?".into(),
                ..signature.clone()
            },
            RuleSignature {
                signature: signature.signature.to_lowercase(),
                ..signature.clone()
            },
            RuleSignature {
                signature: signature.signature[4..].to_owned(),
                ..signature.clone()
            },
            ring(1).sign_rule(Digest::of_bytes(b"other")),
        ];
        for forged in forged {
            assert!(!forged.is_valid_for(rule), "{forged:?}");
        }
    }

    #[test]
    fn the_key_for_rules_is_no_other_key_of_the_secret() {
        let ring = ring(3);
        let text = ring.rule_key().to_string();
        assert_ne!(
            ring.rule_key().0.to_bytes(),
            ring.ledger_key().public_bytes()
        );
        assert_ne!(
            ring.rule_key().0.to_bytes(),
            SigningKey::from_bytes(&[3; 32]).verifying_key().to_bytes()
        );
        assert_eq!(text.parse::<RulePublicKey>(), Ok(ring.rule_key()));
        let weak = format!("ed25519:{}", STANDARD.encode([0; 32]));
        for bad in [
            "",
            "ed25519:",
            "ed25519:AAAA",
            &text[8..],
            &weak,
            &text.replace("ed", "ED"),
        ] {
            assert_eq!(bad.parse::<RulePublicKey>(), Err(InvalidRuleKey), "{bad}");
        }
    }
}
