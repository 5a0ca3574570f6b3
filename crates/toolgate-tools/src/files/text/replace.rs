//! Replaces parts of a text, each of which must occur exactly once.

use std::ops::Range;

use crate::files::text::{LineEnding, near_miss::explain_missing_text, with_lf, with_line_ending};

/// One replacement.
#[derive(Debug, Clone)]
pub(crate) struct Replacement<'a> {
    pub(crate) old: &'a str,
    pub(crate) new: &'a str,
    pub(crate) all: bool,
}

/// Makes all replacements in the original text, or explains which one cannot be made and why.
///
/// Line endings are not compared: the model writes `\n`, and new lines get the line ending of the
/// file.
pub(crate) fn apply_replacements(text: &str, edits: &[Replacement<'_>]) -> Result<String, String> {
    let plain = LfText::from_original(text);
    let newline = LineEnding::detect(text);
    let mut parts: Vec<(Range<usize>, usize, String)> = Vec::new();
    for (at, edit) in edits.iter().enumerate() {
        let which = if edits.len() > 1 {
            format!("edit {}: ", at + 1)
        } else {
            String::new()
        };
        let found = find_occurrences(&plain.text, edit).map_err(|why| format!("{which}{why}"))?;
        let new = with_line_ending(edit.new, newline);
        parts.extend(
            found
                .into_iter()
                .map(|range| (plain.original_range(range), at, new.clone())),
        );
    }
    // All ranges refer to the original text: an edit never matches what another edit inserts.
    parts.sort_by_key(|(range, at, _)| (range.start, *at));
    for pair in parts.windows(2) {
        let (first, a, _) = &pair[0];
        let (second, b, _) = &pair[1];
        if first.end > second.start {
            return Err(format!(
                "edits {} and {} change the same text; combine them into one",
                a.min(b) + 1,
                a.max(b) + 1
            ));
        }
    }
    let mut result = String::with_capacity(text.len());
    let mut from = 0;
    for (range, _, new) in parts {
        result.push_str(&text[from..range.start]);
        result.push_str(&new);
        from = range.end;
    }
    result.push_str(&text[from..]);
    Ok(result)
}

/// Finds the old text of an edit.
fn find_occurrences(text: &str, edit: &Replacement<'_>) -> Result<Vec<Range<usize>>, String> {
    let old = with_lf(edit.old);
    let new = with_lf(edit.new);
    if old.is_empty() {
        return Err(
            "old is empty; give the text to replace, or use write_file for a whole file".to_owned(),
        );
    }
    if old == new {
        return Err("old and new are the same".to_owned());
    }
    let found: Vec<Range<usize>> = text
        .match_indices(&old)
        .map(|(at, old)| at..at + old.len())
        .collect();
    match found.len() {
        0 => Err(explain_missing_text(text, &old)),
        1 => Ok(found),
        _ if edit.all => Ok(found),
        times => {
            let line =
                |range: &Range<usize>| (text[..range.start].matches('\n').count() + 1).to_string();
            let lines: Vec<String> = found.iter().take(5).map(line).collect();
            let more = if times > 5 { " …" } else { "" };
            let lines = lines.join(", ");
            Err(format!(
                "old occurs {times} times (lines {lines}{more}); include more of the surrounding text, or set all to true"
            ))
        }
    }
}

/// A text with `\n` line endings, and a mapping of its positions to the original.
struct LfText {
    text: String,
    /// The positions of each `\n` that had a `\r` before it.
    cut: Vec<usize>,
}

impl LfText {
    fn from_original(original: &str) -> Self {
        let mut text = String::with_capacity(original.len());
        let mut cut = Vec::new();
        let mut pieces = original.split("\r\n").peekable();
        while let Some(piece) = pieces.next() {
            text.push_str(piece);
            if pieces.peek().is_some() {
                cut.push(text.len());
                text.push('\n');
            }
        }
        Self { text, cut }
    }

    /// Returns the same range in the original. A `\r\n` is never split.
    fn original_range(&self, range: Range<usize>) -> Range<usize> {
        // Every dropped `\r` before the position shifts it by one byte.
        let original = |at: usize| at + self.cut.partition_point(|cut| *cut < at);
        original(range.start)..original(range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replace_once(text: &str, old: &str, new: &str) -> Result<String, String> {
        apply_replacements(
            text,
            &[Replacement {
                old,
                new,
                all: false,
            }],
        )
    }

    #[test]
    fn a_text_that_occurs_once_is_replaced_and_nothing_else_changes() {
        assert_eq!(replace_once("a b c", "b", "x").as_deref(), Ok("a x c"));
        assert_eq!(
            replace_once("last line", "line", "word").as_deref(),
            Ok("last word"),
            "no line ending is added"
        );
        assert_eq!(replace_once("a\n", "a\n", "").as_deref(), Ok(""));
    }

    #[test]
    fn lines_of_a_file_keep_their_line_endings() {
        let crlf = "one\r\ntwo\r\nthree\r\n";
        assert_eq!(
            replace_once(crlf, "one\ntwo", "1\n2\n2b").as_deref(),
            Ok("1\r\n2\r\n2b\r\nthree\r\n")
        );
        assert_eq!(
            replace_once(crlf, "\ntwo\n", "\n").as_deref(),
            Ok("one\r\nthree\r\n")
        );
        assert_eq!(
            replace_once(crlf, "two\r\n", "").as_deref(),
            Ok("one\r\nthree\r\n")
        );
        let mixed = "one\ntwo\r\nthree\r\nfour\r\n";
        assert_eq!(
            replace_once(mixed, "two\nthree", "2\n3").as_deref(),
            Ok("one\n2\r\n3\r\nfour\r\n")
        );
        assert_eq!(replace_once("a\rb", "b", "c\nd").as_deref(), Ok("a\rc\nd"));
    }

    #[test]
    fn a_text_that_does_not_occur_exactly_once_is_an_error() {
        assert!(
            replace_once("a a", "a", "b")
                .expect_err("the edit is rejected")
                .contains("2 times (lines 1, 1)")
        );
        assert!(
            replace_once("a", "x", "b")
                .expect_err("the edit is rejected")
                .contains("not in the file")
        );
        assert!(
            replace_once("a", "", "b")
                .expect_err("the edit is rejected")
                .contains("empty")
        );
        assert!(
            replace_once("a", "a", "a")
                .expect_err("the edit is rejected")
                .contains("same")
        );
        let all = Replacement {
            old: "a",
            new: "b",
            all: true,
        };
        assert_eq!(
            apply_replacements("a a", std::slice::from_ref(&all)).as_deref(),
            Ok("b b")
        );
        assert!(
            apply_replacements("x", &[all]).is_err(),
            "all of none is an error too"
        );
    }

    #[test]
    fn all_edits_are_made_in_the_original_text_or_none() {
        let edit = |old, new| Replacement {
            old,
            new,
            all: false,
        };
        assert_eq!(
            apply_replacements("a b", &[edit("a", "b"), edit("b", "a")]).as_deref(),
            Ok("b a")
        );
        let error = apply_replacements("abc", &[edit("ab", "x"), edit("bc", "y")])
            .expect_err("the edit is rejected");
        assert!(error.contains("edits 1 and 2"), "{error}");
        let error = apply_replacements("abc", &[edit("bc", "y"), edit("ab", "x")])
            .expect_err("the edit is rejected");
        assert!(error.contains("edits 1 and 2"), "{error}");
        let error = apply_replacements("abc", &[edit("a", "x"), edit("z", "y")])
            .expect_err("the edit is rejected");
        assert!(error.starts_with("edit 2: "), "{error}");
        assert_eq!(
            apply_replacements("ab", &[edit("a", "1"), edit("b", "2")]).as_deref(),
            Ok("12"),
            "adjacent edits are allowed"
        );
    }
}
