//! Processes that share a store share the counts of a rate limit.

use toolgate::{
    Registry, Status, ToolError,
    layers::{CallRate, RateLimit, RateLimitOptions, RateScope, TotalScope},
    store::{SqliteStore, StoreHandle},
    tool_fn,
    value::{HumanDuration, SessionId, TimeOrderedIds},
};
use toolgate_testkit::{FaultyStore, StoreFault};

use crate::one_process::OneProcess;

async fn start(store: &StoreHandle, session: SessionId, options: RateLimitOptions) -> OneProcess {
    let registry = Registry::new();
    let send =
        |_: serde_json::Map<String, serde_json::Value>, _cx| async { Ok::<_, ToolError>("sent") };
    registry
        .register(tool_fn("send", "Sends.", send))
        .expect("free");
    let layer = RateLimit::new(options).expect("valid");
    OneProcess::start(store, session, registry, layer).await
}

/// Calls the tool once; returns true unless it was rate limited.
async fn send(process: &OneProcess) -> bool {
    match process.send("{}").await.status() {
        Some(Status::Ok) => true,
        Some(Status::RateLimited) => false,
        other => panic!("{other:?}"),
    }
}

fn new_session() -> SessionId {
    SessionId::from_source(&TimeOrderedIds)
}

fn open_store() -> (tempfile::TempDir, SqliteStore) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path().join("toolgate.db")).expect("opens");
    (directory, store)
}

fn total(per: TotalScope) -> RateLimitOptions {
    RateLimitOptions {
        max_calls: Some(2),
        max_calls_per: per,
        ..RateLimitOptions::default()
    }
}

#[tokio::test]
async fn the_processes_of_a_session_share_its_quota() {
    let (_directory, store) = open_store();
    let store = StoreHandle::new(store);
    let session = new_session();
    let first = start(&store, session, total(TotalScope::Session)).await;
    assert!(send(&first).await);
    drop(first);
    let second = start(&store, session, total(TotalScope::Session)).await;
    assert!(send(&second).await);
    assert!(!send(&second).await, "the first process had one");
    let other = start(&store, new_session(), total(TotalScope::Session)).await;
    assert!(send(&other).await, "another session has its own");
    // A quota of all sessions, with a count of its own.
    let one = start(&store, session, total(TotalScope::All)).await;
    assert!(send(&one).await);
    let two = start(&store, new_session(), total(TotalScope::All)).await;
    assert!(send(&two).await && !send(&two).await);
}

#[tokio::test]
async fn the_processes_of_a_store_share_a_window() {
    let (_directory, store) = open_store();
    let store = StoreHandle::new(store);
    let options = |calls| RateLimitOptions {
        limits: vec![CallRate {
            calls,
            period: HumanDuration::from_secs(3_600),
            per: RateScope::Tool,
        }],
        ..RateLimitOptions::default()
    };
    let first = start(&store, new_session(), options(2)).await;
    let second = start(&store, new_session(), options(3)).await;
    assert!(send(&first).await && send(&second).await);
    assert!(!send(&first).await, "it sees the call of the other");
    assert!(send(&second).await && !send(&second).await);
}

#[tokio::test]
async fn an_agent_has_no_quota_of_its_own() {
    let (_directory, store) = open_store();
    let store = StoreHandle::new(store);
    let parent = new_session();
    let above = start(&store, parent, total(TotalScope::Session)).await;
    assert!(send(&above).await);
    let agent = new_session();
    let request = toolgate::store::LeaseRequest {
        session: agent,
        holder: "another".into(),
        term: toolgate::store::LeaseTerm {
            now: toolgate::value::Timestamp::EPOCH,
            span: std::time::Duration::ZERO,
        },
        instead_of: None,
        parent: Some(parent),
        directory: None,
    };
    store.acquire_lease(request).await.expect("leases");
    let below = start(&store, agent, total(TotalScope::Session)).await;
    assert!(send(&below).await && !send(&below).await);
    assert!(!send(&above).await);
}

#[tokio::test]
async fn a_count_has_no_commit_of_its_own() {
    let (_directory, store) = open_store();
    let mut writes = Vec::new();
    for tool in ["send", "other"] {
        let counting = FaultyStore::new(store.clone(), |_, _| StoreFault::Pass);
        let options = RateLimitOptions {
            tools: Some(vec![tool.into()]),
            ..total(TotalScope::All)
        };
        let process = start(&StoreHandle::new(counting.clone()), new_session(), options).await;
        assert!(send(&process).await);
        writes.push(counting.write_count());
    }
    assert_eq!(writes[0], writes[1], "with and without a count");
    let counted = StoreHandle::new(store)
        .list_records("rate/", None, 10)
        .await;
    assert_eq!(counted.expect("lists").len(), 1);
}

#[tokio::test]
async fn a_call_is_not_made_while_its_count_cannot_be_read() {
    let (_directory, store) = open_store();
    let failing = FaultyStore::new(store, |call, _| match call {
        toolgate_testkit::StoreCall::ListRecords => StoreFault::Fail(
            toolgate::store::StoreError::Backend("the test wants this".into()),
        ),
        _ => StoreFault::Pass,
    });
    let store = StoreHandle::new(failing);
    let process = start(&store, new_session(), total(TotalScope::Session)).await;
    let result = process.send("{}").await;
    assert_eq!(result.status(), Some(Status::LayerException));
    assert_eq!(result.attempts, 0);
}
