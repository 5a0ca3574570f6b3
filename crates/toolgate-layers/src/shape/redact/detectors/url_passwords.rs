//! Finds the password in `scheme://user:password@host`.

use std::ops::Range;

use super::{
    MAX_LOOK_BYTES,
    literals::{is_literal, looks_random},
    text_near,
};
use crate::shape::redact::lookahead::{Lookahead, SearchFor};

/// Returns the password in `user:password@host`; `start` is after `://`.
pub(super) fn find_url_password(
    text: &str,
    start: usize,
    ahead: &mut Lookahead,
) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let url_end = ahead.find_next(SearchFor::UrlEnd, bytes, start, MAX_LOOK_BYTES);
    let at = ahead.find_next(SearchFor::At, bytes, start, MAX_LOOK_BYTES);
    if at >= url_end.min(start + MAX_LOOK_BYTES) {
        return None;
    }
    let whole = text_near(text, start, MAX_LOOK_BYTES.min(url_end - start));
    ahead.charge(whole.len());
    let until = |stops: &str| {
        let end = whole
            .find(|c: char| c.is_whitespace() || stops.contains(c))
            .unwrap_or(whole.len());
        whole[..end].rfind('@').map(|at| &whole[..at])
    };
    // A password may contain characters that should have been escaped; but after a port begins a
    // path, and an `@` in it is part of it.
    let strict = until("/?#\"'<>`\\");
    let loose = || {
        until("\"'<>`").filter(|info| {
            !info
                .split_once(':')
                .is_some_and(|(_, rest)| begins_with_port(rest))
        })
    };
    let info = strict.or_else(loose)?;
    // A mark has a colon of its own, which separates nothing.
    let colon = info
        .match_indices(':')
        .map(|(at, _)| at)
        .find(|at| !info[..*at].ends_with("[redacted"));
    let (at, password) = match colon {
        Some(colon) => (colon + 1, &info[colon + 1..]),
        // A token instead of the user.
        None => (0, info),
    };
    let secret = if at > 0 {
        is_literal(password)
    } else {
        looks_random(password)
    };
    secret.then(|| start + at..start + at + password.len())
}

fn begins_with_port(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && !matches!(text.as_bytes().get(digits), Some(byte) if byte.is_ascii_alphanumeric())
}
