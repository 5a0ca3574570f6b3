//! Erasing happens completely or not at all: when the database fails in the middle, and when the
//! process is killed.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use crate::support::{approval_request, call_id, session};
use toolgate_core::{
    ApprovalFilter, CatalogueStore, LogPosition, RecordKey, SessionFilter, SessionId, StoreError,
    StoreHandle, Timestamp, WriteBatch,
};
use toolgate_store::{SqliteStore, open_store};

/// The variable that tells the child what to erase; without it the child's test does nothing.
const ROLE: &str = "TOOLGATE_ERASE_CHILD";
/// The number of events, approval requests and approvals of each session.
const COUNT: u64 = 300;
/// The numbers of lines after which erasing processes are killed; the last one runs to its end.
const KILLED_AFTER: [usize; 9] = [
    1,
    1_000,
    5_000,
    10_000,
    20_000,
    40_000,
    80_000,
    160_000,
    usize::MAX,
];

/// Creates a session with many calls, numbered from `first` on.
async fn fill(store: &StoreHandle, session: SessionId, first: u64) {
    let all = (1..=COUNT).map(|n| approval_request(session, n, call_id(u128::from(first + n))));
    let batch = all.fold(WriteBatch::default(), |mut all, one| {
        all.events.extend(one.events);
        all.records.extend(one.records);
        all
    });
    store
        .append(session, LogPosition::unleased(0), batch)
        .await
        .expect("appends");
}

/// Counts the events, approval requests and approvals.
async fn counted(store: &StoreHandle, session: SessionId, first: u64) -> [u64; 3] {
    let events = store
        .events(session, 0, usize::MAX)
        .await
        .expect("reads")
        .len() as u64;
    let mut questions = 0;
    for n in 1..=COUNT {
        let key = RecordKey::Question(call_id(u128::from(first + n)), 0);
        questions += u64::from(store.load_record(&key).await.expect("reads").is_some());
    }
    let of = ApprovalFilter {
        session: Some(session),
        limit: usize::MAX,
        ..ApprovalFilter::default()
    };
    [
        events,
        questions,
        store.approvals(of).await.expect("lists").len() as u64,
    ]
}

/// Erases in a database that rejects the deletion of approvals, which comes late.
async fn nothing_is_erased_if_the_database_fails(
    store: &StoreHandle,
    failed: impl Fn(&StoreError) -> bool,
) {
    let error = store
        .erase_session(session(1), Timestamp::EPOCH)
        .await
        .expect_err("the database rejects it");
    assert!(failed(&error), "{error:?}");
    assert_eq!(counted(store, session(1), 0).await, [COUNT; 3]);
    assert_eq!(
        store
            .sessions(SessionFilter::for_session(session(1)))
            .await
            .expect("lists")
            .len(),
        1
    );
}

#[tokio::test]
async fn a_failure_in_the_middle_erases_nothing_of_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.db");
    let file = SqliteStore::open(&path).expect("opens");
    let store = StoreHandle::new(file.clone());
    fill(&store, session(1), 0).await;
    let other = rusqlite::Connection::open(&path).expect("opens");
    let refuse =
        "CREATE TRIGGER refuse BEFORE DELETE ON approvals BEGIN SELECT RAISE(ABORT, 'no'); END";
    other.execute_batch(refuse).expect("runs");
    nothing_is_erased_if_the_database_fails(&store, |error| {
        matches!(error, StoreError::Backend(_))
    })
    .await;
    other.execute_batch("DROP TRIGGER refuse").expect("runs");
    file.erase_session(session(1), Timestamp::EPOCH)
        .await
        .expect("erases");
    assert_eq!(counted(&store, session(1), 0).await, [0; 3]);
    assert_eq!(file.check().expect("checks"), []);
}

#[tokio::test]
async fn an_unreadable_session_is_not_erased_in_part() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.db");
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    fill(&store, session(1), 0).await;
    let other = rusqlite::Connection::open(&path).expect("opens");
    other
        .execute_batch("UPDATE events SET body = '{' WHERE sequence = 7")
        .expect("damages");
    let refused = store.erase_session(session(1), Timestamp::EPOCH).await;
    let right = matches!(&refused, Err(StoreError::Damaged { what, .. }) if what.starts_with("event 7 of session"));
    assert!(right, "{refused:?}");
    assert_eq!(store.revision(session(1)).await.expect("reads"), COUNT);
}

/// Runs as the other process: this test binary again, controlled by its environment.
#[tokio::test]
async fn a_child_erases_what_its_environment_says() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (address, number) = role.split_once('|').expect("an address and a number");
    let store = open_store(address).await.expect("opens");
    // Lines are printed while it erases, so that it can be killed after any of them.
    std::thread::spawn(|| {
        loop {
            println!("a line");
        }
    });
    let of = session(number.parse().expect("a number"));
    store
        .erase_session(of, Timestamp::EPOCH)
        .await
        .expect("erases");
    println!("erased");
}

/// Kills erasing processes, sooner and later, and counts what they have left.
async fn a_killed_process_erases_all_or_nothing(address: &str) {
    for (round, lines) in (1_u64..).zip(KILLED_AFTER) {
        let of = session(round.into());
        let first = round * 1_000;
        let store = open_store(address).await.expect("opens");
        fill(&store, of, first).await;
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args([
                "--exact",
                "erase::a_child_erases_what_its_environment_says",
                "--nocapture",
            ])
            .env(ROLE, format!("{address}|{round}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        let said = output.lines().map_while(Result::ok).take(lines);
        let done = said.take_while(|line| !line.contains("erased")).count() < lines;
        let _ = child.kill();
        child.wait().expect("ends");
        // A server may still be executing its last statement. This waits for it, as it locks the
        // same session.
        store.hide_session(of, None).await.expect("changes nothing");
        let left = counted(&store, of, first).await;
        assert!(
            left == [0; 3] || left == [COUNT; 3],
            "after {lines} lines there are {left:?}"
        );
        assert!(
            !done || left == [0; 3],
            "it reported that it was done, but there are {left:?}"
        );
    }
}

#[tokio::test]
async fn a_process_that_is_killed_has_erased_all_or_nothing_of_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("killed.db");
    a_killed_process_erases_all_or_nothing(path.to_str().expect("a path that is text")).await;
    assert_eq!(
        SqliteStore::open(&path)
            .expect("opens")
            .check()
            .expect("checks"),
        []
    );
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;
    use crate::support::TestDatabase;
    use toolgate_store::PostgresStore;

    #[tokio::test]
    async fn a_failure_in_the_middle_erases_nothing_of_a_database() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let store = StoreHandle::new(
            PostgresStore::connect(&database.url())
                .await
                .expect("connects"),
        );
        fill(&store, session(1), 0).await;
        database
            .run(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
                 CREATE TRIGGER refuse BEFORE DELETE ON approvals EXECUTE FUNCTION refuse();",
            )
            .await;
        nothing_is_erased_if_the_database_fails(&store, |error| {
            matches!(error, StoreError::Backend(_))
        })
        .await;
        database.run("DROP TRIGGER refuse ON approvals").await;
        store
            .erase_session(session(1), Timestamp::EPOCH)
            .await
            .expect("erases");
        assert_eq!(counted(&store, session(1), 0).await, [0; 3]);
        drop(store);
        database.drop().await;
    }

    #[tokio::test]
    async fn a_process_that_is_killed_has_erased_all_or_nothing_of_a_database() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        a_killed_process_erases_all_or_nothing(&database.url()).await;
        let store = PostgresStore::connect(&database.url())
            .await
            .expect("connects");
        assert_eq!(store.check().await.expect("checks"), []);
        drop(store);
        database.drop().await;
    }

    #[tokio::test]
    async fn writers_and_erasers_in_several_processes_do_not_deadlock() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let stores = [
            open_store(&database.url()).await.expect("opens"),
            open_store(&database.url()).await.expect("opens"),
        ];
        // Sessions in both orders of ids, each the agent of the one before it.
        let work = (0..12_u64).map(|n| {
            let store = &stores[(n % 2) as usize];
            async move {
                let above = session((n % 4).into());
                let below = call_id(u128::from(n % 4) + 1).agent_session();
                for (of, call) in [(above, n % 4 + 1), (below, n % 4 + 50)] {
                    let at = store.revision(of).await.expect("reads");
                    let events = approval_request(of, at + 1, call_id(call.into())).events;
                    // Another process may have been faster, or may have erased it.
                    let _ = store
                        .append(
                            of,
                            LogPosition::unleased(at),
                            WriteBatch {
                                events,
                                ..WriteBatch::default()
                            },
                        )
                        .await;
                }
                store.erase_session(above, Timestamp::EPOCH).await
            }
        });
        for done in futures::future::join_all(work).await {
            done.expect("there is no deadlock");
        }
        drop(stores);
        database.drop().await;
    }
}
