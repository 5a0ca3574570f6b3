//! Finds the names of files in a text that is not a valid patch, but may be one to another tool.

use std::{borrow::Cow, collections::BTreeSet};

use toolgate_core::patch::unquote_name;

/// Checks whether a text begins like a patch, valid or not.
pub(crate) fn begins_like_patch(text: &str) -> bool {
    let text = text.trim_start();
    [
        "*** Begin Patch",
        "*** Update File: ",
        "diff --git ",
        "--- ",
    ]
    .iter()
    .any(|start| text.starts_with(start))
}

/// Returns every name that a tool could take for a file of the patch.
///
/// Other tools apply patches that [`Patch`](toolgate_core::patch::Patch) rejects, and the rules of
/// each are unknown. So a line that looks like a header counts wherever it stands: too many names
/// forbid too much, which is safe.
pub(crate) fn possible_names(text: &str) -> BTreeSet<Cow<'_, str>> {
    let mut names = BTreeSet::new();
    for name in text.lines().flat_map(header_names) {
        let name = unquote_name(name).map_or(Cow::Borrowed(name), Cow::Owned);
        let bare = name.strip_prefix("a/").or_else(|| name.strip_prefix("b/"));
        names.extend(bare.map(|bare| Cow::Owned(bare.to_owned())));
        names.insert(name);
    }
    names.retain(|name| !name.is_empty() && name != "/dev/null");
    names
}

/// The words before a name.
const NAME_HEADERS: [&str; 8] = [
    "--- ",
    "+++ ",
    "*** ",
    "rename from ",
    "rename to ",
    "copy from ",
    "copy to ",
    "Index: ",
];

/// Returns the texts in a line that may be names, quoted or not.
fn header_names(line: &str) -> Vec<&str> {
    // Some programs ignore spaces before a header.
    let line = line.trim_start();
    let mut names = Vec::new();
    if let Some(rest) = NAME_HEADERS.iter().find_map(|word| line.strip_prefix(word)) {
        names.push(rest);
        // A timestamp may follow a tab, and `*** Update File: x` has two words before the name.
        names.extend(rest.split('\t').next());
        names.extend(rest.split_once(": ").map(|(_, name)| name));
    } else if let Some(both) = line.strip_prefix("diff --git ") {
        // A name may contain spaces. If both are the same, the second begins after the middle.
        let middles = [both.find(" b/"), both.find(" \"b/"), Some(both.len() / 2)];
        for middle in middles.into_iter().flatten() {
            names.extend(both.get(..middle));
            names.extend(both.get(middle + 1..));
        }
    }
    names.iter_mut().for_each(|name| *name = name.trim());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        possible_names(text)
            .into_iter()
            .map(Cow::into_owned)
            .collect()
    }

    #[test]
    fn no_name_that_another_program_could_find_is_missing() {
        for (text, expected) in [
            (
                "--- x.orig\t2026-01-01\n+++ b/x\n@@ broken",
                &["x", "x.orig"][..],
            ),
            ("--- /dev/null\n+++ new", &["new"]),
            (
                "rename from i\nrename to j\ncopy from k\ncopy to l",
                &["i", "j", "k", "l"],
            ),
            ("  *** Delete File: d e\n*** Move to: f", &["d e", "f"]),
            (
                "*** old.c\t2026\n--- new.c\t2026\n***************",
                &["new.c", "old.c"],
            ),
            ("diff --git a/x y b/x y", &["x y"]),
            ("diff --git a/one b/three", &["one", "three"]),
            (
                "diff --git \"a/caf\\303\\251\" \"b/caf\\303\\251\"",
                &["café"],
            ),
            ("--- \"a/\\056env\"\r\n+++ words", &[".env"]),
            ("Index: src/x", &["src/x"]),
        ] {
            let found = names(text);
            for name in expected {
                assert!(found.iter().any(|found| found == name), "{text}: {found:?}");
            }
        }
        for text in [
            "",
            "words\nof a text",
            "-- x",
            "---",
            "--- ",
            "diff --git",
            "+++ /dev/null",
        ] {
            assert_eq!(names(text), [""; 0], "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(diff --git |--- |\\+\\+\\+ |rename to |\\*\\*\\* |[ab]/|\"|\\\\[0-9]|é|[ -~]|\n){0,60}") {
            possible_names(&text);
        }
    }
}
