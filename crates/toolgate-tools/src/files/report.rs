//! The result of a tool that changes files: the files, line counts, and a diff.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};
use toolgate_core::{CallId, Digest, ToolError, ToolOutput};
use toolgate_rooted::RootedPath;

use crate::{
    files::text::DecodedText,
    workspace::{commit::PlannedChange, open::FileSnapshot},
};

/// The changes of a call, ready to be rendered.
pub(crate) struct ChangeReport {
    call: CallId,
    files: Vec<ReportedFile>,
    diff: String,
    notes: Vec<String>,
    can_be_undone: bool,
}

/// One file of a report; the layer for file changes reads this form.
#[derive(Debug, Clone, Serialize)]
struct ReportedFile {
    path: String,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_path: Option<String>,
    /// The number of added lines; `None` for a binary file.
    #[serde(skip_serializing_if = "Option::is_none")]
    added: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<usize>,
}

/// The longest diff in bytes; a longer one is truncated.
const MAX_DIFF_BYTES: usize = 64 * 1024;
/// The most lines of a file that is compared; comparing longer files takes too long.
const MAX_COMPARED_LINES: usize = 20_000;
/// The time limit of a comparison; after it the rest of the diff is approximate.
const COMPARISON_TIMEOUT: Duration = Duration::from_millis(500);

impl ChangeReport {
    pub(crate) fn new(call: CallId, plan: &[PlannedChange]) -> Self {
        let moved: Vec<&RootedPath> = plan
            .iter()
            .filter_map(|planned| planned.renamed_from.as_ref())
            .collect();
        // A renamed file is listed once, under its new name.
        let told = plan
            .iter()
            .filter(|planned| planned.after.is_some() || !moved.contains(&&planned.place));
        let files = told
            .map(|planned| ReportedFile::from_change(planned, old_snapshot(plan, planned)))
            .collect();
        Self {
            call,
            files,
            diff: unified_diff(plan),
            notes: Vec::new(),
            can_be_undone: false,
        }
    }

    /// Adds notes for the model.
    pub(crate) fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }

    /// Sets whether the change was stored and can be undone.
    pub(crate) fn with_undo(mut self, yes: bool) -> Self {
        self.can_be_undone = yes;
        self
    }

    pub(crate) fn to_output(&self) -> Result<ToolOutput, ToolError> {
        let mut value =
            json!({ "files_changed": self.files, "diff": self.diff, "call": self.call });
        if let [file] = self.files.as_slice() {
            value["digest"] = serde_json::to_value(file.digest)?;
        }
        if !self.notes.is_empty() {
            value["notes"] = Value::from(self.notes.clone());
        }
        Ok(ToolOutput::from(value).with_text(self.render_text()))
    }

    fn render_text(&self) -> String {
        let mut lines: Vec<String> = self.files.iter().map(ReportedFile::render_line).collect();
        if lines.is_empty() {
            lines.push("nothing was changed".to_owned());
        }
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        if self.can_be_undone && !self.files.is_empty() {
            lines.push(format!("change id: {}", self.call));
        }
        lines.join("\n")
    }
}

impl ReportedFile {
    fn from_change(planned: &PlannedChange, old: Option<&FileSnapshot>) -> Self {
        let change = match (&planned.renamed_from, &planned.before, &planned.after) {
            (Some(_), _, _) => "renamed",
            (None, None, _) => "created",
            (None, Some(_), None) => "deleted",
            (None, Some(_), Some(_)) => "modified",
        };
        let counts = count_changed_lines(old, planned.after.as_ref());
        Self {
            path: planned.place.to_string(),
            change,
            old_path: planned.renamed_from.as_ref().map(RootedPath::to_string),
            added: counts.map(|(added, _)| added),
            removed: counts.map(|(_, removed)| removed),
            digest: planned.after.as_ref().map(|after| after.digest),
            size: planned.after.as_ref().map(|after| after.bytes.len()),
        }
    }

    fn render_line(&self) -> String {
        let path = match &self.old_path {
            Some(old) => format!("{old} to {}", self.path),
            None => self.path.clone(),
        };
        let counts = match (self.added, self.removed) {
            (Some(added), Some(removed)) => format!(" (+{added} -{removed} lines)"),
            _ => String::new(),
        };
        let digest = self
            .digest
            .map(|digest| format!(", now {}", short_digest(digest)))
            .unwrap_or_default();
        format!("{} {path}{counts}{digest}", self.change)
    }
}

/// Shortens a digest to a prefix that still identifies a version of a file.
pub(crate) fn short_digest(digest: Digest) -> String {
    digest
        .to_string()
        .chars()
        .take("sha256:".len() + 16)
        .collect()
}

/// Returns the whole change as a unified diff, truncated if it is long.
pub(crate) fn unified_diff(plan: &[PlannedChange]) -> String {
    let mut whole = String::new();
    for planned in plan {
        let is_source = |other: &PlannedChange| other.renamed_from.as_ref() == Some(&planned.place);
        if planned.after.is_none() && plan.iter().any(is_source) {
            continue;
        }
        whole.push_str(&file_diff(planned, old_snapshot(plan, planned)));
        if whole.len() > MAX_DIFF_BYTES {
            let end = whole.floor_char_boundary(MAX_DIFF_BYTES);
            whole.truncate(end);
            whole.push_str("\n… the diff is longer and was truncated here\n");
            break;
        }
    }
    whole
}

/// Returns the old content of a file, from its old path if it was renamed.
fn old_snapshot<'a>(
    plan: &'a [PlannedChange],
    planned: &'a PlannedChange,
) -> Option<&'a FileSnapshot> {
    let Some(from) = &planned.renamed_from else {
        return planned.before.as_ref();
    };
    plan.iter()
        .find(|other| other.place == *from)
        .and_then(|other| other.before.as_ref())
}

fn file_diff(planned: &PlannedChange, old: Option<&FileSnapshot>) -> String {
    let place = &planned.place;
    let from = planned.renamed_from.as_ref().unwrap_or(place);
    let before = if old.is_some() {
        format!("a/{from}")
    } else {
        "/dev/null".to_owned()
    };
    let after = if planned.after.is_some() {
        format!("b/{place}")
    } else {
        "/dev/null".to_owned()
    };
    let mut head = String::new();
    if planned.renamed_from.is_some() {
        head = format!("rename from {from}\nrename to {place}\n");
    }
    if old.map(|old| old.digest) == planned.after.as_ref().map(|after| after.digest) {
        return head;
    }
    let Some((old, new)) = decode_both(old, planned.after.as_ref()) else {
        return format!(
            "{head}--- {before}\n+++ {after}\nnot shown: the file is not text or too long\n"
        );
    };
    let diff = TextDiff::configure()
        .timeout(COMPARISON_TIMEOUT)
        .diff_lines(&old, &new);
    format!(
        "{head}{}",
        diff.unified_diff()
            .context_radius(3)
            .header(&before, &after)
    )
}

/// Counts the added and removed lines; returns `None` if the files cannot be compared.
fn count_changed_lines(
    old: Option<&FileSnapshot>,
    new: Option<&FileSnapshot>,
) -> Option<(usize, usize)> {
    let (old, new) = decode_both(old, new)?;
    let diff = TextDiff::configure()
        .timeout(COMPARISON_TIMEOUT)
        .diff_lines(&old, &new);
    let count = |tag| {
        diff.iter_all_changes()
            .filter(|change| change.tag() == tag)
            .count()
    };
    Some((count(ChangeTag::Insert), count(ChangeTag::Delete)))
}

/// Decodes both contents, if both are text and not too long to be compared.
fn decode_both(old: Option<&FileSnapshot>, new: Option<&FileSnapshot>) -> Option<(String, String)> {
    let text = |snapshot: Option<&FileSnapshot>| match snapshot {
        None => Some(String::new()),
        Some(snapshot) => DecodedText::decode(&snapshot.bytes).map(|text| text.text),
    };
    let old = text(old)?;
    let new = text(new)?;
    (old.lines().count().max(new.lines().count()) <= MAX_COMPARED_LINES).then_some((old, new))
}
