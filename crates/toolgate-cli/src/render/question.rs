//! A question in full, for whoever has to decide: what will run, why somebody is asked, what it changes.

use anstyle::{AnsiColor, Style};
use serde_json::Value;
use toolgate::{ApprovalRequest, Changed, SideEffect, Timestamp};

use super::{Line, arguments, diff, took};

const WARN: Style = AnsiColor::Yellow.on_default();
const NAME: Style = AnsiColor::Cyan.on_default();

/// A question in full, in lines of at most `width` columns.
pub fn question(request: &ApprovalRequest, now: Timestamp, width: usize) -> Vec<Line> {
    let mut lines = vec![title(request, width)];
    if let Some(reason) = &request.reason {
        lines.extend(field("why", reason, width));
    }
    lines.extend(field("risk", risk(request.risk), width));
    if let Some(expires_at) = request.expires_at {
        let left = expires_at.since(now).as_millis() as u64;
        lines.extend(field("expires", &format!("in {}", took(left)), width));
    }
    if let Some(quorum) = &request.quorum {
        lines.extend(field(
            "takes",
            &format!("{} who agree", quorum.needed),
            width,
        ));
    }
    for changed in &request.changed {
        lines.extend(field("asked again", &since(changed), width));
    }
    lines.extend(what(request, width));
    lines
}

fn title(request: &ApprovalRequest, width: usize) -> Line {
    let line = Line::styled("── ", WARN)
        .with(request.tool.as_str(), Style::new().bold())
        .with(" ", WARN);
    let left = width.min(72).saturating_sub(line.width());
    line.with(&"─".repeat(left), WARN)
}

fn field(name: &str, text: &str, width: usize) -> Vec<Line> {
    let line = Line::styled(name, NAME).with(&format!(": {}", text.trim()), Style::new());
    line.wrap(width, &Line::plain("  "))
}

/// What will run: the change that it makes if that can be shown, otherwise its arguments.
fn what(request: &ApprovalRequest, width: usize) -> Vec<Line> {
    if request.withheld {
        let text = "the arguments cannot be shown: they are too large, or it is not certain that they hold no secret";
        return field("arguments", text, width);
    }
    let given = request.arguments.as_map();
    match &request.shown {
        Some(Value::String(text)) if is_diff(text) => {
            let short = arguments::in_short(request.arguments.as_json().as_value());
            let mut lines = field("arguments", &short, width);
            lines.extend(diff(text));
            lines
        }
        Some(Value::String(text)) => {
            let mut lines = arguments::in_full(given, width);
            lines.extend(
                text.lines()
                    .flat_map(|line| Line::plain(line).wrap(width, &Line::new())),
            );
            lines
        }
        Some(other) => {
            let mut lines = arguments::in_full(given, width);
            lines.extend(
                other
                    .as_object()
                    .map(|map| arguments::in_full(map, width))
                    .unwrap_or_default(),
            );
            lines
        }
        None => arguments::in_full(given, width),
    }
}

fn is_diff(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("@@ "))
}

/// How far a call reaches, in words.
pub fn risk(effect: SideEffect) -> &'static str {
    match effect {
        SideEffect::None => "has no effect",
        SideEffect::ReadOnly => "only reads",
        SideEffect::WorkspaceWrite => "writes in the workspace",
        SideEffect::ProcessExec => "runs a program",
        SideEffect::Network => "reaches other machines",
    }
}

fn since(changed: &Changed) -> String {
    match changed {
        Changed::Arguments => "the arguments are others than those that were approved".to_owned(),
        Changed::Tool => "the tool has changed since it was approved".to_owned(),
        Changed::Policy => "the policy has changed since it was approved".to_owned(),
        Changed::File { path } => format!("{path} has changed since it was approved"),
        Changed::Forged => "the approval was not signed by this installation".to_owned(),
        Changed::KeyGone => "the key that the approval was signed with is gone".to_owned(),
        Changed::Replayed => "the approval was used before".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_testkit::call_with;

    fn shown(request: &ApprovalRequest) -> Vec<String> {
        question(request, Timestamp::EPOCH, 60)
            .iter()
            .map(Line::text)
            .collect()
    }

    #[test]
    fn whoever_decides_sees_what_will_run_and_why_they_are_asked() {
        let call = call_with("write_file", json!({ "path": "a.txt", "content": "two\n" }));
        let request = ApprovalRequest::about(&call).because("it writes");
        let lines = shown(&request);
        assert!(lines[0].starts_with("── write_file ─"), "{lines:?}");
        for line in ["why: it writes", "path: a.txt", "content:", "  two"] {
            assert!(
                lines.iter().any(|shown| shown == line),
                "{line} in {lines:?}"
            );
        }
        let diffed =
            shown(&request.showing("--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-one\n+two\n".into()));
        assert!(
            diffed.contains(&"+two".to_owned()) && !diffed.contains(&"content:".to_owned()),
            "{diffed:?}"
        );
    }

    #[test]
    fn arguments_that_must_not_be_shown_are_not() {
        let mut request = ApprovalRequest::about(&call_with("t", json!({ "secret": "x" })));
        request.withheld = true;
        assert!(!shown(&request).join("\n").contains("secret:"));
    }
}
