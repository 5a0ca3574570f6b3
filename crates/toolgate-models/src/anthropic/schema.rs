//! Schemas of final answers as far as Anthropic holds a model to them.

use serde_json::{Map, Value};

/// Formats of text that are enforced.
const FORMATS: [&str; 10] = [
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

/// A copy that the API takes: objects have no more properties than they name, and what is not enforced is told to the
/// model in the description. Whoever reads the answer checks it against the schema as it was.
pub(super) fn enforceable(schema: &Value) -> Value {
    let Value::Object(fields) = schema else {
        return schema.clone();
    };
    let (mut kept, mut told) = (Map::new(), Vec::new());
    for (key, value) in fields {
        match key.as_str() {
            "properties" | "$defs" | "definitions" => drop(kept.insert(key.clone(), each(value))),
            "anyOf" | "allOf" => drop(kept.insert(key.clone(), each(value))),
            "oneOf" => drop(kept.insert("anyOf".to_owned(), each(value))),
            "items" => drop(kept.insert(key.clone(), enforceable(value))),
            "type" | "required" | "enum" | "const" | "$ref" | "title" | "description" => {
                kept.insert(key.clone(), value.clone());
            }
            "format" if FORMATS.iter().any(|format| value == format) => {
                drop(kept.insert(key.clone(), value.clone()))
            }
            "minItems" if value == 0 || value == 1 => drop(kept.insert(key.clone(), value.clone())),
            "additionalProperties" | "$schema" | "$id" | "$comment" => {}
            other => told.push(format!("{other}: {value}")),
        }
    }
    if is_object(fields) {
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

fn is_object(fields: &Map<String, Value>) -> bool {
    let kind = fields.get("type");
    let named = kind.is_some_and(|kind| {
        kind == "object"
            || kind
                .as_array()
                .is_some_and(|all| all.iter().any(|k| k == "object"))
    });
    named || fields.contains_key("properties")
}

fn each(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, schema)| (key.clone(), enforceable(schema)))
            .collect(),
        Value::Array(items) => items.iter().map(enforceable).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_closed_and_what_is_not_enforced_is_told() {
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
        assert_eq!(enforceable(&schema), expected);
    }
}
