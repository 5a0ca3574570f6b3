//! Canonical digests: the same JSON always has the same one, and no two different values share one.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::value::pointer::within_pointer;

/// The largest integer up to which every integer has a double of its own.
pub(crate) const MAX_EXACT_INTEGER: u64 = 1 << 53;

/// A SHA-256 digest, written `sha256:<hex>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    const PREFIX: &'static str = "sha256:";

    /// Hashes plain bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Wraps a digest that was stored as bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Borrows the 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        f.write_str(Self::PREFIX)?;
        // Written as a whole: every receipt and approval request has several digests.
        let mut hex = [0; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&hex).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error for text that is not `sha256:` followed by 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest has the form sha256: and 64 lower-case hex digits")]
pub struct InvalidDigest;

impl FromStr for Digest {
    type Err = InvalidDigest;
    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let hex = text
            .strip_prefix(Self::PREFIX)
            .ok_or(InvalidDigest)?
            .as_bytes();
        let nibble = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(InvalidDigest),
        };
        if hex.len() != 64 {
            return Err(InvalidDigest);
        }
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(digest))
    }
}

crate::value::text::serde_as_text!(Digest);

impl JsonSchema for Digest {
    fn schema_name() -> Cow<'static, str> {
        "Digest".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" })
    }
}

/// Returns the digest and the length of the canonical form.
///
/// RFC 8785 writes numbers as doubles, so integers beyond 2^53 would share a digest with their
/// neighbours. Those are hashed as strings, and the places where that was done are hashed too; the
/// zero byte in between cannot occur in canonical JSON, so no two different values have the same
/// input.
pub(crate) fn canonical_digest(value: &Value) -> (Digest, usize) {
    let bytes = if is_plain(value) {
        // `serde_json` writes such a value canonically, at a third of the cost; most calls are like
        // this.
        serde_json::to_vec(value).expect("a JSON value can be written")
    } else if has_wide_integer(value) {
        return wide_digest(value);
    } else {
        canonical_bytes(value)
    };
    (Digest::of_bytes(&bytes), bytes.len())
}

/// Returns the canonical form (RFC 8785) of a value: the same value always has the same text.
///
/// Integers beyond 2^53 would be rounded in that form and are written as text instead.
///
/// ```
/// use toolgate_core::canonical_json;
/// assert_eq!(canonical_json(&serde_json::json!({ "b": 1.0, "a": [1e2] })), r#"{"a":[100],"b":1}"#);
/// ```
pub fn canonical_json(value: &Value) -> String {
    let bytes = if is_plain(value) {
        serde_json::to_vec(value).expect("a JSON value can be written")
    } else if has_wide_integer(value) {
        let mut copy = value.clone();
        stringify_wide_integers(&mut copy, &mut String::new(), &mut Vec::new());
        canonical_bytes(&copy)
    } else {
        canonical_bytes(value)
    };
    String::from_utf8(bytes).expect("JSON is written as UTF-8")
}

/// Checks whether a text is an object as [`canonical_json`] writes it.
pub(crate) fn is_canonical_object(text: &str) -> bool {
    let object = serde_json::from_str::<Value>(text)
        .ok()
        .filter(Value::is_object);
    // A double beyond 2^53 is written without a point and parsed as an integer, which would be
    // written as text. As a double it gives the same text again, unless it was an integer that a
    // double cannot hold.
    object.is_some_and(|object| {
        canonical_json(&object) == text || canonical_bytes(&object) == text.as_bytes()
    })
}

fn canonical_bytes(value: &Value) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value).expect("a JSON value can be written")
}

fn wide_digest(value: &Value) -> (Digest, usize) {
    let mut copy = value.clone();
    let mut places = Vec::new();
    stringify_wide_integers(&mut copy, &mut String::new(), &mut places);
    let mut bytes = canonical_bytes(&copy);
    let size = bytes.len();
    bytes.push(0);
    bytes.extend(canonical_bytes(&Value::from(places)));
    (Digest::of_bytes(&bytes), size)
}

/// Checks whether `serde_json` writes the value as RFC 8785 does: no numbers but small integers,
/// and keys that are ASCII and sorted (a build with `preserve_order` keeps them in any order).
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => !number.is_f64() && !is_wide(number),
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(map) => {
            let mut before: Option<&str> = None;
            map.iter().all(|(key, value)| {
                let in_order = key.is_ascii() && before.is_none_or(|before| before < key.as_str());
                before = Some(key);
                in_order && is_plain(value)
            })
        }
    }
}

fn is_wide(number: &serde_json::Number) -> bool {
    number.as_u64().is_some_and(|n| n > MAX_EXACT_INTEGER)
        || number
            .as_i64()
            .is_some_and(|n| n.unsigned_abs() > MAX_EXACT_INTEGER)
}

fn has_wide_integer(value: &Value) -> bool {
    match value {
        Value::Number(number) => is_wide(number),
        Value::Array(items) => items.iter().any(has_wide_integer),
        Value::Object(map) => map.values().any(has_wide_integer),
        _ => false,
    }
}

fn stringify_wide_integers(value: &mut Value, at: &mut String, places: &mut Vec<String>) {
    match value {
        Value::Number(number) if is_wide(number) => {
            places.push(at.clone());
            *value = Value::String(number.to_string());
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                within_pointer(at, &index.to_string(), |at| {
                    stringify_wide_integers(item, at, places)
                });
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                within_pointer(at, key, |at| stringify_wide_integers(item, at, places));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Json;
    use serde_json::json;

    fn digest(value: Value) -> Digest {
        Json::new(value).expect("shallow").digest()
    }

    #[test]
    fn key_order_and_number_spelling_do_not_change_a_digest() {
        let text: Json = r#"{ "b": [1.0, "é"], "a": 1e2 }"#.parse().expect("valid");
        assert_eq!(text.digest(), digest(json!({ "a": 100, "b": [1, "é"] })));
        // printf '%s' '{"a":100,"b":[1,"é"]}' | sha256sum
        assert_eq!(
            text.digest().to_string(),
            "sha256:68d2a15bf60f036a68a7db5db4fec5f116fd278fce58c2ee2cebfa28a05fb992"
        );
    }

    #[test]
    fn the_fast_path_writes_the_same_canonical_form() {
        let plain = [
            json!(null),
            json!([true, -1, 0, 9_007_199_254_740_992_u64]),
            json!({ "": "", "a": "\u{7f}\u{1}\n\"\\/é\u{1f600}\u{2028}", "b": { "B": [], "b": {} } }),
        ];
        for value in plain {
            assert!(is_plain(&value), "{value}");
            assert_eq!(
                serde_json::to_vec(&value).expect("writes"),
                canonical_bytes(&value),
                "{value}"
            );
        }
        for other in [
            json!(1.5),
            json!(1e21),
            json!({ "é": 1 }),
            json!([9_007_199_254_740_993_u64]),
        ] {
            assert!(!is_plain(&other), "{other}");
        }
    }

    #[test]
    fn large_integers_never_share_a_digest() {
        let all = [
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_992_u64),
            json!(9_007_199_254_740_994_u64),
            json!("9007199254740993"),
            json!(-9_007_199_254_740_993_i64),
            json!(1_234_567_890_123_456_800_i64),
            json!(1.234_567_890_123_456_7e18),
            json!([9_007_199_254_740_993_u64, "9007199254740993"]),
            json!(["9007199254740993", 9_007_199_254_740_993_u64]),
        ];
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert_ne!(digest(a.clone()), digest(b.clone()), "{a} and {b}");
            }
        }
    }

    #[test]
    fn a_canonical_text_round_trips_and_keeps_wide_integers() {
        let text = canonical_json(
            &json!({ "é": 9_007_199_254_740_993_u64, "a": [1.5, 1e21, -0.0], "b": "\u{1}" }),
        );
        assert_eq!(
            text,
            r#"{"a":[1.5,1e+21,0],"b":"\u0001","é":"9007199254740993"}"#
        );
        assert!(is_canonical_object(&text));
        for other in [
            r#"{"b":1,"a":1}"#,
            r#"{"a":1.0}"#,
            r#"{"a":1,"a":1}"#,
            r#"{"a":1} "#,
            "[]",
            "{",
        ] {
            assert!(!is_canonical_object(other), "{other}");
        }
    }

    #[test]
    fn what_is_written_canonically_is_canonical_whatever_its_numbers_are() {
        for number in [
            json!(1e16),
            json!(-1e16),
            json!(9_199_254_740_974_092.0),
            json!(1.5e19),
            json!(1e20),
            json!(2e21),
            json!(9_007_199_254_740_994.0),
            json!(9_007_199_254_740_993_u64),
            json!(u64::MAX),
            json!(i64::MIN),
        ] {
            let text = canonical_json(&json!({ "n": [number] }));
            assert!(is_canonical_object(&text), "{text}");
        }
        // No double has this value, so nothing of ours writes it without quotes.
        assert!(!is_canonical_object(r#"{"n":9007199254740993}"#));
    }

    #[test]
    fn digests_round_trip_as_text() {
        let one = Digest::of_bytes(b"x");
        assert_eq!(one.to_string().parse(), Ok(one));
        assert!("sha256:zz".parse::<Digest>().is_err());
    }

    proptest::proptest! {
        #[test]
        fn plain_text_and_integers_are_canonical_as_they_stand(
            texts in proptest::collection::btree_map("[ -~]{0,6}", ".{0,12}", 0..6), number: i32,
        ) {
            let value = json!({ "number": number, "texts": texts });
            proptest::prop_assert!(is_plain(&value));
            proptest::prop_assert_eq!(serde_json::to_vec(&value).expect("writes"), canonical_bytes(&value));
        }
    }
}
