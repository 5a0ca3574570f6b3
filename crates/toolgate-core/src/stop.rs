//! Ways to stop what a tool has started: a process group, a request on another machine.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// What somebody can do to stop work that does not end when its future is dropped.
///
/// A tool that starts a child process registers here how to kill it ([`Context::on_stop`](crate::Context::on_stop)).
/// Whoever bounds the call runs all of them when its time is up. Cloning shares the list.
///
/// ```
/// use toolgate_core::{Stopped, Stops};
/// let stops = Stops::default();
/// stops.add(|| Stopped::Confirmed);
/// assert_eq!(stops.run(), Stopped::Confirmed);
/// ```
#[derive(Clone, Default)]
pub struct Stops(Arc<Mutex<Vec<Stop>>>);

type Stop = Box<dyn FnOnce() -> Stopped + Send>;

/// Whether work is known to have stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stopped {
    /// It has stopped for certain.
    Confirmed,
    /// It may still be going on.
    Unconfirmed,
}

impl Stops {
    /// Adds a way to stop something. It must not block.
    pub fn add(&self, stop: impl FnOnce() -> Stopped + Send + 'static) {
        self.list().push(Box::new(stop));
    }

    /// Runs all that were added since the last time, newest first. One that panics has confirmed nothing.
    pub fn run(&self) -> Stopped {
        let stops = std::mem::take(&mut *self.list());
        let run = |stop: Stop| crate::contained_sync(stop).unwrap_or(Stopped::Unconfirmed);
        stops.into_iter().rev().map(run).max().unwrap_or(Stopped::Confirmed)
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    // A list of closures is whole between any two changes.
    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Stop>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Stops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stops").field(&self.list().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_run_once_and_the_weakest_word_counts() {
        let stops = Stops::default();
        stops.add(|| Stopped::Unconfirmed);
        stops.add(|| Stopped::Confirmed);
        assert_eq!(stops.run(), Stopped::Unconfirmed);
        assert_eq!(stops.run(), Stopped::Confirmed, "there is nothing left to stop");
    }

    #[test]
    fn one_that_panics_has_confirmed_nothing() {
        let stops = Stops::default();
        stops.add(|| panic!("no such process"));
        assert_eq!(stops.run(), Stopped::Unconfirmed);
    }
}
