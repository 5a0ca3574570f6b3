//! Finds the files that a patch touches, without applying it.

use crate::{FileChange, FileChangeKind};

/// Returns the files of a patch, in order: a unified diff, with or without git's headers, or the
/// `*** RunUpdate File:` form.
pub(crate) fn patch_files(patch: &str) -> Vec<FileChange> {
    let mut reader = PatchFileReader::default();
    // Lines inside a hunk are counted, so that content which looks like a header is not parsed as
    // one.
    for line in patch.lines() {
        reader.read_line(line);
    }
    reader.finish_section();
    reader.files
}

#[derive(Default)]
struct PatchFileReader {
    files: Vec<FileChange>,
    section: PatchHeaders,
    /// Number of old and new lines left in the hunk.
    hunk: (u64, u64),
}

/// The headers of one file, as far as they were read.
#[derive(Default)]
struct PatchHeaders {
    git: Option<(String, String)>,
    old: Option<String>,
    new: Option<String>,
    rename_from: Option<String>,
    rename_to: Option<String>,
    kind: Option<FileChangeKind>,
}

impl PatchFileReader {
    fn read_line(&mut self, line: &str) {
        if self.hunk != (0, 0) {
            return self.count_hunk_line(line);
        }
        if let Some(rest) = line.strip_prefix("diff --git ") {
            self.finish_section();
            self.section.git = parse_git_names(rest);
        } else if let Some(rest) = line.strip_prefix("--- ") {
            if self.section.new.is_some() || self.section.old.is_some() {
                self.finish_section();
            }
            self.section.old = Some(parse_name(rest));
        } else if let Some(rest) = line.strip_prefix("+++ ") {
            self.section.new = Some(parse_name(rest));
        } else if let Some(rest) = line.strip_prefix("@@ -") {
            self.hunk = parse_hunk_size(rest).unwrap_or_default();
        } else if let Some(rest) = line.strip_prefix("*** ") {
            self.read_marked_header(rest);
        } else {
            self.read_extended_header(line);
        }
    }

    fn count_hunk_line(&mut self, line: &str) {
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

    fn read_extended_header(&mut self, line: &str) {
        let section = &mut self.section;
        if let Some(rest) = line.strip_prefix("rename from ") {
            section.rename_from = Some(decode_quoted(rest));
        } else if let Some(rest) = line.strip_prefix("rename to ") {
            section.rename_to = Some(decode_quoted(rest));
        } else if let Some(rest) = line.strip_prefix("copy to ") {
            section.rename_to = Some(decode_quoted(rest));
            section.kind = Some(FileChangeKind::Created);
        } else if line.starts_with("new file mode ") {
            section.kind = Some(FileChangeKind::Created);
        } else if line.starts_with("deleted file mode ") {
            section.kind = Some(FileChangeKind::Deleted);
        }
    }

    /// Reads a header of the form that begins with `*** Begin Patch`.
    fn read_marked_header(&mut self, rest: &str) {
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
                .into_changes()
                .into_iter()
                .filter(|change| !change.path.is_empty()),
        );
    }
}

impl PatchHeaders {
    /// Returns the changes that the headers name.
    fn into_changes(mut self) -> Vec<FileChange> {
        let renamed = match (self.rename_from.take(), self.rename_to.take(), self.kind) {
            (Some(from), Some(to), _) => Some(FileChange::renamed(&from, &to)),
            (None, Some(to), Some(kind)) => Some(FileChange::new(&to, kind)),
            (Some(_) | None, _, _) => None,
        };
        let Some(renamed) = renamed else {
            return self.into_change().into_iter().collect();
        };
        // A rename that names other files than the `---` and `+++` lines may be an attempt to
        // mislead, so all of them count.
        let old = renamed.old_path.clone();
        let other = self
            .header_names()
            .filter(|name| *name != renamed.path && Some(name) != old.as_ref());
        let others: Vec<FileChange> = other
            .map(|name| FileChange::new(&name, FileChangeKind::Modified))
            .collect();
        std::iter::once(renamed).chain(others).collect()
    }

    /// Returns the names in the `---` and `+++` lines.
    fn header_names(&self) -> impl Iterator<Item = String> {
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

    fn into_change(self) -> Option<FileChange> {
        let absent = |name: &Option<String>| name.as_deref() == Some("/dev/null");
        let created = absent(&self.old);
        let deleted = absent(&self.new);
        // Only git adds the prefixes `a/` and `b/`; elsewhere they may be real directories.
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
                let old = bare(old, "a/");
                let new = bare(new, "b/");
                let kind = self.kind.unwrap_or(FileChangeKind::Modified);
                // `diff -u file.orig file` names two files and changes the second.
                Some(if new.is_empty() {
                    FileChange::new(&old, kind)
                } else {
                    FileChange::new(&new, kind)
                })
            }
            // Only headers: an empty or binary file, or a change of mode.
            (None, None, Some((_, new))) => Some(FileChange::new(
                &bare(new, "b/"),
                self.kind.unwrap_or(FileChangeKind::Modified),
            )),
            (Some(_), None, _) | (None, Some(_), _) | (None, None, None) => None,
        }
    }
}

/// Parses a hunk header: `-a,b +c,d @@` has `b` old and `d` new lines; a missing count is 1.
fn parse_hunk_size(rest: &str) -> Option<(u64, u64)> {
    let (old, rest) = rest.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let count = |range: &str| {
        range
            .split_once(',')
            .map_or(Some(1), |(_, count)| count.parse().ok())
    };
    Some((count(old)?, count(new)?))
}

/// Returns the name in a `---` or `+++` line, without the timestamp that may follow it.
fn parse_name(rest: &str) -> String {
    if rest.starts_with('"') {
        return decode_quoted(rest);
    }
    rest.split('\t')
        .next()
        .unwrap_or(rest)
        .trim_end()
        .to_owned()
}

/// Returns the two names after `diff --git`, if it is clear where the first ends.
fn parse_git_names(rest: &str) -> Option<(String, String)> {
    if rest.starts_with('"') || rest.ends_with('"') {
        let (old, new) = rest
            .split_once(" \"b/")
            .map(|(old, new)| (old, format!("\"b/{new}")))
            .or_else(|| {
                let (old, new) = rest.rsplit_once(" b/")?;
                Some((old, format!("b/{new}")))
            })?;
        return Some((decode_quoted(old), decode_quoted(&new)));
    }
    // Without a rename both names are the same, so the middle is known even if they contain spaces.
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

/// Decodes git's quoting of names with unusual bytes: `"caf\303\251"`.
fn decode_quoted(text: &str) -> String {
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

    fn changes_in(patch: &str) -> Vec<(FileChangeKind, String, Option<String>)> {
        patch_files(patch)
            .into_iter()
            .map(|file| (file.change, file.path, file.old_path))
            .collect()
    }

    fn change(kind: FileChangeKind, path: &str) -> (FileChangeKind, String, Option<String>) {
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
            change(Modified, "src/a.rs"),
            change(Created, "new.txt"),
            change(Deleted, "gone.txt"),
            renamed,
            change(Created, "empty file"),
            change(Modified, "café"),
        ];
        assert_eq!(changes_in(patch), expected);
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
            changes_in(patch),
            [change(Modified, "list.sql"), change(Modified, "second")]
        );
    }

    #[test]
    fn a_plain_diff_keeps_directories_called_a_and_drops_timestamps() {
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
            changes_in(patch),
            [change(Modified, "src/a/x.c"), change(Modified, "a/y.c")]
        );
    }

    #[test]
    fn the_marked_format_is_read_too() {
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
            changes_in(patch),
            [change(Created, "a.txt"), renamed, change(Deleted, "d.txt")]
        );
    }

    #[test]
    fn a_rename_hides_no_other_file() {
        let patch = "rename from a\nrename to b\n--- a/secret\n+++ b/secret\n@@ -1 +1 @@\n-x\n+y\n";
        let renamed = (Renamed, "b".to_owned(), Some("a".to_owned()));
        for patch in [patch.to_owned(), format!("diff --git a/a b/b\n{patch}")] {
            let expected = [
                renamed.clone(),
                change(Modified, "secret"),
                change(Modified, "secret"),
            ];
            assert_eq!(changes_in(&patch), expected);
        }
        let honest = "diff --git a/a b/b\nrename from a\nrename to b\n--- a/a\n+++ b/b\n@@ -1 +1 @@\n-x\n+y\n";
        assert_eq!(changes_in(honest), [renamed]);
    }

    #[test]
    fn text_that_is_not_a_patch_has_no_files() {
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
            assert_eq!(changes_in(text), [], "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(diff --git |--- |\\+\\+\\+ |@@ -|rename to |\\*\\*\\* |[ab]/|\"|\\\\[0-9]|é|[ -~]|\n){0,60}") {
            patch_files(&text);
        }
    }
}
