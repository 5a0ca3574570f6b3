//! Canonical JSON, against an implementation that was written from RFC 8785 for this comparison.

use serde_json::Value;
use toolgate_core::{Json, LedgerHead, LedgerName, LedgerVerification, canonical_json};

use crate::{FuzzTarget, InputTrace};

pub(super) const TARGET: FuzzTarget = FuzzTarget::new("canonical_json", run, WORDS);

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"a\":",
    "\"b\":",
    "\"\":",
    "\"é\":",
    "\"\\ud83d\\ude00\":",
    "\"\u{ffff}\":",
    "\"\u{1f600}\":",
    "null",
    "true",
    "false",
    "1",
    "-0",
    "-0.0",
    "1.0",
    "1e21",
    "1e20",
    "1e-6",
    "1e-7",
    "123456789012345680000",
    "0.000001",
    "9007199254740991",
    "9007199254740992",
    "9007199254740993",
    "-9007199254740993",
    "18446744073709551615",
    "5e-324",
    "1.7976931348623157e308",
    "333333333.33333329",
    "1e23",
    "4.5",
    "2e-3",
    "\"\\u0000\"",
    "\"\\u007f\"",
    "\"\\u2028\"",
    "\"\\n\"",
    "\"\\b\\f\"",
    "\"\\\\\"",
    "\"/\"",
    " ",
];

fn run(data: &[u8]) -> InputTrace {
    let Ok(value) = serde_json::from_slice::<Value>(data) else {
        return InputTrace::NOTHING;
    };
    let canonical = canonical_json(&value);
    let mut expected = String::new();
    write_value(&value, &mut expected);
    assert_eq!(canonical, expected, "two canonical forms of one value");
    let again: Value = serde_json::from_str(&canonical).expect("canonical JSON is JSON");
    let body = format!("{{\"v\":{canonical}}}");
    let entry = LedgerHead::start_of(LedgerName::main()).seal_entry(body.into());
    let verified = LedgerVerification::from_start(LedgerName::main()).verify_entry(&entry);
    assert_eq!(
        verified,
        Ok(()),
        "a ledger does not accept what was written canonically"
    );
    let json = Json::new(value).expect("what was parsed is not too deep");
    assert_eq!(
        json.size(),
        canonical.len(),
        "the size is not that of the canonical form"
    );
    let wide = json.digest() != Json::new(again).expect("as deep").digest();
    InputTrace::of((
        std::mem::discriminant(json.as_value()),
        wide,
        canonical.len().ilog2(),
    ))
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::String(text) => write_text(text, out),
        Value::Number(number) => {
            let integer = number
                .as_i64()
                .map(i128::from)
                .or_else(|| number.as_u64().map(i128::from));
            match integer {
                Some(integer) if integer.unsigned_abs() > 1 << 53 => {
                    out.push_str(&format!("\"{integer}\""));
                }
                Some(integer) => out.push_str(&integer.to_string()),
                None => write_double(number.as_f64().expect("neither kind of integer"), out),
            }
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<(Vec<u16>, &str, &Value)> = map
                .iter()
                .map(|(key, value)| (key.encode_utf16().collect(), key.as_str(), value))
                .collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            out.push('{');
            for (at, (_, key, value)) in entries.into_iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_text(key, out);
                out.push(':');
                write_value(value, out);
            }
            out.push('}');
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Writes a number as ECMAScript does. The shortest digits come from the standard library.
fn write_double(number: f64, out: &mut String) {
    if number == 0.0 {
        out.push('0');
        return;
    }
    if number < 0.0 {
        out.push('-');
    }
    let (digits, exponent) = shortest_digits(number.abs());
    // The position of the decimal point, counted from the first digit.
    let point = exponent + 1;
    let count = i32::try_from(digits.len()).expect("at most 17");
    let zeros = |n: i32| "0".repeat(usize::try_from(n).unwrap_or_default());
    let split = |at: i32| digits.split_at(usize::try_from(at).unwrap_or_default());
    out.push_str(&match point {
        _ if count <= point && point <= 21 => format!("{digits}{}", zeros(point - count)),
        1..=21 => format!("{}.{}", split(point).0, split(point).1),
        -5..=0 => format!("0.{}{digits}", zeros(-point)),
        _ => {
            let (first, rest) = split(1);
            let dot = if rest.is_empty() { "" } else { "." };
            let sign = if exponent < 0 { "-" } else { "+" };
            format!("{first}{dot}{rest}e{sign}{}", exponent.abs())
        }
    });
}

/// Returns the shortest digits that stand for the number, and the exponent of the first one.
fn shortest_digits(number: f64) -> (String, i32) {
    let (digits, exponent) = split_scientific(&format!("{number:e}"));
    // Where two of them are as near, ECMAScript wants the even one and the standard library the
    // larger one. The exact digits show it: a five, and zeros.
    let (exact, _) = split_scientific(&format!("{number:.770e}"));
    let (cut, rest) = exact.split_at(digits.len());
    let is_tie = rest.starts_with('5') && rest[1..].bytes().all(|digit| digit == b'0');
    let is_even = |digits: &str| digits.ends_with(['0', '2', '4', '6', '8']);
    let stands_for_it = || {
        let scale = exponent - i32::try_from(cut.len()).unwrap_or_default() + 1;
        format!("{cut}e{scale}").parse() == Ok(number)
    };
    if is_tie && is_even(cut) && stands_for_it() {
        (cut.to_owned(), exponent)
    } else {
        (digits, exponent)
    }
}

fn split_scientific(text: &str) -> (String, i32) {
    let (mantissa, exponent) = text.split_once('e').expect("it was written with one");
    let digits = mantissa.chars().filter(|c| *c != '.').collect();
    (
        digits,
        exponent.parse().expect("it was written as a number"),
    )
}
