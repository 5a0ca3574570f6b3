//! Search on real databases: erased text is gone from the file, any query is safe, and processes that
//! index at the same time or die in the middle lose nothing.

use std::{fs, path::Path, sync::Arc, time::Duration};

use proptest::prelude::*;
use toolgate_core::{
    Event, ImportOrigin, LogPosition, SearchMode, SearchProgress, SearchRequest, SearchService,
    SessionEvent, SessionFilter, SessionId, SessionTitle, StoreError, StoreHandle, StoreRecord,
    Timestamp, TurnInfo, WriteBatch,
};
use toolgate_store::{IntegrityProblem, MemoryStore, SqliteStore};
use toolgate_testkit::{FaultyStore, StoreCall, StoreFault, TestClock, WordEmbedder};

use crate::support::{session, turn_id};

const NOW: Timestamp = Timestamp::from_micros(86_400 * 1_000_000);

fn service(store: &StoreHandle) -> SearchService {
    SearchService::new(store.clone(), TestClock::at(NOW))
        .with_embedder(Arc::new(WordEmbedder::new("test")))
}

fn message(session: SessionId, n: u64, text: &str) -> Arc<Event> {
    let event = SessionEvent::UserMessage {
        message: n,
        text: Some(text.into()),
        text_bytes: None,
        steering: false,
    };
    let info = Arc::new(TurnInfo::new(session, turn_id(1)));
    let at = Timestamp::from_micros(i64::try_from(n).expect("few") * 1_000_000);
    Arc::new(Event::for_run(n, at, info, event).expect("a valid event"))
}

async fn say(store: &StoreHandle, session: SessionId, texts: &[String]) {
    let revision = store.revision(session).await.expect("reads");
    let events = (revision + 1..)
        .zip(texts)
        .map(|(n, text)| message(session, n, text));
    let batch = WriteBatch {
        events: events.collect(),
        ..WriteBatch::default()
    };
    let position = LogPosition::unleased(revision);
    store
        .append(session, position, batch)
        .await
        .expect("appends");
}

async fn count(store: &StoreHandle, query: &str) -> usize {
    let request = SearchRequest::new(query).mode(SearchMode::Text).limit(100);
    let answer = service(store).search(&request).await.expect("searches");
    answer.hits.len()
}

/// Returns the files of a database that contain a text, in any case.
fn files_with(directory: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for file in fs::read_dir(directory).expect("lists") {
        let file = file.expect("lists");
        let bytes = fs::read(file.path()).expect("reads").to_ascii_lowercase();
        if bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
        {
            found.push(file.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

#[tokio::test]
async fn nothing_of_an_erased_session_is_left_in_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = SqliteStore::open(&path).expect("opens");
    let handle = StoreHandle::new(store.clone());
    // Other sessions before and after it, so that its words lie among others in the pages.
    let others: Vec<String> = (0..400)
        .map(|n| format!("aardvark{n} zebra{n} the quick fox {n}"))
        .collect();
    say(&handle, session(1), &others).await;
    let planted: Vec<String> = (0..50)
        .map(|n| format!("quixotic plumfire {n} ordered marzipan{n} walruses"))
        .collect();
    say(&handle, session(2), &planted).await;
    let title = SessionTitle::new("vexillology club").expect("visible");
    handle
        .rename_session(session(2), title)
        .await
        .expect("renames");
    service(&handle)
        .continue_index(|_| ())
        .await
        .expect("indexes");
    say(&handle, session(3), &others).await;
    service(&handle)
        .continue_index(|_| ())
        .await
        .expect("indexes");
    assert_eq!(count(&handle, "plumfire").await, 50);
    assert_eq!(count(&handle, "vexillology").await, 1);
    for word in ["plumfire", "marzipan", "vexillology"] {
        assert!(
            !files_with(directory.path(), word).is_empty(),
            "{word} is stored at first"
        );
    }
    handle.erase_session(session(2), NOW).await.expect("erases");
    assert_eq!(count(&handle, "plumfire").await, 0);
    for word in [
        "quixotic",
        "plumfire",
        "marzipan",
        "walruses",
        "vexillology",
    ] {
        assert_eq!(
            files_with(directory.path(), word),
            Vec::<String>::new(),
            "{word}"
        );
    }
    assert_eq!(
        count(&handle, "aardvark7").await,
        2,
        "other sessions are whole"
    );
    assert_eq!(store.check().expect("checks"), []);
}

#[tokio::test]
async fn a_search_that_replaces_the_vectors_of_another_embedder_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let sqlite = SqliteStore::open(directory.path().join("toolgate.db")).expect("opens");
    for store in [
        StoreHandle::new(sqlite),
        StoreHandle::new(MemoryStore::new()),
    ] {
        // More than one search embeds before it answers.
        let texts: Vec<String> = (0..400).map(|n| format!("walrus {n}")).collect();
        say(&store, session(1), &texts).await;
        let first = service(&store);
        first.continue_index(|_| ()).await.expect("indexes");
        assert_eq!(first.status().await.expect("reads").hint(), None);
        let second = SearchService::new(store.clone(), TestClock::at(NOW))
            .with_embedder(Arc::new(WordEmbedder::new("second")));
        let request = SearchRequest::new("walrus");
        let answer = second.search(&request).await.expect("searches");
        let hint = answer.hints.iter().find(|hint| hint.contains("second"));
        let hint = hint.expect("a hint");
        assert!(hint.contains("share a database"), "{hint}");
        let status = second.status().await.expect("reads");
        assert_eq!(status.hint().as_ref(), Some(hint));
        second.continue_index(|_| ()).await.expect("embeds");
        let answer = second.search(&request).await.expect("searches");
        assert_eq!(answer.hints, [] as [String; 0]);
        assert_eq!(second.status().await.expect("reads").hint(), None);
    }
}

/// Changes, one after the other, and how many documents are found to be damaged after each: one in a
/// session whose log is shorter, two with a wrong number, and the title of a session that is gone.
const DAMAGED_DOCUMENTS: [(&str, usize); 3] = [
    (
        "UPDATE search_documents SET session = (SELECT id FROM sessions ORDER BY id DESC LIMIT 1)
         WHERE sequence = 2",
        1,
    ),
    (
        "UPDATE search_documents SET sequence = 77 WHERE sequence = 1",
        3,
    ),
    ("DELETE FROM sessions WHERE title = 'vexillology club'", 4),
];

/// Fills two sessions, of which the first is longer and has a title, and indexes them.
async fn fill_two_sessions(store: &StoreHandle) {
    say(store, session(1), &["one", "two"].map(str::to_owned)).await;
    say(store, session(2), &["three".to_owned()]).await;
    let title = SessionTitle::new("vexillology club").expect("visible");
    store
        .rename_session(session(1), title)
        .await
        .expect("renames");
    let done = service(store).continue_index(|_| ()).await;
    assert!(done.expect("indexes").is_complete);
}

/// Counts the damaged documents among the problems.
fn damaged_documents(problems: &[IntegrityProblem]) -> usize {
    let is_document = |problem: &&IntegrityProblem| match problem {
        IntegrityProblem::Row { table, row, .. } => *table == "search_documents" && row != "0",
        _ => false,
    };
    problems.iter().filter(is_document).count()
}

#[tokio::test]
async fn a_document_whose_event_or_session_is_not_there_is_found_by_the_check() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = SqliteStore::open(&path).expect("opens");
    fill_two_sessions(&StoreHandle::new(store.clone())).await;
    assert_eq!(store.check().expect("checks"), []);
    let database = rusqlite::Connection::open(&path).expect("opens");
    for (sql, damaged) in DAMAGED_DOCUMENTS {
        assert!(database.execute(sql, []).expect("changes") > 0, "{sql}");
        let problems = store.check().expect("checks");
        assert_eq!(damaged_documents(&problems), damaged, "{sql}: {problems:?}");
    }
    // Building the index again is the fix.
    let handle = StoreHandle::new(store.clone());
    service(&handle).reindex(|_| ()).await.expect("indexes");
    assert_eq!(damaged_documents(&store.check().expect("checks")), 0);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_document_whose_event_or_session_is_not_there_is_found_on_postgres() {
    let Some(database) = crate::support::TestDatabase::create().await else {
        return;
    };
    let store = toolgate_store::PostgresStore::connect(&database.url()).await;
    let store = store.expect("connects");
    fill_two_sessions(&StoreHandle::new(store.clone())).await;
    assert_eq!(store.check().await.expect("checks"), []);
    for (sql, damaged) in DAMAGED_DOCUMENTS {
        database.run(sql).await;
        let problems = store.check().await.expect("checks");
        assert_eq!(damaged_documents(&problems), damaged, "{sql}: {problems:?}");
    }
    drop(store);
    database.drop().await;
}

#[tokio::test]
async fn a_filter_that_leaves_very_many_documents_compares_the_newest_and_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    say(&store, session(1), &["a walrus".to_owned()]).await;
    let search = async |text: &str, mode: SearchMode| {
        let request = SearchRequest::new(text).mode(mode);
        let answer = service(&store).search(&request).await;
        answer.expect("searches").notices.join("; ")
    };
    let said = "compared by meaning";
    for mode in SearchMode::ALL {
        let notices = search("walrus role:user", mode).await;
        assert!(!notices.contains(said), "{mode}: {notices}");
    }
    // Copies of the document, with its facts and without vectors of their own.
    let database = rusqlite::Connection::open(&path).expect("opens");
    let many = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n <= 20000)
                INSERT INTO search_documents (id, session, sequence, project, at, embedded, counts)
                SELECT id + n, session, sequence + n, project, at, embedded, counts FROM search_documents, numbers;
                INSERT INTO search_index (rowid, words, names, facets)
                SELECT id, 'walrus', '', 'd kuser' FROM search_documents WHERE sequence > 1";
    database.execute_batch(many).expect("copies");
    for mode in [SearchMode::Semantic, SearchMode::Hybrid] {
        let notices = search("walrus role:user", mode).await;
        assert!(notices.contains(said), "{mode}: {notices}");
        let notices = search("walrus", mode).await;
        assert!(!notices.contains(said), "{mode}: {notices}");
    }
}

#[tokio::test]
async fn a_title_that_was_replaced_is_not_left_in_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let store =
        StoreHandle::new(SqliteStore::open(directory.path().join("toolgate.db")).expect("opens"));
    say(&store, session(1), &["hello".to_owned()]).await;
    for name in ["plumfire", "marzipan"] {
        let title = SessionTitle::new(name).expect("visible");
        store
            .rename_session(session(1), title)
            .await
            .expect("renames");
        assert_eq!(count(&store, name).await, 1);
    }
    assert_eq!(count(&store, "plumfire").await, 0);
    // Erasing any session empties the WAL, which holds pages as they were before.
    store
        .erase_session(session(9), NOW)
        .await
        .expect("erases nothing");
    assert_eq!(
        files_with(directory.path(), "plumfire"),
        Vec::<String>::new()
    );
}

/// Fails each write of the index once, as a process that is killed in the middle of indexing would.
#[tokio::test]
async fn a_failure_in_the_middle_of_indexing_loses_and_repeats_nothing() {
    for fails_at in 1..=6 {
        let directory = tempfile::tempdir().expect("a directory");
        let file = SqliteStore::open(directory.path().join("toolgate.db")).expect("opens");
        let batches = std::sync::atomic::AtomicU64::new(0);
        let faulty = FaultyStore::new(file.clone(), move |call, _| match call {
            StoreCall::IndexBatch => {
                let n = batches.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                match n {
                    // Not carried out, or carried out without an answer.
                    n if n == fails_at && n % 2 == 0 => {
                        StoreFault::Fail(StoreError::Backend("killed".into()))
                    }
                    n if n == fails_at => {
                        StoreFault::DoneButFail(StoreError::Backend("killed".into()))
                    }
                    _ => StoreFault::Pass,
                }
            }
            _ => StoreFault::Pass,
        });
        let faulty = StoreHandle::new(faulty);
        let texts: Vec<String> = (0..500).map(|n| format!("gnu {n}")).collect();
        say(&faulty, session(1), &texts).await;
        let first = service(&faulty).continue_index(|_| ()).await;
        // Another process continues.
        drop(faulty);
        let store = StoreHandle::new(file.clone());
        service(&store)
            .continue_index(|_| ())
            .await
            .expect("continues");
        let counts = store.search_counts(None).await.expect("counts");
        assert_eq!(counts.documents, 500, "batch {fails_at}, {first:?}");
        assert_eq!(counts.stale_events, 0);
        assert_eq!(count(&store, "\"gnu 499\"").await, 1);
        assert_eq!(file.check().expect("checks"), []);
    }
}

#[tokio::test]
async fn each_phase_of_indexing_says_how_much_there_is_to_do() {
    let store = StoreHandle::new(MemoryStore::new());
    let texts: Vec<String> = (0..300).map(|n| format!("gnu {n}")).collect();
    say(&store, session(1), &texts).await;
    let mut reports = Vec::new();
    let done = service(&store)
        .reindex(|progress| reports.push(progress))
        .await;
    assert!(done.expect("indexes").is_complete);
    assert!(reports.iter().all(|told| told.pending_events == 300));
    let (indexing, embedding): (Vec<SearchProgress>, Vec<SearchProgress>) =
        reports.iter().partition(|told| told.pending_documents == 0);
    assert_eq!(indexing.last().map(|told| told.events), Some(300));
    assert!(embedding.iter().all(|told| told.pending_documents == 300));
    assert_eq!(embedding.last().map(|told| told.embedded), Some(300));
    // Another model: nothing is to be indexed, and everything to be embedded.
    let other = SearchService::new(store.clone(), TestClock::at(NOW))
        .with_embedder(Arc::new(WordEmbedder::new("other")));
    reports.clear();
    let done = other
        .continue_index(|progress| reports.push(progress))
        .await;
    assert!(done.expect("embeds").is_complete);
    let is_counted =
        |told: &SearchProgress| told.pending_events == 0 && told.pending_documents == 300;
    assert!(!reports.is_empty() && reports.iter().all(is_counted));
}

/// Indexes 1,000 documents of two sessions, and interrupts the rebuilding of the index while documents
/// are deleted. Returns how many are left.
async fn interrupt_clearing(store: &StoreHandle, path: &Path) -> i64 {
    let texts = |word: &str| (0..500).map(|n| format!("{word} {n}")).collect::<Vec<_>>();
    say(store, session(1), &texts("gnu")).await;
    say(store, session(2), &texts("plumfire")).await;
    let indexed = service(store).continue_index(|_| ()).await;
    assert!(indexed.expect("indexes").is_complete);
    let database = rusqlite::Connection::open(path).expect("opens");
    let stop = "CREATE TRIGGER stop BEFORE DELETE ON search_documents
                WHEN (SELECT count(*) FROM search_documents) <= 500
                BEGIN SELECT RAISE(ABORT, 'stopped'); END";
    database.execute_batch(stop).expect("creates");
    let stopped = service(store).reindex(|_| ()).await;
    assert!(stopped.is_err(), "{stopped:?}");
    database.execute_batch("DROP TRIGGER stop").expect("drops");
    let left = "SELECT count(*) FROM search_documents";
    database
        .query_row(left, [], |row| row.get(0))
        .expect("counts")
}

#[tokio::test]
async fn an_index_is_cleared_in_pieces_and_finished_by_another_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let file = SqliteStore::open(&path).expect("opens");
    let store = StoreHandle::new(file.clone());
    let left = interrupt_clearing(&store, &path).await;
    assert!(left > 0 && left < 1_000, "{left} documents are left");
    // Sessions are used meanwhile.
    say(&store, session(1), &["gnu meanwhile".to_owned()]).await;
    say(&store, session(3), &["gnu meanwhile".to_owned()]).await;
    let other = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    let done = service(&other).continue_index(|_| ()).await;
    assert!(done.expect("indexes").is_complete);
    let embedder = toolgate_core::EmbedderId::new("test");
    let counts = store.search_counts(Some(embedder)).await.expect("counts");
    assert_eq!((counts.documents, counts.embedded), (1_002, 1_002));
    assert_eq!(counts.stale_events, 0);
    assert_eq!(count(&store, "\"gnu 499\"").await, 1);
    assert_eq!(count(&store, "meanwhile").await, 2);
    assert_eq!(file.check().expect("checks"), []);
    // Nothing of the old index is left, and it can be cleared once more.
    let again = service(&store).reindex(|_| ()).await.expect("indexes");
    assert_eq!(again.events, 1_002);
    let database = rusqlite::Connection::open(&path).expect("opens");
    let outdated = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'search_outdated%'";
    let outdated = database.query_row(outdated, [], |row| row.get::<_, i64>(0));
    assert_eq!(outdated.expect("counts"), 0);
}

#[tokio::test]
async fn a_session_that_is_erased_while_the_index_is_cleared_leaves_nothing_in_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    interrupt_clearing(&store, &path).await;
    assert!(!files_with(directory.path(), "plumfire").is_empty());
    store.erase_session(session(2), NOW).await.expect("erases");
    assert_eq!(files_with(directory.path(), "plumfire"), [""; 0]);
    assert_eq!(count(&store, "\"gnu 499\"").await, 1);
}

#[tokio::test]
async fn the_index_of_another_version_is_built_again_and_erased_without_a_trace() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    say(&store, session(1), &["gnu".to_owned()]).await;
    say(&store, session(2), &["plumfire".to_owned()]).await;
    assert_eq!(count(&store, "gnu").await, 1);
    // The words of the other version are not those that this one would delete.
    let database = rusqlite::Connection::open(&path).expect("opens");
    let other = "UPDATE search_state SET version = 1;
                 INSERT INTO search_index (rowid, words) VALUES (7, 'plumfireother')";
    database.execute_batch(other).expect("changes");
    drop(database);
    store.erase_session(session(2), NOW).await.expect("erases");
    assert_eq!(files_with(directory.path(), "plumfire"), [""; 0]);
    assert_eq!(count(&store, "gnu").await, 1);
}

async fn index_from_two_processes(one: StoreHandle, two: StoreHandle) {
    for n in 0..8 {
        let texts: Vec<String> = (0..100).map(|m| format!("gnu {n} {m}")).collect();
        say(&one, session(n), &texts).await;
    }
    let writes = async {
        for n in 8..16 {
            say(&one, session(n), &[format!("gnu {n} 0")]).await;
        }
    };
    let first = service(&one);
    let second = service(&two);
    let (a, b, ()) = tokio::join!(
        first.continue_index(|_| ()),
        second.continue_index(|_| ()),
        writes
    );
    a.expect("indexes");
    b.expect("indexes");
    service(&two).continue_index(|_| ()).await.expect("indexes");
    let counts = one.search_counts(None).await.expect("counts");
    assert_eq!((counts.documents, counts.stale_events), (808, 0));
    assert_eq!(
        count(&two, "\"gnu 7 99\"").await,
        1,
        "nothing is indexed twice"
    );
    assert_eq!(count(&two, "\"gnu 15 0\"").await, 1);
}

#[tokio::test]
async fn two_processes_that_index_one_file_lose_and_repeat_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    // Two stores have two writers and share nothing but the file, as two processes do.
    let one = SqliteStore::open(&path).expect("opens");
    let two = SqliteStore::open(&path).expect("opens");
    index_from_two_processes(StoreHandle::new(one.clone()), StoreHandle::new(two)).await;
    assert_eq!(one.check().expect("checks"), []);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn two_processes_that_index_one_database_lose_and_repeat_nothing() {
    let Some(database) = crate::support::TestDatabase::create().await else {
        return;
    };
    let url = database.url();
    let connect = || toolgate_store::PostgresStore::connect(&url);
    let one = StoreHandle::new(connect().await.expect("connects"));
    let two = StoreHandle::new(connect().await.expect("connects"));
    index_from_two_processes(one, two).await;
    database.drop().await;
}

#[tokio::test]
async fn the_stores_rank_alike() {
    let directory = tempfile::tempdir().expect("a directory");
    let file =
        StoreHandle::new(SqliteStore::open(directory.path().join("toolgate.db")).expect("opens"));
    let memory = StoreHandle::new(MemoryStore::new());
    let texts: Vec<String> = [
        "deploy the walrus",
        "walrus walrus walrus",
        "a long text about a walrus that was deployed to a far away server",
        "deploy deploy",
        "nothing",
        "parseWalrus and walrus_parser",
        "Walruß",
    ]
    .map(str::to_owned)
    .to_vec();
    for store in [&file, &memory] {
        say(store, session(1), &texts).await;
    }
    for query in [
        "walrus",
        "deploy walrus",
        "\"the walrus\"",
        "walr*",
        "parse walrus",
        "deploy -the",
        "walruss",
    ] {
        for mode in SearchMode::ALL {
            let request = SearchRequest::new(query).mode(mode);
            let from_file = service(&file).search(&request).await.expect("searches");
            let from_memory = service(&memory).search(&request).await.expect("searches");
            assert_eq!(from_file, from_memory, "{query} {mode}");
            assert!(!from_file.hits.is_empty(), "{query} {mode}");
        }
    }
}

#[tokio::test]
async fn an_index_of_another_version_is_rebuilt() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    say(&store, session(1), &["walrus".to_owned()]).await;
    assert_eq!(count(&store, "walrus").await, 1);
    drop(store);
    let connection = rusqlite::Connection::open(&path).expect("opens");
    connection
        .execute("UPDATE search_state SET version = 999", [])
        .expect("writes");
    drop(connection);
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    assert_eq!(count(&store, "walrus").await, 1);
    let counts = store.search_counts(None).await.expect("counts");
    assert_eq!(counts.documents, 1, "the old documents are gone");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// The same file for all cases would be faster, but a query must not depend on earlier ones.
    #[test]
    fn any_text_is_a_query_for_fts5(queries in prop::collection::vec(r#"([a-zé東🚀]{0,4}|["*:()\-^{} \x00']|tool:|after:|AND|OR|NOT|NEAR){0,12}"#, 8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let directory = tempfile::tempdir().expect("a directory");
            let store = StoreHandle::new(SqliteStore::open(directory.path().join("toolgate.db")).expect("opens"));
            say(&store, session(1), &["some text".to_owned()]).await;
            for query in queries {
                for mode in SearchMode::ALL {
                    let request = SearchRequest::new(&query).mode(mode);
                    let answer = service(&store).search(&request).await;
                    prop_assert!(answer.is_ok(), "{query:?}: {answer:?}");
                }
            }
            Ok(())
        })?;
    }
}

/// Waiting for other writers is part of the contract of a file, so no time limit is set here.
#[tokio::test]
async fn a_search_works_while_another_process_holds_the_lock() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let options = toolgate_store::SqliteOptions {
        busy_timeout: Duration::from_millis(50),
        ..toolgate_store::SqliteOptions::default()
    };
    let store = StoreHandle::new(SqliteStore::open_with(&path, options).expect("opens"));
    say(&store, session(1), &["walrus".to_owned()]).await;
    assert_eq!(count(&store, "walrus").await, 1);
    let other = rusqlite::Connection::open(&path).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locks");
    // Everything is indexed and embedded, so the search only reads.
    assert_eq!(count(&store, "walrus").await, 1);
}

#[tokio::test]
async fn a_session_that_could_not_be_erased_is_still_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    let texts: Vec<String> = (0..40).map(|n| format!("walrus {n}")).collect();
    say(&store, session(1), &texts).await;
    assert_eq!(count(&store, "walrus").await, 40);
    let connection = rusqlite::Connection::open(&path).expect("opens");
    let fails = "CREATE TRIGGER fails BEFORE DELETE ON events BEGIN SELECT raise(ABORT, 'no'); END";
    connection.execute_batch(fails).expect("writes");
    assert!(store.erase_session(session(1), NOW).await.is_err());
    assert_eq!(count(&store, "walrus").await, 40);
    connection
        .execute_batch("DROP TRIGGER fails")
        .expect("writes");
    store.erase_session(session(1), NOW).await.expect("erases");
    assert_eq!(count(&store, "walrus").await, 0);
}

/// What a process that is killed in the middle leaves behind: nothing is done after the failure.
#[tokio::test]
async fn an_erasure_that_stops_in_the_middle_leaves_everything_to_be_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    let texts: Vec<String> = (0..2_000).map(|n| format!("walrus {n}")).collect();
    say(&store, session(1), &texts).await;
    let title = SessionTitle::new("vexillology club").expect("visible");
    store
        .rename_session(session(1), title)
        .await
        .expect("renames");
    service(&store)
        .continue_index(|_| ())
        .await
        .expect("indexes");
    assert_eq!(count(&store, "walrus").await, 100);
    let connection = rusqlite::Connection::open(&path).expect("opens");
    let fails = "CREATE TRIGGER fails BEFORE DELETE ON search_documents WHEN old.sequence = 1900
                 BEGIN SELECT raise(ABORT, 'no'); END";
    connection.execute_batch(fails).expect("writes");
    assert!(store.erase_session(session(1), NOW).await.is_err());
    drop(store);
    let left = "SELECT count(*) FROM search_documents";
    let left: i64 = connection
        .query_row(left, [], |row| row.get(0))
        .expect("reads");
    assert!(
        (1..2_001).contains(&left),
        "it stopped in the middle: {left}"
    );
    // Another process searches.
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    for text in [
        "\"walrus 0\"",
        "\"walrus 1000\"",
        "\"walrus 1999\"",
        "vexillology",
    ] {
        assert_eq!(count(&store, text).await, 1, "{text}");
    }
    let counts = store.search_counts(None).await.expect("counts");
    assert_eq!((counts.documents, counts.stale_sessions), (2_001, 0));
    connection
        .execute_batch("DROP TRIGGER fails")
        .expect("writes");
    store.erase_session(session(1), NOW).await.expect("erases");
    for text in ["walrus", "vexillology"] {
        assert_eq!(count(&store, text).await, 0);
        assert_eq!(files_with(directory.path(), text), Vec::<String>::new());
    }
}

/// Changes an event of each session but the last, and deletes another one.
const DAMAGED_LOGS: &str =
    "UPDATE events SET body = replace(body, 'walrus', 'walnut') WHERE sequence = 3;
                            DELETE FROM events WHERE sequence = 4";

/// Writes sessions, of which one is indexed and marked as imported. More of the others than are listed
/// at a time are not indexed.
async fn write_logs_to_damage(store: &StoreHandle) {
    let texts: Vec<String> = (0..20).map(|n| format!("walrus {n}")).collect();
    say(store, session(1), &texts).await;
    let origin = ImportOrigin {
        format: "claude".into(),
        source: None,
    };
    let mark = StoreRecord::Json(origin.to_json());
    let batch = WriteBatch {
        records: vec![(ImportOrigin::record_key(session(1)), mark)],
        ..WriteBatch::default()
    };
    let position = LogPosition::unleased(20);
    let marked = store.append(session(1), position, batch).await;
    marked.expect("appends");
    assert_eq!(count(store, "walrus").await, 20);
    for n in 2..=90 {
        say(store, session(n), &texts[..4]).await;
    }
}

/// Checks that what is whole is indexed and found, and what is damaged is in no answer.
async fn check_damaged_logs(store: &StoreHandle) {
    say(store, session(91), &["otter".to_owned()]).await;
    let progress = service(store).continue_index(|_| ()).await;
    assert!(!progress.expect("indexes").is_complete);
    assert_eq!(
        count(store, "otter").await,
        1,
        "sessions behind are indexed"
    );
    assert_eq!(count(store, "walrus session:00000001").await, 18);
    for mode in SearchMode::ALL {
        let request = SearchRequest::new("walrus").mode(mode).limit(100);
        let answer = service(store).search(&request).await.expect("searches");
        assert!(answer.hits.len() >= 18, "{mode}: {}", answer.hits.len());
        let damaged = |hit: &&toolgate_core::SearchHit| matches!(hit.sequence, 3 | 4);
        assert_eq!(answer.hits.iter().filter(damaged).count(), 0, "{mode}");
    }
    let filter = SessionFilter::for_session(session(1));
    let listed = store.sessions(filter).await.expect("lists");
    let format = listed[0].imported.as_ref().map(|origin| &*origin.format);
    assert_eq!(format, Some("claude"), "it is listed as what it is");
}

#[tokio::test]
async fn a_damaged_log_makes_neither_a_search_nor_indexing_fail() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    write_logs_to_damage(&store).await;
    let connection = rusqlite::Connection::open(&path).expect("opens");
    connection.execute_batch(DAMAGED_LOGS).expect("writes");
    check_damaged_logs(&store).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_damaged_log_makes_neither_a_search_nor_indexing_fail_on_postgresql() {
    let Some(database) = crate::support::TestDatabase::create().await else {
        return;
    };
    let store = toolgate_store::PostgresStore::connect(&database.url()).await;
    let store = StoreHandle::new(store.expect("connects"));
    write_logs_to_damage(&store).await;
    database.run(DAMAGED_LOGS).await;
    check_damaged_logs(&store).await;
    drop(store);
    database.drop().await;
}

/// A statement that is kept would have one plan for all words, and that is to read every document.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_rare_word_that_is_searched_again_and_again_does_not_read_every_document() {
    let Some(database) = crate::support::TestDatabase::create().await else {
        return;
    };
    let store = toolgate_store::PostgresStore::connect(&database.url()).await;
    let store = StoreHandle::new(store.expect("connects"));
    let common = |n: usize| format!("the otter number {n} sleeps beside the river of the town");
    let mut texts: Vec<String> = (0..4_000).map(common).collect();
    texts[7] = "a walrus".to_owned();
    say(&store, session(1), &texts).await;
    let words = SearchService::new(store.clone(), TestClock::at(NOW));
    words.continue_index(|_| ()).await.expect("indexes");
    database.run("ANALYZE search_documents").await;
    drop(words);
    drop(store);
    let read = "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes
                WHERE indexrelname = 'search_documents_pkey'";
    let read = async || {
        // A server counts what a connection has read when that is closed.
        let open = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND pid != pg_backend_pid()";
        while database.count(open).await > 0 {
            tokio::task::yield_now().await;
        }
        database.count(read).await
    };
    let before = read().await;
    let store = toolgate_store::PostgresStore::connect(&database.url()).await;
    let store = StoreHandle::new(store.expect("connects"));
    for _ in 0..20 {
        assert_eq!(count(&store, "walrus").await, 1);
    }
    drop(store);
    let rows = read().await - before;
    assert!(
        rows < 4_000,
        "20 searches for one document read {rows} rows"
    );
    database.drop().await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn vectors_that_are_written_during_an_erasure_do_not_outlive_it() {
    use sqlx::{Connection, Executor};
    let Some(database) = crate::support::TestDatabase::create().await else {
        return;
    };
    let url = database.url();
    let store = toolgate_store::PostgresStore::connect(&url).await;
    let store = StoreHandle::new(store.expect("connects"));
    say(&store, session(1), &["walrus".to_owned()]).await;
    assert_eq!(count(&store, "walrus").await, 1);
    // Another process has embedded the document and has not committed yet.
    let mut other = sqlx::PgConnection::connect(&url).await.expect("connects");
    let embed = "BEGIN; UPDATE search_documents SET embedded = 1;
                 INSERT INTO search_vectors (document, embedder, vector) SELECT id, 1, 'v' FROM search_documents;
                 INSERT INTO search_signs (number, document, embedder, signs) SELECT 1, id, 1, 's' FROM search_documents";
    other.execute(embed).await.expect("writes");
    let erasing = tokio::spawn(async move { store.erase_session(session(1), NOW).await });
    let mut third = sqlx::PgConnection::connect(&url).await.expect("connects");
    let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    while third.fetch_optional(waits).await.expect("reads").is_none() {
        tokio::task::yield_now().await;
    }
    other.execute("COMMIT").await.expect("commits");
    erasing.await.expect("ends").expect("erases");
    let left = "SELECT 1 FROM search_vectors UNION ALL SELECT 1 FROM search_signs";
    assert!(third.fetch_optional(left).await.expect("reads").is_none());
    database.drop().await;
}
