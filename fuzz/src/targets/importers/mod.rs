//! Session files of other agents: whatever a file says, reading it is bounded, and a file that grows
//! only adds messages.

pub(super) mod archive;
pub(super) mod claude;
pub(super) mod cline;
pub(super) mod codex;
pub(super) mod gemini;
pub(super) mod markdown;
pub(super) mod opencode;
pub(super) mod qwen;

use toolgate_archive::{ForeignFormat, ForeignSession};

use crate::{InputTrace, MemoryBound};

/// The memory that a reader may use.
const MEMORY: MemoryBound = MemoryBound {
    base: 16 << 20,
    per_byte: 4096,
};

/// Reads a file of lines, and the file without its last line.
fn check_lines(format: ForeignFormat, data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    let whole = read(format, &text);
    if let Some(end) = text.trim_end_matches('\n').rfind('\n') {
        let before = read(format, &text[..=end]);
        let grown = whole.first().map_or(&[][..], |one| &one.messages);
        let known = before.first().map_or(&[][..], |one| &one.messages);
        assert!(
            grown.starts_with(known),
            "a line that was added changed what was before it"
        );
    }
    trace(&whole)
}

fn read(format: ForeignFormat, text: &str) -> Vec<ForeignSession> {
    let read = format.read(text, "name").unwrap_or_default();
    for session in &read {
        assert!(session.warnings.len() <= 101, "warnings are bounded");
        assert!(
            session
                .messages
                .iter()
                .all(|message| !message.parts.is_empty())
        );
    }
    read
}

fn trace(sessions: &[ForeignSession]) -> InputTrace {
    let first = sessions.first();
    let messages = first.map_or(0, |one| one.messages.len().min(4));
    let parts = first
        .and_then(|one| one.messages.last())
        .map_or(0, |last| last.parts.len().min(4));
    let warning = first.and_then(|one| one.warnings.first()).map(|text| {
        text.chars()
            .filter(|c| !c.is_numeric())
            .take(30)
            .collect::<String>()
    });
    InputTrace::of((sessions.len().min(3), messages, parts, warning))
}
