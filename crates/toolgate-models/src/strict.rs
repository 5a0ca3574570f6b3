//! Whether a provider can be held to a schema to the letter.

use serde_json::Value;

/// Whether the schema is of the part of JSON Schema that OpenAI enforces while the model writes.
///
/// Every object has to list all its properties as required and allow no others, and some keywords are not known there. A
/// schema beyond that is still sent, as something the model should keep to.
pub(crate) fn is_strict(schema: &Value) -> bool {
    // The root has to be an object, and not a choice of several.
    schema.get("type").is_some_and(|kind| kind == "object")
        && schema.get("anyOf").is_none()
        && holds(schema)
}

fn holds(schema: &Value) -> bool {
    const UNKNOWN: [&str; 13] = [
        "allOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "prefixItems",
    ];
    let Some(fields) = schema.as_object() else {
        return false;
    };
    let below = |name: &str| fields.get(name).into_iter().flat_map(parts);
    !UNKNOWN.iter().any(|keyword| fields.contains_key(*keyword))
        && is_closed(schema)
        && fields.get("items").is_none_or(holds)
        && ["properties", "$defs", "definitions", "anyOf"]
            .into_iter()
            .flat_map(below)
            .all(holds)
}

/// The schemas that a map or a list of schemas has.
fn parts(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(map) => map.values().collect(),
        Value::Array(list) => list.iter().collect(),
        _ => Vec::new(),
    }
}

/// Whether an object names everything it has; what is no object is closed by itself.
fn is_closed(schema: &Value) -> bool {
    let kind = schema.get("type");
    let may_be_object =
        kind.is_some_and(|kind| kind == "object" || parts(kind).iter().any(|one| *one == "object"));
    let properties = schema.get("properties").and_then(Value::as_object);
    if !may_be_object && properties.is_none() {
        return true;
    }
    let required = schema.get("required").map(parts).unwrap_or_default();
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && properties.is_none_or(|all| {
            all.keys()
                .all(|name| required.iter().any(|one| *one == name))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_schemas_that_leave_nothing_open_are_strict() {
        let closed = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "tags": { "type": "array", "items": { "$ref": "#/$defs/tag" } },
                "size": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
            },
            "required": ["name", "tags", "size"],
            "additionalProperties": false,
            "$defs": { "tag": { "type": "object", "properties": {}, "required": [], "additionalProperties": false } },
        });
        assert!(is_strict(&closed));
        let spoilt = |pointer: &str, field: &str, value: Value| {
            let mut schema = closed.clone();
            let at = schema
                .pointer_mut(pointer)
                .and_then(Value::as_object_mut)
                .expect("there");
            at.insert(field.to_owned(), value);
            is_strict(&schema)
        };
        assert!(
            !spoilt("", "required", json!(["name"])),
            "a property may be left out"
        );
        assert!(!spoilt("", "additionalProperties", json!(true)));
        assert!(
            !spoilt("/$defs/tag", "additionalProperties", json!({})),
            "further down, too"
        );
        assert!(!spoilt("/properties/name", "not", json!({})));
        assert!(!spoilt("/properties/tags", "items", json!(true)));
        for open in [
            json!({ "type": "object" }),
            json!({ "type": "string" }),
            json!(true),
            json!({}),
        ] {
            assert!(!is_strict(&open), "{open}");
        }
    }
}
