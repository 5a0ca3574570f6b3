//! Reads from a call that went well which files it has changed.

use serde_json::Value;
use toolgate_core::{Arguments, Call, Json, Kind, ResourceKind, Settled, Trail};

use crate::{FileChange, FileChangeKind, long_text::written_size, patch_files::patch_files};

/// Where a result lists its changes.
const LISTS: [&str; 2] = ["files_changed", "changes"];

/// The changes of a call, from the first place that says anything.
pub(crate) fn found(call: &Call, settled: &Settled, trail: &Trail) -> Vec<FileChange> {
    let listed = LISTS.iter().filter_map(|key| settled.value.get(key));
    let noted = settled
        .notes
        .fields()
        .and_then(|notes| notes.metadata.get("files"));
    let said = listed
        .chain(noted)
        .map(listed_changes)
        .find(|changes| !changes.is_empty());
    // What a layer below or a person made of the arguments counts, not what the model wrote.
    said.or_else(|| Some(argued_changes(call, &trail.executed()?)))
        .unwrap_or_default()
}

/// The changes that a result lists, in the shape of a note: at most so many, and of at most so many bytes.
pub(crate) fn listed_files(value: &Value, most: usize, bytes: usize) -> Option<Json> {
    let listed = LISTS
        .iter()
        .filter_map(|key| value.get(key))
        .map(listed_changes);
    let changes = listed.into_iter().find(|changes| !changes.is_empty())?;
    let notes = changes
        .iter()
        .take(most)
        .filter_map(|change| serde_json::to_value(change).ok());
    let fits = |room: &mut usize, note: Value| {
        *room = room.checked_sub(written_size(&note))?;
        Some(note)
    };
    Json::new(notes.scan(bytes, fits).collect()).ok()
}

/// A list of `{path, change, old_path}` or of paths. What cannot be read is left out.
fn listed_changes(list: &Value) -> Vec<FileChange> {
    let read = |entry: &Value| match entry {
        Value::String(path) => {
            usable(path).then(|| FileChange::new(path, FileChangeKind::Modified))
        }
        Value::Object(fields) => {
            let text = |key: &str| fields.get(key).and_then(Value::as_str);
            let path = text("path").filter(|path| usable(path))?;
            let word = text("change").or_else(|| text("type"));
            let change = word.map_or(Some(FileChangeKind::Modified), kind_of)?;
            match (change, text("old_path").filter(|old| usable(old))) {
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

/// The changes that follow from the arguments.
fn argued_changes(call: &Call, arguments: &Arguments) -> Vec<FileChange> {
    let patch = ["patch", "diff"]
        .iter()
        .find_map(|name| arguments.get(name)?.as_str());
    if let Some(patch) = patch {
        let files: Vec<_> = patch_files(patch)
            .into_iter()
            .filter(|file| usable(&file.path))
            .collect();
        if !files.is_empty() {
            return files;
        }
    }
    let paths = named_paths(call, arguments);
    let each = |change| {
        paths
            .iter()
            .map(|path| FileChange::new(path, change))
            .collect()
    };
    match (call.annotations().kind, paths.as_slice()) {
        (Some(Kind::Move), [from, to]) => vec![FileChange::renamed(from, to)],
        (Some(Kind::Move), _) => each(FileChangeKind::Renamed),
        (Some(Kind::Edit), _) => each(FileChangeKind::Modified),
        (Some(Kind::Delete), _) => each(FileChangeKind::Deleted),
        (
            Some(
                Kind::Read | Kind::Search | Kind::Execute | Kind::Think | Kind::Fetch | Kind::Other,
            )
            | None,
            _,
        ) => Vec::new(),
    }
}

/// The paths among the arguments, in the order of the annotations.
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
        .filter(|path| usable(path))
        .map(str::to_owned)
        .collect()
}

fn kind_of(word: &str) -> Option<FileChangeKind> {
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

/// Whether a text can be a path at all.
fn usable(path: &str) -> bool {
    !path.is_empty() && path.len() <= 4096 && !path.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_that_cannot_be_read_are_left_out() {
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
    fn every_usual_word_is_understood() {
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
