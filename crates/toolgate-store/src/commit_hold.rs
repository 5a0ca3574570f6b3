//! Holds back commits while the process is suspended, so that it holds no lock meanwhile.

use std::{
    thread,
    time::{Duration, Instant},
};

#[cfg(any(feature = "sqlite", feature = "postgres", test))]
use tokio::sync::RwLockReadGuard;
use tokio::sync::{RwLock, RwLockWriteGuard};

/// Commits hold it for reading, and a process that is about to be suspended for writing. It is
/// one for all stores, because a process is suspended as a whole.
static COMMITS: RwLock<()> = RwLock::const_new(());

/// The pause between two attempts to hold commits.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Keeps every store of the process from committing until it is dropped.
#[derive(Debug)]
#[must_use = "commits continue when this is dropped"]
pub struct CommitHold {
    _held: RwLockWriteGuard<'static, ()>,
}

/// Waits until no commit is under way, and holds back those that follow. Returns `None` if a commit
/// takes longer than `patience`.
///
/// A program calls it before it lets itself be suspended (Ctrl-Z): a lock that a suspended process
/// holds locks all others out. It blocks the thread.
pub fn hold_commits(patience: Duration) -> Option<CommitHold> {
    let began = Instant::now();
    loop {
        if let Ok(held) = COMMITS.try_write() {
            return Some(CommitHold { _held: held });
        }
        if began.elapsed() >= patience {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Begins a commit on a thread of its own.
#[cfg(any(feature = "sqlite", test))]
pub(crate) fn begin_commit_blocking() -> RwLockReadGuard<'static, ()> {
    COMMITS.blocking_read()
}

/// Begins a commit in a task.
#[cfg(feature = "postgres")]
pub(crate) async fn begin_commit() -> RwLockReadGuard<'static, ()> {
    COMMITS.read().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_wait_while_they_are_held_and_are_finished_first() {
        let commit = begin_commit_blocking();
        assert!(hold_commits(Duration::ZERO).is_none(), "one is under way");
        drop(commit);
        let hold = hold_commits(Duration::from_secs(10)).expect("nothing is under way");
        let (tell, told) = std::sync::mpsc::channel();
        let writer = thread::spawn(move || {
            let _commit = begin_commit_blocking();
            tell.send(()).expect("is heard");
        });
        assert!(told.try_recv().is_err(), "it waits");
        drop(hold);
        told.recv().expect("it continues");
        writer.join().expect("ends");
    }
}
