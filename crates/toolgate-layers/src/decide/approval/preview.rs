//! Shows what a call would change before it is approved.

use std::{collections::BTreeSet, fmt, fs, io::Read, path::Path, sync::Arc};

use serde_json::Value;
use similar::TextDiff;
use toolgate_core::{
    Call, Digest, FileState, ResourceKind,
    patch::{Patch, PatchedFile},
};

use crate::{
    PathBase,
    decide::{
        approval::preview_edits::PreviewEdit,
        policy::matching::{patch_names::possible_names, paths::PathRoot},
    },
};

/// A source of previews of what a call would change.
///
/// Its result is part of the approval request. Before an approved call runs, the files are checked
/// again; if one has changed since it was shown, approval is requested again.
pub trait Preview: Send + Sync + 'static {
    /// Returns the preview for the approval request about this call, if there is one.
    fn preview(&self, call: &Call) -> Option<CallPreview>;

    /// Returns the current state of the file, or `None` if it cannot be determined.
    fn file_state(&self, path: &str) -> Option<FileState>;

    /// Returns the place that the path leads to, if a link is on the way. By default no links are
    /// known.
    fn link_target(&self, path: &str) -> Option<String> {
        let _ = path;
        None
    }
}

/// A preview, and the files it was made from.
#[derive(Debug, Clone, PartialEq)]
pub struct CallPreview {
    /// The content shown: text, or any other JSON value.
    pub shown: Value,
    /// The state of the files at that time.
    pub files: Vec<FileState>,
}

/// A shared preview of any type. A program can pass it to configured layers as a resource.
#[derive(Clone)]
pub struct SharedPreview(Arc<dyn Preview>);

impl SharedPreview {
    /// Shares a preview.
    pub fn new(preview: impl Preview) -> Self {
        Self(Arc::new(preview))
    }
}

impl Preview for SharedPreview {
    fn preview(&self, call: &Call) -> Option<CallPreview> {
        self.0.preview(call)
    }
    fn file_state(&self, path: &str) -> Option<FileState> {
        self.0.file_state(path)
    }
    fn link_target(&self, path: &str) -> Option<String> {
        self.0.link_target(path)
    }
}

impl fmt::Debug for SharedPreview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedPreview")
    }
}

/// A preview that shows a unified diff for calls that write, edit or patch files of the workspace.
///
/// It covers tools that declare which argument is a path. With `content`, the file is replaced;
/// with `old` and `new` (or `old_text` and `new_text`, `old_string` and `new_string`), one part of
/// it is; with `edits`, a list of these, several are. For a call with a `patch`, the patch itself
/// is shown. A path that is not certain to lead into the workspace, with all its links resolved, is
/// not read, and the preview states that.
///
/// ```
/// # use {serde_json::json, toolgate_core::{Annotations, Registry, Resource, Schema, ToolSpec, View}};
/// # use {toolgate_layers::{FilePreview, Preview, PathBase}, toolgate_testkit::seed_for};
/// # let dir = tempfile::tempdir().unwrap();
/// # std::fs::write(dir.path().join("a.txt"), "one\n").unwrap();
/// # let registry = Registry::new();
/// # let path = Annotations::default().with_resource(Resource::path("path"));
/// # registry.register_host(ToolSpec::new("write_file", "Writes.", Schema::any_object()).with_annotations(path)).unwrap();
/// # let seed = seed_for(&toolgate_testkit::plain_view(&registry), "write_file", json!({ "path": "a.txt", "content": "two\n" }));
/// # let call = toolgate_core::Call::new(seed);
/// let preview = FilePreview::new(&PathBase::new(dir.path()));
/// let shown = preview.preview(&call).unwrap().shown;
/// assert!(shown.as_str().unwrap().contains("-one\n+two\n"));
/// ```
#[derive(Debug, Clone)]
pub struct FilePreview(Arc<PathRoot>);

/// The state of a file that may be inspected.
enum InspectedFile {
    Missing,
    Text(String, Digest),
    Undiffable(&'static str, Option<Digest>),
}

impl FilePreview {
    /// Maximum size of a file whose text is compared.
    const MOST_SHOWN: usize = 256 * 1024;
    /// Maximum number of compared lines: beyond, comparing takes longer than reading.
    const MOST_LINES: usize = 5_000;
    /// Maximum size of a file that is read.
    const MOST_READ: u64 = 16 * 1024 * 1024;

    /// Creates a preview of changes to files of this workspace.
    pub fn new(workspace: &PathBase) -> Self {
        Self(Arc::new(PathRoot::new(workspace.root())))
    }

    fn inspect_file(&self, path: &str) -> Option<InspectedFile> {
        let place = self.0.resolve_inside(path)?;
        let meta = match fs::symlink_metadata(&place) {
            Ok(meta) => meta,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Some(InspectedFile::Missing);
            }
            Err(_) => return None,
        };
        if !meta.is_file() {
            return Some(InspectedFile::Undiffable("it is not a regular file", None));
        }
        let bytes = read_bounded(&place)?;
        if bytes.len() as u64 > Self::MOST_READ {
            return Some(InspectedFile::Undiffable(
                "the file is too large to be read",
                None,
            ));
        }
        let digest = Digest::of_bytes(&bytes);
        Some(match decode_text(bytes) {
            Some(text) if text.len() <= Self::MOST_SHOWN => InspectedFile::Text(text, digest),
            Some(_) => InspectedFile::Undiffable("the file is too large to be shown", Some(digest)),
            None => InspectedFile::Undiffable("the file is not text", Some(digest)),
        })
    }

    /// Returns the patch itself, with the current state of the files it names.
    fn preview_patch(&self, patch: &str) -> Option<CallPreview> {
        let parsed = Patch::parse(patch);
        let mut shown = match &parsed {
            Ok(_) => String::new(),
            Err(_) if possible_names(patch).is_empty() => return None,
            Err(why) => format!("not checked: the patch is not valid: {why}\n"),
        };
        let files = parsed.iter().flat_map(Patch::files);
        let paths: BTreeSet<&str> = files.flat_map(PatchedFile::paths).collect();
        let states: Vec<(&str, Option<FileState>)> = paths
            .into_iter()
            .map(|path| (path, self.file_state(path)))
            .collect();
        for (path, _) in states.iter().filter(|(_, state)| state.is_none()) {
            shown.push_str(&format!(
                "not checked: {} is not certain to be a regular file of the workspace\n",
                one_line(path)
            ));
        }
        if patch.len() <= Self::MOST_SHOWN {
            shown.push_str(patch)
        } else {
            shown.push_str("no diff: the change is too large to be shown")
        }
        Some(CallPreview {
            shown: shown.into(),
            files: states.into_iter().filter_map(|(_, state)| state).collect(),
        })
    }
}

impl Preview for FilePreview {
    fn preview(&self, call: &Call) -> Option<CallPreview> {
        if let Some(patch) = call.arguments.get("patch").and_then(Value::as_str) {
            return self.preview_patch(patch);
        }
        let path = single_path(call)?;
        let edit = PreviewEdit::from_call(call)?;
        let Some(found) = self.inspect_file(path) else {
            let shown = format!(
                "no diff: {} is not certain to lead into the workspace",
                one_line(path)
            );
            return Some(CallPreview {
                shown: shown.into(),
                files: Vec::new(),
            });
        };
        let (text, digest) = match &found {
            InspectedFile::Missing => (Ok(""), None),
            InspectedFile::Text(text, digest) => (Ok(text.as_str()), Some(*digest)),
            InspectedFile::Undiffable(why, digest) => (Err((*why).to_owned()), *digest),
        };
        // A file without a digest cannot be compared later, so it is not part of the request.
        let is_certain = digest.is_some() || matches!(found, InspectedFile::Missing);
        let shown = text
            .and_then(|old| edit.apply(old))
            .and_then(|(old, new)| render_diff(path, &old, &new));
        let shown = shown.unwrap_or_else(|why| format!("no diff: {why}"));
        let file = is_certain.then(|| FileState {
            path: path.to_owned(),
            digest,
        });
        Some(CallPreview {
            shown: shown.into(),
            files: file.into_iter().collect(),
        })
    }

    fn file_state(&self, path: &str) -> Option<FileState> {
        let digest = match self.inspect_file(path)? {
            InspectedFile::Missing => None,
            InspectedFile::Text(_, digest) => Some(digest),
            InspectedFile::Undiffable(_, digest) => Some(digest?),
        };
        Some(FileState {
            path: path.to_owned(),
            digest,
        })
    }

    fn link_target(&self, path: &str) -> Option<String> {
        self.0.link_target(path)
    }
}

/// Returns the path that a call names, if there is exactly one.
fn single_path(call: &Call) -> Option<&str> {
    let paths = call
        .annotations()
        .resources
        .iter()
        .filter(|resource| resource.kind == ResourceKind::Path);
    let mut paths = paths.filter_map(|resource| {
        call.arguments
            .as_json()
            .pointer(&resource.argument)?
            .as_str()
    });
    paths.next().filter(|_| paths.next().is_none())
}

fn render_diff(path: &str, old: &str, new: &str) -> Result<String, String> {
    let most_lines = old.lines().count().max(new.lines().count());
    if new.len() > FilePreview::MOST_SHOWN || most_lines > FilePreview::MOST_LINES {
        return Err("the change is too large to be shown".to_owned());
    }
    if old == new {
        return Ok(format!("{} does not change", one_line(path)));
    }
    let path = one_line(path);
    let before = format!("a/{path}");
    let after = format!("b/{path}");
    Ok(TextDiff::from_lines(old, new)
        .unified_diff()
        .context_radius(3)
        .header(&before, &after)
        .to_string())
}

/// Returns a path without line ends: one must not look like a line of the diff.
fn one_line(path: &str) -> String {
    path.replace('\n', "\\n")
}

/// Decodes a file in UTF-8, or in UTF-16 with a byte order mark.
fn decode_text(bytes: Vec<u8>) -> Option<String> {
    let wide = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, []) = bytes.as_chunks::<2>() else {
            return None;
        };
        char::decode_utf16(pairs.iter().copied().map(unit))
            .collect::<Result<String, _>>()
            .ok()
    };
    match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        _ => String::from_utf8(bytes).ok(),
    }
}

/// Reads a file up to one byte more than the limit, so that the caller can tell that it is too
/// large.
fn read_bounded(path: &Path) -> Option<Vec<u8>> {
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // The path may have been replaced since it was checked: no link is followed, and a FIFO
        // does not block.
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.custom_flags(flags.bits() as i32);
    }
    let mut bytes = Vec::new();
    options
        .open(path)
        .ok()?
        .take(FilePreview::MOST_READ + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::symlink;
    use toolgate_core::{Annotations, Registry, Resource, Schema, ToolSpec};
    use toolgate_testkit::seed_for;

    fn workspace() -> (tempfile::TempDir, FilePreview) {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("work")).expect("created");
        fs::write(dir.path().join("work/a.txt"), "one\ntwo\nthree\n").expect("written");
        fs::write(dir.path().join("secret"), "hunter2\n").expect("written");
        let preview = FilePreview::new(&PathBase::new(dir.path().join("work")));
        (dir, preview)
    }

    fn call(arguments: Value) -> Call {
        let registry = Registry::new();
        let annotations = Annotations::default().with_resource(Resource::path("path"));
        let spec =
            ToolSpec::new("edit", "Edits.", Schema::any_object()).with_annotations(annotations);
        registry.register_host(spec).expect("a good spec");
        Call::new(seed_for(
            &toolgate_testkit::plain_view(&registry),
            "edit",
            arguments,
        ))
    }

    fn preview_text(preview: &FilePreview, arguments: Value) -> (String, Vec<FileState>) {
        let CallPreview { shown, files } = preview.preview(&call(arguments)).expect("shown");
        (shown.as_str().expect("text").to_owned(), files)
    }

    #[test]
    fn a_write_shows_the_difference_from_the_file_as_it_is_now() {
        let (_dir, preview) = workspace();
        let (diff, files) = preview_text(
            &preview,
            json!({ "path": "a.txt", "content": "one\n2\nthree\n" }),
        );
        assert_eq!(
            diff,
            "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
        );
        let digest = Digest::of_bytes(b"one\ntwo\nthree\n");
        assert_eq!(
            files,
            [FileState {
                path: "a.txt".into(),
                digest: Some(digest)
            }]
        );
    }

    #[test]
    fn an_edit_shows_the_changed_part_under_every_argument_name() {
        let (_dir, preview) = workspace();
        for (old, new) in [
            ("old", "new"),
            ("old_text", "new_text"),
            ("old_string", "new_string"),
        ] {
            let (diff, _) =
                preview_text(&preview, json!({ "path": "a.txt", old: "two", new: "2" }));
            assert!(diff.contains("-two\n+2\n"), "{diff}");
        }
        let (diff, _) = preview_text(
            &preview,
            json!({ "path": "a.txt", "old": "o", "new": "0", "replace_all": true }),
        );
        assert!(diff.contains("-one\n") && diff.contains("+tw0\n"), "{diff}");
        let (diff, files) =
            preview_text(&preview, json!({ "path": "a.txt", "old": "o", "new": "0" }));
        assert!(
            diff.contains("occurs 2 times") && files.len() == 1,
            "{diff}"
        );
    }

    #[test]
    fn several_edits_show_one_diff_or_why_they_cannot_be_made() {
        let (_dir, preview) = workspace();
        let edits =
            |edits: Value| preview_text(&preview, json!({ "path": "a.txt", "edits": edits }));
        let (diff, files) =
            edits(json!([{ "old": "one", "new": "1" }, { "old": "three", "new": "3" }]));
        assert_eq!(
            diff,
            "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n-one\n+1\n two\n-three\n+3\n"
        );
        assert_eq!(files.len(), 1);
        let (diff, _) = edits(json!([{ "old": "o", "new": "0", "all": true }]));
        assert!(diff.contains("+tw0\n"), "{diff}");
        let (why, files) =
            edits(json!([{ "old": "one\ntwo", "new": "1" }, { "old": "two\nthree", "new": "3" }]));
        assert!(
            why.contains("two edits change the same text") && files.len() == 1,
            "{why}"
        );
        let (why, _) = edits(json!([{ "old": "one", "new": "1" }, { "old": "four", "new": "4" }]));
        assert!(why.contains("occurs 0 times"), "{why}");
    }

    #[test]
    fn preserved_line_ends_and_byte_order_marks_are_no_difference() {
        let (dir, preview) = workspace();
        let put = |bytes: &[u8]| fs::write(dir.path().join("work/a.txt"), bytes).expect("written");
        let expected = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n";
        let wide: Vec<u8> = [0xff, 0xfe]
            .into_iter()
            .chain("one\r\ntwo\r\n".encode_utf16().flat_map(u16::to_le_bytes))
            .collect();
        for bytes in [
            b"one\r\ntwo\r\n".as_slice(),
            b"\xef\xbb\xbfone\ntwo\n",
            &wide,
        ] {
            put(bytes);
            assert_eq!(
                preview_text(&preview, json!({ "path": "a.txt", "content": "one\n2\n" })).0,
                expected
            );
            assert_eq!(
                preview_text(
                    &preview,
                    json!({ "path": "a.txt", "edits": [{ "old": "two\n", "new": "2\n" }] })
                )
                .0,
                expected
            );
        }
    }

    #[test]
    fn a_patch_is_shown_with_the_current_state_of_every_file_it_names() {
        let (_dir, preview) = workspace();
        let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+1\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+x\n";
        let (diff, files) = preview_text(&preview, json!({ "patch": patch }));
        assert_eq!(diff, patch);
        assert_eq!(
            files,
            [
                preview.file_state("a.txt").expect("known"),
                FileState {
                    path: "new.txt".into(),
                    digest: None
                }
            ]
        );
        let (diff, files) = preview_text(
            &preview,
            json!({ "patch": patch.replace("new.txt", "../secret") }),
        );
        assert!(
            diff.starts_with("not checked: ../secret")
                && !diff.contains("hunter2")
                && files.len() == 1,
            "{diff}"
        );
        let long = patch.replace("+x", &format!("+{}", "x".repeat(FilePreview::MOST_SHOWN)));
        let (diff, files) = preview_text(&preview, json!({ "patch": long }));
        assert!(diff.contains("too large") && files.len() == 2, "{diff}");
        let invalid = format!("{patch}+y\n");
        let (diff, files) = preview_text(&preview, json!({ "patch": invalid }));
        assert!(
            diff.starts_with("not checked: the patch is not valid: line 10")
                && diff.ends_with(&invalid)
                && files.is_empty(),
            "{diff}"
        );
        assert_eq!(preview.preview(&call(json!({ "patch": "words" }))), None);
    }

    #[test]
    fn a_new_file_has_no_digest_until_it_is_created() {
        let (dir, preview) = workspace();
        let (diff, files) = preview_text(&preview, json!({ "path": "new.txt", "content": "x\n" }));
        assert!(diff.contains("+x\n"), "{diff}");
        assert_eq!(preview.file_state("new.txt").as_ref(), files.first());
        fs::write(dir.path().join("work/new.txt"), "").expect("written");
        assert_ne!(preview.file_state("new.txt").as_ref(), files.first());
    }

    #[test]
    fn a_path_that_leads_out_of_the_workspace_is_not_read() {
        let (dir, preview) = workspace();
        symlink(dir.path().join("secret"), dir.path().join("work/link")).expect("linked");
        symlink(dir.path(), dir.path().join("work/up")).expect("linked");
        for path in ["link", "up/secret", "../secret", "/etc/passwd", "a\0b"] {
            let (diff, files) = preview_text(&preview, json!({ "path": path, "content": "x" }));
            assert!(
                diff.starts_with("no diff") && !diff.contains("hunter2") && files.is_empty(),
                "{path}: {diff}"
            );
            assert_eq!(preview.file_state(path), None, "{path}");
        }
    }

    #[test]
    fn binary_or_large_files_are_not_shown_but_still_compared() {
        let (dir, preview) = workspace();
        fs::write(dir.path().join("work/bytes"), [0xff, 0xff]).expect("written");
        fs::write(
            dir.path().join("work/large"),
            "x".repeat(FilePreview::MOST_SHOWN + 1),
        )
        .expect("written");
        for path in ["bytes", "large"] {
            let (diff, files) = preview_text(&preview, json!({ "path": path, "content": "x" }));
            assert!(
                diff.starts_with("no diff") && files[0].digest.is_some(),
                "{path}: {diff}"
            );
        }
        let many = "x\n".repeat(FilePreview::MOST_LINES + 1);
        assert!(
            preview_text(&preview, json!({ "path": "a.txt", "content": many }))
                .0
                .starts_with("no diff")
        );
        assert!(
            preview_text(&preview, json!({ "path": ".", "content": "x" }))
                .0
                .contains("not a regular file")
        );
    }

    #[test]
    fn calls_that_change_no_single_file_show_nothing() {
        let (_dir, preview) = workspace();
        for arguments in [
            json!({ "path": "a.txt" }),
            json!({ "content": "x" }),
            json!({ "path": 1, "content": "x" }),
        ] {
            assert_eq!(preview.preview(&call(arguments)), None);
        }
    }
}
