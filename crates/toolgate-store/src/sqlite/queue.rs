//! A queue of jobs for threads.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Jobs in order of arrival. When it is closed, the jobs in it are still performed.
pub(super) struct JobQueue<J> {
    state: Mutex<JobQueueState<J>>,
    ready: Condvar,
}

struct JobQueueState<J> {
    jobs: VecDeque<J>,
    closed: bool,
    /// The number of threads that wait for a job.
    idle: usize,
}

impl<J> JobQueue<J> {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(JobQueueState {
                jobs: VecDeque::new(),
                closed: false,
                idle: 0,
            }),
            ready: Condvar::new(),
        }
    }

    /// Adds a job and returns whether a thread is waiting for it. After [`JobQueue::close`], the job
    /// is dropped.
    pub(super) fn push(&self, job: J) -> bool {
        let mut state = self.lock_state();
        if state.closed {
            // The caller must not start a thread for a job that is dropped.
            return true;
        }
        state.jobs.push_back(job);
        // With more jobs than idle threads, the caller may want to start another thread.
        let waiting = state.idle >= state.jobs.len();
        drop(state);
        self.ready.notify_one();
        waiting
    }

    /// Adds a job if a thread waits for one and would do nothing else; returns it otherwise.
    pub(super) fn push_if_idle(&self, job: J) -> Result<(), J> {
        let mut state = self.lock_state();
        if state.closed || state.idle == 0 || !state.jobs.is_empty() {
            return Err(job);
        }
        state.jobs.push_back(job);
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// Waits for a job, then removes it and up to `most - 1` others. An empty list means that the
    /// queue is closed.
    pub(super) fn take_jobs(&self, most: usize) -> Vec<J> {
        let mut state = self.lock_state();
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

    /// Waits for a job at most until `end`, then removes it and up to `most - 1` others.
    pub(super) fn take_jobs_until(&self, most: usize, end: Instant) -> Vec<J> {
        let mut state = self.lock_state();
        while state.jobs.is_empty() && !state.closed {
            let left = end.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                break;
            }
            state.idle += 1;
            (state, _) = self
                .ready
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
        let count = state.jobs.len().min(most);
        state.jobs.drain(..count).collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock_state().closed
    }

    pub(super) fn close(&self) {
        self.lock_state().closed = true;
        self.ready.notify_all();
    }

    // Nothing panics while the lock is held, and every change to the state is a single step.
    fn lock_state(&self) -> MutexGuard<'_, JobQueueState<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_for_an_idle_thread_is_returned_if_there_is_none() {
        let queue = JobQueue::new();
        assert_eq!(queue.push_if_idle(1), Err(1));
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| queue.take_jobs(1));
            while queue.push_if_idle(2).is_err() {
                std::thread::yield_now();
            }
            assert_eq!(taken.join().expect("ends"), [2]);
        });
        queue.close();
        assert_eq!(queue.push_if_idle(3), Err(3));
    }

    #[test]
    fn jobs_queued_before_the_end_are_still_taken() {
        let queue = JobQueue::new();
        let waiting: Vec<bool> = (0..5).map(|n| queue.push(n)).collect();
        assert_eq!(waiting, [false; 5]);
        queue.close();
        queue.push(9);
        assert_eq!(queue.take_jobs(3), [0, 1, 2]);
        assert_eq!(queue.take_jobs(3), [3, 4]);
        assert!(queue.take_jobs(3).is_empty());
    }
}
