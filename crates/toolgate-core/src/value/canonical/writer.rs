//! Writes data as canonical JSON, as long as its keys come in their order.
//!
//! A receipt is written for every call, so this looks at each text once, for all of its bytes at a time,
//! and compares the keys of a struct where they stand in the program. Whatever is rare is left to the
//! caller, who makes a tree of values and sorts it.

use std::{
    fmt::{self, Display, Write as _},
    ops::Range,
};

use serde::{
    Serialize, Serializer,
    ser::{
        Impossible, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple,
        SerializeTupleStruct,
    },
};

use crate::value::digest::MAX_EXACT_INTEGER;

/// Most receipts fit, so that the text does not grow while it is written.
const USUAL_TEXT_BYTES: usize = 4 * 1024;

/// Writes data in one pass, or returns nothing where the text would not be canonical or there is none.
pub(super) fn write_in_order(data: &impl Serialize) -> Option<String> {
    let mut writer = CanonicalWriter {
        text: String::with_capacity(USUAL_TEXT_BYTES),
    };
    data.serialize(&mut writer).ok()?;
    Some(writer.text)
}

/// Stops the pass: the data has to be sorted first, has a rare form, or cannot be written.
#[derive(Debug)]
pub(super) struct NotInOrder;

impl Display for NotInOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data cannot be written in one pass")
    }
}

impl std::error::Error for NotInOrder {}

impl serde::ser::Error for NotInOrder {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

/// The text so far.
pub(super) struct CanonicalWriter {
    text: String,
}

impl CanonicalWriter {
    fn write_text(&mut self, text: &str) {
        self.text.push('"');
        self.write_escaped(text);
        self.text.push('"');
    }

    fn write_escaped(&mut self, text: &str) {
        // Not `any`, which looks at one byte after the other.
        let has_escape = text
            .bytes()
            .fold(false, |has, byte| has | needs_escape(byte));
        if has_escape {
            text.chars().for_each(|char| self.write_char(char));
        } else {
            self.text.push_str(text);
        }
    }

    fn write_char(&mut self, char: char) {
        let short = match char {
            '"' | '\\' => char,
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\0'..' ' => {
                let _ = write!(self.text, "\\u{:04x}", u32::from(char));
                return;
            }
            _ => {
                self.text.push(char);
                return;
            }
        };
        self.text.push('\\');
        self.text.push(short);
    }

    fn write_integer(&mut self, number: impl itoa::Integer, magnitude: u64) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number);
        // A double would be another number.
        if magnitude > MAX_EXACT_INTEGER {
            self.write_text(digits);
        } else {
            self.text.push_str(digits);
        }
    }
}

fn needs_escape(byte: u8) -> bool {
    (byte < b' ') | (byte == b'"') | (byte == b'\\')
}

/// Text that is written between quotes while it is formatted.
impl fmt::Write for CanonicalWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write_escaped(text);
        Ok(())
    }
}

impl<'a> Serializer for &'a mut CanonicalWriter {
    type Ok = ();
    type Error = NotInOrder;
    type SerializeSeq = ItemWriter<'a>;
    type SerializeTuple = ItemWriter<'a>;
    type SerializeTupleStruct = ItemWriter<'a>;
    type SerializeTupleVariant = Impossible<(), NotInOrder>;
    type SerializeMap = EntryWriter<'a>;
    type SerializeStruct = FieldWriter<'a>;
    type SerializeStructVariant = Impossible<(), NotInOrder>;

    fn serialize_bool(self, value: bool) -> Result<(), NotInOrder> {
        self.text.push_str(if value { "true" } else { "false" });
        Ok(())
    }

    fn serialize_i8(self, value: i8) -> Result<(), NotInOrder> {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<(), NotInOrder> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), NotInOrder> {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<(), NotInOrder> {
        self.write_integer(value, value.unsigned_abs());
        Ok(())
    }

    fn serialize_u8(self, value: u8) -> Result<(), NotInOrder> {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), NotInOrder> {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), NotInOrder> {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result<(), NotInOrder> {
        self.write_integer(value, value);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), NotInOrder> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), NotInOrder> {
        // A number that JSON does not have is an error here, and null in the tree.
        let text = serde_json_canonicalizer::to_string(&value).map_err(|_| NotInOrder)?;
        self.text.push_str(&text);
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), NotInOrder> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), NotInOrder> {
        self.write_text(value);
        Ok(())
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), NotInOrder> {
        Err(NotInOrder)
    }

    fn serialize_none(self) -> Result<(), NotInOrder> {
        self.serialize_unit()
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<(), NotInOrder> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), NotInOrder> {
        self.text.push_str("null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), NotInOrder> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), NotInOrder> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), NotInOrder> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), NotInOrder> {
        self.text.push('{');
        self.write_text(variant);
        self.text.push(':');
        value.serialize(&mut *self)?;
        self.text.push('}');
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<ItemWriter<'a>, NotInOrder> {
        self.text.push('[');
        Ok(ItemWriter {
            writer: self,
            is_first: true,
        })
    }

    fn serialize_tuple(self, length: usize) -> Result<ItemWriter<'a>, NotInOrder> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        length: usize,
    ) -> Result<ItemWriter<'a>, NotInOrder> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Impossible<(), NotInOrder>, NotInOrder> {
        Err(NotInOrder)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<EntryWriter<'a>, NotInOrder> {
        self.text.push('{');
        Ok(EntryWriter {
            writer: self,
            last_key: None,
        })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<FieldWriter<'a>, NotInOrder> {
        self.text.push('{');
        Ok(FieldWriter {
            writer: self,
            last_key: None,
        })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Impossible<(), NotInOrder>, NotInOrder> {
        Err(NotInOrder)
    }

    fn collect_str<T: ?Sized + Display>(self, value: &T) -> Result<(), NotInOrder> {
        self.text.push('"');
        write!(self, "{value}").map_err(|_| NotInOrder)?;
        self.text.push('"');
        Ok(())
    }
}

/// Writes the items of an array.
pub(super) struct ItemWriter<'a> {
    writer: &'a mut CanonicalWriter,
    is_first: bool,
}

impl SerializeSeq for ItemWriter<'_> {
    type Ok = ();
    type Error = NotInOrder;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), NotInOrder> {
        if !std::mem::take(&mut self.is_first) {
            self.writer.text.push(',');
        }
        value.serialize(&mut *self.writer)
    }

    fn end(self) -> Result<(), NotInOrder> {
        self.writer.text.push(']');
        Ok(())
    }
}

impl SerializeTuple for ItemWriter<'_> {
    type Ok = ();
    type Error = NotInOrder;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), NotInOrder> {
        SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<(), NotInOrder> {
        SerializeSeq::end(self)
    }
}

impl SerializeTupleStruct for ItemWriter<'_> {
    type Ok = ();
    type Error = NotInOrder;

    fn serialize_field<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), NotInOrder> {
        SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<(), NotInOrder> {
        SerializeSeq::end(self)
    }
}

/// Writes the entries of a map, whose keys have to come in their order.
pub(super) struct EntryWriter<'a> {
    writer: &'a mut CanonicalWriter,
    /// The place of the last key in the text, without its quotes.
    last_key: Option<Range<usize>>,
}

impl SerializeMap for EntryWriter<'_> {
    type Ok = ();
    type Error = NotInOrder;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), NotInOrder> {
        if self.last_key.is_some() {
            self.writer.text.push(',');
        }
        let start = self.writer.text.len();
        key.serialize(&mut *self.writer)?;
        let text = self.writer.text.as_bytes();
        // A number, for example, becomes text, and is sorted as text.
        if text.get(start) != Some(&b'"') {
            return Err(NotInOrder);
        }
        let place = start + 1..text.len() - 1;
        let key = &text[place.clone()];
        let before = self.last_key.as_ref().map(|place| &text[place.clone()]);
        // The bytes of ASCII are in the order of UTF-16, which RFC 8785 sorts by; those of an escape are
        // not the key's own.
        let is_plain = key.is_ascii() && !key.contains(&b'\\');
        if !is_plain || before.is_some_and(|before| before >= key) {
            return Err(NotInOrder);
        }
        self.last_key = Some(place);
        Ok(())
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), NotInOrder> {
        self.writer.text.push(':');
        value.serialize(&mut *self.writer)
    }

    fn end(self) -> Result<(), NotInOrder> {
        self.writer.text.push('}');
        Ok(())
    }
}

/// Writes the fields of a struct, which have to be declared in their order.
pub(super) struct FieldWriter<'a> {
    writer: &'a mut CanonicalWriter,
    last_key: Option<&'static str>,
}

impl SerializeStruct for FieldWriter<'_> {
    type Ok = ();
    type Error = NotInOrder;

    fn serialize_field<T: ?Sized + Serialize>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), NotInOrder> {
        let separator = match self.last_key.replace(key) {
            None => "\"",
            Some(before) if before < key => ",\"",
            Some(_) => return Err(NotInOrder),
        };
        // `serde_json` marks values that it writes in a form of its own with a `$`.
        if !key.is_ascii() || key.starts_with('$') || key.bytes().any(needs_escape) {
            return Err(NotInOrder);
        }
        let text = &mut self.writer.text;
        text.reserve(key.len() + separator.len() + 2);
        text.push_str(separator);
        text.push_str(key);
        text.push_str("\":");
        value.serialize(&mut *self.writer)
    }

    fn end(self) -> Result<(), NotInOrder> {
        self.writer.text.push('}');
        Ok(())
    }
}
