//! Timestamps and clocks. The core never reads a clock of its own: the caller provides it.

use std::{borrow::Cow, fmt, str::FromStr, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// A point in time with microsecond precision; on the wire an RFC 3339 string in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The start of 1970, UTC.
    pub const EPOCH: Self = Self(0);

    /// Returns the moment `micros` microseconds after the start of 1970, UTC.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the start of 1970, UTC.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`; zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        let micros = self.0.saturating_sub(earlier.0);
        Duration::from_micros(if micros > 0 { micros as u64 } else { 0 })
    }

    /// Returns the moment `span` after this one, saturating at the largest timestamp.
    pub const fn plus(self, span: Duration) -> Self {
        let micros = span.as_micros();
        let micros = if micros > i64::MAX as u128 {
            i64::MAX
        } else {
            micros as i64
        };
        Self(self.0.saturating_add(micros))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => write!(f, "{time:.6}"),
            // Outside the years RFC 3339 can write.
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

/// An error for text that is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time like 2026-01-31T12:00:00Z")]
pub struct InvalidTimestamp(String);

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time: jiff::Timestamp = text
            .parse()
            .map_err(|_| InvalidTimestamp(text.chars().take(64).collect()))?;
        Ok(Self(time.as_microsecond()))
    }
}

crate::value::text::serde_as_text!(Timestamp);

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// A clock that tells the time and can wait. Programs use the runtime's, tests one they move by
/// hand.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time. It never runs backwards within one process.
    fn now(&self) -> Timestamp;

    /// Completes once `span` has passed on this clock.
    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()>;
}

/// A clock that stands still, for calls without a runtime; sleeping on it never ends.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoppedClock;

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        (**self).sleep(span)
    }
}

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip_as_rfc_3339() {
        let time = Timestamp::from_micros(1_794_776_226_000_001);
        assert_eq!(time.to_string(), "2026-11-15T20:57:06.000001Z");
        assert_eq!(time.to_string().parse(), Ok(time));
        assert!("yesterday".parse::<Timestamp>().is_err());
    }

    #[test]
    fn spans_never_go_below_zero_or_past_the_end() {
        let late = Timestamp::from_micros(i64::MAX);
        assert_eq!(Timestamp::EPOCH.since(late), Duration::ZERO);
        assert_eq!(late.plus(Duration::MAX), late);
    }
}
