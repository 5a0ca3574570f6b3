//! Export and import of sessions.
//!
//! An [`Exporter`] writes sessions as Markdown, as an HTML page, or as an archive of JSON lines. A raw
//! archive is lossless: importing it into an empty store and exporting it again gives the same bytes.
//! An [`Importer`] reads archives, our own Markdown, and the session files of other agents.
//!
//! The three types to know are [`Exporter`], [`ExportOptions`] and [`Importer`]. Opening files, asking
//! before one is replaced and finding the files of other agents is left to the program.

mod error;
mod export;
mod import;
mod line;
mod markdown_marks;
mod reader;
mod redaction;
mod writer;

pub use error::{ExportError, ImportError};
pub use export::{
    ExportFormat, ExportOptions, ExportRedaction, ExportSummary, Exporter, UnknownExportFormat,
};
pub use import::foreign::{
    ForeignFormat, ForeignMessage, ForeignPart, ForeignRole, ForeignSession, MAX_FILE_BYTES,
    OpencodeRow, UnknownForeignFormat,
};
pub use import::{ImportResult, ImportState, ImportedLedger, Importer};
