use super::*;
use proptest::{prelude::*, sample::select};

fn modified_file(path: &str) -> PatchedFile {
    PatchedFile::Modified(path.to_owned())
}

fn renamed_file(from: &str, to: &str) -> PatchedFile {
    PatchedFile::Renamed {
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

fn parsed_files(patch: &str) -> Vec<PatchedFile> {
    let patch = Patch::parse(patch).expect("a patch");
    patch.files().cloned().collect()
}

#[test]
fn every_file_of_a_git_patch_is_read() {
    let patch = "\
From: a user
Subject: a note for readers

diff --git a/src/a.rs b/src/a.rs
index 1..2 100644
--- a/src/a.rs
+++ b/src/a.rs
@@ -1,2 +1,2 @@ fn a
 same
-old
+new
diff --git a/new.sh b/new.sh
new file mode 100755
--- /dev/null
+++ b/new.sh
@@ -0,0 +1 @@
+hello
\\ No newline at end of file
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
    let expected = [
        modified_file("src/a.rs"),
        PatchedFile::Created("new.sh".to_owned()),
        PatchedFile::Deleted("gone.txt".to_owned()),
        renamed_file("old name.txt", "new name.txt"),
        PatchedFile::Created("empty file".to_owned()),
        modified_file("café"),
    ];
    assert_eq!(parsed_files(patch), expected);
    let files = Patch::parse(patch)
        .and_then(Patch::into_unified)
        .expect("a unified diff");
    assert_eq!(files[1].mode, Some(0o755));
    assert!(!files[1].hunks[0].lines[0].ends);
    assert_eq!(files[0].hunks[0].lines.len(), 3);
}

#[test]
fn content_that_looks_like_a_header_is_content() {
    let patch = "--- a/list.sql\n+++ b/list.sql\n@@ -1,3 +1,3 @@\n--- a/not_a_file\n+++ b/not_a_file\n \
         diff --git a/x b/x\n\n--- a/second\n+++ b/second\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(
        parsed_files(patch),
        [modified_file("list.sql"), modified_file("second")]
    );
}

#[test]
fn a_plain_diff_keeps_directories_called_a_and_drops_timestamps() {
    let patch = "--- a/y.c\t2026-01-01 00:00:00\n+++ a/y.c\t2026-01-02\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(parsed_files(patch), [modified_file("a/y.c")]);
}

#[test]
fn an_ambiguous_patch_is_rejected() {
    let head = "--- a/x\n+++ b/x\n";
    for (patch, why) in [
        (format!("{head}@@ -1,2 +1,2 @@\n a\n-b\n+c\n+d\n"), "\"+d\""),
        (format!("{head}@@ -1,3 +1,3 @@\n a\n-b\n+c\n"), "counts 3 old and 3 new lines, but 2 old and 2 new"),
        (format!("{head}@@ -1,3 +1,3 @@\n a\n-b\n+c\ndiff --git a/y b/y\n"), "counts 3 old"),
        (format!("{head}@@ -1 +1 @@\n-a\n-b\n"), "counts 1 old and 1 new"),
        (format!("{head}@@ -1,0 +1,0 @@\n"), "no lines"),
        (format!("{head}@@ fn main @@\n-a\n+b\n"), "not a valid hunk header"),
        (format!("{head}@@ -1 +99999999999999999999 @@\n-a\n"), "not a valid hunk header"),
        (format!("{head}@@ -+1 +1 @@\n-a\n+b\n"), "not a valid hunk header"),
        (format!("{head}words\n"), "out of place"),
        (head.to_owned(), "no hunk"),
        ("--- a/x\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), "no +++ line"),
        ("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), "two files"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), "/dev/null"),
        ("@@ -1 +1 @@\n-a\n+b\n".to_owned(), "without ---"),
        (format!("{head}*** Update File: x\n"), "unified diff"),
        ("--- a/\n+++ b/\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), "no name"),
        ("diff --git a/y b/y\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), "name of the file"),
        ("diff --git a/y b/y\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n".to_owned(), "name of the file"),
        ("diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+y\n".to_owned(), "120000"),
        ("diff --git a/x b/x\nnew file mode 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+y\n".to_owned(), "is new"),
        ("diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+y\n".to_owned(), "deleted"),
        ("diff --git a/x b/y\nrename from x\n".to_owned(), "incomplete"),
        (
            "diff --git a/x b/y\nrename from x\nrename to z\n--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+y\n".to_owned(),
            "renamed",
        ),
        ("diff --git a/x b/x\ncopy from x\ncopy to y\n".to_owned(), "copies"),
        ("diff --git a/x b/x\nBinary files a/x and b/x differ\n".to_owned(), "binary"),
        ("diff --git a/x b/y c\n".to_owned(), "separated"),
        ("--- \"a/\\9\"\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), "quoted"),
        (format!("rename from i\nrename to j\n{head}@@ -1 +1 @@\n-a\n+b\n"), "before diff --git"),
        (format!("@@ -1,50 +1,50 @@\n{head}@@ -1 +1 @@\n-a\n+b\n"), "counts 50 old"),
        (format!("{head}@@ -1,2 +1,2 @@\n-a\n+b\n\rc\n"), "counts 2 old"),
        (
            "diff --git a/i b/i\nrename from i\nrename to j\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n".to_owned(),
            "renamed",
        ),
        ("hello".to_owned(), "no file"),
        (String::new(), "no file"),
    ] {
        let error = Patch::parse(&patch).expect_err(&patch).to_string();
        assert!(error.contains(why), "{patch}\n{error}");
    }
}

#[test]
fn the_files_of_the_marked_format_are_known_but_it_is_not_a_unified_diff() {
    let patch = "\
*** Begin Patch
*** Add File: a.txt
+hello
*** Update File: b.txt
*** Move to: c.txt
@@ fn main
 context
-x
+y
*** End of File
*** Delete File: d e.txt
*** End Patch
";
    let expected = [
        PatchedFile::Created("a.txt".to_owned()),
        renamed_file("b.txt", "c.txt"),
        PatchedFile::Deleted("d e.txt".to_owned()),
    ];
    assert_eq!(parsed_files(patch), expected);
    assert_eq!(parsed_files(&patch.replace('\n', "\r\n")), expected);
    assert_eq!(
        parsed_files("\n*** Update File: x"),
        [modified_file("x")],
        "the first and the last line name no file"
    );
    let error = Patch::parse(patch)
        .and_then(Patch::into_unified)
        .expect_err("another format");
    assert!(error.to_string().contains("unified diff"), "{error}");
}

#[test]
fn an_ambiguous_patch_of_the_marked_format_is_rejected() {
    for patch in [
        "*** Begin Patch\n*** End Patch\n",
        "*** Begin Patch\n+x\n*** Add File: a\n",
        "*** Begin Patch\nwords\n",
        "*** Update File: a\nwords\n",
        "*** Update File: a\n*** Paint File: b\n",
        "*** Update File: a\n*** Begin Patch\n",
        "*** Add File: a\n*** Move to: b\n",
        "*** Add File: a\n+x\n *** Delete File: b\n",
        "*** Add File: a\n*** End Patch\n*** Delete File: b\n",
        "*** Add File:  \n",
        "*** Update File: a\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-x\n+y\n",
        " *** Update File: a\n",
    ] {
        assert!(Patch::parse(patch).is_err(), "{patch}");
    }
}

#[test]
fn bytes_lines_and_files_are_limited() {
    let rejected = |patch: &str| Patch::parse(patch).expect_err("too large").to_string();
    let long = "x".repeat(Patch::MAX_BYTES + 1);
    assert!(rejected(&long).contains("bytes"));
    assert!(rejected(&"\n".repeat(Patch::MAX_LINES + 1)).contains("lines"));
    let unified = "diff --git a/x b/x\nnew mode 100755\n";
    for file in [unified, "*** Delete File: x\n"] {
        assert_eq!(
            parsed_files(&file.repeat(Patch::MAX_FILES)).len(),
            Patch::MAX_FILES
        );
        assert!(rejected(&file.repeat(Patch::MAX_FILES + 1)).contains("files"));
    }
    // A count allocates nothing: there have to be that many lines.
    let huge = format!("--- a/x\n+++ b/x\n@@ -1,{0} +1,{0} @@\n-a\n", usize::MAX);
    assert!(rejected(&huge).contains("counts"));
}

/// Quotes a name as git does.
fn quote(name: &str) -> String {
    let escaped = name.bytes().map(|byte| match byte {
        b'"' | b'\\' => format!("\\{}", byte as char),
        b' '..=b'~' => (byte as char).to_string(),
        other => format!("\\{other:03o}"),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// Generates the lines of a hunk with its header; some lines look like headers.
fn hunk(tags: &'static [char]) -> impl Strategy<Value = String> {
    let text = select(vec![
        "",
        "x",
        "-- a/evil",
        "++ b/evil",
        "diff --git a/evil b/evil",
        "@@ -1 +1 @@",
        "*** Delete File: evil",
        "rename to evil",
    ]);
    let lines = prop::collection::vec((select(tags), text), 1..6);
    lines.prop_map(|lines| {
        let count = |tag: char| lines.iter().filter(|line| line.0 != tag).count();
        let body = lines.iter().map(|(tag, text)| format!("{tag}{text}\n"));
        let old = count('+');
        let new = count('-');
        let start = |count| usize::from(count > 0);
        format!(
            "@@ -{},{old} +{},{new} @@\n{}",
            start(old),
            start(new),
            body.collect::<String>()
        )
    })
}

/// Generates a part of a patch, and the file that it changes.
fn file_patch() -> impl Strategy<Value = (String, PatchedFile)> {
    let name = "[a-z][a-z0-9._\"\\\\é ]{0,6}[a-z](/[a-z]{1,3})?";
    let parts = (name, name, any::<bool>(), 0..6_u8);
    let hunks = (hunk(&['+', '-', ' ']), hunk(&['+']), hunk(&['-']));
    (parts, hunks).prop_map(|((path, other, git, kind), (change, add, remove))| {
        let spell = |prefix: &str, path: &str| {
            let name = format!("{prefix}{path}");
            if name.contains(['"', '\\', 'é']) {
                quote(&name)
            } else {
                name
            }
        };
        let old = spell("a/", &path);
        let new = spell("b/", &path);
        let git_line = format!("diff --git {old} {new}\n");
        let head = |extended: &str| {
            let lines = format!("{git_line}{extended}");
            Some(lines).filter(|_| git).unwrap_or_default()
        };
        match kind {
            0 => (
                format!("{}--- {old}\n+++ {new}\n{change}", head("index 1..2\n")),
                PatchedFile::Modified(path),
            ),
            1 => (
                format!("{}--- /dev/null\n+++ {new}\n{add}", head("new file mode 100644\n")),
                PatchedFile::Created(path),
            ),
            2 => (
                format!("{}--- {old}\n+++ /dev/null\n{remove}", head("deleted file mode 100644\n")),
                PatchedFile::Deleted(path),
            ),
            3 => (
                format!("{git_line}old mode 100644\nnew mode 100755\n"),
                PatchedFile::Modified(path),
            ),
            4 => (
                format!("{git_line}new file mode 100644\nindex 0000000..e69de29\n"),
                PatchedFile::Created(path),
            ),
            _ => {
                let to = format!("to/deep/{other}");
                let moved = spell("b/", &to);
                let lines = if git {
                    format!("--- {old}\n+++ {moved}\n{change}")
                } else {
                    String::new()
                };
                let from_name = spell("", &path);
                let to_name = spell("", &to);
                (
                    format!("diff --git {old} {moved}\nrename from {from_name}\nrename to {to_name}\n{lines}"),
                    PatchedFile::Renamed { from: path, to },
                )
            }
        }
    })
}

/// Generates a whole patch, and the files that it changes.
fn patch_text() -> impl Strategy<Value = (String, Vec<PatchedFile>)> {
    let files = prop::collection::vec(file_patch(), 1..5);
    (files, any::<bool>()).prop_map(|(mut parts, crlf)| {
        // Headers of git own the next `---` line, so parts without them come first.
        parts.sort_by_key(|(text, _)| text.starts_with("diff"));
        let (texts, files): (Vec<String>, Vec<PatchedFile>) = parts.into_iter().unzip();
        let text = texts.concat();
        let text = if crlf {
            text.replace('\n', "\r\n")
        } else {
            text
        };
        (text, files)
    })
}

proptest! {
    #[test]
    fn the_files_of_a_patch_are_those_that_its_author_wrote((text, files) in patch_text()) {
        let parsed = Patch::parse(&text).map_err(|why| TestCaseError::fail(format!("{why}\n{text}")))?;
        prop_assert_eq!(parsed.files().cloned().collect::<Vec<_>>(), files);
    }

    #[test]
    fn a_damaged_patch_is_rejected_or_has_files_with_names(
        (text, _) in patch_text(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), "[ -~\n]|\n--- |\n\\+\\+\\+ |\n\\*\\*\\* |é|\0"), 1..6),
    ) {
        let mut damaged = text;
        for (at, inserted) in damage {
            let mut at = at.index(damaged.len());
            while !damaged.is_char_boundary(at) {
                at -= 1;
            }
            let end = (at + 1..=damaged.len()).find(|end| damaged.is_char_boundary(*end)).unwrap_or(at);
            damaged.replace_range(at..end, &inserted);
        }
        if let Ok(patch) = Patch::parse(&damaged) {
            prop_assert!(patch.files().next().is_some());
            for file in patch.files() {
                prop_assert!(file.paths().all(|path| !path.is_empty()), "{damaged:?}");
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "(diff --git |--- |\\+\\+\\+ |@@ -|1,2 \\+1 @@|rename to |\\*\\*\\* |Add File: |[ab]/|\"|\\\\[0-9]|é|[ -~]|\n){0,60}") {
        let _ = Patch::parse(&text);
    }
}
