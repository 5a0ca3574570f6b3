//! Memories: short texts that outlive their session, and are recalled where they are relevant.
//!
//! Everything here is pure: records and their bounds, deduplication, ranking, extraction by
//! patterns, and the quoted block that a model reads. A store keeps the records
//! ([`MemoryRecordStore`](crate::MemoryRecordStore)), and the runtime does the rest.

pub(crate) mod extract;
pub(crate) mod patterns;
pub(crate) mod quote;
pub(crate) mod rank;
pub(crate) mod scope;
pub(crate) mod text;
pub(crate) mod transfer;
pub(crate) mod vector;

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    CallId, Digest, MemoryId, MemoryText, Principal, RecallScope, SessionId, Timestamp, TurnId,
};

/// A memory: a short text with its kind, its scope and its source.
///
/// The text is untrusted: a model or a stranger may have written it. It is shown to people with
/// control characters made visible, and to models as quoted data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRecord {
    /// The id of the memory.
    pub id: MemoryId,
    /// The kind of the memory.
    pub kind: MemoryKind,
    /// The text, without secrets.
    pub content: MemoryText,
    /// The sessions in which it is recalled.
    pub scope: RecallScope,
    /// The user to whom it belongs; other users of the same store do not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Principal>,
    /// The place it came from.
    pub source: MemorySource,
    /// The time at which it was stored.
    pub created_at: Timestamp,
    /// The time of its last use in a run or by the tool `recall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_recalled_at: Option<Timestamp>,
    /// The number of its uses.
    #[serde(default)]
    pub uses: u64,
    /// The time from which it is neither listed nor recalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// The kind of a memory.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// A wish of the user about how work is done.
    Preference,
    /// A choice that was made.
    Decision,
    /// A command that worked.
    Command,
    /// A fact about the project.
    Fact,
    /// Anything else.
    Note,
}

/// An error for a word that is not the kind of a memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a kind of memory; there are: preference, decision, command, fact, note")]
pub struct UnknownMemoryKind(String);

impl MemoryKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Preference,
        Self::Decision,
        Self::Command,
        Self::Fact,
        Self::Note,
    ];

    /// Returns the wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preference => "preference",
            Self::Decision => "decision",
            Self::Command => "command",
            Self::Fact => "fact",
            Self::Note => "note",
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for MemoryKind {
    type Err = UnknownMemoryKind;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == word);
        found.ok_or_else(|| UnknownMemoryKind(word.chars().take(40).collect()))
    }
}

/// The place a memory came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySource {
    /// The way in which it was stored.
    pub origin: MemoryOrigin,
    /// The session in which it was said. It may have been erased since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The run of that session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// The turn of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// The call of `remember`, or the one whose command worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The name of the pattern that found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The time of the import, if it came from a file. The other fields are then the words of the
    /// file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_at: Option<Timestamp>,
}

/// The way in which a memory was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryOrigin {
    /// The user added it.
    User,
    /// A pattern found it in a message of the user or the model.
    Pattern,
    /// A model found it in the messages of a run.
    Model,
    /// The model called the tool `remember`.
    Tool,
}

impl MemoryOrigin {
    /// Returns the text that people read.
    pub const fn text(self) -> &'static str {
        match self {
            Self::User => "added by the user",
            Self::Pattern => "found by a pattern at the end of a run",
            Self::Model => "found by a model at the end of a run",
            Self::Tool => "stored by the model with the tool remember",
        }
    }
}

impl MemorySource {
    /// Creates a source with nothing but its origin.
    pub const fn new(origin: MemoryOrigin) -> Self {
        Self {
            origin,
            session: None,
            run: None,
            turn: None,
            call: None,
            pattern: None,
            imported_at: None,
        }
    }
}

impl MemoryRecord {
    /// Creates a record that was never recalled and does not expire.
    pub const fn new(
        id: MemoryId,
        kind: MemoryKind,
        content: MemoryText,
        scope: RecallScope,
        source: MemorySource,
        created_at: Timestamp,
    ) -> Self {
        Self {
            id,
            kind,
            content,
            scope,
            owner: None,
            source,
            created_at,
            last_recalled_at: None,
            uses: 0,
            expires_at: None,
        }
    }

    /// Returns the key under which the same content is stored once: a digest of owner, scope and
    /// normalised text.
    pub fn dedup_key(&self) -> Digest {
        let owner = self.owner.as_ref().map_or("", Principal::as_str);
        let scope = self.scope.to_key();
        let text = self.content.normalised();
        // Lengths before the parts, so that no two of them give the same bytes.
        let parts = format!(
            "{}:{owner}{}:{scope}{}:{text}",
            owner.len(),
            scope.len(),
            text.len()
        );
        Digest::of_bytes(parts.as_bytes())
    }

    /// Checks whether it has expired at the time `now`.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Returns the time of its last use, or of its creation.
    pub fn last_used_at(&self) -> Timestamp {
        let recalled = self.last_recalled_at.unwrap_or(self.created_at);
        recalled.max(self.created_at)
    }

    /// Takes over what a duplicate says: it stays at least as long as the duplicate would have.
    pub fn absorb_duplicate(&mut self, duplicate: &Self) {
        self.expires_at = match (self.expires_at, duplicate.expires_at) {
            (Some(own), Some(other)) => Some(own.max(other)),
            (None, _) | (_, None) => None,
        };
    }

    /// Notes one more use.
    pub fn note_use(&mut self, at: Timestamp) {
        self.uses = self.uses.saturating_add(1);
        self.last_recalled_at = Some(at.max(self.last_recalled_at.unwrap_or(at)));
    }
}

#[cfg(test)]
mod tests;
