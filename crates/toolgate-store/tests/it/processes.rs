//! Several processes on one database, and processes that are killed while they write.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use crate::support::{draft, key, note, opened, session, turn_id};
use toolgate_core::{LedgerName, LogPosition, StoreError, StoreHandle, WriteBatch};
use toolgate_store::open_store;

/// The variable that tells the child what to do; without it the child's test does nothing.
const ROLE: &str = "TOOLGATE_STORE_CHILD";
/// The number of events that each of two processes appends.
const EACH: u64 = 40;

/// Runs as the other process: this test binary again, controlled by its environment.
#[tokio::test]
async fn a_child_does_what_its_environment_says() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (address, name) = role.split_once('|').expect("an address and a name");
    let store = open_store(address).await.expect("opens");
    match name.strip_prefix("killed-") {
        Some(_) => write_until_killed(&store, name).await,
        None => append_to_the_shared_session(&store, name).await,
    }
}

/// Appends to a session that another process appends to as well.
async fn append_to_the_shared_session(store: &StoreHandle, name: &str) {
    for n in 0..EACH {
        loop {
            let at = store.revision(session(1)).await.expect("reads");
            let batch = WriteBatch {
                events: vec![opened(session(1), at + 1, turn_id(1))],
                records: vec![(key(&format!("{name}/{n}")), note(name))],
                entries: vec![draft("main", n)],
                ..WriteBatch::default()
            };
            match store
                .append(session(1), LogPosition::unleased(at), batch)
                .await
            {
                Ok(_) => break,
                // The other process was faster; read the revision again.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
            }
        }
        store
            .seal_entries(vec![draft("main", n)])
            .await
            .expect("seals");
    }
}

/// Writes and prints each acknowledged write, several writers at a time, until the process is
/// killed.
async fn write_until_killed(store: &StoreHandle, name: &str) {
    let writer = async |writer: u64| {
        for n in 0_u64.. {
            let record = format!("{name}/{writer}/{n}");
            let mine = session(u128::from(100 + writer) + u128::from(std::process::id()) * 1_000);
            let batch = WriteBatch {
                events: vec![opened(mine, n + 1, turn_id(u128::from(writer)))],
                records: vec![(key(&record), note(&record))],
                entries: vec![draft("main", n)],
                ..WriteBatch::default()
            };
            store
                .append(mine, LogPosition::unleased(n), batch)
                .await
                .expect("appends");
            println!("written {record}");
        }
    };
    futures::future::join_all((0..8).map(writer)).await;
}

fn start(address: &str, name: &str) -> Child {
    let binary = std::env::current_exe().expect("this binary");
    Command::new(binary)
        .args([
            "--exact",
            "processes::a_child_does_what_its_environment_says",
            "--nocapture",
        ])
        .env(ROLE, format!("{address}|{name}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("starts")
}

/// Checks that every entry follows the one before it; returns the number of entries.
async fn check_chain(store: &StoreHandle) -> u64 {
    let main = LedgerName::main();
    let entries = store.entries(&main, 0, usize::MAX).await.expect("reads");
    let mut head = toolgate_core::LedgerHead::start_of(main);
    for entry in &entries {
        assert!(
            entry.follows(&head),
            "entry {} does not follow {}",
            entry.counter,
            head.counter
        );
        head = entry.head();
    }
    entries.len() as u64
}

async fn two_processes_share(address: &str) {
    let names = ["left", "right"];
    let children: Vec<Child> = names.iter().map(|name| start(address, name)).collect();
    for child in children {
        let ended = child.wait_with_output().expect("ends");
        assert!(ended.status.success());
    }
    let store = open_store(address).await.expect("opens");
    assert_eq!(store.revision(session(1)).await.expect("reads"), 2 * EACH);
    let numbers: Vec<u64> = store
        .events(session(1), 0, usize::MAX)
        .await
        .expect("reads")
        .iter()
        .map(|event| event.sequence())
        .collect();
    assert_eq!(numbers, (1..=2 * EACH).collect::<Vec<_>>());
    for name in names {
        assert_eq!(
            store
                .list_records(&format!("{name}/"), None, usize::MAX)
                .await
                .expect("lists")
                .len() as u64,
            EACH
        );
    }
    assert_eq!(check_chain(&store).await, 4 * EACH);
}

/// Kills a writing process, again and again, and checks that all acknowledged writes are there.
async fn nothing_acknowledged_is_lost(address: &str) {
    let mut written = Vec::new();
    for (round, lines) in [1, 3, 10, 50, 200].into_iter().enumerate() {
        let mut child = start(address, &format!("killed-{round}"));
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        let mut output = output.lines().map(|line| line.expect("reads"));
        let acknowledged = |line: String| {
            line.rsplit_once("written ")
                .map(|(_, record)| record.to_owned())
        };
        written.extend(output.by_ref().filter_map(acknowledged).take(lines));
        child.kill().expect("can be killed");
        // Lines printed before it died count as well; the last line may be truncated.
        let mut rest: Vec<String> = output.filter_map(acknowledged).collect();
        rest.pop();
        written.extend(rest);
        child.wait().expect("ends");
        let store = open_store(address).await.expect("opens after the kill");
        check_chain(&store).await;
    }
    let store = open_store(address).await.expect("opens");
    for record in &written {
        let found = store.load_record(&key(record)).await.expect("reads");
        assert_eq!(
            found,
            Some(note(record)),
            "{record} was acknowledged and is lost"
        );
    }
    assert!(written.len() >= 264);
    assert_eq!(
        check_chain(&store).await,
        store
            .list_records("killed-", None, usize::MAX)
            .await
            .expect("lists")
            .len() as u64
    );
}

#[tokio::test]
async fn two_processes_on_one_file_never_fork_a_chain_or_lose_a_record() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("shared.db");
    two_processes_share(path.to_str().expect("a path that is text")).await;
    assert_eq!(
        toolgate_store::SqliteStore::open(&path)
            .expect("opens")
            .check()
            .expect("checks"),
        []
    );
}

#[tokio::test]
async fn acknowledged_writes_of_a_killed_process_are_in_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("killed.db");
    nothing_acknowledged_is_lost(path.to_str().expect("a path that is text")).await;
    assert_eq!(
        toolgate_store::SqliteStore::open(&path)
            .expect("opens")
            .check()
            .expect("checks"),
        []
    );
}

#[tokio::test]
async fn an_input_from_another_process_wakes_waiters_on_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("posted.db");
    let here = open_store(path.to_str().expect("text")).await;
    let there = open_store(path.to_str().expect("text")).await;
    let here = here.expect("opens");
    let there = there.expect("opens");
    let waiting = here.wait_for_post(session(1), 0);
    let post = toolgate_core::MailboxItem::Interrupt {
        turn: turn_id(1),
        reason: "enough".into(),
    };
    there
        .post_item(session(1), post, Vec::new())
        .await
        .expect("posts");
    waiting.await;
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;
    use crate::support::TestDatabase;
    use toolgate_store::PostgresStore;

    #[tokio::test]
    async fn two_processes_on_one_database_never_fork_a_chain_or_lose_a_record() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        two_processes_share(&database.url()).await;
        let store = PostgresStore::connect(&database.url())
            .await
            .expect("connects");
        assert_eq!(store.check().await.expect("checks"), []);
        database.drop().await;
    }

    #[tokio::test]
    async fn acknowledged_writes_of_a_killed_process_are_in_the_database() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        nothing_acknowledged_is_lost(&database.url()).await;
        let store = PostgresStore::connect(&database.url())
            .await
            .expect("connects");
        assert_eq!(store.check().await.expect("checks"), []);
        database.drop().await;
    }

    #[tokio::test]
    async fn an_input_from_another_connection_wakes_waiters() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let here = open_store(&database.url()).await.expect("opens");
        let there = open_store(&database.url()).await.expect("opens");
        let waiting = tokio::spawn(here.wait_for_post(session(1), 0));
        let post = toolgate_core::MailboxItem::Interrupt {
            turn: turn_id(1),
            reason: "enough".into(),
        };
        there
            .post_item(session(1), post, Vec::new())
            .await
            .expect("posts");
        waiting.await.expect("wakes");
        database.drop().await;
    }

    #[tokio::test]
    async fn a_lost_connection_is_opened_again() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let store = open_store(&database.url()).await.expect("opens");
        store
            .put_record_once(key("before"), note("x"))
            .await
            .expect("writes");
        store.load_record(&key("before")).await.expect("reads");
        let all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        database.run(all).await;
        store
            .put_record_once(key("after"), note("y"))
            .await
            .expect("writes again: no commit was in progress");
        assert_eq!(
            store
                .load_record(&key("before"))
                .await
                .expect("reads again"),
            Some(note("x"))
        );
        assert_eq!(
            store.load_record(&key("after")).await.expect("reads again"),
            Some(note("y"))
        );
        database.drop().await;
    }
}
