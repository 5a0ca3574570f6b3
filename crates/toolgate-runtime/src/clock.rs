//! The real clock and the real source of ids.

use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use nix::{
    sys::time::TimeSpec,
    time::{ClockId, clock_gettime},
};
use toolgate_core::{Clock, IdSource, Timestamp};
use uuid::Uuid;

/// The system's time, anchored once: it never runs backwards while the process runs, and counts the
/// time that the machine was suspended.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    /// The wall clock minus the steady clock, in microseconds.
    offset: i64,
}

/// A clock that cannot be set and does not stop while the machine is suspended.
#[cfg(any(target_os = "linux", target_os = "android"))]
const STEADY: ClockId = ClockId::CLOCK_BOOTTIME;
// On macOS it is the one that continues while the machine sleeps.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const STEADY: ClockId = ClockId::CLOCK_MONOTONIC;

impl SystemClock {
    /// Reads the wall clock once and counts from there.
    pub fn new() -> Self {
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let wall = i64::try_from(wall.as_micros()).unwrap_or(i64::MAX);
        Self {
            offset: wall.saturating_sub(steady_micros()),
        }
    }
}

fn steady_micros() -> i64 {
    // Every system that Toolgate runs on has this clock, so reading it cannot fail.
    let now = clock_gettime(STEADY).unwrap_or(TimeSpec::new(0, 0));
    now.tv_sec().saturating_mul(1_000_000) + now.tv_nsec() / 1_000
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.offset.saturating_add(steady_micros()))
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
