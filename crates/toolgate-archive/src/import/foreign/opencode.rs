//! Sessions of opencode: rows of the tables `session`, `message` and `part` of its SQLite file.
//!
//! The rows are read by the program; this is only about what they say.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use toolgate_core::Usage;

use super::{
    ForeignFormat, ForeignMessage, ForeignPart, ForeignRole, ForeignSession, str_of, text_of,
    time_from_millis,
};

/// A row of opencode's database.
#[derive(Debug, Clone, PartialEq)]
pub enum OpencodeRow {
    /// A session.
    Session {
        /// Its id.
        id: String,
        /// Its title.
        title: Option<String>,
        /// Its directory.
        directory: Option<String>,
    },
    /// A message: its id, the id of its session, its time in milliseconds, and its JSON.
    Message {
        /// Its id.
        id: String,
        /// Its session.
        session: String,
        /// The time it was created, in milliseconds since 1970.
        created: i64,
        /// Its content as JSON.
        data: String,
    },
    /// A part of a message.
    Part {
        /// Its message.
        message: String,
        /// Its content as JSON.
        data: String,
    },
    /// A row with a column that is not of its type.
    Unreadable {
        /// The session or message that it belongs to, if that can be read.
        owner: Option<String>,
    },
}

pub(super) fn read(rows: impl IntoIterator<Item = OpencodeRow>) -> Vec<ForeignSession> {
    let mut sessions: Vec<ForeignSession> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut messages: HashMap<String, (usize, usize)> = HashMap::new();
    let mut unfinished: HashSet<(usize, usize)> = HashSet::new();
    for (number, row) in (1..).zip(rows) {
        match row {
            OpencodeRow::Session {
                id,
                title,
                directory,
            } => {
                places.insert(id.clone(), sessions.len());
                let mut session = ForeignSession::new(ForeignFormat::Opencode, id);
                session.title = title;
                session.directory = directory;
                sessions.push(session);
            }
            OpencodeRow::Message {
                id,
                session,
                created,
                data,
            } => {
                let Some(place) = places.get(&session).copied() else {
                    continue;
                };
                let session = &mut sessions[place];
                let Ok(data) = serde_json::from_str::<Value>(&data) else {
                    session.warn(number, "the message is not JSON");
                    continue;
                };
                if let Some(message) = read_message(session, number, created, &data) {
                    let at = session.messages.len();
                    if is_unfinished(&data) {
                        unfinished.insert((place, at));
                    }
                    messages.insert(id, (place, at));
                    session.messages.push(message);
                }
            }
            OpencodeRow::Unreadable { owner } => {
                let owner = owner.as_deref().unwrap_or_default();
                let message = messages.get(owner).map(|(place, _)| *place);
                // One that names no session is reported with the first: it is not passed over.
                let place = places.get(owner).copied().or(message).unwrap_or(0);
                if let Some(session) = sessions.get_mut(place) {
                    session.warn(number, "the row cannot be read");
                }
            }
            OpencodeRow::Part { message, data } => {
                if let Some((place, at)) = messages.get(&message).copied() {
                    read_part(&mut sessions[place], at, number, &data);
                }
            }
        }
    }
    for (place, session) in sessions.iter_mut().enumerate() {
        let last = session.messages.len().wrapping_sub(1);
        if unfinished.contains(&(place, last)) {
            leave_out_last(session);
        }
    }
    sessions.into_iter().map(split_tools).collect()
}

/// Checks whether the model is still writing a reply, or was when the program ended.
fn is_unfinished(data: &Value) -> bool {
    let has = |pointer: &str| data.pointer(pointer).is_some_and(|value| !value.is_null());
    has("/time/created")
        && !has("/time/completed")
        && !has("/error")
        && str_of(data, "role") == Some("assistant")
}

/// Leaves out the last reply, which still grows. Stored now, it would have another text at the next
/// import, and the file would no longer continue what was imported.
fn leave_out_last(session: &mut ForeignSession) {
    session.messages.pop();
    let what = "the last reply is not finished; it is imported once it is, or once another message follows";
    session.warnings.push(what.to_owned());
}

fn read_message(
    session: &mut ForeignSession,
    number: usize,
    created: i64,
    data: &Value,
) -> Option<ForeignMessage> {
    let role = match str_of(data, "role").unwrap_or_default() {
        "user" => ForeignRole::User,
        "assistant" => ForeignRole::Assistant,
        role => {
            session.warn(number, format_args!("the role {role:?} is not known"));
            return None;
        }
    };
    let at = time_from_millis(created);
    let mut message = ForeignMessage::new(role, at);
    let model = str_of(data, "modelID").or(data.pointer("/model/modelID").and_then(Value::as_str));
    message.model = model.map(str::to_owned);
    let tokens = |field: &str| {
        data.pointer(&format!("/tokens/{field}"))
            .and_then(Value::as_u64)
    };
    message.usage = tokens("input")
        .zip(tokens("output"))
        .map(|(input, output)| Usage {
            input,
            cache_read: tokens("cache/read").unwrap_or(0),
            cache_write: tokens("cache/write").unwrap_or(0),
            output,
            reasoning: tokens("reasoning").unwrap_or(0),
        });
    Some(message)
}

fn read_part(session: &mut ForeignSession, at: usize, number: usize, data: &str) {
    let Ok(data) = serde_json::from_str::<Value>(data) else {
        return session.warn(number, "the part is not JSON");
    };
    let message = &mut session.messages[at];
    match str_of(&data, "type").unwrap_or_default() {
        "text" => message.add_text(str_of(&data, "text").unwrap_or_default()),
        "reasoning" => {
            let text = str_of(&data, "text").unwrap_or_default();
            message.parts.push(ForeignPart::Reasoning(text.to_owned()));
        }
        "tool" => {
            let label = str_of(&data, "callID").unwrap_or_default().to_owned();
            let state = data.get("state").unwrap_or(&Value::Null);
            message.parts.push(ForeignPart::Call {
                label: label.clone(),
                tool: str_of(&data, "tool").unwrap_or_default().to_owned(),
                arguments: state.get("input").cloned().unwrap_or_default(),
            });
            let failed = state.get("error");
            if let Some(text) = state.get("output").or(failed) {
                message.parts.push(ForeignPart::Result {
                    label,
                    text: text_of(text),
                    is_error: failed.is_some(),
                });
            }
        }
        "step-start" | "step-finish" | "snapshot" | "patch" | "agent" | "retry" | "compaction"
        | "subtask" => {}
        "file" => session.warn(number, "a file was left out"),
        kind => session.warn(number, format_args!("the part {kind:?} is not known")),
    }
}

/// Moves the results into messages of their own, after those with the calls.
fn split_tools(mut session: ForeignSession) -> ForeignSession {
    let messages = std::mem::take(&mut session.messages);
    for mut message in messages {
        let tools = message.split_results();
        session.add(message);
        if let Some(tools) = tools {
            session.add(tools);
        }
    }
    session.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_of_opencode_become_messages_and_results() {
        let message = json!({ "role": "assistant", "modelID": "m", "time": { "created": 5, "completed": 6 } });
        let part = |value: Value| OpencodeRow::Part {
            message: "m2".into(),
            data: value.to_string(),
        };
        let row = |id: &str, data: Value| OpencodeRow::Message {
            id: id.into(),
            session: "ses_1".into(),
            created: 5,
            data: data.to_string(),
        };
        let rows = [
            OpencodeRow::Session {
                id: "ses_1".into(),
                title: Some("Tidy up".into()),
                directory: Some("/home/ann".into()),
            },
            row("m1", json!({ "role": "user" })),
            OpencodeRow::Part {
                message: "m1".into(),
                data: json!({ "type": "text", "text": "Tidy up." }).to_string(),
            },
            row("m2", message),
            part(json!({ "type": "step-start" })),
            part(
                json!({ "type": "tool", "callID": "c1", "tool": "bash", "state": { "status": "error", "input": { "command": "rm" }, "error": "denied" } }),
            ),
            part(json!({ "type": "text", "text": "I may not." })),
            part(json!({ "type": "oracle" })),
        ];
        let sessions = read(rows);
        assert_eq!(sessions.len(), 1);
        let roles: Vec<_> = sessions[0]
            .messages
            .iter()
            .map(|message| message.role)
            .collect();
        use ForeignRole::{Assistant, Tool, User};
        assert_eq!(roles, [User, Assistant, Tool]);
        assert_eq!(
            sessions[0].warnings,
            ["line 8: the part \"oracle\" is not known"]
        );
        assert!(matches!(
            &sessions[0].messages[2].parts[0],
            ForeignPart::Result { text, is_error: true, .. } if text == "denied"
        ));
    }

    #[test]
    fn a_reply_that_still_grows_is_left_out_until_it_is_finished() {
        let message = |id: &str, created: i64, data: Value| OpencodeRow::Message {
            id: id.into(),
            session: "ses_1".into(),
            created,
            data: data.to_string(),
        };
        let part = |message: &str, text: &str| OpencodeRow::Part {
            message: message.into(),
            data: json!({ "type": "text", "text": text }).to_string(),
        };
        let reply = |time: Value| json!({ "role": "assistant", "modelID": "m", "time": time });
        let texts = |time: Value, follows: bool| {
            let session = OpencodeRow::Session {
                id: "ses_1".into(),
                title: None,
                directory: None,
            };
            let mut rows = vec![session, message("m1", 5, json!({ "role": "user" }))];
            rows.push(message("m2", 6, reply(time)));
            if follows {
                rows.push(message("m3", 7, json!({ "role": "user" })));
            }
            rows.extend([part("m1", "Hi."), part("m2", "Hel"), part("m3", "And?")]);
            let session = read(rows).remove(0);
            (session.messages.len(), session.warnings.len())
        };
        assert_eq!(texts(json!({ "created": 6 }), false), (1, 1));
        assert_eq!(
            texts(json!({ "created": 6, "completed": 9 }), false),
            (2, 0)
        );
        // The program ended while it was written: no other text will come.
        assert_eq!(texts(json!({ "created": 6 }), true), (3, 0));
    }
}
