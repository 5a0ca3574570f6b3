use super::{writer::write_in_order, *};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Writes a value as the reference does.
fn reference(data: &impl Serialize) -> String {
    canonical_json(&serde_json::to_value(data).expect("has a JSON form"))
}

#[derive(Serialize)]
struct Ordered {
    a: u64,
    b: Option<f64>,
    c: Vec<Value>,
}

#[derive(Serialize)]
struct Unordered {
    b: i64,
    a: f32,
}

#[test]
fn fields_in_order_are_written_in_one_pass() {
    let data = Ordered {
        a: 1,
        b: Some(1e21),
        c: vec![json!({ "x": [1.0, "\u{1}é"], "y": {} })],
    };
    assert_eq!(
        write_in_order(&data).expect("in order"),
        r#"{"a":1,"b":1e+21,"c":[{"x":[1,"\u0001é"],"y":{}}]}"#
    );
}

#[test]
fn what_is_not_in_order_is_sorted() {
    let data = Unordered { b: -1, a: 0.5 };
    assert!(write_in_order(&data).is_none());
    assert_eq!(
        canonical_text(&data).expect("has a JSON form"),
        r#"{"a":0.5,"b":-1}"#
    );
}

#[test]
fn keys_that_only_look_sorted_are_sorted() {
    // Numbers as keys, keys beyond the first plane, keys that need an escape, the empty key.
    let numbers: BTreeMap<u64, u8> = [(9, 1), (10, 2), (u64::MAX, 3)].into();
    assert_eq!(canonical_text(&numbers).expect("text"), reference(&numbers));
    for keys in [["\u{ffff}", "\u{10000}"], ["\n", "a"], ["", "a"]] {
        let map: BTreeMap<&str, u8> = keys.map(|key| (key, 1)).into();
        assert_eq!(canonical_text(&map).expect("text"), reference(&map));
    }
}

#[test]
fn every_character_is_escaped_as_the_reference_does() {
    let all: String = (0..0x300).filter_map(char::from_u32).collect();
    let text = write_in_order(&all).expect("a text");
    assert_eq!(text, reference(&all));
    let shown = format_args!("{all}").to_string();
    struct Shown(String);
    impl Serialize for Shown {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(&self.0)
        }
    }
    assert_eq!(write_in_order(&Shown(shown)).expect("a text"), text);
}

#[test]
fn enumerations_are_written_as_the_reference_does() {
    #[derive(Serialize)]
    enum Shape {
        Dot,
        Circle(u8),
        Line(u8, u8),
        Box { wide: u8, high: u8 },
    }
    let shapes = [
        (Shape::Dot, true),
        (Shape::Circle(1), true),
        (Shape::Line(1, 2), false),
        (Shape::Box { wide: 2, high: 1 }, false),
    ];
    for (shape, in_one_pass) in shapes {
        assert_eq!(write_in_order(&shape).is_some(), in_one_pass);
        assert_eq!(canonical_text(&shape).expect("text"), reference(&shape));
    }
}

#[test]
fn a_value_in_the_private_form_of_the_json_crate_is_not_written_as_a_struct() {
    // As its values of any precision and its unparsed values are serialised.
    #[derive(Serialize)]
    struct Private {
        #[serde(rename = "$serde_json::private::RawValue")]
        text: &'static str,
    }
    assert!(write_in_order(&Private { text: "[1, 2]" }).is_none());
}

#[test]
fn data_without_a_json_form_is_an_error() {
    let map: HashMap<Vec<u8>, u8> = [(vec![1], 1)].into();
    assert!(canonical_text(&map).is_err());
}

/// Any JSON value, with integers and doubles of every size.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".{0,4}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn every_value_is_written_as_the_reference_writes_it(value in any_value()) {
        prop_assert_eq!(canonical_text(&value).expect("has a JSON form"), reference(&value));
    }

    #[test]
    fn every_struct_is_written_as_the_reference_writes_it(
        a: u64, b: Option<f64>, c in prop::collection::vec(any_value(), 0..3), d: i64, e: f32,
    ) {
        let ordered = Ordered { a, b, c };
        prop_assert_eq!(canonical_text(&ordered).expect("has a JSON form"), reference(&ordered));
        let unordered = Unordered { b: d, a: e };
        prop_assert_eq!(canonical_text(&unordered).expect("has a JSON form"), reference(&unordered));
    }
}
