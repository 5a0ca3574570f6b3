//! Patches: what is parsed can be written and parsed again, and applying a diff gives the new text.

use similar::TextDiff;
use toolgate_core::patch::{FilePatch, HunkTag, Patch, PatchedFile};

use crate::{FuzzTarget, InputTrace};

pub(super) const TARGET: FuzzTarget = FuzzTarget::new("patch", run, WORDS);

const WORDS: &[&str] = &[
    "--- a/x\n",
    "+++ b/x\n",
    "--- ",
    "+++ ",
    "/dev/null",
    "@@ -1,1 +1,1 @@\n",
    "@@ -0,0 +1 @@\n",
    "@@ -1 +0,0 @@\n",
    "@@ ",
    "diff --git a/x b/x\n",
    "diff --git ",
    "new file mode 100644\n",
    "deleted file mode 100644\n",
    "old mode 100644\n",
    "new mode 100755\n",
    "rename from x\n",
    "rename to y\n",
    "similarity index 100%\n",
    "index 0..1\n",
    "copy from x\n",
    "\\ No newline at end of file\n",
    "*** Begin Patch\n",
    "*** End Patch\n",
    "*** Update File: x\n",
    "*** Add File: x\n",
    "*** Delete File: x\n",
    "*** Move to: y\n",
    "\"a/\\303\\244\"",
    "\"",
    "+",
    "-",
    " ",
    "\n",
    "\r\n",
    "a\n",
    "b\n",
    "+a\n",
    "-b\n",
    " c\n",
    "\t",
    "../x",
    "GIT binary patch\n",
    "\n===\n",
];

/// Separates the old text from the new one in inputs that are two texts.
const BETWEEN: &str = "\n===\n";

fn run(data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    if let Some((old, new)) = text.split_once(BETWEEN) {
        return compare_texts(old, new);
    }
    match Patch::parse(&text) {
        Err(problem) => InputTrace::of_message(&problem.to_string()),
        Ok(Patch::Marked(files)) => {
            assert!(!files.is_empty(), "a patch names files");
            InputTrace::of(("marked", files.len().min(3)))
        }
        Ok(Patch::Unified(files)) => {
            assert!(!files.is_empty(), "a patch names files");
            let again =
                Patch::parse(&write_patch(&files)).expect("what was parsed can be parsed again");
            assert_eq!(
                again,
                Patch::Unified(files.clone()),
                "another patch was parsed again"
            );
            let hunks: usize = files.iter().map(|file| file.hunks.len()).sum();
            InputTrace::of(("unified", files.len().min(3), hunks.min(3)))
        }
    }
}

/// Applies the diff of two texts.
fn compare_texts(old: &str, new: &str) -> InputTrace {
    if old == new {
        return InputTrace::NOTHING;
    }
    let diff = TextDiff::from_lines(old, new);
    let patch = diff.unified_diff().header("a/x", "b/x").to_string();
    // Some lines end in a lone CR for this crate, and a diff cannot say so.
    if old.replace("\r\n", "").contains('\r') || new.replace("\r\n", "").contains('\r') {
        return InputTrace::NOTHING;
    }
    let applied = toolgate_tools::__fuzz::apply_diff(old, &patch);
    match applied {
        Ok(applied) => {
            assert_eq!(
                applied, new,
                "the diff of two texts gives another text\n{patch}"
            );
            InputTrace::of(("applied", diff.ops().len().min(6)))
        }
        Err(problem) => panic!("the diff of two texts does not apply: {problem}\n{patch}"),
    }
}

/// Writes a patch in the form of git.
fn write_patch(files: &[FilePatch]) -> String {
    let mut text = String::new();
    for FilePatch { file, mode, hunks } in files {
        let old = file.old_path().or(file.new_path()).unwrap_or_default();
        let new = file.new_path().or(file.old_path()).unwrap_or_default();
        // Git names a mode for every new file; a plain diff has none.
        if mode.is_some() || !matches!(file, PatchedFile::Created(_)) {
            text += &format!("diff --git {} {}\n", quote("a/", old), quote("b/", new));
        }
        match file {
            PatchedFile::Created(_) => {
                if let Some(mode) = mode {
                    text += &format!("new file mode {:o}\n", mode | 0o100000);
                }
            }
            PatchedFile::Deleted(_) => text += "deleted file mode 100644\n",
            PatchedFile::Renamed { from, to } => {
                text += &format!(
                    "rename from {}\nrename to {}\n",
                    quote("", from),
                    quote("", to)
                );
            }
            PatchedFile::Modified(_) => {}
        }
        if let (Some(mode), PatchedFile::Modified(_) | PatchedFile::Renamed { .. }) = (mode, file) {
            text += &format!("old mode 100644\nnew mode {:o}\n", mode | 0o100000);
        }
        if hunks.is_empty() {
            continue;
        }
        let side = |prefix, path: Option<&str>| {
            path.map_or("/dev/null".to_owned(), |path| quote(prefix, path))
        };
        text += &format!(
            "--- {}\n+++ {}\n",
            side("a/", file.old_path()),
            side("b/", file.new_path())
        );
        for hunk in hunks {
            let count = |skipped| hunk.lines.iter().filter(|line| line.tag != skipped).count();
            let old_count = count(HunkTag::Add);
            text += &format!(
                "@@ -{},{} +1,{} @@\n",
                hunk.old_start,
                old_count,
                count(HunkTag::Remove)
            );
            for line in &hunk.lines {
                text.push(match line.tag {
                    HunkTag::Keep => ' ',
                    HunkTag::Remove => '-',
                    HunkTag::Add => '+',
                });
                text += &line.text;
                text.push('\n');
                if !line.ends {
                    text += "\\ No newline at end of file\n";
                }
            }
        }
    }
    text
}

/// Quotes a name as git does, byte by byte.
fn quote(prefix: &str, name: &str) -> String {
    let mut quoted = format!("\"{prefix}");
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            0x20..=0x7e => quoted.push(char::from(byte)),
            _ => quoted += &format!("\\{byte:03o}"),
        }
    }
    quoted + "\""
}
