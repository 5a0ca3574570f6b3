//! The file of exported memories: one JSON object on each line.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    MemoryId, MemoryKind, MemoryRecord, MemorySource, MemoryText, RecallScope, SessionId, Timestamp,
};

/// The word that begins a file of memories, with the version of its format.
const FORMAT: &str = "toolgate-memories/1";

/// The maximum number of memories in a file.
const MAX_LINES: usize = 10_000;

/// The maximum length of a line in bytes.
const MAX_LINE_BYTES: usize = 32 * 1024;

/// A memory as it stands in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferredMemory {
    /// The id in the store that exported it; the importing store gives it a new one.
    pub id: MemoryId,
    /// The kind.
    pub kind: MemoryKind,
    /// The text.
    pub content: MemoryText,
    /// The scope.
    pub scope: TransferredScope,
    /// The source.
    pub source: MemorySource,
    /// The time at which it was stored.
    pub created_at: Timestamp,
    /// The time at which it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A scope as it stands in a file. That of a project has no directory: a file is read on other
/// machines, too, and the importing user says which project it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferredScope {
    /// One session.
    Session(SessionId),
    /// The project of the importing user.
    Project,
    /// Everything of the importing user.
    User,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileHead {
    format: String,
}

/// The reason why a file of memories is rejected, with the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidMemoryFile {
    /// The number of the line, counted from 1.
    pub line: usize,
    /// The problem with it.
    pub problem: String,
}

impl fmt::Display for InvalidMemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for InvalidMemoryFile {}

impl TransferredMemory {
    /// Returns a record as it stands in a file. Its owner and its uses stay behind.
    pub fn from_record(record: &MemoryRecord) -> Self {
        Self {
            id: record.id,
            kind: record.kind,
            content: record.content.clone(),
            scope: match &record.scope {
                RecallScope::Session(session) => TransferredScope::Session(*session),
                RecallScope::Project(_) => TransferredScope::Project,
                RecallScope::User => TransferredScope::User,
            },
            source: record.source.clone(),
            created_at: record.created_at,
            expires_at: record.expires_at,
        }
    }
}

/// Writes a file of memories.
///
/// # Panics
///
/// Never: every record is JSON.
pub fn write_memory_file(memories: &[TransferredMemory]) -> String {
    let head = FileHead {
        format: FORMAT.to_owned(),
    };
    let mut text = serde_json::to_string(&head).expect("a flat value is JSON");
    for memory in memories {
        text.push('\n');
        text.push_str(&serde_json::to_string(memory).expect("a memory is JSON"));
    }
    text.push('\n');
    text
}

/// Reads a file of memories, all of it or nothing. Empty lines are skipped.
///
/// # Errors
///
/// [`InvalidMemoryFile`] with the first bad line: one that is not a memory, is too long, or is after
/// the 10,000th.
pub fn read_memory_file(text: &str) -> Result<Vec<TransferredMemory>, InvalidMemoryFile> {
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let (first, head) = lines
        .by_ref()
        .find(|(_, line)| !line.trim().is_empty())
        .unwrap_or((1, ""));
    let head: FileHead = parse_line(first, head)?;
    if head.format != FORMAT {
        let found: String = head.format.chars().take(40).collect();
        let problem = format!("the format is {found:?}, and only {FORMAT:?} can be read");
        return Err(InvalidMemoryFile {
            line: first,
            problem,
        });
    }
    let mut memories = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        if memories.len() == MAX_LINES {
            return Err(InvalidMemoryFile {
                line: number,
                problem: format!("a file has at most {MAX_LINES} memories"),
            });
        }
        memories.push(parse_line(number, line)?);
    }
    Ok(memories)
}

fn parse_line<'a, T: Deserialize<'a>>(
    number: usize,
    line: &'a str,
) -> Result<T, InvalidMemoryFile> {
    let bad = |problem: String| InvalidMemoryFile {
        line: number,
        problem,
    };
    if line.len() > MAX_LINE_BYTES {
        return Err(bad(format!("it has more than {MAX_LINE_BYTES} bytes")));
    }
    // The message of the parser may repeat a part of the line, which may be anything.
    serde_json::from_str(line).map_err(|error| {
        let column = error.column();
        let message = error.to_string();
        // The parser counts lines of its own.
        let message = message.split(" at line ").next().unwrap_or_default();
        let message: String = message.chars().take(200).collect();
        // A line break is part of a text that is shown, but not of a message of one line.
        let message = crate::escape_invisible(&message).replace('\n', "⟨U+000A⟩");
        bad(format!("{message}, at column {column}"))
    })
}
