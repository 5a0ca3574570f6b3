//! Suggests the file that a model may have meant if a path does not exist.

use std::{ffi::OsStr, path::Path};
use toolgate_rooted::{RootedPath, display_path};

use crate::{
    Workspace,
    workspace::{
        access::FileUse,
        blocking::HaltFlag,
        walk::{TreeWalk, WalkEntry},
    },
};

/// The most entries that are compared, in a directory and in the whole workspace.
const MAX_ENTRIES: usize = 5_000;

/// Returns a suggestion to append to an error, such as `; did you mean src/main.rs?`.
pub(crate) fn suggest_instead(workspace: &Workspace, place: &RootedPath) -> String {
    let path = place.as_path();
    let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
        return String::new();
    };
    if let Some(near) = find_nearest_name(workspace, parent, name) {
        return format!("; did you mean {}?", display_path(&parent.join(near)));
    }
    let others = find_same_name(workspace, name);
    if !others.is_empty() {
        return format!("; did you mean {}?", others.join(", "));
    }
    if workspace
        .dir()
        .as_dir()
        .is_dir(RootedPath::from_normalized(parent).path_to_open())
    {
        "; check with list_dir or find_files".to_owned()
    } else {
        format!(
            "; the directory {} does not exist either",
            RootedPath::from_normalized(parent)
        )
    }
}

/// Finds the most similar name in a directory, if one is similar enough.
fn find_nearest_name(workspace: &Workspace, parent: &Path, name: &OsStr) -> Option<String> {
    let wanted = name.to_str()?.to_lowercase();
    let entries = workspace
        .dir()
        .as_dir()
        .read_dir(RootedPath::from_normalized(parent).path_to_open())
        .ok()?;
    let names = entries
        .take(MAX_ENTRIES)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let scored = names.map(|name| {
        (
            strsim::normalized_damerau_levenshtein(&wanted, &name.to_lowercase()),
            name,
        )
    });
    let mut near: Vec<(f64, String)> = scored.filter(|(score, _)| *score >= 0.6).collect();
    // Directory order is arbitrary, so ties are broken by name: the message is always the same.
    near.sort_by(|(a, left), (b, right)| b.total_cmp(a).then_with(|| left.cmp(right)));
    let is_shown = |name: &String| {
        let verdict = workspace.judge_file(&parent.join(name), FileUse::List);
        verdict.is_allowed()
    };
    near.into_iter().map(|(_, name)| name).find(is_shown)
}

/// Finds up to three files of the same name elsewhere.
fn find_same_name(workspace: &Workspace, name: &OsStr) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = MAX_ENTRIES;
    let walked = TreeWalk::new(workspace).run(
        &RootedPath::from_normalized(""),
        &HaltFlag::default(),
        &mut |entry: &WalkEntry<'_>| {
            if entry.path.file_name() == Some(name) {
                found.push(display_path(entry.path));
            }
            left -= 1;
            found.len() < 3 && left > 0
        },
    );
    if walked.is_ok() { found } else { Vec::new() }
}
