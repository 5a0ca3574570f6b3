//! Session files of Codex: `session_meta`, then `response_item` lines with messages, calls and results.

use serde_json::Value;

use super::{
    ForeignFormat, ForeignMessage, ForeignPart, ForeignRole, ForeignSession,
    json_lines::read_lines, str_of, text_of, time_of,
};

pub(super) fn read(text: &str, name: &str) -> ForeignSession {
    let mut session = ForeignSession::new(ForeignFormat::Codex, name);
    let mut model: Option<String> = None;
    read_lines(&mut session, text, |session, number, line| {
        let payload = line.get("payload").unwrap_or(&Value::Null);
        match str_of(line, "type").unwrap_or_default() {
            "session_meta" => {
                if let Some(id) = str_of(payload, "id").or(str_of(payload, "session_id")) {
                    session.id = id.to_owned();
                }
                session.directory = str_of(payload, "cwd").map(str::to_owned);
                let instructions = str_of(payload, "instructions");
                session.system.extend(instructions.map(str::to_owned));
            }
            "turn_context" => model = str_of(payload, "model").map(str::to_owned).or(model.take()),
            "response_item" => {
                if let Some(mut message) = read_item(session, number, line, payload) {
                    if message.role == ForeignRole::Assistant {
                        message.model.clone_from(&model);
                    }
                    session.add(message);
                }
            }
            // A second form of what the response items say.
            "event_msg" | "compacted" | "ghost_snapshot" => {}
            kind => session.warn(number, format_args!("its type {kind:?} is not known")),
        }
    });
    session.finish()
}

fn read_item(
    session: &mut ForeignSession,
    number: usize,
    line: &Value,
    payload: &Value,
) -> Option<ForeignMessage> {
    let at = time_of(line, "timestamp");
    let label = str_of(payload, "call_id").unwrap_or_default().to_owned();
    match str_of(payload, "type").unwrap_or_default() {
        "message" => return read_message(session, number, payload, at),
        "function_call" | "custom_tool_call" | "local_shell_call" => {
            let arguments = payload
                .get("arguments")
                .or(payload.get("input"))
                .or(payload.get("action"));
            let mut message = ForeignMessage::new(ForeignRole::Assistant, at);
            message.parts.push(ForeignPart::Call {
                label,
                tool: str_of(payload, "name").unwrap_or("shell").to_owned(),
                arguments: arguments.map(parsed).unwrap_or_default(),
            });
            return Some(message);
        }
        "function_call_output" | "custom_tool_call_output" => {
            let output = payload.get("output").unwrap_or(&Value::Null);
            let (text, is_error) = read_output(output);
            let mut message = ForeignMessage::new(ForeignRole::Tool, at);
            message.parts.push(ForeignPart::Result {
                label,
                text,
                is_error,
            });
            return Some(message);
        }
        "reasoning" => {
            let text = payload.get("summary").map(text_of).unwrap_or_default();
            let mut message = ForeignMessage::new(ForeignRole::Assistant, at);
            if !text.is_empty() {
                message.parts.push(ForeignPart::Reasoning(text));
            }
            return Some(message);
        }
        "web_search_call" => session.warn(number, "a search of the provider was left out"),
        kind => session.warn(number, format_args!("its item {kind:?} is not known")),
    }
    None
}

fn read_message(
    session: &mut ForeignSession,
    number: usize,
    payload: &Value,
    at: Option<toolgate_core::Timestamp>,
) -> Option<ForeignMessage> {
    let text = payload.get("content").map(text_of).unwrap_or_default();
    let role = match str_of(payload, "role").unwrap_or_default() {
        "user" => ForeignRole::User,
        "assistant" => ForeignRole::Assistant,
        "system" | "developer" => {
            session.system.push(text);
            return None;
        }
        role => {
            session.warn(number, format_args!("its role {role:?} is not known"));
            return None;
        }
    };
    let mut message = ForeignMessage::new(role, at);
    message.add_text(&text);
    Some(message)
}

/// Returns the value of arguments that are text with JSON.
fn parsed(arguments: &Value) -> Value {
    let json = arguments
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok());
    json.unwrap_or_else(|| arguments.clone())
}

/// Returns the text of an output and whether it failed. Older files have JSON in the text.
fn read_output(output: &Value) -> (String, bool) {
    let json: Option<Value> = output
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok());
    let value = json
        .as_ref()
        .filter(|value| value.is_object())
        .unwrap_or(output);
    let text = value
        .get("output")
        .or(value.get("content"))
        .map_or_else(|| text_of(output), text_of);
    let exit = value.pointer("/metadata/exit_code").and_then(Value::as_i64);
    let failed = value.get("success").and_then(Value::as_bool) == Some(false);
    (text, failed || exit.is_some_and(|code| code != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_calls_and_results_of_codex_are_read_in_order() {
        let session = read(include_str!("../../../fixtures/codex.jsonl"), "rollout-1");
        assert_eq!(session.id, "0199-codex");
        assert_eq!(session.directory.as_deref(), Some("/home/ann/shop"));
        assert_eq!(session.system.len(), 2);
        let roles: Vec<_> = session
            .messages
            .iter()
            .map(|message| message.role)
            .collect();
        use ForeignRole::{Assistant, Tool, User};
        assert_eq!(roles, [User, Assistant, Assistant, Tool, Assistant]);
        assert_eq!(session.messages[2].model.as_deref(), Some("gpt-5-codex"));
        assert!(matches!(
            &session.messages[3].parts[0],
            ForeignPart::Result { text, is_error: true, .. } if text == "no such file"
        ));
        assert_eq!(
            session.warnings,
            ["line 9: its item \"teleport\" is not known"]
        );
    }
}
