//! Session files of Gemini CLI: a header line, then lines `user` and `gemini`. Calls are inside the
//! lines of the model, with their results.

use serde_json::Value;
use toolgate_core::Usage;

use super::{
    ForeignFormat, ForeignMessage, ForeignPart, ForeignRole, ForeignSession,
    json_lines::read_lines, str_of, text_of, time_of,
};

pub(super) fn read(text: &str, name: &str) -> ForeignSession {
    let mut session = ForeignSession::new(ForeignFormat::Gemini, name);
    // Older versions wrote one object with all messages.
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    if let Some(Ok(whole)) = values.next()
        && let Some(messages) = whole.get("messages").and_then(Value::as_array)
    {
        read_header(&mut session, &whole);
        for (number, message) in (1..).zip(messages) {
            read_line(&mut session, number, message);
        }
        let rest = &text[values.byte_offset()..];
        read_lines(&mut session, rest, read_line);
        return session.finish();
    }
    read_lines(&mut session, text, read_line);
    session.finish()
}

fn read_header(session: &mut ForeignSession, header: &Value) {
    if let Some(id) = str_of(header, "sessionId") {
        session.id = id.to_owned();
    }
}

fn read_line(session: &mut ForeignSession, number: usize, line: &Value) {
    let at = time_of(line, "timestamp");
    match str_of(line, "type") {
        Some("user") => {
            let mut message = ForeignMessage::new(ForeignRole::User, at);
            message.add_text(&line.get("content").map(text_of).unwrap_or_default());
            session.add(message);
        }
        Some("gemini") => read_reply(session, line, at),
        // Messages of the program, not of the model.
        Some("info" | "warning" | "error") => {}
        Some(kind) => session.warn(number, format_args!("its type {kind:?} is not known")),
        None if line.get("sessionId").is_some() => read_header(session, line),
        // A change of the header, or of a message that is written again.
        None if line.get("$set").is_some() || line.get("$rewindTo").is_some() => {}
        None => session.warn(number, "it has no type"),
    }
}

fn read_reply(session: &mut ForeignSession, line: &Value, at: Option<toolgate_core::Timestamp>) {
    let mut message = ForeignMessage::new(ForeignRole::Assistant, at);
    message.model = str_of(line, "model").map(str::to_owned);
    message.usage = line.get("tokens").and_then(usage_of);
    for thought in line
        .get("thoughts")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let text = str_of(thought, "description").unwrap_or_default();
        message.parts.push(ForeignPart::Reasoning(text.to_owned()));
    }
    message.add_text(&line.get("content").map(text_of).unwrap_or_default());
    let mut tools = ForeignMessage::new(ForeignRole::Tool, at);
    for call in line
        .get("toolCalls")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let label = str_of(call, "id").unwrap_or_default().to_owned();
        message.parts.push(ForeignPart::Call {
            label: label.clone(),
            tool: str_of(call, "name").unwrap_or_default().to_owned(),
            arguments: call.get("args").cloned().unwrap_or_default(),
        });
        if let Some(result) = call.get("result").filter(|result| !result.is_null()) {
            tools.parts.push(ForeignPart::Result {
                label,
                text: result_text(result),
                is_error: str_of(call, "status") == Some("error"),
            });
        }
    }
    session.add(message);
    session.add(tools);
}

/// Returns the text of a result: of function responses, their output or error.
pub(super) fn result_text(result: &Value) -> String {
    let response = |part: &Value| {
        let response = part.pointer("/functionResponse/response")?;
        let text = response.get("output").or(response.get("error"));
        Some(text.map_or_else(|| response.to_string(), text_of))
    };
    match result {
        Value::Array(parts) => {
            let texts = parts
                .iter()
                .map(|part| response(part).unwrap_or_else(|| text_of(part)));
            texts.collect::<Vec<_>>().join("\n")
        }
        other => response(other).unwrap_or_else(|| text_of(other)),
    }
}

fn usage_of(tokens: &Value) -> Option<Usage> {
    let count = |field: &str| tokens.get(field).and_then(Value::as_u64);
    let cached = count("cached").unwrap_or(0);
    Some(Usage {
        input: count("input")?.saturating_sub(cached),
        cache_read: cached,
        cache_write: 0,
        output: count("output")?,
        reasoning: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_gemini_are_read_with_their_results() {
        let session = read(include_str!("../../../fixtures/gemini.jsonl"), "session-1");
        assert_eq!(session.id, "gem-1");
        let roles: Vec<_> = session
            .messages
            .iter()
            .map(|message| message.role)
            .collect();
        use ForeignRole::{Assistant, Tool, User};
        assert_eq!(roles, [User, Assistant, Tool, Assistant]);
        assert!(matches!(
            &session.messages[2].parts[0],
            ForeignPart::Result { text, is_error: false, .. } if text == "a.rs\nb.rs"
        ));
        assert_eq!(
            session.warnings,
            ["line 6: its type \"wormhole\" is not known"]
        );
    }
}
