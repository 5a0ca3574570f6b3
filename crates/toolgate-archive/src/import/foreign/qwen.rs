//! Session files of Qwen Code: lines `user`, `assistant` and `tool_result` with parts of Google's API.

use serde_json::Value;
use toolgate_core::Usage;

use super::{
    ForeignFormat, ForeignMessage, ForeignPart, ForeignRole, ForeignSession, gemini::result_text,
    json_lines::read_lines, str_of, time_of,
};

pub(super) fn read(text: &str, name: &str) -> ForeignSession {
    let mut session = ForeignSession::new(ForeignFormat::Qwen, name);
    read_lines(&mut session, text, |session, number, line| {
        if let Some(directory) = str_of(line, "cwd").filter(|_| session.directory.is_none()) {
            session.directory = Some(directory.to_owned());
        }
        let role = match str_of(line, "type").unwrap_or_default() {
            "user" => ForeignRole::User,
            "assistant" => ForeignRole::Assistant,
            "tool_result" => ForeignRole::Tool,
            "system" => return,
            kind => return session.warn(number, format_args!("its type {kind:?} is not known")),
        };
        let mut message = ForeignMessage::new(role, time_of(line, "timestamp"));
        message.model = str_of(line, "model").map(str::to_owned);
        message.usage = line.get("usageMetadata").and_then(usage_of);
        let parts = line.pointer("/message/parts").and_then(Value::as_array);
        let Some(parts) = parts else {
            return session.warn(number, "it has no message");
        };
        for part in parts {
            read_part(session, number, part, &mut message);
        }
        session.add(message);
    });
    session.finish()
}

fn read_part(
    session: &mut ForeignSession,
    number: usize,
    part: &Value,
    message: &mut ForeignMessage,
) {
    if let Some(text) = str_of(part, "text") {
        if part.get("thought").and_then(Value::as_bool) == Some(true) {
            message.parts.push(ForeignPart::Reasoning(text.to_owned()));
        } else {
            message.add_text(text);
        }
    } else if let Some(call) = part.get("functionCall") {
        message.parts.push(ForeignPart::Call {
            label: str_of(call, "id").unwrap_or_default().to_owned(),
            tool: str_of(call, "name").unwrap_or_default().to_owned(),
            arguments: call.get("args").cloned().unwrap_or_default(),
        });
    } else if let Some(response) = part.get("functionResponse") {
        message.parts.push(ForeignPart::Result {
            label: str_of(response, "id").unwrap_or_default().to_owned(),
            text: result_text(part),
            is_error: response.pointer("/response/error").is_some(),
        });
    } else {
        session.warn(number, "a part of its message is not known");
    }
}

fn usage_of(usage: &Value) -> Option<Usage> {
    let count = |field: &str| usage.get(field).and_then(Value::as_u64);
    let cached = count("cachedContentTokenCount").unwrap_or(0);
    Some(Usage {
        input: count("promptTokenCount")?.saturating_sub(cached),
        cache_read: cached,
        cache_write: 0,
        output: count("candidatesTokenCount")?,
        reasoning: count("thoughtsTokenCount").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_results_of_qwen_are_read() {
        let session = read(include_str!("../../../fixtures/qwen.jsonl"), "qwen-1");
        assert_eq!(session.directory.as_deref(), Some("/home/ann/shop"));
        let roles: Vec<_> = session
            .messages
            .iter()
            .map(|message| message.role)
            .collect();
        use ForeignRole::{Assistant, Tool, User};
        assert_eq!(roles, [User, Assistant, Tool, Assistant]);
        assert_eq!(
            session.messages[2].parts,
            [ForeignPart::Result {
                label: "call_9".into(),
                text: "not allowed".into(),
                is_error: true,
            }]
        );
        assert_eq!(
            session.warnings,
            ["line 6: its type \"oracle\" is not known"]
        );
    }
}
