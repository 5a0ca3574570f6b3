//! Tools for a host: each call passes the gate by itself.

use serde_json::json;
use toolgate::{
    Decision, Session, Status,
    model::ScriptLine,
    session::{ArmedError, ArmedOutcome, ArmedTool, RunOptions},
};

use crate::modes::{scenario::ModeScenario, tools::RunMode, world::ModeWorld};

/// Opens a session that does not wait for answers, and one of its tools.
async fn open_armed(
    world: &ModeWorld,
    scenario: &ModeScenario,
    tool: &str,
) -> (Session, ArmedTool) {
    let session = world.open_session(scenario).await;
    let tools = session.arm_tools(&RunOptions::new()).expect("armed");
    let tool = tools
        .into_iter()
        .find(|armed| armed.spec().name == tool)
        .expect("there is one");
    (session, tool)
}

fn silent_scenario() -> ModeScenario {
    ModeScenario::with_lines(Vec::<ScriptLine>::new())
}

#[tokio::test]
async fn an_armed_tool_runs_or_is_blocked_or_corrected_like_any_call() {
    let scenario = silent_scenario().config(
        "rules = [{ name = 'shut', effect = 'deny', tool = 'note', reason = 'it is late' }]\n",
    );
    let world = ModeWorld::new(&scenario, RunMode::Managed);
    let (session, look) = open_armed(&world, &scenario, "look").await;
    let good: ArmedOutcome = look.call("a", "{}").await.expect("runs");
    assert_eq!((good.status, good.text.as_str()), (Status::Ok, "seen"));
    let tools = session.arm_tools(&RunOptions::new()).expect("armed");
    let of = |name: &str| {
        tools
            .iter()
            .find(|tool| tool.spec().name == name)
            .expect("there is one")
    };
    let refused = of("note")
        .call("b", &json!({ "text": "x" }).to_string())
        .await
        .expect("a result");
    assert_eq!(
        (refused.status, refused.text.contains("it is late")),
        (Status::Blocked, true)
    );
    for broken in ["", "[]", "{\"path\":1}", "{\"path\":"] {
        let told = of("read").call("c", broken).await.expect("a result");
        assert_eq!(told.status, Status::SchemaViolation, "{broken}");
    }
    assert_eq!(world.deeds.sorted_effects(), ["look{}"]);
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
async fn an_armed_call_that_needs_an_approval_reports_it_and_can_be_decided() {
    let scenario = silent_scenario();
    let world = ModeWorld::new(&scenario, RunMode::Managed);
    let (session, pay) = open_armed(&world, &scenario, "ask_pay").await;
    let Err(ArmedError::Suspended(pending)) = pay.call("a", r#"{"amount":5}"#).await else {
        panic!("no approval was requested")
    };
    let question = pending
        .question
        .as_deref()
        .expect("an approval is requested");
    session
        .decide(question, Decision::approve("ann"))
        .await
        .expect("is accepted");
    assert!(
        world.deeds.sorted_effects().is_empty(),
        "not before its turn is resumed"
    );
    let view = toolgate::View::from_registry(&world.registry(crate::modes::tools::tool_specs()));
    let run = session
        .dispatcher()
        .resume(pending.turn, view)
        .await
        .expect("resumes");
    let report = run.run().await.expect("runs");
    assert_eq!(report.results[0].status(), Some(Status::Ok));
    assert_eq!(world.deeds.sorted_effects(), [r#"ask_pay{"amount":5}"#]);
}

#[tokio::test]
async fn armed_tools_wait_where_the_session_does() {
    let scenario = silent_scenario().setup(|_, builder| builder.wait_for_answers());
    let world = ModeWorld::new(&scenario, RunMode::Managed);
    let (session, pay) = open_armed(&world, &scenario, "ask_pay").await;
    let mut events = session.bus().subscribe();
    let denied = async {
        while let Some(delivery) = events.next().await {
            let toolgate::event::BusDelivery::Event(event) = delivery else {
                continue;
            };
            if let Some((_, toolgate::event::ToolEvent::ToolApprovalRequested(request))) =
                event.as_tool()
            {
                return session
                    .decide(&**request, Decision::deny("ann", Some("no")))
                    .await
                    .expect("is accepted");
            }
        }
        panic!("no approval was requested")
    };
    let (told, _) = tokio::join!(pay.call("a", r#"{"amount":5}"#), denied);
    let told = told.expect("a result");
    assert_eq!(
        (told.status, told.text.as_str()),
        (Status::Denied, "Tool execution denied: no")
    );
}
