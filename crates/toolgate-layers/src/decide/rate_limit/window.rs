//! Counts calls in a sliding window of time.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use toolgate_core::Timestamp;

/// Maximum number of keys in one window at a time.
const MAX_KEYS: usize = 10_000;

/// A sliding window: a maximum number of calls within any `period`, per key.
///
/// It stores the time of each call. A token bucket, such as in `governor`, takes one number per
/// key, but lets through almost twice as many calls within one period: the burst, and the calls
/// refilled meanwhile.
#[derive(Debug)]
pub(crate) struct SlidingWindow<K> {
    calls: usize,
    period: Duration,
    taken: HashMap<K, VecDeque<Timestamp>>,
}

/// The reason why a window has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowFull {
    /// There is room again after this time.
    RetryAfter(Duration),
    /// There is never any room.
    Always,
    /// There are too many keys for another one.
    TooManyKeys,
}

impl<K: Eq + Hash + Clone> SlidingWindow<K> {
    pub(crate) fn new(calls: usize, period: Duration) -> Self {
        Self {
            calls,
            period,
            taken: HashMap::new(),
        }
    }

    /// Checks whether there is room for a call at `now`. Nothing is counted.
    pub(crate) fn check_room(&mut self, key: &K, now: Timestamp) -> Result<(), WindowFull> {
        if self.calls == 0 {
            return Err(WindowFull::Always);
        }
        let Some(taken) = self.taken.get_mut(key) else {
            return self.check_room_for_key(now);
        };
        remove_expired(taken, self.period, now);
        match taken.front() {
            Some(first) if taken.len() >= self.calls => {
                Err(WindowFull::RetryAfter(self.period - now.since(*first)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Counts a call at `now`.
    pub(crate) fn count_call(&mut self, key: &K, now: Timestamp) {
        let taken = self.taken.entry(key.clone()).or_default();
        // If the clock is set back, the stored times must stay in order.
        let now = taken.back().map_or(now, |last| now.max(*last));
        taken.push_back(now);
    }

    fn check_room_for_key(&mut self, now: Timestamp) -> Result<(), WindowFull> {
        if self.taken.len() < MAX_KEYS {
            return Ok(());
        }
        self.taken.retain(|_, taken| {
            remove_expired(taken, self.period, now);
            !taken.is_empty()
        });
        // Fail closed: to evict a key with calls in the window would let it exceed its limit.
        if self.taken.len() < MAX_KEYS {
            Ok(())
        } else {
            Err(WindowFull::TooManyKeys)
        }
    }
}

/// Removes the calls that are no longer in the window.
fn remove_expired(taken: &mut VecDeque<Timestamp>, period: Duration, now: Timestamp) {
    while taken
        .front()
        .is_some_and(|moment| now.since(*moment) >= period)
    {
        taken.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(secs: i64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    #[test]
    fn a_full_window_returns_the_time_until_there_is_room() {
        let mut window = SlidingWindow::new(2, Duration::from_secs(10));
        for moment in [0, 4] {
            assert_eq!(window.check_room(&(), seconds(moment)), Ok(()));
            window.count_call(&(), seconds(moment));
        }
        assert_eq!(
            window.check_room(&(), seconds(7)),
            Err(WindowFull::RetryAfter(Duration::from_secs(3)))
        );
        assert_eq!(window.check_room(&(), seconds(10)), Ok(()));
    }

    #[test]
    fn keys_that_have_nothing_in_the_window_make_room_for_others() {
        let mut window = SlidingWindow::new(1, Duration::from_secs(10));
        (0..MAX_KEYS).for_each(|key| window.count_call(&key, seconds(0)));
        assert_eq!(
            window.check_room(&MAX_KEYS, seconds(9)),
            Err(WindowFull::TooManyKeys)
        );
        assert_eq!(window.check_room(&MAX_KEYS, seconds(10)), Ok(()));
        assert!(window.taken.is_empty());
    }

    proptest! {
        #[test]
        fn no_period_ever_has_more_calls_than_allowed(
            calls in 1_usize..5, steps in proptest::collection::vec(0_i64..8, 1..60),
        ) {
            let mut window = SlidingWindow::new(calls, Duration::from_secs(10));
            let (mut now, mut passed) = (0, Vec::new());
            for step in steps {
                now += step;
                if window.check_room(&(), seconds(now)).is_ok() {
                    window.count_call(&(), seconds(now));
                    passed.push(now);
                }
            }
            for start in &passed {
                let within = passed.iter().filter(|moment| (*start..start + 10).contains(*moment)).count();
                prop_assert!(within <= calls);
            }
        }
    }
}
