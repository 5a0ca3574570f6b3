//! Actions that stop what a tool has started: a process group, a request on another machine.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// The actions that stop work which does not end when its future is dropped.
///
/// A tool that starts a child process registers here how to kill it
/// ([`Context::on_stop`](crate::Context::on_stop)). The actions run when the call is dropped,
/// panics, or returns after it was cancelled; a call that returns by itself has nothing left to
/// stop. Cloning shares the list.
///
/// ```
/// use toolgate_core::{StopConfirmation, StopActions};
/// let stops = StopActions::default();
/// stops.add(|| StopConfirmation::Confirmed);
/// assert_eq!(stops.run_all(), StopConfirmation::Confirmed);
/// ```
#[derive(Clone, Default)]
pub struct StopActions(Arc<Mutex<StopList>>);

type StopAction = Box<dyn FnOnce() -> StopConfirmation + Send>;

#[derive(Default)]
struct StopList {
    stops: Vec<(u64, StopAction)>,
    added: u64,
    /// True if the layer that bounds the call runs them.
    taken_over: bool,
}

/// The answer of a stop action: whether the work is known to have stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopConfirmation {
    /// All work of the call was registered, and it has stopped for certain. A writing tool whose
    /// actions all confirm settles as stopped; one that also sent a request elsewhere must not
    /// confirm.
    Confirmed,
    /// Work may still be running.
    Unconfirmed,
}

/// A registered stop action. Dropping the handle changes nothing: the action stays until the call
/// has ended.
pub struct StopHandle {
    stops: StopActions,
    id: u64,
}

impl StopHandle {
    /// Removes the action: the process has ended, and its id may soon belong to another process.
    pub fn unregister(self) {
        self.stops
            .lock_list()
            .stops
            .retain(|(id, _)| *id != self.id);
    }
}

impl fmt::Debug for StopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StopHandle").field(&self.id).finish()
    }
}

impl StopActions {
    /// Adds a stop action, which must be quick. The handle removes it again.
    pub fn add(&self, stop: impl FnOnce() -> StopConfirmation + Send + 'static) -> StopHandle {
        let mut list = self.lock_list();
        list.added += 1;
        let id = list.added;
        list.stops.push((id, Box::new(stop)));
        drop(list);
        StopHandle {
            stops: self.clone(),
            id,
        }
    }

    /// Runs all actions added since the last time, newest first. One that panics confirms nothing.
    pub fn run_all(&self) -> StopConfirmation {
        // Taken before the first one runs: if a drop and a timeout coincide, each action still runs
        // once, and an action may use the list itself.
        let stops = std::mem::take(&mut self.lock_list().stops);
        let run = |(_, stop): (u64, StopAction)| {
            crate::run_contained_sync(stop).unwrap_or(StopConfirmation::Unconfirmed)
        };
        stops
            .into_iter()
            .rev()
            .map(run)
            // `Unconfirmed` is the greater one: a single action in doubt decides for all.
            .max()
            .unwrap_or(StopConfirmation::Confirmed)
    }

    /// Checks whether there is no action.
    pub fn is_empty(&self) -> bool {
        self.lock_list().stops.is_empty()
    }

    /// Declares that the caller runs the actions when the call is cancelled or dropped
    /// ([`StopActions::take_all`]), so that the runtime does not.
    pub fn take_over(&self) {
        self.lock_list().taken_over = true;
    }

    /// Moves all actions to a list of their own. The runtime runs those that are added from now on.
    pub fn take_all(&self) -> Self {
        let mut list = self.lock_list();
        list.taken_over = false;
        let stops = std::mem::take(&mut list.stops);
        Self(Arc::new(Mutex::new(StopList {
            stops,
            ..StopList::default()
        })))
    }

    pub(crate) fn is_taken_over(&self) -> bool {
        self.lock_list().taken_over
    }

    /// Drops all actions: the call has ended by itself.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut self.lock_list().stops);
        // Dropped outside the lock: a closure's captured values may lock it again in `drop`.
        drop(gone);
    }

    // A poisoned lock is usable: no change leaves the list half-written.
    fn lock_list(&self) -> std::sync::MutexGuard<'_, StopList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for StopActions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StopActions")
            .field(&self.lock_list().stops.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_actions_run_once_and_the_weakest_confirmation_counts() {
        let stops = StopActions::default();
        stops.add(|| StopConfirmation::Unconfirmed);
        stops.add(|| StopConfirmation::Confirmed);
        assert_eq!(stops.run_all(), StopConfirmation::Unconfirmed);
        assert_eq!(
            stops.run_all(),
            StopConfirmation::Confirmed,
            "there is nothing left to stop"
        );
    }

    #[test]
    fn an_action_that_panics_confirms_nothing() {
        let stops = StopActions::default();
        stops.add(|| panic!("no such process"));
        assert_eq!(stops.run_all(), StopConfirmation::Unconfirmed);
    }

    #[test]
    fn an_unregistered_action_does_not_run() {
        let stops = StopActions::default();
        let ended = stops.add(|| StopConfirmation::Unconfirmed);
        drop(stops.add(|| StopConfirmation::Confirmed));
        ended.unregister();
        assert!(!stops.is_empty(), "dropping a handle removes nothing");
        assert_eq!(stops.run_all(), StopConfirmation::Confirmed);
    }
}
