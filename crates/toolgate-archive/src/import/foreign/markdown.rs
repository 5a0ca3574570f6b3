//! Our own Markdown: parts between marks, with the texts exactly as they were.

use serde_json::Value;
use toolgate_core::SessionId;

use super::{ForeignFormat, ForeignMessage, ForeignPart, ForeignRole, ForeignSession};
use crate::{
    ImportError,
    markdown_marks::{MARKDOWN_VERSION, MarkdownKey, MarkdownMark},
};

pub(super) fn read(text: &str) -> Result<Vec<ForeignSession>, ImportError> {
    let mut sessions = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while !rest.trim().is_empty() {
        let document = MarkdownDocument::parse(rest, line)?;
        line += rest[..document.length].matches('\n').count();
        rest = &rest[document.length..];
        sessions.push(document.into_session()?);
    }
    Ok(sessions)
}

/// One document: its parts, in order, with the numbers of their lines.
struct MarkdownDocument<'a> {
    parts: Vec<(usize, MarkdownMark, &'a str)>,
    length: usize,
}

impl<'a> MarkdownDocument<'a> {
    fn parse(text: &'a str, line: usize) -> Result<Self, ImportError> {
        let fail = |what: &str| Err(ImportError::at_line(line as u64, what));
        let first = text.lines().next().unwrap_or_default();
        let Some(key) = MarkdownKey::find(first) else {
            return fail("it is not the beginning of a page that Toolgate exported");
        };
        let start = key.start();
        let mut parts = Vec::new();
        let mut at = 0;
        loop {
            let body = &text[at..];
            let mark_end = body.find('\n').unwrap_or(body.len());
            let number = line + text[..at].matches('\n').count();
            let Some(mark) = key.read(body[..mark_end].trim_end_matches('\r')) else {
                return Err(ImportError::at_line(
                    number as u64,
                    "its mark cannot be read",
                ));
            };
            if mark == MarkdownMark::End {
                let length = (at + mark_end + 1).min(text.len());
                return Ok(Self { parts, length });
            }
            let content = body.get(mark_end + 1..).unwrap_or_default();
            // The key occurs in no text, so the next one begins the next part.
            let Some(next) = content.find(&start) else {
                return Err(ImportError::Truncated {
                    line: number as u64,
                });
            };
            parts.push((number, mark, &content[..next]));
            at += mark_end + 1 + next;
        }
    }

    fn into_session(self) -> Result<ForeignSession, ImportError> {
        let mut parts = self.parts.into_iter();
        let id = match parts.next() {
            Some((
                _,
                MarkdownMark::Session {
                    version, session, ..
                },
                _,
            )) => {
                check_version(version)?;
                session
            }
            _ => {
                return Err(ImportError::at_line(
                    1,
                    "the page does not begin with a session",
                ));
            }
        };
        let mut session = ForeignSession::new(ForeignFormat::Markdown, SessionId::to_string(&id));
        for (number, mark, body) in parts {
            let Some(text) = text_of_part(body) else {
                session.warn(number, "its part is not as it was written");
                continue;
            };
            add_part(&mut session, number, mark, text);
        }
        Ok(session.finish())
    }
}

fn check_version(found: u32) -> Result<(), ImportError> {
    let known = MARKDOWN_VERSION;
    if found == known {
        Ok(())
    } else {
        Err(ImportError::Version { found, known })
    }
}

/// Returns the text of a part: between its heading and the empty line at its end.
fn text_of_part(body: &str) -> Option<&str> {
    let (_, text) = body.split_once("\n\n")?;
    text.strip_suffix("\n\n")
}

/// Returns the content of a fenced block.
fn code_of(text: &str) -> Option<&str> {
    let (open, rest) = text.split_once('\n')?;
    let fence = open.trim_end_matches(|letter: char| letter != '`');
    rest.strip_suffix(fence)?.strip_suffix('\n')
}

fn add_part(session: &mut ForeignSession, number: usize, mark: MarkdownMark, text: &str) {
    match mark {
        MarkdownMark::System => session.system.push(text.to_owned()),
        MarkdownMark::User { at } => {
            let mut message = ForeignMessage::new(ForeignRole::User, Some(at));
            message.parts.push(ForeignPart::Text(text.to_owned()));
            session.add(message);
        }
        MarkdownMark::Assistant { at, model } => {
            let mut message = ForeignMessage::new(ForeignRole::Assistant, Some(at));
            message.model = model;
            message.parts.push(ForeignPart::Text(text.to_owned()));
            session.add(message);
        }
        MarkdownMark::Call { label, tool } => {
            let Some(code) = code_of(text) else {
                return session.warn(number, "its block is not as it was written");
            };
            let arguments = serde_json::from_str(code);
            let arguments = arguments.unwrap_or_else(|_| Value::String(code.to_owned()));
            let call = ForeignPart::Call {
                label,
                tool,
                arguments,
            };
            add_to_last(session, ForeignRole::Assistant, call);
        }
        MarkdownMark::Result {
            label, is_error, ..
        } => {
            let Some(code) = code_of(text) else {
                return session.warn(number, "its block is not as it was written");
            };
            let text = code.to_owned();
            let result = ForeignPart::Result {
                label,
                text,
                is_error,
            };
            add_to_last(session, ForeignRole::Tool, result);
        }
        MarkdownMark::Note => {}
        MarkdownMark::Session { .. } | MarkdownMark::End => {
            session.warn(number, "its mark is out of place");
        }
    }
}

/// Adds a part to the last message, or to a new one if the last is of another author.
fn add_to_last(session: &mut ForeignSession, role: ForeignRole, part: ForeignPart) {
    if let Some(last) = session.messages.last_mut().filter(|last| last.role == role) {
        return last.parts.push(part);
    }
    let at = session.messages.last().and_then(|last| last.at);
    let mut message = ForeignMessage::new(role, at);
    message.parts.push(part);
    session.add(message);
}
