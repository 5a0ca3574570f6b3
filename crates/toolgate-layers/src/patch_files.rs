//! Reads which files a patch touches, without applying it.

use crate::{FileChange, FileChangeKind};

/// The files of a patch, in order: a unified diff, with or without git's headers, or the `*** Update File:` form.
///
/// Lines inside a hunk are counted off, so that a line of content which looks like a header is not taken for one.
pub(crate) fn patch_files(patch: &str) -> Vec<FileChange> {
    let mut reader = Reader::default();
    for line in patch.lines() {
        reader.line(line);
    }
    reader.finish_section();
    reader.files
}

#[derive(Default)]
struct Reader {
    files: Vec<FileChange>,
    section: Section,
    /// How many old and new lines are left of the hunk.
    hunk: (u64, u64),
}

/// What the headers of one file have said so far.
#[derive(Default)]
struct Section {
    git: Option<(String, String)>,
    old: Option<String>,
    new: Option<String>,
    rename_from: Option<String>,
    rename_to: Option<String>,
    kind: Option<FileChangeKind>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        if self.hunk != (0, 0) {
            return self.hunk_line(line);
        }
        if let Some(rest) = line.strip_prefix("diff --git ") {
            self.finish_section();
            self.section.git = git_names(rest);
        } else if let Some(rest) = line.strip_prefix("--- ") {
            if self.section.new.is_some() || self.section.old.is_some() {
                self.finish_section();
            }
            self.section.old = Some(name(rest));
        } else if let Some(rest) = line.strip_prefix("+++ ") {
            self.section.new = Some(name(rest));
        } else if let Some(rest) = line.strip_prefix("@@ -") {
            self.hunk = hunk_size(rest).unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix("*** ") {
            self.marked(rest);
        } else {
            self.extended_header(line);
        }
    }

    fn hunk_line(&mut self, line: &str) {
        let (old, new) = self.hunk;
        self.hunk = match line.as_bytes().first() {
            Some(b'-') => (old.saturating_sub(1), new),
            Some(b'+') => (old, new.saturating_sub(1)),
            // "\ No newline at end of file"
            Some(b'\\') => (old, new),
            // Some programs strip the blank from an empty context line.
            Some(b' ') | None => (old.saturating_sub(1), new.saturating_sub(1)),
            Some(_) => (0, 0),
        };
    }

    fn extended_header(&mut self, line: &str) {
        let section = &mut self.section;
        if let Some(rest) = line.strip_prefix("rename from ") {
            section.rename_from = Some(unquoted(rest));
        } else if let Some(rest) = line.strip_prefix("rename to ") {
            section.rename_to = Some(unquoted(rest));
        } else if let Some(rest) = line.strip_prefix("copy to ") {
            (section.rename_to, section.kind) =
                (Some(unquoted(rest)), Some(FileChangeKind::Created));
        } else if line.starts_with("new file mode ") {
            section.kind = Some(FileChangeKind::Created);
        } else if line.starts_with("deleted file mode ") {
            section.kind = Some(FileChangeKind::Deleted);
        }
    }

    /// The headers of the form that begins with `*** Begin Patch`.
    fn marked(&mut self, rest: &str) {
        let words = [
            ("Add File: ", FileChangeKind::Created),
            ("Update File: ", FileChangeKind::Modified),
            ("Delete File: ", FileChangeKind::Deleted),
        ];
        if let Some((path, kind)) = words
            .iter()
            .find_map(|(word, kind)| Some((rest.strip_prefix(word)?, *kind)))
        {
            self.finish_section();
            self.files.push(FileChange::new(path.trim(), kind));
        } else if let Some(path) = rest.strip_prefix("Move to: ")
            && let Some(last) = self.files.last_mut()
        {
            *last = FileChange::renamed(&last.path, path.trim());
        }
    }

    fn finish_section(&mut self) {
        let section = std::mem::take(&mut self.section);
        self.files.extend(
            section
                .changes()
                .into_iter()
                .filter(|change| !change.path.is_empty()),
        );
    }
}

impl Section {
    /// What the headers say. If a rename names other files than the lines with `---` and `+++`, somebody is to be
    /// misled, and all of them count.
    fn changes(mut self) -> Vec<FileChange> {
        let renamed = match (self.rename_from.take(), self.rename_to.take(), self.kind) {
            (Some(from), Some(to), _) => Some(FileChange::renamed(&from, &to)),
            (None, Some(to), Some(kind)) => Some(FileChange::new(&to, kind)),
            (Some(_) | None, _, _) => None,
        };
        let Some(renamed) = renamed else {
            return self.change().into_iter().collect();
        };
        let old = renamed.old_path.clone();
        let other = self
            .named()
            .filter(|name| *name != renamed.path && Some(name) != old.as_ref());
        let others: Vec<FileChange> = other
            .map(|name| FileChange::new(&name, FileChangeKind::Modified))
            .collect();
        std::iter::once(renamed).chain(others).collect()
    }

    /// The names in the lines with `---` and `+++`.
    fn named(&self) -> impl Iterator<Item = String> {
        let bare =
            |name: &String, prefix: &str| name.strip_prefix(prefix).unwrap_or(name).to_owned();
        let names = [
            self.old.as_ref().map(|old| bare(old, "a/")),
            self.new.as_ref().map(|new| bare(new, "b/")),
        ];
        names
            .into_iter()
            .flatten()
            .filter(|name| name != "/dev/null")
    }

    fn change(self) -> Option<FileChange> {
        let absent = |name: &Option<String>| name.as_deref() == Some("/dev/null");
        let (created, deleted) = (absent(&self.old), absent(&self.new));
        // Only git puts `a/` and `b/` in front; elsewhere these may be real directories.
        let prefixed = self.git.is_some()
            || (created || self.old.as_ref().is_some_and(|old| old.starts_with("a/")))
                && (deleted || self.new.as_ref().is_some_and(|new| new.starts_with("b/")));
        let bare = |name: String, prefix: &str| match name.strip_prefix(prefix) {
            Some(rest) if prefixed => rest.to_owned(),
            _ => name,
        };
        match (self.old, self.new, self.git) {
            (Some(_), Some(_), _) if created && deleted => None,
            (_, Some(new), _) if created => {
                Some(FileChange::new(&bare(new, "b/"), FileChangeKind::Created))
            }
            (Some(old), _, _) if deleted => {
                Some(FileChange::new(&bare(old, "a/"), FileChangeKind::Deleted))
            }
            (Some(old), Some(new), _) => {
                let (old, new) = (bare(old, "a/"), bare(new, "b/"));
                let kind = self.kind.unwrap_or(FileChangeKind::Modified);
                // `diff -u file.orig file` names two files and changes the second.
                Some(if new.is_empty() {
                    FileChange::new(&old, kind)
                } else {
                    FileChange::new(&new, kind)
                })
            }
            // Nothing but headers: an empty or binary file, or another mode.
            (None, None, Some((_, new))) => Some(FileChange::new(
                &bare(new, "b/"),
                self.kind.unwrap_or(FileChangeKind::Modified),
            )),
            (Some(_), None, _) | (None, Some(_), _) | (None, None, None) => None,
        }
    }
}

/// `-a,b +c,d @@` counts `b` old and `d` new lines; a missing count is 1.
fn hunk_size(rest: &str) -> Option<(u64, u64)> {
    let (old, rest) = rest.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let count = |range: &str| {
        range
            .split_once(',')
            .map_or(Some(1), |(_, count)| count.parse().ok())
    };
    Some((count(old)?, count(new)?))
}

/// The name in a `---` or `+++` line, without the time that may follow it.
fn name(rest: &str) -> String {
    if rest.starts_with('"') {
        return unquoted(rest);
    }
    rest.split('\t')
        .next()
        .unwrap_or(rest)
        .trim_end()
        .to_owned()
}

/// The two names after `diff --git`, if it can be told where the first ends.
fn git_names(rest: &str) -> Option<(String, String)> {
    if rest.starts_with('"') || rest.ends_with('"') {
        let (old, new) = rest
            .split_once(" \"b/")
            .map(|(old, new)| (old, format!("\"b/{new}")))
            .or_else(|| {
                let (old, new) = rest.rsplit_once(" b/")?;
                Some((old, format!("b/{new}")))
            })?;
        return Some((unquoted(old), unquoted(&new)));
    }
    // Without a rename both names are the same, so the middle is known even if there are blanks in them.
    let half = rest.len().checked_sub(1)? / 2;
    match (
        rest.get(..half),
        rest.get(half..half + 1),
        rest.get(half + 1..),
    ) {
        (Some(old), Some(" "), Some(new)) => Some((old.to_owned(), new.to_owned())),
        _ => rest
            .split_once(" b/")
            .map(|(old, new)| (old.to_owned(), format!("b/{new}"))),
    }
}

/// Git quotes names with unusual bytes: `"caf\303\251"`.
fn unquoted(text: &str) -> String {
    let text = text.trim();
    let Some(inner) = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
    else {
        return text.to_owned();
    };
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(first @ b'0'..=b'7') => {
                let digits = [Some(first), rest.next(), rest.next()]
                    .into_iter()
                    .flatten();
                let octal = digits.fold(0_u32, |sum, digit| {
                    sum * 8 + u32::from(digit.wrapping_sub(b'0') & 7)
                });
                bytes.push(octal as u8);
            }
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use FileChangeKind::{Created, Deleted, Modified, Renamed};

    fn read(patch: &str) -> Vec<(FileChangeKind, String, Option<String>)> {
        patch_files(patch)
            .into_iter()
            .map(|file| (file.change, file.path, file.old_path))
            .collect()
    }

    fn plain(kind: FileChangeKind, path: &str) -> (FileChangeKind, String, Option<String>) {
        (kind, path.to_owned(), None)
    }

    #[test]
    fn every_file_of_a_git_patch_is_found() {
        let patch = "\
diff --git a/src/a.rs b/src/a.rs
index 1..2 100644
--- a/src/a.rs
+++ b/src/a.rs
@@ -1,2 +1,2 @@
 same
-old
+new
diff --git a/new.txt b/new.txt
new file mode 100644
--- /dev/null
+++ b/new.txt
@@ -0,0 +1 @@
+hello
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-bye
diff --git a/old name.txt b/new name.txt
similarity index 100%
rename from old name.txt
rename to new name.txt
diff --git a/empty file b/empty file
new file mode 100644
index 0000000..e69de29
diff --git \"a/caf\\303\\251\" \"b/caf\\303\\251\"
--- \"a/caf\\303\\251\"
+++ \"b/caf\\303\\251\"
@@ -1 +1 @@
-a
+b
";
        let renamed = (
            Renamed,
            "new name.txt".to_owned(),
            Some("old name.txt".to_owned()),
        );
        let expected = [
            plain(Modified, "src/a.rs"),
            plain(Created, "new.txt"),
            plain(Deleted, "gone.txt"),
            renamed,
            plain(Created, "empty file"),
            plain(Modified, "café"),
        ];
        assert_eq!(read(patch), expected);
    }

    #[test]
    fn content_that_looks_like_a_header_is_content() {
        let patch = "\
--- a/list.sql
+++ b/list.sql
@@ -1,3 +1,3 @@
--- a/not_a_file
+++ b/not_a_file
 diff --git a/x b/x

\\ No newline at end of file
--- a/second
+++ b/second
@@ -1 +1 @@
-a
+b
";
        assert_eq!(
            read(patch),
            [plain(Modified, "list.sql"), plain(Modified, "second")]
        );
    }

    #[test]
    fn a_plain_diff_keeps_directories_called_a_and_loses_times() {
        let patch = "\
--- src/a/x.c\t2026-01-01 00:00:00
+++ src/a/x.c\t2026-01-02 00:00:00
@@ -1 +1 @@
-a
+b
--- a/y.c
+++ a/y.c
@@ -1 +1 @@
-a
+b
";
        assert_eq!(
            read(patch),
            [plain(Modified, "src/a/x.c"), plain(Modified, "a/y.c")]
        );
    }

    #[test]
    fn the_marked_form_is_read_too() {
        let patch = "\
*** Begin Patch
*** Add File: a.txt
+hello
*** Update File: b.txt
*** Move to: c.txt
@@ fn main
-x
+y
*** Delete File: d.txt
*** End Patch
";
        let renamed = (Renamed, "c.txt".to_owned(), Some("b.txt".to_owned()));
        assert_eq!(
            read(patch),
            [plain(Created, "a.txt"), renamed, plain(Deleted, "d.txt")]
        );
    }

    #[test]
    fn a_rename_hides_no_other_file() {
        let patch = "rename from a\nrename to b\n--- a/secret\n+++ b/secret\n@@ -1 +1 @@\n-x\n+y\n";
        let renamed = (Renamed, "b".to_owned(), Some("a".to_owned()));
        for patch in [patch.to_owned(), format!("diff --git a/a b/b\n{patch}")] {
            let expected = [
                renamed.clone(),
                plain(Modified, "secret"),
                plain(Modified, "secret"),
            ];
            assert_eq!(read(&patch), expected);
        }
        let honest = "diff --git a/a b/b\nrename from a\nrename to b\n--- a/a\n+++ b/b\n@@ -1 +1 @@\n-x\n+y\n";
        assert_eq!(read(honest), [renamed]);
    }

    #[test]
    fn text_that_is_no_patch_has_no_files_and_harms_nothing() {
        for text in [
            "",
            "hello",
            "--- ",
            "+++ x",
            "@@ -1,99999999999999999999 +1 @@",
            "diff --git",
            "diff --git \"",
            "\"",
        ] {
            assert_eq!(read(text), [], "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(diff --git |--- |\\+\\+\\+ |@@ -|rename to |\\*\\*\\* |[ab]/|\"|\\\\[0-9]|é|[ -~]|\n){0,60}") {
            patch_files(&text);
        }
    }
}
