//! Finds the values in headers of cookies.

use std::ops::Range;

use super::{MAX_LOOK_BYTES, skip_bytes, text_near};
use crate::shape::redact::lookahead::{Lookahead, SearchFor};

/// Returns the values of a cookie header, up to the end of the line or string; `start` is after the
/// name.
pub(super) fn find_cookie(text: &str, start: usize, ahead: &mut Lookahead) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let sign = skip_bytes(bytes, start, b"\"'\\ \t");
    let value = match bytes.get(sign)? {
        b':' => skip_bytes(bytes, sign + 1, b"\"'\\ \t"),
        _ => return None,
    };
    let equals = ahead.find_next(SearchFor::EqualsSign, bytes, value, MAX_LOOK_BYTES);
    if equals >= value + MAX_LOOK_BYTES {
        return None;
    }
    let looks = text_near(text, value, MAX_LOOK_BYTES);
    // A quote ends the value only where a string can end; a cookie may contain quotes.
    let line = |text: &str| {
        let after = |at: usize| {
            text.as_bytes()
                .get(at + 1)
                .is_none_or(|b| b.is_ascii_whitespace() || b",;)}]".contains(b))
        };
        let ends = |(at, c): (usize, char)| {
            matches!(c, '\r' | '\n' | '\\') || matches!(c, '"' | '\'') && after(at)
        };
        text.char_indices()
            .find(|found| ends(*found))
            .map_or(text.len(), |(at, _)| at)
    };
    let begin = &looks[..line(looks)];
    ahead.charge(begin.len());
    if !begin.contains('=') || begin.starts_with('[') {
        return None;
    }
    let length = text[value..][..line(&text[value..])].trim_end().len();
    Some(value..value + length)
}
