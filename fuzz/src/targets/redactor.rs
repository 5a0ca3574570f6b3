//! Redaction: a planted secret never survives, whatever stands around it, and the rest of the text
//! stays.

use std::sync::LazyLock;

use serde_json::{Value, json};
use toolgate_layers::{SecretScanner, SecretScannerOptions};

use crate::{FuzzTarget, InputTrace, MemoryBound};

pub(super) const TARGET: FuzzTarget = FuzzTarget::new("redactor", run, WORDS)
    .with_max_bytes(64 << 10)
    .with_memory(MemoryBound {
        base: 24 << 20,
        per_byte: 64,
    });

const WORDS: &[&str] = &[
    "password",
    "password=",
    "password: ",
    "passwd",
    "pwd=",
    "PWD=",
    "secret",
    "secret_key=",
    "token=",
    "token",
    "api_key",
    "Authorization: ",
    "bearer ",
    "Bearer",
    "basic ",
    "cookie: ",
    "Set-Cookie: a=b; ",
    "://",
    "https://a:b@",
    ":\\/\\/",
    "@",
    "-----BEGIN",
    "-----BEGIN PRIVATE KEY-----\n",
    "-----END PRIVATE KEY-----",
    "ghp_",
    "sk-",
    "sk-ant-",
    "AKIA",
    "eyJ",
    "SG.",
    "xoxb-",
    "AIza",
    "hvs.",
    "key-",
    "[redacted:",
    "[redacted:known]",
    "]",
    "=",
    ":",
    "\"",
    "'",
    "{",
    "}",
    ",",
    ";",
    "\n",
    " ",
    "\\n",
    "\\\"",
    "$",
    "${",
    "<",
    ">",
    "correct-horse-battery",
    "correct-horse",
    "correct",
    "0123456789abcdef",
    "aB3aB3aB3aB3",
    "credential",
    "private_key",
    "é",
    "/",
];

/// The beginning of every mark.
const MARK: &str = "[redacted:";

const KNOWN: &str = "correct-horse-battery";

/// Secrets that are found by their shape.
const SHAPED: [&str; 8] = [
    "ghp_R3dK1tt3nS1tsOnTh3MatAllDayLong1234A",
    "sk-ant-api03-Kx81nQz0PmW4vT7rY2bL9cD5fG",
    "AKIAQ4ZK7PXW2M9BTR3V",
    "xoxb-2847561930-AbCdEfGhIj0123456789",
    "glpat-x7Kq2ZpW9vTb4LmN8sRd",
    "npm_Ab3dEf6hIj9lMn2pQr5tUv8xYz1bCd4fGh7j",
    "AIzaSyB3kQ9vX2mT7wL4pR8nD1cF6gH0jK5sZ_a",
    "hvs.CAESIJx8Kq2ZpW9vTb4LmN8sRdYcGh4KHGh2",
];

static SCANNER: LazyLock<SecretScanner> = LazyLock::new(|| {
    SecretScanner::with_options(SecretScannerOptions::default(), [KNOWN.to_owned()])
});

fn run(data: &[u8]) -> InputTrace {
    let Some((choice, rest)) = data.split_first() else {
        return InputTrace::NOTHING;
    };
    let text = String::from_utf8_lossy(rest);
    let at = text.floor_char_boundary(text.len() / 2);
    let (before, after) = text.split_at(at);
    let secret = SHAPED[usize::from(*choice) % SHAPED.len()];
    for (secret, planted) in [
        (KNOWN, format!("{before}{KNOWN}{after}")),
        (secret, format!("{before}\n{secret}\n{after}")),
    ] {
        let redacted = SCANNER.redact_str(&planted);
        assert!(
            !redacted.contains(secret),
            "{secret} survives in {redacted:?}"
        );
        if !planted.contains(MARK) {
            assert!(
                keeps_text(&planted, &redacted),
                "text was changed: {redacted:?}"
            );
        }
        let value = json!({ "list": [{ "text": planted }], (before): planted });
        let value = SCANNER.redacted_value(&value).unwrap_or(value);
        assert!(!holds(&value, secret), "{secret} survives in {value}");
    }
    let redacted = SCANNER.redact_str(&text);
    let kinds: Vec<&str> = redacted
        .split("[redacted:")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(']')?.0))
        .take(3)
        .collect();
    InputTrace::of((kinds, redacted.len().cmp(&text.len())))
}

/// Checks whether a text or a key of the value contains `secret`.
fn holds(value: &Value, secret: &str) -> bool {
    match value {
        Value::String(text) => text.contains(secret),
        Value::Array(items) => items.iter().any(|item| holds(item, secret)),
        Value::Object(map) => map.iter().any(|(_, item)| holds(item, secret)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Checks whether everything between the marks is as it was, in its order.
fn keeps_text(mut text: &str, redacted: &str) -> bool {
    let (first, marked) = redacted.split_once(MARK).unwrap_or((redacted, ""));
    let after_marks = marked
        .split(MARK)
        .map(|part| part.split_once(']').map_or("", |(_, rest)| rest));
    [first]
        .into_iter()
        .chain(after_marks)
        .all(|piece| match text.find(piece) {
            Some(at) => {
                text = &text[at + piece.len()..];
                true
            }
            None => false,
        })
}
