//! Encodes requests for the responses API.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use toolgate_core::{
    Media, MediaSource, Message, MessagePart, ModelRequest, PartContent, Role, ToolAnswer,
    ToolChoice, View,
};

use super::{OpenAiResponses, items::WIRE};
use crate::{
    providers::openai_shared::{self, NAMES},
    wire::body::{BodyChunks, JsonBody, encode_items},
};

pub(super) fn encode_request(model: &OpenAiResponses, request: &ModelRequest) -> BodyChunks {
    let mut body = JsonBody::new(&request.extra);
    body.write_field("model", &*model.endpoint.name().model);
    body.write_field("stream", &true);
    body.write_field("store", &false);
    // Nothing is stored there, so reasoning has to be returned to us to be sent back later.
    body.write_field("include", &["reasoning.encrypted_content"]);
    body.write_optional("instructions", request.instructions.as_deref());
    body.write_optional("max_output_tokens", request.max_tokens);
    body.write_optional("temperature", request.temperature);
    let reasoning =
        |effort| json!({ "effort": openai_shared::effort_word(effort), "summary": "auto" });
    body.write_optional("reasoning", request.effort.map(reasoning));
    body.write_optional(
        "text",
        request.output.as_ref().map(|output| {
            let mut format = openai_shared::output_format(output);
            format["type"] = "json_schema".into();
            json!({ "format": format })
        }),
    );
    if !request.view.is_empty() {
        body.write_raw(
            "tools",
            model.tools.get_or_encode(&request.view, encode_tools),
        );
        body.write_optional("tool_choice", tool_choice(&request.choice));
        body.write_optional("parallel_tool_calls", request.parallel_calls);
    }
    body.write_list(
        "input",
        request
            .messages
            .iter()
            .map(|message| encode_message(message)),
    );
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
        // By default, OpenAI would enforce schemas that were not written for strict mode, and
        // reject most of them.
        json!({
            "type": "function", "name": name, "description": spec.description,
            "parameters": openai_shared::parameters_schema(&spec.input), "strict": false,
        })
    });
    tools.collect()
}

fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some("none".into()),
        ToolChoice::Required => Some("required".into()),
        ToolChoice::Named(tool) => {
            Some(json!({ "type": "function", "name": NAMES.to_wire(tool.as_str()) }))
        }
    }
}

fn encode_message(message: &Message) -> Bytes {
    message.encoded_for(WIRE, |message| match message.role {
        Role::User => encode_items(user_message(&message.parts)),
        Role::Assistant => encode_items(assistant_items(&message.parts)),
        Role::Tool => encode_items(message.parts.iter().filter_map(|part| match &part.content {
            PartContent::Result(answer) => Some(call_output(answer)),
            _ => None,
        })),
    })
}

fn user_message(parts: &[MessagePart]) -> Option<Value> {
    let content = parts.iter().filter_map(|part| match &part.content {
        PartContent::Text(text) => Some(text_part(text)),
        PartContent::Media(media) => Some(media_part(media)),
        PartContent::Reasoning(_)
        | PartContent::Call(_)
        | PartContent::Result(_)
        | PartContent::Ran(_)
        | PartContent::Opaque => None,
    });
    let content: Vec<Value> = content.collect();
    (!content.is_empty()).then(|| json!({ "type": "message", "role": "user", "content": content }))
}

fn text_part(text: &str) -> Value {
    json!({ "type": "input_text", "text": text })
}

fn media_part(media: &Media) -> Value {
    match &media.source {
        _ if media.is_image() => {
            json!({ "type": "input_image", "detail": "auto", "image_url": openai_shared::media_url(media) })
        }
        MediaSource::Url(url) => json!({ "type": "input_file", "file_url": url }),
        MediaSource::Data(_) => {
            let name = openai_shared::file_name(media);
            let data = openai_shared::media_url(media);
            json!({ "type": "input_file", "filename": name, "file_data": data })
        }
    }
}

/// Encodes the result of a call: text, or text with images and files.
fn call_output(answer: &ToolAnswer) -> Value {
    let output: Value = if answer.media.is_empty() {
        answer.text.as_str().into()
    } else {
        let words = (!answer.text.is_empty()).then(|| text_part(&answer.text));
        words
            .into_iter()
            .chain(answer.media.iter().map(media_part))
            .collect()
    };
    json!({ "type": "function_call_output", "call_id": answer.call_id, "output": output })
}

/// Encodes the items of a reply as they came. Content of another provider is converted to this
/// format.
fn assistant_items(parts: &[MessagePart]) -> Vec<Value> {
    // OpenAI looks up reasoning without content, and an item whose reasoning is missing, by their
    // ids. It has stored neither, so the former is omitted and the latter is sent without its id.
    let bare = |part: &&MessagePart| {
        part.native_for(WIRE)
            .is_some_and(|item| item["type"] == "reasoning" && !is_encrypted(item))
    };
    let keep_ids = !parts.iter().any(|part| bare(&part));
    parts
        .iter()
        .filter(|part| !bare(part))
        .filter_map(|part| encode_item(part, keep_ids))
        .collect()
}

fn is_encrypted(item: &Value) -> bool {
    item["encrypted_content"]
        .as_str()
        .is_some_and(|text| !text.is_empty())
}

fn encode_item(part: &MessagePart, keep_id: bool) -> Option<Value> {
    let native = part.native_for(WIRE);
    match (&part.content, native) {
        (_, Some(item)) if keep_id => Some(item.clone()),
        (PartContent::Text(text), _) => {
            Some(json!({ "type": "message", "role": "assistant", "content": text }))
        }
        (PartContent::Call(request), native) => {
            let mut item = native
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_else(|| {
                    let fields = [
                        ("type", "function_call"),
                        ("call_id", &request.provider_call_id),
                    ];
                    Map::from_iter(fields.map(|(name, value)| (name.to_owned(), value.into())))
                });
            item.remove("id");
            item.insert("name".to_owned(), NAMES.to_wire(&request.tool).into());
            item.insert(
                "arguments".to_owned(),
                openai_shared::arguments_text(&request.arguments).into(),
            );
            Some(Value::Object(item))
        }
        (_, Some(item)) => Some(item.clone()),
        (
            PartContent::Reasoning(_)
            | PartContent::Result(_)
            | PartContent::Media(_)
            | PartContent::Ran(_)
            | PartContent::Opaque,
            None,
        ) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::ToolRequest;

    fn encode_assistant(parts: Vec<MessagePart>) -> Value {
        let bytes = encode_message(&Message::new(Role::Assistant, parts));
        serde_json::from_slice(&[b"[", &bytes[..], b"]"].concat()).expect("JSON")
    }

    fn native(content: PartContent, item: &Value) -> MessagePart {
        MessagePart::from(content).with_native(WIRE, item.clone())
    }

    #[test]
    fn items_are_sent_back_verbatim() {
        let thought = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA", "new": [1] });
        let call = json!({ "type": "function_call", "id": "fc_1", "call_id": "c", "name": "t", "arguments": "{ }" });
        let request = ToolRequest::from_text("c", "t", "{ }");
        let parts = vec![
            native(PartContent::Reasoning(String::new()), &thought),
            native(PartContent::Call(request), &call),
        ];
        assert_eq!(encode_assistant(parts), json!([thought, call]));
    }

    #[test]
    fn reasoning_without_content_is_omitted_with_the_ids_that_refer_to_it() {
        let thought = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
        let call = json!({ "type": "function_call", "id": "fc_1", "call_id": "c", "name": "t", "arguments": "{}" });
        let said = json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [] });
        let parts = vec![
            native(PartContent::Reasoning(String::new()), &thought),
            native(PartContent::Text("hi".into()), &said),
            native(
                PartContent::Call(ToolRequest::from_text("c", "t", "{}")),
                &call,
            ),
        ];
        let expected = json!([
            { "type": "message", "role": "assistant", "content": "hi" },
            { "type": "function_call", "call_id": "c", "name": "t", "arguments": "{}" },
        ]);
        assert_eq!(encode_assistant(parts), expected);
    }

    #[test]
    fn messages_of_another_provider_are_sent_without_reasoning() {
        let parts = vec![
            MessagePart::from(PartContent::Reasoning("hm".into()))
                .with_native("anthropic", json!({ "signature": "s" })),
            MessagePart::from_text("hi"),
            MessagePart::from(PartContent::Call(ToolRequest::from_json(
                "c",
                "files.read",
                json!({ "a": 1 }),
            ))),
        ];
        let name = NAMES.to_wire("files.read");
        let expected = json!([
            { "type": "message", "role": "assistant", "content": "hi" },
            { "type": "function_call", "call_id": "c", "name": name, "arguments": "{\"a\":1}" },
        ]);
        assert_eq!(encode_assistant(parts), expected);
    }

    #[test]
    fn images_and_files_are_part_of_the_output() {
        let media = vec![
            Media::from_base64("image/png", "AAAA"),
            Media::from_base64("application/pdf", "BBBB"),
            Media {
                source: MediaSource::Url("https://h/x.pdf".into()),
                ..Media::from_base64("application/pdf", "")
            },
        ];
        let answer = ToolAnswer {
            call_id: "c".into(),
            tool: "t".into(),
            text: "see".into(),
            is_error: false,
            media,
        };
        let expected = json!([
            { "type": "input_text", "text": "see" },
            { "type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA" },
            { "type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,BBBB" },
            { "type": "input_file", "file_url": "https://h/x.pdf" },
        ]);
        assert_eq!(call_output(&answer)["output"], expected);
    }
}
