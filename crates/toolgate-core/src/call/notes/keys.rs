//! The keys of the notes that Toolgate itself writes into [`NoteFields::metadata`]: the name in JSON
//! and the type of the value.

use std::marker::PhantomData;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{Digest, NoteFields, Principal, SchemaProblem, Status};

/// A key of [`NoteFields::metadata`] with the type of its value, so that the writer and the readers
/// of a note cannot disagree.
///
/// ```
/// use toolgate_core::{NoteFields, NoteKey};
/// const PAGES: NoteKey<u32> = NoteKey::new("pages");
/// let mut notes = NoteFields::default();
/// notes.insert(PAGES, &7);
/// assert_eq!(notes.get(PAGES)?, Some(7));
/// assert_eq!(notes.metadata["pages"], 7);
/// # Ok::<(), toolgate_core::InvalidNote>(())
/// ```
#[derive(Debug)]
pub struct NoteKey<T: ?Sized> {
    name: &'static str,
    value: PhantomData<fn(&T)>,
}

impl<T: ?Sized> NoteKey<T> {
    /// Creates a key with its name in JSON.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            value: PhantomData,
        }
    }

    /// Returns the name in JSON.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

impl<T: ?Sized> Clone for NoteKey<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for NoteKey<T> {}

impl<T: ?Sized + ToOwned<Owned: DeserializeOwned>> NoteKey<T> {
    /// Reads the note from a map of notes, if it is there.
    ///
    /// # Errors
    ///
    /// [`InvalidNote`] if the value is not of the key's type.
    pub fn read_from(self, notes: &Map<String, Value>) -> Result<Option<T::Owned>, InvalidNote> {
        let read = |value| {
            <T::Owned>::deserialize(value).map_err(|source| InvalidNote {
                key: self.name,
                source,
            })
        };
        notes.get(self.name).map(read).transpose()
    }
}

/// An error for a note whose value is not of the type of its key.
#[derive(Debug, thiserror::Error)]
#[error("the note {key} has a value of another type")]
pub struct InvalidNote {
    /// The name of the key.
    pub key: &'static str,
    source: serde_json::Error,
}

impl NoteFields {
    /// Writes a note into the metadata.
    pub fn insert<T: ?Sized + Serialize>(&mut self, key: NoteKey<T>, value: &T) {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        self.metadata.insert(key.name.to_owned(), value);
    }

    /// Reads a note of the metadata, if it is there.
    ///
    /// # Errors
    ///
    /// [`InvalidNote`] if the value is not of the key's type.
    pub fn get<T: ?Sized + ToOwned<Owned: DeserializeOwned>>(
        &self,
        key: NoteKey<T>,
    ) -> Result<Option<T::Owned>, InvalidNote> {
        key.read_from(&self.metadata)
    }
}

/// The digest of the arguments that were decided on, if others were about to run.
pub const DECIDED_DIGEST: NoteKey<Digest> = NoteKey::new("decided_digest");
/// The digest of the arguments that were about to run instead.
pub const FINAL_DIGEST: NoteKey<Digest> = NoteKey::new("final_digest");
/// True if a rehearsal reached the executor.
pub const REHEARSAL: NoteKey<bool> = NoteKey::new("rehearsal");
/// The violations of the schema by the arguments.
pub const PROBLEMS: NoteKey<[SchemaProblem]> = NoteKey::new("problems");
/// The fingerprint of a tool that differs from its pin.
pub const FINGERPRINT: NoteKey<Digest> = NoteKey::new("fingerprint");
/// The fingerprint that was pinned.
pub const PINNED: NoteKey<Option<Digest>> = NoteKey::new("pinned");
/// The problem with the encoding of an output.
pub const ENCODING: NoteKey<str> = NoteKey::new("encoding");
/// The version of the policy that judged the call.
pub const POLICY_VERSION: NoteKey<str> = NoteKey::new("policy_version");
/// The standing rule that decided.
pub const APPROVAL_RULE: NoteKey<str> = NoteKey::new("approval_rule");
/// The digest of the token that bound the decision.
// Not `approval_token`: a redactor would mask the digest because of that name.
pub const APPROVAL_DIGEST: NoteKey<Digest> = NoteKey::new("approval_digest");
/// The other approvers, if more than one was needed.
pub const APPROVED_WITH: NoteKey<[Principal]> = NoteKey::new("approved_with");
/// The amount that a budget charged.
pub const COST: NoteKey<f64> = NoteKey::new("cost");
/// The time when a rate limit allows the next call: `retry_at`.
pub const RATE_LIMIT: NoteKey<Value> = NoteKey::new("rate_limit");
/// The files that the call changed, as a list of paths or of `{path, change, old_path}`.
pub const FILES: NoteKey<Value> = NoteKey::new("files");
/// The stored text of a result that was truncated: `output` and `bytes`.
pub const FULL_TEXT: NoteKey<Value> = NoteKey::new("full_text");
/// The work that a result hands over.
pub const HANDOFF: NoteKey<Value> = NoteKey::new("handoff");
/// The problem with the work that a result hands over.
pub const HANDOFF_ERROR: NoteKey<str> = NoteKey::new("handoff_error");
/// The attempts after which a retry gave up: `attempts` and `gave_up`.
pub const RETRY: NoteKey<Value> = NoteKey::new("retry");
/// The identical call whose result was returned: `hit` and `from`.
pub const IDEMPOTENCY: NoteKey<Value> = NoteKey::new("idempotency");
/// The time limit that the call exceeded, and what followed.
pub const TIMEOUT: NoteKey<Value> = NoteKey::new("timeout");
/// What followed when the call was cancelled.
pub const CANCELLED: NoteKey<Value> = NoteKey::new("cancelled");
/// True if the call was a dry run.
pub const DRY_RUN: NoteKey<bool> = NoteKey::new("dry_run");
/// True if the call had taken effect before its process was lost, according to its tool, and was not
/// run again.
pub const RECONCILED: NoteKey<bool> = NoteKey::new("reconciled");
/// True if the tool panicked.
pub const PANIC: NoteKey<bool> = NoteKey::new("panic");
/// The failure of a hook after the call.
pub const HOOK_FAILED: NoteKey<str> = NoteKey::new("hook_failed");
/// True if the summary only repeats what every call has: tool, status, duration.
pub const PLAIN_SUMMARY: NoteKey<bool> = NoteKey::new("plain_summary");
/// The location of the receipt.
pub const RECEIPT_URI: NoteKey<str> = NoteKey::new("receipt_uri");
/// True if the receipt could not be written.
pub const RECEIPT_MISSING: NoteKey<bool> = NoteKey::new("receipt_missing");
/// The status of a call whose receipt could not be written.
pub const SETTLED_AS: NoteKey<Status> = NoteKey::new("settled_as");

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_names_and_values_of_stored_notes_never_change() {
        let digest = Digest::of_bytes(b"x");
        let mut notes = NoteFields::default();
        notes.insert(DECIDED_DIGEST, &digest);
        notes.insert(FINAL_DIGEST, &digest);
        notes.insert(FINGERPRINT, &digest);
        notes.insert(PINNED, &Some(digest));
        notes.insert(APPROVAL_DIGEST, &digest);
        notes.insert(REHEARSAL, &true);
        notes.insert(DRY_RUN, &true);
        notes.insert(RECONCILED, &true);
        notes.insert(PANIC, &true);
        notes.insert(PLAIN_SUMMARY, &true);
        notes.insert(RECEIPT_MISSING, &true);
        notes.insert(SETTLED_AS, &Status::Denied);
        notes.insert(COST, &0.5);
        notes.insert(APPROVED_WITH, &["ann".into()]);
        let problem = SchemaProblem {
            pointer: "/a".into(),
            reason: "is missing".into(),
        };
        notes.insert(PROBLEMS, &[problem]);
        for key in [
            ENCODING,
            POLICY_VERSION,
            APPROVAL_RULE,
            HANDOFF_ERROR,
            HOOK_FAILED,
            RECEIPT_URI,
        ] {
            notes.insert(key, "text");
        }
        for key in [
            RATE_LIMIT,
            FILES,
            FULL_TEXT,
            HANDOFF,
            RETRY,
            IDEMPOTENCY,
            TIMEOUT,
            CANCELLED,
        ] {
            notes.insert(key, &json!([1]));
        }
        let digest = digest.to_string();
        assert_eq!(
            Value::Object(notes.metadata),
            json!({
                "decided_digest": digest, "final_digest": digest, "fingerprint": digest,
                "pinned": digest, "approval_digest": digest, "rehearsal": true, "dry_run": true,
                "panic": true, "reconciled": true, "plain_summary": true, "receipt_missing": true, "settled_as": "consent_denied",
                "cost": 0.5, "approved_with": ["ann"],
                "problems": [{ "pointer": "/a", "reason": "is missing" }],
                "encoding": "text", "policy_version": "text", "approval_rule": "text",
                "handoff_error": "text", "hook_failed": "text", "receipt_uri": "text",
                "rate_limit": [1], "files": [1], "full_text": [1], "handoff": [1], "retry": [1],
                "idempotency": [1], "timeout": [1], "cancelled": [1],
            })
        );
    }

    #[test]
    fn a_note_of_another_type_is_an_error_and_not_an_absent_note() {
        let mut notes = NoteFields::default();
        assert!(matches!(notes.get(COST), Ok(None)));
        notes.insert(COST, &7.0);
        assert!(matches!(notes.get(COST), Ok(Some(7.0))));
        notes.metadata.insert("cost".into(), json!("much"));
        let error = notes.get(COST).expect_err("a text");
        assert_eq!(
            error.to_string(),
            "the note cost has a value of another type"
        );
    }
}
