//! Foreign schemas: compiling and checking are bounded, and problems contain no value.

use serde_json::Value;
use toolgate_core::Schema;

use crate::{FuzzTarget, InputTrace, MemoryBound};

pub(super) const TARGET: FuzzTarget =
    FuzzTarget::new("schemas", run, WORDS).with_memory(MemoryBound {
        base: 32 << 20,
        per_byte: 16 << 10,
    });

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"type\":",
    "\"object\"",
    "\"string\"",
    "\"integer\"",
    "\"array\"",
    "\"properties\":",
    "\"required\":",
    "\"items\":",
    "\"$ref\":",
    "\"#\"",
    "\"#/$defs/a\"",
    "\"$defs\":",
    "\"a\":",
    "\"b\":",
    "\"allOf\":",
    "\"anyOf\":",
    "\"oneOf\":",
    "\"not\":",
    "\"pattern\":",
    "\"(a+)+$\"",
    "\"^(?=a)\\\\1\"",
    "\"(x{1000}){1000}\"",
    "\"format\":",
    "\"date-time\"",
    "\"enum\":",
    "\"const\":",
    "\"additionalProperties\":",
    "\"patternProperties\":",
    "\"propertyNames\":",
    "\"unevaluatedProperties\":",
    "\"minLength\":",
    "\"multipleOf\":",
    "\"maximum\":",
    "\"uniqueItems\":true",
    "\"$id\":",
    "\"https://example.com/x\"",
    "\"$schema\":",
    "\"http://json-schema.org/draft-07/schema#\"",
    "\"$dynamicRef\":",
    "\"$anchor\":",
    "\"if\":",
    "\"then\":",
    "true",
    "false",
    "null",
    "1",
    "0",
    "-1",
    "1e999",
    "0.1",
    "\n",
    "\"PLANTED-VALUE\"",
    "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\"",
];

/// A value that no schema of an input has and every problem would have to quote to show it.
const PLANTED: &str = "PLANTED-VALUE";

fn run(data: &[u8]) -> InputTrace {
    let text = String::from_utf8_lossy(data);
    let (schema, value) = text.split_once('\n').unwrap_or((&text, "{}"));
    let Ok(schema_json) = serde_json::from_str::<Value>(schema) else {
        return InputTrace::NOTHING;
    };
    let compiled = match Schema::for_arguments(schema_json.clone()) {
        Ok(compiled) => compiled,
        Err(error) => return InputTrace::of_message(&error.to_string()),
    };
    assert_eq!(
        *compiled.as_json().as_value(),
        schema_json,
        "the schema is not as it was given"
    );
    let value = serde_json::from_str(value).unwrap_or(Value::Null);
    match compiled.check_value(&value) {
        Ok(()) => InputTrace::of(("valid", compiled.parameters().count().min(3))),
        Err(problems) => {
            assert!(
                !problems.is_empty() && problems.len() <= 17,
                "{} problems",
                problems.len()
            );
            // A name of a property is not a value, and a schema may show its own words.
            if !schema.contains(PLANTED) && !has_key(&value, PLANTED) {
                let quotes = problems
                    .iter()
                    .any(|problem| problem.reason.contains(PLANTED));
                assert!(!quotes, "a problem quotes a value");
            }
            let first = problems
                .first()
                .map(|problem| problem.reason.as_str())
                .unwrap_or_default();
            InputTrace::of((problems.len().min(3), InputTrace::of_message(first)))
        }
    }
}

fn has_key(value: &Value, name: &str) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| has_key(item, name)),
        Value::Object(map) => map
            .iter()
            .any(|(key, item)| key.contains(name) || has_key(item, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
