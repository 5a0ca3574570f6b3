//! The scopes of memories.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::SessionId;

/// The sessions in which a memory is recalled.
///
/// ```
/// use toolgate_core::RecallScope;
/// let scope = RecallScope::Project("/home/ann/app".into());
/// assert_eq!(RecallScope::from_key(&scope.to_key()), Some(scope));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecallScope {
    /// One session.
    Session(SessionId),
    /// All sessions in this directory.
    Project(Arc<str>),
    /// All sessions of the user.
    User,
}

/// The word for a scope, without its session or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScopeWord {
    /// One session.
    Session,
    /// One directory.
    Project,
    /// Everything of the user.
    User,
}

impl ScopeWord {
    /// All scopes, narrowest first.
    pub const ALL: [Self; 3] = [Self::Session, Self::Project, Self::User];

    /// Returns the wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Project => "project",
            Self::User => "user",
        }
    }
}

impl fmt::Display for ScopeWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl RecallScope {
    /// Returns the word for the scope.
    pub const fn word(&self) -> ScopeWord {
        match self {
            Self::Session(_) => ScopeWord::Session,
            Self::Project(_) => ScopeWord::Project,
            Self::User => ScopeWord::User,
        }
    }

    /// Returns the text under which a store finds the records of the scope.
    pub fn to_key(&self) -> String {
        match self {
            Self::Session(session) => format!("session:{session}"),
            Self::Project(directory) => format!("project:{directory}"),
            Self::User => "user".to_owned(),
        }
    }

    /// Parses the text of [`RecallScope::to_key`].
    pub fn from_key(key: &str) -> Option<Self> {
        match key.split_once(':') {
            None if key == "user" => Some(Self::User),
            Some(("session", id)) => id.parse().ok().map(Self::Session),
            Some(("project", directory)) => Some(Self::Project(directory.into())),
            None | Some(_) => None,
        }
    }
}

impl fmt::Display for RecallScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(session) => write!(f, "session {session}"),
            Self::Project(directory) => write!(f, "project {directory}"),
            Self::User => f.write_str("user"),
        }
    }
}
