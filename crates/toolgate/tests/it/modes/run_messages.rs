//! Approvals in messages, from the report of a run.

use serde_json::json;
use toolgate::{
    RunEnd, RunReport, Session,
    approval::{
        append_approval_response, apply_approval_responses, approval_requests, suspended_messages,
    },
    model::ScriptLine,
};

use crate::modes::{
    play_host::drive_as_host,
    scenario::{ModeScenario, ScenarioStep},
    tools::RunMode,
    world::ModeWorld,
};

fn paying_scenario() -> ModeScenario {
    let pays = ScriptLine::new()
        .call("look", json!({}))
        .call("ask_pay", json!({ "amount": 5 }));
    ModeScenario::with_lines([pays, "Paid.".into()])
        .run("pay")
        .resume()
}

/// Takes a step of the scenario.
async fn drive(world: &ModeWorld, session: &Session, step: &ScenarioStep) -> RunReport {
    let report = match (world.mode, step) {
        (RunMode::HostDriven, _) => drive_as_host(world, session, step).await,
        (RunMode::Managed, ScenarioStep::Run(input, _)) => session.run(*input).await,
        (RunMode::Managed, _) => session.resume().await,
    };
    report.expect("runs")
}

#[tokio::test]
async fn the_report_of_a_run_becomes_messages_with_requests_and_results() {
    for mode in [RunMode::Managed, RunMode::HostDriven] {
        let scenario = paying_scenario();
        let world = ModeWorld::new(&scenario, mode);
        let session = world.open_session(&scenario).await;
        let report = drive(&world, &session, &scenario.steps[0]).await;
        assert_eq!(report.end, RunEnd::Suspended);
        let label = report.pending[0].call_id.clone();
        let service = session.dispatcher().approval_service();
        let mut messages = suspended_messages(&service, &report)
            .await
            .expect("written");
        let requests = approval_requests(&messages);
        assert_eq!(requests[0].tool_call_id, *label, "{mode:?}");
        assert_eq!(messages[1]["content"][0]["output"], "seen", "{messages:?}");
        append_approval_response(&mut messages, requests[0].approve());
        let answers = apply_approval_responses(&service, &messages, "ann").await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        let report = drive(&world, &session, &scenario.steps[1]).await;
        assert_eq!(
            (report.end, report.text.as_str()),
            (RunEnd::Completed, "Paid.")
        );
        assert!(report.settled.is_empty());
        let effects = world.deeds.sorted_effects();
        assert_eq!(effects, [r#"ask_pay{"amount":5}"#, "look{}"], "once each");
    }
}
