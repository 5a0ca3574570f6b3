//! Caches what was settled in turns that have ended, so that a late duplicate is recognised.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lru::LruCache;
use toolgate_core::{CallId, Clock, Status, Timestamp};

/// A bounded cache of settled invocations in front of the store, which keeps all of them.
pub(crate) struct SettledCache {
    recent: Mutex<LruCache<CallId, (Status, Timestamp)>>,
    keep: Duration,
    clock: Arc<dyn Clock>,
}

impl SettledCache {
    pub(crate) const CAPACITY: usize = 1024;
    pub(crate) const KEEP: Duration = Duration::from_secs(5 * 60);

    pub(crate) fn new(capacity: usize, keep: Duration, clock: Arc<dyn Clock>) -> Self {
        let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
        // Bounded afterwards: a bounded cache allocates its whole capacity at once, and most
        // sessions are short.
        let mut recent = LruCache::unbounded();
        recent.resize(capacity);
        Self {
            recent: Mutex::new(recent),
            keep,
            clock,
        }
    }

    pub(crate) fn remember(&self, settled: impl IntoIterator<Item = (CallId, Status)>) {
        let now = self.clock.now();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for (call, status) in settled {
            recent.put(call, (status, now));
        }
    }

    /// Returns how `call` settled, if its turn has ended not long ago.
    pub(crate) fn settled_status(&self, call: CallId) -> Option<Status> {
        let now = self.clock.now();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, at) = *recent.get(&call)?;
        if now.since(at) >= self.keep {
            recent.pop(&call);
            return None;
        }
        Some(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_testkit::TestClock;
    use uuid::Uuid;

    fn id(n: u128) -> CallId {
        CallId::new(Uuid::from_u128(n))
    }

    #[test]
    fn is_bounded_in_number_and_time() {
        let clock = TestClock::new();
        let guard = SettledCache::new(2, Duration::from_secs(300), Arc::new(clock.clone()));
        guard.remember([
            (id(1), Status::Ok),
            (id(2), Status::Denied),
            (id(3), Status::Ok),
        ]);
        assert_eq!(
            guard.settled_status(id(1)),
            None,
            "the oldest was pushed out"
        );
        assert_eq!(guard.settled_status(id(2)), Some(Status::Denied));
        clock.advance(Duration::from_secs(300));
        assert_eq!(guard.settled_status(id(2)), None, "too old");
    }
}
