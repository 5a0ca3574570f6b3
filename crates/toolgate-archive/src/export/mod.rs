//! Writes sessions as files: lossless or redacted archives, Markdown, and HTML pages.

pub(crate) mod archive;
mod html;
mod instructions;
mod markdown;
pub(crate) mod receipts;
mod redacted;
pub(crate) mod session_records;
pub(crate) mod transcript;

use std::{fmt, io::Write, str::FromStr, sync::Arc};

use toolgate_core::{
    Digest, Json, RedactionError, Redactor, SessionFilter, SessionId, SessionRow, StoreHandle,
};

use crate::{
    ExportError,
    redaction::{redact_json, redact_text},
};

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ExportFormat {
    /// Text that people read and that can be imported again as history.
    #[default]
    Markdown,
    /// Lines of JSON with an integrity chain. Without redaction it is lossless.
    Json,
    /// One page without scripts and without requests.
    Html,
}

/// The treatment of secrets in an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ExportRedaction {
    /// Secrets are redacted, and the file says so. It cannot be imported as a session.
    #[default]
    Redact,
    /// Everything is written as it is stored, secrets included.
    Raw,
}

/// The options of an export.
///
/// A raw archive ignores what may be left out: it is always complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportOptions {
    /// The format.
    pub format: ExportFormat,
    /// Include instructions: those that each run of ours began with, and the instructions and
    /// system messages of imported sessions.
    pub include_system: bool,
    /// Include calls and their results.
    pub include_tool_calls: bool,
    /// Include models, tokens, costs, times and ids. JSON always has them.
    pub include_metadata: bool,
    /// The treatment of secrets.
    pub redaction: ExportRedaction,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            format: ExportFormat::default(),
            include_system: true,
            include_tool_calls: true,
            include_metadata: false,
            redaction: ExportRedaction::default(),
        }
    }
}

/// The result of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportSummary {
    /// The sessions in the file: those that were asked for, and those of their agents.
    pub sessions: Vec<SessionId>,
    /// The number of messages.
    pub messages: u64,
    /// True if secrets were redacted.
    pub redacted: bool,
    /// The root of an archive: the link of its last line.
    pub root: Option<Digest>,
}

/// Exports sessions of a store.
///
/// ```
/// use toolgate_archive::{ExportError, ExportOptions, Exporter};
/// use toolgate_core::{MemoryStore, SessionId, StoreHandle};
/// # futures::executor::block_on(async {
/// let exporter = Exporter::new(StoreHandle::new(MemoryStore::new()));
/// let session: SessionId = "01890a5d-ac96-774b-bcce-b302099a8057".parse()?;
/// let mut page = Vec::new();
/// let missing = exporter.export(&[session], &ExportOptions::default(), &mut page).await;
/// assert!(matches!(missing, Err(ExportError::UnknownSession(_))));
/// # Ok::<(), uuid::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Exporter {
    pub(crate) store: StoreHandle,
    redactor: Option<Arc<dyn Redactor>>,
}

impl Exporter {
    /// Creates an exporter without a redactor: it can only export raw.
    pub fn new(store: StoreHandle) -> Self {
        Self {
            store,
            redactor: None,
        }
    }

    /// Sets the redactor.
    pub fn redactor(mut self, redactor: Arc<dyn Redactor>) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// Writes the sessions, each followed by those of its agents. Writing blocks.
    ///
    /// # Errors
    ///
    /// Fails if a session does not exist or changes meanwhile, if it cannot be redacted, or if the
    /// store or the output fails. What was written until then is not a valid file.
    pub async fn export(
        &self,
        sessions: &[SessionId],
        options: &ExportOptions,
        out: impl Write + Send,
    ) -> Result<ExportSummary, ExportError> {
        match (options.format, options.redaction) {
            (ExportFormat::Json, ExportRedaction::Raw) => self.export_archive(sessions, out).await,
            (ExportFormat::Json, ExportRedaction::Redact) => {
                self.export_redacted(sessions, options, out).await
            }
            (ExportFormat::Markdown, _) => self.export_markdown(sessions, options, out).await,
            (ExportFormat::Html, _) => self.export_html(sessions, options, out).await,
        }
    }

    /// Loads the row of a session that has events.
    pub(crate) async fn load_row(&self, session: SessionId) -> Result<SessionRow, ExportError> {
        let mut rows = self
            .store
            .sessions(SessionFilter::for_session(session))
            .await?;
        rows.pop().ok_or(ExportError::UnknownSession(session))
    }

    /// Returns what may be shown of a text.
    pub(crate) fn visible_text(
        &self,
        text: &str,
        redaction: ExportRedaction,
    ) -> Result<String, ExportError> {
        match redaction {
            ExportRedaction::Raw => Ok(text.to_owned()),
            ExportRedaction::Redact => Ok(redact_text(self.require_redactor()?, text)?),
        }
    }

    /// Returns what may be shown of a value.
    pub(crate) fn visible_json(
        &self,
        value: &Json,
        redaction: ExportRedaction,
    ) -> Result<Json, ExportError> {
        match redaction {
            ExportRedaction::Raw => Ok(value.clone()),
            ExportRedaction::Redact => Ok(redact_json(self.require_redactor()?, value)?),
        }
    }

    fn require_redactor(&self) -> Result<&dyn Redactor, RedactionError> {
        // Without a redactor nothing can be guaranteed, so nothing is shown.
        self.redactor.as_deref().ok_or(RedactionError)
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}

impl ExportFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Markdown, Self::Json, Self::Html];

    /// Returns the word for the format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Json => "json",
            Self::Html => "html",
        }
    }

    /// Returns the usual ending of file names, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Markdown => "md",
            Self::Json => "jsonl",
            Self::Html => "html",
        }
    }
}

impl fmt::Display for ExportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error for a word that is not a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a format; use markdown, json or html")]
pub struct UnknownExportFormat(pub String);

impl FromStr for ExportFormat {
    type Err = UnknownExportFormat;
    fn from_str(word: &str) -> Result<Self, UnknownExportFormat> {
        let mut all = Self::ALL.into_iter();
        all.find(|format| format.as_str() == word)
            .ok_or_else(|| UnknownExportFormat(word.to_owned()))
    }
}
