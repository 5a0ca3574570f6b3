//! Finds private keys in PEM armour.

use std::ops::Range;

use super::{MAX_KEY_BYTES, text_near};
use crate::shape::redact::lookahead::{Lookahead, SearchFor};

/// Returns the armour of a private key, up to its end or to where it is truncated.
pub(super) fn find_pem(text: &str, start: usize, ahead: &mut Lookahead) -> Option<Range<usize>> {
    const BEGIN: usize = "-----BEGIN".len();
    let rest = text_near(text, start, MAX_KEY_BYTES);
    let header = BEGIN + text_near(rest, BEGIN, 72).find("-----")?;
    if !rest[..header].contains("PRIVATE KEY") {
        return None;
    }
    let body = header + 5;
    let last = ahead.find_next(
        SearchFor::KeyEnd,
        text.as_bytes(),
        start + body,
        rest.len() - body,
    );
    let last = Some(last - start)
        .filter(|at| rest.get(*at..).is_some_and(|it| it.starts_with("-----END")));
    let end = match last {
        Some(end) => {
            let end = end + "-----END".len();
            text_near(rest, end, 72)
                .find("-----")
                .map_or(end, |length| end + length + 5)
        }
        None => truncated_key_end(text, start + body, ahead) - start,
    };
    Some(start..start + end)
}

/// Returns where the body of a key ends whose last line is missing: everything that can belong to a
/// key, also with line numbers or marks before its lines, and lines that end like those of a key,
/// whatever is before (`a/key.txt-2-MIIE…`).
fn truncated_key_end(text: &str, body: usize, ahead: &mut Lookahead) -> usize {
    // Shorter ones end in an ordinary word.
    const MIN_LINE_BYTES: usize = 32;
    // So many bytes of a line are examined from its end on.
    const MAX_TAIL_BYTES: usize = 256;
    let encoded = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let key = |c: char| encoded(c) || c.is_ascii_whitespace() || "\\:,-|>".contains(c);
    let mut end = body;
    loop {
        end += text[end..].find(|c| !key(c)).unwrap_or(text.len() - end);
        let line_end = ahead.find_next(SearchFor::LineEnd, text.as_bytes(), end, MAX_KEY_BYTES);
        let line_end = text.floor_char_boundary(line_end);
        let tail_start = line_end.saturating_sub(MAX_TAIL_BYTES).max(end);
        let rest = text[text.ceil_char_boundary(tail_start)..line_end].trim_end();
        ahead.charge(rest.len());
        let tail = rest.len() - rest.trim_end_matches(encoded).len();
        if tail < MIN_LINE_BYTES {
            return end;
        }
        end = line_end;
    }
}

/// Checks whether text that follows can no longer change what is found of a private key.
pub(super) fn is_pem_decided(text: &str, start: usize) -> bool {
    // Room for the header and the footer.
    const ROOM: usize = 128;
    let rest = &text[start..];
    if rest.len() >= MAX_KEY_BYTES + ROOM {
        return true;
    }
    let near = &rest["-----BEGIN".len()..];
    match near.find("-----") {
        None => near.len() > ROOM,
        Some(header) if !near[..header].contains("PRIVATE KEY") => true,
        Some(header) => near[header..]
            .find("-----END")
            .is_some_and(|footer| near.len() - header - footer > ROOM),
    }
}
