use super::*;

fn modified_file(path: &str) -> (Option<String>, Option<String>) {
    (Some(path.to_owned()), Some(path.to_owned()))
}

fn parsed_names(patch: &str) -> Vec<(Option<String>, Option<String>)> {
    parse_patch(patch)
        .expect("a patch")
        .into_iter()
        .map(|file| (file.old, file.new))
        .collect()
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
        (None, Some("new.sh".to_owned())),
        (Some("gone.txt".to_owned()), None),
        (
            Some("old name.txt".to_owned()),
            Some("new name.txt".to_owned()),
        ),
        (None, Some("empty file".to_owned())),
        modified_file("café"),
    ];
    assert_eq!(parsed_names(patch), expected);
    let files = parse_patch(patch).expect("a patch");
    assert_eq!(files[1].mode, Some(0o755));
    assert!(!files[1].hunks[0].lines[0].ends);
    assert_eq!(files[0].hunks[0].lines.len(), 3);
}

#[test]
fn content_that_looks_like_a_header_is_content() {
    let patch = "--- a/list.sql\n+++ b/list.sql\n@@ -1,3 +1,3 @@\n--- a/not_a_file\n+++ b/not_a_file\n \
         diff --git a/x b/x\n\n--- a/second\n+++ b/second\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(
        parsed_names(patch),
        [modified_file("list.sql"), modified_file("second")]
    );
}

#[test]
fn a_plain_diff_keeps_directories_called_a_and_drops_timestamps() {
    let patch = "--- a/y.c\t2026-01-01 00:00:00\n+++ a/y.c\t2026-01-02\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(parsed_names(patch), [modified_file("a/y.c")]);
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
        ("*** Begin Patch\n*** Update File: x\n".to_owned(), "unified diff"),
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
        let error = parse_patch(&patch).expect_err(&patch);
        assert!(error.contains(why), "{patch}\n{error}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(diff --git |--- |\\+\\+\\+ |@@ -|1,2 \\+1 @@|rename to |\\*\\*\\* |[ab]/|\"|\\\\[0-9]|é|[ -~]|\n){0,60}") {
        let _ = parse_patch(&text);
    }
}
