//! The errors of exports and imports.

use std::io;

use toolgate_core::{Digest, RedactionError, SessionId, StoreError, TamperedLedger};

/// The reason an export failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// There is no such session.
    #[error("there is no session {0} in the store")]
    UnknownSession(SessionId),
    /// The session was written while it was exported, so the archive would not be of one moment.
    #[error("session {0} was written while it was exported")]
    Changed(SessionId),
    /// Bytes that the session names are not in the store.
    #[error("the stored bytes {0} of the session are missing")]
    MissingBlob(Digest),
    /// Something is larger than an archive holds.
    #[error("{what} is larger than the {limit} bytes that an archive holds")]
    TooLarge {
        /// The thing.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// An export that redacts has no redactor, or redaction failed. Nothing is shown then.
    #[error("the export cannot be redacted: {0}")]
    Redaction(#[from] RedactionError),
    /// The store failed.
    #[error("the session could not be read: {0}")]
    Store(#[from] StoreError),
    /// The output failed.
    #[error("the export could not be written: {0}")]
    Io(#[from] io::Error),
}

/// The reason an import failed. If it is about the file, nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A line is not what the format requires at its place: changed, missing or out of order.
    #[error("line {line}: {what}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// The problem with it.
        what: String,
    },
    /// The file ends too early.
    #[error("the file ends after line {line}, before its end: it was truncated")]
    Truncated {
        /// The number of the last complete line.
        line: u64,
    },
    /// The file was written by a version with another format.
    #[error(
        "line 1: the file has version {found} of the format, and this program reads version {known}"
    )]
    Version {
        /// The version of the file.
        found: u32,
        /// The version that is read here.
        known: u32,
    },
    /// The file is redacted: it is for reading, not for importing.
    #[error("line 1: the archive is redacted, and only a raw one can be imported as a session")]
    Redacted,
    /// The receipts in the file failed verification.
    #[error("line {line}: {source}")]
    Receipts {
        /// The number of the line, from 1.
        line: u64,
        /// The problem.
        #[source]
        source: Box<TamperedLedger>,
    },
    /// There is a session with this id that did not come from this file.
    #[error("line {line}: there is a session {session} in the store already")]
    Exists {
        /// The number of the line, from 1.
        line: u64,
        /// The session.
        session: SessionId,
    },
    /// The format of the file is not known.
    #[error("the file is in none of the formats that can be imported")]
    UnknownFormat,
    /// The file cannot be used as a whole.
    #[error("{0}")]
    Unusable(String),
    /// Text of another program could not be redacted, so nothing is stored.
    #[error("the text cannot be redacted before it is stored: {0}")]
    Redaction(#[from] RedactionError),
    /// The store failed.
    #[error("the session could not be stored: {0}")]
    Store(#[from] StoreError),
    /// The file could not be read.
    #[error("the file could not be read: {0}")]
    Io(#[from] io::Error),
}

impl ImportError {
    pub(crate) fn at_line(line: u64, what: impl Into<String>) -> Self {
        Self::Line {
            line,
            what: what.into(),
        }
    }

    /// Returns the next step for a person, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Line { .. } | Self::Truncated { .. } | Self::Receipts { .. } => Some(
                "nothing was imported; ask for the file again, or export the session again where it is",
            ),
            Self::Version { .. } => {
                Some("import it with the version of Toolgate that wrote it, or a newer one")
            }
            Self::Redacted => Some("export the session with --raw where it is stored"),
            Self::Exists { .. } => Some(
                "it is not replaced; erase it first with `toolgate sessions delete ID --erase`",
            ),
            Self::UnknownFormat => Some(
                "name the program that wrote it: --from claude, codex, gemini, qwen, cline or opencode",
            ),
            Self::Unusable(_) | Self::Redaction(_) | Self::Store(_) | Self::Io(_) => None,
        }
    }
}
