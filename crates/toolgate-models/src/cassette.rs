//! The file in which exchanges with a model are kept: a line that says what it is, then one line per exchange.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use toolgate_core::{
    Delta, Finish, Message, ModelError, ModelErrorKind, ModelName, Reply, Routed, Usage,
};

use crate::outline::Outline;

/// The format that this version writes, and the newest that it reads.
const VERSION: u32 = 1;

/// Why a cassette cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CassetteError {
    /// The file could not be opened, read or written.
    #[error("{path}: the cassette cannot be opened")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A later version of Toolgate wrote it.
    #[error(
        "{path}: the cassette has version {found}, and this program reads up to version {VERSION}"
    )]
    Newer {
        /// Which file.
        path: String,
        /// Its version.
        found: u32,
    },
    /// A line is not what it should be.
    #[error("{path}:{line}: the cassette is damaged: {problem}")]
    Damaged {
        /// Which file.
        path: String,
        /// Which line, counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// Somebody else is recording.
    #[error("{path}: another recorder writes to the cassette")]
    Busy {
        /// Which file.
        path: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Header {
    toolgate_cassette: u32,
    model: String,
}

/// A request and what came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Exchange {
    pub(crate) request: Outline,
    pub(crate) deltas: Vec<Piece>,
    #[serde(flatten)]
    pub(crate) end: End,
}

/// [`Delta`] as it is written, without the last.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Piece {
    Routed(Routed),
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
pub(crate) enum End {
    Reply(KeptReply),
    Error(KeptError),
}

/// [`Reply`] as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeptReply {
    message: Message,
    usage: Option<Usage>,
    finish: Finish,
    model: Option<String>,
    id: Option<String>,
}

/// [`ModelError`] as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeptError {
    kind: ModelErrorKind,
    model: String,
    status: Option<u16>,
    retry_after: Option<Duration>,
    detail: String,
}

/// A cassette that was read.
pub(crate) struct Cassette {
    pub(crate) model: ModelName,
    pub(crate) exchanges: Vec<Exchange>,
}

impl Cassette {
    pub(crate) fn open(path: &Path) -> Result<Self, CassetteError> {
        let text = std::fs::read(path).map_err(|error| unusable(path, error))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, CassetteError> {
        let damaged = |line: usize, problem: &str| damaged(path, line, problem);
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
        let (_, first) = lines.next().ok_or_else(|| damaged(1, "it is empty"))?;
        let header: Header =
            serde_json::from_slice(first).map_err(|_| damaged(1, "it does not begin like one"))?;
        if header.toolgate_cassette > VERSION {
            return Err(CassetteError::Newer {
                path: shown(path),
                found: header.toolgate_cassette,
            });
        }
        let model = header
            .model
            .parse()
            .map_err(|_| damaged(1, "it names no model"))?;
        let mut exchanges: Vec<Exchange> = Vec::new();
        for (at, line) in lines {
            if !line.ends_with(b"\n") {
                return Err(damaged(at + 1, "it ends in the middle"));
            }
            let mut exchange: Exchange =
                serde_json::from_slice(line).map_err(|error| damaged(at + 1, &problem(&error)))?;
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

/// A cassette that is written to.
pub(crate) struct Tape {
    file: File,
    length: u64,
    /// The request that was written last.
    last: Option<Outline>,
}

impl Tape {
    /// Opens a cassette, or begins one that only its owner can read.
    pub(crate) fn open(path: &Path, model: &ModelName) -> Result<Self, CassetteError> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let io = |error| unusable(path, error);
        let file = options.open(path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(CassetteError::Busy { path: shown(path) });
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(io(error)),
        }
        let length = file.metadata().map_err(io)?.len();
        let mut tape = Self {
            file,
            length,
            last: None,
        };
        match length {
            0 => {
                let header = Header {
                    toolgate_cassette: VERSION,
                    model: model.to_string(),
                };
                let line = serde_json::to_string(&header).expect("a header can be written");
                tape.append(line).map_err(io)?;
            }
            _ => {
                tape.last = Cassette::open(path)?
                    .exchanges
                    .pop()
                    .map(|exchange| exchange.request)
            }
        }
        Ok(tape)
    }

    /// Writes an exchange whole or not at all. `check` sees the line first.
    pub(crate) fn write(
        &mut self,
        mut exchange: Exchange,
        check: impl FnOnce(&str) -> Result<(), NotWritten>,
    ) -> Result<(), NotWritten> {
        let outline = exchange.request.clone();
        let same = self.last.as_ref().map_or(0, |last| last.common(&outline));
        exchange.request.same = same;
        exchange.request.messages.drain(..same);
        let line =
            serde_json::to_string(&exchange).map_err(|error| NotWritten::Io(error.into()))?;
        check(&line)?;
        self.append(line).map_err(NotWritten::Io)?;
        self.last = Some(outline);
        Ok(())
    }

    fn append(&mut self, mut line: String) -> io::Result<()> {
        line.push('\n');
        let written = self.file.write_all(line.as_bytes());
        match written {
            Ok(()) => self.length += line.len() as u64,
            // Half a line would make everything after it unreadable.
            Err(_) => self.file.set_len(self.length)?,
        }
        written
    }
}

/// Why an exchange is not on the cassette.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotWritten {
    #[error("secrets could not be taken out of it, so nothing was written")]
    Redaction,
    #[error("the cassette could not be written: {0}")]
    Io(io::Error),
}

impl From<toolgate_core::RedactionFailed> for NotWritten {
    fn from(_: toolgate_core::RedactionFailed) -> Self {
        Self::Redaction
    }
}

impl Piece {
    /// A piece to write; the last one is not among the pieces.
    pub(crate) fn of(delta: Delta) -> Option<Self> {
        Some(match delta {
            Delta::Routed(routed) => Self::Routed(routed),
            Delta::Text(text) => Self::Text(text),
            Delta::Reasoning(text) => Self::Reasoning(text),
            Delta::Call { index, id, tool } => Self::Call { index, id, tool },
            Delta::Arguments { index, text } => Self::Arguments { index, text },
            Delta::Done(_) => return None,
        })
    }

    pub(crate) fn delta(self) -> Delta {
        match self {
            Self::Routed(routed) => Delta::Routed(routed),
            Self::Text(text) => Delta::Text(text),
            Self::Reasoning(text) => Delta::Reasoning(text),
            Self::Call { index, id, tool } => Delta::Call { index, id, tool },
            Self::Arguments { index, text } => Delta::Arguments { index, text },
        }
    }
}

impl From<Reply> for KeptReply {
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

impl From<KeptReply> for Reply {
    fn from(kept: KeptReply) -> Self {
        let KeptReply {
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

impl KeptError {
    pub(crate) fn of(error: &ModelError, detail: String) -> Self {
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

    /// The error again; `model` stands in for a name that cannot be read.
    pub(crate) fn error(self, model: &ModelName) -> ModelError {
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
            detail,
        }
    }
}

fn unusable(path: &Path, source: io::Error) -> CassetteError {
    CassetteError::Io {
        path: shown(path),
        source,
    }
}

fn damaged(path: &Path, line: usize, problem: &str) -> CassetteError {
    CassetteError::Damaged {
        path: shown(path),
        line,
        problem: problem.to_owned(),
    }
}

/// What the parser stumbled over. The line it counts is always the first.
fn problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(problem, _)| problem);
    format!("{text} at column {}", error.column())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
