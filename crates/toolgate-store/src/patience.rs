//! The time for which a store waits for a database that cannot be used, with growing delays.

use std::time::{Duration, Instant};

/// The first delay between two attempts; each one is twice as long as the one before.
const FIRST_DELAY: Duration = Duration::from_millis(20);

/// The longest delay between two attempts.
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// The delays between the attempts of one request.
pub(crate) struct Patience {
    span: Duration,
    ends: Option<Instant>,
    delay: Duration,
}

impl Patience {
    /// Counts the time from the first failure.
    pub(crate) const fn new(span: Duration) -> Self {
        Self {
            span,
            ends: None,
            delay: FIRST_DELAY,
        }
    }

    /// Counts the time from now on, not from the first failure.
    #[cfg(feature = "postgres")]
    pub(crate) fn starting_now(span: Duration) -> Self {
        Self {
            ends: Some(Instant::now() + span),
            ..Self::new(span)
        }
    }

    /// Returns the delay before the next attempt, or nothing if there should be none.
    pub(crate) fn next_delay(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let ends = *self.ends.get_or_insert(now + self.span);
        let delay = self.delay.min(ends.saturating_duration_since(now));
        self.delay = (self.delay * 2).min(LONGEST_DELAY);
        (!delay.is_zero()).then_some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::DEFAULT_PATIENCE;

    #[test]
    fn delays_grow_up_to_a_limit() {
        let mut patience = Patience::new(DEFAULT_PATIENCE);
        let delays: Vec<_> = (0..8).filter_map(|_| patience.next_delay()).collect();
        assert_eq!(delays[0], FIRST_DELAY);
        assert_eq!(delays[1], 2 * FIRST_DELAY);
        assert_eq!(delays[7], LONGEST_DELAY);
    }

    #[test]
    fn without_patience_there_is_no_second_attempt() {
        assert_eq!(Patience::new(Duration::ZERO).next_delay(), None);
    }
}
