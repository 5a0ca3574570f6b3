use std::{collections::BTreeMap, rc::Rc};

use proptest::prelude::*;
use toolgate_core::{SessionId, StoreError};
use uuid::Uuid;

use super::{LONGEST_TEXT, MARK, ReferredEvent, TextShortener, complete_alone, complete_text};

fn session() -> SessionId {
    SessionId::new(Uuid::from_u128(7))
}

/// The texts of one write, each with its kind.
#[derive(Debug, Clone, Default)]
struct WrittenTexts {
    events: Vec<String>,
    records: Vec<String>,
    alone: Vec<String>,
}

impl WrittenTexts {
    /// Shortens the texts; the first event has number 5.
    fn shorten(&self) -> Self {
        let mut texts = TextShortener::new(session());
        let events = (5..).zip(&self.events);
        let events = events.map(|(number, body)| texts.shorten_event(number, body.clone()));
        let events = events.collect();
        let records = self
            .records
            .iter()
            .map(|body| texts.shorten_record(body.clone()));
        let records = records.collect();
        let alone = self.alone.iter();
        let alone = alone.map(|body| texts.shorten_alone(body).unwrap_or_else(|| body.clone()));
        let alone = alone.collect();
        Self {
            events,
            records,
            alone,
        }
    }

    /// Completes shortened texts.
    fn complete(&self) -> Result<Self, StoreError> {
        let mut whole: BTreeMap<u64, Rc<str>> = BTreeMap::new();
        for (number, stored) in (5..).zip(&self.events) {
            let load = &mut |event| match event {
                ReferredEvent::Before(places) => Ok(whole.get(&(number - places)).cloned()),
                ReferredEvent::Numbered(..) => Ok(None),
            };
            let body = complete_text(stored, load, String::new)?.into();
            whole.insert(number, body);
        }
        let load = &mut |event| match event {
            ReferredEvent::Numbered(of, number) if of == session() => {
                Ok(whole.get(&number).cloned())
            }
            _ => Ok(None),
        };
        let complete = |stored: &String| complete_text(stored, load, String::new).map(Into::into);
        let records = self
            .records
            .iter()
            .map(complete)
            .collect::<Result<_, _>>()?;
        let alone = self.alone.iter();
        let alone = alone.map(|stored| complete_alone(stored, String::new).map(Into::into));
        let alone = alone.collect::<Result<_, _>>()?;
        let events = whole.values().map(|body| body.to_string()).collect();
        Ok(Self {
            events,
            records,
            alone,
        })
    }

    fn all(&self) -> Vec<&String> {
        let all = self.events.iter().chain(&self.records);
        all.chain(&self.alone).collect()
    }
}

/// Returns a list of layers as it is in the audit event and in the outcome of a call.
fn trail(count: usize) -> String {
    let note = |n: usize| {
        format!(
            r#"{{"name":"layer_{n}","band":"decide","status":"ok","started_at":"2026-11-18T10:00:00.{n:06}Z","#
        )
    };
    (0..count).map(note).collect()
}

fn header(call: u64) -> String {
    format!(
        r#"{{"session_id":"{}","invocation_id":"{call:040}","#,
        session()
    )
}

#[test]
fn what_the_texts_of_a_write_repeat_is_stored_once() {
    let result = "the first line of a file, and the second, and the third ".repeat(20);
    let write = WrittenTexts {
        events: vec![
            format!("{}\"sequence\":5}}", header(1)),
            format!("{}\"audit\":[{}]}}", header(1), trail(9)),
            format!("{}\"result\":\"{result}\"}}", header(1)),
        ],
        records: vec![
            format!(
                r#"{{"outcome":{{"value":"{result}","layers":[{}]}}}}"#,
                trail(9)
            ),
            format!(r#"{{"message":{{"text":"{result}"}}}}"#),
        ],
        alone: vec![format!(r#"{{"layers":[{}]}}"#, trail(9))],
    };
    let stored = write.shorten();
    assert_eq!(stored.complete().expect("complete").all(), write.all());
    let lengths = |texts: &[String]| texts.iter().map(String::len).collect::<Vec<_>>();
    let [_, audit, result] = lengths(&stored.events)[..] else {
        panic!("three events");
    };
    // The layers differ in their names and times.
    assert!(audit < 450 && result < 220, "{stored:#?}");
    // A record names the session and two ranges.
    let [outcome, message] = lengths(&stored.records)[..] else {
        panic!("two records");
    };
    assert!(outcome < 120 && message < 90, "{stored:#?}");
    assert!(stored.alone[0].len() < 450, "{stored:#?}");
}

#[test]
fn a_text_that_stands_alone_refers_to_no_event() {
    let body = format!("{}\"audit\":[{}]}}", header(1), trail(3));
    let write = WrittenTexts {
        events: vec![body.clone()],
        alone: vec![body.clone()],
        ..WrittenTexts::default()
    };
    let stored = write.shorten();
    assert!(stored.alone[0].starts_with(MARK));
    let whole = complete_alone(&stored.alone[0], String::new);
    assert_eq!(whole.expect("needs no event"), body);
}

#[test]
fn only_a_few_references_are_followed_however_long_a_write_is() {
    let events = (0..500).map(|n| format!("{}\"n\":{n},{}}}", header(n / 4), trail(2)));
    let write = WrittenTexts {
        events: events.collect(),
        ..WrittenTexts::default()
    };
    let stored = write.shorten();
    assert_eq!(stored.complete().expect("complete").events, write.events);
    let mut depths: BTreeMap<u64, u32> = BTreeMap::new();
    for (number, stored) in (5..).zip(&stored.events) {
        let mut depth = 0;
        let load = &mut |event| {
            let ReferredEvent::Before(places) = event else {
                panic!("{event:?}");
            };
            depth = depth.max(depths[&(number - places)] + 1);
            Ok(Some(Rc::from(
                write.events[(number - places - 5) as usize].as_str(),
            )))
        };
        complete_text(stored, load, String::new).expect("complete");
        depths.insert(number, depth);
    }
    let deepest = depths.values().max().expect("there are events");
    // A reader follows at most eight.
    assert!(*deepest <= 3, "{deepest}");
    let bytes = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
    assert!(bytes(&stored.events) * 3 < bytes(&write.events));
}

#[test]
fn a_text_with_control_characters_is_stored_whole() {
    let body = format!("{{\"a\":\"\u{1}{}\"}}", trail(4));
    let write = WrittenTexts {
        events: vec![body.clone(), body.clone()],
        records: vec![body.clone()],
        alone: vec![body],
    };
    assert_eq!(write.shorten().all(), write.all());
}

#[test]
fn a_reference_that_cannot_be_followed_is_damage() {
    for stored in [
        "~\u{1}",
        "~\u{1}P",
        "~\u{1}PP\u{1}",
        // Beyond the dictionary, before the beginning, and more than there is so far.
        "~\u{1}OOOoP",
        "~abcdefgh\u{2}YP",
        "~abcdefgh\u{2}QP",
        // An event without a session, and one that is not there.
        "~\u{3}PPP",
        "~\u{4}00000000000000000000000000000007\u{3}PPP",
        "~\u{4}0000",
        "~\u{11}PP",
        "~\u{19}PP",
        "~\u{5}PP",
        "~\u{1}äP",
        "~\u{1}OOOOOOOOOOOOOOOOOOOoP",
    ] {
        let damaged = complete_alone(stored, || "a row".into()).expect_err("damaged");
        assert!(matches!(damaged, StoreError::Damaged { .. }), "{stored:?}");
        assert!(damaged.to_string().contains("a row"), "{damaged}");
    }
    assert_eq!(
        complete_alone("~abcdefgh\u{2}XP", String::new).expect("fits"),
        "abcdefghabcdefgh"
    );
    let inside = complete_alone("~aäbcdefghi\u{2}YP", String::new);
    assert!(inside.is_err(), "begins inside a character");
}

#[test]
fn a_few_references_cannot_stand_for_any_amount_of_text() {
    let mut stored = format!("{MARK}{}", "x".repeat(1_024));
    // Each repeats all of the text so far.
    let mut length = 1_024_u64;
    for _ in 0..40 {
        stored.push('\u{2}');
        super::writer::write_number(&mut stored, length);
        super::writer::write_number(&mut stored, length - 8);
        length *= 2;
    }
    assert!(complete_alone(&stored, String::new).is_err());
    let long = "x".repeat(LONGEST_TEXT + 1);
    assert_eq!(TextShortener::new(session()).shorten_alone(&long), None);
}

fn any_text() -> impl Strategy<Value = String> {
    // Few different pieces, so that they repeat each other.
    let piece = prop_oneof![
        "[abä]{1,3}",
        "(abcdefghij|äöüßéè){1,4}",
        "\"status\":\"ok\","
    ];
    let pieces = proptest::collection::vec(piece, 0..30);
    pieces.prop_map(|pieces| format!("{{{}}}", pieces.concat()))
}

proptest! {
    #[test]
    fn any_texts_are_read_back(
        events in proptest::collection::vec(any_text(), 0..20),
        records in proptest::collection::vec(any_text(), 0..4),
        alone in proptest::collection::vec(any_text(), 0..4),
    ) {
        let write = WrittenTexts { events, records, alone };
        let whole = write.shorten().complete().expect("complete");
        prop_assert_eq!(whole.all(), write.all());
    }

    #[test]
    fn no_stored_text_makes_the_reader_panic(stored in "~[\u{1}-\u{5}\u{11}-\u{19}0-9A-Zaä]{0,40}") {
        let _ = complete_text(&stored, &mut |_| Ok(Some(Rc::from("äbc"))), String::new);
    }
}
