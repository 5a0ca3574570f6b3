//! Queries as people write them. Any text is a query; the worst case is that it finds nothing.

use std::sync::Arc;

use crate::{MatchTerm, SEARCH_FILTER_WORDS, SearchFilter, split_words};

/// The maximum number of bytes of a query that are read.
const MAX_BYTES: usize = 4 * 1024;

/// The maximum number of words, of phrases and of exclusions.
const MAX_TERMS: usize = 24;

/// The maximum number of words of a phrase.
const MAX_PHRASE: usize = 24;

/// The minimum number of characters of a prefix. Shorter ones would match most of the index.
const MIN_PREFIX_CHARS: usize = 2;

/// A parsed query: words, phrases, exclusions and filters.
///
/// ```
/// use toolgate_core::SearchQuery;
/// let query = SearchQuery::parse(r#"deploy "connection refused" migr* -staging tool:shell after:3d"#);
/// assert_eq!(query.terms.len(), 2);
/// assert_eq!(query.phrases.len(), 1);
/// assert_eq!(query.excluded.len(), 1);
/// assert_eq!(query.filter.tools, ["shell"]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchQuery {
    /// Words and prefixes, of which a hit has at least one.
    pub terms: Vec<Arc<MatchTerm>>,
    /// Phrases, all of which a hit has.
    pub phrases: Vec<MatchTerm>,
    /// Words and phrases that a hit does not have.
    pub excluded: Vec<MatchTerm>,
    /// The filters in the text.
    pub filter: SearchFilter,
    /// The text without filters and exclusions, for semantic search.
    pub plain_text: String,
    /// What was not understood or ignored, for the user.
    pub hints: Vec<String>,
}

impl SearchQuery {
    /// Parses a query. This never fails: what is not understood is searched as a word.
    pub fn parse(text: &str) -> Self {
        let mut query = Self::default();
        let read = truncate_bytes(text, MAX_BYTES);
        if read.len() < text.len() {
            query.hint(format!(
                "only the first {MAX_BYTES} bytes of the query were used"
            ));
        }
        let mut rest = read;
        while let Some(part) = next_part(&mut rest) {
            query.add_part(&part);
        }
        query.plain_text.truncate(query.plain_text.trim_end().len());
        query
    }

    /// Checks whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty() && self.phrases.is_empty() && self.filter.is_empty()
    }

    /// Returns the words and phrases that hits are marked with.
    pub fn marked_terms(&self) -> Vec<&MatchTerm> {
        let terms = self.terms.iter().map(|term| &**term);
        terms.chain(&self.phrases).collect()
    }

    fn add_part(&mut self, part: &QueryPart<'_>) {
        if let Some((name, value)) = part.filter() {
            match self.filter.add(name, value) {
                Ok(()) => return,
                Err(error) => self.hint(error.to_string()),
            }
        }
        let is_prefix = !part.is_quoted && part.text.ends_with('*');
        let mut words = split_words(part.text);
        words.truncate(MAX_PHRASE);
        let last_chars = words.last().map_or(0, |word| word.text.chars().count());
        if is_prefix && (1..MIN_PREFIX_CHARS).contains(&last_chars) {
            self.hint(format!("{} is too short for a prefix", shorten(part.text)));
        }
        let is_prefix = is_prefix && last_chars >= MIN_PREFIX_CHARS;
        let Some(term) = MatchTerm::from_words(&words, is_prefix) else {
            return;
        };
        if part.is_excluded {
            if !part.is_quoted && filter_of(part.text).is_some() {
                self.hint(format!(
                    "-{} excludes these words: a filter cannot be excluded",
                    shorten(part.text)
                ));
            }
            push_term(&mut self.excluded, term);
            return;
        }
        self.plain_text.push_str(part.text.trim_end_matches('*'));
        self.plain_text.push(' ');
        if part.is_quoted {
            push_term(&mut self.phrases, term);
        } else {
            push_term(&mut self.terms, Arc::new(term));
        }
    }

    fn hint(&mut self, text: String) {
        if self.hints.len() < 8 {
            self.hints.push(text);
        }
    }
}

fn push_term<T: PartialEq>(terms: &mut Vec<T>, term: T) {
    if terms.len() < MAX_TERMS && !terms.contains(&term) {
        terms.push(term);
    }
}

/// A part of a query between blanks, or between quotes.
struct QueryPart<'a> {
    text: &'a str,
    is_quoted: bool,
    is_excluded: bool,
    /// The name of a filter whose value is quoted.
    name: Option<&'a str>,
}

impl<'a> QueryPart<'a> {
    /// Returns the name and the value, if it is a filter.
    fn filter(&self) -> Option<(&'a str, &'a str)> {
        if let Some(name) = self.name {
            return Some((name, self.text));
        }
        if self.is_quoted || self.is_excluded {
            return None;
        }
        filter_of(self.text)
    }
}

/// Returns the name and the value of a filter in a word.
fn filter_of(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once(':')?;
    let is_filter = SEARCH_FILTER_WORDS.contains(&name) && !value.is_empty();
    is_filter.then_some((name, value))
}

/// Takes the next part from the front of the text.
fn next_part<'a>(rest: &mut &'a str) -> Option<QueryPart<'a>> {
    let text = rest.trim_start_matches(is_blank);
    if text.is_empty() {
        return None;
    }
    let excluded = text
        .strip_prefix('-')
        .filter(|after| !after.starts_with(is_blank) && !after.is_empty());
    let body = excluded.unwrap_or(text);
    let is_excluded = excluded.is_some();
    if let Some(quoted) = body.strip_prefix('"') {
        let text = take_quoted(quoted, rest);
        return Some(QueryPart {
            text,
            is_quoted: true,
            is_excluded,
            name: None,
        });
    }
    let end = body.find(is_blank).unwrap_or(body.len());
    let word = &body[..end];
    // `project:"my files"`: a filter whose value contains blanks.
    if let Some((name, value)) = word.split_once(":\"")
        && SEARCH_FILTER_WORDS.contains(&name)
        && !is_excluded
    {
        let quoted = &body[end - value.len()..];
        let text = take_quoted(quoted, rest);
        return Some(QueryPart {
            text,
            is_quoted: true,
            is_excluded,
            name: Some(name),
        });
    }
    *rest = &body[end..];
    Some(QueryPart {
        text: word,
        is_quoted: false,
        is_excluded,
        name: None,
    })
}

/// Returns the text up to the closing quote, or to the end if there is none.
fn take_quoted<'a>(quoted: &'a str, rest: &mut &'a str) -> &'a str {
    match quoted.split_once('"') {
        Some((inside, after)) => {
            *rest = after;
            inside
        }
        None => {
            *rest = "";
            quoted
        }
    }
}

fn is_blank(character: char) -> bool {
    character.is_whitespace() || character == '\0'
}

/// Returns the beginning of a text, cut between characters.
pub(crate) fn truncate_bytes(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn shorten(text: &str) -> String {
    text.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(query: &SearchQuery) -> Vec<String> {
        query
            .terms
            .iter()
            .map(|term| term.words.join(" "))
            .collect()
    }

    #[test]
    fn words_phrases_prefixes_and_exclusions_are_told_apart() {
        let query = SearchQuery::parse(
            r#"fix getUserId migr* "exact phrase" -old -"very old" - "open end"#,
        );
        assert_eq!(words(&query), ["fix", "get user id", "migr"]);
        assert_eq!(query.terms[1].joined.as_deref(), Some("getuserid"));
        assert!(query.terms[2].is_prefix);
        let phrases: Vec<_> = query
            .phrases
            .iter()
            .map(|term| term.words.join(" "))
            .collect();
        assert_eq!(phrases, ["exact phrase", "open end"]);
        assert_eq!(query.excluded.len(), 2);
        assert_eq!(query.plain_text, "fix getUserId migr exact phrase open end");
    }

    #[test]
    fn filters_in_the_text_are_not_searched_as_words() {
        let query = SearchQuery::parse("tool:shell role:user project:\"my files\" after:3d crash");
        assert_eq!(words(&query), ["crash"]);
        assert_eq!(query.filter.tools, ["shell"]);
        assert_eq!(query.filter.projects, ["my files"]);
        assert!(query.filter.after.is_some());
        assert!(query.hints.is_empty());
    }

    #[test]
    fn a_filter_that_is_not_understood_is_searched_and_reported() {
        let query = SearchQuery::parse("role:robot http://x after:soon");
        assert_eq!(words(&query), ["role robot", "http x", "after soon"]);
        assert_eq!(query.hints.len(), 2);
    }

    #[test]
    fn a_filter_that_is_excluded_is_an_excluded_word_and_reported() {
        for text in ["-role:user", "-tool:shell", "-project:\"my files\""] {
            let query = SearchQuery::parse(&format!("crash {text}"));
            assert_eq!(query.excluded.len(), 1, "{text}");
            assert!(query.filter.is_empty(), "{text}");
            assert!(query.hints[0].contains("cannot be excluded"), "{text}");
        }
        for text in ["-http://x", "-\"role:user\"", "-role:", "-user"] {
            let query = SearchQuery::parse(&format!("crash {text}"));
            assert_eq!(query.hints, [""; 0], "{text}");
        }
    }

    #[test]
    fn a_huge_query_is_bounded() {
        for text in [
            "word ".repeat(200_000),
            "x".repeat(1_000_000),
            "\"".repeat(1_000_000),
            "-a ".repeat(400_000),
        ] {
            let query = SearchQuery::parse(&text);
            assert!(query.terms.len() <= MAX_TERMS && query.excluded.len() <= MAX_TERMS);
            assert!(!query.hints.is_empty(), "it says so");
        }
    }

    #[test]
    fn operators_and_nul_are_only_text() {
        for text in [
            "a AND b OR (c",
            "NEAR(a b, 5)",
            "col:a^2",
            "a\0b",
            "'; DROP TABLE x; --",
            "***",
            "\u{202e}",
        ] {
            let query = SearchQuery::parse(text);
            assert!(query.filter.is_empty(), "{text:?}");
        }
        assert_eq!(words(&SearchQuery::parse("a\0b")), ["a", "b"]);
    }

    proptest! {
        #[test]
        fn any_text_is_a_query(text in any::<String>()) {
            let query = SearchQuery::parse(&text);
            for term in query.marked_terms() {
                prop_assert!(!term.words.is_empty());
                prop_assert!(term.words.iter().all(|word| !word.is_empty()));
            }
        }

        #[test]
        fn any_mix_of_operators_is_a_query(text in r#"([a-z]{0,3}|["*:()\-^ \x00]|tool:|after:|AND){0,30}"#) {
            let _ = SearchQuery::parse(&text);
        }
    }
}
