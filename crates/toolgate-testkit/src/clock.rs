//! A clock that only moves when a test says so, and ids that count.

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
pub struct TestClock(Arc<Mutex<Hands>>);

#[derive(Debug)]
struct Hands {
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
    /// A clock that shows the first of January 2026, UTC.
    pub fn new() -> Self {
        Self::at(Timestamp::from_micros(1_767_225_600_000_000))
    }

    /// A clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(Hands {
            now,
            next_id: 0,
            sleepers: Vec::new(),
        })))
    }

    /// Moves the time on and wakes whoever slept until then.
    pub fn advance(&self, span: Duration) {
        let mut hands = self.hands();
        hands.now = hands.now.plus(span);
        let now = hands.now;
        let due: Vec<Waker> = hands
            .sleepers
            .iter_mut()
            .filter(|s| s.until <= now)
            .filter_map(|s| s.waker.take())
            .collect();
        drop(hands);
        due.into_iter().for_each(Waker::wake);
    }

    /// How many are asleep on this clock.
    pub fn sleepers(&self) -> usize {
        self.hands().sleepers.len()
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
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
        self.hands().now
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        let mut hands = self.hands();
        let (id, until) = (hands.next_id, hands.now.plus(span));
        hands.next_id += 1;
        hands.sleepers.push(Sleeper {
            id,
            until,
            waker: None,
        });
        Box::pin(Sleep {
            clock: self.clone(),
            id,
            until,
        })
    }
}

struct Sleep {
    clock: TestClock,
    id: u64,
    until: Timestamp,
}

impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut hands = self.clock.hands();
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

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clock
            .hands()
            .sleepers
            .retain(|sleeper| sleeper.id != self.id);
    }
}

/// Ids 1, 2, 3 …, the same in every run of a test.
#[derive(Debug, Default)]
pub struct CountingIds(AtomicU64);

impl CountingIds {
    /// Starts at 1.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts after `used`, for a second source in one test.
    pub fn after(used: u64) -> Self {
        Self(AtomicU64::new(used))
    }
}

impl IdSource for CountingIds {
    fn next_uuid(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.0.fetch_add(1, Ordering::Relaxed) + 1))
    }
}
