//! Bounds what tools and layers note, for records that have to stay small.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::long_text::written_size;

/// The most bytes of one note.
const MOST_ONE: usize = 16 * 1024;

/// The most bytes of all notes together.
const MOST_ALL: usize = 64 * 1024;

/// Quotes, colon and comma of one note.
const AROUND: usize = 4;

/// What decides about others is never crowded out by them.
const FIRST: [&str; 2] = ["policy_version", "cost"];

/// The value, or its size if it is too large.
pub(crate) fn small_value(value: &Value) -> Value {
    match written_size(value) {
        size if size > MOST_ONE => truncated(size),
        _ => value.clone(),
    }
}

/// As much of a map as a record has room for: large values give way to their sizes, and what does not fit even so is
/// counted.
pub(crate) fn small_map(map: &Map<String, Value>) -> Cow<'_, Map<String, Value>> {
    // Mostly there is room for everything, and nothing has to be copied to see that.
    if fits(map) {
        Cow::Borrowed(map)
    } else {
        Cow::Owned(shortened(map))
    }
}

fn fits(map: &Map<String, Value>) -> bool {
    let sizes = || {
        map.iter()
            .map(|(key, value)| (key.len(), written_size(value)))
    };
    let all = sizes().try_fold(0_usize, |all, (key, value)| {
        (value <= MOST_ONE).then_some(all + key + value + AROUND)
    });
    all.is_some_and(|all| all <= MOST_ALL)
}

fn shortened(map: &Map<String, Value>) -> Map<String, Value> {
    let (mut small, mut room, mut left_out) = (Map::new(), MOST_ALL, 0_usize);
    let first = FIRST.iter().filter_map(|key| map.get_key_value(*key));
    for (key, value) in first.chain(map.iter().filter(|(key, _)| !FIRST.contains(&key.as_str()))) {
        let size = written_size(value);
        let fits = size <= MOST_ONE && size.saturating_add(key.len()) <= room;
        let note = if fits { value.clone() } else { truncated(size) };
        match room.checked_sub(key.len() + written_size(&note) + AROUND) {
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

fn truncated(bytes: usize) -> Value {
    json!({ "truncated": true, "bytes": bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_small_stays_as_it_is() {
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
    fn a_large_note_gives_way_to_its_size_and_the_others_stay() {
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
        map.insert("k".repeat(MOST_ALL), json!(1));
        map.insert("policy_version".into(), json!("v7"));
        let small = small_map(&map);
        assert!(Value::Object(small.clone().into_owned()).to_string().len() <= MOST_ALL + 64);
        assert_eq!(small["policy_version"], "v7");
        let left_out =
            usize::try_from(small["notes_left_out"].as_u64().expect("a number")).expect("fits");
        assert_eq!(left_out + small.len() - 1, map.len());
    }
}
