//! Detects the files that a successful call has changed.

use serde_json::Value;
use toolgate_core::{
    Arguments, Call, FileChange, FileChangeKind, Json, ResourceKind, SettledOutcome, ToolKind,
    Trail, note_keys,
    patch::{Patch, PatchedFile},
};

use crate::shape::output_cap::shared_text::json_size;

/// The keys under which a result lists its changes.
const CHANGE_LIST_KEYS: [&str; 2] = ["files_changed", "changes"];

/// Returns the changes of a call, from the first source that has any.
pub(crate) fn detect_changes(
    call: &Call,
    settled: &SettledOutcome,
    trail: &Trail,
) -> Vec<FileChange> {
    let listed = CHANGE_LIST_KEYS
        .iter()
        .filter_map(|key| settled.value.get(key));
    let noted = settled
        .notes
        .fields()
        .and_then(|notes| notes.get(note_keys::FILES).ok().flatten());
    // The result first: the tool knows best what it changed. Arguments only show what it was asked
    // to do.
    let said = listed
        .chain(&noted)
        .map(listed_changes)
        .find(|changes| !changes.is_empty());
    // The arguments that were executed count: a layer or an approver may have edited those of the
    // model.
    said.or_else(|| Some(changes_from_arguments(call, &trail.executed_arguments()?)))
        .unwrap_or_default()
}

/// Returns the changes that a result lists as a note, limited in number and bytes.
pub(crate) fn listed_files(value: &Value, most: usize, bytes: usize) -> Option<Json> {
    let listed = CHANGE_LIST_KEYS
        .iter()
        .filter_map(|key| value.get(key))
        .map(listed_changes);
    let changes = listed.into_iter().find(|changes| !changes.is_empty())?;
    let notes = changes
        .iter()
        .take(most)
        .filter_map(|change| serde_json::to_value(change).ok());
    // Stops at the first entry that does not fit, so that the list is a prefix and not a random
    // selection.
    let fits = |room: &mut usize, note: Value| {
        *room = room.checked_sub(json_size(&note))?;
        Some(note)
    };
    Json::new(notes.scan(bytes, fits).collect()).ok()
}

/// Parses a list of `{path, change, old_path}` or of paths. Skips entries that cannot be parsed.
fn listed_changes(list: &Value) -> Vec<FileChange> {
    let read = |entry: &Value| match entry {
        Value::String(path) => {
            is_usable_path(path).then(|| FileChange::new(path, FileChangeKind::Modified))
        }
        Value::Object(fields) => {
            let text = |key: &str| fields.get(key).and_then(Value::as_str);
            let path = text("path").filter(|path| is_usable_path(path))?;
            let word = text("change").or_else(|| text("type"));
            let change = word.map_or(Some(FileChangeKind::Modified), parse_change_kind)?;
            match (change, text("old_path").filter(|old| is_usable_path(old))) {
                (FileChangeKind::Renamed, Some(old)) => Some(FileChange::renamed(old, path)),
                (change, _) => Some(FileChange::new(path, change)),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    };
    list.as_array()
        .map(|entries| entries.iter().filter_map(read).collect())
        .unwrap_or_default()
}

/// Returns the changes that follow from the arguments.
fn changes_from_arguments(call: &Call, arguments: &Arguments) -> Vec<FileChange> {
    let patch = ["patch", "diff"]
        .iter()
        .find_map(|name| arguments.get(name)?.as_str());
    if let Some(Ok(patch)) = patch.map(Patch::parse) {
        let files = patch.files().map(patched_change);
        return files.filter(|file| is_usable_path(&file.path)).collect();
    }
    let paths = named_paths(call, arguments);
    let each = |change| {
        paths
            .iter()
            .map(|path| FileChange::new(path, change))
            .collect()
    };
    match (call.annotations().kind, paths.as_slice()) {
        (Some(ToolKind::Move), [from, to]) => vec![FileChange::renamed(from, to)],
        (Some(ToolKind::Move), _) => each(FileChangeKind::Renamed),
        (Some(ToolKind::Edit), _) => each(FileChangeKind::Modified),
        (Some(ToolKind::Delete), _) => each(FileChangeKind::Deleted),
        (
            Some(
                ToolKind::Read
                | ToolKind::Search
                | ToolKind::Execute
                | ToolKind::Think
                | ToolKind::Fetch
                | ToolKind::Other,
            )
            | None,
            _,
        ) => Vec::new(),
    }
}

fn patched_change(file: &PatchedFile) -> FileChange {
    match file {
        PatchedFile::Created(path) => FileChange::new(path, FileChangeKind::Created),
        PatchedFile::Modified(path) => FileChange::new(path, FileChangeKind::Modified),
        PatchedFile::Deleted(path) => FileChange::new(path, FileChangeKind::Deleted),
        PatchedFile::Renamed { from, to } => FileChange::renamed(from, to),
    }
}

/// Returns the paths in the arguments, in the order of the annotations.
fn named_paths(call: &Call, arguments: &Arguments) -> Vec<String> {
    let resources = call
        .annotations()
        .resources
        .iter()
        .filter(|resource| resource.kind == ResourceKind::Path);
    let values = resources.filter_map(|resource| arguments.as_json().pointer(&resource.argument));
    let texts = values.flat_map(|value| {
        value
            .as_array()
            .map_or(std::slice::from_ref(value), Vec::as_slice)
    });
    texts
        .filter_map(Value::as_str)
        .filter(|path| is_usable_path(path))
        .map(str::to_owned)
        .collect()
}

/// Parses the name of a kind of change, in the variants that tools use.
fn parse_change_kind(word: &str) -> Option<FileChangeKind> {
    match word.to_ascii_lowercase().as_str() {
        "created" | "create" | "added" | "add" | "new" => Some(FileChangeKind::Created),
        "modified" | "modify" | "changed" | "updated" | "update" | "edited" | "edit" => {
            Some(FileChangeKind::Modified)
        }
        "deleted" | "delete" | "removed" | "remove" => Some(FileChangeKind::Deleted),
        "renamed" | "rename" | "moved" | "move" => Some(FileChangeKind::Renamed),
        _ => None,
    }
}

/// Checks whether a text can be a path at all.
fn is_usable_path(path: &str) -> bool {
    !path.is_empty() && path.len() <= 4096 && !path.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_that_cannot_be_parsed_are_skipped() {
        let odd = json!([7, null, {}, { "path": "" }, { "path": "x", "change": "painted" }, ["y"],
            { "path": "b", "type": "rename", "old_path": "a" }, { "path": "c" }, "d", "nul\0"]);
        let expected = [
            FileChange::renamed("a", "b"),
            FileChange::new("c", FileChangeKind::Modified),
            FileChange::new("d", FileChangeKind::Modified),
        ];
        assert_eq!(listed_changes(&odd), expected);
        for no_list in [json!(null), json!({ "path": "a" }), json!("a"), json!(3)] {
            assert_eq!(listed_changes(&no_list), []);
        }
    }

    #[test]
    fn every_common_word_is_understood() {
        let words = [
            ("Added", FileChangeKind::Created),
            ("updated", FileChangeKind::Modified),
            ("removed", FileChangeKind::Deleted),
            ("moved", FileChangeKind::Renamed),
        ];
        for (word, kind) in words {
            assert_eq!(
                listed_changes(&json!([{ "path": "a", "type": word }])),
                [FileChange::new("a", kind)]
            );
        }
    }
}
