//! Queries in the language of FTS5.

use toolgate_core::{MatchTerm, SearchFacet};

use crate::search_shared::ExpressionDialect;

/// The language of FTS5.
pub(super) struct Fts5Dialect;

impl ExpressionDialect for Fts5Dialect {
    fn write_term(term: &MatchTerm) -> String {
        let star = if term.is_prefix { " *" } else { "" };
        match (&term.joined, term.words.as_slice()) {
            // One look-up in two columns, instead of two.
            (Some(joined), [only]) if joined == only => {
                format!("({{words names}} : \"{only}\"{star})")
            }
            (Some(joined), words) => {
                let words = words.join(" ");
                format!("(words : \"{words}\"{star} OR names : \"{joined}\"{star})")
            }
            (None, words) => format!("(words : \"{}\"{star})", words.join(" ")),
        }
    }

    fn write_facets(group: &[SearchFacet]) -> String {
        let one = |facet: &SearchFacet| {
            let star = if facet.is_prefix() { " *" } else { "" };
            format!("\"{}\"{star}", facet.token())
        };
        let tokens: Vec<String> = group.iter().map(one).collect();
        format!("facets : ({})", tokens.join(" OR "))
    }

    fn combine(wanted: &[String], excluded: &[String]) -> String {
        let wanted = wanted.join(" AND ");
        if excluded.is_empty() {
            return wanted;
        }
        format!("({wanted}) NOT ({})", excluded.join(" OR "))
    }
}
