//! Properties of a run: its stream, its steps, and the inputs that are rejected during it.

use futures::StreamExt;
use serde_json::json;
use toolgate::{
    Model, RunEnd, Session,
    model::{Delta, ModelName, Reply, ScriptLine},
    session::{HostAction, HostCall, HostStep, RunOptions, RunUpdate, SessionError},
};

use crate::modes::{scenario::ModeScenario, tools::RunMode, world::ModeWorld};

fn looking_scenario() -> ModeScenario {
    let say = "This is a sentence that does not fit into one piece.";
    ModeScenario::with_lines([
        ScriptLine::new()
            .say("Let me look.")
            .call("look", json!({})),
        ScriptLine::new().say(say),
    ])
}

async fn open_session(scenario: &ModeScenario, mode: RunMode) -> (ModeWorld, Session) {
    let world = ModeWorld::new(scenario, mode);
    let session = world.open_session(scenario).await;
    (world, session)
}

#[tokio::test]
async fn a_stream_ends_with_the_report_and_its_pieces_add_up_to_the_text() {
    let (world, session) = open_session(&looking_scenario(), RunMode::Managed).await;
    let updates: Vec<RunUpdate> = session.stream("look").collect().await;
    let mut words = String::new();
    let mut events = Vec::new();
    let mut ends = Vec::new();
    for update in updates {
        assert!(ends.is_empty(), "nothing comes after the end");
        match update {
            RunUpdate::Piece(piece) if piece.turn.iteration == 1 => {
                if let Delta::Text(text) = &piece.delta {
                    words.push_str(text);
                }
            }
            RunUpdate::Piece(_) => {}
            RunUpdate::Event(event) => events.push(event),
            RunUpdate::Lagged(missed) => panic!("{missed} updates were missed"),
            RunUpdate::End(report) => ends.push(report),
        }
    }
    let report = ends.pop().expect("an end").expect("a report");
    assert_eq!((report.end, report.text), (RunEnd::Completed, words));
    let stored = world
        .store
        .events(world.session, 0, usize::MAX)
        .await
        .expect("reads");
    assert_eq!(events, stored, "every event, once and in order");
}

#[tokio::test]
async fn a_stream_that_is_dropped_leaves_the_run_running() {
    let (world, session) = open_session(&looking_scenario(), RunMode::Managed).await;
    let run = session.start("look");
    let mut stream = run.updates();
    while let Some(update) = stream.next().await {
        if matches!(&update, RunUpdate::Event(event) if event.name() == "turn_opened") {
            break;
        }
    }
    drop(stream);
    let report = run.report().await.expect("ends");
    assert_eq!((report.end, report.iterations), (RunEnd::Completed, 2));
    assert_eq!(world.deeds.sorted_effects(), ["look{}"], "once");
}

#[tokio::test]
async fn a_session_has_one_run_at_a_time_and_rejects_messages_without_one() {
    let (_world, session) = open_session(&looking_scenario(), RunMode::HostDriven).await;
    assert!(matches!(
        session.send_message("hello?").await,
        Err(SessionError::Idle { .. })
    ));
    assert!(!session.interrupt(), "there is nothing to stop");
    let hosted = session
        .begin_hosted("look", RunOptions::new())
        .await
        .expect("begins");
    assert!(matches!(
        session.run("me too").await,
        Err(SessionError::Busy { .. })
    ));
    assert!(matches!(
        session.resume_hosted(RunOptions::new()).await,
        Err(SessionError::Busy { .. })
    ));
    drop(hosted);
    let hosted = session
        .resume_hosted(RunOptions::new())
        .await
        .expect("is free again");
    assert_eq!(hosted.next_step(), HostStep::Ask);
}

#[tokio::test]
async fn a_host_step_out_of_order_is_rejected() {
    let (world, session) = open_session(&looking_scenario(), RunMode::HostDriven).await;
    let model = ModelName::new("scripted", "script");
    let mut hosted = session
        .begin_hosted("look", RunOptions::new())
        .await
        .expect("begins");
    let nothing = || Reply::new(toolgate::Message::assistant(""));
    assert!(
        matches!(
            hosted.submit_reply(nothing()).await,
            Err(SessionError::OutOfOrder(_))
        ),
        "no model was asked"
    );
    assert!(
        matches!(
            hosted.end_iteration().await,
            Err(SessionError::OutOfOrder(_))
        ),
        "no calls are open"
    );
    assert!(
        matches!(
            hosted.interrupt("stop").await,
            Err(SessionError::OutOfOrder(_))
        ),
        "no calls are open"
    );
    let request = hosted
        .begin_iteration(&model)
        .await
        .expect("is asked")
        .clone();
    let reply = world
        .model
        .reply(&request)
        .collect::<Vec<_>>()
        .await
        .pop()
        .expect("a reply")
        .expect("no error");
    let Delta::Done(reply) = reply else {
        panic!("the last piece is the reply")
    };
    let gates = hosted.submit_reply(*reply).await.expect("is accepted");
    let [HostAction::Run(HostCall { call, .. })] = gates.as_slice() else {
        panic!("one call to run: {gates:?}")
    };
    assert!(
        matches!(
            hosted.begin_iteration(&model).await,
            Err(SessionError::OutOfOrder(_))
        ),
        "a call is open"
    );
    assert!(
        matches!(
            hosted.end_iteration().await,
            Err(SessionError::OutOfOrder(_))
        ),
        "a call is open"
    );
    hosted
        .deliver_result(*call, toolgate::Outcome::ok("seen"))
        .await
        .expect("is accepted");
    let twice = hosted
        .deliver_result(*call, toolgate::Outcome::ok("seen again"))
        .await;
    assert!(
        matches!(twice, Err(SessionError::Rejected(_))),
        "the first result stands: {twice:?}"
    );
    let told = hosted
        .end_iteration()
        .await
        .expect("is settled")
        .expect("a result for the model");
    assert_eq!(told.parts.len(), 1);
    assert!(
        matches!(hosted.finish().await, Err(SessionError::OutOfOrder(_))),
        "the model has to be asked"
    );
}

#[tokio::test]
async fn a_run_that_a_host_has_dropped_can_be_resumed() {
    let (world, session) = open_session(&looking_scenario(), RunMode::HostDriven).await;
    let model = ModelName::new("scripted", "script");
    let mut hosted = session
        .begin_hosted("look", RunOptions::new())
        .await
        .expect("begins");
    let request = hosted
        .begin_iteration(&model)
        .await
        .expect("is asked")
        .clone();
    let reply = world
        .model
        .reply(&request)
        .collect::<Vec<_>>()
        .await
        .pop()
        .expect("a reply")
        .expect("no error");
    let Delta::Done(reply) = reply else {
        panic!("the last piece is the reply")
    };
    hosted.submit_reply(*reply).await.expect("is accepted");
    drop(hosted);
    let hosted = session
        .resume_hosted(RunOptions::new())
        .await
        .expect("is resumed");
    assert_eq!(hosted.next_step(), HostStep::Settle);
    assert!(
        matches!(hosted.call_actions().as_slice(), [HostAction::Run { .. }]),
        "it may still be run"
    );
    let report = hosted.cancel().await.expect("ends");
    assert_eq!(report.end, RunEnd::Cancelled);
    let events = world
        .store
        .events(world.session, 0, usize::MAX)
        .await
        .expect("reads");
    let summary = toolgate_testkit::LifecycleChecker::check_all(events.iter().map(AsRef::as_ref))
        .expect("legal");
    assert_eq!(
        (summary.settled_turns, summary.open.len()),
        (1, 0),
        "nothing is left open"
    );
}

#[tokio::test]
async fn a_call_that_a_host_may_have_executed_is_not_reported_as_cancelled() {
    let note = ScriptLine::new()
        .call("note", json!({ "text": "a" }))
        .call("look", json!({}));
    let scenario = ModeScenario::with_lines([note, "As you like.".into()]);
    let (world, session) = open_session(&scenario, RunMode::HostDriven).await;
    let mut hosted = session
        .begin_hosted("note it", RunOptions::new())
        .await
        .expect("begins");
    let request = hosted
        .begin_iteration(&ModelName::new("scripted", "script"))
        .await
        .expect("is asked")
        .clone();
    let reply = world
        .model
        .reply(&request)
        .collect::<Vec<_>>()
        .await
        .pop()
        .expect("a reply")
        .expect("no error");
    let Delta::Done(reply) = reply else {
        panic!("the last piece is the reply")
    };
    hosted.submit_reply(*reply).await.expect("is accepted");
    drop(hosted);
    // Also if the view of the next run lacks the tool.
    let options = RunOptions::new().allow(["look"]);
    let hosted = session
        .begin_hosted("never mind", options)
        .await
        .expect("begins");
    assert_eq!(hosted.next_step(), HostStep::Ask);
    let events = world
        .store
        .events(world.session, 0, usize::MAX)
        .await
        .expect("reads");
    let ends: Vec<_> = events
        .iter()
        .filter_map(|event| {
            event
                .as_tool()
                .and_then(|(_, event)| event.terminal_status())
        })
        .collect();
    assert_eq!(
        ends,
        [
            toolgate::Status::OutcomeUnknown,
            toolgate::Status::Cancelled
        ]
    );
}

#[tokio::test]
async fn a_session_whose_host_has_the_model_fails_when_it_is_asked_for_one() {
    let session = Session::ungated_host(toolgate::Registry::new())
        .build()
        .await
        .expect("builds");
    let report = session.run("hello").await.expect("reports");
    assert_eq!(report.end, RunEnd::Failed);
    assert!(report.error.is_some_and(|error| {
        format!("{error:?}").contains("this session has no model because its host asks one")
    }));
}
