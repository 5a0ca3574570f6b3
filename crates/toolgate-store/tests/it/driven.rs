//! A session that is driven on one connection to a database and observed or changed on another.

use std::time::Duration;

use crate::support::session;
use rusqlite::params;
use toolgate_core::{
    ApprovalRequest, Band, Call, Decision, Layer, Next, Outcome, Registry, Stack, Status,
    StoreHandle, ToolError, ToolRequest, tool_fn,
};
use toolgate_runtime::{ApprovalService, Bus, Dispatcher, TurnRequest};
use toolgate_store::SqliteStore;
use toolgate_testkit::TestClock;

type AnyArguments = serde_json::Map<String, serde_json::Value>;

/// Asks for approval of every call.
struct AsksAlways;

impl Layer for AsksAlways {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        match next.decision_on(&call) {
            Some(_) => next.run(call).await,
            None => Outcome::await_decision(ApprovalRequest::for_call(&call)),
        }
    }
    fn band(&self) -> Band {
        Band::Decide
    }
}

fn registry() -> Registry {
    let registry = Registry::new();
    let tool = tool_fn("look", "Looks.", async |_: AnyArguments, _cx| {
        Ok::<_, ToolError>("seen")
    });
    registry.register(tool).expect("free");
    registry
}

fn one_call(registry: &Registry) -> TurnRequest {
    let calls = vec![ToolRequest::from_text("1", "look", "{}")];
    TurnRequest::new(toolgate_testkit::plain_view(registry), calls)
}

async fn open_dispatcher(registry: &Registry, store: SqliteStore) -> Dispatcher {
    let stack = Stack::over(registry.clone()).layer(AsksAlways).build();
    let builder = Dispatcher::builder(stack.expect("in order"));
    let built = builder.store(store).session(session(1)).build().await;
    built.expect("builds")
}

#[tokio::test]
async fn a_session_is_followed_from_another_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let registry = registry();
    let driver = open_dispatcher(&registry, SqliteStore::open(&path).expect("opens")).await;
    let observed = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    let clock = TestClock::new();
    let bus = Bus::default();
    let mut follow = bus
        .follow_session(observed, session(1), 0)
        .with_clock(clock.clone());
    let following = tokio::spawn(async move {
        let mut names = Vec::new();
        while names.last() != Some(&"tool_approval_requested") {
            let event = follow.next().await.expect("reads").expect("open");
            names.push(event.name());
        }
        names
    });
    while clock.sleeper_count() == 0 {
        tokio::task::yield_now().await;
    }
    let turn = driver.open_turn(one_call(&registry)).await.expect("opens");
    turn.run().await.expect("runs");
    clock.advance(Duration::from_secs(1));
    let names = following.await.expect("no panic");
    assert_eq!(
        names,
        ["turn_opened", "tool_requested", "tool_approval_requested"]
    );
}

#[tokio::test]
async fn a_mailbox_item_that_cannot_be_read_does_not_block_the_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let registry = registry();
    let driver = open_dispatcher(&registry, SqliteStore::open(&path).expect("opens")).await;
    let turn = driver.open_turn(one_call(&registry)).await.expect("opens");
    let report = turn.run().await.expect("runs");
    let newer = format!(
        r#"{{"post":"newer","turn":"{}","call":"{}"}}"#,
        report.turn, report.results[0].id
    );
    let connection = rusqlite::Connection::open(&path).expect("opens");
    let id = session(1).uuid().into_bytes();
    let add = "INSERT INTO posts (session, number, body) VALUES (?1, ?2, ?3)";
    for (number, body) in [(1, newer.as_str()), (2, "{")] {
        let added = connection.execute(add, params![id, number, body]);
        added.expect("is added");
    }
    // An older version would have written them, so the row has no checksum.
    let count = "UPDATE sessions SET posted = 2, checksum = NULL WHERE id = ?1";
    assert_eq!(connection.execute(count, params![id]).expect("counts"), 1);
    let service = ApprovalService::new(driver.store().clone());
    let rows = service.list_approvals(Default::default()).await;
    let asked = rows.expect("reads").remove(0).request;
    let decided = service.decide(&*asked, Decision::approve("ann")).await;
    decided.expect("counts");
    let resumed = driver.resume(report.turn, toolgate_testkit::plain_view(&registry));
    let report = resumed.await.expect("resumes").run().await.expect("runs");
    assert_eq!(report.results[0].status(), Some(Status::Ok));
    let events = driver.store().events(session(1), 0, 100).await;
    let events = events.expect("reads");
    let rejected = events
        .iter()
        .filter(|event| event.name() == "input_rejected");
    assert_eq!(rejected.count(), 1, "the log has the one that can be named");
    let left = driver.store().posts(session(1), 0, 10).await;
    assert_eq!(left.expect("reads"), [], "each is handled once");
}
