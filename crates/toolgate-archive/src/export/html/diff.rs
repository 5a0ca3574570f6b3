//! The changes that a call asks for, as a diff.

use maud::{Markup, html};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::visible;
use crate::export::transcript::TranscriptCall;

/// The most lines of one diff.
const MAX_LINES: usize = 2_000;

/// The longest text that is compared.
const MAX_BYTES: usize = 256 * 1024;

/// Renders the changes of a call that edits a file, if its arguments have a known form.
pub(super) fn render_changes(call: &TranscriptCall) -> Option<Markup> {
    let value = call.value.as_ref()?.as_value();
    if let Some(patch) = value.get("patch").and_then(Value::as_str) {
        return Some(html! { h4 { "Patch" } (render_patch(patch)) });
    }
    let path = ["path", "file_path"]
        .iter()
        .find_map(|name| value.get(name)?.as_str());
    let path = path.unwrap_or_default();
    let edits = match value.get("edits").and_then(Value::as_array) {
        Some(edits) => edits.iter().filter_map(edit_of).collect(),
        None => edit_of(value).map(|edit| vec![edit])?,
    };
    if edits.is_empty() {
        return None;
    }
    Some(html! {
        h4 { "Changes in " code { (visible(path)) } }
        @for (old, new) in edits { (render_edit(old, new)) }
    })
}

/// Returns the old and the new text of an edit, under the names that tools use.
fn edit_of(value: &Value) -> Option<(&str, &str)> {
    let names = [
        ("old", "new"),
        ("old_string", "new_string"),
        ("old_text", "new_text"),
    ];
    names.iter().find_map(|(old, new)| {
        let old = value.get(old)?.as_str()?;
        let new = value.get(new)?.as_str()?;
        (old.len() + new.len() <= MAX_BYTES).then_some((old, new))
    })
}

fn render_edit(old: &str, new: &str) -> Markup {
    let diff = TextDiff::from_lines(old, new);
    let lines = diff.iter_all_changes().take(MAX_LINES).map(|change| {
        let class = match change.tag() {
            ChangeTag::Delete => "removed",
            ChangeTag::Insert => "added",
            ChangeTag::Equal => "same",
        };
        (
            class,
            change.to_string_lossy().trim_end_matches('\n').to_owned(),
        )
    });
    render_lines(lines)
}

fn render_patch(patch: &str) -> Markup {
    let lines = patch.lines().take(MAX_LINES).map(|line| {
        let class = match line.as_bytes().first() {
            Some(b'+') => "added",
            Some(b'-') => "removed",
            Some(b'@' | b'*') => "place",
            _ => "same",
        };
        let text = match class {
            "added" | "removed" => &line[1..],
            _ => line,
        };
        (class, text.to_owned())
    });
    render_lines(lines)
}

fn render_lines(lines: impl Iterator<Item = (&'static str, String)>) -> Markup {
    html! {
        pre.diff {
            @for (class, line) in lines { span class=(class) { (visible(&line)) "\n" } }
        }
    }
}
