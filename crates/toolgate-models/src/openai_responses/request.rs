//! A request as responses have it.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use toolgate_core::{
    Content, Media, MediaSource, Message, ModelRequest, Part, Role, ToolAnswer, ToolChoice, View,
};

use super::{OpenAiResponses, items::WIRE};
use crate::{
    body::{Chunks, JsonBody, fragment},
    openai::{self, NAMES},
};

pub(super) fn body(model: &OpenAiResponses, request: &ModelRequest) -> Chunks {
    let mut body = JsonBody::new(&request.extra);
    body.field("model", &*model.endpoint.name().model);
    body.field("stream", &true);
    body.field("store", &false);
    // Nothing is stored there, so the thoughts have to come here to be given back.
    body.field("include", &["reasoning.encrypted_content"]);
    body.optional("instructions", request.instructions.as_deref());
    body.optional("max_output_tokens", request.max_tokens);
    body.optional("temperature", request.temperature);
    let reasoning = |effort| json!({ "effort": openai::effort(effort), "summary": "auto" });
    body.optional("reasoning", request.effort.map(reasoning));
    body.optional(
        "text",
        request.output.as_ref().map(|output| {
            let mut format = openai::output_format(output);
            format["type"] = "json_schema".into();
            json!({ "format": format })
        }),
    );
    if !request.view.is_empty() {
        body.raw("tools", model.tools.get(&request.view, tools));
        body.optional("tool_choice", choice(&request.choice));
        body.optional("parallel_tool_calls", request.parallel_calls);
    }
    body.list(
        "input",
        request.messages.iter().map(|message| written(message)),
    );
    body.finish()
}

fn tools(view: &View) -> Bytes {
    let tools = view.specs().map(|spec| {
        let name = NAMES.to_wire(spec.name.as_str());
        // Unless told otherwise, OpenAI would hold the model to schemas that were not made for it, and refuse most.
        json!({
            "type": "function", "name": name, "description": spec.description,
            "parameters": openai::parameters(&spec.input), "strict": false,
        })
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
        ToolChoice::Named(tool) => {
            Some(json!({ "type": "function", "name": NAMES.to_wire(tool.as_str()) }))
        }
    }
}

fn written(message: &Message) -> Bytes {
    message.fragment(WIRE, |message| match message.role {
        Role::User => fragment(user(&message.parts)),
        Role::Assistant => fragment(assistant(&message.parts)),
        Role::Tool => fragment(message.parts.iter().filter_map(|part| match &part.content {
            Content::Result(answer) => Some(output(answer)),
            _ => None,
        })),
    })
}

fn user(parts: &[Part]) -> Option<Value> {
    let content = parts.iter().filter_map(|part| match &part.content {
        Content::Text(text) => Some(text_part(text)),
        Content::Media(media) => Some(media_part(media)),
        Content::Reasoning(_)
        | Content::Call(_)
        | Content::Result(_)
        | Content::Ran(_)
        | Content::Opaque => None,
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
            json!({ "type": "input_image", "detail": "auto", "image_url": openai::address(media) })
        }
        MediaSource::Url(url) => json!({ "type": "input_file", "file_url": url }),
        MediaSource::Data(_) => {
            let (name, data) = (openai::file_name(media), openai::address(media));
            json!({ "type": "input_file", "filename": name, "file_data": data })
        }
    }
}

/// What came of a call: words, or words with pictures and files.
fn output(answer: &ToolAnswer) -> Value {
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

/// The items of a reply as they came. What another provider said is told in the words of this one.
fn assistant(parts: &[Part]) -> Vec<Value> {
    // OpenAI looks up a thought that has no content, and an item whose thought is missing, by their ids; it has stored
    // neither, so the one is left out and the other goes without its id.
    let bare = |part: &&Part| {
        part.native(WIRE)
            .is_some_and(|item| item["type"] == "reasoning" && !is_encrypted(item))
    };
    let keep_ids = !parts.iter().any(|part| bare(&part));
    parts
        .iter()
        .filter(|part| !bare(part))
        .filter_map(|part| item(part, keep_ids))
        .collect()
}

fn is_encrypted(item: &Value) -> bool {
    item["encrypted_content"]
        .as_str()
        .is_some_and(|text| !text.is_empty())
}

fn item(part: &Part, keep_id: bool) -> Option<Value> {
    let native = part.native(WIRE);
    match (&part.content, native) {
        (_, Some(item)) if keep_id => Some(item.clone()),
        (Content::Text(text), _) => {
            Some(json!({ "type": "message", "role": "assistant", "content": text }))
        }
        (Content::Call(request), native) => {
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
                openai::arguments_text(&request.arguments).into(),
            );
            Some(Value::Object(item))
        }
        (_, Some(item)) => Some(item.clone()),
        (
            Content::Reasoning(_)
            | Content::Result(_)
            | Content::Media(_)
            | Content::Ran(_)
            | Content::Opaque,
            None,
        ) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::ToolRequest;

    fn assistant_items(parts: Vec<Part>) -> Value {
        let bytes = written(&Message::new(Role::Assistant, parts));
        serde_json::from_slice(&[b"[", &bytes[..], b"]"].concat()).expect("JSON")
    }

    fn native(content: Content, item: &Value) -> Part {
        Part::from(content).with_native(WIRE, item.clone())
    }

    #[test]
    fn items_are_given_back_verbatim() {
        let thought = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA", "new": [1] });
        let call = json!({ "type": "function_call", "id": "fc_1", "call_id": "c", "name": "t", "arguments": "{ }" });
        let request = ToolRequest::text("c", "t", "{ }");
        let parts = vec![
            native(Content::Reasoning(String::new()), &thought),
            native(Content::Call(request), &call),
        ];
        assert_eq!(assistant_items(parts), json!([thought, call]));
    }

    #[test]
    fn a_thought_that_was_not_sent_along_is_left_out_and_nothing_refers_to_it() {
        let thought = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
        let call = json!({ "type": "function_call", "id": "fc_1", "call_id": "c", "name": "t", "arguments": "{}" });
        let said = json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [] });
        let parts = vec![
            native(Content::Reasoning(String::new()), &thought),
            native(Content::Text("hi".into()), &said),
            native(Content::Call(ToolRequest::text("c", "t", "{}")), &call),
        ];
        let expected = json!([
            { "type": "message", "role": "assistant", "content": "hi" },
            { "type": "function_call", "call_id": "c", "name": "t", "arguments": "{}" },
        ]);
        assert_eq!(assistant_items(parts), expected);
    }

    #[test]
    fn what_another_provider_said_is_told_without_its_thoughts() {
        let parts = vec![
            Part::from(Content::Reasoning("hm".into()))
                .with_native("anthropic", json!({ "signature": "s" })),
            Part::text("hi"),
            Part::from(Content::Call(ToolRequest::json(
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
        assert_eq!(assistant_items(parts), expected);
    }

    #[test]
    fn pictures_and_files_are_part_of_the_output() {
        let media = vec![
            Media::data("image/png", "AAAA"),
            Media::data("application/pdf", "BBBB"),
            Media {
                source: MediaSource::Url("https://h/x.pdf".into()),
                ..Media::data("application/pdf", "")
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
        assert_eq!(output(&answer)["output"], expected);
    }
}
