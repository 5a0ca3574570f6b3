//! The arguments of a call: in short for one line, or in full for an approver.

use anstyle::{AnsiColor, Style};
use serde_json::{Map, Value};

use super::StyledLine;

/// Arguments that describe a call best, in this order. The first one present is shown without its
/// name.
const LEADING_ARGUMENTS: [&str; 7] = ["command", "path", "url", "pattern", "query", "name", "task"];
/// The most characters of one value in a line.
const MAX_VALUE_CHARS: usize = 60;
/// The most lines of one value that are shown in full.
const MAX_VALUE_LINES: usize = 40;

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

/// Formats arguments in full for an approver: strings as they are, other values as JSON.
pub fn render_full(arguments: &Map<String, Value>, width: usize) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    for (name, value) in arguments {
        let mut head = StyledLine::styled(name, AnsiColor::Cyan.on_default());
        match value {
            Value::String(text) if text.contains('\n') => {
                lines.push(head.with(":", Style::new()));
                lines.extend(render_block(text, width));
            }
            Value::String(text) => {
                head.push(&format!(": {text}"), Style::new());
                lines.extend(head.wrap(width, &StyledLine::plain("  ")));
            }
            other => {
                head.push(&format!(": {other}"), Style::new());
                lines.extend(head.wrap(width, &StyledLine::plain("  ")));
            }
        }
    }
    lines
}

fn render_block(text: &str, width: usize) -> Vec<StyledLine> {
    let margin = StyledLine::plain("  ");
    let total = text.lines().count();
    let mut lines: Vec<StyledLine> = Vec::new();
    for line in text.lines().take(MAX_VALUE_LINES) {
        lines.extend(StyledLine::plain(&format!("  {line}")).wrap(width, &margin));
    }
    if total > MAX_VALUE_LINES {
        lines.push(StyledLine::styled(
            &format!("  … {} lines more", total - MAX_VALUE_LINES),
            Style::new().dimmed(),
        ));
    }
    lines
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
    fn an_approver_sees_texts_unchanged() {
        let arguments = json!({ "command": "ls -l", "content": "one\n  two\n", "n": 3 });
        let lines = render_full(arguments.as_object().expect("an object"), 40);
        let texts: Vec<String> = lines.iter().map(StyledLine::text).collect();
        assert_eq!(
            texts,
            ["command: ls -l", "content:", "  one", "    two", "n: 3"]
        );
        let long = json!({ "content": "x\n".repeat(100) });
        let lines = render_full(long.as_object().expect("an object"), 40);
        assert_eq!(lines.last().expect("some").text(), "  … 60 lines more");
    }
}
