//! Checks whether a provider can enforce a schema strictly.

use serde_json::Value;

/// Checks whether the schema is in the subset of JSON Schema that OpenAI enforces while the model
/// writes.
///
/// Every object has to list all its properties as required and allow no others, and some keywords
/// are not supported. A schema outside the subset is still sent, as one that the model should
/// follow but is not forced to.
pub(crate) fn is_strict(schema: &Value) -> bool {
    // The root has to be an object, not a union.
    schema.get("type").is_some_and(|kind| kind == "object")
        && schema.get("anyOf").is_none()
        && is_enforceable(schema)
}

fn is_enforceable(schema: &Value) -> bool {
    const UNSUPPORTED: [&str; 13] = [
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
    let below = |name: &str| fields.get(name).into_iter().flat_map(subschemas);
    !UNSUPPORTED
        .iter()
        .any(|keyword| fields.contains_key(*keyword))
        && is_closed(schema)
        && fields.get("items").is_none_or(is_enforceable)
        && ["properties", "$defs", "definitions", "anyOf"]
            .into_iter()
            .flat_map(below)
            .all(is_enforceable)
}

/// Returns the schemas in a map or a list of schemas.
fn subschemas(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(map) => map.values().collect(),
        Value::Array(list) => list.iter().collect(),
        _ => Vec::new(),
    }
}

/// Checks whether an object lists everything it may have; a schema that is no object is closed.
fn is_closed(schema: &Value) -> bool {
    let kind = schema.get("type");
    let may_be_object = kind.is_some_and(|kind| {
        kind == "object" || subschemas(kind).iter().any(|one| *one == "object")
    });
    let properties = schema.get("properties").and_then(Value::as_object);
    if !may_be_object && properties.is_none() {
        return true;
    }
    let required = schema.get("required").map(subschemas).unwrap_or_default();
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
            "nested objects, too"
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
