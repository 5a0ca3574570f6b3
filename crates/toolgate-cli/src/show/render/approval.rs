//! An approval request in full, drawn from what the library says that an approver sees.

use anstyle::Style;
use toolgate::{
    approval::{ShownField, ShownKind, ShownRequest},
    value::Timestamp,
};

use super::{
    StyledLine,
    diff::render_diff_lines,
    margin::{continued_mark, wrap_behind_margin},
};
use crate::env::{
    style::{NOTE, WARN},
    times,
};

/// The most rows of an approval request that are printed at once.
pub const PAGE_ROWS: usize = 1_000;

/// Draws an approval request in rows of at most `width` columns. Nothing is left out.
pub fn render_shown(shown: &ShownRequest, width: usize) -> Vec<StyledLine> {
    let mut rows = vec![render_title(shown.tool.as_str(), width)];
    rows.extend(
        shown
            .fields
            .iter()
            .flat_map(|field| render_field(field, width)),
    );
    rows
}

fn render_title(tool: &str, width: usize) -> StyledLine {
    let line = StyledLine::styled("── ", WARN)
        .with(tool, Style::new().bold())
        .with(" ", WARN);
    let left = width.min(72).saturating_sub(line.width());
    line.with(&"─".repeat(left), WARN)
}

fn render_field(field: &ShownField, width: usize) -> Vec<StyledLine> {
    let head = expiry_head(field).unwrap_or_else(|| field.head());
    let text = &head[field.name.as_str().len()..];
    let head = StyledLine::styled(field.name.as_str(), NOTE).with(text, Style::new());
    let mut rows = head.wrap_exactly(width, &continued_mark());
    if !field.is_block {
        return rows;
    }
    let texts = || field.lines.iter().map(|line| line.as_str());
    let lines: Vec<StyledLine> = match field.kind {
        ShownKind::Diff => render_diff_lines(texts()).collect(),
        ShownKind::Fact | ShownKind::Argument => texts().map(StyledLine::plain).collect(),
    };
    rows.extend(
        lines
            .into_iter()
            .flat_map(|line| wrap_behind_margin(line, width)),
    );
    rows
}

/// Returns the head of the field about when the request expires: how long that is from now, and the
/// local time.
fn expiry_head(field: &ShownField) -> Option<String> {
    let is_expiry = field.kind == ShownKind::Fact && field.name.as_str() == "expires";
    let until: Timestamp = field
        .lines
        .first()
        .filter(|_| is_expiry)?
        .as_str()
        .parse()
        .ok()?;
    let left = times::format_time_left(until, times::current_time());
    Some(format!(
        "{}: {left} ({})",
        field.name,
        times::format_time(until)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::render::margin::CONTINUED;
    use serde_json::json;
    use toolgate::approval::{ApprovalRequest, SHOWN_MARGIN};
    use toolgate_testkit::call_with;

    fn rows(request: &ApprovalRequest, width: usize) -> Vec<String> {
        let rows = render_shown(&request.show(None), width);
        rows.iter().map(StyledLine::text).collect()
    }

    #[test]
    fn an_approver_sees_what_will_run_and_why() {
        let call = call_with("write_file", json!({ "path": "a.txt", "content": "two\n" }));
        let request = ApprovalRequest::for_call(&call).with_reason("it writes");
        let shown = rows(&request, 60);
        assert!(shown[0].starts_with("── write_file ─"), "{shown:?}");
        for line in [
            "why: it writes",
            "path: a.txt",
            "content: ⟨1 line⟩",
            "  │ two",
        ] {
            assert!(shown.iter().any(|row| row == line), "{line} in {shown:?}");
        }
        let diff = "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-one\n+two\n";
        let diffed = rows(&request.with_preview(diff.into()), 60);
        for line in ["  │ -one", "  │ +two", "  │ two"] {
            assert!(diffed.iter().any(|row| row == line), "{line} in {diffed:?}");
        }
    }

    #[test]
    fn every_row_of_a_long_request_is_drawn() {
        let commands = [
            (0..41)
                .map(|n| format!("echo {n}"))
                .collect::<Vec<_>>()
                .join("\n"),
            format!("true{}; touch pwned", " ".repeat(66_000)),
            "x".repeat(66_000),
            format!("{}\ntouch pwned", "a b ".repeat(20_000)),
            (0..5_000).map(|n| format!("line {n}\n")).collect(),
        ];
        for command in commands {
            let call = call_with("shell", json!({ "command": command }));
            let request = ApprovalRequest::for_call(&call);
            let drawn: String = rows(&request, 40)
                .iter()
                .map(|row| {
                    row.trim_start_matches(CONTINUED)
                        .trim_start_matches(SHOWN_MARGIN)
                })
                .collect();
            let field = request.show(None).fields.pop().expect("the command");
            let lines: String = field.lines.iter().map(|line| line.as_str()).collect();
            assert!(drawn.ends_with(&lines), "{} bytes", command.len());
        }
    }
}
