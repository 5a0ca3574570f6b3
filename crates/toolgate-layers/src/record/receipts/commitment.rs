//! Commitments: keyed hashes that replace redacted values in digests, so that a digest
//! distinguishes calls but reveals nothing.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use hmac::{Hmac, KeyInit, Mac};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;
use toolgate_core::{CallId, canonical_json, within_pointer};
use zeroize::Zeroizing;

use crate::{Receipt, record::receipts::sanitize::RecordSanitizer};

/// The key that makes commitments to redacted values, and opens them again.
///
/// A digest over a copy without its secrets would be the same for two calls that differ in nothing
/// else. A digest over the secret itself could be guessed: there are not many birthdays. So the
/// hashed value contains, in place of each redacted value, an HMAC-SHA256 under this key over the
/// invocation, the pointer and the value. Without the key it reveals nothing; the owner of the key
/// can prove later what the value was. A program that needs such proofs provides its own key
/// ([`Resources`](crate::Resources), or [`Receipts::commitment_key`](crate::Receipts::commitment_key)) and
/// stores it apart from the receipts. By default the key is random and lost when the process ends.
///
/// ```
/// use toolgate_layers::{CommitmentKey, MemoryReceipts, Receipts, DigestedValue};
/// use toolgate_testkit::{call_with, echo_under};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let (key, kept) = (CommitmentKey::new([7; 32]), MemoryReceipts::default());
/// let stack = echo_under(Receipts::to(kept.clone()).redact(["token"]).commitment_key(key.clone()));
/// stack.run(call_with("echo", serde_json::json!({ "token": "hunter2" }))).await;
/// let receipt = &kept.receipts()[0];
/// assert!(key.opens(receipt, DigestedValue::Arguments, "/token", &"hunter2".into()));
/// assert!(!key.opens(receipt, DigestedValue::Arguments, "/token", &"hunter3".into()));
/// # });
/// ```
#[derive(Clone)]
pub struct CommitmentKey(Arc<Zeroizing<[u8; 32]>>);

/// The replacement for one redacted value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Commitment {
    /// The HMAC-SHA256 in lower-case hex digits.
    pub hmac: String,
    /// The position of the value, as a JSON pointer; redacted like any other text.
    pub pointer: String,
    /// The digested value that contained it.
    pub within: DigestedValue,
}

/// The values of a call that have a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DigestedValue {
    /// The arguments as the model wrote them.
    Arguments,
    /// The arguments that the tool received, if they differ.
    ExecutedArguments,
    /// The result.
    Result,
}

impl CommitmentKey {
    /// Creates a key from 32 random bytes. They are wiped from memory when the last clone is
    /// dropped.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(Arc::new(Zeroizing::new(secret)))
    }

    /// Returns a random key, the same for the whole process.
    pub(crate) fn process_key() -> Self {
        static KEY: OnceLock<CommitmentKey> = OnceLock::new();
        let random = || {
            let mut secret = [0; 32];
            // A panic is right here: with a predictable key, commitments could be guessed.
            getrandom::fill(&mut secret).expect("the system has random numbers");
            Self::new(secret)
        };
        KEY.get_or_init(random).clone()
    }

    /// Checks whether `value` is what was redacted at `pointer` when the receipt was written.
    pub fn opens(
        &self,
        receipt: &Receipt,
        within: DigestedValue,
        pointer: &str,
        value: &Value,
    ) -> bool {
        let hmac = self.compute_hmac(receipt.invocation_id, pointer, value);
        receipt
            .commitments
            .iter()
            .any(|made| made.within == within && made.hmac == hmac)
    }

    /// Returns the HMAC over invocation, pointer and value, in hex digits.
    fn compute_hmac(&self, invocation: CallId, pointer: &str, value: &Value) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0[..]).expect("a key of any length will do");
        let value = canonical_json(value);
        // Unambiguous: an id has no zero byte, so the first one ends it; JSON has none, so the last
        // one ends the pointer.
        for part in [
            invocation.to_string().as_bytes(),
            b"\0",
            pointer.as_bytes(),
            b"\0",
            value.as_bytes(),
        ] {
            mac.update(part);
        }
        mac.finalize()
            .into_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl fmt::Debug for CommitmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommitmentKey(..)")
    }
}

/// Inserts commitments where a redacted copy omits or changes values.
pub(crate) struct CommitmentWriter<'a> {
    pub(crate) keeper: &'a RecordSanitizer,
    pub(crate) key: &'a CommitmentKey,
    pub(crate) invocation: CallId,
    /// The pointers and HMACs of the commitments made so far.
    pub(crate) made: Vec<(String, String)>,
}

impl CommitmentWriter<'_> {
    /// Returns the value to hash: `copy`, with commitments to the values of `original` that differ.
    pub(crate) fn commit_differences(
        &mut self,
        original: &Value,
        copy: &Value,
        at: &mut String,
    ) -> Value {
        match (original, copy) {
            // Member by member only if the keys correspond; a redactor may also rename or drop
            // keys.
            (Value::Object(original), Value::Object(copy))
                if original
                    .keys()
                    .all(|key| self.keeper.removes_key(key) || copy.contains_key(key))
                    && copy.keys().all(|key| original.contains_key(key)) =>
            {
                let member = |(key, value): (&String, &Value)| {
                    let member = within_pointer(at, key, |at| match copy.get(key) {
                        Some(copy) => self.commit_differences(value, copy, at),
                        None => self.commit_value(value, at),
                    });
                    (key.clone(), member)
                };
                Value::Object(original.iter().map(member).collect())
            }
            (Value::Array(original), Value::Array(copy)) if original.len() == copy.len() => {
                let pairs = original.iter().zip(copy).enumerate();
                let item = |(n, (value, copy)): (usize, (&Value, &Value))| {
                    within_pointer(at, &n.to_string(), |at| {
                        self.commit_differences(value, copy, at)
                    })
                };
                Value::Array(pairs.map(item).collect())
            }
            (original, copy) if original == copy => copy.clone(),
            // Also an object with a redacted key: the key itself must not be hashed in clear.
            (original, _) => self.commit_value(original, at),
        }
    }

    /// Commits to a value and returns the text that replaces it.
    fn commit_value(&mut self, value: &Value, at: &str) -> Value {
        let hmac = self.key.compute_hmac(self.invocation, at, value);
        self.made.push((at.to_owned(), hmac.clone()));
        format!("hmac-sha256:{hmac}").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_core::Json;

    fn committed(keys: &[&str], original: Value, copy: Value) -> (Value, Vec<String>) {
        let keeper = RecordSanitizer::default()
            .without_keys(keys.iter().map(|key| (*key).to_owned()).collect());
        let key = CommitmentKey::new([1; 32]);
        let invocation = toolgate_testkit::call("t").id;
        let mut committer = CommitmentWriter {
            keeper: &keeper,
            key: &key,
            invocation,
            made: Vec::new(),
        };
        let value = committer.commit_differences(&original, &copy, &mut String::new());
        (
            value,
            committer
                .made
                .into_iter()
                .map(|(pointer, _)| pointer)
                .collect(),
        )
    }

    #[test]
    fn commitments_replace_values_that_are_missing_or_changed() {
        let original = json!({ "token": 1, "list": [{ "a/b": "hunter2", "c": 2 }], "n": 3 });
        let copy = json!({ "list": [{ "a/b": "***", "c": 2 }], "n": 3 });
        let (value, mut pointers) = committed(&["token"], original, copy);
        pointers.sort();
        assert_eq!(pointers, ["/list/0/a~1b", "/token"]);
        assert_eq!(
            (&value["n"], &value["list"][0]["c"]),
            (&json!(3), &json!(2))
        );
        assert!(
            value["token"]
                .as_str()
                .expect("text")
                .starts_with("hmac-sha256:")
        );
    }

    #[test]
    fn an_object_with_a_redacted_key_is_committed_to_as_a_whole() {
        let (value, pointers) = committed(
            &[],
            json!({ "o": { "hunter2": 1, "b": 2 } }),
            json!({ "o": { "***": 1, "b": 2 } }),
        );
        assert_eq!(pointers, ["/o"]);
        assert!(!value.to_string().contains("hunter2"));
        let (_, pointers) = committed(&[], json!([1, 2]), json!([1]));
        assert_eq!(pointers, [""]);
    }

    #[test]
    fn a_commitment_depends_on_key_invocation_pointer_and_value() {
        let key = CommitmentKey::new([1; 32]);
        let other = CommitmentKey::new([2; 32]);
        let id = |n: u128| format!("{n:032x}").parse::<CallId>().expect("an id");
        let all = [
            key.compute_hmac(id(1), "/a", &json!("x")),
            other.compute_hmac(id(1), "/a", &json!("x")),
            key.compute_hmac(id(2), "/a", &json!("x")),
            key.compute_hmac(id(1), "/b", &json!("x")),
            key.compute_hmac(id(1), "/a", &json!("y")),
            Json::from("x").digest().to_string(),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(
            key.compute_hmac(id(1), "/a", &json!({ "b": 1, "a": 2.0 })),
            key.compute_hmac(id(1), "/a", &json!({ "a": 2, "b": 1 }))
        );
    }

    #[test]
    fn debug_output_does_not_show_the_key() {
        assert_eq!(
            format!("{:?}", CommitmentKey::new([7; 32])),
            "CommitmentKey(..)"
        );
    }
}
