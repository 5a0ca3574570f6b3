//! Limits the size of notes of tools and layers, for records that have to stay small.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use toolgate_core::note_keys;

use crate::shape::output_cap::shared_text::json_size;

/// The most bytes of one note.
const MAX_NOTE_BYTES: usize = 16 * 1024;

/// The most bytes of all notes together.
const MAX_ALL_BYTES: usize = 64 * 1024;

/// Quotes, colon and comma of one note.
const NOTE_OVERHEAD: usize = 4;

/// Notes that are copied first: readers rely on them, so others must not crowd them out.
const FIRST_KEYS: [&str; 2] = [note_keys::POLICY_VERSION.name(), note_keys::COST.name()];

/// Returns the value, or a note of its size if it is too large.
pub(crate) fn small_value(value: &Value) -> Value {
    match json_size(value) {
        size if size > MAX_NOTE_BYTES => truncation_note(size),
        _ => value.clone(),
    }
}

/// Returns as much of a map as a record has room for.
///
/// Large values are replaced by their sizes. Entries that still do not fit are counted.
pub(crate) fn small_map(map: &Map<String, Value>) -> Cow<'_, Map<String, Value>> {
    // Most maps fit, and this test copies nothing.
    if is_within_limits(map) {
        Cow::Borrowed(map)
    } else {
        Cow::Owned(shorten_map(map))
    }
}

/// Checks whether a map is within all limits.
fn is_within_limits(map: &Map<String, Value>) -> bool {
    let sizes = || map.iter().map(|(key, value)| (key.len(), json_size(value)));
    let all = sizes().try_fold(0_usize, |all, (key, value)| {
        (value <= MAX_NOTE_BYTES).then_some(all + key + value + NOTE_OVERHEAD)
    });
    all.is_some_and(|all| all <= MAX_ALL_BYTES)
}

/// Returns a copy of the map that is within all limits.
fn shorten_map(map: &Map<String, Value>) -> Map<String, Value> {
    let mut small = Map::new();
    let mut room = MAX_ALL_BYTES;
    let mut left_out = 0_usize;
    let first = FIRST_KEYS.iter().filter_map(|key| map.get_key_value(*key));
    for (key, value) in first.chain(
        map.iter()
            .filter(|(key, _)| !FIRST_KEYS.contains(&key.as_str())),
    ) {
        let size = json_size(value);
        let fits = size <= MAX_NOTE_BYTES && size.saturating_add(key.len()) <= room;
        let note = if fits {
            value.clone()
        } else {
            truncation_note(size)
        };
        match room.checked_sub(key.len() + json_size(&note) + NOTE_OVERHEAD) {
            Some(rest) => {
                room = rest;
                small.insert(key.clone(), note);
            }
            None => left_out += 1,
        }
    }
    if left_out > 0 {
        small.insert("notes_left_out".into(), left_out.into());
    }
    small
}

/// Returns the replacement for a value that is too large.
fn truncation_note(bytes: usize) -> Value {
    json!({ "truncated": true, "bytes": bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_notes_are_unchanged() {
        let small = json!({ "a": [1, "x"], "cost": 0.5, "policy_version": { "n": 7 } });
        let map = small.as_object().expect("an object");
        assert_eq!(
            (small_map(map).into_owned(), small_value(&small)),
            (map.clone(), small.clone())
        );
        assert!(
            matches!(small_map(map), Cow::Borrowed(_)),
            "nothing is copied"
        );
    }

    #[test]
    fn a_large_note_is_replaced_by_its_size_and_the_others_stay() {
        let map = json!({ "dump": "x".repeat(10_000_000), "small": 1 });
        let small = Value::Object(small_map(map.as_object().expect("an object")).into_owned());
        assert_eq!(
            small,
            json!({ "dump": { "truncated": true, "bytes": 10_000_002 }, "small": 1 })
        );
    }

    #[test]
    fn many_small_notes_are_bounded_too() {
        let mut map: Map<_, _> = (0..100_000)
            .map(|n| (format!("a{n}"), json!("value")))
            .collect();
        map.insert("k".repeat(MAX_ALL_BYTES), json!(1));
        map.insert("policy_version".into(), json!("v7"));
        let small = small_map(&map);
        assert!(Value::Object(small.clone().into_owned()).to_string().len() <= MAX_ALL_BYTES + 64);
        assert_eq!(small["policy_version"], "v7");
        let left_out =
            usize::try_from(small["notes_left_out"].as_u64().expect("a number")).expect("fits");
        assert_eq!(left_out + small.len() - 1, map.len());
    }
}
