//! Finds the value that is assigned to a name: `password = …`, `--token …`, `"api_key": "…"`.

use std::ops::Range;

use super::{
    MAX_LOOK_BYTES, MAX_RANDOM_BYTES, MAX_TEST_BYTES, SecretStrength,
    literals::{is_literal, is_word, looks_random},
    private_keys::find_pem,
    secret_names::{is_flag, is_pagination_token, is_upper_name, is_working_directory},
    skip_bytes, text_near,
};
use crate::shape::redact::lookahead::{Lookahead, SearchFor};

/// Returns the value that is assigned to the name which ends with `name`.
pub(super) fn find_assigned(
    text: &str,
    name: Range<usize>,
    strength: SecretStrength,
    ahead: &mut Lookahead,
) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    if is_pagination_token(bytes, &name) {
        return None;
    }
    // `"password" : "…"`, `password = '…'`, `password=>…`, `\"password\":\"…\"`.
    let sign = skip_bytes(bytes, name.end, b"\"'\\] \t");
    let behind = match bytes.get(sign)? {
        b'=' | b':' => value_start(bytes, sign + 1),
        // `<password>…</password>`
        b'>' if sign == name.end => sign + 1,
        // `--password …`
        _ if sign == name.end + 1 && is_flag(bytes, &name) => sign,
        _ => return None,
    };
    let mark = skip_bytes(bytes, behind, b"\\");
    let quote = bytes
        .get(mark)
        .copied()
        .filter(|byte| b"\"'`".contains(byte));
    let start = mark + usize::from(quote.is_some());
    if text_near(text, start, 16).starts_with("-----BEGIN") {
        return find_pem(text, start, ahead);
    }
    let end = AssignedValue {
        text,
        name: name.start,
        start,
        quote,
        escaped: mark > behind,
    };
    // `PASSWORD=word` in a shell or a settings file is a value, not a word of code.
    let setting = sign == name.end
        && behind == sign + 1
        && bytes[sign] == b'='
        && is_upper_name(bytes, &name);
    let most = match strength {
        SecretStrength::Any => MAX_LOOK_BYTES,
        SecretStrength::Random => MAX_RANDOM_BYTES,
    };
    let plain = quote.is_none() && !setting;
    if plain && is_certainly_harmless(bytes, start, strength, ahead) {
        return None;
    }
    let value = end.value_text(most);
    ahead.charge(value.len());
    if is_working_directory(bytes, &name, value) {
        return None;
    }
    // `token = next_token()` is a call, `token: Token<'a>` a type.
    let code = quote.is_none()
        && is_word(value)
        && matches!(bytes.get(start + value.len()), Some(b'(' | b'<' | b'{'));
    let (scheme, credential) = split_scheme(value);
    let secret = match strength {
        SecretStrength::Random if scheme > 0 && credential.len() >= 8 => is_literal(credential),
        SecretStrength::Any => {
            is_literal(value)
                && is_literal(credential)
                && (quote.is_some() || setting || !is_word(value))
                && !value.starts_with(' ')
        }
        SecretStrength::Random => looks_random(credential),
    };
    if !secret || code {
        return None;
    }
    let length = if value.len() + 4 >= most {
        end.value_text(usize::MAX).len()
    } else {
        value.len()
    };
    Some(start + scheme..start + length)
}

/// Returns the start of a value after its sign: a string may be on the next line or in a list.
fn value_start(bytes: &[u8], behind: usize) -> usize {
    let here = skip_bytes(bytes, behind, b"=:> \t");
    let further = skip_bytes(bytes, here, b"[ \t\r\n");
    if matches!(bytes.get(further), Some(b'"' | b'\'')) {
        further
    } else {
        here
    }
}

/// Checks from a few remembered positions whether a bare value cannot be a secret: it is a word as
/// in code, or has no digit where only a random text counts.
fn is_certainly_harmless(
    bytes: &[u8],
    start: usize,
    strength: SecretStrength,
    ahead: &mut Lookahead,
) -> bool {
    let word_end = ahead.find_next(SearchFor::NonWord, bytes, start, MAX_LOOK_BYTES);
    // After `Bearer` the credential is the next word.
    let first = &bytes[start..word_end.min(start + "bearer".len())];
    let is_scheme = |scheme: &&str| first.eq_ignore_ascii_case(scheme.as_bytes());
    if bytes.get(word_end) == Some(&b' ') && SCHEMES.iter().any(is_scheme) {
        return false;
    }
    match strength {
        SecretStrength::Any => {
            let ends = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`<>\\({".contains(byte);
            word_end >= start + MAX_LOOK_BYTES || bytes.get(word_end).is_none_or(ends)
        }
        SecretStrength::Random => {
            let digit = ahead.find_next(SearchFor::Digit, bytes, start, MAX_RANDOM_BYTES);
            digit >= start + MAX_RANDOM_BYTES
        }
    }
}

/// Words before a credential.
const SCHEMES: [&str; 3] = ["bearer", "basic", "token"];

/// Splits off the scheme, which is kept so that a reader sees the kind of credential.
fn split_scheme(value: &str) -> (usize, &str) {
    let schemes = ["Bearer", "bearer", "Basic", "basic", "token", "Token"];
    let rest = schemes.iter().find_map(|scheme| value.strip_prefix(scheme));
    match rest.filter(|rest| rest.starts_with([' ', '\t'])) {
        Some(rest) => (value.len() - rest.len() + 1, &rest[1..]),
        None => (0, value),
    }
}

/// The search for the end of an assigned value.
struct AssignedValue<'a> {
    text: &'a str,
    name: usize,
    start: usize,
    quote: Option<u8>,
    /// True if the quote itself is escaped, as in JSON inside a text.
    escaped: bool,
}

impl<'a> AssignedValue<'a> {
    fn value_text(&self, most: usize) -> &'a str {
        let near = text_near(self.text, self.start, most);
        let length = match self.quote {
            Some(quote) => self.quoted_length(near.as_bytes(), quote),
            None => self.bare_length(near.as_bytes()),
        };
        &near[..near.floor_char_boundary(length)]
    }

    fn quoted_length(&self, bytes: &[u8], quote: u8) -> usize {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'\r' | b'\n' => return at,
                b'\\' if self.escaped => return at,
                b'\\' => at += 1,
                byte if *byte == quote => return at,
                _ => {}
            }
            at += 1;
        }
        bytes.len()
    }

    fn bare_length(&self, bytes: &[u8]) -> usize {
        let before = &self.text.as_bytes()[self.name.saturating_sub(MAX_TEST_BYTES)..self.name];
        let word = before
            .iter()
            .rev()
            .take_while(|byte| !byte.is_ascii_whitespace());
        let query = word.into_iter().any(|byte| b"?&".contains(byte));
        let ends = |at: usize| {
            bytes
                .get(at + 1)
                .is_none_or(|next| next.is_ascii_whitespace() || b",;)]}".contains(next))
        };
        let stop = |(at, byte): (usize, &u8)| match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' => true,
            b'&' => query,
            b',' | b';' | b')' | b'}' | b']' => ends(at),
            // The text so far may be the name of a function or type.
            b'(' | b'{' => std::str::from_utf8(&bytes[..at]).is_ok_and(is_word),
            _ => false,
        };
        let length = |from: usize| {
            bytes[from..]
                .iter()
                .enumerate()
                .position(|(at, byte)| stop((from + at, byte)))
        };
        let first = length(0).unwrap_or(bytes.len());
        // `Bearer` alone is not a credential; the word after it is.
        let scheme = SCHEMES
            .iter()
            .any(|word| bytes[..first].eq_ignore_ascii_case(word.as_bytes()));
        if !scheme || bytes.get(first) != Some(&b' ') {
            return first;
        }
        length(first + 1).map_or(bytes.len(), |length| first + 1 + length)
    }
}
