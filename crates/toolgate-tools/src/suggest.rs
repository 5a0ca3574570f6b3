//! What a model may have meant by a file that is not there.

use std::{ffi::OsStr, path::Path};

use crate::{
    Workspace,
    blocking::Halt,
    place::{Place, shown},
    walk::{Seen, Walk},
};

/// So many entries are looked at, in a directory and in the whole workspace.
const MOST_LOOKED_AT: usize = 5_000;

/// `; there is src/main.rs`, or what else helps to go on.
pub(crate) fn instead_of(workspace: &Workspace, place: &Place) -> String {
    let path = place.as_path();
    let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
        return String::new();
    };
    if let Some(near) = nearest(workspace, parent, name) {
        return format!("; there is {}", shown(&parent.join(near)));
    }
    let others = same_name(workspace, name);
    if !others.is_empty() {
        return format!("; there is {}", others.join(", "));
    }
    match workspace.dir().is_dir(Place::of(parent).to_open()) {
        true => "; look with list_dir or find_files".to_owned(),
        false => format!("; there is no directory {} either", Place::of(parent)),
    }
}

/// The name in a directory that is most like `name`, if one is.
fn nearest(workspace: &Workspace, parent: &Path, name: &OsStr) -> Option<String> {
    let wanted = name.to_str()?.to_lowercase();
    let entries = workspace.dir().read_dir(Place::of(parent).to_open()).ok()?;
    let names = entries
        .take(MOST_LOOKED_AT)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let scored = names.map(|name| {
        (
            strsim::normalized_damerau_levenshtein(&wanted, &name.to_lowercase()),
            name,
        )
    });
    // The same name at the end of the order wins, so that two of the same score are always told the same way.
    let best =
        scored.max_by(|(a, left), (b, right)| a.total_cmp(b).then_with(|| right.cmp(left)))?;
    (best.0 >= 0.6).then_some(best.1)
}

/// Files of the same name elsewhere.
fn same_name(workspace: &Workspace, name: &OsStr) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = MOST_LOOKED_AT;
    let walked =
        Walk::new(workspace).run(&Place::of(""), &Halt::default(), &mut |entry: &Seen<'_>| {
            if entry.path.file_name() == Some(name) {
                found.push(shown(entry.path));
            }
            left -= 1;
            found.len() < 3 && left > 0
        });
    if walked.is_ok() { found } else { Vec::new() }
}
