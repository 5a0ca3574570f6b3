//! Databases that are away, locked, deleted or replaced while they are in use.

use std::{
    fs,
    io::{BufRead, BufReader, Read as _, Write},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use crate::support::{key, note};
use toolgate_core::{RecordStore, StoreError, StoreHandle, UnavailableReason};
use toolgate_store::{SqliteOptions, SqliteStore};

/// The variable that names the file that the child locks.
const LOCKED_FILE: &str = "TOOLGATE_STORE_LOCKS";

/// Runs as another process: locks a file until its input ends.
#[test]
fn a_child_locks_the_file_that_its_environment_names() {
    let Ok(path) = std::env::var(LOCKED_FILE) else {
        return;
    };
    let connection = rusqlite::Connection::open(path).expect("opens");
    connection.execute_batch("BEGIN IMMEDIATE").expect("locks");
    println!("locked");
    let _ = std::io::stdin().lines().next();
    connection.execute_batch("COMMIT").expect("ends");
}

/// Another process that holds the lock of a file.
struct LockHolder {
    child: Child,
    /// Kept open: the child writes to it until it ends.
    _output: BufReader<ChildStdout>,
}

impl LockHolder {
    fn start(path: &std::path::Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args([
                "--exact",
                "outages::a_child_locks_the_file_that_its_environment_names",
                "--nocapture",
            ])
            .env(LOCKED_FILE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut output = BufReader::new(child.stdout.take().expect("it was piped"));
        let mut locked = output.by_ref().lines().map_while(Result::ok);
        assert!(locked.any(|line| line.ends_with("locked")));
        drop(locked);
        Self {
            child,
            _output: output,
        }
    }

    fn release(mut self) {
        let mut input = self.child.stdin.take().expect("it was piped");
        writeln!(input).expect("is read");
        assert!(self.child.wait().expect("ends").success());
    }
}

fn reason<T>(answer: Result<T, StoreError>) -> Option<UnavailableReason> {
    answer.err().and_then(|error| error.unavailable_reason())
}

#[tokio::test]
async fn a_write_waits_for_a_file_that_another_process_has_locked() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("locked.db");
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    let holder = LockHolder::start(&path);
    let write = {
        let store = store.clone();
        tokio::spawn(async move { store.put_record_once(key("k"), note("x")).await })
    };
    // Longer than one attempt to take the lock, so that the write has to repeat it.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!write.is_finished());
    holder.release();
    write.await.expect("no panic").expect("is written");
}

#[tokio::test]
async fn a_file_that_stays_locked_is_reported_as_locked() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("locked.db");
    let options = SqliteOptions {
        busy_timeout: Duration::from_millis(50),
        ..SqliteOptions::default()
    };
    let store = SqliteStore::open_with(&path, options).expect("opens");
    let holder = LockHolder::start(&path);
    let refused = store.put_record_once(key("k"), note("x")).await;
    assert_eq!(reason(refused), Some(UnavailableReason::Locked));
    holder.release();
    let written = store.put_record_once(key("k"), note("x")).await;
    written.expect("is written after the lock is gone");
}

#[tokio::test]
async fn a_file_that_was_deleted_or_replaced_is_noticed_with_the_next_write() {
    for replaced in [false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("kept.db");
        let store = SqliteStore::open(&path).expect("opens");
        let first = store.put_record_once(key("first"), note("x")).await;
        first.expect("is written");
        fs::remove_file(&path).expect("is deleted");
        if replaced {
            SqliteStore::open(&path).expect("creates another");
        }
        let lost = store.put_record_once(key("lost"), note("x")).await;
        assert_eq!(reason(lost), Some(UnavailableReason::Gone), "{replaced}");
        // The first read opens the file by its path.
        let read = store.load_record(&key("first")).await;
        assert!(read.is_err(), "another file is not read as ours");
    }
}

#[tokio::test]
async fn a_full_disk_has_a_kind_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = SqliteOptions {
        max_pages: Some(100),
        ..SqliteOptions::default()
    };
    let path = directory.path().join("full.db");
    let store = SqliteStore::open_with(&path, options).expect("opens");
    let large = note(&"x".repeat(1_000_000));
    let refused = store.put_record_once(key("large"), large).await;
    assert_eq!(reason(refused), Some(UnavailableReason::Full));
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;
    use crate::support::{CommitLoss, LossyProxy, TestDatabase, draft, opened, session, turn_id};
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };
    use toolgate_core::{
        EventStore, LedgerName, LedgerStore, LogPosition, MailboxItem, MailboxStore, Registry,
        Stack, Status, ToolError, ToolRequest, WriteBatch, tool_fn,
    };
    use toolgate_runtime::{Dispatcher, TurnRequest};
    use toolgate_store::{PostgresOptions, PostgresStore};
    use toolgate_testkit::PostgresServer;

    /// Writes one of each kind, and loses the commit of each.
    async fn write_with_losses(
        store: &PostgresStore,
        proxy: &LossyProxy,
        loss: CommitLoss,
        n: u64,
    ) {
        proxy.lose_next_commit(loss);
        let post = MailboxItem::Interrupt {
            turn: turn_id(1),
            reason: "enough".into(),
        };
        let posted = store.post_item(session(1), post, Vec::new()).await;
        posted.expect("is posted");
        proxy.lose_next_commit(loss);
        let sealed = store.seal_entries(vec![draft("main", n)]).await;
        assert_eq!(sealed.expect("is sealed")[0].counter, n + 1, "{loss:?}");
        proxy.lose_next_commit(loss);
        let batch = WriteBatch {
            events: vec![opened(session(2), n + 1, turn_id(1))],
            records: vec![(key(&format!("n/{n}")), note("x"))],
            ..WriteBatch::default()
        };
        let at = LogPosition::unleased(n);
        let revision = store.append(session(2), at, batch).await;
        assert_eq!(revision.expect("is written"), n + 1, "{loss:?}");
    }

    #[tokio::test]
    async fn a_commit_whose_answer_was_lost_is_performed_once() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let proxy = LossyProxy::start(&database.url()).await;
        let store = PostgresStore::connect(&proxy.url())
            .await
            .expect("connects");
        let losses = [CommitLoss::Answer, CommitLoss::Query, CommitLoss::Closed];
        for (n, loss) in (0..).zip(losses) {
            write_with_losses(&store, &proxy, loss, n).await;
        }
        assert_eq!(proxy.lost_count(), 9, "each loss happened");
        let posts = store.posts(session(1), 0, 100).await.expect("reads");
        assert_eq!(posts.len(), 3, "no item is in the mailbox twice");
        let entries = store.entries(&LedgerName::main(), 0, 100).await;
        assert_eq!(entries.expect("reads").len(), 3, "no entry is sealed twice");
        assert_eq!(store.check().await.expect("checks"), []);
        database.drop().await;
    }

    #[tokio::test]
    async fn reads_and_writes_wait_for_a_server_that_is_away() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let mut proxy = LossyProxy::start(&database.url()).await;
        let store = StoreHandle::new(
            PostgresStore::connect(&proxy.url())
                .await
                .expect("connects"),
        );
        store.load_record(&key("k")).await.expect("reads");
        proxy.go_away().await;
        let write = {
            let store = store.clone();
            tokio::spawn(async move { store.put_record_once(key("k"), note("x")).await })
        };
        let read = {
            let store = store.clone();
            tokio::spawn(async move { store.load_record(&key("other")).await })
        };
        // Several attempts fail meanwhile.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!write.is_finished() && !read.is_finished());
        proxy.come_back().await;
        write.await.expect("no panic").expect("is written");
        read.await.expect("no panic").expect("is read");
        database.drop().await;
    }

    #[tokio::test]
    async fn a_server_that_stays_away_is_reported_as_away() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let mut proxy = LossyProxy::start(&database.url()).await;
        let options = PostgresOptions {
            patience: Duration::from_millis(100),
        };
        let connected = PostgresStore::connect_with(&proxy.url(), options).await;
        let store = connected.expect("connects");
        proxy.lose_next_commit(CommitLoss::Answer);
        let write = store.put_record_once(key("k"), note("x"));
        let (write, ()) = futures::join!(write, async {
            while proxy.lost_count() == 0 {
                tokio::task::yield_now().await;
            }
            proxy.go_away().await;
        });
        assert_eq!(reason(write), Some(UnavailableReason::Away));
        let read = store.load_record(&key("k")).await;
        assert_eq!(reason(read), Some(UnavailableReason::Away));
        proxy.come_back().await;
        let there = store.put_record_once(key("k"), note("y")).await;
        assert_eq!(there.expect("is looked up"), Some(note("x")));
        database.drop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_session_continues_while_its_server_is_restarted_and_killed() {
        let Some(mut server) = PostgresServer::start() else {
            return;
        };
        let store = PostgresStore::connect(&server.url())
            .await
            .expect("connects");
        let runs = Arc::new(AtomicUsize::new(0));
        let registry = Registry::new();
        let counted = runs.clone();
        let tool = tool_fn(
            "count",
            "Counts.",
            move |_: serde_json::Map<String, serde_json::Value>, _cx| {
                counted.fetch_add(1, Ordering::SeqCst);
                async { Ok::<_, ToolError>("counted") }
            },
        );
        registry.register(tool).expect("free");
        let stack = Stack::over(registry.clone()).build().expect("in order");
        let builder = Dispatcher::builder(stack).store(store.clone());
        let driver = builder.session(session(1)).build().await.expect("builds");
        let driving = tokio::spawn(async move {
            for turn in 0..TURNS {
                let calls = vec![ToolRequest::from_text("1", "count", "{}")];
                let view = toolgate_testkit::plain_view(&registry);
                let turn_opened = driver.open_turn(TurnRequest::new(view, calls)).await;
                let report = turn_opened.expect("opens").run().await;
                let report = report.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
                assert_eq!(report.results[0].status(), Some(Status::Ok));
            }
        });
        for (signal, after) in [("INT", 10), ("KILL", 20)] {
            while runs.load(Ordering::SeqCst) < after {
                assert!(!driving.is_finished(), "the turns went wrong");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            server = tokio::task::spawn_blocking(move || {
                server.restart(signal);
                server
            })
            .await
            .expect("restarts");
        }
        driving.await.expect("every turn is settled");
        assert_eq!(runs.load(Ordering::SeqCst), TURNS, "no call ran twice");
        assert_eq!(store.check().await.expect("checks"), []);
    }

    /// The number of turns that are run while the server is restarted twice.
    const TURNS: usize = 30;
}
