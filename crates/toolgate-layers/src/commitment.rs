//! Stands in for redacted values where something is hashed, so that a digest tells calls apart but gives nothing away.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use hmac::{Hmac, KeyInit, Mac};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;
use toolgate_core::{CallId, canonical_json};
use zeroize::Zeroizing;

use crate::{Receipt, keep::Keeper};

/// Makes commitments to redacted values, and opens them again.
///
/// A digest over a copy without its secrets would be the same for two calls that differ in nothing else, and one over
/// the secret itself could be guessed: there are not many birthdays. So what is hashed holds, in place of each redacted
/// value, an HMAC-SHA256 under this key over the invocation, the place and the value. Without the key it says nothing;
/// whoever has the key can prove later what stood there. A program that wants to be able to do so brings a key of its own
/// ([`Parts`](crate::Parts), or [`Receipts::commitment_key`](crate::Receipts::commitment_key)) and keeps it apart from
/// the receipts. Otherwise the key is random and goes with the process.
///
/// ```
/// use toolgate_layers::{CommitmentKey, MemoryReceipts, Receipts, Within};
/// use toolgate_testkit::{call_with, echo_under};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let (key, kept) = (CommitmentKey::new([7; 32]), MemoryReceipts::default());
/// let stack = echo_under(Receipts::to(kept.clone()).redact(["token"]).commitment_key(key.clone()));
/// stack.run(call_with("echo", serde_json::json!({ "token": "hunter2" }))).await;
/// let receipt = &kept.receipts()[0];
/// assert!(key.opens(receipt, Within::Arguments, "/token", &"hunter2".into()));
/// assert!(!key.opens(receipt, Within::Arguments, "/token", &"hunter3".into()));
/// # });
/// ```
#[derive(Clone)]
pub struct CommitmentKey(Arc<Zeroizing<[u8; 32]>>);

/// What stands in for one redacted value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Commitment {
    /// The HMAC-SHA256 in lower-case hex digits.
    pub hmac: String,
    /// Where the value stood, as a JSON pointer; redacted like any other text.
    pub pointer: String,
    /// In which of the values that have a digest.
    pub within: Within,
}

/// The values of a call that have a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Within {
    /// The arguments as the model wrote them.
    Arguments,
    /// The arguments that the tool was given, where they are others.
    ExecutedArguments,
    /// The result.
    Result,
}

impl CommitmentKey {
    /// The key with this secret: 32 random bytes from outside. They are wiped from memory when the last copy goes.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(Arc::new(Zeroizing::new(secret)))
    }

    /// A random key, the same for everything in this process.
    pub(crate) fn of_process() -> Self {
        static KEY: OnceLock<CommitmentKey> = OnceLock::new();
        let random = || {
            let mut secret = [0; 32];
            getrandom::fill(&mut secret).expect("the system has random numbers");
            Self::new(secret)
        };
        KEY.get_or_init(random).clone()
    }

    /// Whether `value` is what was redacted at `pointer` when the receipt was written.
    pub fn opens(&self, receipt: &Receipt, within: Within, pointer: &str, value: &Value) -> bool {
        let hmac = self.commit(receipt.invocation_id, pointer, value);
        receipt
            .commitments
            .iter()
            .any(|made| made.within == within && made.hmac == hmac)
    }

    /// The last zero byte ends the pointer, since there is none in JSON, and the first one the id.
    fn commit(&self, invocation: CallId, pointer: &str, value: &Value) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0[..]).expect("a key of any length will do");
        let value = canonical_json(value);
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

/// Puts commitments in the places of what a copy leaves out or shows otherwise.
pub(crate) struct Committer<'a> {
    pub(crate) keeper: &'a Keeper,
    pub(crate) key: &'a CommitmentKey,
    pub(crate) invocation: CallId,
    /// Where and what was committed to.
    pub(crate) made: Vec<(String, String)>,
}

impl Committer<'_> {
    /// The value that is hashed: `copy`, with commitments to what `original` has otherwise.
    pub(crate) fn committed(&mut self, original: &Value, copy: &Value, at: &mut String) -> Value {
        match (original, copy) {
            (Value::Object(original), Value::Object(copy))
                if original
                    .keys()
                    .all(|key| self.keeper.names(key) || copy.contains_key(key))
                    && copy.keys().all(|key| original.contains_key(key)) =>
            {
                let member = |(key, value): (&String, &Value)| {
                    let member = below(at, key, |at| match copy.get(key) {
                        Some(copy) => self.committed(value, copy, at),
                        None => self.commitment(value, at),
                    });
                    (key.clone(), member)
                };
                Value::Object(original.iter().map(member).collect())
            }
            (Value::Array(original), Value::Array(copy)) if original.len() == copy.len() => {
                let pairs = original.iter().zip(copy).enumerate();
                let item = |(n, (value, copy)): (usize, (&Value, &Value))| {
                    below(at, &n.to_string(), |at| self.committed(value, copy, at))
                };
                Value::Array(pairs.map(item).collect())
            }
            (original, copy) if original == copy => copy.clone(),
            // Also an object of which a name was redacted: the name must not be hashed as it is.
            (original, _) => self.commitment(original, at),
        }
    }

    fn commitment(&mut self, value: &Value, at: &str) -> Value {
        let hmac = self.key.commit(self.invocation, at, value);
        self.made.push((at.to_owned(), hmac.clone()));
        format!("hmac-sha256:{hmac}").into()
    }
}

/// Does something one step further down a JSON pointer.
fn below<T>(at: &mut String, step: &str, work: impl FnOnce(&mut String) -> T) -> T {
    let length = at.len();
    at.push('/');
    at.push_str(&step.replace('~', "~0").replace('/', "~1"));
    let done = work(at);
    at.truncate(length);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_core::Json;

    fn committed(keys: &[&str], original: Value, copy: Value) -> (Value, Vec<String>) {
        let keeper = Keeper::default().without(keys.iter().map(|key| (*key).to_owned()).collect());
        let (key, invocation) = (CommitmentKey::new([1; 32]), toolgate_testkit::call("t").id);
        let mut committer = Committer {
            keeper: &keeper,
            key: &key,
            invocation,
            made: Vec::new(),
        };
        let value = committer.committed(&original, &copy, &mut String::new());
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
    fn commitments_stand_where_values_are_missing_or_shown_otherwise() {
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
    fn a_place_whose_name_was_redacted_is_committed_to_as_a_whole() {
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
    fn a_commitment_depends_on_key_invocation_place_and_value() {
        let (key, other) = (CommitmentKey::new([1; 32]), CommitmentKey::new([2; 32]));
        let id = |n: u128| format!("{n:032x}").parse::<CallId>().expect("an id");
        let all = [
            key.commit(id(1), "/a", &json!("x")),
            other.commit(id(1), "/a", &json!("x")),
            key.commit(id(2), "/a", &json!("x")),
            key.commit(id(1), "/b", &json!("x")),
            key.commit(id(1), "/a", &json!("y")),
            Json::from("x").digest().to_string(),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(
            key.commit(id(1), "/a", &json!({ "b": 1, "a": 2.0 })),
            key.commit(id(1), "/a", &json!({ "a": 2, "b": 1 }))
        );
    }

    #[test]
    fn a_key_does_not_show_itself() {
        assert_eq!(
            format!("{:?}", CommitmentKey::new([7; 32])),
            "CommitmentKey(..)"
        );
    }
}
