//! Bodies of events that begin like an earlier one of the same write.
//!
//! The events of a turn begin with the same fields: session, turn, model, call and more. Such a
//! body is stored without what it shares: `^12,210,` is the first 210 bytes of the body of event 12,
//! and what follows the second comma comes after them. A body that is stored whole begins with `{`.

use std::{cmp::Reverse, collections::VecDeque};

use toolgate_core::StoreError;

/// The first character of a body that is stored without its beginning.
const MARK: char = '^';
/// Sharing less than this is not worth a reference.
const LEAST_SHARED: usize = 48;
/// The number of earlier bodies that are compared with a new one.
const COMPARED: usize = 8;
/// The most references that are followed to complete a body.
const MAX_DEPTH: u32 = 4;

/// The bodies of one write so far, to which later ones can refer.
#[derive(Default)]
pub(crate) struct SharedBeginnings {
    earlier: VecDeque<EarlierBody>,
}

struct EarlierBody {
    sequence: u64,
    body: String,
    /// The number of references that are followed to complete it.
    depth: u32,
}

impl SharedBeginnings {
    /// Returns the body of an event as it is stored.
    pub(crate) fn shorten_body(&mut self, sequence: u64, body: String) -> String {
        let candidates = self.earlier.iter().filter(|like| like.depth < MAX_DEPTH);
        let best = candidates
            // Of equally good ones the one with the fewest references.
            .max_by_key(|like| (shared_bytes(&like.body, &body), Reverse(like.depth)))
            .map(|like| (like, shared_bytes(&like.body, &body)))
            .filter(|(_, shared)| *shared >= LEAST_SHARED);
        let (stored, depth) = match best {
            Some((like, shared)) => {
                let stored = format!("{MARK}{},{shared},{}", like.sequence, &body[shared..]);
                (stored, like.depth + 1)
            }
            None => (body.clone(), 0),
        };
        if self.earlier.len() == COMPARED {
            self.earlier.pop_front();
        }
        self.earlier.push_back(EarlierBody {
            sequence,
            body,
            depth,
        });
        stored
    }
}

/// Returns the number of bytes that two texts have in common at their beginning, up to the end of a
/// character.
fn shared_bytes(a: &str, b: &str) -> usize {
    let pairs = a.as_bytes().iter().zip(b.as_bytes());
    let equal = pairs.take_while(|(a, b)| a == b).count();
    b.floor_char_boundary(equal)
}

/// A stored body that lacks its beginning.
pub(crate) struct ShortenedBody<'a> {
    /// The event whose body begins in the same way.
    pub(crate) like: u64,
    shared: usize,
    rest: &'a str,
}

impl<'a> ShortenedBody<'a> {
    /// Parses the stored body of event `sequence`; `None` if it is stored whole.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if it begins with the mark and does not name an earlier event.
    pub(crate) fn parse(
        sequence: u64,
        stored: &'a str,
        what: impl FnOnce() -> String,
    ) -> Result<Option<Self>, StoreError> {
        let Some(reference) = stored.strip_prefix(MARK) else {
            return Ok(None);
        };
        let parts = || {
            let (like, rest) = reference.split_once(',')?;
            let (shared, rest) = rest.split_once(',')?;
            // Only earlier ones: a chain of references ends.
            let like = like.parse().ok().filter(|like| *like < sequence)?;
            let shared = shared.parse().ok()?;
            Some(Self { like, shared, rest })
        };
        parts()
            .map(Some)
            .ok_or_else(|| damaged(what(), "its reference to an earlier event cannot be read"))
    }

    /// Returns the whole body, given that of the event that it refers to.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if the other body is too short.
    pub(crate) fn complete(
        &self,
        earlier: &str,
        what: impl FnOnce() -> String,
    ) -> Result<String, StoreError> {
        let beginning = earlier
            .get(..self.shared)
            .ok_or_else(|| damaged(what(), "the event that it refers to is another one"))?;
        Ok([beginning, self.rest].concat())
    }
}

fn damaged(what: String, problem: &'static str) -> StoreError {
    StoreError::Damaged {
        what,
        source: problem.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(stored: &[String]) -> Vec<String> {
        let mut whole: Vec<String> = Vec::new();
        for (at, stored) in stored.iter().enumerate() {
            let parsed = ShortenedBody::parse(at as u64 + 1, stored, String::new).expect("valid");
            let body = match parsed {
                None => stored.clone(),
                Some(short) => {
                    let earlier = &whole[short.like as usize - 1];
                    short.complete(earlier, String::new).expect("fits")
                }
            };
            whole.push(body);
        }
        whole
    }

    fn shorten(bodies: &[String]) -> Vec<String> {
        let mut beginnings = SharedBeginnings::default();
        let numbered = bodies.iter().zip(1..);
        numbered
            .map(|(body, sequence)| beginnings.shorten_body(sequence, body.clone()))
            .collect()
    }

    #[test]
    fn a_beginning_is_stored_once_and_every_body_is_read_back() {
        let turn = format!("{{\"session_id\":\"{}\",", "ä".repeat(60));
        let call = format!("{turn}\"invocation_id\":\"{}\",", "7".repeat(40));
        let bodies = [
            format!("{turn}\"sequence\":1}}"),
            format!("{call}\"sequence\":2}}"),
            format!("{call}\"sequence\":3,\"text\":\"ö\"}}"),
            format!("{call}\"sequence\":4,\"text\":\"ü\"}}"),
            "{}".to_owned(),
            format!("{turn}\"sequence\":6}}"),
        ];
        let stored = shorten(&bodies);
        assert_eq!(read_back(&stored), bodies);
        let marked = stored.iter().filter(|body| body.starts_with(MARK)).count();
        assert_eq!(marked, 4);
        assert!(stored[2].len() < 40, "{}", stored[2]);
    }

    #[test]
    fn only_a_few_references_are_followed_however_long_a_write_is() {
        let beginning = format!("{{\"session_id\":\"{}\",", "7".repeat(60));
        let bodies: Vec<String> = (0..1_000).map(|n| format!("{beginning}{n}}}")).collect();
        let stored = shorten(&bodies);
        assert_eq!(read_back(&stored), bodies);
        let mut depths: Vec<u32> = Vec::new();
        for (sequence, stored) in (1..).zip(&stored) {
            let short = ShortenedBody::parse(sequence, stored, String::new).expect("valid");
            depths.push(short.map_or(0, |short| depths[short.like as usize - 1] + 1));
        }
        assert!(depths.iter().all(|depth| *depth <= MAX_DEPTH), "{depths:?}");
        let bytes = |bodies: &[String]| bodies.iter().map(String::len).sum::<usize>();
        assert!(bytes(&stored) * 2 < bytes(&bodies));
    }

    #[test]
    fn a_reference_that_cannot_be_followed_is_damage() {
        for stored in [
            "^",
            "^1",
            "^1,2",
            "^x,2,",
            "^1,x,",
            "^5,2,rest",
            "^9,2,rest",
        ] {
            assert!(
                ShortenedBody::parse(5, stored, String::new).is_err(),
                "{stored}"
            );
        }
        let parsed = ShortenedBody::parse(5, "^1,3,rest", String::new);
        let short = parsed.expect("valid").expect("shortened");
        assert!(short.complete("ab", String::new).is_err());
        assert!(short.complete("aä b", String::new).is_ok());
        assert!(
            short.complete("abä", String::new).is_err(),
            "inside a character"
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bodies_are_read_back(bodies in proptest::collection::vec("\\{(ab|äö){0,40}[a-cä]{0,3}", 0..12)) {
            proptest::prop_assert_eq!(read_back(&shorten(&bodies)), bodies);
        }
    }
}
