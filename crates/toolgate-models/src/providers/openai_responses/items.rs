//! Converts the items of a response into provider-independent content.

use serde_json::{Value, json};
use toolgate_core::{MessagePart, PartContent, ProviderCall, ToolRequest, View};

use crate::providers::openai_shared::NAMES;

/// The name of the wire format, in native items and cached fragments.
pub(super) const WIRE: &str = "openai-responses";

/// Converts an item into a part of a message. The native item is stored with it, so an item is one
/// part.
pub(super) fn item_to_part(item: Value, view: &View) -> MessagePart {
    MessagePart::from(item_content(&item, view)).with_native(WIRE, item)
}

fn item_content(item: &Value, view: &View) -> PartContent {
    match text_field(item, "type") {
        "message" => PartContent::Text(join_texts(&item["content"], "")),
        "reasoning" => PartContent::Reasoning(item_reasoning(item)),
        "function_call" => {
            let tool = NAMES.from_wire(view, text_field(item, "name"));
            PartContent::Call(ToolRequest::from_text(
                text_field(item, "call_id"),
                &tool,
                text_field(item, "arguments"),
            ))
        }
        _ => provider_call(item).map_or(PartContent::Opaque, PartContent::Ran),
    }
}

/// Checks whether the model refuses in this item.
pub(super) fn is_refusal(item: &Value) -> bool {
    item["content"]
        .as_array()
        .is_some_and(|parts| parts.iter().any(|part| part["type"] == "refusal"))
}

/// Returns a field that should be text; empty if it is not.
pub(super) fn text_field<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn item_reasoning(item: &Value) -> String {
    let summary = join_texts(&item["summary"], "\n\n");
    if summary.is_empty() {
        join_texts(&item["content"], "\n\n")
    } else {
        summary
    }
}

fn join_texts(parts: &Value, between: &str) -> String {
    let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    let words = parts
        .iter()
        .filter_map(|part| part["text"].as_str().or(part["refusal"].as_str()));
    words.collect::<Vec<_>>().join(between)
}

/// Converts an item that is a provider-executed call.
fn provider_call(item: &Value) -> Option<ProviderCall> {
    let field = |name: &str| item[name].clone();
    let (tool, arguments, result) = match text_field(item, "type") {
        "web_search_call" => ("web_search", field("action"), field("results")),
        "file_search_call" => (
            "file_search",
            json!({ "queries": field("queries") }),
            field("results"),
        ),
        "code_interpreter_call" => (
            "code_interpreter",
            json!({ "code": field("code") }),
            field("outputs"),
        ),
        // The image itself stays in the native item: it is large, and not text.
        "image_generation_call" => {
            let made = json!({ "format": field("output_format"), "size": field("size"), "error": field("error") });
            (
                "image_generation",
                json!({ "prompt": field("revised_prompt") }),
                made,
            )
        }
        "mcp_call" => {
            let arguments = serde_json::from_str(text_field(item, "arguments"))
                .unwrap_or_else(|_| field("arguments"));
            let result = if item["error"].is_null() {
                field("output")
            } else {
                json!({ "error": field("error") })
            };
            (text_field(item, "name"), arguments, result)
        }
        _ => return None,
    };
    let failed =
        !item["error"].is_null() || matches!(text_field(item, "status"), "failed" | "incomplete");
    Some(ProviderCall {
        id: text_field(item, "id").to_owned(),
        tool: tool.to_owned(),
        arguments,
        result,
        failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content_of(item: Value) -> PartContent {
        let part = item_to_part(item.clone(), &View::default());
        assert_eq!(
            part.native_for(WIRE),
            Some(&item),
            "every native item is stored unchanged"
        );
        part.content
    }

    #[test]
    fn provider_executed_calls_are_recorded_as_such() {
        let search = json!({
            "type": "web_search_call", "id": "ws_1", "status": "completed",
            "action": { "type": "search", "query": "crabs" },
        });
        let PartContent::Ran(call) = content_of(search) else {
            panic!("not a call")
        };
        assert_eq!(
            (call.id.as_str(), call.tool.as_str(), call.failed),
            ("ws_1", "web_search", false)
        );
        assert_eq!(call.arguments["query"], "crabs");
        let mcp = json!({
            "type": "mcp_call", "id": "mcp_1", "name": "roll", "server_label": "dice", "arguments": "{\"d\":6}",
            "error": { "type": "mcp_protocol_error", "code": 1, "message": "no" }, "status": "failed",
        });
        let PartContent::Ran(call) = content_of(mcp) else {
            panic!("not a call")
        };
        assert_eq!(
            (call.tool.as_str(), &call.arguments, call.failed),
            ("roll", &json!({ "d": 6 }), true)
        );
        for (kind, tool) in [
            ("file_search_call", "file_search"),
            ("code_interpreter_call", "code_interpreter"),
            ("image_generation_call", "image_generation"),
        ] {
            let item = json!({ "type": kind, "id": "x", "status": "completed", "result": "AAAA" });
            assert!(matches!(content_of(item), PartContent::Ran(call) if call.tool == tool));
        }
    }

    #[test]
    fn unknown_items_are_stored() {
        assert_eq!(
            content_of(json!({ "type": "invented_call", "id": "x" })),
            PartContent::Opaque
        );
        assert_eq!(
            content_of(json!({ "type": "mcp_list_tools", "id": "x", "tools": [] })),
            PartContent::Opaque
        );
    }

    #[test]
    fn a_refusal_is_text_of_the_model() {
        let item = json!({ "type": "message", "content": [{ "type": "refusal", "refusal": "I will not." }] });
        assert!(is_refusal(&item));
        assert_eq!(content_of(item), PartContent::Text("I will not.".into()));
    }

    #[test]
    fn reasoning_is_the_summary_or_else_the_content() {
        let summary = json!([{ "type": "summary_text", "text": "a" }, { "type": "summary_text", "text": "b" }]);
        let item =
            json!({ "type": "reasoning", "summary": summary, "content": [{ "text": "raw" }] });
        assert_eq!(content_of(item), PartContent::Reasoning("a\n\nb".into()));
        let open = json!({ "type": "reasoning", "summary": [], "content": [{ "text": "raw" }] });
        assert_eq!(content_of(open), PartContent::Reasoning("raw".into()));
    }
}
