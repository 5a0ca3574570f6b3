//! Completes stored texts.

use std::{borrow::Cow, rc::Rc};

use toolgate_core::{SessionId, StoreError};
use uuid::Uuid;

use super::{
    DIGIT, DIGIT_BITS, FROM_DICTIONARY, FROM_ITSELF, FROM_NUMBERED, FROM_PREVIOUS, LAST_DIGIT,
    LEAST_LENGTH, LONGEST_TEXT, MARK, REACH, SESSION, dictionary::DICTIONARY,
};

/// An event to which a stored text refers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReferredEvent {
    /// The event that many places before the one that the text belongs to.
    Before(u64),
    /// The event with this number in this session.
    Numbered(SessionId, u64),
}

/// Returns the whole body of an event; `None` if the text must not refer to it.
pub(crate) type BodyLoader<'a> =
    &'a mut dyn FnMut(ReferredEvent) -> Result<Option<Rc<str>>, StoreError>;

/// Returns the whole text of one that depends on no other row.
///
/// # Errors
///
/// [`StoreError::Damaged`] with `what` if a reference cannot be followed.
pub(crate) fn complete_alone(
    stored: &str,
    what: impl Fn() -> String,
) -> Result<Cow<'_, str>, StoreError> {
    complete_text(stored, &mut |_| Ok(None), what)
}

/// Returns the whole text of a stored one.
///
/// # Errors
///
/// [`StoreError::Damaged`] with `what` if a reference cannot be followed, and the errors of
/// `load_body`.
pub(crate) fn complete_text<'a>(
    stored: &'a str,
    load_body: BodyLoader<'_>,
    what: impl Fn() -> String,
) -> Result<Cow<'a, str>, StoreError> {
    let Some(rest) = stored.strip_prefix(MARK) else {
        return Ok(Cow::Borrowed(stored));
    };
    let mut text = TextCompletion {
        rest,
        whole: String::with_capacity(stored.len() * 3),
        session: None,
    };
    match text.follow_references(load_body)? {
        Some(()) => Ok(Cow::Owned(text.whole)),
        None => Err(StoreError::Damaged {
            what: what(),
            source: "a reference in it cannot be followed".into(),
        }),
    }
}

/// A text that is being completed.
struct TextCompletion<'a> {
    rest: &'a str,
    whole: String,
    /// The session of the events that it refers to by number.
    session: Option<SessionId>,
}

impl TextCompletion<'_> {
    /// Completes the text; `None` if a reference cannot be followed.
    fn follow_references(&mut self, load_body: BodyLoader<'_>) -> Result<Option<()>, StoreError> {
        while let Some(place) = self.rest.find(|c: char| c < ' ') {
            self.whole.push_str(&self.rest[..place]);
            let kind = self.rest.as_bytes()[place];
            self.rest = &self.rest[place + 1..];
            let event = match self.read_event(kind) {
                Some(event) => event,
                None => return Ok(None),
            };
            let body = match event {
                Some(event) => match load_body(event)? {
                    Some(body) => Some(body),
                    None => return Ok(None),
                },
                None => None,
            };
            if self.append_range(kind, body.as_deref()).is_none() {
                return Ok(None);
            }
        }
        self.whole.push_str(self.rest);
        Ok(Some(()))
    }

    /// Reads which event a reference is to, if it is to one. The outer `None` is damage.
    fn read_event(&mut self, kind: u8) -> Option<Option<ReferredEvent>> {
        match kind {
            FROM_DICTIONARY | FROM_ITSELF => Some(None),
            SESSION => {
                let id = self.rest.get(..Uuid::nil().simple().to_string().len())?;
                self.session = Some(SessionId::new(Uuid::try_parse(id).ok()?));
                self.rest = &self.rest[id.len()..];
                Some(None)
            }
            FROM_NUMBERED => {
                let sequence = self.read_number()?;
                Some(Some(ReferredEvent::Numbered(self.session?, sequence)))
            }
            _ => {
                let places = u64::from(kind).checked_sub(u64::from(FROM_PREVIOUS))? + 1;
                (places <= REACH).then_some(Some(ReferredEvent::Before(places)))
            }
        }
    }

    /// Appends the range of a reference; `None` if there is none.
    fn append_range(&mut self, kind: u8, body: Option<&str>) -> Option<()> {
        if kind == SESSION {
            return Some(());
        }
        let from = usize::try_from(self.read_number()?).ok()?;
        let length = usize::try_from(self.read_number()?).ok()?;
        let length = length.checked_add(LEAST_LENGTH)?;
        if length > LONGEST_TEXT - self.whole.len() {
            return None;
        }
        if kind == FROM_ITSELF {
            let start = self.whole.len().checked_sub(from)?;
            self.whole.get(start..)?.get(..length)?;
            self.whole.extend_from_within(start..start + length);
        } else {
            let source = body.unwrap_or(DICTIONARY);
            self.whole.push_str(source.get(from..)?.get(..length)?);
        }
        Some(())
    }

    fn read_number(&mut self) -> Option<u64> {
        let mut number: u64 = 0;
        for (place, byte) in self.rest.bytes().enumerate() {
            let last = byte.checked_sub(LAST_DIGIT);
            let digit = u64::from(last.or_else(|| byte.checked_sub(DIGIT))?);
            if digit >= 1 << DIGIT_BITS {
                return None;
            }
            number = number.checked_mul(1 << DIGIT_BITS)? | digit;
            if last.is_some() {
                self.rest = &self.rest[place + 1..];
                return Some(number);
            }
        }
        None
    }
}
