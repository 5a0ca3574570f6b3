//! Schemas that count as older mean the same in both dialects.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const NEWEST: &str = "https://json-schema.org/draft/2020-12/schema";

const NAMES: [&str; 4] = ["a", "b", "type", ""];

/// Generates values among which equal, neighbouring and differently written ones are frequent.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..4).prop_map(Value::from),
        prop::sample::select(vec![0.0, 1.0, 1.5, -2.0, 3.0, 9007199254740992.0, 1e300])
            .prop_map(Value::from),
        prop::sample::select(vec![u64::MAX, 1 << 53, (1 << 53) + 1]).prop_map(Value::from),
        prop::sample::select(vec!["", "a", "b", "é", "ab", "a@b", "string"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(&NAMES[..]), inner, 0..4).prop_map(
                |map| map
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect()
            ),
        ]
    })
}

fn type_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "null", "boolean", "integer", "number", "string", "array", "object",
    ])
}

/// Generates keywords with valid values.
fn keyword(schema: BoxedStrategy<Value>) -> impl Strategy<Value = (&'static str, Value)> {
    let small = || (0_u64..4).prop_map(Value::from);
    let bound = prop_oneof![
        (-3_i64..4).prop_map(Value::from),
        Just(json!(1_u64 << 53)),
        Just(json!(1.5))
    ];
    let list = prop::collection::vec(schema.clone(), 1..3).prop_map(Value::from);
    let named = prop::collection::btree_map(prop::sample::select(&NAMES[..]), schema.clone(), 0..4)
        .prop_map(|map| {
            map.into_iter()
                .map(|(name, rule)| (name.to_owned(), rule))
                .collect::<Value>()
        });
    let names = prop::sample::subsequence(NAMES.to_vec(), 0..3).prop_map(Value::from);
    let types = prop_oneof![
        type_name().prop_map(Value::from),
        prop::collection::btree_set(type_name(), 1..4)
            .prop_map(|set| set.into_iter().collect::<Value>()),
    ];
    prop_oneof![
        6 => types.prop_map(|types| ("type", types)),
        1 => prop::collection::vec(value(), 1..4).prop_map(|values| ("enum", Value::from(values))),
        1 => value().prop_map(|value| ("const", value)),
        1 => (prop::sample::select(vec!["minimum", "maximum"]), bound),
        1 => (prop::sample::select(vec!["minLength", "maxLength", "minItems", "maxItems"]), small()),
        2 => (prop::sample::select(vec!["items", "additionalProperties"]), schema),
        3 => named.prop_map(|named| ("properties", named)),
        2 => names.prop_map(|names| ("required", names)),
        2 => (prop::sample::select(vec!["allOf", "anyOf", "oneOf"]), list),
        1 => Just(("format", json!("email"))),
        1 => Just(("default", json!(7))),
        1 => Just(("$schema", json!(NEWEST))),
        1 => Just(("prefixItems", json!([{ "type": "string" }]))),
        1 => Just(("uniqueItems", json!(true))),
        1 => Just(("$ref", json!("#"))),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => type_name().prop_map(|name| json!({ "type": name })),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(json!({})),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop::collection::vec(keyword(inner.boxed()), 1..5).prop_map(|said| {
            said.into_iter()
                .map(|(keyword, said)| (keyword.to_owned(), said))
                .collect()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn an_older_schema_accepts_the_same_values_in_both_dialects(
        schema in schema(), values in prop::collection::vec(value(), 8),
    ) {
        if fits_draft7(&schema) {
            let newest = jsonschema::options().offline().build(&schema).expect("valid");
            let older = draft7_options().offline().build(&schema).expect("valid");
            for value in values {
                prop_assert_eq!(older.is_valid(&value), newest.is_valid(&value), "{} of {}", value, schema);
            }
        }
    }
}

#[test]
fn keywords_of_the_newest_dialect_are_not_older() {
    for schema in [
        json!({ "prefixItems": [true] }),
        json!({ "items": [true] }),
        json!({ "$ref": "#/$defs/a", "minLength": 1 }),
        json!({ "properties": { "a": { "unevaluatedProperties": false } } }),
        json!({ "$schema": NEWEST }),
        json!({ "dependentRequired": {} }),
        json!("none at all"),
    ] {
        assert!(!fits_draft7(&schema), "{schema}");
    }
    assert!(
        fits_draft7(&json!({ "properties": { "prefixItems": { "type": "string" } } })),
        "property names are not keywords"
    );
}

#[test]
fn schemas_of_common_types_are_older() {
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Kind {
        /// The first.
        One,
        Two,
    }
    #[derive(schemars::JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Input {
        /// What to say.
        text: String,
        limit: Option<u32>,
        #[serde(default)]
        kinds: Vec<Kind>,
        kind: Option<Kind>,
        labels: std::collections::BTreeMap<String, f64>,
    }
    let schema = crate::Schema::for_type::<Input>();
    assert!(fits_draft7(schema.as_json().as_value()), "{schema:?}");
}
