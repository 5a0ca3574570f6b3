//! Counts calls in a sliding window of time.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use toolgate_core::Timestamp;

/// How many keys one window tells apart at a time.
const MOST_KEYS: usize = 10_000;

/// At most so many calls within any stretch of `period`, per key.
///
/// It remembers the moment of each call. A token bucket, such as `governor` has, takes one number per key, but lets
/// through almost twice as many calls within one period: the burst, and what is refilled meanwhile.
#[derive(Debug)]
pub(crate) struct Window<K> {
    calls: usize,
    period: Duration,
    taken: HashMap<K, VecDeque<Timestamp>>,
}

/// Why a window lets nothing more through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// There is room again after this time.
    For(Duration),
    /// There never is any room.
    Always,
    /// There are too many keys to count for another one.
    Crowded,
}

impl<K: Eq + Hash + Clone> Window<K> {
    pub(crate) fn new(calls: usize, period: Duration) -> Self {
        Self {
            calls,
            period,
            taken: HashMap::new(),
        }
    }

    /// Whether there is room for a call at `now`. Nothing is counted.
    pub(crate) fn check(&mut self, key: &K, now: Timestamp) -> Result<(), Full> {
        if self.calls == 0 {
            return Err(Full::Always);
        }
        let Some(taken) = self.taken.get_mut(key) else {
            return self.room_for_a_key(now);
        };
        forget(taken, self.period, now);
        match taken.front() {
            Some(first) if taken.len() >= self.calls => {
                Err(Full::For(self.period - now.since(*first)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Counts a call at `now`.
    pub(crate) fn take(&mut self, key: &K, now: Timestamp) {
        let taken = self.taken.entry(key.clone()).or_default();
        // A clock that lags behind must not make the moments run backwards.
        let now = taken.back().map_or(now, |last| now.max(*last));
        taken.push_back(now);
    }

    fn room_for_a_key(&mut self, now: Timestamp) -> Result<(), Full> {
        if self.taken.len() < MOST_KEYS {
            return Ok(());
        }
        self.taken.retain(|_, taken| {
            forget(taken, self.period, now);
            !taken.is_empty()
        });
        // Forgetting somebody who has calls in the window would let them have more.
        if self.taken.len() < MOST_KEYS {
            Ok(())
        } else {
            Err(Full::Crowded)
        }
    }
}

/// Forgets what is no longer in the window.
fn forget(taken: &mut VecDeque<Timestamp>, period: Duration, now: Timestamp) {
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

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    #[test]
    fn a_full_window_says_when_there_is_room_again() {
        let mut window = Window::new(2, Duration::from_secs(10));
        for moment in [0, 4] {
            assert_eq!(window.check(&(), at(moment)), Ok(()));
            window.take(&(), at(moment));
        }
        assert_eq!(
            window.check(&(), at(7)),
            Err(Full::For(Duration::from_secs(3)))
        );
        assert_eq!(window.check(&(), at(10)), Ok(()));
    }

    #[test]
    fn keys_that_have_nothing_in_the_window_make_room_for_others() {
        let mut window = Window::new(1, Duration::from_secs(10));
        (0..MOST_KEYS).for_each(|key| window.take(&key, at(0)));
        assert_eq!(window.check(&MOST_KEYS, at(9)), Err(Full::Crowded));
        assert_eq!(window.check(&MOST_KEYS, at(10)), Ok(()));
        assert!(window.taken.is_empty());
    }

    proptest! {
        #[test]
        fn no_stretch_of_one_period_ever_holds_more_calls_than_allowed(
            calls in 1_usize..5, steps in proptest::collection::vec(0_i64..8, 1..60),
        ) {
            let mut window = Window::new(calls, Duration::from_secs(10));
            let (mut now, mut passed) = (0, Vec::new());
            for step in steps {
                now += step;
                if window.check(&(), at(now)).is_ok() {
                    window.take(&(), at(now));
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
