//! What a call is called with: in a few words for a line, or in full for whoever has to decide.

use anstyle::{AnsiColor, Style};
use serde_json::{Map, Value};

use super::Line;

/// What says most about a call, and stands without its name.
const FIRST: [&str; 7] = ["command", "path", "url", "pattern", "query", "name", "task"];
/// How many characters of one value a line shows.
const SHORT: usize = 60;
/// How many lines of one value are shown in full.
const MOST_LINES: usize = 40;

/// Arguments in a few words.
pub fn in_short(arguments: &Value) -> String {
    let Some(map) = arguments.as_object() else {
        return String::new();
    };
    let first = FIRST
        .iter()
        .find_map(|name| Some((*name, map.get(*name)?.as_str()?)));
    let mut words: Vec<String> = first.iter().map(|(_, text)| one_line(text)).collect();
    let rest = map
        .iter()
        .filter(|(name, _)| first.is_none_or(|(shown, _)| shown != name.as_str()));
    words.extend(rest.map(|(name, value)| format!("{name}={}", brief(value))));
    words.join(" ")
}

/// Arguments as somebody reads them who has to decide: texts as they are, the rest as JSON.
pub fn in_full(arguments: &Map<String, Value>, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for (name, value) in arguments {
        let mut head = Line::styled(name, AnsiColor::Cyan.on_default());
        match value {
            Value::String(text) if text.contains('\n') => {
                lines.push(head.with(":", Style::new()));
                lines.extend(block(text, width));
            }
            Value::String(text) => {
                head.push(&format!(": {text}"), Style::new());
                lines.extend(head.wrap(width, &Line::plain("  ")));
            }
            other => {
                head.push(&format!(": {other}"), Style::new());
                lines.extend(head.wrap(width, &Line::plain("  ")));
            }
        }
    }
    lines
}

fn block(text: &str, width: usize) -> Vec<Line> {
    let margin = Line::plain("  ");
    let total = text.lines().count();
    let mut lines: Vec<Line> = Vec::new();
    for line in text.lines().take(MOST_LINES) {
        lines.extend(Line::plain(&format!("  {line}")).wrap(width, &margin));
    }
    if total > MOST_LINES {
        lines.push(Line::styled(
            &format!("  … {} lines more", total - MOST_LINES),
            Style::new().dimmed(),
        ));
    }
    lines
}

fn brief(value: &Value) -> String {
    match value {
        Value::String(text) if text.len() > SHORT || text.contains('\n') => size(text.len()),
        Value::String(text) => one_line(text),
        Value::Array(items) => format!("[{}]", items.len()),
        Value::Object(map) => format!("{{{}}}", map.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn one_line(text: &str) -> String {
    let mut line: String = text
        .trim()
        .chars()
        .take(SHORT * 2)
        .map(|c| if c == '\n' { '⏎' } else { c })
        .collect();
    if text.trim().chars().count() > SHORT * 2 {
        line.push('…');
    }
    line
}

/// So many bytes, for people.
pub fn size(bytes: usize) -> String {
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
    fn what_says_most_comes_first_and_long_texts_are_only_measured() {
        let short = |value: Value| in_short(&value);
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
    fn whoever_decides_sees_texts_as_they_are() {
        let arguments = json!({ "command": "ls -l", "content": "one\n  two\n", "n": 3 });
        let lines = in_full(arguments.as_object().expect("an object"), 40);
        let texts: Vec<String> = lines.iter().map(Line::text).collect();
        assert_eq!(
            texts,
            ["command: ls -l", "content:", "  one", "    two", "n: 3"]
        );
        let long = json!({ "content": "x\n".repeat(100) });
        let lines = in_full(long.as_object().expect("an object"), 40);
        assert_eq!(lines.last().expect("some").text(), "  … 60 lines more");
    }
}
