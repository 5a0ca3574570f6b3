//! What holds for a run beside what it leads to: how it is watched, and what is refused while it goes on.

use futures::StreamExt;
use serde_json::json;
use toolgate::{
    Delta, Gate, HostStep, Model, ModelName, Reply, RunEnd, RunOptions, Session, SessionError,
    Update, models::Line,
};

use crate::{scenario::Scenario, tools::Regime, world::World};

fn looking() -> Scenario {
    let say = "This is a sentence that does not fit into one piece.";
    Scenario::of([
        Line::new().say("Let me look.").call("look", json!({})),
        Line::new().say(say),
    ])
}

async fn session(scenario: &Scenario, regime: Regime) -> (World, Session) {
    let world = World::new(scenario, regime);
    let session = world.process(scenario).await;
    (world, session)
}

#[tokio::test]
async fn a_stream_ends_with_the_report_and_its_pieces_make_up_the_text() {
    let (world, session) = session(&looking(), Regime::Core).await;
    let updates: Vec<Update> = session.stream("look").collect().await;
    let (mut words, mut events, mut ends) = (String::new(), Vec::new(), Vec::new());
    for update in updates {
        assert!(ends.is_empty(), "nothing comes after the end");
        match update {
            Update::Piece(piece) if piece.turn.iteration == 1 => {
                if let Delta::Text(text) = &piece.delta {
                    words.push_str(text);
                }
            }
            Update::Piece(_) => {}
            Update::Event(event) => events.push(event),
            Update::Lagged(missed) => panic!("{missed} updates were missed"),
            Update::End(report) => ends.push(report),
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
async fn a_stream_that_is_dropped_leaves_a_run_that_can_be_resumed() {
    let (world, session) = session(&looking(), Regime::Core).await;
    let mut stream = session.stream("look");
    while let Some(update) = stream.next().await {
        if matches!(&update, Update::Event(event) if event.name() == "turn_opened") {
            break;
        }
    }
    drop(stream);
    let report = session.resume().await.expect("resumes");
    assert_eq!((report.end, report.iterations), (RunEnd::Completed, 2));
    assert_eq!(world.deeds.done(), ["look{}"], "once");
}

#[tokio::test]
async fn a_session_has_one_run_at_a_time_and_hears_nobody_when_it_has_none() {
    let (_world, session) = session(&looking(), Regime::Host).await;
    assert!(matches!(
        session.say("hello?").await,
        Err(SessionError::Idle { .. })
    ));
    assert!(!session.interrupt(), "there is nothing to stop");
    let hosted = session
        .host("look", RunOptions::new())
        .await
        .expect("begins");
    assert!(matches!(
        session.run("me too").await,
        Err(SessionError::Busy { .. })
    ));
    assert!(matches!(
        session.host_again(RunOptions::new()).await,
        Err(SessionError::Busy { .. })
    ));
    drop(hosted);
    let hosted = session
        .host_again(RunOptions::new())
        .await
        .expect("is free again");
    assert_eq!(hosted.next(), HostStep::Ask);
}

#[tokio::test]
async fn a_host_that_takes_a_step_out_of_turn_is_told_so() {
    let (world, session) = session(&looking(), Regime::Host).await;
    let model = ModelName::new("scripted", "script");
    let mut hosted = session
        .host("look", RunOptions::new())
        .await
        .expect("begins");
    let nothing = || Reply::new(toolgate::Message::assistant(""));
    assert!(
        matches!(
            hosted.gate(nothing()).await,
            Err(SessionError::OutOfTurn(_))
        ),
        "no model was asked"
    );
    assert!(
        matches!(hosted.settled().await, Err(SessionError::OutOfTurn(_))),
        "no calls are open"
    );
    assert!(
        matches!(
            hosted.interrupt("stop").await,
            Err(SessionError::OutOfTurn(_))
        ),
        "no calls are open"
    );
    let request = hosted.ask(&model).await.expect("is asked").clone();
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
    let gates = hosted.gate(*reply).await.expect("is taken in");
    let [Gate::Run { call, .. }] = gates.as_slice() else {
        panic!("one call to run: {gates:?}")
    };
    assert!(
        matches!(hosted.ask(&model).await, Err(SessionError::OutOfTurn(_))),
        "a call is open"
    );
    assert!(
        matches!(hosted.settled().await, Err(SessionError::OutOfTurn(_))),
        "a call is open"
    );
    hosted
        .settle(*call, toolgate::Outcome::ok("seen"))
        .await
        .expect("is taken");
    let twice = hosted
        .settle(*call, toolgate::Outcome::ok("seen again"))
        .await;
    assert!(
        matches!(twice, Err(SessionError::Post(_))),
        "the first result stands: {twice:?}"
    );
    let told = hosted
        .settled()
        .await
        .expect("is settled")
        .expect("something to tell");
    assert_eq!(told.parts.len(), 1);
    assert!(
        matches!(hosted.finish().await, Err(SessionError::OutOfTurn(_))),
        "the model has to be asked"
    );
}

#[tokio::test]
async fn a_run_that_a_host_has_dropped_goes_on_where_it_was() {
    let (world, session) = session(&looking(), Regime::Host).await;
    let model = ModelName::new("scripted", "script");
    let mut hosted = session
        .host("look", RunOptions::new())
        .await
        .expect("begins");
    let request = hosted.ask(&model).await.expect("is asked").clone();
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
    hosted.gate(*reply).await.expect("is taken in");
    drop(hosted);
    let hosted = session
        .host_again(RunOptions::new())
        .await
        .expect("is taken up");
    assert_eq!(hosted.next(), HostStep::Settle);
    assert!(
        matches!(hosted.gates().as_slice(), [Gate::Run { .. }]),
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
async fn a_call_that_a_host_may_have_run_is_not_said_to_be_cancelled() {
    let note = Line::new()
        .call("note", json!({ "text": "a" }))
        .call("look", json!({}));
    let scenario = Scenario::of([note, "As you like.".into()]);
    let (world, session) = session(&scenario, Regime::Host).await;
    let mut hosted = session
        .host("note it", RunOptions::new())
        .await
        .expect("begins");
    let request = hosted
        .ask(&ModelName::new("scripted", "script"))
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
    hosted.gate(*reply).await.expect("is taken in");
    drop(hosted);
    // Also if the next run is not shown the tool.
    let options = RunOptions::new().allow(["look"]);
    let hosted = session.host("never mind", options).await.expect("begins");
    assert_eq!(hosted.next(), HostStep::Ask);
    let events = world
        .store
        .events(world.session, 0, usize::MAX)
        .await
        .expect("reads");
    let ends: Vec<_> = events
        .iter()
        .filter_map(|event| event.as_tool().and_then(|(_, event)| event.terminal()))
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
async fn a_session_whose_host_has_the_model_says_so_when_it_is_to_ask_one() {
    let session = Session::for_host(toolgate::Registry::new())
        .build()
        .await
        .expect("builds");
    let report = session.run("hello").await.expect("reports");
    assert_eq!(report.end, RunEnd::Failed);
    assert!(report.error.is_some_and(|error| format!("{error:?}").contains("the host asks its model by itself")));
}
