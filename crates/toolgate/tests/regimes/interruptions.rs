//! Scenarios in which somebody stops a run, or says something while it goes on.

use serde_json::json;
use toolgate::models::Line;

use crate::{
    parity::{check, check_core},
    scenario::{Scenario, Step},
    stage::{Act, Moment},
};

/// Whoever runs a tool stops it, and the layer that does so for Toolgate has words of its own for that.
const NOBODY_STOPS_IT: &str = "[layers.timeout]\nenabled = false\n";

fn call(tool: &str) -> Line {
    Line::new().call(tool, json!({}))
}

fn runs(tool: &str) -> Moment {
    Moment::Runs(tool.to_owned())
}

fn say(text: &str) -> Act {
    Act::Say(text.to_owned())
}

#[tokio::test]
async fn a_run_is_stopped_while_the_model_is_asked() {
    let scenario =
        Scenario::of([call("look"), "Done.".into()]).at(Moment::Asked(1), Act::Interrupt);
    check("interrupted_while_asking", &scenario.run("look").resume()).await;
}

#[tokio::test]
async fn a_run_is_stopped_while_a_tool_runs_and_finished_results_are_kept() {
    let first = Line::new()
        .call("look", json!({}))
        .call("hang", json!({}))
        .call("look", json!({}));
    let scenario = Scenario::of([first, "Done.".into()]).at(runs("hang"), Act::Interrupt);
    let scenario =
        scenario.setup(|_, builder| builder.dispatcher(|dispatcher| dispatcher.max_concurrent(1)));
    let scenario = scenario.config(NOBODY_STOPS_IT).ticking();
    check("interrupted_while_running", &scenario.run("look").resume()).await;
}

#[tokio::test]
async fn work_that_writes_and_was_stopped_may_have_taken_effect() {
    let scenario = Scenario::of([call("hang_writing"), "Done.".into()])
        .at(runs("hang_writing"), Act::Interrupt);
    let scenario = scenario.config(NOBODY_STOPS_IT).ticking();
    check("interrupted_while_writing", &scenario.run("write").resume()).await;
}

#[tokio::test]
async fn work_that_stops_when_it_is_told_to_is_cancelled() {
    let scenario = Scenario::of([call("stops"), "Done.".into()]).at(runs("stops"), Act::Interrupt);
    // A host that is stopped cannot say any more that its tool has, too.
    check_core("interrupted_and_stopped", &scenario.run("write").resume()).await;
}

#[tokio::test]
async fn a_run_is_stopped_while_it_waits_for_a_decision() {
    let first = Line::new()
        .call("look", json!({}))
        .call("ask_pay", json!({ "amount": 1 }));
    let scenario = Scenario::of([first, "Done.".into()]).at(Moment::Waits, Act::Interrupt);
    let scenario = scenario.setup(|_, builder| builder.wait_for_answers());
    check("interrupted_while_waiting", &scenario.run("pay").resume()).await;
}

#[tokio::test]
async fn a_suspended_session_is_stopped() {
    let first = Line::new()
        .call("look", json!({}))
        .call("ask_pay", json!({ "amount": 1 }));
    let scenario = Scenario::of([first, "Done.".into()])
        .run("pay")
        .then(Step::Stop);
    check("interrupted_while_suspended", &scenario.resume().resume()).await;
}

#[tokio::test]
async fn what_is_said_while_a_tool_runs_comes_after_its_result() {
    let scenario = Scenario::of([call("slow"), "Done.".into()]).at(runs("slow"), say("hurry up"));
    check("said_while_running", &scenario.run("look").on_sqlite()).await;
}

#[tokio::test]
async fn what_is_said_while_the_model_is_asked_is_read_the_next_time() {
    let scenario = Scenario::of(["First.", "Second."]).at(Moment::Asked(0), say("and also"));
    check("said_while_asking", &scenario.run("tell me")).await;
}

#[tokio::test]
async fn what_is_said_while_the_model_asks_for_calls_comes_after_their_results() {
    let scenario =
        Scenario::of([call("look"), "Done.".into()]).at(Moment::Asked(0), say("quickly"));
    check("said_while_asking_for_calls", &scenario.run("look")).await;
}
