//! Replaces parts of a text, each of which is there exactly once.

use std::ops::Range;

use crate::{
    near_miss::explain,
    text::{Newline, with_lf, with_newline},
};

/// One replacement.
#[derive(Debug, Clone)]
pub(crate) struct Replacement<'a> {
    pub(crate) old: &'a str,
    pub(crate) new: &'a str,
    pub(crate) all: bool,
}

/// Makes all replacements in the text as it was, or says which one cannot be made and why.
///
/// Line ends are not compared: lines of the model end in `\n`, and what is new ends like the other lines of the file.
pub(crate) fn replace(text: &str, edits: &[Replacement<'_>]) -> Result<String, String> {
    let plain = Plain::of(text);
    let newline = Newline::of(text);
    let mut parts: Vec<(Range<usize>, usize, String)> = Vec::new();
    for (at, edit) in edits.iter().enumerate() {
        let which = if edits.len() > 1 {
            format!("edit {}: ", at + 1)
        } else {
            String::new()
        };
        let found = find(&plain.text, edit).map_err(|why| format!("{which}{why}"))?;
        let new = with_newline(edit.new, newline);
        parts.extend(
            found
                .into_iter()
                .map(|range| (plain.range(range), at, new.clone())),
        );
    }
    parts.sort_by_key(|(range, at, _)| (range.start, *at));
    for pair in parts.windows(2) {
        let ((first, a, _), (second, b, _)) = (&pair[0], &pair[1]);
        if first.end > second.start {
            return Err(format!(
                "edits {} and {} change the same text; make one of them",
                a.min(b) + 1,
                a.max(b) + 1
            ));
        }
    }
    let (mut result, mut from) = (String::with_capacity(text.len()), 0);
    for (range, _, new) in parts {
        result.push_str(&text[from..range.start]);
        result.push_str(&new);
        from = range.end;
    }
    result.push_str(&text[from..]);
    Ok(result)
}

/// Where the old text of an edit is.
fn find(text: &str, edit: &Replacement<'_>) -> Result<Vec<Range<usize>>, String> {
    let (old, new) = (with_lf(edit.old), with_lf(edit.new));
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
        0 => Err(explain(text, &old)),
        1 => Ok(found),
        _ if edit.all => Ok(found),
        times => {
            let line =
                |range: &Range<usize>| (text[..range.start].matches('\n').count() + 1).to_string();
            let lines: Vec<String> = found.iter().take(5).map(line).collect();
            let more = if times > 5 { " …" } else { "" };
            let lines = lines.join(", ");
            Err(format!(
                "old occurs {times} times (lines {lines}{more}); give more of the text around it, or set all to true"
            ))
        }
    }
}

/// A text whose lines end in `\n`, and where its characters stand in the original.
struct Plain {
    text: String,
    /// Where a `\n` stands that had a `\r` before it.
    cut: Vec<usize>,
}

impl Plain {
    fn of(original: &str) -> Self {
        let (mut text, mut cut) = (String::with_capacity(original.len()), Vec::new());
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

    /// The same range in the original. The end of a line is taken whole or left whole.
    fn range(&self, range: Range<usize>) -> Range<usize> {
        let original = |at: usize| at + self.cut.partition_point(|cut| *cut < at);
        original(range.start)..original(range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, old: &str, new: &str) -> Result<String, String> {
        replace(
            text,
            &[Replacement {
                old,
                new,
                all: false,
            }],
        )
    }

    #[test]
    fn a_part_that_is_there_once_is_replaced_and_nothing_else_changes() {
        assert_eq!(one("a b c", "b", "x").as_deref(), Ok("a x c"));
        assert_eq!(
            one("last line", "line", "word").as_deref(),
            Ok("last word"),
            "no line end is added"
        );
        assert_eq!(one("a\n", "a\n", "").as_deref(), Ok(""));
    }

    #[test]
    fn lines_of_a_file_keep_their_ends() {
        let crlf = "one\r\ntwo\r\nthree\r\n";
        assert_eq!(
            one(crlf, "one\ntwo", "1\n2\n2b").as_deref(),
            Ok("1\r\n2\r\n2b\r\nthree\r\n")
        );
        assert_eq!(
            one(crlf, "\ntwo\n", "\n").as_deref(),
            Ok("one\r\nthree\r\n")
        );
        assert_eq!(one(crlf, "two\r\n", "").as_deref(), Ok("one\r\nthree\r\n"));
        let mixed = "one\ntwo\r\nthree\r\nfour\r\n";
        assert_eq!(
            one(mixed, "two\nthree", "2\n3").as_deref(),
            Ok("one\n2\r\n3\r\nfour\r\n")
        );
        assert_eq!(one("a\rb", "b", "c\nd").as_deref(), Ok("a\rc\nd"));
    }

    #[test]
    fn a_part_that_is_not_there_exactly_once_is_an_error() {
        assert!(
            one("a a", "a", "b")
                .expect_err("it cannot be made")
                .contains("2 times (lines 1, 1)")
        );
        assert!(
            one("a", "x", "b")
                .expect_err("it cannot be made")
                .contains("not in the file")
        );
        assert!(
            one("a", "", "b")
                .expect_err("it cannot be made")
                .contains("empty")
        );
        assert!(
            one("a", "a", "a")
                .expect_err("it cannot be made")
                .contains("same")
        );
        let all = Replacement {
            old: "a",
            new: "b",
            all: true,
        };
        assert_eq!(
            replace("a a", std::slice::from_ref(&all)).as_deref(),
            Ok("b b")
        );
        assert!(replace("x", &[all]).is_err(), "all of none is an error too");
    }

    #[test]
    fn all_edits_are_made_in_the_text_as_it_was_or_none_is() {
        let edit = |old, new| Replacement {
            old,
            new,
            all: false,
        };
        assert_eq!(
            replace("a b", &[edit("a", "b"), edit("b", "a")]).as_deref(),
            Ok("b a")
        );
        let error =
            replace("abc", &[edit("ab", "x"), edit("bc", "y")]).expect_err("it cannot be made");
        assert!(error.contains("edits 1 and 2"), "{error}");
        let error =
            replace("abc", &[edit("bc", "y"), edit("ab", "x")]).expect_err("it cannot be made");
        assert!(error.contains("edits 1 and 2"), "{error}");
        let error =
            replace("abc", &[edit("a", "x"), edit("z", "y")]).expect_err("it cannot be made");
        assert!(error.starts_with("edit 2: "), "{error}");
        assert_eq!(
            replace("ab", &[edit("a", "1"), edit("b", "2")]).as_deref(),
            Ok("12"),
            "side by side is fine"
        );
    }
}
