//! Notifications about files that tools have changed.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use globset::{GlobBuilder, GlobMatcher};
use toolgate_core::{Event, FileChange, ToolEvent, run_contained_sync, strip_dot_slash};

/// Notifies subscribers of changes that tools report, and stores the last of them. Clones share it.
///
/// It is filled from the events of a session through [`apply_event`](Self::apply_event). The layer
/// `file_changes` reports them. It watches tools, not the disk: changes that are not made by a tool
/// are not seen.
///
/// ```
/// use toolgate_core::{FileChange, FileChangeKind};
/// use toolgate_layers::FileWatcher;
///
/// let watcher = FileWatcher::new();
/// watcher.subscribe("src/**/*.rs", |change| println!("{} was {:?}", change.path, change.change))?;
/// watcher.notify(FileChange::new("src/main.rs", FileChangeKind::Modified));
/// assert_eq!(watcher.recent_changes(10).len(), 1);
/// # Ok::<(), toolgate_layers::InvalidPattern>(())
/// ```
#[derive(Clone)]
pub struct FileWatcher(Arc<Mutex<WatcherState>>);

/// The shared state of a watcher.
struct WatcherState {
    subscriptions: Vec<FileSubscription>,
    last_id: u64,
    /// Newest last.
    history: VecDeque<FileChange>,
    most: usize,
}

/// A handler with its pattern.
#[derive(Clone)]
struct FileSubscription {
    id: SubscriptionId,
    pattern: GlobMatcher,
    handler: Arc<dyn Fn(&FileChange) + Send + Sync>,
}

/// The id of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubscriptionId(u64);

/// The error for an invalid path pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid path pattern: {0}")]
pub struct InvalidPattern(String);

impl FileWatcher {
    /// The default number of stored changes.
    pub const HISTORY: usize = 1000;

    /// Creates a watcher without subscriptions and changes.
    pub fn new() -> Self {
        Self::with_history(Self::HISTORY)
    }

    /// Creates a watcher that stores the last `most` changes.
    pub fn with_history(most: usize) -> Self {
        let watched = WatcherState {
            subscriptions: Vec::new(),
            last_id: 0,
            history: VecDeque::new(),
            most,
        };
        Self(Arc::new(Mutex::new(watched)))
    }

    /// Calls `handler` for each change of a path that matches `pattern`; a rename matches by its
    /// old or its new path.
    ///
    /// `*` stays within a directory, `**` matches directories below, and `{a,b}` is either.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidPattern`] if the pattern cannot be parsed.
    pub fn subscribe(
        &self,
        pattern: &str,
        handler: impl Fn(&FileChange) + Send + Sync + 'static,
    ) -> Result<SubscriptionId, InvalidPattern> {
        let glob = GlobBuilder::new(strip_dot_slash(pattern))
            .literal_separator(true)
            .build();
        let pattern = glob
            .map_err(|error| InvalidPattern(error.to_string()))?
            .compile_matcher();
        let mut watched = self.lock_state();
        watched.last_id += 1;
        let id = SubscriptionId(watched.last_id);
        watched.subscriptions.push(FileSubscription {
            id,
            pattern,
            handler: Arc::new(handler),
        });
        Ok(id)
    }

    /// Ends a subscription. Ignores one that has already ended.
    pub fn unsubscribe(&self, id: SubscriptionId) {
        self.lock_state()
            .subscriptions
            .retain(|subscription| subscription.id != id);
    }

    /// Stores the changes that an event reports and calls the matching handlers. Ignores other
    /// events.
    pub fn apply_event(&self, event: &Event) {
        let Some((invocation, ToolEvent::ToolFilesChanged { changes, .. })) = event.as_tool()
        else {
            return;
        };
        for change in changes {
            let mut change = change.clone();
            change.tool_name = Some(invocation.tool.clone());
            change.call_id = Some(invocation.id);
            self.notify(change);
        }
    }

    /// Stores a change and calls the matching handlers, on this thread and after every lock is
    /// released.
    pub fn notify(&self, change: FileChange) {
        // Copied out of the lock: a handler may subscribe or unsubscribe itself.
        let subscriptions: Vec<FileSubscription> = {
            let mut watched = self.lock_state();
            watched.store_change(change.clone());
            watched
                .subscriptions
                .iter()
                .filter(|subscription| subscription.matches(&change))
                .cloned()
                .collect()
        };
        for subscription in subscriptions {
            // A handler that panics misses this change; the others must still get it.
            let _ = run_contained_sync(|| (subscription.handler)(&change));
        }
    }

    /// Returns the last changes, newest first.
    pub fn recent_changes(&self, limit: usize) -> Vec<FileChange> {
        self.lock_state()
            .history
            .iter()
            .rev()
            .take(limit)
            .cloned()
            .collect()
    }

    // A poisoned lock is usable: no operation under it leaves the state half-changed.
    fn lock_state(&self) -> MutexGuard<'_, WatcherState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatcherState {
    /// Stores a change and drops the oldest ones.
    fn store_change(&mut self, change: FileChange) {
        self.history.push_back(change);
        while self.history.len() > self.most {
            self.history.pop_front();
        }
    }
}

impl FileSubscription {
    /// Checks whether a change matches the pattern.
    fn matches(&self, change: &FileChange) -> bool {
        self.pattern.is_match(&change.path)
            || change
                .old_path
                .as_ref()
                .is_some_and(|old| self.pattern.is_match(old))
    }
}

impl Default for FileWatcher {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FileWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = self.lock_state();
        let mut out = f.debug_struct("FileWatcher");
        out.field("subscriptions", &watched.subscriptions.len())
            .field("history", &watched.history.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::FileChangeKind;

    fn modified(path: &str) -> FileChange {
        FileChange::new(path, FileChangeKind::Modified)
    }

    fn heard(watcher: &FileWatcher, pattern: &str) -> (SubscriptionId, Arc<Mutex<Vec<String>>>) {
        let paths = Arc::new(Mutex::new(Vec::new()));
        let kept = paths.clone();
        let handler =
            move |change: &FileChange| kept.lock().expect("whole").push(change.path.clone());
        (
            watcher.subscribe(pattern, handler).expect("a pattern"),
            paths,
        )
    }

    #[test]
    fn a_star_stays_in_its_directory_and_two_reach_below() {
        let table = [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/a.rs", false),
            ("./*.rs", "././a.rs", true),
            ("src/*.rs", "src/x/a.rs", false),
            ("src/**/*.rs", "src/a.rs", true),
            ("src/**/*.rs", "src/x/y/a.rs", true),
            ("**", "src/x/y/a.rs", true),
            ("**/*.{toml,lock}", "crates/a/Cargo.toml", true),
            ("**/*.{toml,lock}", "crates/a/Cargo.rs", false),
            ("src/*.rs", "src/é.rs", true),
        ];
        for (pattern, path, fits) in table {
            let watcher = FileWatcher::new();
            let (_, paths) = heard(&watcher, pattern);
            watcher.notify(modified(path));
            assert_eq!(
                !paths.lock().expect("whole").is_empty(),
                fits,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn a_rename_matches_by_its_old_and_its_new_path() {
        let watcher = FileWatcher::new();
        let (_, old) = heard(&watcher, "old/*");
        let (_, new) = heard(&watcher, "new/*");
        let (_, other) = heard(&watcher, "other/*");
        watcher.notify(FileChange::renamed("old/a", "new/a"));
        let count = |paths: &Mutex<Vec<String>>| paths.lock().expect("whole").len();
        assert_eq!((count(&old), count(&new), count(&other)), (1, 1, 0));
    }

    #[test]
    fn an_invalid_pattern_is_an_error() {
        for bad in ["src/[", "{a,b", "[z-a]"] {
            assert!(FileWatcher::new().subscribe(bad, |_| {}).is_err(), "{bad}");
        }
    }

    #[test]
    fn history_is_bounded_and_newest_first() {
        let watcher = FileWatcher::with_history(3);
        for path in ["a", "b", "c", "d"] {
            watcher.clone().notify(modified(path));
        }
        let paths = |limit| {
            watcher
                .recent_changes(limit)
                .into_iter()
                .map(|change| change.path)
                .collect::<Vec<_>>()
        };
        assert_eq!(paths(2), ["d", "c"]);
        assert_eq!(paths(100), ["d", "c", "b"]);
    }

    #[test]
    fn a_handler_may_panic_subscribe_and_unsubscribe_without_harm() {
        let watcher = FileWatcher::new();
        watcher
            .subscribe("**", |_| panic!("hunter2"))
            .expect("a pattern");
        let inner = watcher.clone();
        watcher
            .subscribe("**", move |_| drop(inner.subscribe("x", |_| {})))
            .expect("a pattern");
        let (id, paths) = heard(&watcher, "**");
        watcher.notify(modified("a"));
        watcher.unsubscribe(id);
        watcher.unsubscribe(id);
        watcher.notify(modified("b"));
        assert_eq!(*paths.lock().expect("whole"), ["a"]);
    }
}
