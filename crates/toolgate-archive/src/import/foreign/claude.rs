//! Session files of Claude Code: lines `user` and `assistant` with content blocks of Anthropic's API,
//! between many lines of bookkeeping.

use serde_json::Value;
use toolgate_core::Usage;

use super::{
    ForeignFormat, ForeignMessage, ForeignPart, ForeignRole, ForeignSession,
    json_lines::read_lines, str_of, text_of, time_of,
};

/// Types of lines that are no part of the conversation.
const BOOKKEEPING: [&str; 12] = [
    "summary",
    "system",
    "progress",
    "file-history-snapshot",
    "queue-operation",
    "custom-title",
    "ai-title",
    "agent-name",
    "agent-setting",
    "attachment",
    "last-prompt",
    "permission-mode",
];

pub(super) fn read(text: &str, name: &str) -> ForeignSession {
    let mut session = ForeignSession::new(ForeignFormat::Claude, name);
    let mut counted = None;
    let mut side_lines = 0;
    read_lines(&mut session, text, |session, number, line| {
        if is_of_subagent(line) {
            side_lines += 1;
        } else {
            read_line(session, number, line, &mut counted);
        }
    });
    if side_lines > 0 {
        session.warnings.push(format!(
            "{side_lines} lines of sub-agents were left out: they are no part of the conversation"
        ));
    }
    session.finish()
}

/// Checks whether a line is of a conversation between the model and a sub-agent. Its messages `user`
/// are what the model wrote, not the user.
fn is_of_subagent(line: &Value) -> bool {
    line.get("isSidechain").and_then(Value::as_bool) == Some(true)
}

/// Reads a line. `counted` is the id of the last reply whose tokens were counted.
fn read_line(
    session: &mut ForeignSession,
    number: usize,
    line: &Value,
    counted: &mut Option<String>,
) {
    let kind = str_of(line, "type").unwrap_or_default();
    if let Some(directory) = str_of(line, "cwd").filter(|_| session.directory.is_none()) {
        session.directory = Some(directory.to_owned());
    }
    let role = match kind {
        "user" => ForeignRole::User,
        "assistant" => ForeignRole::Assistant,
        "summary" => {
            session.title = str_of(line, "summary").map(str::to_owned);
            return;
        }
        "custom-title" | "ai-title" => {
            let title = str_of(line, "customTitle").or(str_of(line, "aiTitle"));
            session.title = title.map(str::to_owned).or(session.title.take());
            return;
        }
        kind if BOOKKEEPING.contains(&kind) => return,
        kind => return session.warn(number, format_args!("its type {kind:?} is not known")),
    };
    // Notes of the program to itself look like messages of the user.
    if line.get("isMeta").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let Some(message) = line.get("message") else {
        return session.warn(number, "it has no message");
    };
    let mut read = ForeignMessage::new(role, time_of(line, "timestamp"));
    read.model = str_of(message, "model").map(str::to_owned);
    // A reply of several blocks is a line for each, and each line has the tokens of the whole reply.
    let id = str_of(message, "id").map(str::to_owned);
    if id.is_none() || id != *counted {
        read.usage = message.get("usage").and_then(usage_of);
        *counted = id;
    }
    read_content(session, number, message.get("content"), &mut read);
    let tools = read.split_results();
    session.messages_of(read, tools);
}

impl ForeignSession {
    /// Adds a message and the results that were in it. Results come first: they answer what was
    /// before.
    pub(super) fn messages_of(&mut self, message: ForeignMessage, tools: Option<ForeignMessage>) {
        if let Some(tools) = tools {
            self.add(tools);
        }
        self.add(message);
    }
}

pub(super) fn read_content(
    session: &mut ForeignSession,
    number: usize,
    content: Option<&Value>,
    message: &mut ForeignMessage,
) {
    match content {
        Some(Value::String(text)) => message.add_text(text),
        Some(Value::Array(blocks)) => {
            blocks
                .iter()
                .for_each(|block| read_block(session, number, block, message));
        }
        Some(_) | None => session.warn(number, "its message has no content"),
    }
}

fn read_block(
    session: &mut ForeignSession,
    number: usize,
    block: &Value,
    message: &mut ForeignMessage,
) {
    let label = |field: &str| str_of(block, field).unwrap_or_default().to_owned();
    match str_of(block, "type").unwrap_or_default() {
        "text" => message.add_text(str_of(block, "text").unwrap_or_default()),
        "thinking" => {
            let text = label("thinking");
            message.parts.push(ForeignPart::Reasoning(text));
        }
        "redacted_thinking" => {}
        "tool_use" => message.parts.push(ForeignPart::Call {
            label: label("id"),
            tool: label("name"),
            arguments: block.get("input").cloned().unwrap_or_default(),
        }),
        "tool_result" => message.parts.push(ForeignPart::Result {
            label: label("tool_use_id"),
            text: block.get("content").map(text_of).unwrap_or_default(),
            is_error: block.get("is_error").and_then(Value::as_bool) == Some(true),
        }),
        "image" | "document" => session.warn(number, "an image or document was left out"),
        kind => session.warn(number, format_args!("its block {kind:?} is not known")),
    }
}

fn usage_of(usage: &Value) -> Option<Usage> {
    let count = |field: &str| usage.get(field).and_then(Value::as_u64);
    Some(Usage {
        input: count("input_tokens")?,
        cache_read: count("cache_read_input_tokens").unwrap_or(0),
        cache_write: count("cache_creation_input_tokens").unwrap_or(0),
        output: count("output_tokens")?,
        reasoning: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = include_str!("../../../fixtures/claude.jsonl");

    #[test]
    fn text_and_calls_of_claude_code_are_read_and_bookkeeping_is_skipped() {
        let session = read(FILE, "3f1c");
        assert_eq!(session.directory.as_deref(), Some("/home/ann/shop"));
        assert_eq!(session.title.as_deref(), Some("Fix the failing test"));
        let roles: Vec<_> = session
            .messages
            .iter()
            .map(|message| message.role)
            .collect();
        use ForeignRole::{Assistant, Tool, User};
        assert_eq!(roles, [User, Assistant, Tool, Assistant]);
        assert_eq!(
            session.messages[1].parts[2],
            ForeignPart::Call {
                label: "toolu_01".into(),
                tool: "Bash".into(),
                arguments: serde_json::json!({ "command": "cargo test" }),
            }
        );
        assert!(matches!(
            &session.messages[2].parts[0],
            ForeignPart::Result { label, is_error: true, text } if label == "toolu_01" && text.contains("1 failed")
        ));
        assert_eq!(session.messages[1].usage.expect("counted").output, 52);
    }

    #[test]
    fn the_tokens_of_a_reply_that_is_several_lines_are_counted_once() {
        let line = |id: &str, text: &str| {
            let usage = serde_json::json!({ "input_tokens": 10, "output_tokens": 5 });
            let content = serde_json::json!([{ "type": "text", "text": text }]);
            serde_json::json!({ "type": "assistant", "sessionId": "s",
                "message": { "id": id, "content": content, "usage": usage } })
        };
        let lines = [line("m1", "a"), line("m1", "b"), line("m2", "c")];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let session = read(&text, "s");
        let counted = session.messages.iter().map(|message| message.usage);
        let counted: Vec<bool> = counted.map(|usage| usage.is_some()).collect();
        assert_eq!(counted, [true, false, true]);
    }

    #[test]
    fn lines_that_are_not_known_are_warnings_with_their_numbers() {
        let session = read(FILE, "3f1c");
        assert_eq!(
            session.warnings,
            [
                "line 10: its type \"hologram\" is not known",
                "line 11: it is not JSON",
                "2 lines of sub-agents were left out: they are no part of the conversation",
            ]
        );
    }

    #[test]
    fn what_the_model_asks_a_sub_agent_is_no_message_of_the_user() {
        let session = read(FILE, "3f1c");
        let said = format!("{:?}", session.messages);
        assert!(FILE.contains("rounds a price") && FILE.contains("two of them"));
        assert!(!said.contains("rounds a price"), "{said}");
        assert!(!said.contains("two of them"), "{said}");
    }
}
