//! Search in a conversation: in the lines as they are shown, so that every match can be seen.

use std::ops::Range;

use ratatui::text::{Line, Span};

use super::{
    transcript::TranscriptSource,
    view::{item, paint},
};

/// A search and its matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConversationSearch {
    /// The search text, in lower case, with single spaces.
    pub(crate) words: String,
    /// The matches, from the first on.
    found: Vec<SearchMatch>,
    /// The match that is shown.
    at: usize,
    /// The width and the number of items that it was made for.
    made_for: (u16, usize),
}

/// The place where a match begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SearchMatch {
    pub(crate) item: usize,
    /// The line in the item.
    pub(crate) line: usize,
    /// The byte in the line.
    column: usize,
}

/// The direction of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepDirection {
    Next,
    Previous,
}

impl StepDirection {
    /// Returns the index after or before `now` of `len`, around the end.
    pub(crate) fn step_index(self, now: usize, len: usize) -> usize {
        let len = len.max(1);
        match self {
            Self::Next => (now + 1) % len,
            Self::Previous => (now + len - 1) % len,
        }
    }
}

impl ConversationSearch {
    /// Searches the conversation at this width. The newest match is shown first.
    pub(crate) fn new(words: &str, source: TranscriptSource<'_>, width: u16) -> Self {
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut search = Self {
            words: words.join(" ").to_lowercase(),
            found: Vec::new(),
            at: 0,
            made_for: (0, 0),
        };
        search.refresh(source, width);
        search.at = search.found.len().saturating_sub(1);
        search
    }

    /// Searches again if the conversation has grown or is laid out otherwise. The shown match stays.
    pub(crate) fn refresh(&mut self, source: TranscriptSource<'_>, width: u16) {
        let made_for = (width, source.agent.items.len());
        if self.made_for == made_for {
            return;
        }
        let shown = self.current_match();
        self.found = find_matches(&self.words, source, width);
        self.made_for = made_for;
        // At another width it has another column, but it is still in its item.
        let again = shown.and_then(|shown| self.found.iter().position(|found| *found >= shown));
        self.at = again.unwrap_or(self.found.len().saturating_sub(1));
    }

    /// Moves to another match.
    pub(crate) fn step(&mut self, way: StepDirection) {
        self.at = way.step_index(self.at, self.found.len());
    }

    /// Returns the match that is shown.
    pub(crate) fn current_match(&self) -> Option<SearchMatch> {
        self.found.get(self.at).copied()
    }

    /// Returns the search text and the number of the match.
    pub(crate) fn status_text(&self) -> String {
        match self.found.len() {
            0 => format!("no match for “{}”", super::text::one_line(&self.words)),
            count => format!(
                "“{}”: {} of {count}",
                super::text::one_line(&self.words),
                self.at + 1
            ),
        }
    }

    /// Marks the matches in lines of one item, from its line `first` on.
    pub(crate) fn mark_lines(
        &self,
        item: usize,
        first: usize,
        lines: &[&Line<'static>],
    ) -> Vec<Line<'static>> {
        let mut marked: Vec<Line<'static>> = lines.iter().map(|line| (*line).clone()).collect();
        let shown = self.current_match().filter(|shown| shown.item == item);
        // From the end, so that earlier places stay what they are.
        for parts in find_in_lines(&self.words, lines).into_iter().rev() {
            let begin = parts
                .first()
                .map(|(line, range)| (line + first, range.start));
            let is_shown = shown.map(|shown| (shown.line, shown.column)) == begin;
            let style = if is_shown {
                paint::CHOSEN
            } else {
                paint::FOUND
            };
            for (line, range) in parts {
                marked[line] = mark_range(&marked[line], range, style);
            }
        }
        marked
    }
}

fn find_matches(words: &str, source: TranscriptSource<'_>, width: u16) -> Vec<SearchMatch> {
    let mut found = Vec::new();
    for item in 0..source.agent.items.len() {
        let lines = item::item_lines(source, item, width);
        let lines: Vec<&Line<'_>> = lines.iter().collect();
        let parts = find_in_lines(words, &lines).into_iter();
        let begins = parts.filter_map(|parts| parts.into_iter().next());
        found.extend(begins.map(|(line, range)| SearchMatch {
            item,
            line,
            column: range.start,
        }));
    }
    found
}

/// A letter of the text, in lower case, and its place.
struct TextLetter {
    letter: char,
    line: usize,
    bytes: Range<usize>,
}

/// Returns the matches in wrapped text, each as the parts of lines that it covers. Any space is like
/// any other, also the one at the end of a line.
fn find_in_lines(words: &str, lines: &[&Line<'_>]) -> Vec<Vec<(usize, Range<usize>)>> {
    let wanted: Vec<char> = words.chars().collect();
    let letters = text_letters(lines);
    let mut found = Vec::new();
    let mut at = 0;
    while !wanted.is_empty() && at + wanted.len() <= letters.len() {
        let here = &letters[at..at + wanted.len()];
        if here
            .iter()
            .map(|letter| letter.letter)
            .ne(wanted.iter().copied())
        {
            at += 1;
            continue;
        }
        let mut parts: Vec<(usize, Range<usize>)> = Vec::new();
        for letter in here.iter().filter(|letter| !letter.bytes.is_empty()) {
            match parts.last_mut() {
                Some((line, range)) if *line == letter.line => range.end = letter.bytes.end,
                _ => parts.push((letter.line, letter.bytes.clone())),
            }
        }
        found.push(parts);
        at += wanted.len();
    }
    found
}

fn text_letters(lines: &[&Line<'_>]) -> Vec<TextLetter> {
    let mut letters: Vec<TextLetter> = Vec::new();
    for (line, text) in lines.iter().enumerate() {
        let mut start = 0;
        for letter in text.spans.iter().flat_map(|span| span.content.chars()) {
            let bytes = start..start + letter.len_utf8();
            start = bytes.end;
            let is_repeated = letters.last().is_none_or(|last| last.letter == ' ');
            if letter.is_whitespace() && is_repeated {
                continue;
            }
            let lower = letter.to_lowercase();
            letters.extend(lower.map(|letter| TextLetter {
                letter: if letter.is_whitespace() { ' ' } else { letter },
                line,
                bytes: bytes.clone(),
            }));
        }
        // The end of a line counts as a space that takes no place.
        if letters.last().is_some_and(|last| last.letter != ' ') {
            letters.push(TextLetter {
                letter: ' ',
                line,
                bytes: start..start,
            });
        }
    }
    letters
}

/// Returns the line with another style for some of its bytes.
fn mark_range(
    line: &Line<'static>,
    range: Range<usize>,
    style: ratatui::style::Style,
) -> Line<'static> {
    let mut spans = Vec::new();
    let mut start = 0;
    for span in &line.spans {
        let text = span.content.as_ref();
        let from = range.start.saturating_sub(start).min(text.len());
        let to = range.end.saturating_sub(start).min(text.len());
        for (part, style) in [
            (&text[..from], span.style),
            (&text[from..to], style),
            (&text[to..], span.style),
        ] {
            spans.extend((!part.is_empty()).then(|| Span::styled(part.to_owned(), style)));
        }
        start += text.len();
    }
    Line {
        spans,
        ..line.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_may_reach_over_styles_and_wrapped_lines() {
        let lines = [
            Line::from(vec![
                Span::raw("• the Quick"),
                Span::styled(" bro", paint::BOLD),
            ]),
            Line::from("  wn fox, the"),
            Line::from("  quick one"),
        ];
        let lines: Vec<&Line<'_>> = lines.iter().collect();
        assert_eq!(find_in_lines("quick bro", &lines), [[(0, 8..17)]]);
        assert_eq!(
            find_in_lines("the quick", &lines),
            [vec![(0, 4..13)], vec![(1, 10..13), (2, 2..7)]]
        );
        assert!(find_in_lines("", &lines).is_empty());
    }
}
