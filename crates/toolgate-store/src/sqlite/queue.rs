//! Jobs that wait for a thread.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// Jobs in the order in which they came. When it is closed, what is in it is still done.
pub(super) struct Queue<J> {
    state: Mutex<State<J>>,
    ready: Condvar,
}

struct State<J> {
    jobs: VecDeque<J>,
    closed: bool,
    /// How many threads wait for a job.
    idle: usize,
}

impl<J> Queue<J> {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                closed: false,
                idle: 0,
            }),
            ready: Condvar::new(),
        }
    }

    /// Adds a job and returns whether a thread waits for it. A job that comes after the end is dropped.
    pub(super) fn push(&self, job: J) -> bool {
        let mut state = self.state();
        if state.closed {
            return true;
        }
        state.jobs.push_back(job);
        let waiting = state.idle >= state.jobs.len();
        drop(state);
        self.ready.notify_one();
        waiting
    }

    /// Waits for a job, then takes it and up to `most - 1` others. Nothing means that the end has come.
    pub(super) fn take(&self, most: usize) -> Vec<J> {
        let mut state = self.state();
        while state.jobs.is_empty() && !state.closed {
            state.idle += 1;
            state = self
                .ready
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
        let count = state.jobs.len().min(most);
        state.jobs.drain(..count).collect()
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
        self.ready.notify_all();
    }

    // Nothing panics while the lock is held, and every change to the state is a single step.
    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_queued_before_the_end_is_still_taken() {
        let queue = Queue::new();
        let waiting: Vec<bool> = (0..5).map(|n| queue.push(n)).collect();
        assert_eq!(waiting, [false; 5]);
        queue.close();
        queue.push(9);
        assert_eq!(queue.take(3), [0, 1, 2]);
        assert_eq!(queue.take(3), [3, 4]);
        assert!(queue.take(3).is_empty());
    }
}
