//! The signatures of standing rules in the store.
//!
//! A signature is a record of its own, named after the digest of the rule that it signs. So a rule
//! of an earlier version can be signed as it is, and a rule that was changed has no signature.

use std::collections::BTreeMap;

use toolgate_core::{
    Digest, Json, Keyring, RecordKey, RulePublicKey, RuleSignature, StoreError, StoreHandle,
};

use crate::StandingRule;

/// The key that has signed a stored rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleSigner {
    /// A key of the own keyring.
    Own,
    /// The key of another user, whose rules count here.
    Trusted(RulePublicKey),
    /// A key that does not count here.
    Foreign(RulePublicKey),
    /// None: the rule was stored by an earlier version, or changed since it was signed.
    Unsigned,
}

impl RuleSigner {
    /// Checks whether a rule with this signature may allow calls.
    pub fn counts(self) -> bool {
        match self {
            Self::Own | Self::Trusted(_) => true,
            Self::Foreign(_) | Self::Unsigned => false,
        }
    }
}

/// The signatures in a store, by the digest of the rule as text.
#[derive(Debug, Default)]
pub(super) struct RuleSignatures(BTreeMap<String, Vec<RuleSignature>>);

impl RuleSignatures {
    /// Stores the signature of a rule; false if another record is in its place.
    pub(super) async fn store(
        store: &StoreHandle,
        keys: &Keyring,
        rule: Digest,
    ) -> Result<bool, StoreError> {
        let signature = keys.sign_rule(rule);
        let signer = Digest::of_bytes(signature.key.to_string().as_bytes());
        let key = RecordKey::Other(format!("{SIGNATURE_PREFIX}{rule}/{signer}").into());
        let value = serde_json::to_value(&signature).expect("a signature is plain data");
        let value = Json::new(value).expect("a signature is not nested");
        let earlier = store.put_json_once(key, value.clone()).await?;
        // The same key signs the same rule with the same bytes.
        Ok(earlier.is_none_or(|earlier| earlier == value))
    }

    /// Loads the signatures for up to `most` rules; `None` if there are more than that many rules
    /// can have.
    pub(super) async fn load(store: &StoreHandle, most: usize) -> Result<Option<Self>, StoreError> {
        let limit = most * MOST_SIGNERS;
        let records = store.list_json(SIGNATURE_PREFIX, None, limit + 1).await?;
        if records.len() > limit {
            return Ok(None);
        }
        let mut signatures = Self::default();
        for (key, record) in &records {
            let digest = key
                .strip_prefix(SIGNATURE_PREFIX)
                .and_then(|rest| rest.split('/').next());
            // A record that is no signature signs nothing.
            let signature = serde_json::from_value(record.as_value().clone()).ok();
            if let Some((digest, signature)) = digest.zip(signature) {
                signatures
                    .0
                    .entry(digest.to_owned())
                    .or_default()
                    .push(signature);
            }
        }
        Ok(Some(signatures))
    }

    /// Returns the key that has signed a rule, preferring one that counts.
    pub(super) fn find_signer(
        &self,
        rule: &StandingRule,
        own: &[RulePublicKey],
        trusted: &[RulePublicKey],
    ) -> RuleSigner {
        let Some(digest) = rule.digest() else {
            return RuleSigner::Unsigned;
        };
        let signatures = self.0.get(&digest.to_string()).into_iter().flatten();
        let keys: Vec<RulePublicKey> = signatures
            .filter(|signature| signature.is_valid_for(digest))
            .map(|signature| signature.key)
            .collect();
        let among = |list: &[RulePublicKey]| keys.iter().find(|key| list.contains(key)).copied();
        match (among(own), among(trusted), keys.first()) {
            (Some(_), _, _) => RuleSigner::Own,
            (None, Some(key), _) => RuleSigner::Trusted(key),
            (None, None, Some(key)) => RuleSigner::Foreign(*key),
            (None, None, None) => RuleSigner::Unsigned,
        }
    }
}

/// The number of people who may sign one rule.
const MOST_SIGNERS: usize = 4;

const SIGNATURE_PREFIX: &str = "rule-signature/";
