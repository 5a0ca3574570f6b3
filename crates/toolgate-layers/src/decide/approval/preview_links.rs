//! Names the paths in the arguments of a call that lead elsewhere than they read.

use std::collections::BTreeSet;

use serde_json::Value;
use toolgate_core::{Arguments, PathLink, patch::Patch, run_contained_sync};

use crate::{
    Preview, SharedPreview,
    decide::policy::matching::patch_names::{begins_like_patch, possible_names},
};

/// The longest text that is looked up as a path; the kernel rejects longer ones.
const MAX_PATH_BYTES: usize = 4_096;

/// The most texts of one call that are looked up: each takes a few system calls.
const MAX_PATHS: usize = 512;

impl SharedPreview {
    /// Returns the paths in the arguments that lead through a link, and where they lead.
    ///
    /// Every text counts that could be a path, because not every tool says which of its arguments
    /// are paths, and so do the files of a patch.
    pub fn find_links(&self, arguments: &Arguments) -> Vec<PathLink> {
        let mut paths = BTreeSet::new();
        collect_paths(arguments.as_json().as_value(), &mut paths);
        let link = |path: &String| {
            // A preview that panics knows no link; the policy resolves the path for itself.
            let target = run_contained_sync(|| self.link_target(path))
                .ok()
                .flatten()?;
            Some(PathLink {
                path: path.clone(),
                target,
            })
        };
        paths.iter().take(MAX_PATHS).filter_map(link).collect()
    }
}

fn collect_paths(value: &Value, paths: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if begins_like_patch(text) => match Patch::parse(text) {
            Ok(patch) => {
                let names = patch.files().flat_map(|file| file.paths());
                paths.extend(names.map(str::to_owned));
            }
            Err(_) => paths.extend(possible_names(text).into_iter().map(Into::into)),
        },
        Value::String(text) => {
            let is_path =
                !text.is_empty() && text.len() < MAX_PATH_BYTES && !text.contains(['\0', '\n']);
            paths.extend(is_path.then(|| text.clone()));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_paths(item, paths)),
        Value::Object(members) => members
            .values()
            .for_each(|member| collect_paths(member, paths)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::{FilePreview, PathBase};
    use serde_json::json;
    use std::{fs, os::unix::fs::symlink};
    use toolgate_core::Json;

    fn links(dir: &std::path::Path, arguments: Value) -> Vec<(String, String)> {
        let preview = SharedPreview::new(FilePreview::new(&PathBase::new(dir)));
        let arguments =
            Arguments::try_from(Json::new(arguments).expect("shallow")).expect("an object");
        let found = preview.find_links(&arguments);
        found
            .into_iter()
            .map(|link| (link.path, link.target))
            .collect()
    }

    #[test]
    fn a_path_through_a_link_is_shown_with_the_place_it_leads_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("it exists").join("work");
        fs::create_dir_all(root.join(".git")).expect("created");
        fs::create_dir(root.join("docs")).expect("created");
        fs::write(root.join(".git/config"), "").expect("written");
        symlink("../.git/config", root.join("docs/notes.md")).expect("linked");
        symlink(".git", root.join("pages")).expect("linked");
        symlink("/etc", root.join("etc")).expect("linked");
        symlink("../.git/hooks/pre-commit", root.join("docs/new.md")).expect("linked");
        let config = || ".git/config".to_owned();
        let one = |path: &str, target: String| vec![(path.to_owned(), target)];
        for (arguments, expected) in [
            (
                json!({ "path": "docs/notes.md" }),
                one("docs/notes.md", config()),
            ),
            (
                json!({ "file": "docs/notes.md" }),
                one("docs/notes.md", config()),
            ),
            (
                json!({ "path": "pages/config" }),
                one("pages/config", config()),
            ),
            (
                json!({ "path": "./docs/../pages/config" }),
                one("./docs/../pages/config", config()),
            ),
            (
                json!({ "path": "etc/passwd" }),
                one("etc/passwd", "/etc/passwd".into()),
            ),
            (
                json!({ "path": "docs/new.md" }),
                one("docs/new.md", ".git/hooks/pre-commit".into()),
            ),
            (
                json!({ "files": [{ "to": "pages" }] }),
                one("pages", ".git".into()),
            ),
            (
                json!({ "patch": "--- a/docs/notes.md\n+++ b/docs/notes.md\n@@ -0,0 +1 @@\n+x\n" }),
                one("docs/notes.md", config()),
            ),
            (json!({ "path": ".git/config" }), Vec::new()),
            (json!({ "path": "docs/../.git/config" }), Vec::new()),
            (
                json!({ "path": "nothing/here", "n": 1, "text": "a\nb" }),
                Vec::new(),
            ),
        ] {
            assert_eq!(links(&root, arguments.clone()), expected, "{arguments}");
        }
    }
}
