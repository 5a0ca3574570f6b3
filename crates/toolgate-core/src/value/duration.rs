//! Durations as people write them: in options, in files and in variables.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Visitor};

/// A duration as people write it: `250ms`, `30s`, `1h 30m`. A bare number is rejected, because its
/// unit would have to be guessed.
///
/// ```
/// use std::time::Duration;
/// use toolgate_core::HumanDuration;
/// assert_eq!("1m 30s".parse::<HumanDuration>()?.get(), Duration::from_secs(90));
/// assert!("90".parse::<HumanDuration>().is_err());
/// # Ok::<(), toolgate_core::InvalidDuration>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct HumanDuration(Duration);

impl HumanDuration {
    /// Creates a duration from milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Creates a duration from seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// Returns the duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl From<Duration> for HumanDuration {
    fn from(span: Duration) -> Self {
        Self(span)
    }
}

/// The error for a text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as 250ms, 30s or 1h 30m")]
pub struct InvalidDuration(String);

impl FromStr for HumanDuration {
    type Err = InvalidDuration;
    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        // Truncated: the text comes from a file or a variable and ends up in an error message.
        let invalid = || InvalidDuration(text.chars().take(64).collect());
        let span: jiff::SignedDuration = text.parse().map_err(|_| invalid())?;
        // Negative durations parse, so they are rejected here.
        Duration::try_from(span).map(Self).map_err(|_| invalid())
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::SignedDuration::try_from(self.0) {
            Ok(span) => write!(f, "{span:#}"),
            Err(_) => write!(f, "{}s", self.0.as_secs()),
        }
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not `deserialize_str`: the visitor explains a bare number.
        deserializer.deserialize_any(DurationVisitor)
    }
}

/// Parses a duration from text.
struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = HumanDuration;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"30s\"")
    }
    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<HumanDuration, E> {
        Err(missing_unit(number))
    }
    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<HumanDuration, E> {
        Err(missing_unit(number))
    }
    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<HumanDuration, E> {
        Err(missing_unit(number))
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<HumanDuration, E> {
        text.parse().map_err(E::custom)
    }
}

fn missing_unit<E: serde::de::Error>(number: impl fmt::Display) -> E {
    E::custom(format_args!(
        "{number} has no unit; write \"30s\", with the quotes"
    ))
}

/// The durations that editors accept: numbers with units, or ISO 8601.
const DURATION_PATTERN: &str = "^(PT([0-9]+([.,][0-9]+)?[HMShms])+|[0-9]+([.,][0-9]+)? *UNIT(,? *[0-9]+([.,][0-9]+)? *UNIT)*)$";
const DURATION_UNIT: &str = "(h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|ms|msecs?|millis?|milliseconds?|[uµ]s|[uµ]secs?|\
                    micros?|microseconds?|ns|nsecs?|nanos?|nanoseconds?)";

impl JsonSchema for HumanDuration {
    fn schema_name() -> Cow<'static, str> {
        "HumanDuration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = DURATION_PATTERN.replace("UNIT", DURATION_UNIT);
        json_schema!({
            "type": "string",
            "pattern": pattern,
            "description": "A duration such as 250ms, 30s or 1h 30m.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip_and_bare_or_negative_numbers_are_rejected() {
        for text in ["250ms", "30s", "1h 30m", "2h"] {
            let span: HumanDuration = text.parse().expect(text);
            assert_eq!(span.to_string().parse(), Ok(span), "{text}");
        }
        for bad in ["", "30", "-3s", "soon", "3 parsecs"] {
            assert!(bad.parse::<HumanDuration>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bare_number_in_a_file_is_rejected_with_what_to_write() {
        for number in ["30", "-1", "1.5", "0"] {
            let error = serde_json::from_str::<HumanDuration>(number).expect_err(number);
            let text = error.to_string();
            let expected = format!("{number} has no unit; write \"30s\"");
            assert!(text.starts_with(&expected), "{text}");
        }
        let written: HumanDuration = serde_json::from_str("\"30s\"").expect("a duration");
        assert_eq!(written, HumanDuration::from_secs(30));
    }

    #[test]
    fn editors_accept_the_same_texts_as_the_loader() {
        let pattern =
            regex::Regex::new(&DURATION_PATTERN.replace("UNIT", DURATION_UNIT)).expect("valid");
        for text in [
            "250ms",
            "30s",
            "1h 30m",
            "2h",
            "1h30m",
            "1.5h",
            "2 hours, 3 minutes",
            "5 µs",
            "PT1H30M",
            "",
            "30",
            "-3s",
            "soon",
            "3 parsecs",
            "a while",
            "1h soon",
        ] {
            assert_eq!(
                pattern.is_match(text),
                text.parse::<HumanDuration>().is_ok(),
                "{text}"
            );
        }
    }
}
