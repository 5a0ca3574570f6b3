//! Schemas that mean the same in an older dialect of JSON Schema.
//!
//! Before it compiles its first schema, the schema compiler compiles the meta-schema. The one of
//! the newest dialect takes longer than everything else a program does until its first call; the
//! one of draft 7 takes a third of that. Most schemas of arguments mean the same in both.

use jsonschema::{Draft, ValidationOptions};
use serde_json::Value;

/// Returns the compiler options for a schema for which [`fits_draft7`] is true.
pub(crate) fn draft7_options() -> ValidationOptions<'static> {
    // In the newest dialect `format` is only an annotation.
    jsonschema::options()
        .with_draft(Draft::Draft7)
        .should_validate_formats(false)
}

/// Checks whether a schema means the same in draft 7 as in the newest dialect. An unknown keyword
/// means no.
pub(crate) fn fits_draft7(schema: &Value) -> bool {
    match schema {
        Value::Bool(_) => true,
        Value::Object(map) => map
            .iter()
            .all(|(keyword, said)| keyword_fits_draft7(keyword, said)),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    }
}

fn keyword_fits_draft7(keyword: &str, said: &Value) -> bool {
    match keyword {
        // Keywords with subschemas. A list of `items` means something else in the newest dialect.
        "items" | "additionalProperties" | "propertyNames" | "not" => fits_draft7(said),
        "allOf" | "anyOf" | "oneOf" => said
            .as_array()
            .is_some_and(|parts| parts.iter().all(fits_draft7)),
        "properties" | "patternProperties" => said
            .as_object()
            .is_some_and(|named| named.values().all(fits_draft7)),
        // Keywords that restrict a value.
        "type" | "enum" | "const" | "required" | "pattern" | "minLength" | "maxLength"
        | "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf"
        | "minItems" | "maxItems" | "uniqueItems" | "minProperties" | "maxProperties" => true,
        // Keywords that describe a value.
        "title" | "description" | "default" | "examples" | "format" | "readOnly" | "writeOnly"
        | "deprecated" | "$comment" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
