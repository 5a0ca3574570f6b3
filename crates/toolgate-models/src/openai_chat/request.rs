//! A request as chat completions have it.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use toolgate_core::{
    Content, Media, MediaSource, Message, ModelRequest, Part, Role, ToolAnswer, ToolChoice,
    ToolRequest, View,
};

use super::{Dialect, OpenAiChat};
use crate::{
    body::{Chunks, JsonBody, fragment},
    openai::{self, NAMES},
};

/// The wire format of OpenAI itself, in items and in kept fragments.
pub(super) const WIRE: &str = "openai-chat";
/// The same as others speak it, who are sent more.
const COMPATIBLE_WIRE: &str = "openai-chat-compatible";

pub(super) fn body(model: &OpenAiChat, request: &ModelRequest) -> Chunks {
    let mut body = JsonBody::new(&request.extra);
    body.field("model", &*model.endpoint.name().model);
    body.field("stream", &true);
    body.field("stream_options", &json!({ "include_usage": true }));
    let limit = match model.dialect {
        Dialect::OpenAi => "max_completion_tokens",
        Dialect::Compatible => "max_tokens",
    };
    body.optional(limit, request.max_tokens);
    body.optional("temperature", request.temperature);
    body.optional("reasoning_effort", request.effort.map(openai::effort));
    let format =
        |output| json!({ "type": "json_schema", "json_schema": openai::output_format(output) });
    body.optional("response_format", request.output.as_ref().map(format));
    if !request.view.is_empty() {
        body.raw("tools", model.tools.get(&request.view, tools));
        body.optional("tool_choice", choice(&request.choice));
        body.optional("parallel_tool_calls", request.parallel_calls);
    }
    let instructions = request
        .instructions
        .iter()
        .map(|text| fragment([json!({ "role": "system", "content": text })]));
    let said = request
        .messages
        .iter()
        .map(|message| written(message, model.dialect));
    body.list("messages", instructions.chain(said));
    body.finish()
}

fn tools(view: &View) -> Bytes {
    let tools = view.specs().map(|spec| {
        let name = NAMES.to_wire(spec.name.as_str());
        let function =
            json!({ "name": name, "description": spec.description, "parameters": openai::parameters(&spec.input) });
        json!({ "type": "function", "function": function })
    });
    serde_json::to_vec(&tools.collect::<Vec<_>>())
        .expect("values are JSON")
        .into()
}

fn choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some("none".into()),
        ToolChoice::Required => Some("required".into()),
        ToolChoice::Named(tool) => Some(
            json!({ "type": "function", "function": { "name": NAMES.to_wire(tool.as_str()) } }),
        ),
    }
}

fn written(message: &Message, dialect: Dialect) -> Bytes {
    let wire = match dialect {
        Dialect::OpenAi => WIRE,
        Dialect::Compatible => COMPATIBLE_WIRE,
    };
    message.fragment(wire, |message| match message.role {
        Role::User => fragment(user(&message.parts)),
        Role::Assistant => fragment([assistant(&message.parts, dialect)]),
        Role::Tool => fragment(answers(&message.parts)),
    })
}

/// One message, with plain text where there is nothing else: not every server takes parts.
fn user(parts: &[Part]) -> Option<Value> {
    let mut content = Vec::new();
    for part in parts {
        match &part.content {
            Content::Text(text) => content.push(text_part(text)),
            Content::Media(media) => content.push(media_part(media)),
            Content::Reasoning(_)
            | Content::Call(_)
            | Content::Result(_)
            | Content::Ran(_)
            | Content::Opaque => {}
        }
    }
    let content = match content.as_slice() {
        [] => return None,
        [only] if only["type"] == "text" => only["text"].clone(),
        _ => Value::Array(content),
    };
    Some(json!({ "role": "user", "content": content }))
}

fn text_part(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn media_part(media: &Media) -> Value {
    match &media.source {
        _ if media.is_image() => {
            json!({ "type": "image_url", "image_url": { "url": openai::address(media) } })
        }
        MediaSource::Data(data) if media.media_type.starts_with("audio/") => {
            let format = if media.media_type.ends_with("mpeg") || media.media_type.ends_with("mp3")
            {
                "mp3"
            } else {
                "wav"
            };
            json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } })
        }
        MediaSource::Data(_) => {
            let file = json!({ "filename": openai::file_name(media), "file_data": openai::address(media) });
            json!({ "type": "file", "file": file })
        }
        MediaSource::Url(_) => text_part(&openai::mention(media)),
    }
}

fn assistant(parts: &[Part], dialect: Dialect) -> Value {
    let mut message = Map::from_iter([("role".to_owned(), json!("assistant"))]);
    let (mut text, mut calls) = (String::new(), Vec::new());
    for part in parts {
        let native = part.native(WIRE).and_then(Value::as_object);
        match (&part.content, native) {
            // A refusal, which has a field of its own.
            (Content::Text(_), Some(fields)) => message.extend(fields.clone()),
            (Content::Text(words), None) => text.push_str(words),
            // Thoughts go back under the name they came by; OpenAI itself tells none and takes none.
            (Content::Reasoning(_), Some(fields)) if dialect == Dialect::Compatible => {
                message.extend(fields.clone())
            }
            (Content::Call(request), native) => calls.push(call(request, native)),
            (
                Content::Reasoning(_)
                | Content::Result(_)
                | Content::Media(_)
                | Content::Ran(_)
                | Content::Opaque,
                _,
            ) => {}
        }
    }
    if !text.is_empty() {
        message.insert("content".to_owned(), text.into());
    } else if calls.is_empty() {
        // There has to be a content where there are no calls; a refusal stands in its place.
        let content = if message.contains_key("refusal") {
            Value::Null
        } else {
            "".into()
        };
        message.insert("content".to_owned(), content);
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), calls.into());
    }
    Value::Object(message)
}

/// A call as the server sent it, so that what it put beside the arguments comes back, too.
fn call(request: &ToolRequest, native: Option<&Map<String, Value>>) -> Value {
    let mut call = native.cloned().unwrap_or_default();
    call.insert("id".to_owned(), request.provider_call_id.as_str().into());
    call.insert("type".to_owned(), "function".into());
    let arguments = openai::arguments_text(&request.arguments);
    call.insert(
        "function".to_owned(),
        json!({ "name": NAMES.to_wire(&request.tool), "arguments": arguments }),
    );
    Value::Object(call)
}

/// One message for each answer, then one of the user with what came along.
fn answers(parts: &[Part]) -> Vec<Value> {
    let answers = || {
        parts.iter().filter_map(|part| match &part.content {
            Content::Result(answer) => Some(answer),
            _ => None,
        })
    };
    let tool = |answer: &ToolAnswer| json!({ "role": "tool", "tool_call_id": answer.call_id, "content": answer.text });
    let mut messages: Vec<Value> = answers().map(tool).collect();
    let mut along = Vec::new();
    for answer in answers().filter(|answer| !answer.media.is_empty()) {
        along.push(text_part(&format!(
            "This came with the result of {} ({}):",
            answer.tool, answer.call_id
        )));
        along.extend(answer.media.iter().map(media_part));
    }
    if !along.is_empty() {
        messages.push(json!({ "role": "user", "content": along }));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn sent(request: &ModelRequest, dialect: Dialect) -> Value {
        let builder = OpenAiChat::compatible("m", "http://127.0.0.1:1");
        let model = OpenAiChat {
            dialect,
            ..builder.build().expect("fine")
        };
        serde_json::from_slice(&body(&model, request).concat()).expect("JSON")
    }

    fn saying(messages: impl IntoIterator<Item = Message>) -> ModelRequest {
        ModelRequest {
            messages: messages.into_iter().map(Arc::new).collect(),
            ..ModelRequest::default()
        }
    }

    #[test]
    fn a_limit_goes_by_the_name_that_the_server_knows() {
        let request = ModelRequest {
            max_tokens: Some(7),
            ..ModelRequest::default()
        };
        assert_eq!(sent(&request, Dialect::OpenAi)["max_completion_tokens"], 7);
        assert_eq!(sent(&request, Dialect::Compatible)["max_tokens"], 7);
    }

    #[test]
    fn without_tools_nothing_is_said_about_them() {
        let request = ModelRequest {
            choice: ToolChoice::None,
            parallel_calls: Some(false),
            ..ModelRequest::default()
        };
        let sent = sent(&request, Dialect::OpenAi);
        assert!(
            ["tools", "tool_choice", "parallel_tool_calls"]
                .iter()
                .all(|field| sent.get(field).is_none()),
            "{sent}"
        );
    }

    #[test]
    fn pictures_of_a_tool_follow_its_answers_in_a_message_of_the_user() {
        let answer = |id: &str, media: Vec<Media>| {
            let (call_id, tool) = (id.to_owned(), "look".to_owned());
            Part::from(Content::Result(ToolAnswer {
                call_id,
                tool,
                text: "done".into(),
                is_error: false,
                media,
            }))
        };
        let parts = vec![
            answer("1", vec![Media::data("image/png", "AAAA")]),
            answer("2", Vec::new()),
        ];
        let sent = sent(&saying([Message::new(Role::Tool, parts)]), Dialect::OpenAi);
        let messages = sent["messages"].as_array().expect("a list");
        let roles: Vec<&Value> = messages.iter().map(|message| &message["role"]).collect();
        assert_eq!(
            roles,
            ["tool", "tool", "user"],
            "nothing stands between the answers"
        );
        assert_eq!(
            messages[2]["content"][1]["image_url"]["url"],
            "data:image/png;base64,AAAA"
        );
    }

    #[test]
    fn thoughts_are_given_back_to_those_who_told_them_and_never_to_openai() {
        let thought = Part::from(Content::Reasoning("hm".into()))
            .with_native(WIRE, json!({ "reasoning_content": "hm" }));
        let foreign = Part::from(Content::Reasoning("no".into()))
            .with_native("anthropic", json!({ "thinking": "no" }));
        let request = saying([Message::new(
            Role::Assistant,
            vec![thought, foreign, Part::text("yes")],
        )]);
        let compatible = &sent(&request, Dialect::Compatible)["messages"][0];
        assert_eq!(
            *compatible,
            json!({ "role": "assistant", "reasoning_content": "hm", "content": "yes" })
        );
        let openai = &sent(
            &saying(request.messages.iter().map(|m| (**m).clone())),
            Dialect::OpenAi,
        )["messages"][0];
        assert_eq!(*openai, json!({ "role": "assistant", "content": "yes" }));
    }

    #[test]
    fn a_conversation_is_written_once() {
        let request = saying([Message::user("x".repeat(5000))]);
        let first = written(&request.messages[0], Dialect::OpenAi);
        assert_eq!(
            first.as_ptr(),
            written(&request.messages[0], Dialect::OpenAi).as_ptr()
        );
    }
}
