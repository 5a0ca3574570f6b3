//! Reduces the schema of a final answer to what Anthropic enforces.

use serde_json::{Map, Value};

/// The text formats that are enforced.
const ENFORCED_FORMATS: [&str; 10] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "uri",
    "ipv4",
    "ipv6",
    "uuid",
];

/// Returns a copy that the API accepts: objects allow only the properties they list, and
/// constraints that are not enforced are added to the description. The caller still checks the
/// answer against the original schema.
pub(super) fn enforceable_schema(schema: &Value) -> Value {
    let Value::Object(fields) = schema else {
        return schema.clone();
    };
    let mut kept = Map::new();
    let mut told = Vec::new();
    for (key, value) in fields {
        match key.as_str() {
            // The keys of these maps are names, not keywords: a property may be called `minimum`.
            "properties" | "$defs" | "definitions" => {
                drop(kept.insert(key.clone(), map_subschemas(value)))
            }
            "anyOf" | "allOf" => drop(kept.insert(key.clone(), map_subschemas(value))),
            // Wider than the original, which the caller still checks.
            "oneOf" => drop(kept.insert("anyOf".to_owned(), map_subschemas(value))),
            "items" => drop(kept.insert(key.clone(), enforceable_schema(value))),
            "type" | "required" | "enum" | "const" | "$ref" | "title" | "description" => {
                kept.insert(key.clone(), value.clone());
            }
            "format" if ENFORCED_FORMATS.iter().any(|format| value == format) => {
                drop(kept.insert(key.clone(), value.clone()))
            }
            "minItems" if value == 0 || value == 1 => drop(kept.insert(key.clone(), value.clone())),
            "additionalProperties" | "$schema" | "$id" | "$comment" => {}
            other => told.push(format!("{other}: {value}")),
        }
    }
    if may_be_object(fields) {
        kept.insert("additionalProperties".to_owned(), false.into());
    }
    if !told.is_empty() {
        let before = kept
            .get("description")
            .and_then(Value::as_str)
            .map(|text| format!("{text} "));
        let description = format!("{}({})", before.unwrap_or_default(), told.join(", "));
        kept.insert("description".to_owned(), description.into());
    }
    kept.into()
}

fn may_be_object(fields: &Map<String, Value>) -> bool {
    let kind = fields.get("type");
    let named = kind.is_some_and(|kind| {
        kind == "object"
            || kind
                .as_array()
                .is_some_and(|all| all.iter().any(|k| k == "object"))
    });
    named || fields.contains_key("properties")
}

fn map_subschemas(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, schema)| (key.clone(), enforceable_schema(schema)))
            .collect(),
        Value::Array(items) => items.iter().map(enforceable_schema).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_closed_and_unenforced_keywords_are_described() {
        let schema = json!({
            "$schema": "x",
            "type": "object",
            "properties": {
                "n": { "type": "integer", "minimum": 1, "description": "How many." },
                "at": { "type": "string", "format": "date" },
                "odd": { "type": "string", "format": "odd" },
                "minimum": { "type": ["object", "null"], "properties": { "x": { "oneOf": [{ "type": "null" }] } } },
                "list": { "type": "array", "items": { "type": "object" }, "minItems": 1, "maxItems": 3 },
            },
            "required": ["n"],
            "$defs": { "d": { "type": "object", "additionalProperties": true } },
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "n": { "type": "integer", "description": "How many. (minimum: 1)" },
                "at": { "type": "string", "format": "date" },
                "odd": { "type": "string", "description": "(format: \"odd\")" },
                "minimum": {
                    "type": ["object", "null"],
                    "properties": { "x": { "anyOf": [{ "type": "null" }] } },
                    "additionalProperties": false,
                },
                "list": {
                    "type": "array",
                    "items": { "type": "object", "additionalProperties": false },
                    "minItems": 1,
                    "description": "(maxItems: 3)",
                },
            },
            "required": ["n"],
            "$defs": { "d": { "type": "object", "additionalProperties": false } },
            "additionalProperties": false,
        });
        assert_eq!(enforceable_schema(&schema), expected);
    }
}
