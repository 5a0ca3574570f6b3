//! Text: serde for types that are plain text on the wire, and what error messages need to name a
//! value or a place in a file.

use serde::Serialize;

/// Returns an error and its causes in one line, each of them once.
///
/// An error of Toolgate includes its cause in its own text. Those of other crates may leave it to
/// `source()`.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        // Some errors repeat their cause, and some causes repeat the end of what is said already,
        // with a code in front of it.
        let end = text.rsplit(": ").next().unwrap_or_default();
        if !text.contains(&said) && !said.ends_with(end) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}

/// Returns the word that a value of an enumeration is serialized as.
pub fn serialized_word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    }
}

/// Returns line and column of the byte at `at`, counted from 1. A position outside the text counts
/// as its start.
pub fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

/// Returns the words in backticks in a message of serde: the wrong one and the known ones.
pub fn backticked_words(message: &str) -> Option<(&str, Vec<&str>)> {
    let mut words = message.split('`').skip(1).step_by(2);
    Some((words.next()?, words.collect()))
}

/// Implements serde for a type through its text: written with `Display`, parsed with `FromStr`.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text =
                    <std::borrow::Cow<'_, str> as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use serde_as_text;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_and_its_causes_are_printed_once_each() {
        #[derive(Debug, thiserror::Error)]
        #[error("{text}")]
        struct Cause {
            text: &'static str,
            source: Option<Box<Cause>>,
        }
        let cause = |text, source: Option<Cause>| Cause {
            text,
            source: source.map(Box::new),
        };
        let code = cause("Error code 5: it is locked", None);
        let locked = cause("it is locked", Some(code));
        let file = cause("a.db cannot be read: it is locked", Some(locked));
        let all = cause("the store failed", Some(file));
        assert_eq!(
            error_chain(&all),
            "the store failed: a.db cannot be read: it is locked"
        );
    }

    #[test]
    fn a_place_in_a_text_is_counted_in_characters_from_one() {
        let text = "añb\nc日d";
        assert_eq!(line_and_column(text, 0), (1, 1));
        assert_eq!(line_and_column(text, 3), (1, 3));
        assert_eq!(line_and_column(text, 9), (2, 3));
        assert_eq!(line_and_column(text, 99), (1, 1));
        assert_eq!(line_and_column(text, 2), (1, 1), "inside a character");
    }

    #[test]
    fn words_are_found_in_backticks_and_in_enumerations() {
        let message = "unknown field `x`, expected `a` or `b`";
        assert_eq!(backticked_words(message), Some(("x", vec!["a", "b"])));
        assert_eq!(backticked_words("nothing"), None);
        assert_eq!(serialized_word(&crate::SideEffect::ReadOnly), "read_only");
    }
}
