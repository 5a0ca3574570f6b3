//! Locks and background tasks whose order the tests decide.
//!
//! In a program these are a lock of the standard library and a task of tokio. In a model
//! (`model::explore`, in unit tests only) the same code runs under shuttle: before every lock, and
//! wherever a task awaits, another task may continue, and thousands of such orders are tried.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::runtime::Handle;

/// Locks a mutex. A poisoned one is used anyway, so the holder leaves its data consistent whenever
/// it calls something that may panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(test)]
    if model::is_running() {
        return model::lock(mutex);
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets another task of a model continue. In a program nothing happens.
#[inline]
pub(crate) fn switch_point() {
    #[cfg(test)]
    model::switch();
}

/// Starts tasks in the runtime in which it was created, from any thread.
pub(crate) enum TaskSpawner {
    Runtime(Handle),
    #[cfg(test)]
    Model,
}

impl TaskSpawner {
    /// Creates a spawner for the current runtime.
    pub(crate) fn current() -> Self {
        #[cfg(test)]
        if model::is_running() {
            return Self::Model;
        }
        Self::Runtime(Handle::current())
    }

    /// Starts a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self {
            Self::Runtime(handle) => drop(handle.spawn(task)),
            #[cfg(test)]
            Self::Model => drop(shuttle::future::spawn(task)),
        }
    }
}

#[cfg(test)]
pub(crate) mod model {
    //! Explores the orders in which tasks can run.

    use std::{cell::Cell, sync::TryLockError};

    use super::*;

    thread_local! {
        // Shuttle runs all tasks of a model on the thread that started it.
        static RUNNING: Cell<bool> = const { Cell::new(false) };
    }

    /// The number of orders that are tried, for each of the two ways to choose them.
    const ORDERS: usize = 1_000;

    /// Runs `body` in many orders: random ones, and ones in which few switches decide. A deadlock
    /// or a panic fails the test, and shuttle prints the order.
    pub(crate) fn explore(body: impl Fn() + Clone + Send + Sync + 'static) {
        RUNNING.set(true);
        shuttle::check_random(body.clone(), ORDERS);
        shuttle::check_pct(body, ORDERS, 3);
        RUNNING.set(false);
    }

    pub(super) fn is_running() -> bool {
        RUNNING.get()
    }

    pub(super) fn switch() {
        if is_running() {
            shuttle::thread::yield_now();
        }
    }

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        loop {
            switch();
            match mutex.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(error)) => return error.into_inner(),
                // Another task of the model holds it. Waiting would stop that one too.
                Err(TryLockError::WouldBlock) => {}
            }
        }
    }
}
