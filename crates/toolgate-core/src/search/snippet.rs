//! Snippets: the part of a text around its matches.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use unicode_segmentation::UnicodeSegmentation;

use crate::{MatchTerm, SearchWord, search::words::join_name, split_words};

/// The number of characters of a snippet, as people count them.
const SNIPPET_GRAPHEMES: usize = 160;

/// The number of characters before the first match.
const LEAD_GRAPHEMES: usize = 40;

/// The maximum number of marked matches.
const MAX_MATCHES: usize = 64;

/// A part of a text. Matches are ranges of bytes and not markup, so nothing in the text can pretend
/// to be one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchSnippet {
    /// The text, cut between characters as people see them. It may hold control characters.
    pub text: String,
    /// The matches in `text`, in order, without overlaps.
    pub matches: Vec<Range<usize>>,
    /// True if text was left out before it.
    pub is_cut_before: bool,
    /// True if text was left out after it.
    pub is_cut_after: bool,
}

impl SearchSnippet {
    /// Creates the snippet of a text: the part with the most different terms.
    pub fn new(text: &str, terms: &[&MatchTerm]) -> Self {
        let found = find_matches(text, terms);
        let start = best_start(&found);
        let window = snippet_window(text, start);
        let inside =
            |found: &FoundMatch| found.range.start >= window.start && found.range.end <= window.end;
        let mut matches: Vec<Range<usize>> = Vec::new();
        for found in found.iter().filter(|found| inside(found)).take(MAX_MATCHES) {
            let range = found.range.start - window.start..found.range.end - window.start;
            match matches.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => matches.push(range),
            }
        }
        Self {
            is_cut_before: window.start > 0 && !text[..window.start].trim().is_empty(),
            is_cut_after: !text[window.end..].trim().is_empty(),
            text: text[window].to_owned(),
            matches,
        }
    }
}

struct FoundMatch {
    range: Range<usize>,
    term: usize,
}

/// Finds the terms in a text, in the order of the text.
fn find_matches(text: &str, terms: &[&MatchTerm]) -> Vec<FoundMatch> {
    let words = split_words(text);
    let names: Vec<(&[SearchWord], String)> = words
        .chunk_by(|a, b| a.name == b.name)
        .filter_map(|name| join_name(name).map(|joined| (name, joined)))
        .collect();
    let mut found = Vec::new();
    for (number, term) in terms.iter().enumerate() {
        let rows = words.windows(term.words.len());
        let rows = rows.filter(|row| {
            let texts: Vec<&str> = row.iter().map(|word| word.text.as_str()).collect();
            term.matches(&texts, &[])
        });
        let joined = names
            .iter()
            .filter(|(_, joined)| term.matches(&[], &[joined.as_str()]));
        let rows = rows.chain(joined.map(|(row, _)| *row));
        found.extend(rows.map(|row| FoundMatch {
            range: row[0].range.start..row[row.len() - 1].range.end,
            term: number,
        }));
    }
    found.sort_by_key(|found| (found.range.start, found.range.end));
    found
}

/// Returns the place of the match after which the most different terms follow closely.
fn best_start(found: &[FoundMatch]) -> usize {
    let reach = SNIPPET_GRAPHEMES - LEAD_GRAPHEMES;
    let distinct = |first: usize| {
        let near = found[first..]
            .iter()
            .take(MAX_MATCHES)
            .take_while(|other| other.range.end <= found[first].range.start + reach);
        let mut terms: Vec<usize> = near.map(|other| other.term).collect();
        terms.sort_unstable();
        terms.dedup();
        terms.len()
    };
    // Of equally good places the first one: `max_by_key` would return the last.
    let places = (0..found.len().min(1_000)).rev();
    places
        .max_by_key(|first| distinct(*first))
        .map_or(0, |best| found[best].range.start)
}

/// Returns the part of the text to show, cut between characters as people see them.
fn snippet_window(text: &str, start: usize) -> Range<usize> {
    let lead = text[..start]
        .grapheme_indices(true)
        .rev()
        .take(LEAD_GRAPHEMES)
        .last();
    let mut from = lead.map_or(start, |(at, _)| at);
    // The snippet begins with a whole word if one begins soon.
    if from > 0 {
        let next_word = text[from..start].find(char::is_whitespace);
        from = next_word.map_or(from, |blank| from + blank);
        from += text[from..start].len() - text[from..start].trim_start().len();
    }
    let rest = &text[from..];
    let after = rest.grapheme_indices(true).nth(SNIPPET_GRAPHEMES);
    let to = after.map_or(text.len(), |(at, _)| from + at);
    from..to
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SearchQuery;

    fn snippet(text: &str, query: &str) -> SearchSnippet {
        SearchSnippet::new(text, &SearchQuery::parse(query).marked_terms())
    }

    fn marked(snippet: &SearchSnippet) -> Vec<&str> {
        snippet
            .matches
            .iter()
            .map(|range| &snippet.text[range.clone()])
            .collect()
    }

    #[test]
    fn matches_are_marked_as_they_are_written() {
        let found = snippet(
            "The getUserId of Ärger-Müller, userid!",
            "getuserid \"user id\" arger mull*",
        );
        assert_eq!(marked(&found), ["getUserId", "Ärger", "Müller"]);
        assert!(!found.is_cut_before && !found.is_cut_after);
    }

    #[test]
    fn the_part_with_the_most_terms_is_shown() {
        let text = format!(
            "one {} two one three {}",
            "x ".repeat(400),
            "y ".repeat(400)
        );
        let found = snippet(&text, "one two three");
        assert_eq!(marked(&found), ["two", "one", "three"]);
        assert!(found.is_cut_before && found.is_cut_after);
    }

    #[test]
    fn a_family_is_not_cut_apart() {
        let text = "👨‍👩‍👧‍👦".repeat(500);
        let found = snippet(&format!("{text} word {text}"), "word");
        let families = found.text.replace(' ', "").replace("word", "");
        assert!(
            families
                .chars()
                .count()
                .is_multiple_of("👨‍👩‍👧‍👦".chars().count()),
            "{families}"
        );
        assert_eq!(marked(&found), ["word"]);
    }

    #[test]
    fn a_text_without_a_match_shows_its_beginning() {
        let found = snippet(&"abc ".repeat(200), "zebra");
        assert!(found.text.starts_with("abc") && found.matches.is_empty() && found.is_cut_after);
    }

    proptest! {
        #[test]
        fn snippets_are_bounded_and_their_matches_lie_in_order(text in any::<String>(), query in any::<String>()) {
            let found = snippet(&text, &query);
            prop_assert!(found.text.graphemes(true).count() <= SNIPPET_GRAPHEMES + 1);
            let mut end = 0;
            for range in &found.matches {
                prop_assert!(end <= range.start && range.start < range.end);
                prop_assert!(found.text.get(range.clone()).is_some());
                end = range.end;
            }
        }
    }
}
