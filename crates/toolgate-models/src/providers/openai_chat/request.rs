//! Encodes requests for chat completions.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use toolgate_core::{
    Media, MediaSource, Message, MessagePart, ModelRequest, PartContent, Role, ToolAnswer,
    ToolChoice, ToolRequest, View,
};

use super::{ChatDialect, OpenAiChat};
use crate::{
    providers::openai_shared::{self, NAMES},
    wire::body::{BodyChunks, JsonBody, encode_items},
};

/// The name of the wire format of OpenAI itself, in native items and cached fragments.
pub(super) const WIRE: &str = "openai-chat";
/// The name of the wire format of compatible servers, which are also sent reasoning.
const COMPATIBLE_WIRE: &str = "openai-chat-compatible";

pub(super) fn encode_request(model: &OpenAiChat, request: &ModelRequest) -> BodyChunks {
    let mut body = JsonBody::new(&request.extra);
    body.write_field("model", &*model.endpoint.name().model);
    body.write_field("stream", &true);
    // Without it a stream reports no usage, and the cost of the reply would be unknown.
    body.write_field("stream_options", &json!({ "include_usage": true }));
    let limit = match model.dialect {
        ChatDialect::OpenAi => "max_completion_tokens",
        ChatDialect::Compatible => "max_tokens",
    };
    body.write_optional(limit, request.max_tokens);
    body.write_optional("temperature", request.temperature);
    body.write_optional(
        "reasoning_effort",
        request.effort.map(openai_shared::effort_word),
    );
    let format = |output| json!({ "type": "json_schema", "json_schema": openai_shared::output_format(output) });
    body.write_optional("response_format", request.output.as_ref().map(format));
    if !request.view.is_empty() {
        body.write_raw(
            "tools",
            model.tools.get_or_encode(&request.view, encode_tools),
        );
        body.write_optional("tool_choice", tool_choice(&request.choice));
        body.write_optional("parallel_tool_calls", request.parallel_calls);
    }
    let instructions = request
        .instructions
        .iter()
        .map(|text| encode_items([json!({ "role": "system", "content": text })]));
    let said = request
        .messages
        .iter()
        .map(|message| encode_message(message, model.dialect));
    body.write_list("messages", instructions.chain(said));
    body.finish()
}

fn encode_tools(view: &View) -> Bytes {
    serde_json::to_vec(&list_tools(view))
        .expect("values are JSON")
        .into()
}

pub(crate) fn list_tools(view: &View) -> Vec<Value> {
    let tools = view.specs().map(|spec| {
        let name = NAMES.to_wire(spec.name.as_str());
        let function =
            json!({ "name": name, "description": spec.description, "parameters": openai_shared::parameters_schema(&spec.input) });
        json!({ "type": "function", "function": function })
    });
    tools.collect()
}

fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some("none".into()),
        ToolChoice::Required => Some("required".into()),
        ToolChoice::Named(tool) => Some(
            json!({ "type": "function", "function": { "name": NAMES.to_wire(tool.as_str()) } }),
        ),
    }
}

fn encode_message(message: &Message, dialect: ChatDialect) -> Bytes {
    let wire = match dialect {
        ChatDialect::OpenAi => WIRE,
        ChatDialect::Compatible => COMPATIBLE_WIRE,
    };
    message.encoded_for(wire, |message| match message.role {
        Role::User => encode_items(user_message(&message.parts)),
        Role::Assistant => encode_items([assistant_message(&message.parts, dialect)]),
        Role::Tool => encode_items(encode_answers(&message.parts)),
    })
}

/// Encodes one user message, as plain text if there is nothing else: not every server accepts
/// parts.
fn user_message(parts: &[MessagePart]) -> Option<Value> {
    let mut content = Vec::new();
    for part in parts {
        match &part.content {
            PartContent::Text(text) => content.push(text_part(text)),
            PartContent::Media(media) => content.push(media_part(media)),
            PartContent::Reasoning(_)
            | PartContent::Call(_)
            | PartContent::Result(_)
            | PartContent::Ran(_)
            | PartContent::Opaque => {}
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
            json!({ "type": "image_url", "image_url": { "url": openai_shared::media_url(media) } })
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
            let file = json!({ "filename": openai_shared::file_name(media), "file_data": openai_shared::media_url(media) });
            json!({ "type": "file", "file": file })
        }
        // This wire format has no URLs for files.
        MediaSource::Url(_) => text_part(&openai_shared::describe_media(media)),
    }
}

fn assistant_message(parts: &[MessagePart], dialect: ChatDialect) -> Value {
    let mut message = Map::from_iter([("role".to_owned(), json!("assistant"))]);
    let mut text = String::new();
    let mut calls = Vec::new();
    for part in parts {
        let native = part.native_for(WIRE).and_then(Value::as_object);
        match (&part.content, native) {
            // A refusal, which has its own field.
            (PartContent::Text(_), Some(fields)) => message.extend(fields.clone()),
            (PartContent::Text(words), None) => text.push_str(words),
            // Reasoning is sent back under the field it came in; OpenAI itself sends none and
            // accepts none.
            (PartContent::Reasoning(_), Some(fields)) if dialect == ChatDialect::Compatible => {
                message.extend(fields.clone())
            }
            (PartContent::Call(request), native) => calls.push(encode_call(request, native)),
            (
                PartContent::Reasoning(_)
                | PartContent::Result(_)
                | PartContent::Media(_)
                | PartContent::Ran(_)
                | PartContent::Opaque,
                _,
            ) => {}
        }
    }
    if !text.is_empty() {
        message.insert("content".to_owned(), text.into());
    } else if calls.is_empty() {
        // Without calls, the content field is required; a refusal takes its place.
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

/// Encodes a call as the server sent it, so that additional fields beside the arguments are sent
/// back, too.
fn encode_call(request: &ToolRequest, native: Option<&Map<String, Value>>) -> Value {
    let mut call = native.cloned().unwrap_or_default();
    call.insert("id".to_owned(), request.provider_call_id.as_str().into());
    call.insert("type".to_owned(), "function".into());
    let arguments = openai_shared::arguments_text(&request.arguments);
    call.insert(
        "function".to_owned(),
        json!({ "name": NAMES.to_wire(&request.tool), "arguments": arguments }),
    );
    Value::Object(call)
}

/// Encodes one message for each answer, then a user message with the media that came with them.
fn encode_answers(parts: &[MessagePart]) -> Vec<Value> {
    let answers = || {
        parts.iter().filter_map(|part| match &part.content {
            PartContent::Result(answer) => Some(answer),
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

    fn sent_body(request: &ModelRequest, dialect: ChatDialect) -> Value {
        let builder = OpenAiChat::compatible("m", "http://127.0.0.1:1");
        let model = OpenAiChat {
            dialect,
            ..builder.build().expect("fine")
        };
        serde_json::from_slice(&encode_request(&model, request).concat()).expect("JSON")
    }

    fn request_with(messages: impl IntoIterator<Item = Message>) -> ModelRequest {
        ModelRequest {
            messages: messages.into_iter().map(Arc::new).collect(),
            ..ModelRequest::default()
        }
    }

    #[test]
    fn the_output_limit_has_the_name_that_the_server_knows() {
        let request = ModelRequest {
            max_tokens: Some(7),
            ..ModelRequest::default()
        };
        assert_eq!(
            sent_body(&request, ChatDialect::OpenAi)["max_completion_tokens"],
            7
        );
        assert_eq!(
            sent_body(&request, ChatDialect::Compatible)["max_tokens"],
            7
        );
    }

    #[test]
    fn without_tools_no_tool_settings_are_sent() {
        let request = ModelRequest {
            choice: ToolChoice::None,
            parallel_calls: Some(false),
            ..ModelRequest::default()
        };
        let sent = sent_body(&request, ChatDialect::OpenAi);
        assert!(
            ["tools", "tool_choice", "parallel_tool_calls"]
                .iter()
                .all(|field| sent.get(field).is_none()),
            "{sent}"
        );
    }

    #[test]
    fn images_of_a_tool_follow_its_answers_in_a_user_message() {
        let answer = |id: &str, media: Vec<Media>| {
            let call_id = id.to_owned();
            let tool = "look".to_owned();
            MessagePart::from(PartContent::Result(ToolAnswer {
                call_id,
                tool,
                text: "done".into(),
                is_error: false,
                media,
            }))
        };
        let parts = vec![
            answer("1", vec![Media::from_base64("image/png", "AAAA")]),
            answer("2", Vec::new()),
        ];
        let sent = sent_body(
            &request_with([Message::new(Role::Tool, parts)]),
            ChatDialect::OpenAi,
        );
        let messages = sent["messages"].as_array().expect("a list");
        let roles: Vec<&Value> = messages.iter().map(|message| &message["role"]).collect();
        assert_eq!(
            roles,
            ["tool", "tool", "user"],
            "the answers are not interrupted"
        );
        assert_eq!(
            messages[2]["content"][1]["image_url"]["url"],
            "data:image/png;base64,AAAA"
        );
    }

    #[test]
    fn reasoning_is_sent_back_to_its_server_and_never_to_openai() {
        let thought = MessagePart::from(PartContent::Reasoning("hm".into()))
            .with_native(WIRE, json!({ "reasoning_content": "hm" }));
        let foreign = MessagePart::from(PartContent::Reasoning("no".into()))
            .with_native("anthropic", json!({ "thinking": "no" }));
        let request = request_with([Message::new(
            Role::Assistant,
            vec![thought, foreign, MessagePart::from_text("yes")],
        )]);
        let compatible = &sent_body(&request, ChatDialect::Compatible)["messages"][0];
        assert_eq!(
            *compatible,
            json!({ "role": "assistant", "reasoning_content": "hm", "content": "yes" })
        );
        let openai = &sent_body(
            &request_with(request.messages.iter().map(|m| (**m).clone())),
            ChatDialect::OpenAi,
        )["messages"][0];
        assert_eq!(*openai, json!({ "role": "assistant", "content": "yes" }));
    }

    #[test]
    fn a_conversation_is_encoded_once() {
        let request = request_with([Message::user("x".repeat(5000))]);
        let first = encode_message(&request.messages[0], ChatDialect::OpenAi);
        assert_eq!(
            first.as_ptr(),
            encode_message(&request.messages[0], ChatDialect::OpenAi).as_ptr()
        );
    }
}
