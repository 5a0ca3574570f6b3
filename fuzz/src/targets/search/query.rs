//! Queries of search: any text is one, its parts are bounded, and a snippet marks what the query names.

use toolgate_core::{MatchTerm, SearchCursor, SearchQuery, SearchSnippet, split_words};

use crate::{FuzzTarget, InputTrace};

pub(crate) const TARGET: FuzzTarget = FuzzTarget::new("search_query", run, WORDS);

const WORDS: &[&str] = &[
    "\"",
    "*",
    "-",
    "tool:",
    "after:3d",
    "before:2026-01-31",
    "session:4c21",
    "role:user",
    "project:\"a b\"",
    "status:failed",
    "getUserId",
    "snake_case",
    "HTTPServer",
    "é",
    "e\u{301}",
    "İ",
    "ß",
    "東京",
    "🎉",
    "\0",
    "\u{10ffff}",
    "AND",
    "NEAR(",
];

fn run(data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    let query = SearchQuery::parse(&text);
    let terms = query.marked_terms();
    assert!(query.terms.len() <= 24 && query.phrases.len() <= 24 && query.excluded.len() <= 24);
    assert!(query.hints.len() <= 8 && query.plain_text.len() <= 8 * 1024);
    terms.iter().for_each(|term| check_term(term));
    check_snippet(&text, &terms);
    if let Ok(cursor) = text.parse::<SearchCursor>() {
        assert_eq!(cursor.to_string().parse::<SearchCursor>(), Ok(cursor));
    }
    let shape = [
        query.terms.len(),
        query.phrases.len(),
        query.excluded.len(),
        query.hints.len(),
        usize::from(query.filter.is_empty()),
        terms.iter().filter(|term| term.is_prefix).count(),
    ];
    InputTrace::of_message(&format!("{shape:?}"))
}

/// No word of a query can be an operator of a database.
fn check_term(term: &MatchTerm) {
    let words = term.words.iter().chain(&term.joined);
    for word in words {
        assert!(!word.is_empty());
        assert!(
            word.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || !c.is_ascii()),
            "{word:?}"
        );
    }
}

/// The query itself as a document: what is marked are words of the text.
fn check_snippet(text: &str, terms: &[&MatchTerm]) {
    let snippet = SearchSnippet::new(text, terms);
    let mut end = 0;
    for range in &snippet.matches {
        assert!(end <= range.start && range.start < range.end);
        let marked = snippet
            .text
            .get(range.clone())
            .expect("a match lies between characters");
        assert!(!split_words(marked).is_empty(), "{marked:?}");
        end = range.end;
    }
}
