//! JSON Schemas for arguments: generated, compiled once, and checked with pointers and reasons.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, OnceLock},
};

use jsonschema::{PatternOptions, ValidationOptions, Validator};
use schemars::{JsonSchema, generate::SchemaSettings, transform::RecursiveTransform};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{Json, JsonError, value::schema_dialect as dialect};

/// A JSON Schema that is checked and compiled once and then shared.
///
/// References to other documents are never fetched: a schema with one is rejected.
///
/// ```
/// use toolgate_core::Schema;
/// let schema = Schema::new(serde_json::json!({
///     "type": "object",
///     "properties": { "n": { "type": "integer" } },
///     "required": ["n"],
/// }))?;
/// let problems = schema.check_value(&serde_json::json!({ "n": "one" })).unwrap_err();
/// assert_eq!(problems[0].pointer, "/n");
/// # Ok::<(), toolgate_core::SchemaError>(())
/// ```
#[derive(Clone)]
pub struct Schema(Arc<CompiledSchema>);

struct CompiledSchema {
    json: Json,
    validator: Validator,
}

/// The most problems reported for one value: a model needs a few to fix its call, not thousands.
const MAX_PROBLEMS: usize = 16;

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] if it is not a valid schema or refers to another document.
    pub fn new(schema: Value) -> Result<Self, SchemaError> {
        Self::compile(schema, jsonschema::options())
    }

    /// Compiles a generated schema, which is known to be valid.
    fn from_generated(schema: Value) -> Self {
        let options = if dialect::fits_draft7(&schema) {
            dialect::draft7_options()
        } else {
            jsonschema::options()
        };
        Self::compile(schema, options).expect("a generated schema is valid")
    }

    fn compile(schema: Value, options: ValidationOptions<'_>) -> Result<Self, SchemaError> {
        let json = Json::new(schema)?;
        // A third-party schema may contain any pattern, so backtracking is bounded.
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(100_000)
            .size_limit(1 << 20);
        let validator = options
            .offline()
            .with_pattern_options(patterns)
            .build(json.as_value());
        let validator =
            validator.map_err(|error| SchemaError::Invalid(error.masked().to_string()))?;
        Ok(Self(Arc::new(CompiledSchema { json, validator })))
    }

    /// Compiles a schema for arguments, whose root has to be an object.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] if it is not a valid schema of an object.
    pub fn for_arguments(schema: Value) -> Result<Self, SchemaError> {
        match schema.get("type") {
            None if schema.is_object() => Self::new(schema),
            Some(kind) if kind == "object" => Self::new(schema),
            _ => Err(SchemaError::NotAnObject),
        }
    }

    /// Generates the schema of a Rust type in a form that every provider accepts.
    pub fn for_type<T: JsonSchema>() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|s| {
            s.meta_schema = None;
            // Some providers reject `$ref`; only recursive types keep theirs.
            s.inline_subschemas = true;
        });
        let drop_title = |schema: &mut schemars::Schema| drop(schema.remove("title"));
        let generator = settings
            .with_transform(RecursiveTransform(drop_title))
            .into_generator();
        Self::from_generated(generator.into_root_schema_for::<T>().to_value())
    }

    /// Returns the schema of any object, for a tool that checks its arguments itself.
    pub fn any_object() -> Self {
        static ANY: OnceLock<Schema> = OnceLock::new();
        ANY.get_or_init(|| Self::from_generated(json!({ "type": "object" })))
            .clone()
    }

    /// Returns the schema as JSON.
    pub fn as_json(&self) -> &Json {
        &self.0.json
    }

    /// Checks whether both are the same compiled schema.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Checks a value.
    ///
    /// # Errors
    ///
    /// The problems. Each has a pointer and a reason but never contains a value.
    pub fn check_value(&self, value: &Value) -> Result<(), Vec<SchemaProblem>> {
        // The fast path: most arguments are valid, and collecting errors is slower.
        if self.0.validator.is_valid(value) {
            return Ok(());
        }
        // Masked, because a value may be a secret and the reason is shown to the model and logged.
        let problem = |error: jsonschema::ValidationError<'_>| SchemaProblem {
            pointer: error.instance_path().to_string(),
            reason: error.masked().to_string(),
        };
        Err(self
            .0
            .validator
            .iter_errors(value)
            .take(MAX_PROBLEMS)
            .map(problem)
            .collect())
    }

    /// Returns the parameters an object schema declares.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let properties = self.0.json.get("properties").and_then(Value::as_object);
        properties
            .into_iter()
            .flat_map(|map| map.keys().map(String::as_str))
    }

    /// Checks whether the schema declares a parameter, at its root or in one of its alternatives.
    pub fn mentions_parameter(&self, name: &str) -> bool {
        let declares = |part: &Map<String, Value>| {
            part.get("properties")
                .is_some_and(|known| known.get(name).is_some())
        };
        let (parts, _) = self.object_subschemas();
        parts.into_iter().any(declares)
    }

    /// Checks whether an object that matches still matches with one more parameter at the root.
    ///
    /// It does not if an alternative (`oneOf`, `anyOf`, `allOf`, `if`, …) or a reference restricts
    /// the parameters: such a part does not know of one that is added beside it. If this cannot be
    /// decided, the answer is no.
    pub fn accepts_more(&self) -> bool {
        let open = |part: &Map<String, Value>, key: &str| match part.get(key) {
            None | Some(Value::Bool(true)) => true,
            Some(Value::Object(rule)) => rule.is_empty(),
            Some(_) => false,
        };
        let any_name = |part: &Map<String, Value>| {
            open(part, "propertyNames") && !part.contains_key("maxProperties")
        };
        let any_more = |part: &Map<String, Value>| {
            open(part, "additionalProperties") && open(part, "unevaluatedProperties")
        };
        let (parts, all) = self.object_subschemas();
        // The root may be closed, because the parameter is added there.
        all && parts
            .iter()
            .enumerate()
            .all(|(at, part)| any_name(part) && (at == 0 || any_more(part)))
    }

    /// Returns the root and every other subschema of the same object, and whether the list is
    /// complete.
    fn object_subschemas(&self) -> (Vec<&Map<String, Value>>, bool) {
        let mut parts = Vec::new();
        let mut seen = HashSet::new();
        let mut all = true;
        let mut waiting: Vec<&Value> = vec![self.0.json.as_value()];
        while let Some(next) = waiting.pop() {
            let Value::Object(part) = next else { continue };
            // A reference may be cyclic.
            if !seen.insert(std::ptr::from_ref(part)) {
                continue;
            }
            parts.push(part);
            for key in ["oneOf", "anyOf", "allOf"] {
                waiting.extend(
                    part.get(key)
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten(),
                );
            }
            waiting.extend(
                ["if", "then", "else"]
                    .iter()
                    .filter_map(|key| part.get(*key)),
            );
            for key in ["dependentSchemas", "dependencies"] {
                waiting.extend(
                    part.get(key)
                        .and_then(Value::as_object)
                        .into_iter()
                        .flat_map(Map::values),
                );
            }
            if let Some(reference) = part.get("$ref") {
                let place = reference.as_str().and_then(|text| text.strip_prefix('#'));
                match place.and_then(|place| self.0.json.pointer(place)) {
                    Some(target) => waiting.push(target),
                    None => all = false,
                }
            }
            all &= !part.contains_key("$dynamicRef") && !part.contains_key("$recursiveRef");
        }
        (parts, all)
    }

    /// Returns a copy that also accepts `parameter`, or `None` if it already exists.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] if the schema is not one of an object, or the parameter is not valid.
    pub fn with_parameter(
        &self,
        name: &str,
        parameter: Value,
        required: bool,
    ) -> Result<Option<Self>, SchemaError> {
        if self.parameters().any(|known| known == name) {
            return Ok(None);
        }
        let mut schema = self.0.json.as_object().cloned().unwrap_or_default();
        schema.entry("type").or_insert_with(|| "object".into());
        let properties = schema
            .entry("properties")
            .or_insert_with(|| Value::Object(Map::new()));
        let properties = properties.as_object_mut().ok_or(SchemaError::NotAnObject)?;
        properties.insert(name.to_owned(), parameter);
        if required {
            let list = schema.entry("required").or_insert_with(|| json!([]));
            list.as_array_mut()
                .ok_or(SchemaError::NotAnObject)?
                .push(name.into());
        }
        Self::new(Value::Object(schema)).map(Some)
    }

    /// Returns the schema without a parameter at its root; itself if it does not have it.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] if another part of the schema refers to the parameter.
    pub(crate) fn without_parameter(&self, name: &str) -> Result<Self, SchemaError> {
        if !self.parameters().any(|known| known == name) {
            return Ok(self.clone());
        }
        let mut schema = self.0.json.as_object().cloned().unwrap_or_default();
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.remove(name);
        }
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|known| known != name);
        }
        Self::new(Value::Object(schema))
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.json.fmt(f)
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.0.json == other.0.json
    }
}

impl Serialize for Schema {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// One violation of a schema by a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SchemaProblem {
    /// The JSON pointer to the value; empty for the value as a whole.
    pub pointer: String,
    /// The violated rule.
    pub reason: String,
}

impl fmt::Display for SchemaProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() {
            "(arguments)"
        } else {
            &self.pointer
        };
        write!(f, "{place}: {}", self.reason)
    }
}

/// The reason a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// It is not a valid JSON Schema, or refers to another document.
    #[error("the schema cannot be used: {0}")]
    Invalid(String),
    /// Arguments are objects, so their schema has to describe one.
    #[error("the schema of arguments has to have \"type\": \"object\"")]
    NotAnObject,
    /// It is not acceptable JSON.
    #[error("the schema is {0}")]
    Json(#[from] JsonError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keywords_are_tolerated() {
        let schema = json!({ "type": "object", "x-vendor": { "any": ["thing"] }, "properties": { "a": { "hue": 3 } } });
        assert!(Schema::for_arguments(schema).is_ok());
    }

    #[test]
    fn a_remote_reference_is_rejected_and_never_fetched() {
        for reference in [
            "http://127.0.0.1:9/s.json",
            "https://example.com/s",
            "file:///etc/passwd",
        ] {
            let schema = json!({ "type": "object", "properties": { "a": { "$ref": reference } } });
            assert!(
                matches!(Schema::for_arguments(schema), Err(SchemaError::Invalid(_))),
                "{reference}"
            );
        }
    }

    #[test]
    fn the_root_of_arguments_is_an_object() {
        for bad in [
            json!({ "type": "array" }),
            json!(true),
            json!([]),
            json!({ "type": ["object", "null"] }),
        ] {
            assert_eq!(
                Schema::for_arguments(bad).err(),
                Some(SchemaError::NotAnObject)
            );
        }
        assert!(matches!(
            Schema::for_arguments(json!({ "type": "object", "required": 7 })),
            Err(SchemaError::Invalid(_))
        ));
    }

    #[test]
    fn problems_have_a_pointer_but_no_value() {
        let schema = json!({ "type": "object", "properties": { "key": { "type": "integer" } } });
        let schema = Schema::new(schema).expect("valid");
        let problems = schema
            .check_value(&json!({ "key": "hunter2" }))
            .expect_err("wrong type");
        assert_eq!(problems[0].pointer, "/key");
        assert!(
            !problems[0].reason.contains("hunter2"),
            "{}",
            problems[0].reason
        );
        assert!(problems[0].reason.contains("integer"));
    }

    #[test]
    fn a_hostile_pattern_cannot_hang_the_check() {
        let schema =
            json!({ "type": "object", "properties": { "a": { "pattern": "^(?=(a+)+$)(a+)+$" } } });
        let schema = Schema::new(schema).expect("compiles");
        let _ = schema.check_value(&json!({ "a": "a".repeat(5_000) + "!" }));
    }

    #[test]
    fn schemas_of_types_have_no_references_titles_or_meta_schema() {
        #[derive(JsonSchema)]
        #[allow(dead_code)]
        struct Inner {
            /// How many.
            n: u8,
        }
        #[derive(JsonSchema)]
        #[allow(dead_code)]
        struct Outer {
            one: Inner,
            two: Option<Inner>,
        }
        let text = Schema::for_type::<Outer>().as_json().to_string();
        for word in ["$ref", "$schema", "title", "$defs"] {
            assert!(!text.contains(word), "{word} in {text}");
        }
        assert!(text.contains("How many."));
    }

    #[test]
    fn closed_alternatives_and_references_accept_no_more_parameters() {
        let takes_more = |schema: Value| Schema::new(schema).expect("valid").accepts_more();
        let closed = json!({ "properties": { "a": {} }, "additionalProperties": false });
        let open = json!({ "properties": { "a": { "additionalProperties": false } }, "additionalProperties": true });
        for (key, part) in [
            ("oneOf", json!([open, closed])),
            ("anyOf", json!([closed])),
            ("then", closed.clone()),
        ] {
            assert!(!takes_more(json!({ "type": "object", key: part })), "{key}");
        }
        assert!(!takes_more(
            json!({ "allOf": [{ "oneOf": [{ "unevaluatedProperties": false }] }] })
        ));
        assert!(!takes_more(
            json!({ "oneOf": [{ "additionalProperties": { "type": "integer" } }] })
        ));
        assert!(!takes_more(
            json!({ "$ref": "#/$defs/x", "$defs": { "x": closed } })
        ));
        assert!(!takes_more(json!({ "propertyNames": { "enum": ["a"] } })));
        assert!(
            !takes_more(json!({ "$ref": "#named", "$defs": { "x": { "$anchor": "named" } } })),
            "cannot be told"
        );
        assert!(takes_more(closed.clone()), "the root is where one is added");
        assert!(takes_more(
            json!({ "oneOf": [open, { "required": ["a"] }], "additionalProperties": false })
        ));
        assert!(
            takes_more(json!({ "properties": { "nested": { "oneOf": [closed] } } })),
            "another object"
        );
        assert!(
            takes_more(json!({ "allOf": [{ "$ref": "#" }], "additionalProperties": false })),
            "ends"
        );
        assert!(takes_more(
            json!({ "$ref": "#/$defs/x", "$defs": { "x": open } })
        ));
    }

    #[test]
    fn a_parameter_of_an_alternative_is_mentioned() {
        let schema = json!({ "properties": { "a": { "properties": { "b": {} } } }, "oneOf": [{ "properties": { "c": {} } }] });
        let schema = Schema::new(schema).expect("valid");
        assert_eq!(
            ["a", "b", "c"].map(|name| schema.mentions_parameter(name)),
            [true, false, true]
        );
    }

    #[test]
    fn injecting_a_parameter_twice_adds_it_once() {
        let schema = Schema::any_object();
        let once = schema
            .with_parameter("reason", json!({ "type": "string" }), true)
            .expect("valid")
            .expect("added");
        assert!(once.check_value(&json!({})).is_err());
        assert!(once.check_value(&json!({ "reason": "x" })).is_ok());
        assert!(
            once.with_parameter("reason", json!({ "type": "integer" }), true)
                .expect("valid")
                .is_none()
        );
    }
}
