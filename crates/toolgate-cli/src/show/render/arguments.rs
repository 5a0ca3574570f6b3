//! The arguments of a call in one short line.

use serde_json::Value;
use toolgate::approval::{ShownField, ShownKind, ShownRequest};

/// Arguments that describe a call best, in this order. The first one present is shown without its
/// name.
const LEADING_ARGUMENTS: [&str; 7] = ["command", "path", "url", "pattern", "query", "name", "task"];
/// The most characters of one value in a line.
const MAX_VALUE_CHARS: usize = 60;

/// Formats arguments in one short line.
pub fn format_short(arguments: &Value) -> String {
    let Some(map) = arguments.as_object() else {
        return String::new();
    };
    let first = LEADING_ARGUMENTS
        .iter()
        .find_map(|name| Some((*name, map.get(*name)?.as_str()?)));
    let mut words: Vec<String> = first.iter().map(|(_, text)| flatten_text(text)).collect();
    let rest = map
        .iter()
        .filter(|(name, _)| first.is_none_or(|(shown, _)| shown != name.as_str()));
    words.extend(rest.map(|(name, value)| format!("{name}={}", format_brief(value))));
    words.join(" ")
}

/// Formats what an approver is shown in one short line: the leading argument, then the others. It is
/// an overview; the decision is made on the whole request.
pub fn format_shown(shown: &ShownRequest) -> String {
    let arguments = || {
        let is_argument = |field: &&ShownField| match field.kind {
            ShownKind::Fact => false,
            ShownKind::Argument => true,
            // A patch is an argument and its own preview.
            ShownKind::Diff => field.name.as_str() != "change",
        };
        shown.fields.iter().filter(is_argument)
    };
    let named = |name: &&str| arguments().find(|field| field.name.as_str() == *name);
    let first = LEADING_ARGUMENTS.iter().find_map(named);
    let text = |field: &ShownField| match field.lines.as_slice() {
        [line] => line.to_string(),
        [line, ..] => format!("{line} ⟨{} lines⟩", field.lines.len()),
        [] => String::new(),
    };
    let rest = arguments().filter(|field| !first.is_some_and(|first| std::ptr::eq(first, *field)));
    let mut words: Vec<String> = first.into_iter().map(text).collect();
    words.extend(rest.map(|field| format!("{}={}", field.name, text(field))));
    words.join(" ")
}

fn format_brief(value: &Value) -> String {
    match value {
        Value::String(text) if text.len() > MAX_VALUE_CHARS || text.contains('\n') => {
            format_bytes(text.len())
        }
        Value::String(text) => flatten_text(text),
        Value::Array(items) => format!("[{}]", items.len()),
        Value::Object(map) => format!("{{{}}}", map.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn flatten_text(text: &str) -> String {
    let mut line: String = text
        .trim()
        .chars()
        .take(MAX_VALUE_CHARS * 2)
        .map(|c| if c == '\n' { '⏎' } else { c })
        .collect();
    if text.trim().chars().count() > MAX_VALUE_CHARS * 2 {
        line.push('…');
    }
    line
}

/// Formats a number of bytes for people.
pub fn format_bytes(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_leading_argument_comes_first_and_long_texts_show_their_size() {
        let short = |value: Value| format_short(&value);
        assert_eq!(
            short(json!({ "content": "x\n".repeat(700), "path": "src/a.rs" })),
            "src/a.rs content=1.4 kB"
        );
        assert_eq!(
            short(json!({ "command": "a\nb", "timeout": 5 })),
            "a⏎b timeout=5"
        );
        assert_eq!(
            short(json!({ "edits": [1, 2], "on": true })),
            "edits=[2] on=true"
        );
        assert_eq!(short(json!(null)), "");
    }

    #[test]
    fn a_short_line_of_a_request_says_how_much_it_leaves_out() {
        let call = toolgate_testkit::call_with(
            "shell",
            json!({ "command": "ls\u{200b}\nrm x", "cwd": "docs", "n": 3 }),
        );
        let shown = toolgate::approval::ApprovalRequest::for_call(&call).show(None);
        assert_eq!(
            format_shown(&shown),
            "ls⟨U+200B⟩ ⟨2 lines⟩ cwd=docs n=3 ⟨number⟩"
        );
    }
}
