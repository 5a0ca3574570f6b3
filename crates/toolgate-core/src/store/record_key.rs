//! The keys of records, and the names under which they are stored.

use std::{fmt, sync::Arc};

use crate::{CallId, SessionId, TurnId};

/// The key of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordKey {
    /// The outcome of a call. The first outcome stands.
    Outcome(CallId),
    /// The model's requests in a turn.
    Requests(TurnId),
    /// The mark that a turn is settled as a whole.
    Ended(TurnId),
    /// The turn that continued another one. There is only one.
    Successor(TurnId),
    /// The approval request for a call, by generation.
    Question(CallId, u32),
    /// The answer to an approval request, by generation.
    Answer(CallId, u32),
    /// The external result of an attempt, counted from 1.
    Result(CallId, u32),
    /// The answer of an action that a layer performs once for a call.
    Layer(CallId, Arc<str>),
    /// A message of a session, numbered from 0 without gaps.
    Message(SessionId, u64),
    /// The settings of a run, by the number of the message that begins it.
    Run(SessionId, u64),
    /// Anything else.
    Other(Arc<str>),
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Stored keys: changing one of these texts would orphan existing records.
            Self::Outcome(call) => write!(f, "outcome/{call}"),
            Self::Requests(turn) => write!(f, "requests/{turn}"),
            Self::Ended(turn) => write!(f, "ended/{turn}"),
            Self::Successor(turn) => write!(f, "successor/{turn}"),
            Self::Question(call, generation) => write!(f, "question/{call}/{generation}"),
            Self::Answer(call, generation) => write!(f, "answer/{call}/{generation}"),
            Self::Result(call, attempt) => write!(f, "result/{call}/{attempt}"),
            Self::Layer(call, key) => write!(f, "layer/{call}/{key}"),
            // Padded, so that the names sort like the numbers.
            Self::Message(session, number) => write!(f, "message/{session}/{number:012}"),
            Self::Run(session, number) => write!(f, "run/{session}/{number:012}"),
            Self::Other(key) => write!(f, "other/{key}"),
        }
    }
}

impl RecordKey {
    /// Returns the key that displays as `name`, if there is one.
    ///
    /// ```
    /// use toolgate_core::RecordKey;
    /// let key = RecordKey::Other("rule/x".into());
    /// assert_eq!(RecordKey::from_name(&key.to_string()), Some(key));
    /// assert_eq!(RecordKey::from_name("answer/x"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        let (word, rest) = name.split_once('/')?;
        let call = |text: &str| text.parse().ok();
        let numbered = |rest: &str| -> Option<(CallId, u32)> {
            let (id, number) = rest.split_once('/')?;
            Some((call(id)?, number.parse().ok()?))
        };
        let of_session = |rest: &str| -> Option<(SessionId, u64)> {
            let (id, number) = rest.split_once('/')?;
            Some((id.parse().ok()?, number.parse().ok()?))
        };
        let key = match word {
            "outcome" => Self::Outcome(call(rest)?),
            "requests" => Self::Requests(rest.parse().ok()?),
            "ended" => Self::Ended(rest.parse().ok()?),
            "successor" => Self::Successor(rest.parse().ok()?),
            "question" => numbered(rest).map(|(id, number)| Self::Question(id, number))?,
            "answer" => numbered(rest).map(|(id, number)| Self::Answer(id, number))?,
            "result" => numbered(rest).map(|(id, number)| Self::Result(id, number))?,
            "layer" => {
                let (id, key) = rest.split_once('/')?;
                Self::Layer(call(id)?, key.into())
            }
            "message" => of_session(rest).map(|(id, number)| Self::Message(id, number))?,
            "run" => of_session(rest).map(|(id, number)| Self::Run(id, number))?,
            "other" => Self::Other(rest.into()),
            _ => return None,
        };
        // The same name and no other: `+1` and `01` are numbers, too.
        (key.to_string() == name).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const CALL: CallId = CallId::new(Uuid::from_u128(1));
    const TURN: TurnId = TurnId::new(Uuid::from_u128(2));

    #[test]
    fn every_key_is_read_back_from_its_name() {
        let session = SessionId::new(Uuid::from_u128(3));
        let keys = [
            RecordKey::Outcome(CALL),
            RecordKey::Requests(TURN),
            RecordKey::Ended(TURN),
            RecordKey::Successor(TURN),
            RecordKey::Question(CALL, 0),
            RecordKey::Answer(CALL, 7),
            RecordKey::Result(CALL, 1),
            RecordKey::Layer(CALL, "".into()),
            RecordKey::Layer(CALL, "a/b".into()),
            RecordKey::Message(session, 12),
            RecordKey::Run(session, 12),
            RecordKey::Other("undo/x".into()),
        ];
        for key in keys {
            assert_eq!(RecordKey::from_name(&key.to_string()), Some(key));
        }
        for name in [
            "",
            "outcome",
            "outcome/x",
            "new/x",
            &format!("answer/{CALL}/+1"),
            &format!("message/{session}/1"),
        ] {
            assert_eq!(RecordKey::from_name(name), None, "{name}");
        }
    }
}
