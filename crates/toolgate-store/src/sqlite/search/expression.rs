//! Queries in the language of FTS5. Words consist of letters and digits only, so that no text of a
//! user can become an operator.

use toolgate_core::{MatchTerm, SearchFacet, SearchRequirement};

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
    let wanted = parts.join(" AND ");
    if required.excluded.is_empty() {
        return Some(wanted);
    }
    let excluded: Vec<String> = required.excluded.iter().map(term_expression).collect();
    Some(format!("({wanted}) NOT ({})", excluded.join(" OR ")))
}

fn term_expression(term: &MatchTerm) -> String {
    let star = if term.is_prefix { " *" } else { "" };
    let words = format!("words : \"{}\"{star}", term.words.join(" "));
    match &term.joined {
        Some(joined) => format!("({words} OR names : \"{joined}\"{star})"),
        None => format!("({words})"),
    }
}

fn facet_expression(group: &[SearchFacet]) -> Option<String> {
    let one = |facet: &SearchFacet| {
        let star = if facet.is_prefix() { " *" } else { "" };
        format!("\"{}\"{star}", facet.token())
    };
    let tokens: Vec<String> = group.iter().map(one).collect();
    (!tokens.is_empty()).then(|| format!("facets : ({})", tokens.join(" OR ")))
}
