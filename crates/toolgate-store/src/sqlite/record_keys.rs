//! The keys under which records are stored in an SQLite file.
//!
//! The name of a record begins with its kind. In the file, the id of the session, turn or call comes
//! first, in 16 bytes, then a byte for the kind and the rest of the name. Ids begin with the time, so
//! the records of one turn are beside each other in the index, and a commit writes fewer pages.

use rusqlite::types::{Value, ValueRef};
use toolgate_core::ErasureNames;
use uuid::Uuid;

/// A kind of record that belongs to a session, a turn or a call.
struct KeyKind {
    word: &'static str,
    /// The byte in stored keys, which must not change.
    code: u8,
    /// True if a slash and more text follow the id.
    has_rest: bool,
}

const fn kind(word: &'static str, code: u8, has_rest: bool) -> KeyKind {
    KeyKind {
        word,
        code,
        has_rest,
    }
}

const KINDS: [KeyKind; 10] = [
    kind("outcome", 1, false),
    kind("requests", 2, false),
    kind("ended", 3, false),
    kind("successor", 4, false),
    kind("question", 5, true),
    kind("answer", 6, true),
    kind("result", 7, true),
    kind("layer", 8, true),
    kind("message", 9, true),
    kind("run", 10, true),
];

/// The length of an id as text, and as bytes.
const TEXT_LENGTH: usize = 36;
const BYTE_LENGTH: usize = 16;

/// Returns the key under which the record with this name is stored. For the beginning of a name, up to
/// the slash behind an id, it is the beginning of the keys.
pub(super) fn stored_key(name: &str) -> Value {
    let short = short_key(name);
    short.map_or_else(|| Value::Text(name.to_owned()), Value::Blob)
}

fn short_key(name: &str) -> Option<Vec<u8>> {
    let (word, rest) = name.split_once('/')?;
    let kind = KINDS.iter().find(|kind| kind.word == word)?;
    let (id, rest) = rest.split_at_checked(TEXT_LENGTH)?;
    let rest = if kind.has_rest {
        rest.strip_prefix('/')?
    } else {
        Some(rest).filter(|rest| rest.is_empty())?
    };
    let id = parse_id(id)?;
    let mut key = Vec::with_capacity(BYTE_LENGTH + 1 + rest.len());
    key.extend_from_slice(id.as_bytes());
    key.push(kind.code);
    key.extend_from_slice(rest.as_bytes());
    Some(key)
}

/// Parses an id in the one form that is written: others would not be read back as they were.
fn parse_id(text: &str) -> Option<Uuid> {
    let id = Uuid::try_parse(text).ok()?;
    let mut buffer = Uuid::encode_buffer();
    (id.hyphenated().encode_lower(&mut buffer) == text).then_some(id)
}

/// Returns the name of the record that is stored under this key, or nothing for a damaged key.
pub(super) fn record_name(key: ValueRef<'_>) -> Option<String> {
    match key {
        ValueRef::Text(name) => std::str::from_utf8(name).ok().map(str::to_owned),
        ValueRef::Blob(key) => {
            let (id, rest) = key.split_first_chunk::<BYTE_LENGTH>()?;
            let (code, rest) = rest.split_first()?;
            let kind = KINDS.iter().find(|kind| kind.code == *code)?;
            let rest = std::str::from_utf8(rest).ok()?;
            let slash = if kind.has_rest { "/" } else { "" };
            Some(format!(
                "{}/{}{slash}{rest}",
                kind.word,
                Uuid::from_bytes(*id)
            ))
        }
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => None,
    }
}

/// A range of stored keys whose records are in the order of their names.
pub(super) struct KeyRange {
    /// The first name that can be in it.
    first_name: String,
    pub(super) first: Value,
    /// The end, which is not part of it.
    pub(super) end: Value,
}

impl KeyRange {
    /// Returns the ranges of these names, in the order of the names.
    pub(super) fn of_names(names: &ErasureNames) -> Vec<Self> {
        let whole = names.whole.iter().map(|name| Self {
            first_name: name.clone(),
            first: stored_key(name),
            end: end_of_one(stored_key(name)),
        });
        let starts = names.starts.iter().map(|start| Self {
            first_name: start.clone(),
            first: stored_key(start),
            end: end_of_prefix(stored_key(start)),
        });
        let mut ranges: Vec<_> = whole.chain(starts).collect();
        ranges.sort_by(|one, other| one.first_name.cmp(&other.first_name));
        ranges
    }

    /// Returns the key after which the rest of the range begins, if the records up to the name `after`
    /// were read before; nothing if that is all of the range.
    pub(super) fn rest_after(&self, after: &str) -> Option<Value> {
        if after < self.first_name.as_str() {
            // SQLite orders numbers before texts and bytes, so all keys come after this one.
            return Some(Value::Integer(0));
        }
        Some(stored_key(after)).filter(|key| self.contains(key))
    }

    fn contains(&self, key: &Value) -> bool {
        match (&self.first, key, &self.end) {
            (Value::Text(first), Value::Text(key), Value::Text(end)) => first <= key && key < end,
            (Value::Blob(first), Value::Blob(key), Value::Blob(end)) => first <= key && key < end,
            _ => false,
        }
    }
}

/// Returns the first key after one.
fn end_of_one(mut key: Value) -> Value {
    match &mut key {
        Value::Text(name) => name.push('\0'),
        Value::Blob(key) => key.push(0),
        Value::Null | Value::Integer(_) | Value::Real(_) => {}
    }
    key
}

/// Returns the first key after all that begin like this one, whose last character is not the last one
/// there is: a slash, or the code of a kind.
fn end_of_prefix(mut key: Value) -> Value {
    match &mut key {
        Value::Text(name) => {
            name.pop();
            // The character after the slash.
            name.push('0');
        }
        Value::Blob(key) => {
            if let Some(code) = key.last_mut() {
                *code += 1;
            }
        }
        Value::Null | Value::Integer(_) | Value::Real(_) => {}
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toolgate_core::{CallId, RecordKey, SessionId, TurnId};

    fn any_id() -> impl Strategy<Value = Uuid> {
        any::<u128>().prop_map(Uuid::from_u128)
    }

    fn any_key() -> impl Strategy<Value = RecordKey> {
        let call = || any_id().prop_map(CallId::new);
        let turn = || any_id().prop_map(TurnId::new);
        prop_oneof![
            call().prop_map(RecordKey::Outcome),
            turn().prop_map(RecordKey::Requests),
            turn().prop_map(RecordKey::Ended),
            turn().prop_map(RecordKey::Successor),
            (call(), any::<u32>()).prop_map(|(call, n)| RecordKey::Question(call, n)),
            (call(), any::<u32>()).prop_map(|(call, n)| RecordKey::Answer(call, n)),
            (call(), any::<u32>()).prop_map(|(call, n)| RecordKey::Result(call, n)),
            (call(), ".{0,40}").prop_map(|(call, name)| RecordKey::Layer(call, name.into())),
            (any_id(), 0..1_000_000_u64)
                .prop_map(|(id, n)| RecordKey::Message(SessionId::new(id), n)),
            ".{0,60}".prop_map(|name| RecordKey::Other(name.into())),
            (any_id(), ".{0,20}")
                .prop_map(|(id, rest)| RecordKey::Other(format!("{id}/outcome{rest}").into())),
        ]
    }

    proptest! {
        #[test]
        fn the_name_of_a_record_follows_from_its_stored_key(key in any_key()) {
            let name = key.to_string();
            let stored = stored_key(&name);
            prop_assert_eq!(record_name(ValueRef::from(&stored)), Some(name));
        }

        #[test]
        fn no_two_names_are_stored_under_one_key(one in any_key(), other in any_key()) {
            let same = stored_key(&one.to_string()) == stored_key(&other.to_string());
            prop_assert_eq!(same, one == other);
        }
    }

    #[test]
    fn records_that_were_read_before_are_not_read_again() {
        let call = |n: u128| CallId::new(Uuid::from_u128(n));
        let mut names = ErasureNames::default();
        names.add_call(call(5));
        names.add_call(call(1));
        let after = RecordKey::Question(call(1), 3).to_string();
        for range in KeyRange::of_names(&names) {
            let rest = range.rest_after(&after);
            let expected = match range.first_name.as_str() {
                name if name.starts_with(&format!("question/{}", call(1))) => {
                    Some(stored_key(&after))
                }
                name if name > after.as_str() => Some(Value::Integer(0)),
                _ => None,
            };
            assert_eq!(rest, expected, "{}", range.first_name);
        }
    }

    #[test]
    fn records_of_one_turn_are_beside_each_other() {
        let id = |n: u128| Uuid::from_u128(n);
        let stored = |key: RecordKey| short_key(&key.to_string()).expect("has an id");
        let mut keys = [
            stored(RecordKey::Outcome(CallId::new(id(2)))),
            stored(RecordKey::Requests(TurnId::new(id(1)))),
            stored(RecordKey::Outcome(CallId::new(id(4)))),
            stored(RecordKey::Requests(TurnId::new(id(3)))),
        ];
        keys.sort();
        let starts: Vec<_> = keys.iter().map(|key| &key[..BYTE_LENGTH]).collect();
        let ids: Vec<_> = (1..5).map(|n| id(n).into_bytes()).collect();
        assert_eq!(starts, ids);
    }
}
