//! Bodies of events that schema version 10 stored without their beginning.
//!
//! `^12,210,` is the first 210 bytes of the body of event 12, and what follows the second comma comes
//! after them. Such bodies are read and not written any more: see [`short_text`](crate::short_text).

use toolgate_core::StoreError;

/// The first character of a body that is stored without its beginning.
const MARK: char = '^';

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

    #[test]
    fn a_body_without_its_beginning_is_completed() {
        let parsed = ShortenedBody::parse(5, "^4,7,\"b\":2}", String::new);
        let short = parsed.expect("valid").expect("shortened");
        let whole = short.complete(r#"{"a":1,"c":"ä"}"#, String::new);
        assert_eq!(
            (short.like, whole.expect("fits").as_str()),
            (4, r#"{"a":1,"b":2}"#)
        );
        let whole = ShortenedBody::parse(5, r#"{"a":1}"#, String::new);
        assert!(whole.expect("valid").is_none());
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
}
