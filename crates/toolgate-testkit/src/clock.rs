//! A clock that only a test moves, and ids that count up.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures::future::BoxFuture;
use toolgate_core::{Clock, IdSource, Timestamp};
use uuid::Uuid;

/// A clock that a test moves by hand. Cloning shares it.
///
/// ```
/// use std::time::Duration;
/// use toolgate_core::Clock;
/// use toolgate_testkit::TestClock;
/// let clock = TestClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now().since(before), Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug)]
pub struct TestClock(Arc<Mutex<ClockState>>);

#[derive(Debug)]
struct ClockState {
    now: Timestamp,
    next_id: u64,
    sleepers: Vec<Sleeper>,
}

#[derive(Debug)]
struct Sleeper {
    id: u64,
    until: Timestamp,
    waker: Option<Waker>,
}

impl TestClock {
    /// Creates a clock that shows the first of January 2026, UTC.
    pub fn new() -> Self {
        Self::at(Timestamp::from_micros(1_767_225_600_000_000))
    }

    /// Creates a clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(ClockState {
            now,
            next_id: 0,
            sleepers: Vec::new(),
        })))
    }

    /// Moves the time forward and wakes the sleepers that are due.
    pub fn advance(&self, span: Duration) {
        let mut hands = self.lock_state();
        hands.now = hands.now.plus(span);
        let now = hands.now;
        let due: Vec<Waker> = hands
            .sleepers
            .iter_mut()
            .filter(|s| s.until <= now)
            .filter_map(|s| s.waker.take())
            .collect();
        // Outside the lock: a waker may poll the sleeper at once, which locks the clock again.
        drop(hands);
        due.into_iter().for_each(Waker::wake);
    }

    /// Returns how many futures are asleep on this clock.
    pub fn sleeper_count(&self) -> usize {
        self.lock_state().sleepers.len()
    }

    fn lock_state(&self) -> MutexGuard<'_, ClockState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.lock_state().now
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        let mut hands = self.lock_state();
        let id = hands.next_id;
        let until = hands.now.plus(span);
        hands.next_id += 1;
        // Registered now, not at the first poll: a test may advance the clock before the future
        // runs.
        hands.sleepers.push(Sleeper {
            id,
            until,
            waker: None,
        });
        Box::pin(SleepFuture {
            clock: self.clone(),
            id,
            until,
        })
    }
}

struct SleepFuture {
    clock: TestClock,
    id: u64,
    until: Timestamp,
}

impl Future for SleepFuture {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Checked and registered under one lock, or an advance in between would be missed.
        let mut hands = self.clock.lock_state();
        if hands.now >= self.until {
            return Poll::Ready(());
        }
        if let Some(sleeper) = hands
            .sleepers
            .iter_mut()
            .find(|sleeper| sleeper.id == self.id)
        {
            sleeper.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for SleepFuture {
    fn drop(&mut self) {
        // Tests wait for `sleeper_count` before they advance the clock: a dropped sleep must not
        // count.
        self.clock
            .lock_state()
            .sleepers
            .retain(|sleeper| sleeper.id != self.id);
    }
}

/// Ids 1, 2, 3 …, the same in every run of a test.
#[derive(Debug, Default)]
pub struct CountingIds(AtomicU64);

impl CountingIds {
    /// Creates a source that starts at 1.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a source that starts after `used`, for a second source in one test.
    pub fn after(used: u64) -> Self {
        Self(AtomicU64::new(used))
    }
}

impl IdSource for CountingIds {
    fn next_uuid(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.0.fetch_add(1, Ordering::Relaxed) + 1))
    }
}
