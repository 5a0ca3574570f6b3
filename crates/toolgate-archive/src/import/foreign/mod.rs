//! Sessions of other agents: what their files say, and how it becomes history here.
//!
//! The caller passes the text of a file; only the command line knows where programs store theirs.
//!
//! A reader turns a file into [`ForeignSession`]s. It invents nothing: text and calls are taken over,
//! bookkeeping is skipped, and what it does not know becomes a warning with its line number.

mod claude;
mod cline;
mod codex;
mod gemini;
mod history;
mod json_lines;
mod markdown;
mod opencode;
mod qwen;
mod store;

use std::{fmt, str::FromStr};

use serde::Serialize;
use serde_json::Value;
use toolgate_core::{Timestamp, Usage};

use crate::ImportError;
pub use opencode::OpencodeRow;

/// The largest file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 512 * 1024 * 1024;

/// The most messages of one session. Those after it are left out, with a warning.
pub(crate) const MAX_MESSAGES: usize = 200_000;

/// The most warnings that one file gives.
const MAX_WARNINGS: usize = 100;

/// A program whose session files can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForeignFormat {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Qwen Code.
    Qwen,
    /// Cline.
    Cline,
    /// opencode, whose sessions are in an SQLite file.
    Opencode,
    /// Markdown that Toolgate exported.
    Markdown,
}

impl ForeignFormat {
    /// All formats.
    pub const ALL: [Self; 7] = [
        Self::Claude,
        Self::Codex,
        Self::Gemini,
        Self::Qwen,
        Self::Cline,
        Self::Opencode,
        Self::Markdown,
    ];

    /// Returns the word for the format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Qwen => "qwen",
            Self::Cline => "cline",
            Self::Opencode => "opencode",
            Self::Markdown => "markdown",
        }
    }

    /// Returns the name of the program that people know.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Qwen => "Qwen Code",
            Self::Cline => "Cline",
            Self::Opencode => "opencode",
            Self::Markdown => "Toolgate (Markdown)",
        }
    }

    /// Guesses the format from the text of a file.
    pub fn detect(text: &str) -> Option<Self> {
        let first = text.lines().next().unwrap_or_default();
        if crate::markdown_marks::MarkdownKey::find(first).is_some() {
            return Some(Self::Markdown);
        }
        let lines = text.lines().take(20);
        let mut values = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        values
            .find_map(|value| detect_value(&value))
            .or_else(|| cline::is_cline(text).then_some(Self::Cline))
    }

    /// Reads the sessions in the text of a file. `name` is the name of the file without its ending;
    /// it names a session whose file does not. There are none if the file has only bookkeeping.
    ///
    /// # Errors
    ///
    /// Fails if the file is not of the format as a whole. Lines that are not understood are warnings.
    pub fn read(self, text: &str, name: &str) -> Result<Vec<ForeignSession>, ImportError> {
        let mut sessions = match self {
            Self::Claude => vec![claude::read(text, name)],
            Self::Codex => vec![codex::read(text, name)],
            Self::Gemini => vec![gemini::read(text, name)],
            Self::Qwen => vec![qwen::read(text, name)],
            Self::Cline => vec![cline::read(text, name)],
            Self::Markdown => markdown::read(text)?,
            Self::Opencode => {
                let what = "the sessions of opencode are in a database, not in a text file";
                return Err(ImportError::Unusable(what.to_owned()));
            }
        };
        sessions.retain(|session| !session.messages.is_empty() || !session.warnings.is_empty());
        Ok(sessions)
    }

    /// Reads sessions from the rows of opencode's tables, in the order of their times.
    pub fn read_rows(rows: impl IntoIterator<Item = OpencodeRow>) -> Vec<ForeignSession> {
        opencode::read(rows)
    }
}

/// Returns the format whose lines look like this value.
fn detect_value(value: &Value) -> Option<ForeignFormat> {
    let kind = value.get("type").and_then(Value::as_str)?;
    let has = |field: &str| value.get(field).is_some();
    match kind {
        "session_meta" | "response_item" | "turn_context" | "event_msg" if has("payload") => {
            Some(ForeignFormat::Codex)
        }
        "user" | "assistant" if has("message") && has("sessionId") => {
            let parts = value.pointer("/message/parts");
            Some(match parts {
                Some(_) => ForeignFormat::Qwen,
                None => ForeignFormat::Claude,
            })
        }
        "tool_result" if value.pointer("/message/parts").is_some() => Some(ForeignFormat::Qwen),
        "user" | "gemini" if has("content") => Some(ForeignFormat::Gemini),
        _ => None,
    }
}

impl fmt::Display for ForeignFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error for a word that is not a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a program whose sessions can be imported")]
pub struct UnknownForeignFormat(pub String);

impl FromStr for ForeignFormat {
    type Err = UnknownForeignFormat;
    fn from_str(word: &str) -> Result<Self, UnknownForeignFormat> {
        let mut all = Self::ALL.into_iter();
        all.find(|format| format.as_str() == word)
            .ok_or_else(|| UnknownForeignFormat(word.to_owned()))
    }
}

/// A session as another program wrote it.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignSession {
    /// The program.
    pub format: ForeignFormat,
    /// The id of the session there.
    pub id: String,
    /// The title there, if it has one.
    pub title: Option<String>,
    /// The directory that it worked in.
    pub directory: Option<String>,
    /// Instructions and system messages.
    pub system: Vec<String>,
    /// The messages, oldest first.
    pub messages: Vec<ForeignMessage>,
    /// What was not understood, with line numbers.
    pub warnings: Vec<String>,
    more_warnings: u64,
}

/// A message as another program wrote it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForeignMessage {
    /// The author.
    pub role: ForeignRole,
    /// The time, if the file has one.
    pub at: Option<Timestamp>,
    /// The model, if the file names it.
    pub model: Option<String>,
    /// The tokens, if the file has them.
    pub usage: Option<Usage>,
    /// The content, in order.
    pub parts: Vec<ForeignPart>,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum ForeignRole {
    /// The user.
    User,
    /// The model.
    Assistant,
    /// The tools.
    Tool,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum ForeignPart {
    /// Text.
    Text(String),
    /// Reasoning that the program stored as text.
    Reasoning(String),
    /// A call.
    Call {
        /// The label.
        label: String,
        /// The tool.
        tool: String,
        /// The arguments.
        arguments: Value,
    },
    /// The result of a call.
    Result {
        /// The label of the call.
        label: String,
        /// The text.
        text: String,
        /// True if the program says that it failed.
        is_error: bool,
    },
}

impl ForeignSession {
    pub(crate) fn new(format: ForeignFormat, id: impl Into<String>) -> Self {
        Self {
            format,
            id: id.into(),
            title: None,
            directory: None,
            system: Vec::new(),
            messages: Vec::new(),
            warnings: Vec::new(),
            more_warnings: 0,
        }
    }

    /// Adds a warning about a line, counted from 1.
    pub(crate) fn warn(&mut self, line: usize, what: impl fmt::Display) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(format!("line {line}: {what}"));
        } else {
            self.more_warnings += 1;
        }
    }

    /// Adds a message that has content.
    pub(crate) fn add(&mut self, message: ForeignMessage) {
        if message.parts.is_empty() {
            return;
        }
        if self.messages.len() < MAX_MESSAGES {
            self.messages.push(message);
        } else {
            self.more_warnings += 1;
        }
    }

    /// Completes the warnings.
    pub(crate) fn finish(mut self) -> Self {
        if self.more_warnings > 0 {
            let more = self.more_warnings;
            self.warnings
                .push(format!("{more} more lines or messages were left out"));
            self.more_warnings = 0;
        }
        self
    }
}

impl ForeignMessage {
    pub(crate) fn new(role: ForeignRole, at: Option<Timestamp>) -> Self {
        Self {
            role,
            at,
            model: None,
            usage: None,
            parts: Vec::new(),
        }
    }

    pub(crate) fn add_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.parts.push(ForeignPart::Text(text.to_owned()));
        }
    }

    /// Moves results into a message of the tools, which is returned if there are any.
    pub(crate) fn split_results(&mut self) -> Option<Self> {
        let is_result = |part: &ForeignPart| matches!(part, ForeignPart::Result { .. });
        let (results, rest): (Vec<_>, Vec<_>) = self.parts.drain(..).partition(is_result);
        self.parts = rest;
        let mut tools = Self::new(ForeignRole::Tool, self.at);
        tools.parts = results;
        (!tools.parts.is_empty()).then_some(tools)
    }
}

/// Returns the text of a value that is text, or a list of blocks with text.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| {
                block
                    .as_str()
                    .or_else(|| block.get("text").and_then(Value::as_str))
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Null => String::new(),
        Value::Object(_) | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Returns the field of this name, if it is text.
pub(crate) fn str_of<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field).and_then(Value::as_str)
}

/// Returns the time in a field: RFC 3339, or milliseconds since 1970.
pub(crate) fn time_of(value: &Value, field: &str) -> Option<Timestamp> {
    match value.get(field)? {
        Value::String(text) => text.parse().ok(),
        Value::Number(millis) => time_from_millis(millis.as_i64()?),
        _ => None,
    }
}

/// Returns a time in milliseconds since 1970. One that no calendar has is none: an event with it
/// could not be read again.
pub(crate) fn time_from_millis(millis: i64) -> Option<Timestamp> {
    let time = Timestamp::from_micros(millis.checked_mul(1_000)?);
    time.to_string().parse().ok()
}
