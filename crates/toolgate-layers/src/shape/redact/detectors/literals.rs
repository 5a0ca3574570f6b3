//! Tells a literal from a variable, a placeholder or code, and random text from words.

use crate::shape::redact::scanner::is_secret_kind;

/// Checks whether a value is a literal: not empty, not a variable, not a placeholder, not already
/// redacted.
pub(in crate::shape::redact) fn is_literal(value: &str) -> bool {
    const WORDS: [&str; 10] = [
        "null",
        "none",
        "true",
        "false",
        "undefined",
        "string",
        "str",
        "password",
        "changeme",
        "redacted",
    ];
    !value.is_empty()
        && !is_placeholder(value)
        && !WORDS.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Checks whether the whole value is a variable or a placeholder.
fn is_placeholder(value: &str) -> bool {
    let word = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_ .-".contains(&b))
    };
    let within = |open: &str, close: &str| {
        value
            .strip_prefix(open)
            .and_then(|rest| rest.strip_suffix(close))
    };
    let variable = value.strip_prefix('$').is_some_and(|name| {
        name.is_empty()
            || name
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    });
    // Only a mask that we make, or text after its beginning would not be redacted. The end of a bare
    // value may lack the bracket.
    let masked = value
        .strip_prefix("[redacted:")
        .map(|rest| rest.strip_suffix(']').unwrap_or(rest));
    variable
        || within("${", "}").is_some()
        || within("$(", ")").is_some()
        || within("{{", "}}").is_some()
        || masked.is_some_and(is_secret_kind)
        || within("<", ">").is_some_and(word)
        || within("%", "%").is_some_and(word)
        || value.bytes().all(|b| b == b'*')
        || value.len() > 2
            && value
                .bytes()
                .all(|b| matches!(b, b'x' | b'X' | b'.' | b'-'))
        || ["process.env", "os.environ", "env."]
            .iter()
            .any(|begin| value.starts_with(begin) && is_code_word(value))
}

fn is_code_word(value: &str) -> bool {
    value
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_.[]'\"".contains(&b))
}

/// Checks for a plain word or a path of code such as `config.password` or `&str`, as it follows
/// `password:` in a program.
pub(super) fn is_word(value: &str) -> bool {
    value
        .bytes()
        .all(|b| b.is_ascii_alphabetic() || b"_.:&*|?!".contains(&b))
}

/// Checks whether a value looks randomly generated.
pub(super) fn looks_random(value: &str) -> bool {
    if value.len() < 12 || !is_literal(value) || value.contains(' ') || !has_variety(value) {
        return false;
    }
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    digits > 0 && letters > 0 && !is_path(value) && entropy(value) > 3.0
}

/// Checks for more than eight different bytes. With fewer, the entropy is at most three bits.
fn has_variety(value: &str) -> bool {
    let mut seen = [0_u64; 4];
    value
        .bytes()
        .for_each(|byte| seen[usize::from(byte / 64)] |= 1 << (byte % 64));
    seen.iter().map(|bits| bits.count_ones()).sum::<u32>() > 8
}

/// Checks for a path such as `src/auth/token.rs`, as opposed to base64 with slashes.
fn is_path(value: &str) -> bool {
    let parts = value.split(['/', '.']).filter(|part| !part.is_empty());
    let rooted = ["/", "./", "../", "~/"]
        .iter()
        .any(|root| value.starts_with(root));
    let separators = value.bytes().filter(|b| b"/.".contains(b)).count();
    (rooted || separators > 2)
        && parts
            .into_iter()
            .all(|part| part.len() <= 32 && !is_mixed(part))
}

/// Computes the entropy in bits per byte.
fn entropy(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    value
        .bytes()
        .for_each(|byte| counts[usize::from(byte)] += 1);
    let length = value.len() as f64;
    let share = |count: &&u32| f64::from(**count) / length;
    -counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| share(&count) * share(&count).log2())
        .sum::<f64>()
}

/// Checks for upper and lower case letters and digits, which no ordinary word has.
pub(super) fn is_mixed(text: &str) -> bool {
    let has = |test: fn(&u8) -> bool| text.as_bytes().iter().any(test);
    has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
}

/// Checks whether a part of the text is too long and too varied for a word.
pub(super) fn looks_generated(text: &str) -> bool {
    let varied = |part: &str| {
        part.bytes().any(|b| b.is_ascii_digit()) && part.bytes().any(|b| b.is_ascii_alphabetic())
    };
    is_mixed(text)
        || text
            .split(['-', '_'])
            .any(|part| part.len() >= 20 && varied(part))
}

/// Checks that the text after `Bearer` or `Basic` is not an ordinary word.
pub(super) fn is_credential(text: &str) -> bool {
    let value = text
        .split([' ', '\t', '\r', '\n', ':'])
        .rfind(|part| !part.is_empty())
        .unwrap_or_default();
    value.bytes().any(|b| b.is_ascii_digit()) || has_inner_capital(value) && value.len() >= 12
}

fn has_inner_capital(text: &str) -> bool {
    // A capital inside a word, not at its start.
    text.bytes().skip(1).any(|b| b.is_ascii_uppercase())
        && text.bytes().any(|b| b.is_ascii_lowercase())
}
