//! The JSON Schema of a configuration file, for editors.

use serde_json::{Map, Value, json};
use toolgate_core::BudgetRule;

use crate::{Catalog, CatalogEntry, StackSection};

/// Returns the schema of a whole file.
pub(crate) fn file_schema(catalog: &Catalog) -> Value {
    let layers: Map<String, Value> = catalog
        .entries()
        .iter()
        .map(|entry| (entry.name.to_owned(), layer_table_schema(entry)))
        .collect();
    let names: Vec<_> = catalog.entries().iter().map(|entry| entry.name).collect();
    // A layer with a custom name accepts the options of the kind that its `use` key selects.
    let kind = |entry: &CatalogEntry| json!({ "if": { "properties": { "use": { "const": entry.name } }, "required": ["use"] }, "then": layer_table_schema(entry) });
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
            "budget": { "type": "array", "description": "The budgets: how much may be spent.", "items": budget },
            "layers": {
                "type": "object",
                "properties": layers,
                "additionalProperties": {
                    "type": "object",
                    "description": "A layer under a custom name.",
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

/// Returns the schema of the table of one kind of layer.
fn layer_table_schema(entry: &CatalogEntry) -> Value {
    let mut schema = entry.options_schema();
    schema["description"] = entry.summary.into();
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    schema["properties"]["use"] = json!({ "const": entry.name });
    schema["properties"]["enabled"] =
        json!({ "type": "boolean", "description": "True if the stack has this layer." });
    schema["properties"]["on"] = json!({
        "type": "array",
        "items": { "type": "string" },
        "minItems": 1,
        "description": "Applies the layer only to tools whose name matches one of these patterns.",
    });
    schema
}
