//! Texts as SQLite stores them: without what stands elsewhere.
//!
//! The events, records and receipts of a turn repeat each other: ids, names of fields, the list of
//! layers with its times, the result of the call. A text is stored with references in place of what
//! it repeats. It then begins with `~`, and each reference is a control character and numbers:
//!
//! | Begins with | Numbers | Stands for a range of |
//! |---|---|---|
//! | `0x01` | offset, length | the [dictionary](dictionary) |
//! | `0x02` | distance, length | the text itself, so far |
//! | `0x03` | number, offset, length | an event of the same write, in a record |
//! | `0x04` | the id of the session | nothing: the events by number are in that session |
//! | `0x11` to `0x18` | offset, length | the event that many places before this one |
//!
//! Everything else stands for itself. This knows nothing about JSON, except that control characters
//! are escaped there: a text that has one is stored whole. A text that does not begin with `~` is
//! whole.

mod dictionary;
mod reader;
mod writer;

pub(crate) use self::{
    reader::{ReferredEvent, complete_alone, complete_text},
    writer::TextShortener,
};

/// The first character of a text with references.
const MARK: char = '~';
/// Begins a reference to the dictionary.
const FROM_DICTIONARY: u8 = 0x01;
/// Begins a reference to the text itself.
const FROM_ITSELF: u8 = 0x02;
/// Begins a reference to an event by its number.
const FROM_NUMBERED: u8 = 0x03;
/// Begins the id of the session of numbered events.
const SESSION: u8 = 0x04;
/// Begins a reference to the event that is one place before; those before it follow.
const FROM_PREVIOUS: u8 = 0x11;
/// The number of earlier events to which an event can refer.
pub(crate) const REACH: u64 = 8;
/// The least length of a range. Lengths are stored without it.
const LEAST_LENGTH: usize = 8;
/// The longest text that is shortened. A stored text that would be longer when it is completed is
/// damaged: a few references can stand for any amount of text.
const LONGEST_TEXT: usize = 4 * 1024 * 1024;

/// The first of the characters for digits that another one follows, and for the last digit of a
/// number.
const DIGIT: u8 = b'0';
const LAST_DIGIT: u8 = b'P';
/// The number of bits of a digit.
const DIGIT_BITS: u32 = 5;

#[cfg(test)]
mod tests;
