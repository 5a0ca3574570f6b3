//! Schemas that mean the same in an older dialect of JSON Schema.
//!
//! Before the compiler of schemas takes its first one, it compiles the schema of schemas. That of the newest dialect takes
//! longer than all else that a program does until its first call; that of draft 7 takes a third. Most schemas of arguments
//! do not tell the two apart.

use jsonschema::{Draft, ValidationOptions};
use serde_json::Value;

/// How a schema is compiled for which [`is_older`] holds.
pub(crate) fn older() -> ValidationOptions<'static> {
    // The newest dialect takes `format` for a remark.
    jsonschema::options()
        .with_draft(Draft::Draft7)
        .should_validate_formats(false)
}

/// Whether a schema means the same in draft 7 as in the newest dialect. What is not known here does not.
pub(crate) fn is_older(schema: &Value) -> bool {
    match schema {
        Value::Bool(_) => true,
        Value::Object(map) => map
            .iter()
            .all(|(keyword, said)| keyword_is_older(keyword, said)),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    }
}

fn keyword_is_older(keyword: &str, said: &Value) -> bool {
    match keyword {
        // What holds a schema. A list of `items` is another thing in the newest dialect.
        "items" | "additionalProperties" | "propertyNames" | "not" => is_older(said),
        "allOf" | "anyOf" | "oneOf" => said
            .as_array()
            .is_some_and(|parts| parts.iter().all(is_older)),
        "properties" | "patternProperties" => said
            .as_object()
            .is_some_and(|named| named.values().all(is_older)),
        // What limits a value.
        "type" | "enum" | "const" | "required" | "pattern" | "minLength" | "maxLength"
        | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf"
        | "minItems" | "maxItems" | "uniqueItems" | "minProperties" | "maxProperties" => true,
        // What explains one.
        "title" | "description" | "default" | "examples" | "format" | "readOnly" | "writeOnly"
        | "deprecated" | "$comment" => true,
        _ => false,
    }
}

#[cfg(test)]
#[path = "schema_dialect_tests.rs"]
mod tests;
