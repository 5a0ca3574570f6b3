//! Tools that are handed to a host: each call passes the gate by itself.

use serde_json::json;
use toolgate::{
    ArmedError, ArmedOutcome, ArmedTool, Decision, RunOptions, Session, Status, models::Line,
};

use crate::{scenario::Scenario, tools::Regime, world::World};

/// A session in which nobody waits, and one of its tools.
async fn armed(world: &World, scenario: &Scenario, tool: &str) -> (Session, ArmedTool) {
    let session = world.process(scenario).await;
    let tools = session.arm(&RunOptions::new()).expect("armed");
    let tool = tools
        .into_iter()
        .find(|armed| armed.spec().name == tool)
        .expect("there is one");
    (session, tool)
}

fn silent() -> Scenario {
    Scenario::of(Vec::<Line>::new())
}

#[tokio::test]
async fn an_armed_tool_runs_is_refused_or_corrected_like_any_call() {
    let scenario = silent().config(
        "rules = [{ name = 'shut', effect = 'deny', tool = 'note', reason = 'it is late' }]\n",
    );
    let world = World::new(&scenario, Regime::Core);
    let (session, look) = armed(&world, &scenario, "look").await;
    let good: ArmedOutcome = look.call("a", "{}").await.expect("runs");
    assert_eq!((good.status, good.text.as_str()), (Status::Ok, "seen"));
    let tools = session.arm(&RunOptions::new()).expect("armed");
    let of = |name: &str| {
        tools
            .iter()
            .find(|tool| tool.spec().name == name)
            .expect("there is one")
    };
    let refused = of("note")
        .call("b", &json!({ "text": "x" }).to_string())
        .await
        .expect("is told");
    assert_eq!(
        (refused.status, refused.text.contains("it is late")),
        (Status::Blocked, true)
    );
    for broken in ["", "[]", "{\"path\":1}", "{\"path\":"] {
        let told = of("read").call("c", broken).await.expect("is told");
        assert_eq!(told.status, Status::SchemaViolation, "{broken}");
    }
    assert_eq!(world.deeds.done(), ["look{}"]);
    let events = world
        .store
        .events(world.session, 0, usize::MAX)
        .await
        .expect("reads");
    let summary = toolgate_testkit::LifecycleChecker::check_all(events.iter().map(AsRef::as_ref))
        .expect("legal");
    assert_eq!(
        (summary.settled_turns, summary.open.len()),
        (6, 0),
        "each call is a turn of its own"
    );
}

#[tokio::test]
async fn an_armed_call_that_needs_somebody_says_so_and_can_be_decided_on() {
    let scenario = silent();
    let world = World::new(&scenario, Regime::Core);
    let (session, pay) = armed(&world, &scenario, "ask_pay").await;
    let Err(ArmedError::Suspended(pending)) = pay.call("a", r#"{"amount":5}"#).await else {
        panic!("nobody was asked")
    };
    let question = pending.question.as_deref().expect("somebody is asked");
    session
        .decide(question, Decision::approve("ann"))
        .await
        .expect("is taken");
    assert!(
        world.deeds.done().is_empty(),
        "not before its turn is taken up"
    );
    let view = toolgate::View::of(&world.registry(crate::tools::specs()));
    let run = session
        .dispatcher()
        .resume(pending.turn, view)
        .await
        .expect("resumes");
    let report = run.run().await.expect("runs");
    assert_eq!(report.results[0].status(), Some(Status::Ok));
    assert_eq!(world.deeds.done(), [r#"ask_pay{"amount":5}"#]);
}

#[tokio::test]
async fn armed_tools_wait_where_the_session_does() {
    let scenario = silent().setup(|_, builder| builder.wait_for_answers());
    let world = World::new(&scenario, Regime::Core);
    let (session, pay) = armed(&world, &scenario, "ask_pay").await;
    let mut events = session.bus().subscribe();
    let denied = async {
        while let Some(delivery) = events.next().await {
            let toolgate::Delivery::Event(event) = delivery else {
                continue;
            };
            if let Some((_, toolgate::ToolEvent::ToolApprovalRequested(request))) = event.as_tool()
            {
                return session
                    .decide(&**request, Decision::deny("ann", Some("no")))
                    .await
                    .expect("is taken");
            }
        }
        panic!("nobody was asked")
    };
    let (told, _) = tokio::join!(pay.call("a", r#"{"amount":5}"#), denied);
    let told = told.expect("is told");
    assert_eq!(
        (told.status, told.text.as_str()),
        (Status::Denied, "Tool execution denied: no")
    );
}
