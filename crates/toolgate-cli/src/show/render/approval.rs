//! An approval request in full: what will run, why approval is needed, what it changes.

use anstyle::Style;
use serde_json::Value;
use toolgate::{
    SideEffect,
    approval::{ApprovalChange, ApprovalRequest},
    value::Timestamp,
};

use super::{StyledLine, arguments, format_duration, render_diff};
use crate::env::style::{NOTE, WARN};

/// Renders an approval request in full, in lines of at most `width` columns.
pub fn render_approval(request: &ApprovalRequest, now: Timestamp, width: usize) -> Vec<StyledLine> {
    let mut lines = vec![render_title(request, width)];
    if let Some(reason) = &request.reason {
        lines.extend(render_field("why", reason, width));
    }
    lines.extend(render_field("risk", risk_text(request.risk), width));
    if let Some(expires_at) = request.expires_at {
        let left = expires_at.since(now).as_millis() as u64;
        lines.extend(render_field(
            "expires",
            &format!("in {}", format_duration(left)),
            width,
        ));
    }
    if let Some(quorum) = &request.quorum {
        lines.extend(render_field(
            "quorum",
            &format!("{} approvals needed", quorum.needed),
            width,
        ));
    }
    for changed in &request.changed {
        lines.extend(render_field(
            "requested again",
            &change_text(changed),
            width,
        ));
    }
    lines.extend(render_effect(request, width));
    lines
}

fn render_title(request: &ApprovalRequest, width: usize) -> StyledLine {
    let line = StyledLine::styled("── ", WARN)
        .with(request.tool.as_str(), Style::new().bold())
        .with(" ", WARN);
    let left = width.min(72).saturating_sub(line.width());
    line.with(&"─".repeat(left), WARN)
}

fn render_field(name: &str, text: &str, width: usize) -> Vec<StyledLine> {
    let line = StyledLine::styled(name, NOTE).with(&format!(": {}", text.trim()), Style::new());
    line.wrap(width, &StyledLine::plain("  "))
}

/// Renders what will run: a preview of the change if there is one, otherwise the arguments.
fn render_effect(request: &ApprovalRequest, width: usize) -> Vec<StyledLine> {
    // Fails closed: redaction that could not be completed must not show the arguments.
    if request.withheld {
        let text = "the arguments are withheld: they are too large, or redaction could not confirm that they contain no secret";
        return render_field("arguments", text, width);
    }
    let given = request.arguments.as_map();
    match &request.shown {
        // The diff contains what the arguments would repeat, so those are shortened.
        Some(Value::String(text)) if is_diff(text) => {
            let short = arguments::format_short(request.arguments.as_json().as_value());
            let mut lines = render_field("arguments", &short, width);
            lines.extend(render_diff(text));
            lines
        }
        Some(Value::String(text)) => {
            let mut lines = arguments::render_full(given, width);
            lines.extend(
                text.lines()
                    .flat_map(|line| StyledLine::plain(line).wrap(width, &StyledLine::new())),
            );
            lines
        }
        Some(other) => {
            let mut lines = arguments::render_full(given, width);
            lines.extend(
                other
                    .as_object()
                    .map(|map| arguments::render_full(map, width))
                    .unwrap_or_default(),
            );
            lines
        }
        None => arguments::render_full(given, width),
    }
}

fn is_diff(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("@@ "))
}

/// Returns the text for the side effect of a call.
pub fn risk_text(effect: SideEffect) -> &'static str {
    match effect {
        SideEffect::None => "has no effect",
        SideEffect::ReadOnly => "only reads",
        SideEffect::WorkspaceWrite => "writes in the workspace",
        SideEffect::ProcessExec => "runs a program",
        SideEffect::Network => "reaches other machines",
    }
}

fn change_text(changed: &ApprovalChange) -> String {
    match changed {
        ApprovalChange::Arguments => {
            "the arguments differ from those that were approved".to_owned()
        }
        ApprovalChange::Tool => "the tool has changed since it was approved".to_owned(),
        ApprovalChange::Policy => "the policy has changed since it was approved".to_owned(),
        ApprovalChange::Requirement => {
            "approval is needed for a reason that was not shown when it was approved".to_owned()
        }
        ApprovalChange::File { path } => format!("{path} has changed since it was approved"),
        ApprovalChange::Forged => "the approval was not signed by this installation".to_owned(),
        ApprovalChange::KeyGone => "the key that signed the approval no longer exists".to_owned(),
        ApprovalChange::Replayed => "the approval was already used".to_owned(),
        ApprovalChange::Approvers => {
            "the approvers of before do not count: their names were only claimed".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_testkit::call_with;

    fn shown(request: &ApprovalRequest) -> Vec<String> {
        render_approval(request, Timestamp::EPOCH, 60)
            .iter()
            .map(StyledLine::text)
            .collect()
    }

    #[test]
    fn an_approver_sees_what_will_run_and_why() {
        let call = call_with("write_file", json!({ "path": "a.txt", "content": "two\n" }));
        let request = ApprovalRequest::for_call(&call).with_reason("it writes");
        let lines = shown(&request);
        assert!(lines[0].starts_with("── write_file ─"), "{lines:?}");
        for line in ["why: it writes", "path: a.txt", "content:", "  two"] {
            assert!(
                lines.iter().any(|shown| shown == line),
                "{line} in {lines:?}"
            );
        }
        let diffed =
            shown(&request.with_preview("--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-one\n+two\n".into()));
        assert!(
            diffed.contains(&"+two".to_owned()) && !diffed.contains(&"content:".to_owned()),
            "{diffed:?}"
        );
    }

    #[test]
    fn withheld_arguments_are_not_shown() {
        let mut request = ApprovalRequest::for_call(&call_with("t", json!({ "secret": "x" })));
        request.withheld = true;
        assert!(!shown(&request).join("\n").contains("secret:"));
    }
}
