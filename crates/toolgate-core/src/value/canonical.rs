//! Canonical JSON (RFC 8785), written in one pass from data whose fields are declared in its order.

use std::io;

use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, Serializer};

use crate::value::digest::{MAX_EXACT_INTEGER, canonical_json};

/// Most receipts fit, so that the text does not grow while it is written.
const USUAL_TEXT_BYTES: usize = 4 * 1024;

/// The keys that are open at a time, and how deep they are nested, in most receipts.
const USUAL_KEY_BYTES: usize = 128;
const USUAL_DEPTH: usize = 8;

/// Returns the canonical form (RFC 8785) of anything that can be serialised.
///
/// The text is that of [`canonical_json`] for the same data. Structs that declare their fields in
/// alphabetical order are written in one pass, without a tree of values in between; anything else
/// becomes a tree first, which is sorted.
///
/// ```
/// use toolgate_core::canonical_text;
///
/// #[derive(serde::Serialize)]
/// struct Total {
///     amount: f64,
///     currency: &'static str,
/// }
/// let total = Total { amount: 20.0, currency: "EUR" };
/// assert_eq!(canonical_text(&total)?, r#"{"amount":20,"currency":"EUR"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
///
/// An error if the data has no JSON form, for example a map whose keys are not text.
pub fn canonical_text(data: &impl Serialize) -> serde_json::Result<String> {
    match write_in_order(data) {
        Err(error) if error.is_io() => Ok(canonical_json(&serde_json::to_value(data)?)),
        written => written,
    }
}

/// Writes data in one pass, or fails with an I/O error where that would not be canonical.
fn write_in_order(data: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::with_capacity(USUAL_TEXT_BYTES);
    data.serialize(&mut Serializer::with_formatter(
        &mut bytes,
        CanonicalFormatter::new(),
    ))?;
    Ok(String::from_utf8(bytes).expect("JSON is written as UTF-8"))
}

/// Writes compact JSON with the numbers of RFC 8785, and fails at the first key that is not in its
/// order.
struct CanonicalFormatter {
    /// The last key of each open object, one behind the other, then the key that is being written.
    keys: Vec<u8>,
    /// The start of each open object's key in `keys`, outermost first.
    starts: Vec<usize>,
    /// The start of the key that is being written.
    key: Option<usize>,
}

/// Stops the pass: the data has to be sorted first.
fn not_in_order() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

impl CanonicalFormatter {
    fn new() -> Self {
        Self {
            keys: Vec::with_capacity(USUAL_KEY_BYTES),
            starts: Vec::with_capacity(USUAL_DEPTH),
            key: None,
        }
    }

    /// Fails for a number in a key, which is written as text and sorted as text.
    fn check_outside_key(&self) -> io::Result<()> {
        if self.key.is_some() {
            Err(not_in_order())
        } else {
            Ok(())
        }
    }
}

impl Formatter for CanonicalFormatter {
    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.starts.push(self.keys.len());
        CompactFormatter.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if let Some(start) = self.starts.pop() {
            self.keys.truncate(start);
        }
        CompactFormatter.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.key = Some(self.keys.len());
        CompactFormatter.begin_object_key(writer, first)
    }

    fn end_object_key<W: ?Sized + io::Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        let written = self.key.take().unwrap_or(self.keys.len());
        let start = self.starts.last().copied().unwrap_or_default();
        let (before, key) = self.keys[start..].split_at(written - start);
        // The bytes of ASCII are in the order of UTF-16, which RFC 8785 sorts by. The first key of
        // an object follows nothing, and only the empty key could be mistaken for that.
        let in_order = key.is_ascii() && !key.is_empty() && before < key;
        if !in_order {
            return Err(not_in_order());
        }
        // The key takes the place of the one before it.
        let length = key.len();
        self.keys.copy_within(written.., start);
        self.keys.truncate(start + length);
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if self.key.is_some() {
            self.keys.extend_from_slice(fragment.as_bytes());
        }
        CompactFormatter.write_string_fragment(writer, fragment)
    }

    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        self.check_outside_key()?;
        CompactFormatter.write_char_escape(writer, escape)
    }

    fn write_u64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        self.check_outside_key()?;
        if value > MAX_EXACT_INTEGER {
            return write!(writer, "\"{value}\"");
        }
        CompactFormatter.write_u64(writer, value)
    }

    fn write_i64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: i64) -> io::Result<()> {
        self.check_outside_key()?;
        if value.unsigned_abs() > MAX_EXACT_INTEGER {
            return write!(writer, "\"{value}\"");
        }
        CompactFormatter.write_i64(writer, value)
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        self.check_outside_key()?;
        let text = serde_json_canonicalizer::to_vec(&value).map_err(|_| not_in_order())?;
        writer.write_all(&text)
    }

    fn write_f32<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        self.write_f64(writer, value.into())
    }

    fn write_u128<W: ?Sized + io::Write>(&mut self, _: &mut W, _: u128) -> io::Result<()> {
        Err(not_in_order())
    }

    fn write_i128<W: ?Sized + io::Write>(&mut self, _: &mut W, _: i128) -> io::Result<()> {
        Err(not_in_order())
    }

    fn write_number_str<W: ?Sized + io::Write>(&mut self, _: &mut W, _: &str) -> io::Result<()> {
        Err(not_in_order())
    }

    fn write_raw_fragment<W: ?Sized + io::Write>(&mut self, _: &mut W, _: &str) -> io::Result<()> {
        Err(not_in_order())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert!(write_in_order(&data).is_err());
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
}
