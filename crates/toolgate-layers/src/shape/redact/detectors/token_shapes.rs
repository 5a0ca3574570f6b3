//! Finds tokens that are recognised by their shape, and the secret in a longer shape.

use std::{ops::Range, sync::OnceLock};

use regex::Regex;

use super::{MAX_KEY_BYTES, MAX_LOOK_BYTES, MAX_TEST_BYTES, literals::is_literal, text_near};
use crate::shape::redact::lookahead::{Lookahead, SearchFor};

/// A shape whose pattern is compiled when it is first used.
pub(super) struct CompiledShape {
    pattern: &'static str,
    regex: OnceLock<Regex>,
    test: Option<fn(&str) -> bool>,
    /// True if its beginning is specific enough, even in the middle of a word.
    distinctive: bool,
}

/// Beginnings that also occur inside ordinary words or encoded data.
const COMMON_PREFIXES: [&str; 17] = [
    "sk-", "key-", "dapi", "SG.", "hf_", "r8_", "AKIA", "ASIA", "AIza", "eyJ", "xai-", "gsk_",
    "ntn_", "bearer", "basic", "ya29.", "hvs.",
];

impl CompiledShape {
    pub(super) fn new(anchor: &str, pattern: &'static str, test: Option<fn(&str) -> bool>) -> Self {
        Self {
            pattern,
            regex: OnceLock::new(),
            test,
            distinctive: !COMMON_PREFIXES.contains(&anchor),
        }
    }

    pub(super) fn find_match(
        &self,
        text: &str,
        anchor: Range<usize>,
        ahead: &mut Lookahead,
    ) -> Option<Range<usize>> {
        let start = anchor.start;
        if !self.distinctive && ends_in_word(&text.as_bytes()[..start]) {
            return None;
        }
        // A tested shape may fail many times in one text; the others fail at once or match, but for
        // one that has several parts.
        let mut near = match self.test {
            Some(_) => text_near(text, start, MAX_TEST_BYTES),
            None => text_near(text, start, MAX_KEY_BYTES),
        };
        let is_jwt = anchor.len() == 3 && &text[anchor.clone()] == "eyJ";
        if is_jwt && !has_token_parts(text.as_bytes(), start, ahead) {
            return None;
        }
        ahead.charge(near.len().min(MAX_TEST_BYTES));
        let mut found = self.regex().find(near)?;
        if let Some(test) = self.test {
            if !test(found.as_str()) {
                return None;
            }
            near = text_near(text, start, MAX_LOOK_BYTES);
            found = self.regex().find(near)?;
        }
        let cut = found.end() == near.len();
        let more = if cut {
            text[start + found.end()..]
                .bytes()
                .take_while(|b| is_token_byte(*b))
                .count()
        } else {
            0
        };
        Some(start..start + found.end() + more)
    }

    /// Returns the first group of the shape at `start`, if it is a literal.
    pub(super) fn find_group(
        &self,
        text: &str,
        start: usize,
        ahead: &mut Lookahead,
    ) -> Option<Range<usize>> {
        if ends_in_word(&text.as_bytes()[..start]) {
            return None;
        }
        let near = text_near(text, start, MAX_LOOK_BYTES);
        ahead.charge(MAX_TEST_BYTES.min(near.len()));
        let secret = self.regex().captures(near)?.get(1)?;
        ahead.charge(near.len());
        let cut = secret.end() == near.len();
        let end = start + secret.end();
        let is_more = |byte: &u8| !byte.is_ascii_whitespace() && !b"\"'".contains(byte);
        let more = text.as_bytes()[end..]
            .iter()
            .take_while(|byte| is_more(byte));
        let more = if cut { more.count() } else { 0 };
        is_literal(secret.as_str()).then(|| start + secret.start()..end + more)
    }

    fn regex(&self) -> &Regex {
        self.regex
            .get_or_init(|| Regex::new(self.pattern).expect("the bundled shapes are valid"))
    }
}

/// Checks whether three parts with dots between them follow, as in every JSON web token.
fn has_token_parts(text: &[u8], start: usize, ahead: &mut Lookahead) -> bool {
    let first = ahead.find_next(SearchFor::TokenPartEnd, text, start, MAX_KEY_BYTES);
    if first - start > MAX_KEY_BYTES || text.get(first) != Some(&b'.') {
        return false;
    }
    let second = ahead.find_next(SearchFor::SecondPartEnd, text, first + 1, MAX_KEY_BYTES);
    second - start < MAX_KEY_BYTES && text.get(second) == Some(&b'.')
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.~+/=-".contains(&byte)
}

/// Checks whether `before` ends inside a word: `risk-…` is not `sk-…`. Escapes and colours are not
/// words.
fn ends_in_word(before: &[u8]) -> bool {
    let Some((last, rest)) = before.split_last() else {
        return false;
    };
    if !last.is_ascii_alphanumeric() {
        return false;
    }
    let hex = |count: usize, mark: &[u8]| {
        before.len() >= count + mark.len()
            && before[before.len() - count..]
                .iter()
                .all(u8::is_ascii_hexdigit)
            && before[..before.len() - count].ends_with(mark)
    };
    let escaped = matches!(last, b'n' | b't' | b'r' | b'f' | b'b') && rest.ends_with(b"\\");
    !(escaped || hex(2, b"%") || hex(4, b"\\u") || hex(2, b"\\x") || ends_in_colour(before))
}

/// Checks whether `before` ends in a sequence such as `ESC [ 3 2 m`.
fn ends_in_colour(before: &[u8]) -> bool {
    let Some(rest) = before.strip_suffix(b"m") else {
        return false;
    };
    let length = rest
        .iter()
        .rev()
        .take(16)
        .take_while(|b| b.is_ascii_digit() || **b == b';')
        .count();
    rest[..rest.len() - length].ends_with(b"[")
}
