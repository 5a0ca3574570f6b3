//! Reads sessions from files: archives of our own, Markdown, and the session files of other agents.

pub(crate) mod archive;
mod check;
pub(crate) mod foreign;
pub(crate) mod part;
mod receipts;

use std::{
    fmt,
    io::{BufRead, Seek},
    sync::Arc,
};

use toolgate_core::{Redactor, SessionId, StoreHandle, Timestamp};

pub use self::receipts::ImportedLedger;
use crate::ImportError;

/// The result of importing one session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportResult {
    /// The session in the store.
    pub session: SessionId,
    /// The number of messages that were added.
    pub message_count: u64,
    /// What could not be read or is not as it was, with line numbers.
    pub warnings: Vec<String>,
    /// What was done.
    pub state: ImportState,
}

/// What an import did with a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImportState {
    /// The session is new.
    Added,
    /// The session was there, and got the messages that are new in the file.
    Grown,
    /// The session was there with everything that is in the file.
    Unchanged,
    /// The session was there, and the file does not continue it. Nothing was changed.
    Diverged,
}

impl ImportState {
    /// Returns the word for the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Grown => "grown",
            Self::Unchanged => "unchanged",
            Self::Diverged => "diverged",
        }
    }
}

/// Imports sessions into a store.
///
/// An archive is verified completely before anything is written. Imported sessions are marked and
/// cannot be resumed.
#[derive(Clone)]
pub struct Importer {
    pub(crate) store: StoreHandle,
    pub(crate) now: Timestamp,
    pub(crate) redactor: Option<Arc<dyn Redactor>>,
}

impl Importer {
    /// Creates an importer without a redactor: it can import archives, and nothing of others.
    pub fn new(store: StoreHandle, now: Timestamp) -> Self {
        Self {
            store,
            now,
            redactor: None,
        }
    }

    /// Sets the redactor for the text of other programs.
    pub fn redactor(mut self, redactor: Arc<dyn Redactor>) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// Imports a raw archive and returns its sessions, agents after those that they work for.
    /// Reading blocks.
    ///
    /// Each session is written in one transaction, or in a few if it is large. An import that was
    /// interrupted is completed by repeating it, and repeating a complete one changes nothing.
    ///
    /// # Errors
    ///
    /// Fails with the first line that is not as it was written, if the file is redacted or of another
    /// version, or if one of its sessions is in the store already and did not come from this file;
    /// then nothing was written. Also fails if the file cannot be read or the store fails.
    pub async fn import_archive(
        &self,
        mut file: impl BufRead + Seek + Send,
    ) -> Result<Vec<ImportResult>, ImportError> {
        let checked = self.check_archive(&mut file).await?;
        file.rewind()?;
        self.write_archive(&mut file, &checked).await
    }
}

impl fmt::Debug for Importer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Importer").finish_non_exhaustive()
    }
}
