//! The real clock and the real source of ids.

use std::time::{Duration, Instant, SystemTime};

use futures::future::BoxFuture;
use toolgate_core::{Clock, IdSource, Timestamp};
use uuid::Uuid;

/// The system's time, anchored once: it never runs backwards while the process runs.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    anchor: Instant,
    at_anchor: i64,
}

impl SystemClock {
    /// Reads the wall clock once and counts from there.
    pub fn new() -> Self {
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            anchor: Instant::now(),
            at_anchor: i64::try_from(wall.as_micros()).unwrap_or(i64::MAX),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.at_anchor).plus(self.anchor.elapsed())
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(span))
    }
}

/// Ids that sort by the time they were created (UUID version 7).
#[derive(Debug, Clone, Copy, Default)]
pub struct TimeOrderedIds;

impl IdSource for TimeOrderedIds {
    fn next_uuid(&self) -> Uuid {
        Uuid::now_v7()
    }
}
