//! The real clock and the real source of ids.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use futures::future::BoxFuture;
use nix::{
    sys::time::TimeSpec,
    time::{ClockId, clock_gettime},
};
use toolgate_core::{Clock, IdSource, Timestamp};
use uuid::Uuid;

/// The system's time, anchored once in a process: it never runs backwards or jumps while the process
/// runs, whatever happens to the clock of the machine, and counts the time that the machine was
/// suspended. All clocks of a process agree.
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
    /// Reads the wall clock when a process creates its first clock, and counts from there.
    pub fn new() -> Self {
        static ANCHOR: TimeAnchor = TimeAnchor(OnceLock::new());
        Self {
            offset: ANCHOR.offset(wall_micros(), steady_micros()),
        }
    }
}

/// The difference between the wall clock and the steady clock, as it was when it was asked for first.
struct TimeAnchor(OnceLock<i64>);

impl TimeAnchor {
    fn offset(&self, wall: i64, steady: i64) -> i64 {
        *self.0.get_or_init(|| wall.saturating_sub(steady))
    }
}

fn wall_micros() -> i64 {
    let wall = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(wall.as_micros()).unwrap_or(i64::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_of_a_process_agree_however_often_the_wall_clock_is_set() {
        const DAY: i64 = 24 * 3600 * 1_000_000;
        let anchor = TimeAnchor(OnceLock::new());
        let mut wall = 1_767_225_600_000_000;
        for (steady, jump) in [(5, 0), (6, DAY), (7, -2 * DAY), (8, DAY), (9, -DAY)] {
            wall += jump;
            let clock = SystemClock {
                offset: anchor.offset(wall, steady),
            };
            let passed = clock.offset + steady - 1_767_225_600_000_000;
            assert_eq!(passed, steady - 5, "only the steady clock counts");
        }
        assert_eq!(SystemClock::new().offset, SystemClock::new().offset);
    }
}
