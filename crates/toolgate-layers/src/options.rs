//! Values that options of several layers have in common.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Visitor};

/// A length of time as people write it: `250ms`, `30s`, `1h 30m`.
///
/// ```
/// use std::time::Duration;
/// use toolgate_layers::Span;
/// assert_eq!("1m 30s".parse::<Span>()?.get(), Duration::from_secs(90));
/// assert!("90".parse::<Span>().is_err());
/// # Ok::<(), toolgate_layers::InvalidSpan>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span(Duration);

impl Span {
    /// So many milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// So many seconds.
    pub const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// The length.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl From<Duration> for Span {
    fn from(span: Duration) -> Self {
        Self(span)
    }
}

/// The text is not a length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a length of time such as 250ms, 30s or 1h 30m")]
pub struct InvalidSpan(String);

impl FromStr for Span {
    type Err = InvalidSpan;
    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        let invalid = || InvalidSpan(text.chars().take(64).collect());
        let span: jiff::SignedDuration = text.parse().map_err(|_| invalid())?;
        Duration::try_from(span).map(Self).map_err(|_| invalid())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::SignedDuration::try_from(self.0) {
            Ok(span) => write!(f, "{span:#}"),
            Err(_) => write!(f, "{}s", self.0.as_secs()),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(SpanText)
    }
}

/// Reads a length of time from text.
struct SpanText;

impl Visitor<'_> for SpanText {
    type Value = Span;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a length of time such as \"5s\"")
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
        text.parse().map_err(E::custom)
    }
}

/// Lengths of time as editors should know them: numbers with units, or ISO 8601.
const PATTERN: &str = "^(PT([0-9]+([.,][0-9]+)?[HMShms])+|[0-9]+([.,][0-9]+)? *UNIT(,? *[0-9]+([.,][0-9]+)? *UNIT)*)$";
const UNIT: &str = "(h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|ms|msecs?|millis?|milliseconds?|[uµ]s|[uµ]secs?|\
                    micros?|microseconds?|ns|nsecs?|nanos?|nanoseconds?)";

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = PATTERN.replace("UNIT", UNIT);
        json_schema!({
            "type": "string",
            "pattern": pattern,
            "description": "A length of time such as 250ms, 30s or 1h 30m.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_round_trip_and_refuse_bare_or_negative_numbers() {
        for text in ["250ms", "30s", "1h 30m", "2h"] {
            let span: Span = text.parse().expect(text);
            assert_eq!(span.to_string().parse(), Ok(span), "{text}");
        }
        for bad in ["", "30", "-3s", "soon", "3 parsecs"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }

    #[test]
    fn editors_take_the_same_texts_as_the_loader() {
        let pattern = regex::Regex::new(&PATTERN.replace("UNIT", UNIT)).expect("valid");
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
                text.parse::<Span>().is_ok(),
                "{text}"
            );
        }
    }
}
