//! The hook at the end of a run sees each run at most once, and never delays its report.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::Notify;
use toolgate_core::{
    Json, Message, RecordKey, Registry, Role, RunEnd, StoreHandle, ToolError, ToolSpec, tool_fn,
};
use toolgate_runtime::{
    CapturedRun, RunEndError, RunEndHook, RunEndState, RunOptions, Session, run_end_state,
};

use crate::common::sessions::{Odd, SESSION, calling_reply, memory_store, open_session};

const LONG: Duration = Duration::from_secs(60);

/// Keeps every run that it sees.
#[derive(Clone, Default)]
struct Witness {
    seen: Arc<Mutex<Vec<CapturedRun>>>,
    /// The hook waits for this, if it is set.
    gate: Option<Arc<Notify>>,
    behaviour: Behaviour,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Behaviour {
    #[default]
    Works,
    Fails,
    Panics,
}

impl Witness {
    fn ends(&self) -> Vec<(u64, RunEnd)> {
        let seen = self.seen.lock().expect("whole");
        seen.iter().map(|run| (run.run, run.end)).collect()
    }
}

impl RunEndHook for Witness {
    fn name(&self) -> &str {
        "witness"
    }

    fn run_ended<'a>(&'a self, run: &'a CapturedRun) -> BoxFuture<'a, Result<(), RunEndError>> {
        Box::pin(async move {
            if let Some(gate) = &self.gate {
                gate.notified().await;
            }
            self.seen.lock().expect("whole").push(run.clone());
            match self.behaviour {
                Behaviour::Works => Ok(()),
                Behaviour::Fails => Err(RunEndError("no".to_owned())),
                Behaviour::Panics => panic!("the hook is broken"),
            }
        })
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn registry() -> Registry {
    let registry = Registry::new();
    let look = tool_fn("look", "Looks.", async |_: Nothing, _| {
        Ok::<_, ToolError>("secret page")
    });
    let fail = tool_fn("fail", "Fails.", async |_: Nothing, _| {
        Err::<String, _>(ToolError::new("no"))
    });
    registry.register(look).expect("free");
    registry.register(fail).expect("free");
    let schema = toolgate_core::Schema::for_type::<Nothing>();
    let host = ToolSpec::new("outside", "Waits for a host.", schema);
    registry.register_host(host).expect("free");
    registry
}

async fn open_with(lines: Vec<Message>, hook: &Witness, store: &StoreHandle) -> Session {
    let builder = Session::ungated(Odd::saying(lines), registry()).on_run_end(hook.clone());
    open_session(builder, store).await
}

async fn state(store: &StoreHandle, run: u64) -> RunEndState {
    let state = run_end_state(store, SESSION, run, "witness").await;
    state.expect("reads")
}

#[tokio::test]
async fn a_hook_sees_the_messages_the_final_text_and_the_calls_of_a_run_once() {
    let store = memory_store();
    let hook = Witness::default();
    let calls = calling_reply(&[("look", json!({})), ("fail", json!({}))]);
    let session = open_with(vec![calls, Message::assistant("Done.")], &hook, &store).await;
    session.run("Look around.").await.expect("runs");
    assert!(session.wait_for_hooks(LONG).await);
    // Resuming a run that has ended reports its end again.
    session.resume().await.expect("resumes");
    assert!(session.wait_for_hooks(LONG).await);
    let seen = hook.seen.lock().expect("whole").clone();
    assert_eq!(seen.len(), 1);
    let run = &seen[0];
    assert_eq!(
        (run.session, run.run, run.end),
        (SESSION, 0, RunEnd::Completed)
    );
    assert_eq!(run.text, "Done.");
    let roles: Vec<Role> = run.messages.iter().map(|message| message.role).collect();
    assert_eq!(
        roles,
        [Role::User, Role::Assistant, Role::Tool, Role::Assistant]
    );
    let calls = run.calls.iter();
    let calls: Vec<_> = calls
        .map(|call| (call.tool.as_str(), call.succeeded))
        .collect();
    assert_eq!(calls, [("look", Some(true)), ("fail", Some(false))]);
    assert_eq!(state(&store, 0).await, RunEndState::Done);
}

#[tokio::test]
async fn each_run_is_seen_with_its_own_messages() {
    let store = memory_store();
    let hook = Witness::default();
    let lines = vec![Message::assistant("one"), Message::assistant("two")];
    let session = open_with(lines, &hook, &store).await;
    session.run("first").await.expect("runs");
    assert!(session.wait_for_hooks(LONG).await);
    session.run("second").await.expect("runs");
    assert!(session.wait_for_hooks(LONG).await);
    let seen = hook.seen.lock().expect("whole").clone();
    let texts: Vec<(u64, String, usize)> = seen
        .iter()
        .map(|run| (run.run, run.text.clone(), run.messages.len()))
        .collect();
    assert_eq!(texts, [(0, "one".into(), 2), (2, "two".into(), 2)]);
}

#[tokio::test]
async fn a_suspended_run_is_seen_when_it_ends_or_when_a_message_replaces_it() {
    let store = memory_store();
    let hook = Witness::default();
    let lines = vec![calling_reply(&[("outside", json!({}))])];
    let session = open_with(lines, &hook, &store).await;
    let report = session.run("Ask outside.").await.expect("runs");
    assert_eq!(report.end, RunEnd::Suspended);
    assert!(session.wait_for_hooks(LONG).await);
    assert_eq!(hook.ends(), []);
    let options = RunOptions::new().abandon_pending();
    session
        .run_with("Never mind.", options)
        .await
        .expect("runs");
    assert!(session.wait_for_hooks(LONG).await);
    let mut ends = hook.ends();
    ends.sort_by_key(|(run, _)| *run);
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert_eq!(ends[0], (0, RunEnd::Suspended));
    assert_eq!(ends[1].1, RunEnd::Completed);
}

#[tokio::test]
async fn a_run_whose_process_died_before_the_claim_is_seen_when_the_next_one_begins() {
    let store = memory_store();
    // Without the hook, as if the process had died before it could start it.
    let without = Session::ungated(Odd::saying(vec![Message::assistant("one")]), registry());
    let session = open_session(without, &store).await;
    session.run("first").await.expect("runs");
    drop(session);
    let hook = Witness::default();
    let lines = vec![Message::assistant("one"), Message::assistant("two")];
    let session = open_with(lines, &hook, &store).await;
    session.run("second").await.expect("runs");
    assert!(session.wait_for_hooks(LONG).await);
    let mut ends = hook.ends();
    ends.sort_by_key(|(run, _)| *run);
    assert_eq!(ends, [(0, RunEnd::Completed), (2, RunEnd::Completed)]);
}

#[tokio::test]
async fn a_run_that_another_process_has_claimed_is_not_seen_again() {
    let store = memory_store();
    let key = format!("run-end/{SESSION}/{:012}/witness/claim", 0);
    let claim = store.put_json_once(RecordKey::Other(key.into()), Json::null());
    claim.await.expect("stores");
    let hook = Witness::default();
    let session = open_with(vec![Message::assistant("one")], &hook, &store).await;
    session.run("first").await.expect("runs");
    assert!(session.wait_for_hooks(LONG).await);
    assert_eq!(hook.ends(), []);
    assert_eq!(state(&store, 0).await, RunEndState::Claimed);
}

#[tokio::test]
async fn a_hook_never_delays_the_report() {
    let store = memory_store();
    let gate = Arc::new(Notify::new());
    let hook = Witness {
        gate: Some(gate.clone()),
        ..Witness::default()
    };
    let session = open_with(vec![Message::assistant("one")], &hook, &store).await;
    let report = session.run("first").await.expect("runs");
    assert_eq!((report.text.as_str(), hook.ends().len()), ("one", 0));
    assert!(!session.wait_for_hooks(Duration::ZERO).await);
    gate.notify_one();
    assert!(session.wait_for_hooks(LONG).await);
    assert_eq!(hook.ends().len(), 1);
}

#[tokio::test]
async fn a_hook_that_fails_or_panics_is_not_run_again_and_changes_nothing() {
    for behaviour in [Behaviour::Fails, Behaviour::Panics] {
        let store = memory_store();
        let hook = Witness {
            behaviour,
            ..Witness::default()
        };
        let session = open_with(vec![Message::assistant("one")], &hook, &store).await;
        let report = session.run("first").await.expect("runs");
        assert_eq!(report.end, RunEnd::Completed);
        assert!(session.wait_for_hooks(LONG).await);
        session.resume().await.expect("resumes");
        assert!(session.wait_for_hooks(LONG).await);
        assert_eq!(hook.ends().len(), 1);
        assert_eq!(state(&store, 0).await, RunEndState::Done);
    }
}

#[tokio::test]
async fn a_run_that_a_host_drives_is_seen_too() {
    let store = memory_store();
    let hook = Witness::default();
    let builder = Session::ungated_host(registry()).on_run_end(hook.clone());
    let session = open_session(builder, &store).await;
    let run = session.begin_hosted("Hello.", RunOptions::new()).await;
    run.expect("begins").cancel().await.expect("ends");
    assert!(session.wait_for_hooks(LONG).await);
    assert_eq!(hook.ends(), [(0, RunEnd::Cancelled)]);
}
