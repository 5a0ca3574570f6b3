//! Texts that are too large for a prompt, kept outside it and read piece by piece.

use std::{
    fmt, fs, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use regex::Regex;

/// Named texts of any size. Clones share them; only the requested piece is ever copied.
///
/// ```
/// use toolgate_runtime::Documents;
/// let documents = Documents::from("one\ntwo\n").with_text("names.txt", "Ann\nBob\n")?;
/// assert_eq!(documents.bytes(), 16);
/// assert_eq!(documents.iter().map(|document| document.line_count()).sum::<usize>(), 4);
/// # Ok::<(), toolgate_runtime::DocumentError>(())
/// ```
#[derive(Clone, Default)]
pub struct Documents(Arc<Vec<Arc<TextDocument>>>);

/// One text.
pub struct TextDocument {
    name: String,
    text: String,
    /// The number of line ends before each block, computed on first use.
    line_ends: OnceLock<Vec<usize>>,
}

/// Reason why a text was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// The name is empty, too long or has control characters in it.
    #[error("{0:?} is not a name for a document")]
    Name(String),
    /// There is a text of that name already.
    #[error("there are two documents named {0}")]
    DuplicateName(String),
    /// The file could not be read; `source()` has the cause.
    #[error("{path} could not be read: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file is not text.
    #[error("{path} is not UTF-8 text, from byte {at} on")]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first byte that is not part of a character.
        at: usize,
    },
}

/// A match in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DocumentMatch {
    pub(crate) range: Range<usize>,
    /// Counted from 1.
    pub(crate) line: usize,
}

impl Documents {
    /// The name of a text that was given none.
    pub const UNNAMED: &'static str = "context";

    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text.
    pub fn with_text(
        mut self,
        name: impl Into<String>,
        text: impl Into<String>,
    ) -> Result<Self, DocumentError> {
        let name = name.into();
        let text = text.into();
        if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
            return Err(DocumentError::Name(name));
        }
        if self.get(&name).is_some() {
            return Err(DocumentError::DuplicateName(name));
        }
        let document = TextDocument {
            name,
            text,
            line_ends: OnceLock::new(),
        };
        Arc::make_mut(&mut self.0).push(Arc::new(document));
        Ok(self)
    }

    /// Adds the text of a file, under its path as given. The file is read at once, by this thread.
    pub fn with_file(self, path: impl AsRef<Path>) -> Result<Self, DocumentError> {
        let path = path.as_ref();
        let bytes = fs::read(path).map_err(|source| DocumentError::Io {
            path: path.to_owned(),
            source,
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            DocumentError::NotText {
                path: path.to_owned(),
                at,
            }
        })?;
        self.with_text(path.to_string_lossy(), text)
    }

    /// Returns a text by name.
    pub fn get(&self, name: &str) -> Option<&Arc<TextDocument>> {
        self.0.iter().find(|document| document.name == name)
    }

    /// Returns all texts, in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TextDocument>> {
        self.0.iter()
    }

    /// Counts the lines of all texts, so that positions are found quickly from then on. Reads
    /// everything once.
    pub(crate) fn index_lines(&self) {
        self.iter().for_each(|document| _ = document.line_ends());
    }

    /// Returns the size of all texts in bytes.
    pub fn bytes(&self) -> usize {
        self.iter().map(|document| document.bytes()).sum()
    }
}

impl<T: Into<String>> From<T> for Documents {
    /// Creates a set of one text, without a name of its own.
    fn from(text: T) -> Self {
        Self::new()
            .with_text(Self::UNNAMED, text)
            .expect("the first name is free and plain")
    }
}

impl fmt::Debug for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(
                self.iter()
                    .map(|document| (&document.name, document.bytes())),
            )
            .finish()
    }
}

impl TextDocument {
    /// The distance between two positions with a known line number.
    const BLOCK: usize = 32 * 1024;

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the number of its lines.
    pub fn line_count(&self) -> usize {
        let unfinished = !self.text.is_empty() && !self.text.ends_with('\n');
        self.ends_before(self.bytes()) + usize::from(unfinished)
    }

    /// Returns the line a byte is in, counted from 1.
    pub fn line_of(&self, at: usize) -> usize {
        self.ends_before(at.min(self.bytes())) + 1
    }

    /// Returns the first byte of a line, counted from 1; the end of the text, if there is no such
    /// line.
    pub fn line_start(&self, line: usize) -> usize {
        let ends = line.saturating_sub(1);
        if ends == 0 {
            return 0;
        }
        let known = self.line_ends();
        let block = known
            .partition_point(|before| *before < ends)
            .saturating_sub(1);
        let start = (block * Self::BLOCK).min(self.bytes());
        let missing = ends - known[block];
        let rest = &self.text.as_bytes()[start..];
        let mut found = rest
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(at, _)| start + at + 1);
        found.nth(missing - 1).unwrap_or(self.bytes())
    }

    /// Returns the nearest range that lies in the text and splits no character: never more than
    /// requested.
    pub fn fit_range(&self, range: Range<usize>) -> Range<usize> {
        let start = self.text.ceil_char_boundary(range.start.min(self.bytes()));
        let end = self.text.floor_char_boundary(range.end.min(self.bytes()));
        start..end.max(start)
    }

    /// Returns the piece in a range, see [`fit`](Self::fit_range).
    pub fn slice(&self, range: Range<usize>) -> &str {
        &self.text[self.fit_range(range)]
    }

    /// Returns at most `most` matches of `pattern` from byte `from` on, and where to continue if
    /// there are more.
    ///
    /// Empty matches are left out. Each match costs at most one pass over the text, whatever the
    /// pattern.
    pub(crate) fn find_matches(
        &self,
        pattern: &Regex,
        from: usize,
        most: usize,
    ) -> (Vec<DocumentMatch>, Option<usize>) {
        let from = self.text.ceil_char_boundary(from.min(self.bytes()));
        let mut found = Vec::new();
        let mut matches = pattern
            .find_iter(&self.text[from..])
            .filter(|found| !found.is_empty());
        for one in matches.by_ref().take(most) {
            let range = from + one.start()..from + one.end();
            found.push(DocumentMatch {
                line: self.line_of(range.start),
                range,
            });
        }
        (found, matches.next().map(|next| from + next.start()))
    }

    /// Returns the number of line ends before byte `at`.
    fn ends_before(&self, at: usize) -> usize {
        let block = at / Self::BLOCK;
        self.line_ends()[block] + count_ends(&self.text.as_bytes()[block * Self::BLOCK..at])
    }

    fn line_ends(&self) -> &[usize] {
        self.line_ends.get_or_init(|| {
            let mut before = 0;
            let mut known = vec![0];
            for block in self.text.as_bytes().chunks(Self::BLOCK) {
                before += count_ends(block);
                known.push(before);
            }
            known
        })
    }
}

impl fmt::Debug for TextDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the text: it is large, and it may be confidential.
        f.debug_struct("TextDocument")
            .field("name", &self.name)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

fn count_ends(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(text: impl Into<String>) -> Arc<TextDocument> {
        Documents::from(text.into()).0[0].clone()
    }

    proptest! {
        #[test]
        fn lines_are_those_that_counting_finds(text in "[aä\n]{0,60}", repeat in prop_oneof![Just(1usize), Just(2000)]) {
            let document = one(text.repeat(repeat));
            let text = document.text();
            prop_assert_eq!(document.line_count(), text.lines().count());
            for at in [0, text.len() / 3, text.len() / 2, text.len()] {
                let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
                prop_assert_eq!(document.line_of(at), line);
                let start = document.line_start(line);
                prop_assert!(start <= at && (start == 0 || text.as_bytes()[start - 1] == b'\n'));
                prop_assert!(!text.as_bytes()[start..at].contains(&b'\n'));
            }
            prop_assert_eq!(document.line_start(usize::MAX), text.len());
        }

        #[test]
        fn a_piece_cuts_no_character_and_is_never_more_than_was_asked_for(
            text in "[aä€😀]{0,30}", start in 0usize..150, end in 0usize..150,
        ) {
            let document = one(text);
            let range = document.fit_range(start..end);
            prop_assert!(range.is_empty() || (range.start >= start && range.end <= end));
            prop_assert!(document.slice(start..end).len() <= end.saturating_sub(start));
        }
    }

    #[test]
    fn names_are_plain_and_given_once() {
        let documents = Documents::new().with_text("a", "x").expect("free");
        assert!(matches!(
            documents.clone().with_text("a", "y"),
            Err(DocumentError::DuplicateName(_))
        ));
        for bad in ["", "a\nb", &"x".repeat(201)] {
            assert!(
                matches!(
                    documents.clone().with_text(bad, ""),
                    Err(DocumentError::Name(_))
                ),
                "{bad:?}"
            );
        }
        assert_eq!(format!("{documents:?}"), r#"{"a": 1}"#);
    }

    #[test]
    fn a_file_that_is_not_text_is_rejected_with_the_position() {
        let dir = tempfile::tempdir().expect("a place");
        let path = dir.path().join("f");
        fs::write(&path, b"ab\xffc").expect("written");
        let error = Documents::new()
            .with_file(&path)
            .expect_err("no text")
            .to_string();
        assert!(
            error.ends_with("f is not UTF-8 text, from byte 2 on"),
            "{error}"
        );
        assert!(matches!(
            Documents::new().with_file(dir.path().join("g")),
            Err(DocumentError::Io { .. })
        ));
        fs::write(&path, "ä").expect("written");
        assert_eq!(Documents::new().with_file(&path).expect("text").bytes(), 2);
    }

    #[test]
    fn matches_are_bounded_and_return_where_to_continue() {
        let document = one("x1\nä x2\nx3 x4");
        let pattern = Regex::new(r"x\d").expect("fine");
        let (found, next) = document.find_matches(&pattern, 0, 2);
        assert_eq!(
            found
                .iter()
                .map(|f| (f.range.clone(), f.line))
                .collect::<Vec<_>>(),
            [(0..2, 1), (6..8, 2)]
        );
        let (found, next) = document.find_matches(&pattern, next.expect("there is more"), 2);
        assert_eq!((found.len(), found[1].line, next), (2, 3, None));
        assert_eq!(
            document.find_matches(&Regex::new("z*").expect("fine"), 0, 9),
            (vec![], None),
            "an empty match does not count"
        );
    }
}
