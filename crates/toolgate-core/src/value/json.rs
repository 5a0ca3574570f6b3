//! Shared, immutable JSON with a cached digest.

use std::{
    borrow::Cow,
    fmt,
    ops::Deref,
    str::FromStr,
    sync::{Arc, OnceLock},
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::value::digest::{Digest, canonical_digest};

/// The deepest nesting that Toolgate accepts, the same that `serde_json` parses.
pub const MAX_DEPTH: usize = 127;

/// A shared JSON value: cloning is cheap, and its digest and size are cached.
///
/// ```
/// use toolgate_core::Json;
/// let a = Json::new(serde_json::json!({ "b": 1, "a": 2.0 }))?;
/// let b: Json = r#"{"a":2,"b":1}"#.parse()?;
/// assert_eq!(a.digest(), b.digest());
/// # Ok::<(), toolgate_core::JsonError>(())
/// ```
#[derive(Clone)]
pub struct Json(Arc<SharedJson>);

struct SharedJson {
    value: Value,
    print: OnceLock<(Digest, usize)>,
}

impl Json {
    /// Wraps a value.
    ///
    /// # Errors
    ///
    /// [`JsonError::TooDeep`] if it is nested too deeply to be handled safely.
    pub fn new(value: Value) -> Result<Self, JsonError> {
        if !within_depth(&value, MAX_DEPTH) {
            drop_iteratively(value);
            return Err(JsonError::TooDeep);
        }
        Ok(Self::from_shallow(value))
    }

    /// Wraps a value that is known not to be nested deeply.
    pub(crate) fn from_shallow(value: Value) -> Self {
        Self(Arc::new(SharedJson {
            value,
            print: OnceLock::new(),
        }))
    }

    /// Returns JSON `null`.
    pub fn null() -> Self {
        static NULL: OnceLock<Json> = OnceLock::new();
        NULL.get_or_init(|| Self::from_shallow(Value::Null)).clone()
    }

    /// Borrows the value.
    pub fn as_value(&self) -> &Value {
        &self.0.value
    }

    /// Returns the SHA-256 digest of the canonical form (RFC 8785), computed once.
    pub fn digest(&self) -> Digest {
        self.digest_and_size().0
    }

    /// Returns the length of the canonical form in bytes, computed together with the digest.
    pub fn size(&self) -> usize {
        self.digest_and_size().1
    }

    /// Checks whether both are the same allocation: a cheap test that nothing changed.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn digest_and_size(&self) -> &(Digest, usize) {
        self.0.print.get_or_init(|| canonical_digest(&self.0.value))
    }
}

impl Deref for Json {
    type Target = Value;
    fn deref(&self) -> &Value {
        &self.0.value
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.0.value == other.0.value
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.value.fmt(f)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.value.fmt(f)
    }
}

impl TryFrom<Value> for Json {
    type Error = JsonError;
    fn try_from(value: Value) -> Result<Self, JsonError> {
        Self::new(value)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::from_shallow(text.into())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::from_shallow(text.into())
    }
}

impl FromStr for Json {
    type Err = JsonError;
    fn from_str(text: &str) -> Result<Self, JsonError> {
        serde_json::from_str(text)
            .map(Self::from_shallow)
            .map_err(JsonError::from_parse)
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.value.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Json {
    fn schema_name() -> Cow<'static, str> {
        "Json".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!(true)
    }
}

/// The reason a text or value was rejected as JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The text is not JSON.
    #[error("not JSON: {reason} at line {line}, column {column}")]
    Syntax {
        /// The parser's message; never a part of the text itself.
        reason: String,
        /// The line, counted from 1.
        line: usize,
        /// The column, counted from 1.
        column: usize,
    },
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Arguments have to be an object.
    #[error("expected an object, found {found}")]
    NotAnObject {
        /// The JSON type that was found.
        found: &'static str,
    },
    /// Larger than the runtime accepts.
    #[error("{size} bytes is more than the limit of {limit}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The largest accepted size in bytes.
        limit: usize,
    },
}

impl JsonError {
    fn from_parse(error: serde_json::Error) -> Self {
        let text = error.to_string();
        // `serde_json` has no error kind for this; a test notices if the text changes.
        if text.starts_with("recursion limit exceeded") {
            return Self::TooDeep;
        }
        let reason = text
            .split(" at line ")
            .next()
            .unwrap_or("syntax error")
            .to_owned();
        Self::Syntax {
            reason,
            line: error.line(),
            column: error.column(),
        }
    }
}

/// Returns the name of the JSON type of `value`.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Checks whether `value` is nested at most `left` levels deep.
pub fn within_depth(value: &Value, left: usize) -> bool {
    match value {
        Value::Array(items) => left > 0 && items.iter().all(|v| within_depth(v, left - 1)),
        Value::Object(map) => left > 0 && map.values().all(|v| within_depth(v, left - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Drops a value without recursion: the ordinary drop recurses and could overflow the stack.
fn drop_iteratively(value: Value) {
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) => rest.extend(items),
            Value::Object(map) => rest.extend(map.into_iter().map(|(_, v)| v)),
            _ => {}
        }
    }
}

/// The arguments of a call: a JSON object.
///
/// ```
/// use toolgate_core::Arguments;
/// let arguments = Arguments::parse(r#"{"path":"a.txt"}"#)?;
/// assert_eq!(arguments.get("path").and_then(|v| v.as_str()), Some("a.txt"));
/// assert!(Arguments::parse("[1]").is_err());
/// # Ok::<(), toolgate_core::JsonError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Arguments(Json);

impl Arguments {
    /// The largest arguments accepted from a model, in bytes.
    pub const MAX_BYTES: usize = 16 * 1024 * 1024;

    /// Parses arguments from text that a model wrote. Nothing is guessed: an empty text is not
    /// JSON.
    ///
    /// # Errors
    ///
    /// [`JsonError`] if the text is not JSON, not an object, too deep or too large.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        if text.len() > Self::MAX_BYTES {
            return Err(JsonError::TooLarge {
                size: text.len(),
                limit: Self::MAX_BYTES,
            });
        }
        Self::try_from(text.parse::<Json>()?)
    }

    /// Returns empty arguments: `{}`.
    pub fn empty() -> Self {
        static EMPTY: OnceLock<Json> = OnceLock::new();
        Self(
            EMPTY
                .get_or_init(|| Json::from_shallow(Value::Object(Map::new())))
                .clone(),
        )
    }

    /// Borrows the object.
    pub fn as_map(&self) -> &Map<String, Value> {
        self.0
            .as_object()
            .expect("constructors only accept objects")
    }

    /// Borrows the object as shared JSON.
    pub fn as_json(&self) -> &Json {
        &self.0
    }

    /// Returns the value of one argument.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_map().get(name)
    }

    /// Returns a copy with one argument set.
    ///
    /// # Errors
    ///
    /// [`JsonError::TooDeep`] if the value is nested too deeply.
    pub fn with_argument(&self, name: &str, value: Value) -> Result<Self, JsonError> {
        let mut map = self.as_map().clone();
        map.insert(name.to_owned(), value);
        Self::try_from(Value::Object(map))
    }

    /// Returns a copy without one argument.
    pub fn without_argument(&self, name: &str) -> Self {
        let mut map = self.as_map().clone();
        map.remove(name);
        // Removing a key cannot make the value deeper.
        Self(Json::from_shallow(Value::Object(map)))
    }

    /// Returns the digest of the canonical form.
    pub fn digest(&self) -> Digest {
        self.0.digest()
    }

    /// Checks whether both are the same allocation.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }
}

impl TryFrom<Json> for Arguments {
    type Error = JsonError;
    fn try_from(json: Json) -> Result<Self, JsonError> {
        match json.as_value() {
            Value::Object(_) => Ok(Self(json)),
            other => Err(JsonError::NotAnObject {
                found: type_name(other),
            }),
        }
    }
}

impl TryFrom<Value> for Arguments {
    type Error = JsonError;
    fn try_from(value: Value) -> Result<Self, JsonError> {
        Json::new(value)?.try_into()
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Json::deserialize(deserializer)?
            .try_into()
            .map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Arguments {
    fn schema_name() -> Cow<'static, str> {
        "Arguments".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_levels_are_rejected_without_overflowing_the_stack() {
        let deep = (0..10_000).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        assert_eq!(Json::new(deep), Err(JsonError::TooDeep));
        let text = "[".repeat(10_000) + &"]".repeat(10_000);
        assert_eq!(text.parse::<Json>(), Err(JsonError::TooDeep));
    }

    #[test]
    fn a_syntax_error_has_a_position_and_quotes_nothing() {
        let error = Arguments::parse("{\"token\": hunter2}").expect_err("not JSON");
        assert!(
            matches!(
                error,
                JsonError::Syntax {
                    line: 1,
                    column: 11,
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(!error.to_string().contains("hunter2"));
    }

    #[test]
    fn arguments_are_objects() {
        for (text, found) in [
            ("[]", "an array"),
            ("3", "a number"),
            ("null", "null"),
            ("\"{}\"", "a string"),
        ] {
            assert_eq!(
                Arguments::parse(text),
                Err(JsonError::NotAnObject { found })
            );
        }
        assert!(
            matches!(Arguments::parse("  "), Err(JsonError::Syntax { .. })),
            "malformed text never becomes {{}}"
        );
    }
}
