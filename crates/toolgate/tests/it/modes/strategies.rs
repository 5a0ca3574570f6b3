//! Scenarios with a strategy.

use futures::future::BoxFuture;
use serde_json::json;
use toolgate::{
    Status,
    event::SessionEvent,
    model::ScriptLine,
    session::{RequestContext, RunOptions, Strategy, StrategyAction, StrategyError, TurnContext},
};

use crate::modes::{
    parity::{check_apart_from_ends, check_both},
    scenario::{ModeScenario, ScenarioDecision, ScenarioStep},
};

/// A strategy that finishes after `note`, refunds the iteration of `look`, and fails after a
/// failure.
struct NoteStrategy;

impl Strategy for NoteStrategy {
    fn prepare_request<'a>(
        &'a self,
        round: &'a mut RequestContext<'_>,
    ) -> BoxFuture<'a, Result<(), StrategyError>> {
        let instructions = format!("This is round {}.", round.iteration);
        round.request.instructions = Some(instructions.into());
        Box::pin(std::future::ready(Ok(())))
    }

    fn turn_settled<'a>(
        &'a self,
        turned: &'a mut TurnContext<'_>,
    ) -> BoxFuture<'a, Result<StrategyAction, StrategyError>> {
        let results = &turned.report.results;
        let of = |tool: &str| results.iter().find(|result| result.tool == tool);
        let onward = match (of("note"), of("look"), of("fail")) {
            (_, _, Some(_)) => Err(StrategyError("it cannot go on".to_owned())),
            (Some(note), _, _) if note.status() == Some(Status::Ok) => {
                Ok(StrategyAction::Finish("It is noted.".to_owned()))
            }
            (_, Some(_), _) => {
                let event = SessionEvent::SkillLoaded {
                    skill: "looking".to_owned(),
                    refunded: true,
                };
                turned.events.push(event);
                Ok(StrategyAction::Refund)
            }
            _ => Ok(StrategyAction::Continue),
        };
        Box::pin(std::future::ready(onward))
    }
}

fn with_strategy(lines: impl IntoIterator<Item = ScriptLine>) -> ModeScenario {
    ModeScenario::with_lines(lines)
        .setup(|_, builder| builder.strategy(NoteStrategy).max_iterations(2))
}

fn call_line(tool: &str) -> ScriptLine {
    ScriptLine::new().call(tool, json!({}))
}

#[tokio::test]
async fn a_strategy_can_finish_a_run_with_an_answer_of_its_own() {
    let note = ScriptLine::new().call("note", json!({ "text": "a" }));
    let scenario = with_strategy([note, "Never said.".into()]).run("note it");
    check_both(
        "strategy_finishes",
        &scenario.then(ScenarioStep::Lose).resume(),
    )
    .await;
}

#[tokio::test]
async fn a_refunded_iteration_is_not_counted() {
    let lines = [
        call_line("look"),
        call_line("look"),
        ScriptLine::new().call("read", json!({ "path": "a" })),
        "Done.".into(),
    ];
    check_both("strategy_refunds", &with_strategy(lines).run("look")).await;
}

#[tokio::test]
async fn a_strategy_that_fails_ends_the_run_and_can_be_resumed() {
    let scenario = with_strategy([call_line("fail"), "Done.".into()]).run("try");
    let scenario = scenario.run("something else");
    // A host receives the error at once, from its step.
    check_apart_from_ends("strategy_fails", &scenario).await;
}

#[tokio::test]
async fn a_strategy_does_not_see_cancelled_calls() {
    let pays = ScriptLine::new()
        .call("ask_pay", json!({ "amount": 1 }))
        .call("note", json!({ "text": "a" }));
    let scenario = with_strategy([pays, "As you like.".into()])
        .run("pay and note")
        .run_with("never mind", |_| RunOptions::new().abandon_pending());
    check_both("strategy_has_no_say", &scenario).await;
}

#[tokio::test]
async fn a_strategy_knows_the_iteration_of_a_resumed_turn() {
    let pay = ScriptLine::new().call("ask_pay", json!({ "amount": 1 }));
    let scenario = with_strategy([pay, "Done.".into()])
        .run("pay")
        .decide(0, ScenarioDecision::Approve)
        .resume();
    check_both("strategy_resumed", &scenario).await;
}
