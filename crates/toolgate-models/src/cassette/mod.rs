//! The file format of recorded exchanges with a model: a header line, then one line per exchange.

mod outline;
pub(crate) mod record;
mod redact;
pub(crate) mod replay;

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use toolgate_core::{
    Delta, FinishReason, Message, ModelError, ModelErrorKind, ModelName, Reply, RoutedModel, Usage,
};

use crate::cassette::outline::RequestOutline;

/// The format version that is written, and the newest that is read.
const CASSETTE_VERSION: u32 = 1;

/// The reason why a cassette cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CassetteError {
    /// The file could not be opened, read or written.
    #[error("{path}: the cassette cannot be opened: {source}")]
    Io {
        /// The path of the file.
        path: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A later version of Toolgate wrote the file.
    #[error(
        "{path}: the cassette has version {found}, and this program reads up to version {CASSETTE_VERSION}"
    )]
    Newer {
        /// The path of the file.
        path: String,
        /// The version of the file.
        found: u32,
    },
    /// A line cannot be parsed.
    #[error("{path}:{line}: the cassette is damaged: {problem}")]
    Damaged {
        /// The path of the file.
        path: String,
        /// The number of the line, counted from 1.
        line: usize,
        /// The problem with the line.
        problem: String,
    },
    /// Another recorder has locked the file.
    #[error("{path}: another recorder is writing to the cassette")]
    Busy {
        /// The path of the file.
        path: String,
    },
}

#[derive(Serialize, Deserialize)]
struct CassetteHeader {
    toolgate_cassette: u32,
    model: String,
}

/// A request and its outcome.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecordedExchange {
    pub(crate) request: RequestOutline,
    pub(crate) deltas: Vec<RecordedDelta>,
    #[serde(flatten)]
    pub(crate) end: RecordedEnd,
}

/// [`Delta`] in its serialized form, without the final one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordedDelta {
    Routed(RoutedModel),
    Text(String),
    Reasoning(String),
    Call {
        index: usize,
        id: String,
        tool: String,
    },
    Arguments {
        index: usize,
        text: String,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordedEnd {
    Reply(RecordedReply),
    Error(RecordedError),
}

/// [`Reply`] in its serialized form.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecordedReply {
    message: Message,
    usage: Option<Usage>,
    finish: FinishReason,
    model: Option<String>,
    id: Option<String>,
}

/// [`ModelError`] in its serialized form.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecordedError {
    kind: ModelErrorKind,
    model: String,
    status: Option<u16>,
    retry_after: Option<Duration>,
    detail: String,
}

/// A cassette that was loaded.
pub(crate) struct Cassette {
    pub(crate) model: ModelName,
    pub(crate) exchanges: Vec<RecordedExchange>,
}

impl Cassette {
    pub(crate) fn load(path: &Path) -> Result<Self, CassetteError> {
        let text = std::fs::read(path).map_err(|error| io_error(path, error))?;
        Self::parse_lines(path, &text)
    }

    fn parse_lines(path: &Path, bytes: &[u8]) -> Result<Self, CassetteError> {
        let damaged = |line: usize, problem: &str| damaged_error(path, line, problem);
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
        let (_, first) = lines.next().ok_or_else(|| damaged(1, "it is empty"))?;
        let header: CassetteHeader =
            serde_json::from_slice(first).map_err(|_| damaged(1, "the header is missing"))?;
        if header.toolgate_cassette > CASSETTE_VERSION {
            return Err(CassetteError::Newer {
                path: path_text(path),
                found: header.toolgate_cassette,
            });
        }
        let model = header
            .model
            .parse()
            .map_err(|_| damaged(1, "it names no model"))?;
        let mut exchanges: Vec<RecordedExchange> = Vec::new();
        for (at, line) in lines {
            if !line.ends_with(b"\n") {
                return Err(damaged(at + 1, "the line is truncated"));
            }
            let mut exchange: RecordedExchange = serde_json::from_slice(line)
                .map_err(|error| damaged(at + 1, &parser_message(&error)))?;
            // A line repeats only the messages that are new since the exchange before it.
            let before = exchanges
                .last()
                .map_or(&[][..], |last| &last.request.messages);
            let same = before.get(..exchange.request.same);
            let mut messages = same
                .ok_or_else(|| damaged(at + 1, "the exchange before it is missing"))?
                .to_vec();
            messages.append(&mut exchange.request.messages);
            exchange.request.messages = messages;
            exchanges.push(exchange);
        }
        Ok(Self { model, exchanges })
    }
}

/// Loads a cassette from memory and returns the number of its exchanges.
#[cfg(feature = "http")]
pub(crate) fn count_exchanges_in(bytes: &[u8]) -> Result<usize, CassetteError> {
    let cassette = Cassette::parse_lines(Path::new("cassette"), bytes)?;
    Ok(cassette.exchanges.len())
}

/// A cassette that is open for writing.
pub(crate) struct CassetteWriter {
    file: File,
    length: u64,
    /// The request that was written last.
    last: Option<RequestOutline>,
}

impl CassetteWriter {
    /// Opens a cassette, or creates one that only its owner can read.
    pub(crate) fn open(path: &Path, model: &ModelName) -> Result<Self, CassetteError> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let io = |error| io_error(path, error);
        let file = options.open(path).map_err(io)?;
        // Each line builds on the one before it, so lines of two recorders must not be mixed.
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(CassetteError::Busy {
                    path: path_text(path),
                });
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(io(error)),
        }
        // Only under the lock: until then another recorder may have written.
        let length = file.metadata().map_err(io)?.len();
        let mut tape = Self {
            file,
            length,
            last: None,
        };
        match length {
            0 => {
                let header = CassetteHeader {
                    toolgate_cassette: CASSETTE_VERSION,
                    model: model.to_string(),
                };
                let line =
                    serde_json::to_string(&header).expect("a header has only text and numbers");
                tape.append_line(line).map_err(io)?;
            }
            _ => {
                tape.last = Cassette::load(path)?
                    .exchanges
                    .pop()
                    .map(|exchange| exchange.request)
            }
        }
        Ok(tape)
    }

    /// Writes an exchange whole or not at all. `check` sees the line first.
    pub(crate) fn write_exchange(
        &mut self,
        mut exchange: RecordedExchange,
        check: impl FnOnce(&str) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let outline = exchange.request.clone();
        let same = self
            .last
            .as_ref()
            .map_or(0, |last| last.common_messages(&outline));
        exchange.request.same = same;
        exchange.request.messages.drain(..same);
        let line =
            serde_json::to_string(&exchange).map_err(|error| RecordError::Io(error.into()))?;
        check(&line)?;
        self.append_line(line).map_err(RecordError::Io)?;
        // Only once the line is in the file: the next line builds on it.
        self.last = Some(outline);
        Ok(())
    }

    fn append_line(&mut self, mut line: String) -> io::Result<()> {
        line.push('\n');
        let written = self.file.write_all(line.as_bytes());
        match written {
            Ok(()) => self.length += line.len() as u64,
            // A partial line would make everything after it unreadable.
            Err(_) => self.file.set_len(self.length)?,
        }
        written
    }
}

/// The reason why an exchange was not written to the cassette.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("redaction failed, so nothing was written")]
    Redaction,
    #[error("the cassette could not be written: {0}")]
    Io(io::Error),
}

impl From<toolgate_core::RedactionError> for RecordError {
    fn from(_: toolgate_core::RedactionError) -> Self {
        Self::Redaction
    }
}

impl RecordedDelta {
    /// Converts a delta; the final one is stored separately.
    pub(crate) fn from_delta(delta: Delta) -> Option<Self> {
        Some(match delta {
            Delta::Routed(routed) => Self::Routed(routed),
            Delta::Text(text) => Self::Text(text),
            Delta::Reasoning(text) => Self::Reasoning(text),
            Delta::Call { index, id, tool } => Self::Call { index, id, tool },
            Delta::Arguments { index, text } => Self::Arguments { index, text },
            Delta::Retry(_) | Delta::Done(_) => return None,
        })
    }

    pub(crate) fn into_delta(self) -> Delta {
        match self {
            Self::Routed(routed) => Delta::Routed(routed),
            Self::Text(text) => Delta::Text(text),
            Self::Reasoning(text) => Delta::Reasoning(text),
            Self::Call { index, id, tool } => Delta::Call { index, id, tool },
            Self::Arguments { index, text } => Delta::Arguments { index, text },
        }
    }
}

impl From<Reply> for RecordedReply {
    fn from(reply: Reply) -> Self {
        let Reply {
            message,
            usage,
            finish,
            model,
            id,
        } = reply;
        Self {
            message,
            usage,
            finish,
            model,
            id,
        }
    }
}

impl From<RecordedReply> for Reply {
    fn from(kept: RecordedReply) -> Self {
        let RecordedReply {
            message,
            usage,
            finish,
            model,
            id,
        } = kept;
        Self {
            message,
            usage,
            finish,
            model,
            id,
        }
    }
}

impl RecordedError {
    pub(crate) fn from_error(error: &ModelError, detail: String) -> Self {
        let ModelError {
            kind,
            status,
            retry_after,
            ..
        } = *error;
        Self {
            kind,
            model: error.model.to_string(),
            status,
            retry_after,
            detail,
        }
    }

    /// Restores the error; `model` replaces a name that cannot be parsed.
    pub(crate) fn into_error(self, model: &ModelName) -> ModelError {
        let Self {
            kind,
            status,
            retry_after,
            detail,
            ..
        } = self;
        ModelError {
            kind,
            model: self.model.parse().unwrap_or_else(|_| model.clone()),
            status,
            retry_after,
            retry_within: None,
            detail,
        }
    }
}

fn io_error(path: &Path, source: io::Error) -> CassetteError {
    CassetteError::Io {
        path: path_text(path),
        source,
    }
}

fn damaged_error(path: &Path, line: usize, problem: &str) -> CassetteError {
    CassetteError::Damaged {
        path: path_text(path),
        line,
        problem: problem.to_owned(),
    }
}

/// Returns the parser's message without its line, which is always the first.
fn parser_message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(problem, _)| problem);
    format!("{text} at column {}", error.column())
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}
