//! Runs of a session: what is stored with them, who may stop them, what comes before the next
//! message, and what screens see of a reply.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use serde_json::json;
use toolgate_core::{
    Band, Decision, Delta, Json, LayerExt, Message, Next, Outcome, RedactionError, Redactor,
    Refusal, Registry, Reply, RunEnd, SessionEvent, Stack, StoreHandle, from_fn,
};
use toolgate_runtime::{
    Agent, BusDelivery, DispatchError, RunError, RunOptions, RunReport, RunUpdate, Session,
    SessionBuilder, SessionError,
};

use crate::common::{
    Ask, Probe, registry,
    sessions::{Odd, SESSION, calling_reply, memory_store, open_session},
};

/// A session over the tools of these tests, in which `ask_*` needs approval.
fn builder(probe: &Probe, lines: Vec<Message>) -> SessionBuilder {
    let registry = registry(probe);
    let stack = Stack::over(registry.clone()).layer(Ask).build();
    Session::ungated(Odd::saying(lines), registry).stack(stack.expect("in order"))
}

fn call(tools: &[&str]) -> Message {
    let calls: Vec<_> = tools
        .iter()
        .map(|tool| (*tool, json!({ "text": "x" })))
        .collect();
    calling_reply(&calls)
}

async fn approve(session: &Session, report: &RunReport, at: usize) {
    let question = report.pending[at]
        .question
        .as_deref()
        .expect("waits for a decision");
    let decided = session.decide(question, Decision::approve("ann")).await;
    decided.expect("counts");
}

/// Returns how the calls of the session settled, in the order of their events.
async fn settled_events(store: &StoreHandle) -> Vec<&'static str> {
    let events = store.events(SESSION, 0, 1_000).await.expect("reads");
    let names = events.iter().map(|event| event.name());
    names
        .filter(|name| name.starts_with("tool_execution_") || *name == "tool_denied")
        .collect()
}

/// A layer that lets everything pass, under a name.
fn passing_layer(name: &str) -> impl toolgate_core::Layer {
    from_fn(async |call, next: Next| next.run(call).await).named(name)
}

/// A layer that blocks every call of `echo`.
fn blocking_layer() -> impl toolgate_core::Layer {
    from_fn(async |call: toolgate_core::Call, next: Next| {
        if call.tool.as_str() == "echo" {
            return Outcome::refused(Refusal::Blocked, "not in this run");
        }
        next.run(call).await
    })
    .named("blocks")
    .in_band(Band::Decide)
}

#[tokio::test]
async fn resuming_a_run_restores_its_allowed_tools() {
    let probe = Probe::default();
    let store = memory_store();
    let lines = || {
        vec![
            call(&["ask_echo"]),
            call(&["echo"]),
            Message::assistant("done"),
        ]
    };
    let session = open_session(builder(&probe, lines()), &store).await;
    let options = RunOptions::new().allow(["ask_echo"]);
    let report = session.run_with("go", options).await.expect("runs");
    approve(&session, &report, 0).await;
    drop(session);
    let session = open_session(builder(&probe, lines()), &store).await;
    let report = session.resume().await.expect("resumes");
    assert_eq!(
        (report.end, report.text.as_str()),
        (RunEnd::Completed, "done")
    );
    assert_eq!(probe.ran(), 1, "echo was not allowed when the run began");
}

#[tokio::test]
async fn a_run_is_resumed_only_with_the_layers_it_began_with() {
    let probe = Probe::default();
    let store = memory_store();
    let lines = || vec![call(&["ask_echo"]), Message::assistant("done")];
    let session = open_session(builder(&probe, lines()), &store).await;
    let options = || RunOptions::new().layer(passing_layer("guard"));
    let report = session.run_with("go", options()).await.expect("runs");
    approve(&session, &report, 0).await;
    let refused = session.resume().await.expect_err("a layer is missing");
    let SessionError::Options(RunError::MissingParts { layers, tools }) = refused else {
        panic!("{refused}");
    };
    assert_eq!((layers, tools), (vec!["guard".into()], Vec::new()));
    let refused = session
        .run("and now?")
        .await
        .expect_err("a layer is missing");
    assert!(matches!(refused, SessionError::Options(_)), "{refused}");
    assert_eq!(probe.ran(), 0);
    let report = session.resume_with(options()).await.expect("resumes");
    assert_eq!((report.end, probe.ran()), (RunEnd::Completed, 1));
}

#[tokio::test]
async fn a_run_that_is_resumed_with_another_model_says_so() {
    let probe = Probe::default();
    let store = memory_store();
    let session = open_session(builder(&probe, vec![call(&["ask_echo"])]), &store).await;
    let report = session.run("go").await.expect("runs");
    assert_eq!(report.began_with, None);
    drop(session);
    let model = toolgate_core::ModelName::new("test", "other");
    let other = crate::common::sessions::renamed(Odd::saying(vec![]), model);
    let session = open_session(Session::ungated(other, registry(&probe)), &store).await;
    let report = session.resume().await.expect("resumes");
    assert_eq!(report.began_with.as_deref(), Some("test:odd"));
}

#[tokio::test]
async fn a_dropped_stream_leaves_the_run_running() {
    let probe = Probe::default();
    let store = memory_store();
    let lines = vec![call(&["slow_write"]), Message::assistant("done")];
    let session = open_session(builder(&probe, lines), &store).await;
    let run = session.start("go");
    let mut updates = run.updates();
    loop {
        match updates.next().await.expect("the run continues") {
            RunUpdate::Event(event) if event.name() == "tool_execution_started" => break,
            _ => {}
        }
    }
    drop(updates);
    probe.gate.0.add_permits(1);
    let report = run.report().await.expect("ends");
    assert_eq!(
        (report.end, report.text.as_str()),
        (RunEnd::Completed, "done")
    );
    let settled = settled_events(&store).await;
    assert_eq!(
        settled,
        ["tool_execution_started", "tool_execution_succeeded"]
    );
}

#[tokio::test]
async fn a_run_ends_when_its_session_is_taken_over_while_the_model_hangs() {
    let probe = Probe::default();
    let store = memory_store();
    let asked = Arc::new(tokio::sync::Notify::new());
    let tell = asked.clone();
    let hanging = Odd::new(move |_| {
        tell.notify_one();
        stream::pending().boxed()
    });
    let robbed = Session::ungated(hanging, registry(&probe))
        .dispatcher(|dispatcher| dispatcher.lease(Duration::from_millis(30)));
    let robbed = open_session(robbed, &store).await;
    let run = robbed.start("go");
    asked.notified().await;
    let _second = open_session(builder(&probe, Vec::new()), &store).await;
    let lost = run.report().await.expect_err("another driver has it");
    let is_fenced = matches!(
        *lost,
        SessionError::Dispatch(DispatchError::Fenced { session: SESSION })
    );
    assert!(is_fenced, "{lost}");
}

#[tokio::test]
async fn a_run_whose_caller_stops_waiting_is_not_torn() {
    let probe = Probe::default();
    let store = memory_store();
    let lines = vec![call(&["slow_write"]), Message::assistant("done")];
    let session = open_session(builder(&probe, lines), &store).await;
    tokio::select! {
        report = session.run("go") => panic!("{report:?}"),
        () = probe.entered.notified() => {}
    }
    let busy = session.resume().await.expect_err("it is under way");
    assert!(matches!(busy, SessionError::Busy { .. }), "{busy}");
    probe.gate.0.add_permits(1);
    while settled_events(&store).await.len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(settled_events(&store).await[1], "tool_execution_succeeded");
}

#[tokio::test]
async fn stopping_a_run_settles_what_had_started() {
    let probe = Probe::default();
    let store = memory_store();
    let session = open_session(builder(&probe, vec![call(&["slow_write"])]), &store).await;
    let run = session.start("go");
    probe.entered.notified().await;
    let report = run.stop().await.expect("ends");
    assert_eq!(report.end, RunEnd::Cancelled);
    let settled = settled_events(&store).await;
    assert_eq!(settled.len(), 2, "{settled:?}");
    assert!(!session.interrupt(), "nothing is under way");
}

#[tokio::test]
async fn suspending_a_run_stops_what_runs_and_leaves_requests_pending() {
    let probe = Probe::default();
    let store = memory_store();
    let lines = || {
        vec![
            call(&["ask_echo", "slow_write"]),
            Message::assistant("done"),
        ]
    };
    let session = open_session(builder(&probe, lines()).wait_for_answers(), &store).await;
    let run = session.start("go");
    probe.entered.notified().await;
    let asked = async || {
        let events = store.events(SESSION, 0, 1_000).await.expect("reads");
        events
            .iter()
            .any(|event| event.name() == "tool_approval_requested")
    };
    while !asked().await {
        tokio::task::yield_now().await;
    }
    run.suspend();
    let report = run.report().await.expect("ends");
    assert_eq!((report.end, report.pending.len()), (RunEnd::Suspended, 1));
    let settled = settled_events(&store).await;
    assert_eq!(
        settled.len(),
        2,
        "the write started and was stopped: {settled:?}"
    );
    // The request is decided later, and the run continues.
    approve(&session, &report, 0).await;
    let report = session.resume().await.expect("resumes");
    assert_eq!(report.end, RunEnd::Completed);
}

#[tokio::test]
async fn an_approved_call_runs_before_the_next_message_is_taken() {
    let probe = Probe::default();
    let store = memory_store();
    let lines = vec![call(&["ask_echo"]), Message::assistant("hello")];
    let session = open_session(builder(&probe, lines), &store).await;
    let report = session.run("go").await.expect("runs");
    approve(&session, &report, 0).await;
    let report = session.run("hello?").await.expect("runs");
    assert_eq!(
        (report.end, report.text.as_str()),
        (RunEnd::Completed, "hello")
    );
    assert_eq!(probe.ran(), 1, "the approved call has run");
}

#[tokio::test]
async fn a_message_is_not_taken_while_a_call_is_undecided() {
    let probe = Probe::default();
    let store = memory_store();
    let lines = vec![call(&["ask_echo", "ask_echo"]), Message::assistant("hello")];
    let session = open_session(builder(&probe, lines), &store).await;
    let report = session.run("go").await.expect("runs");
    approve(&session, &report, 1).await;
    let report = session.run("hello?").await.expect("reports");
    assert_eq!((report.end, report.pending.len()), (RunEnd::Suspended, 1));
    assert_eq!(
        (report.run, probe.ran()),
        (0, 1),
        "what is approved has run"
    );
    approve(&session, &report, 0).await;
    let report = session.run("hello!").await.expect("runs");
    assert_eq!((report.end, probe.ran()), (RunEnd::Completed, 2));
    let said: Vec<_> = store.messages(SESSION, u64::MAX, 10).await.expect("reads");
    let texts: Vec<_> = said.iter().map(|(_, said)| said.message.text()).collect();
    assert!(!texts.contains(&"hello?".to_owned()), "{texts:?}");
}

#[tokio::test]
async fn abandoning_pending_calls_still_runs_what_is_approved() {
    let probe = Probe::default();
    let store = memory_store();
    let lines = vec![call(&["ask_echo", "ask_echo"]), Message::assistant("hello")];
    let session = open_session(builder(&probe, lines), &store).await;
    let report = session.run("go").await.expect("runs");
    approve(&session, &report, 0).await;
    let options = RunOptions::new().abandon_pending();
    let report = session.run_with("never mind", options).await.expect("runs");
    assert_eq!(
        (report.end, report.text.as_str()),
        (RunEnd::Completed, "hello")
    );
    assert_eq!(probe.ran(), 1, "one of them was approved");
}

#[tokio::test]
async fn the_layers_of_a_run_cover_the_agents_it_delegates_to() {
    let probe = Probe::default();
    let worker = Odd::saying(vec![call(&["echo"]), Message::assistant("tried")]);
    let inner = Agent::new("inner", "Works.", worker, registry(&probe));
    let delegates = calling_reply(&[("inner", json!({ "task": "echo" }))]);
    let middle = Odd::saying(vec![delegates, Message::assistant("asked")]);
    let outer = Agent::new("outer", "Delegates.", middle, Registry::new())
        .session(move |builder| builder.agent(inner.clone()));
    let delegates = calling_reply(&[("outer", json!({ "task": "have it echoed" }))]);
    let model = Odd::saying(vec![delegates, Message::assistant("done")]);
    let builder = Session::ungated(model, Registry::new()).agent(outer);
    let session = open_session(builder, &memory_store()).await;
    let options = RunOptions::new().layer(blocking_layer());
    let report = session.run_with("go", options).await.expect("runs");
    assert_eq!(report.end, RunEnd::Completed);
    assert_eq!(probe.ran(), 0);
    session.run("again").await.expect("runs");
}

/// Hides one word, and shows text up to the last complete word.
struct HidesWord;

impl Redactor for HidesWord {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        let text = value.to_string().replace("hunter2", "***");
        let value = serde_json::from_str(&text).map_err(|_| RedactionError)?;
        Json::new(value).map_err(|_| RedactionError)
    }
    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        if text.contains("unredactable") {
            return Err(RedactionError);
        }
        Ok(text.replace("hunter2", "***"))
    }
    fn safe_prefix(&self, text: &str) -> usize {
        text.rfind(' ').map_or(0, |at| at + 1)
    }
}

/// Returns the pieces that a screen sees of a reply in these deltas.
async fn shown_pieces(deltas: Vec<Delta>) -> Vec<Delta> {
    let deltas = Arc::new(deltas);
    let model = Odd::new(move |_| {
        let done = Delta::Done(Box::new(Reply::new(Message::assistant("raw hunter2"))));
        let pieces: Vec<_> = deltas.iter().cloned().chain([done]).map(Ok).collect();
        stream::iter(pieces).boxed()
    });
    let builder = Session::ungated(model, Registry::new())
        .dispatcher(|dispatcher| dispatcher.redactor(HidesWord));
    let session = open_session(builder, &memory_store()).await;
    let mut seen = session.bus().subscribe();
    let report = session.run("go").await.expect("runs");
    assert_eq!(
        report.text, "raw hunter2",
        "the program gets what the model wrote"
    );
    let mut pieces = Vec::new();
    while let Some(delivery) = seen.try_next() {
        if let BusDelivery::Piece(piece) = delivery {
            pieces.push(piece.delta.clone());
        }
    }
    pieces
}

#[tokio::test]
async fn every_piece_names_the_request_that_it_answers() {
    let model = Odd::new(|replies| {
        let message = if replies > 0 {
            Message::assistant("done")
        } else {
            calling_reply(&[("missing", json!({}))])
        };
        let text = |text: &str| Ok(Delta::Text(text.into()));
        let done = Ok(Delta::Done(Box::new(Reply::new(message))));
        stream::iter([text("one "), text("two"), done]).boxed()
    });
    let builder = Session::ungated(model, Registry::new());
    let session = open_session(builder, &memory_store()).await;
    let mut seen = session.bus().subscribe();
    session.run("go").await.expect("runs");
    let mut began = Vec::new();
    let mut ended = Vec::new();
    let mut named = Vec::new();
    while let Some(delivery) = seen.try_next() {
        match delivery {
            BusDelivery::Piece(piece) => named.push(piece.after),
            BusDelivery::Event(event) => match event.as_session() {
                Some(SessionEvent::InferenceStarted { .. }) => began.push(event.sequence()),
                Some(SessionEvent::InferenceFinished { .. }) => ended.push(event.sequence()),
                _ => {}
            },
            BusDelivery::Lagged(missed) => panic!("{missed} missed"),
        }
    }
    named.dedup();
    assert_eq!(named.len(), 2, "one number for each reply");
    for ((number, began), ended) in named.iter().zip(began).zip(ended) {
        assert!((began..ended).contains(number), "{began} {number} {ended}");
    }
}

#[tokio::test]
async fn a_secret_that_arrives_in_two_pieces_is_not_shown() {
    let text = |text: &str| Delta::Text(text.into());
    let pieces = shown_pieces(vec![
        Delta::Reasoning("it is hun".into()),
        Delta::Reasoning("ter2".into()),
        text("say hunt"),
        text("er2 now and hun"),
        text("ter2"),
    ])
    .await;
    let expected = [
        Delta::Reasoning("it is ".into()),
        Delta::Reasoning("***".into()),
        text("say "),
        text("*** now and "),
        text("***"),
    ];
    assert_eq!(pieces, expected);
}

#[tokio::test]
async fn arguments_are_shown_when_they_are_complete_and_redacted() {
    let piece = |text: &str| Delta::Arguments {
        index: 0,
        text: text.into(),
    };
    let pieces = shown_pieces(vec![piece(r#"{"a":"hun"#), piece(r#"ter2"}"#)]).await;
    assert_eq!(pieces, [piece(r#"{"a":"***"}"#)]);
}

#[tokio::test]
async fn nothing_more_of_a_part_is_shown_once_it_cannot_be_redacted() {
    let text = |text: &str| Delta::Text(text.into());
    let pieces = shown_pieces(vec![
        text("a b"),
        text(" unredactable c"),
        text(" d hunter2"),
    ])
    .await;
    assert_eq!(pieces, [text("a "), text("(withheld)")]);
}
