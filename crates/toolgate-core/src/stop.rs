//! Ways to stop what a tool has started: a process group, a request on another machine.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// What somebody can do to stop work that does not end when its future is dropped.
///
/// A tool that starts a child process registers here how to kill it ([`Context::on_stop`](crate::Context::on_stop)).
/// They are run when the call is dropped, panics, or comes back after it was cancelled; a call that returns by itself
/// has nothing left to stop. Cloning shares the list.
///
/// ```
/// use toolgate_core::{Stopped, Stops};
/// let stops = Stops::default();
/// stops.add(|| Stopped::Confirmed);
/// assert_eq!(stops.run(), Stopped::Confirmed);
/// ```
#[derive(Clone, Default)]
pub struct Stops(Arc<Mutex<List>>);

type Stop = Box<dyn FnOnce() -> Stopped + Send>;

#[derive(Default)]
struct List {
    stops: Vec<(u64, Stop)>,
    added: u64,
    /// Whether whoever bounds the call runs them.
    taken_over: bool,
}

/// Whether work is known to have stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stopped {
    /// What was registered was all that still went on for the call, and it has stopped for certain. A writing tool
    /// whose stops all say so settles as stopped; one that also sent a request elsewhere must not.
    Confirmed,
    /// Something may still be going on.
    Unconfirmed,
}

/// One registered way to stop something. Dropping it changes nothing: the way stays until the call is over.
pub struct StopHandle {
    stops: Stops,
    id: u64,
}

impl StopHandle {
    /// Says that there is nothing left to stop: the process has ended, and its number may soon be somebody else's.
    pub fn done(self) {
        self.stops.list().stops.retain(|(id, _)| *id != self.id);
    }
}

impl fmt::Debug for StopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StopHandle").field(&self.id).finish()
    }
}

impl Stops {
    /// Adds a way to stop something, which is soon over. The handle takes it back.
    pub fn add(&self, stop: impl FnOnce() -> Stopped + Send + 'static) -> StopHandle {
        let mut list = self.list();
        list.added += 1;
        let id = list.added;
        list.stops.push((id, Box::new(stop)));
        drop(list);
        StopHandle {
            stops: self.clone(),
            id,
        }
    }

    /// Runs all that were added since the last time, newest first. One that panics has confirmed nothing.
    pub fn run(&self) -> Stopped {
        let stops = std::mem::take(&mut self.list().stops);
        let run =
            |(_, stop): (u64, Stop)| crate::contained_sync(stop).unwrap_or(Stopped::Unconfirmed);
        stops
            .into_iter()
            .rev()
            .map(run)
            .max()
            .unwrap_or(Stopped::Confirmed)
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.list().stops.is_empty()
    }

    /// Says that the caller runs them when the call is cancelled or dropped ([`Stops::take`]), and the runtime need not.
    pub fn take_over(&self) {
        self.list().taken_over = true;
    }

    /// Moves all into a list of their own. What is added from now on is the runtime's business again.
    pub fn take(&self) -> Self {
        let mut list = self.list();
        list.taken_over = false;
        let stops = std::mem::take(&mut list.stops);
        Self(Arc::new(Mutex::new(List {
            stops,
            ..List::default()
        })))
    }

    pub(crate) fn is_taken_over(&self) -> bool {
        self.list().taken_over
    }

    /// Forgets all of them: the call has ended by itself.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut self.list().stops);
        // What a closure holds is dropped outside the lock.
        drop(gone);
    }

    // A list of closures is whole between any two changes.
    fn list(&self) -> std::sync::MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Stops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stops")
            .field(&self.list().stops.len())
            .finish()
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
        assert_eq!(
            stops.run(),
            Stopped::Confirmed,
            "there is nothing left to stop"
        );
    }

    #[test]
    fn one_that_panics_has_confirmed_nothing() {
        let stops = Stops::default();
        stops.add(|| panic!("no such process"));
        assert_eq!(stops.run(), Stopped::Unconfirmed);
    }

    #[test]
    fn what_has_ended_by_itself_is_taken_back_and_not_stopped() {
        let stops = Stops::default();
        let ended = stops.add(|| Stopped::Unconfirmed);
        drop(stops.add(|| Stopped::Confirmed));
        ended.done();
        assert!(!stops.is_empty(), "dropping a handle takes nothing back");
        assert_eq!(stops.run(), Stopped::Confirmed);
    }
}
