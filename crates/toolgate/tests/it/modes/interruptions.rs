//! Scenarios in which the user interrupts a run, or sends a message during it.

use serde_json::json;
use toolgate::model::ScriptLine;

use crate::modes::{
    parity::{check_both, check_managed},
    scenario::{ModeScenario, ScenarioStep},
    stage::{ActMoment, UserAct},
};

/// Switches the timeout layer off: it would stop the tool in managed mode only, with a text of its
/// own.
const NO_TIMEOUT_LAYER: &str = "[layers.timeout]\nenabled = false\n";

fn call_line(tool: &str) -> ScriptLine {
    ScriptLine::new().call(tool, json!({}))
}

fn runs_moment(tool: &str) -> ActMoment {
    ActMoment::Runs(tool.to_owned())
}

fn say_act(text: &str) -> UserAct {
    UserAct::Say(text.to_owned())
}

#[tokio::test]
async fn a_run_is_interrupted_during_a_model_request() {
    let scenario = ModeScenario::with_lines([call_line("look"), "Done.".into()])
        .at_moment(ActMoment::Asked(1), UserAct::Interrupt);
    check_both("interrupted_while_asking", &scenario.run("look").resume()).await;
}

#[tokio::test]
async fn a_run_is_interrupted_while_a_tool_runs_and_finished_results_are_kept() {
    let first = ScriptLine::new()
        .call("look", json!({}))
        .call("hang", json!({}))
        .call("look", json!({}));
    let scenario = ModeScenario::with_lines([first, "Done.".into()])
        .at_moment(runs_moment("hang"), UserAct::Interrupt);
    let scenario =
        scenario.setup(|_, builder| builder.dispatcher(|dispatcher| dispatcher.max_concurrent(1)));
    let scenario = scenario.config(NO_TIMEOUT_LAYER).ticking();
    check_both("interrupted_while_running", &scenario.run("look").resume()).await;
}

#[tokio::test]
async fn an_interrupted_write_may_have_taken_effect() {
    let scenario = ModeScenario::with_lines([call_line("hang_writing"), "Done.".into()])
        .at_moment(runs_moment("hang_writing"), UserAct::Interrupt);
    let scenario = scenario.config(NO_TIMEOUT_LAYER).ticking();
    check_both("interrupted_while_writing", &scenario.run("write").resume()).await;
}

#[tokio::test]
async fn a_tool_that_stops_when_asked_is_cancelled() {
    let scenario = ModeScenario::with_lines([call_line("stops"), "Done.".into()])
        .at_moment(runs_moment("stops"), UserAct::Interrupt);
    // An interrupted host can no longer report that its tool has stopped, too.
    check_managed("interrupted_and_stopped", &scenario.run("write").resume()).await;
}

#[tokio::test]
async fn a_run_is_interrupted_while_an_approval_is_pending() {
    let first = ScriptLine::new()
        .call("look", json!({}))
        .call("ask_pay", json!({ "amount": 1 }));
    let scenario = ModeScenario::with_lines([first, "Done.".into()])
        .at_moment(ActMoment::Waits, UserAct::Interrupt);
    let scenario = scenario.setup(|_, builder| builder.wait_for_answers());
    check_both("interrupted_while_waiting", &scenario.run("pay").resume()).await;
}

#[tokio::test]
async fn a_suspended_session_is_interrupted() {
    let first = ScriptLine::new()
        .call("look", json!({}))
        .call("ask_pay", json!({ "amount": 1 }));
    let scenario = ModeScenario::with_lines([first, "Done.".into()])
        .run("pay")
        .then(ScenarioStep::Stop);
    check_both("interrupted_while_suspended", &scenario.resume().resume()).await;
}

#[tokio::test]
async fn a_message_during_a_tool_call_comes_after_its_result() {
    let scenario = ModeScenario::with_lines([call_line("slow"), "Done.".into()])
        .at_moment(runs_moment("slow"), say_act("hurry up"));
    check_both("said_while_running", &scenario.run("look").on_sqlite()).await;
}

#[tokio::test]
async fn a_message_during_a_model_request_is_in_the_next_request() {
    let scenario = ModeScenario::with_lines(["First.", "Second."])
        .at_moment(ActMoment::Asked(0), say_act("and also"));
    check_both("said_while_asking", &scenario.run("tell me")).await;
}

#[tokio::test]
async fn a_message_during_a_reply_with_calls_comes_after_their_results() {
    let scenario = ModeScenario::with_lines([call_line("look"), "Done.".into()])
        .at_moment(ActMoment::Asked(0), say_act("quickly"));
    check_both("said_while_asking_for_calls", &scenario.run("look")).await;
}
