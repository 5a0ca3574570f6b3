//! What a tool that changes files says about it: which ones, how much, and a diff.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};
use toolgate_core::{CallId, Digest, ToolError, ToolOutput};

use crate::{commit::Planned, files::Snapshot, place::Place, text::Text};

/// What was changed, ready to be told.
pub(crate) struct Report {
    call: CallId,
    files: Vec<FileLine>,
    diff: String,
    notes: Vec<String>,
    can_be_undone: bool,
}

/// One file of a report, in the words that the layer for file changes reads.
#[derive(Debug, Clone, Serialize)]
struct FileLine {
    path: String,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_path: Option<String>,
    /// Lines; nothing for a file that is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    added: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<usize>,
}

/// A longer diff is cut.
const LONGEST_DIFF: usize = 64 * 1024;
/// Beyond so many lines, comparing takes longer than reading.
const MOST_LINES: usize = 20_000;
/// A comparison that takes longer is finished roughly.
const LONGEST_COMPARISON: Duration = Duration::from_millis(500);

impl Report {
    pub(crate) fn new(call: CallId, plan: &[Planned]) -> Self {
        let moved: Vec<&Place> = plan
            .iter()
            .filter_map(|planned| planned.renamed_from.as_ref())
            .collect();
        // A file that was renamed is told with its new name.
        let told = plan
            .iter()
            .filter(|planned| planned.after.is_some() || !moved.contains(&&planned.place));
        let files = told
            .map(|planned| FileLine::of(planned, old_of(plan, planned)))
            .collect();
        Self {
            call,
            files,
            diff: diff_of(plan),
            notes: Vec::new(),
            can_be_undone: false,
        }
    }

    /// Adds something that the model should know.
    pub(crate) fn noting(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }

    /// Says that the change was kept.
    pub(crate) fn undoable(mut self, yes: bool) -> Self {
        self.can_be_undone = yes;
        self
    }

    pub(crate) fn output(&self) -> Result<ToolOutput, ToolError> {
        let mut value =
            json!({ "files_changed": self.files, "diff": self.diff, "call": self.call });
        if let [file] = self.files.as_slice() {
            value["digest"] = serde_json::to_value(file.digest)?;
        }
        if !self.notes.is_empty() {
            value["notes"] = Value::from(self.notes.clone());
        }
        Ok(ToolOutput::from(value).with_text(self.text()))
    }

    fn text(&self) -> String {
        let mut lines: Vec<String> = self.files.iter().map(FileLine::text).collect();
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

impl FileLine {
    fn of(planned: &Planned, old: Option<&Snapshot>) -> Self {
        let change = match (&planned.renamed_from, &planned.before, &planned.after) {
            (Some(_), _, _) => "renamed",
            (None, None, _) => "created",
            (None, Some(_), None) => "deleted",
            (None, Some(_), Some(_)) => "modified",
        };
        let counts = counts(old, planned.after.as_ref());
        Self {
            path: planned.place.to_string(),
            change,
            old_path: planned.renamed_from.as_ref().map(Place::to_string),
            added: counts.map(|(added, _)| added),
            removed: counts.map(|(_, removed)| removed),
            digest: planned.after.as_ref().map(|after| after.digest),
            size: planned.after.as_ref().map(|after| after.bytes.len()),
        }
    }

    fn text(&self) -> String {
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
            .map(|digest| format!(", now {}", short(digest)))
            .unwrap_or_default();
        format!("{} {path}{counts}{digest}", self.change)
    }
}

/// The beginning of a digest, enough to tell two versions of a file apart.
pub(crate) fn short(digest: Digest) -> String {
    digest
        .to_string()
        .chars()
        .take("sha256:".len() + 16)
        .collect()
}

/// The whole change as a unified diff, cut if it is long.
pub(crate) fn diff_of(plan: &[Planned]) -> String {
    let mut whole = String::new();
    for planned in plan {
        let is_source = |other: &Planned| other.renamed_from.as_ref() == Some(&planned.place);
        if planned.after.is_none() && plan.iter().any(is_source) {
            continue;
        }
        whole.push_str(&file_diff(planned, old_of(plan, planned)));
        if whole.len() > LONGEST_DIFF {
            let end = whole.floor_char_boundary(LONGEST_DIFF);
            whole.truncate(end);
            whole.push_str("\n… the diff is longer and was cut here\n");
            break;
        }
    }
    whole
}

/// What a file was before, under its old name if it was renamed.
fn old_of<'a>(plan: &'a [Planned], planned: &'a Planned) -> Option<&'a Snapshot> {
    let Some(from) = &planned.renamed_from else {
        return planned.before.as_ref();
    };
    plan.iter()
        .find(|other| other.place == *from)
        .and_then(|other| other.before.as_ref())
}

fn file_diff(planned: &Planned, old: Option<&Snapshot>) -> String {
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
    let Some((old, new)) = texts(old, planned.after.as_ref()) else {
        return format!(
            "{head}--- {before}\n+++ {after}\nnot shown: the file is no text or too long\n"
        );
    };
    let diff = TextDiff::configure()
        .timeout(LONGEST_COMPARISON)
        .diff_lines(&old, &new);
    format!(
        "{head}{}",
        diff.unified_diff()
            .context_radius(3)
            .header(&before, &after)
    )
}

/// How many lines came and went; nothing if that cannot be told.
fn counts(old: Option<&Snapshot>, new: Option<&Snapshot>) -> Option<(usize, usize)> {
    let (old, new) = texts(old, new)?;
    let diff = TextDiff::configure()
        .timeout(LONGEST_COMPARISON)
        .diff_lines(&old, &new);
    let count = |tag| {
        diff.iter_all_changes()
            .filter(|change| change.tag() == tag)
            .count()
    };
    Some((count(ChangeTag::Insert), count(ChangeTag::Delete)))
}

/// Both texts, if both are text and not too long to be compared.
fn texts(old: Option<&Snapshot>, new: Option<&Snapshot>) -> Option<(String, String)> {
    let text = |snapshot: Option<&Snapshot>| match snapshot {
        None => Some(String::new()),
        Some(snapshot) => Text::decode(&snapshot.bytes).map(|text| text.text),
    };
    let (old, new) = (text(old)?, text(new)?);
    (old.lines().count().max(new.lines().count()) <= MOST_LINES).then_some((old, new))
}
