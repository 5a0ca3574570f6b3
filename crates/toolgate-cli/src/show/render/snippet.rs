//! The part of a text that a search has found.

use anstyle::Style;
use toolgate::search::SearchSnippet;

use super::StyledLine;

/// Returns a snippet as one line, with its matches in bold.
pub(crate) fn snippet_line(snippet: &SearchSnippet) -> StyledLine {
    let mut line = StyledLine::new();
    let plain = Style::new();
    if snippet.is_cut_before {
        line.push("… ", plain);
    }
    let mut end = 0;
    for range in &snippet.matches {
        line.push(&snippet.text[end..range.start], plain);
        line.push(&snippet.text[range.clone()], plain.bold().underline());
        end = range.end;
    }
    line.push(&snippet.text[end..], plain);
    if snippet.is_cut_after {
        line.push(" …", plain);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_styled_and_control_characters_are_visible() {
        let snippet = SearchSnippet {
            text: "a\u{1b}[2J walrus\nand more".into(),
            matches: std::iter::once(6..12).collect(),
            is_cut_before: true,
            is_cut_after: false,
        };
        let line = snippet_line(&snippet);
        assert!(!line.text().contains('\u{1b}') && !line.text().contains('\n'));
        let marked = line.spans.iter().filter(|span| span.style != Style::new());
        let marked: Vec<&str> = marked.map(|span| span.text.as_str()).collect();
        assert_eq!(marked, ["walrus"]);
        assert!(line.text().starts_with("… a"));
    }
}
