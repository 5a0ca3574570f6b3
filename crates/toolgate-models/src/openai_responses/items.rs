//! The items of a response, in the words that every provider shares.

use serde_json::{Value, json};
use toolgate_core::{Content, Part, ProviderCall, ToolRequest, View};

use crate::openai::NAMES;

/// The wire format, in items and in kept fragments.
pub(super) const WIRE: &str = "openai-responses";

/// An item as a part of a message. The item itself is kept with it, so an item is one part.
pub(super) fn part(item: Value, view: &View) -> Part {
    Part::from(content(&item, view)).with_native(WIRE, item)
}

fn content(item: &Value, view: &View) -> Content {
    match text(item, "type") {
        "message" => Content::Text(joined(&item["content"], "")),
        "reasoning" => Content::Reasoning(thoughts(item)),
        "function_call" => {
            let tool = NAMES.from_wire(view, text(item, "name"));
            Content::Call(ToolRequest::text(
                text(item, "call_id"),
                &tool,
                text(item, "arguments"),
            ))
        }
        _ => ran(item).map_or(Content::Opaque, Content::Ran),
    }
}

/// Whether the model refuses in this item.
pub(super) fn is_refusal(item: &Value) -> bool {
    item["content"]
        .as_array()
        .is_some_and(|parts| parts.iter().any(|part| part["type"] == "refusal"))
}

/// A field that should be text; empty if it is not.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn thoughts(item: &Value) -> String {
    let summary = joined(&item["summary"], "\n\n");
    if summary.is_empty() {
        joined(&item["content"], "\n\n")
    } else {
        summary
    }
}

fn joined(parts: &Value, between: &str) -> String {
    let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    let words = parts
        .iter()
        .filter_map(|part| part["text"].as_str().or(part["refusal"].as_str()));
    words.collect::<Vec<_>>().join(between)
}

/// A call that OpenAI made by itself.
fn ran(item: &Value) -> Option<ProviderCall> {
    let field = |name: &str| item[name].clone();
    let (tool, arguments, result) = match text(item, "type") {
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
        // The picture itself stays in the kept item: it is large, and no words.
        "image_generation_call" => {
            let made = json!({ "format": field("output_format"), "size": field("size"), "error": field("error") });
            (
                "image_generation",
                json!({ "prompt": field("revised_prompt") }),
                made,
            )
        }
        "mcp_call" => {
            let arguments = serde_json::from_str(text(item, "arguments"))
                .unwrap_or_else(|_| field("arguments"));
            let result = if item["error"].is_null() {
                field("output")
            } else {
                json!({ "error": field("error") })
            };
            (text(item, "name"), arguments, result)
        }
        _ => return None,
    };
    let failed =
        !item["error"].is_null() || matches!(text(item, "status"), "failed" | "incomplete");
    Some(ProviderCall {
        id: text(item, "id").to_owned(),
        tool: tool.to_owned(),
        arguments,
        result,
        failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content_of(item: Value) -> Content {
        let part = part(item.clone(), &View::default());
        assert_eq!(
            part.native(WIRE),
            Some(&item),
            "every item is kept as it came"
        );
        part.content
    }

    #[test]
    fn tools_that_openai_runs_are_recorded_as_such() {
        let search = json!({
            "type": "web_search_call", "id": "ws_1", "status": "completed",
            "action": { "type": "search", "query": "crabs" },
        });
        let Content::Ran(call) = content_of(search) else {
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
        let Content::Ran(call) = content_of(mcp) else {
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
            assert!(matches!(content_of(item), Content::Ran(call) if call.tool == tool));
        }
    }

    #[test]
    fn items_that_nobody_knows_are_kept() {
        assert_eq!(
            content_of(json!({ "type": "invented_call", "id": "x" })),
            Content::Opaque
        );
        assert_eq!(
            content_of(json!({ "type": "mcp_list_tools", "id": "x", "tools": [] })),
            Content::Opaque
        );
    }

    #[test]
    fn a_refusal_is_what_the_model_says() {
        let item = json!({ "type": "message", "content": [{ "type": "refusal", "refusal": "I will not." }] });
        assert!(is_refusal(&item));
        assert_eq!(content_of(item), Content::Text("I will not.".into()));
    }

    #[test]
    fn thoughts_are_the_summary_or_else_the_thoughts_themselves() {
        let summary = json!([{ "type": "summary_text", "text": "a" }, { "type": "summary_text", "text": "b" }]);
        let item =
            json!({ "type": "reasoning", "summary": summary, "content": [{ "text": "raw" }] });
        assert_eq!(content_of(item), Content::Reasoning("a\n\nb".into()));
        let open = json!({ "type": "reasoning", "summary": [], "content": [{ "text": "raw" }] });
        assert_eq!(content_of(open), Content::Reasoning("raw".into()));
    }
}
