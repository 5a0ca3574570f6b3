//! Which files tools have changed, for whoever wants to know.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use globset::{GlobBuilder, GlobMatcher};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{CallId, Timestamp, ToolName, contained_sync};

/// Passes on the changes that tools report and remembers the last of them. Cloning shares it.
///
/// It watches tools, not the disk: what changes a file behind the tools' backs is not seen.
///
/// ```
/// use toolgate_layers::{FileChange, FileChangeKind, FileWatcher};
///
/// let watcher = FileWatcher::new();
/// watcher.subscribe("src/**/*.rs", |change| println!("{} was {:?}", change.path, change.change))?;
/// watcher.notify(FileChange::new("src/main.rs", FileChangeKind::Modified));
/// assert_eq!(watcher.recent(10).len(), 1);
/// # Ok::<(), toolgate_layers::InvalidPattern>(())
/// ```
#[derive(Clone)]
pub struct FileWatcher(Arc<Mutex<Watched>>);

struct Watched {
    subscriptions: Vec<Subscription>,
    last_id: u64,
    /// Newest last.
    history: VecDeque<FileChange>,
    most: usize,
}

#[derive(Clone)]
struct Subscription {
    id: SubscriptionId,
    pattern: GlobMatcher,
    handler: Arc<dyn Fn(&FileChange) + Send + Sync>,
}

/// A file that a tool has changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct FileChange {
    /// Which file, as the tool names it; without a `./` in front.
    pub path: String,
    /// What happened to it.
    pub change: FileChangeKind,
    /// What it was called before, if it was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_path: Option<String>,
    /// How large it is now, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// When the file system says it was last modified, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_at: Option<Timestamp>,
    /// Which tool did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<ToolName>,
    /// In which call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// It is new.
    Created,
    /// Its content is another one.
    Modified,
    /// It is gone.
    Deleted,
    /// It has another name.
    Renamed,
}

/// Names a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubscriptionId(u64);

/// The text is not a pattern for paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a pattern for paths: {0}")]
pub struct InvalidPattern(String);

impl FileChange {
    /// Something happened to the file at `path`.
    pub fn new(path: &str, change: FileChangeKind) -> Self {
        let path = plain(path).to_owned();
        let (old_path, size, modified_at, tool_name, call_id) = (None, None, None, None, None);
        Self {
            path,
            change,
            old_path,
            size,
            modified_at,
            tool_name,
            call_id,
        }
    }

    /// The file at `old_path` is called `path` now.
    pub fn renamed(old_path: &str, path: &str) -> Self {
        Self {
            old_path: Some(plain(old_path).to_owned()),
            ..Self::new(path, FileChangeKind::Renamed)
        }
    }
}

impl FileWatcher {
    /// How many changes are remembered unless it is said otherwise.
    pub const HISTORY: usize = 1000;

    /// Nobody listens, and nothing has changed.
    pub fn new() -> Self {
        Self::with_history(Self::HISTORY)
    }

    /// Remembers the last `most` changes.
    pub fn with_history(most: usize) -> Self {
        let watched = Watched {
            subscriptions: Vec::new(),
            last_id: 0,
            history: VecDeque::new(),
            most,
        };
        Self(Arc::new(Mutex::new(watched)))
    }

    /// Calls `handler` for each change of a path that fits `pattern`; a rename fits by its old or its new path.
    ///
    /// `*` stays within a directory, `**` reaches into directories below, and `{a,b}` is either.
    pub fn subscribe(
        &self,
        pattern: &str,
        handler: impl Fn(&FileChange) + Send + Sync + 'static,
    ) -> Result<SubscriptionId, InvalidPattern> {
        let glob = GlobBuilder::new(plain(pattern))
            .literal_separator(true)
            .build();
        let pattern = glob
            .map_err(|error| InvalidPattern(error.to_string()))?
            .compile_matcher();
        let mut watched = self.watched();
        watched.last_id += 1;
        let id = SubscriptionId(watched.last_id);
        watched.subscriptions.push(Subscription {
            id,
            pattern,
            handler: Arc::new(handler),
        });
        Ok(id)
    }

    /// Ends a subscription. Nothing happens if it has ended before.
    pub fn unsubscribe(&self, id: SubscriptionId) {
        self.watched()
            .subscriptions
            .retain(|subscription| subscription.id != id);
    }

    /// A file has changed. Handlers run on this thread, after every lock is released.
    pub fn notify(&self, change: FileChange) {
        let subscriptions: Vec<Subscription> = {
            let mut watched = self.watched();
            watched.remember(change.clone());
            watched
                .subscriptions
                .iter()
                .filter(|subscription| subscription.wants(&change))
                .cloned()
                .collect()
        };
        for subscription in subscriptions {
            // A handler that panics misses this change; nobody else does.
            let _ = contained_sync(|| (subscription.handler)(&change));
        }
    }

    /// The last changes, newest first.
    pub fn recent(&self, limit: usize) -> Vec<FileChange> {
        self.watched()
            .history
            .iter()
            .rev()
            .take(limit)
            .cloned()
            .collect()
    }

    // Every change below is one step, so a poisoned lock hides nothing half-done.
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn remember(&mut self, change: FileChange) {
        self.history.push_back(change);
        while self.history.len() > self.most {
            self.history.pop_front();
        }
    }
}

impl Subscription {
    fn wants(&self, change: &FileChange) -> bool {
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
        let watched = self.watched();
        let mut out = f.debug_struct("FileWatcher");
        out.field("subscriptions", &watched.subscriptions.len())
            .field("history", &watched.history.len())
            .finish()
    }
}

/// A path without `./` in front, however often.
fn plain(path: &str) -> &str {
    let mut path = path;
    while let Some(rest) = path.strip_prefix("./").filter(|rest| !rest.is_empty()) {
        path = rest.trim_start_matches('/');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_rename_is_heard_by_its_old_and_its_new_path() {
        let watcher = FileWatcher::new();
        let (_, old) = heard(&watcher, "old/*");
        let (_, new) = heard(&watcher, "new/*");
        let (_, other) = heard(&watcher, "other/*");
        watcher.notify(FileChange::renamed("old/a", "new/a"));
        let count = |paths: &Mutex<Vec<String>>| paths.lock().expect("whole").len();
        assert_eq!((count(&old), count(&new), count(&other)), (1, 1, 0));
    }

    #[test]
    fn an_unreadable_pattern_is_an_error() {
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
                .recent(limit)
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
