//! The JSON Schema of a configuration file, for editors.

use serde_json::{Map, Value, json};
use toolgate_core::BudgetRule;

use crate::{Catalog, CatalogEntry, StackSection};

/// The schema of a whole file.
pub(crate) fn schema(catalog: &Catalog) -> Value {
    let layers: Map<String, Value> = catalog
        .entries()
        .iter()
        .map(|entry| (entry.name.to_owned(), table(entry)))
        .collect();
    let names: Vec<_> = catalog.entries().iter().map(|entry| entry.name).collect();
    // The table of a layer under a name of its own takes the options of the kind that it uses.
    let kind = |entry: &CatalogEntry| json!({ "if": { "properties": { "use": { "const": entry.name } }, "required": ["use"] }, "then": table(entry) });
    let kinds: Vec<Value> = catalog.entries().iter().map(kind).collect();
    let mut stack = schemars::schema_for!(StackSection).to_value();
    stack.as_object_mut().expect("a struct").remove("$schema");
    let mut defs = stack
        .as_object_mut()
        .and_then(|stack| stack.remove("$defs"))
        .unwrap_or_else(|| json!({}));
    let mut budget = schemars::schema_for!(BudgetRule).to_value();
    budget.as_object_mut().expect("a struct").remove("$schema");
    if let Some(Value::Object(more)) = budget
        .as_object_mut()
        .and_then(|budget| budget.remove("$defs"))
    {
        defs.as_object_mut()
            .expect("definitions by name")
            .extend(more);
    }
    let mut whole = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "toolgate.toml",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "stack": stack,
            "budget": { "type": "array", "description": "How much may be spent.", "items": budget },
            "layers": {
                "type": "object",
                "properties": layers,
                "additionalProperties": {
                    "type": "object",
                    "description": "A layer under a name of its own.",
                    "required": ["use"],
                    "properties": { "use": { "enum": names } },
                    "allOf": kinds,
                },
            },
        },
        "$defs": defs,
    });
    for section in catalog.sections() {
        whole["properties"][section.name] = (section.schema)();
    }
    whole
}

/// The schema of the table of one kind of layer.
fn table(entry: &CatalogEntry) -> Value {
    let mut schema = entry.schema();
    schema["description"] = entry.summary.into();
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    schema["properties"]["use"] = json!({ "const": entry.name });
    schema["properties"]["enabled"] =
        json!({ "type": "boolean", "description": "Whether the stack has this layer." });
    schema["properties"]["on"] = json!({
        "type": "array",
        "items": { "type": "string" },
        "minItems": 1,
        "description": "Only for tools whose name fits one of these patterns.",
    });
    schema
}
