//! Databases of every version open and keep their data; newer and foreign ones are rejected.

use std::{fs, path::PathBuf, sync::Arc};

use crate::{
    stored_search::{check_search, fill_search_and_memories, search_and_memories},
    support::{approval_request, call_id, draft, key, note, opened, session, turn_event, turn_id},
};
use toolgate_core::{
    AccountKey, ApprovalFilter, Charge, ChargeFilter, ChargeId, ChargeLine, Cost, Event,
    HiddenSessions, Invocation, Labels, LastRun, Lease, LeaseRequest, LeaseTerm, LedgerName,
    LogPosition, MailboxItem, RunEnd, RunState, SessionEvent, SessionFilter, SessionId,
    SessionOrder, SessionTitle, StoreError, StoreHandle, Timestamp, ToolEvent, TurnEvent,
    TurnFilter, TurnInfo, Usage, WriteBatch,
};
use toolgate_store::{DatabaseError, MemoryStore, SqliteStore};

pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

/// Writes the content of the fixtures of version 1. It never changes, because the fixtures never
/// do.
async fn fill(store: &StoreHandle) {
    let events = vec![
        opened(session(1), 1, turn_id(1)),
        opened(session(1), 2, turn_id(2)),
    ];
    let entries = (1..=3).map(|n| draft("main", n)).collect();
    let batch = WriteBatch {
        events,
        entries,
        records: vec![(key("k"), note("kept"))],
        ..WriteBatch::default()
    };
    store
        .append(session(1), LogPosition::unleased(0), batch)
        .await
        .expect("appends");
    for (at, call) in [(2, 1), (3, 2)] {
        let batch = approval_request(session(1), at + 1, call_id(call));
        store
            .append(session(1), LogPosition::unleased(at), batch)
            .await
            .expect("appends");
    }
    let settled = vec![turn_event(
        session(1),
        5,
        turn_id(2),
        TurnEvent::TurnSettled,
    )];
    store
        .append(
            session(1),
            LogPosition::unleased(4),
            WriteBatch {
                events: settled,
                ..WriteBatch::default()
            },
        )
        .await
        .expect("appends");
    let post = MailboxItem::Answer {
        turn: turn_id(1),
        call: call_id(2),
        generation: 0,
    };
    store
        .post_item(session(1), post, vec![(key("answer"), note("yes"))])
        .await
        .expect("posts");
    store
        .seal_entries(vec![draft("other", 1)])
        .await
        .expect("seals");
    store
        .put_blob(bytes::Bytes::from_static(b"some bytes"))
        .await
        .expect("keeps");
    let request = LeaseRequest {
        session: session(1),
        holder: "driver".into(),
        term: FIVE_SECONDS,
        instead_of: None,
        parent: None,
        directory: None,
    };
    store.acquire_lease(request).await.expect("leases");
}

/// The term of the leases in the fixtures.
const FIVE_SECONDS: LeaseTerm = LeaseTerm {
    now: Timestamp::EPOCH,
    span: std::time::Duration::from_secs(5),
};

/// Writes the content of the fixtures of version 2: the same, and budgets. It never changes either.
async fn fill_2(store: &StoreHandle) {
    fill(store).await;
    let account = |text: &str| text.parse::<AccountKey>().expect("an account");
    let line = |text: &str, amount| ChargeLine {
        account: account(text),
        limit: 1_000,
        amount,
    };
    let lines = |amount| {
        vec![
            line("budget/global/all/tokens/2026-11", amount),
            line("budget/user/ann/usd/total", 7),
        ]
    };
    let charge = |id, amount| Charge {
        id,
        session: Some(session(1)),
        at: Timestamp::EPOCH,
        lines: lines(amount),
    };
    let settled = store
        .reserve(charge(ChargeId::Turn(turn_id(1)), 40))
        .await
        .expect("reserves");
    store
        .settle_charge(settled, vec![30, 5])
        .await
        .expect("books");
    store
        .reserve(charge(ChargeId::Call(call_id(1)), 2))
        .await
        .expect("reserves");
}

/// Writes the content of the fixtures of version 3: the same, and a hidden session. It never
/// changes either.
async fn fill_3(store: &StoreHandle) {
    fill_2(store).await;
    let batch = WriteBatch {
        events: vec![opened(session(2), 1, turn_id(4))],
        ..WriteBatch::default()
    };
    store
        .append(session(2), LogPosition::unleased(0), batch)
        .await
        .expect("appends");
    store
        .hide_session(session(2), Some(Timestamp::from_micros(7_000_000)))
        .await
        .expect("hides");
}

/// Writes the content of the fixtures of version 4: the same, and the session of an agent. It never
/// changes either.
async fn fill_4(store: &StoreHandle) {
    fill_3(store).await;
    let agent = call_id(1).agent_session();
    let request = LeaseRequest {
        session: agent,
        holder: "driver".into(),
        term: FIVE_SECONDS,
        instead_of: None,
        parent: Some(session(1)),
        directory: None,
    };
    let lease = store.acquire_lease(request).await.expect("leases");
    let batch = WriteBatch {
        events: vec![opened(agent, 1, turn_id(5))],
        ..WriteBatch::default()
    };
    let at = LogPosition {
        fence: lease.fence,
        ..LogPosition::unleased(0)
    };
    store.append(agent, at, batch).await.expect("appends");
    store.release_lease(&lease).await.expect("releases");
}

/// Returns an event of the run 2 of a principal.
fn run_event(
    session: SessionId,
    sequence: u64,
    info: &TurnInfo,
    event: SessionEvent,
) -> Arc<Event> {
    let mut info = info.clone();
    info.session = session;
    info.run = Some(2);
    let at = Timestamp::from_micros(1_700_000_000_123_456 + sequence as i64);
    Arc::new(Event::for_run(sequence, at, Arc::new(info), event).expect("valid"))
}

/// Returns the events of a run that was lost while the model was asked.
fn lost_run(session: SessionId, info: &TurnInfo, text: Option<&str>) -> Vec<Arc<Event>> {
    let message = SessionEvent::UserMessage {
        message: 2,
        text: text.map(str::to_owned),
        text_bytes: None,
        steering: false,
    };
    let started = SessionEvent::InferenceStarted {
        attempt: 1,
        messages: 1,
        tools: 0,
    };
    vec![
        run_event(session, 1, info, message),
        run_event(session, 2, info, started),
    ]
}

/// Returns the event of a run that ended.
fn ended_run(session: SessionId, info: &TurnInfo) -> Arc<Event> {
    let ended = SessionEvent::RunEnded {
        end: RunEnd::Completed,
        error: None,
        iterations: 1,
        usage: Usage::default(),
        cost: Cost::Unknown,
    };
    run_event(session, 1, info, ended)
}

/// Writes the content of the fixtures of version 5: the same, and a lost run of a principal with
/// labels. It never changes either.
async fn fill_5(store: &StoreHandle) {
    fill_4(store).await;
    let mut info = TurnInfo::new(session(3), turn_id(6));
    info.principal = Some("ann".into());
    info.labels = Labels::new([("tenant", "acme")]).expect("valid");
    let batch = WriteBatch {
        events: lost_run(session(3), &info, None),
        ..WriteBatch::default()
    };
    store
        .append(session(3), LogPosition::unleased(0), batch)
        .await
        .expect("appends");
    store
        .hide_session(session(3), Some(Timestamp::from_micros(8_000_000)))
        .await
        .expect("hides");
}

/// Writes the content of the fixtures of version 7: the same, and a session with a directory and a
/// name. It never changes either.
pub(crate) async fn fill_7(store: &StoreHandle) {
    fill_5(store).await;
    let request = LeaseRequest {
        session: session(4),
        holder: "driver".into(),
        term: FIVE_SECONDS,
        instead_of: None,
        parent: None,
        directory: Some("/home/ann/work".into()),
    };
    let lease = store.acquire_lease(request).await.expect("leases");
    let info = TurnInfo::new(session(4), turn_id(10));
    let batch = WriteBatch {
        events: lost_run(session(4), &info, Some("fix the bug")),
        ..WriteBatch::default()
    };
    let at = LogPosition {
        fence: lease.fence,
        ..LogPosition::unleased(0)
    };
    store.append(session(4), at, batch).await.expect("appends");
    store.release_lease(&lease).await.expect("releases");
    let title = SessionTitle::new("the bug").expect("a title");
    store
        .rename_session(session(4), title)
        .await
        .expect("renames");
    store
        .hide_session(session(4), Some(Timestamp::from_micros(9_000_000)))
        .await
        .expect("hides");
}

/// Writes the content of the fixtures of version 13: the same, and an index with vectors and
/// memories. It never changes either.
async fn fill_13(store: &StoreHandle) {
    fill_7(store).await;
    fill_search_and_memories(store).await;
}

/// Returns the answers to all queries, as text.
async fn everything(store: &StoreHandle) -> String {
    let events = store.events(session(1), 0, 100).await.expect("reads");
    let records = store.list_records("", None, 100).await.expect("lists");
    let sessions = SessionFilter {
        hidden: HiddenSessions::Included,
        ..SessionFilter::default()
    };
    let mut sessions = store.sessions(sessions).await.expect("lists");
    // The time at which a lease expires depends on the clock of the store.
    let held = sessions.iter_mut().filter_map(|row| row.held.as_mut());
    held.for_each(|held| held.1 = Timestamp::EPOCH);
    // The order of use in an old database is that of the last events; see `check_old_sessions`.
    sessions.iter_mut().for_each(|row| row.last_use = 0);
    let all = TurnFilter {
        open: false,
        ..TurnFilter::open_in(session(1))
    };
    let turns = store.turns(all).await.expect("lists");
    let every = ApprovalFilter {
        pending: false,
        ..ApprovalFilter::default()
    };
    let approvals = store.approvals(every).await.expect("lists");
    let posts = store.posts(session(1), 0, 100).await.expect("lists");
    let ledgers = store.ledgers().await.expect("lists");
    let entries = store
        .entries(&LedgerName::main(), 0, 100)
        .await
        .expect("reads");
    let blob = store
        .blob(toolgate_core::Digest::of_bytes(b"some bytes"), 0..100)
        .await
        .expect("reads");
    let accounts = store.accounts("", None, 100).await.expect("lists");
    let charges = store.charges(ChargeFilter::default()).await.expect("lists");
    let found = search_and_memories(store).await;
    format!(
        "{:#?}\n{found}",
        (
            (events, records, sessions, turns, approvals),
            (posts, ledgers, entries, blob, accounts, charges)
        )
    )
}

/// Returns the content of a store that was filled as in a version.
async fn expected(version: u32) -> String {
    let memory = StoreHandle::new(MemoryStore::new());
    match version {
        1 => fill(&memory).await,
        2 => fill_2(&memory).await,
        3 => fill_3(&memory).await,
        4 => fill_4(&memory).await,
        // Version 6 added checksums and no content.
        5 | 6 => fill_5(&memory).await,
        // Versions 8 to 12 have the same content.
        7..13 => fill_7(&memory).await,
        _ => fill_13(&memory).await,
    }
    everything(&memory).await
}

#[tokio::test]
async fn a_file_of_every_version_opens_and_keeps_its_data() {
    for version in [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("old.sqlite");
        fs::copy(fixture(&format!("v{version}.sqlite")), &path).expect("copies");
        let store = SqliteStore::open(&path).expect("opens");
        assert_eq!(store.check().expect("checks"), []);
        let store = StoreHandle::new(store);
        assert_eq!(everything(&store).await, expected(version).await);
        let batch = WriteBatch {
            events: vec![opened(session(1), 6, turn_id(3))],
            ..WriteBatch::default()
        };
        let at = LogPosition {
            revision: 5,
            fence: 1,
            lease_term: None,
        };
        store
            .append(session(1), at, batch)
            .await
            .expect("continues");
        use_new_features(&store, version).await;
    }
}

#[tokio::test]
async fn an_index_whose_words_another_version_split_is_built_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("old.sqlite");
    fs::copy(fixture("v13.sqlite"), &path).expect("copies");
    let connection = rusqlite::Connection::open(&path).expect("opens");
    let changed = connection.execute("UPDATE search_state SET version = 99", []);
    assert_eq!(changed.expect("runs"), 1);
    drop(connection);
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    assert_eq!(everything(&store).await, expected(13).await);
}

/// Returns the events of a session that requested a call, and of the session of its agent, as an
/// older version wrote them.
fn delegation() -> [(SessionId, String); 2] {
    let agent = call_id(7).agent_session();
    let requested = ToolEvent::ToolRequested {
        arguments: None,
        arguments_digest: toolgate_core::Digest::of_bytes(b""),
        arguments_bytes: 0,
        executor: None,
    };
    let turn = Arc::new(TurnInfo::new(session(7), turn_id(7)));
    let invocation = Arc::new(Invocation {
        id: call_id(7),
        call_id: "c".into(),
        tool: "agent".into(),
        emit_order: 0,
        turn,
    });
    let requested = Event::for_invocation(1, Timestamp::EPOCH, invocation, requested);
    let requested = serde_json::to_string(&requested.expect("valid")).expect("is JSON");
    let opened = opened(agent, 1, turn_id(8));
    let opened = serde_json::to_string(&*opened).expect("is JSON");
    [(session(7), requested), (agent, opened)]
}

/// Returns the parents that a database lists for the sessions of [`delegation`].
async fn parents(store: &StoreHandle) -> Vec<Option<SessionId>> {
    let mut found = Vec::new();
    for (session, _) in delegation() {
        let rows = store.sessions(SessionFilter::for_session(session)).await;
        found.extend(rows.expect("lists").into_iter().map(|row| row.parent));
    }
    found
}

/// Returns the events of two sessions as version 4 wrote them: one run was lost, one has ended.
fn old_runs() -> [(SessionId, Vec<String>); 2] {
    let mut info = TurnInfo::new(session(8), turn_id(8));
    info.principal = Some("ann".into());
    let lost = lost_run(session(8), &info, Some("hello,\nyou"));
    let ended = vec![
        ended_run(session(9), &info),
        opened(session(9), 2, turn_id(9)),
    ];
    [(session(8), lost), (session(9), ended)].map(|(session, events)| {
        let text = |event: &Arc<Event>| serde_json::to_string(&**event).expect("is JSON");
        (session, events.iter().map(text).collect())
    })
}

/// Checks that a database lists principal and last run of the sessions of [`old_runs`].
async fn check_old_runs(store: &StoreHandle) {
    let found = [
        (8, RunState::Running, 2),
        (9, RunState::Ended(RunEnd::Completed), 1),
    ];
    for (number, state, sequence) in found {
        let filter = SessionFilter::for_session(session(number));
        let row = store.sessions(filter).await.expect("lists").remove(0);
        let at = Timestamp::from_micros(1_700_000_000_123_456 + sequence);
        assert_eq!(row.last_run, Some(LastRun { run: 2, state, at }));
        assert_eq!(row.principal, Some("ann".into()));
    }
    let unfinished = SessionFilter {
        unfinished: true,
        ..SessionFilter::default()
    };
    let rows = store.sessions(unfinished).await.expect("lists");
    assert_eq!(rows.len(), 1, "a lost run can be found");
    check_old_titles(store).await;
}

/// Checks that a database lists titles, directories and the order of use of the sessions of
/// [`old_runs`].
async fn check_old_titles(store: &StoreHandle) {
    let by_use = SessionFilter {
        order: SessionOrder::LastUse,
        ..SessionFilter::default()
    };
    let rows = store.sessions(by_use).await.expect("lists");
    let last: Vec<_> = rows.iter().map(|row| row.session).take(2).collect();
    assert_eq!(last, [session(9), session(8)], "by their last events");
    let lost = &rows[1];
    let title = lost.title.as_ref().map(ToString::to_string);
    assert_eq!(title.as_deref(), Some("hello, you"));
    assert_eq!(lost.directory.as_deref(), Some("/home/ann/it's"));
    assert_eq!(rows[0].title, None, "it has no message");
    let old = store.list_records("workspace", None, 10).await;
    assert_eq!(old.expect("lists"), [], "the directory is stored once");
    let title = SessionTitle::new("a name").expect("a title");
    store
        .rename_session(session(8), title.clone())
        .await
        .expect("renames");
    let batch = WriteBatch {
        events: vec![opened(session(8), 3, turn_id(3))],
        ..WriteBatch::default()
    };
    let at = LogPosition {
        fence: 1,
        ..LogPosition::unleased(2)
    };
    store.append(session(8), at, batch).await.expect("is used");
    let first = SessionFilter {
        order: SessionOrder::LastUse,
        limit: 1,
        ..SessionFilter::default()
    };
    let rows = store.sessions(first).await.expect("lists");
    assert_eq!(rows[0].session, session(8), "it was used last");
    assert_eq!(rows[0].title, Some(title));
}

/// Returns the key and the body of the record in which older versions stored the directory of a
/// session.
fn old_directory() -> (String, String) {
    let key = format!("other/workspace-of/{}", session(8));
    let body = serde_json::json!({ "json": { "workspace": "/home/ann/it's" } });
    (key, body.to_string())
}

#[tokio::test]
async fn the_last_runs_in_an_old_file_are_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("old.sqlite");
    fs::copy(fixture("v4.sqlite"), &path).expect("copies");
    let connection = rusqlite::Connection::open(&path).expect("opens");
    for (session, events) in old_runs() {
        let id = session.uuid().into_bytes();
        let row = "INSERT INTO sessions (id, revision, created_at, updated_at, fence, posted) VALUES (?1, 2, 0, 2000000000000000, 1, 0)";
        connection.execute(row, [id]).expect("inserts");
        for (at, event) in events.iter().enumerate() {
            let row = "INSERT INTO events (session, sequence, body) VALUES (?1, ?2, ?3)";
            connection
                .execute(row, rusqlite::params![id, at as i64 + 1, event])
                .expect("inserts");
        }
    }
    let (key, body) = old_directory();
    connection
        .execute("INSERT INTO records VALUES (?1, ?2)", [key, body])
        .expect("inserts");
    drop(connection);
    let store = SqliteStore::open(&path).expect("opens");
    check_old_runs(&StoreHandle::new(store)).await;
}

#[tokio::test]
async fn the_parents_of_sessions_in_an_old_file_are_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("old.sqlite");
    fs::copy(fixture("v3.sqlite"), &path).expect("copies");
    let connection = rusqlite::Connection::open(&path).expect("opens");
    for (session, event) in delegation() {
        let id = session.uuid().into_bytes();
        let row = "INSERT INTO sessions (id, revision, created_at, updated_at, fence, posted) VALUES (?1, 1, 0, 0, 1, 0)";
        connection.execute(row, [id]).expect("inserts");
        let row = "INSERT INTO events (session, sequence, body) VALUES (?1, 1, ?2)";
        connection
            .execute(row, rusqlite::params![id, event])
            .expect("inserts");
    }
    drop(connection);
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    assert_eq!(parents(&store).await, [None, Some(session(7))]);
}

/// Uses what is new in a version in a database that was migrated to it.
async fn use_new_features(store: &StoreHandle, version: u32) {
    if version < 2 {
        fill_budget(store).await;
    }
    check_search(store, version).await;
    let is_listed = async || {
        let listed = store.sessions(SessionFilter::default()).await;
        let listed = listed.expect("lists");
        listed.iter().any(|row| row.session == session(1))
    };
    store
        .hide_session(session(1), Some(Timestamp::EPOCH))
        .await
        .expect("hides");
    assert!(!is_listed().await);
    store.hide_session(session(1), None).await.expect("unhides");
    assert!(is_listed().await);
    let erased = loop {
        match store.erase_session(session(1), Timestamp::EPOCH).await {
            // The process that wrote the fixture never released its leases.
            Err(StoreError::LeaseHeld { session, fence, .. }) => {
                let lease = Lease {
                    session,
                    fence,
                    revision: 0,
                };
                store.release_lease(&lease).await.expect("releases");
            }
            answer => break answer.expect("erases"),
        }
    };
    assert!(erased.sessions.contains(&session(1)));
    assert!(!is_listed().await);
}

async fn fill_budget(store: &StoreHandle) {
    let account = "budget/user/ann/usd/total".parse().expect("an account");
    let lines = vec![ChargeLine {
        account,
        limit: 1,
        amount: 1,
    }];
    let charge = Charge {
        id: ChargeId::Call(call_id(1)),
        session: None,
        at: Timestamp::EPOCH,
        lines,
    };
    store.reserve(charge.clone()).await.expect("reserves");
    assert_eq!(
        store
            .settle_charge(charge, vec![1])
            .await
            .expect("books")
            .len(),
        1
    );
}

/// `cargo nextest run -p toolgate-store --run-ignored only write_the_fixture`, once for each new
/// version.
#[tokio::test]
#[ignore = "writes the fixture of the newest version"]
async fn write_the_fixture() {
    let path = fixture("v15.sqlite");
    assert!(!path.exists(), "a fixture is never changed");
    fill_13(&StoreHandle::new(SqliteStore::open(&path).expect("opens"))).await;
}

#[test]
fn a_newer_file_is_rejected_with_a_hint() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("newer.db");
    drop(SqliteStore::open(&path).expect("opens"));
    let connection = rusqlite::Connection::open(&path).expect("opens");
    connection
        .execute(
            "INSERT INTO toolgate_schema VALUES (99, 'later', 'x', 0)",
            [],
        )
        .expect("runs");
    drop(connection);
    let before = fs::read(&path).expect("reads");
    let error = SqliteStore::open(&path).expect_err("is newer");
    assert!(
        matches!(error, DatabaseError::NewerSchema { found: 99, .. }),
        "{error:?}"
    );
    assert!(error.hint().is_some_and(|hint| hint.starts_with("upgrade")));
    assert_eq!(fs::read(&path).expect("reads"), before);
}

#[test]
fn a_file_with_a_changed_migration_is_rejected() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("changed.db");
    drop(SqliteStore::open(&path).expect("opens"));
    let connection = rusqlite::Connection::open(&path).expect("opens");
    connection
        .execute("UPDATE toolgate_schema SET checksum = 'x'", [])
        .expect("runs");
    drop(connection);
    let error = SqliteStore::open(&path).expect_err("has another checksum");
    assert!(
        matches!(error, DatabaseError::ChangedMigration { version: 1, .. }),
        "{error:?}"
    );
}

#[test]
fn concurrent_opens_of_a_new_file_all_succeed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = Arc::new(directory.path().join("new.db"));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || SqliteStore::open(&*path).map(drop))
        })
        .collect();
    for thread in threads {
        thread.join().expect("ends").expect("opens");
    }
}

/// What version 13 did not have.
const BACK_TO_13: &str =
    "ALTER TABLE sessions DROP COLUMN provider; DELETE FROM toolgate_schema WHERE version > 13";

/// Appends replies of two models, of which the last one has a provider.
async fn reply_with_models(store: &StoreHandle) {
    let reply = |n: u64, provider: Option<&str>, model: &str| {
        let mut info = TurnInfo::new(session(1), turn_id(1));
        info.provider = provider.map(Arc::from);
        info.model = Some(model.into());
        let event = SessionEvent::InferenceFinished {
            message: n,
            text: None,
            text_bytes: None,
            calls: 0,
            finish: toolgate_core::FinishReason::Stop,
            usage: None,
            cost: Cost::Unknown,
        };
        let at = Timestamp::from_micros(1);
        Arc::new(Event::for_run(n, at, Arc::new(info), event).expect("a valid event"))
    };
    let batch = WriteBatch {
        events: vec![reply(1, None, "old"), reply(2, Some("ollama"), "qwen3:8b")],
        ..WriteBatch::default()
    };
    let appended = store.append(session(1), LogPosition::unleased(0), batch);
    appended.await.expect("appends");
}

/// Returns how many sessions are listed by a model.
async fn count_by_model(store: &StoreHandle, model: &str) -> usize {
    let filter = SessionFilter {
        model: Some(model.into()),
        ..SessionFilter::default()
    };
    store.sessions(filter).await.expect("lists").len()
}

#[tokio::test]
async fn providers_of_models_are_read_from_the_events_of_an_older_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    reply_with_models(&store).await;
    drop(store);
    let database = rusqlite::Connection::open(&path).expect("opens");
    database.execute_batch(BACK_TO_13).expect("changes");
    drop(database);
    let store = SqliteStore::open(&path).expect("opens");
    assert_eq!(store.check().expect("checks"), []);
    let store = StoreHandle::new(store);
    assert_eq!(count_by_model(&store, "ollama:qwen3:8b").await, 1);
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;
    use crate::support::TestDatabase;
    use toolgate_store::PostgresStore;

    #[tokio::test]
    async fn a_database_of_every_version_opens_and_keeps_its_data() {
        for version in [1, 2, 3, 4, 5, 6, 7, 8, 10, 13] {
            let Some(database) = TestDatabase::create().await else {
                return;
            };
            database
                .run(
                    &fs::read_to_string(fixture(&format!("v{version}.postgres.sql")))
                        .expect("reads"),
                )
                .await;
            let store = PostgresStore::connect(&database.url())
                .await
                .expect("connects");
            assert_eq!(store.check().await.expect("checks"), []);
            let store = StoreHandle::new(store);
            assert_eq!(everything(&store).await, expected(version).await);
            use_new_features(&store, version).await;
            drop(store);
            database.drop().await;
        }
    }

    /// `TOOLGATE_TEST_POSTGRES=… cargo nextest run -p toolgate-store --all-features --run-ignored only
    /// write_the_fixture`, once for each new version. It needs `pg_dump`.
    #[tokio::test]
    #[ignore = "writes the fixture of the newest version"]
    async fn write_the_fixture() {
        let path = fixture("v15.postgres.sql");
        assert!(!path.exists(), "a fixture is never changed");
        let database = TestDatabase::create().await.expect("a server");
        let store = PostgresStore::connect(&database.url())
            .await
            .expect("connects");
        fill_13(&StoreHandle::new(store)).await;
        let dump = std::process::Command::new("pg_dump")
            .args(["--inserts", "--no-owner", "--no-privileges", "--dbname"])
            .arg(database.url())
            .output()
            .expect("pg_dump runs");
        assert!(dump.status.success(), "{dump:?}");
        let text = String::from_utf8(dump.stdout).expect("text");
        // Comments name the server, and lines with a backslash are for psql.
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with("--") && !line.starts_with('\\'));
        let lines: Vec<&str> = lines.collect();
        let head =
            "-- A database of schema version 15, as pg_dump --inserts wrote it. Never changed.";
        fs::write(path, format!("{head}\n{}\n", lines.join("\n"))).expect("writes");
        database.drop().await;
    }

    #[tokio::test]
    async fn the_parents_of_sessions_in_an_old_database_are_found() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let old = fs::read_to_string(fixture("v3.postgres.sql")).expect("reads");
        database.run(&old).await;
        for (session, event) in delegation() {
            let sql = format!(
                "INSERT INTO public.sessions (id, revision, created_at, updated_at, fence, posted)
                 VALUES ('{session}', 1, 0, 0, 1, 0);
                 INSERT INTO public.events (session, sequence, body) VALUES ('{session}', 1, '{event}')"
            );
            database.run(&sql).await;
        }
        let store = toolgate_store::open_store(&database.url())
            .await
            .expect("opens");
        assert_eq!(parents(&store).await, [None, Some(session(7))]);
        database.drop().await;
    }

    #[tokio::test]
    async fn the_last_runs_in_an_old_database_are_found() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let old = fs::read_to_string(fixture("v4.postgres.sql")).expect("reads");
        database.run(&old).await;
        for (session, events) in old_runs() {
            let row = format!(
                "INSERT INTO public.sessions (id, revision, created_at, updated_at, fence, posted)
                 VALUES ('{session}', 2, 0, 2000000000000000, 1, 0)"
            );
            database.run(&row).await;
            for (at, event) in events.iter().enumerate() {
                let number = at + 1;
                let row = format!(
                    "INSERT INTO public.events (session, sequence, body) VALUES ('{session}', {number}, '{event}')"
                );
                database.run(&row).await;
            }
        }
        let (key, body) = old_directory();
        let body = body.replace('\'', "''");
        let row = format!(
            "INSERT INTO public.records (key, body) VALUES (convert_to('{key}', 'UTF8'), '{body}')"
        );
        database.run(&row).await;
        let store = toolgate_store::open_store(&database.url())
            .await
            .expect("opens");
        check_old_runs(&store).await;
        drop(store);
        database.drop().await;
    }

    #[tokio::test]
    async fn a_new_database_keeps_the_same_as_memory_does() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let store = toolgate_store::open_store(&database.url())
            .await
            .expect("opens");
        fill_13(&store).await;
        assert_eq!(everything(&store).await, expected(13).await);
        if let Ok(keep) = std::env::var("TOOLGATE_DUMP_FIXTURE") {
            let status = std::process::Command::new("pg_dump")
                .args(["--inserts", "--no-owner", "--file", &keep, &database.url()])
                .status()
                .expect("pg_dump runs");
            assert!(status.success());
        }
        database.drop().await;
    }

    #[tokio::test]
    async fn newer_changed_and_foreign_databases_are_rejected() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let url = database.url();
        drop(PostgresStore::connect(&url).await.expect("connects"));
        database
            .run("INSERT INTO toolgate_schema VALUES (99, 'later', 'x', 0)")
            .await;
        let error = PostgresStore::connect(&url).await.expect_err("is newer");
        assert!(
            matches!(error, DatabaseError::NewerSchema { found: 99, .. }),
            "{error:?}"
        );
        database.run("DELETE FROM toolgate_schema WHERE version = 99; UPDATE toolgate_schema SET checksum = 'x'").await;
        let error = PostgresStore::connect(&url)
            .await
            .expect_err("has another checksum");
        assert!(
            matches!(error, DatabaseError::ChangedMigration { version: 1, .. }),
            "{error:?}"
        );
        database.run("DROP TABLE toolgate_schema").await;
        let error = PostgresStore::connect(&url).await.expect_err("is not ours");
        assert!(matches!(error, DatabaseError::NotOurs { .. }), "{error:?}");
        database.drop().await;
    }

    #[tokio::test]
    async fn providers_of_models_are_read_from_the_events_of_an_older_database() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let connect = async || PostgresStore::connect(&database.url()).await;
        let store = StoreHandle::new(connect().await.expect("connects"));
        reply_with_models(&store).await;
        drop(store);
        database.run(BACK_TO_13).await;
        let store = connect().await.expect("connects");
        assert_eq!(store.check().await.expect("checks"), []);
        let store = StoreHandle::new(store);
        assert_eq!(count_by_model(&store, "ollama:qwen3:8b").await, 1);
        drop(store);
        database.drop().await;
    }

    #[tokio::test]
    async fn concurrent_opens_of_a_new_database_all_succeed() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let url = database.url();
        let all = (0..6).map(|_| PostgresStore::connect(&url));
        for opened in futures::future::join_all(all).await {
            opened.expect("connects");
        }
        database.drop().await;
    }
}
