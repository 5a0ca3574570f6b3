//! Writes that are held until something waits: how many there are, and what they never delay.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use futures::{StreamExt, stream};
use serde_json::json;
use tokio::sync::Notify;
use toolgate_core::{
    Annotations, ApprovalFilter, ApprovalRequest, Approver, Band, Call, Decision, Delta, Layer,
    MemoryStore, Message, Next, Outcome, Registry, Reply, RunEnd, SessionEvent, SideEffect, Stack,
    StoreHandle, ToolError, ToolEvent, tool_fn,
};
use toolgate_runtime::{Session, SessionBuilder};
use toolgate_testkit::{AskFirst, FaultyStore, ReadCount, StoreCall, StoreFault};

use crate::common::sessions::{
    Odd, SESSION, calling_reply, loop_events, open_session, whole_reply,
};

/// A store that counts the appends that reach it.
fn counting_store() -> (StoreHandle, Arc<AtomicU64>) {
    let appends = Arc::new(AtomicU64::new(0));
    let counted = appends.clone();
    let store = FaultyStore::new(MemoryStore::new(), move |call, _| {
        if call == StoreCall::Append {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        StoreFault::Pass
    });
    (StoreHandle::new(store), appends)
}

/// A tool that notes which events the store has when it runs.
fn noting_tool(
    annotations: Annotations,
    store: &StoreHandle,
    noted: &Arc<Mutex<Vec<String>>>,
) -> Registry {
    let store = store.clone();
    let noted = noted.clone();
    let tool = tool_fn("look", "Looks.", move |_: serde_json::Value, _| {
        let store = store.clone();
        let noted = noted.clone();
        async move {
            let events = store.events(SESSION, 0, 1000).await.expect("reads");
            let types = events.iter().map(|event| event.name().to_owned());
            noted.lock().expect("no panic").extend(types);
            Ok::<_, ToolError>("seen")
        }
    });
    let registry = Registry::new();
    registry
        .register(tool.with_annotations(annotations))
        .expect("the name is free");
    registry
}

fn looking_twice() -> Odd {
    let look = || calling_reply(&[("look", json!({}))]);
    Odd::saying(vec![look(), look(), Message::assistant("done")])
}

fn with_stack(builder: SessionBuilder, registry: Registry, layer: impl Layer) -> SessionBuilder {
    builder.stack(
        Stack::over(registry)
            .layer(layer)
            .build()
            .expect("in order"),
    )
}

#[tokio::test]
async fn a_turn_that_only_reads_is_one_write() {
    let (store, appends) = counting_store();
    let registry = noting_tool(Annotations::read_only(), &store, &Arc::default());
    let session = open_session(Session::ungated(looking_twice(), registry), &store).await;
    assert_eq!(
        session.run("go").await.expect("runs").end,
        RunEnd::Completed
    );
    // One for each turn, and one for the last reply and the end.
    assert_eq!(appends.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_turn_that_may_write_is_two_writes() {
    let (store, appends) = counting_store();
    let annotations = Annotations::default().with_side_effect(SideEffect::WorkspaceWrite);
    let registry = noting_tool(annotations, &store, &Arc::default());
    let session = open_session(Session::ungated(looking_twice(), registry), &store).await;
    assert_eq!(
        session.run("go").await.expect("runs").end,
        RunEnd::Completed
    );
    assert_eq!(appends.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn a_call_that_may_write_runs_only_after_its_request_and_start_are_durable() {
    let (store, _) = counting_store();
    let noted = Arc::default();
    let annotations = Annotations::default().with_side_effect(SideEffect::WorkspaceWrite);
    let registry = noting_tool(annotations, &store, &noted);
    let model = Odd::saying(vec![calling_reply(&[("look", json!({}))])]);
    let session = open_session(Session::ungated(model, registry), &store).await;
    session.run("go").await.expect("runs");
    let noted = noted.lock().expect("no panic");
    let expected = [
        "user_message",
        "inference_started",
        "inference_finished",
        "turn_opened",
        "tool_requested",
        "tool_execution_started",
    ];
    assert_eq!(*noted, expected);
}

#[tokio::test]
async fn a_suspension_is_one_write_a_decision_adds_none_and_the_rest_is_one() {
    let (store, appends) = counting_store();
    let registry = noting_tool(Annotations::read_only(), &store, &Arc::default());
    let model = || Odd::saying(vec![calling_reply(&[("look", json!({}))])]);
    let open = |model| {
        let builder = Session::ungated(model, registry.clone());
        open_session(with_stack(builder, registry.clone(), AskFirst), &store)
    };
    let session = open(model()).await;
    let report = session.run("go").await.expect("runs");
    assert_eq!(report.end, RunEnd::Suspended);
    assert_eq!(appends.load(Ordering::SeqCst), 1);
    // The run has returned, so everything it told its caller is in the store.
    let filter = ApprovalFilter::default();
    assert_eq!(store.approvals(filter).await.expect("lists").len(), 1);
    drop(session);
    let session = open(model()).await;
    let request = report.pending[0].question.clone().expect("asks");
    let decided = session.decide(&*request, Decision::approve("ann")).await;
    decided.expect("is accepted");
    let report = session.resume().await.expect("resumes");
    assert_eq!(report.end, RunEnd::Completed);
    assert_eq!(appends.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn what_an_approval_needs_together_is_one_read() {
    let (store, count) = ReadCount::of(MemoryStore::new());
    let registry = Registry::new();
    let look = tool_fn("look", "Looks.", |_: serde_json::Value, _| async {
        Ok::<_, ToolError>("seen")
    });
    registry
        .register(look.with_annotations(Annotations::read_only()))
        .expect("the name is free");
    let model = || Odd::saying(vec![calling_reply(&[("look", json!({}))])]);
    let open = |model| {
        let builder = Session::ungated(model, registry.clone());
        open_session(with_stack(builder, registry.clone(), AskFirst), &store)
    };
    let session = open(model()).await;
    let report = session.run("go").await.expect("runs");
    drop(session);
    let mut before = count.reads();
    let mut reads = || {
        let now = count.reads();
        now - std::mem::replace(&mut before, now)
    };
    let session = open(model()).await;
    assert_eq!(reads(), 2, "whether it was imported; messages");
    let request = report.pending[0].question.clone().expect("asks");
    let decided = session.decide(&*request, Decision::approve("ann")).await;
    decided.expect("is accepted");
    assert_eq!(
        reads(),
        2,
        "the row of the request; the records of the call"
    );
    let report = session.resume().await.expect("resumes");
    assert_eq!(report.end, RunEnd::Completed);
    assert_eq!(reads(), 5, "run; mailbox; turn; events; decisions");
}

#[tokio::test]
async fn what_is_held_is_written_when_the_model_keeps_the_run_waiting() {
    let (store, _) = counting_store();
    let go_on = Arc::new(Notify::new());
    let wait = go_on.clone();
    let model = Odd::new(move |_| {
        let wait = wait.clone();
        stream::once(async move {
            wait.notified().await;
            let reply = Reply::new(Message::assistant("done"));
            Ok(Delta::Done(Box::new(reply)))
        })
        .boxed()
    });
    let session = open_session(Session::ungated(model, Registry::new()), &store).await;
    let mut follower = session.bus().subscribe();
    let look = async {
        // Published only after it was written.
        while !is_inference_start(&follower.next().await) {}
        let events = loop_events(&store).await;
        go_on.notify_one();
        events
    };
    let (report, seen) = tokio::join!(session.run("go"), look);
    assert_eq!(report.expect("runs").end, RunEnd::Completed);
    assert!(matches!(
        seen.as_slice(),
        [
            SessionEvent::UserMessage { .. },
            SessionEvent::InferenceStarted { .. }
        ]
    ));
}

fn is_inference_start(delivery: &Option<toolgate_runtime::BusDelivery>) -> bool {
    let Some(toolgate_runtime::BusDelivery::Event(event)) = delivery else {
        return false;
    };
    matches!(
        event.as_session(),
        Some(SessionEvent::InferenceStarted { .. })
    )
}

#[tokio::test]
async fn the_result_of_a_read_is_written_while_its_sibling_works() {
    let (store, _) = counting_store();
    let go_on = Arc::new(Notify::new());
    let wait = go_on.clone();
    let registry = noting_tool(Annotations::read_only(), &store, &Arc::default());
    let slow = tool_fn("wait", "Waits.", move |_: serde_json::Value, _| {
        let wait = wait.clone();
        async move {
            wait.notified().await;
            Ok::<_, ToolError>("waited")
        }
    });
    registry
        .register(slow.with_annotations(Annotations::read_only()))
        .expect("the name is free");
    let both = calling_reply(&[("wait", json!({})), ("look", json!({}))]);
    let model = Odd::saying(vec![both, Message::assistant("done")]);
    let session = open_session(Session::ungated(model, registry), &store).await;
    let mut follower = session.bus().subscribe();
    let settled = async {
        loop {
            let Some(toolgate_runtime::BusDelivery::Event(event)) = follower.next().await else {
                continue;
            };
            if let Some((_, ToolEvent::ToolExecutionSucceeded { .. })) = event.as_tool() {
                go_on.notify_one();
                return event.as_tool().expect("of a tool").0.tool.to_string();
            }
        }
    };
    let (report, first) = tokio::join!(session.run("go"), settled);
    assert_eq!(report.expect("runs").end, RunEnd::Completed);
    assert_eq!(first, "look");
}

/// An approver who looks whether the request is in the store.
struct LookingApprover(StoreHandle);

impl Approver for LookingApprover {
    async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
        let stored = self
            .0
            .load_approval_request(request.approval_id.call_id(), 0);
        let stored = stored.await.expect("reads");
        stored.map(|_| Decision::approve("ann"))
    }
}

#[tokio::test]
async fn an_approver_is_asked_only_about_a_request_that_is_durable() {
    let (store, _) = counting_store();
    let registry = noting_tool(Annotations::read_only(), &store, &Arc::default());
    let model = Odd::new(|at| {
        whole_reply(match at {
            0 => calling_reply(&[("look", json!({}))]),
            _ => Message::assistant("done"),
        })
    });
    let approver = LookingApprover(store.clone());
    let builder = Session::ungated(model, registry.clone())
        .dispatcher(move |dispatcher| dispatcher.approver(approver));
    let builder = with_stack(builder, registry, AskFirst);
    let report = open_session(builder, &store).await.run("go").await;
    assert_eq!(report.expect("runs").end, RunEnd::Completed);
}

/// A layer that acts before the call runs, once the call is on record, and notes what is stored then.
struct ActsFirst {
    store: StoreHandle,
    noted: Arc<Mutex<Vec<String>>>,
}

impl Layer for ActsFirst {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let act = || async {
            let events = self.store.events(SESSION, 0, 1000).await.expect("reads");
            let types = events.iter().map(|event| event.name().to_owned());
            self.noted.lock().expect("no panic").extend(types);
            toolgate_core::Json::null()
        };
        let done = next.perform_once(&call, "act", act).await;
        done.expect("is stored");
        next.run(call).await
    }

    fn band(&self) -> Band {
        Band::Decide
    }
}

#[tokio::test]
async fn a_layer_acts_once_only_for_a_call_that_is_on_record() {
    let (store, _) = counting_store();
    let noted: Arc<Mutex<Vec<String>>> = Arc::default();
    let registry = noting_tool(Annotations::read_only(), &store, &Arc::default());
    let layer = ActsFirst {
        store: store.clone(),
        noted: noted.clone(),
    };
    let model = Odd::saying(vec![calling_reply(&[("look", json!({}))])]);
    let builder = with_stack(Session::ungated(model, registry.clone()), registry, layer);
    let report = open_session(builder, &store).await.run("go").await;
    assert_eq!(report.expect("runs").end, RunEnd::Completed);
    let noted = noted.lock().expect("no panic");
    assert_eq!(noted.last().map(String::as_str), Some("tool_requested"));
}
