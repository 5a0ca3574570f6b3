//! Queries and documents in the language of `tsquery` and `tsvector`.

use std::collections::BTreeMap;

use toolgate_core::{IndexEntry, MatchTerm, SearchFacet};

use crate::search_shared::ExpressionDialect;

/// The language of `tsquery`.
pub(super) struct TsqueryDialect;

impl ExpressionDialect for TsqueryDialect {
    fn write_term(term: &MatchTerm) -> String {
        let star = if term.is_prefix { ":*" } else { "" };
        let words: Vec<String> = term.words.iter().map(|word| format!("'{word}'")).collect();
        let words = words.join(" <-> ") + star;
        match &term.joined {
            Some(joined) => format!("(({words}) | '={joined}'{star})"),
            None => format!("({words})"),
        }
    }

    fn write_facets(group: &[SearchFacet]) -> String {
        let one = |facet: &SearchFacet| {
            let star = if facet.is_prefix() { ":*" } else { "" };
            format!("':{}'{star}", facet.token())
        };
        let tokens: Vec<String> = group.iter().map(one).collect();
        format!("({})", tokens.join(" | "))
    }

    fn combine(wanted: &[String], excluded: &[String]) -> String {
        let excluded = excluded.iter().map(|term| format!("!{term}"));
        let parts: Vec<String> = wanted.iter().cloned().chain(excluded).collect();
        parts.join(" & ")
    }
}

/// Returns the lexemes of a document: words with their places, names and facts without.
pub(super) fn document_lexemes(entry: &IndexEntry) -> String {
    /// PostgreSQL counts no further.
    const MAX_POSITION: usize = 16_383;
    /// PostgreSQL stores no more places of one lexeme.
    const MAX_POSITIONS: usize = 255;
    let mut words = BTreeMap::<&str, Vec<usize>>::new();
    let split = entry.words.split(' ').filter(|word| !word.is_empty());
    for (at, word) in split.enumerate() {
        let places = words.entry(word).or_default();
        if places.len() < MAX_POSITIONS {
            places.push((at + 1).min(MAX_POSITION));
        }
    }
    let mut lexemes = String::with_capacity(entry.words.len() * 2);
    for (word, places) in words {
        let places: Vec<String> = places.iter().map(usize::to_string).collect();
        lexemes.push_str(&format!("'{word}':{} ", places.join(",")));
    }
    let named = |text: &str, mark: char, lexemes: &mut String| {
        let tokens = text.split(' ').filter(|token| !token.is_empty());
        tokens.for_each(|token| lexemes.push_str(&format!("'{mark}{token}' ")));
    };
    named(&entry.names, '=', &mut lexemes);
    named(&entry.facets, ':', &mut lexemes);
    lexemes
}
