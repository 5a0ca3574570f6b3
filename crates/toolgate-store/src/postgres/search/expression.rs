//! Queries and documents in the language of `tsquery` and `tsvector`. Words consist of letters and
//! digits only, so that no text of a user can become an operator.

use std::collections::BTreeMap;

use toolgate_core::{IndexEntry, MatchTerm, SearchFacet, SearchRequirement};

/// Returns the query for documents that have all terms and fulfil a requirement; none if no document
/// can.
pub(super) fn match_expression(
    terms: &[&MatchTerm],
    required: &SearchRequirement,
) -> Option<String> {
    let mut parts: Vec<String> = terms.iter().map(|term| term_expression(term)).collect();
    parts.extend(required.phrases.iter().map(term_expression));
    for group in &required.facets {
        parts.push(facet_expression(group)?);
    }
    if parts.is_empty() {
        parts.extend(facet_expression(&[SearchFacet::any()]));
    }
    parts.extend(
        required
            .excluded
            .iter()
            .map(|term| format!("!{}", term_expression(term))),
    );
    Some(parts.join(" & "))
}

fn term_expression(term: &MatchTerm) -> String {
    let last = term.words.len() - 1;
    let words = term.words.iter().enumerate().map(|(at, word)| {
        let star = if term.is_prefix && at == last {
            ":*"
        } else {
            ""
        };
        format!("'{word}'{star}")
    });
    let words: Vec<String> = words.collect();
    let words = words.join(" <-> ");
    let star = if term.is_prefix { ":*" } else { "" };
    match &term.joined {
        Some(joined) => format!("(({words}) | '={joined}'{star})"),
        None => format!("({words})"),
    }
}

fn facet_expression(group: &[SearchFacet]) -> Option<String> {
    let one = |facet: &SearchFacet| {
        let star = if facet.is_prefix() { ":*" } else { "" };
        format!("':{}'{star}", facet.token())
    };
    let tokens: Vec<String> = group.iter().map(one).collect();
    (!tokens.is_empty()).then(|| format!("({})", tokens.join(" | ")))
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
