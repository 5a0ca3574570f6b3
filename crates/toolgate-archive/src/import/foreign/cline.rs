//! Session files of Cline: one JSON object, or list, with messages in blocks of Anthropic's API.

use serde_json::Value;

use super::{
    ForeignFormat, ForeignMessage, ForeignRole, ForeignSession, claude::read_content, str_of,
    time_of,
};

/// Returns the messages of a file.
fn messages_of(whole: &Value) -> Option<&Vec<Value>> {
    whole
        .as_array()
        .or_else(|| whole.get("messages")?.as_array())
}

/// Checks whether a text looks like a file of Cline.
pub(super) fn is_cline(text: &str) -> bool {
    let whole: Option<Value> = serde_json::from_str(text).ok();
    let first = whole
        .as_ref()
        .and_then(messages_of)
        .and_then(|messages| messages.first());
    first.is_some_and(|first| first.get("role").is_some() && first.get("content").is_some())
}

pub(super) fn read(text: &str, name: &str) -> ForeignSession {
    let mut session = ForeignSession::new(ForeignFormat::Cline, name);
    let whole: Value = match serde_json::from_str(text) {
        Ok(whole) => whole,
        Err(error) => {
            session.warn(error.line(), "it is not JSON");
            return session;
        }
    };
    if let Some(id) = str_of(&whole, "sessionId") {
        session.id = id.to_owned();
    }
    session.directory = str_of(&whole, "cwd").map(str::to_owned);
    session
        .system
        .extend(str_of(&whole, "systemPrompt").map(str::to_owned));
    let Some(messages) = messages_of(&whole) else {
        session.warn(1, "it has no messages");
        return session;
    };
    // The file is one value, so the number of a message stands for that of a line.
    for (number, message) in (1..).zip(messages) {
        read_message(&mut session, number, message);
    }
    session.finish()
}

fn read_message(session: &mut ForeignSession, number: usize, message: &Value) {
    let role = match str_of(message, "role").unwrap_or_default() {
        "user" => ForeignRole::User,
        "assistant" => ForeignRole::Assistant,
        role => return session.warn(number, format_args!("its role {role:?} is not known")),
    };
    let mut read = ForeignMessage::new(role, time_of(message, "ts"));
    let model = message
        .pointer("/modelInfo/id")
        .or(message.pointer("/modelInfo/modelId"));
    read.model = model.and_then(Value::as_str).map(str::to_owned);
    read_content(session, number, message.get("content"), &mut read);
    let tools = read.split_results();
    session.messages_of(read, tools);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cline_are_read() {
        let text = include_str!("../../../fixtures/cline.json");
        assert!(is_cline(text));
        let session = read(text, "x");
        assert_eq!(session.id, "1772600000000");
        let roles: Vec<_> = session
            .messages
            .iter()
            .map(|message| message.role)
            .collect();
        use ForeignRole::{Assistant, Tool, User};
        assert_eq!(roles, [User, Assistant, Tool, Assistant]);
        assert_eq!(
            session.messages[0].at.expect("a time").as_micros(),
            1_772_600_000_000_000
        );
        assert_eq!(
            session.warnings,
            ["line 4: its role \"narrator\" is not known"]
        );
    }
}
