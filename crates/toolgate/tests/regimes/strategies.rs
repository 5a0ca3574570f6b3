//! Scenarios in which a strategy has a say.

use futures::future::BoxFuture;
use serde_json::json;
use toolgate::{LoopEvent, Onward, Round, Status, Strategy, StrategyError, Turned, models::Line};

use crate::{
    parity::{check, check_apart_from_ends},
    scenario::{Ruling, Scenario, Step},
};

/// Finishes when something was noted, refunds a look, and fails when something fails.
struct Notes;

impl Strategy for Notes {
    fn prepare<'a>(&'a self, round: &'a mut Round<'_>) -> BoxFuture<'a, Result<(), StrategyError>> {
        let instructions = format!("This is round {}.", round.iteration);
        round.request.instructions = Some(instructions.into());
        Box::pin(std::future::ready(Ok(())))
    }

    fn settled<'a>(
        &'a self,
        turned: &'a mut Turned<'_>,
    ) -> BoxFuture<'a, Result<Onward, StrategyError>> {
        let results = &turned.report.results;
        let of = |tool: &str| results.iter().find(|result| result.tool == tool);
        let onward = match (of("note"), of("look"), of("fail")) {
            (_, _, Some(_)) => Err(StrategyError("it cannot go on".to_owned())),
            (Some(note), _, _) if note.status() == Some(Status::Ok) => {
                Ok(Onward::Finish("It is noted.".to_owned()))
            }
            (_, Some(_), _) => {
                let event = LoopEvent::SkillLoaded {
                    skill: "looking".to_owned(),
                    refunded: true,
                };
                turned.events.push(event);
                Ok(Onward::Refund)
            }
            _ => Ok(Onward::Continue),
        };
        Box::pin(std::future::ready(onward))
    }
}

fn with_strategy(lines: impl IntoIterator<Item = Line>) -> Scenario {
    Scenario::of(lines).setup(|_, builder| builder.strategy(Notes).max_iterations(2))
}

fn call(tool: &str) -> Line {
    Line::new().call(tool, json!({}))
}

#[tokio::test]
async fn a_strategy_can_finish_a_run_with_an_answer_of_its_own() {
    let note = Line::new().call("note", json!({ "text": "a" }));
    let scenario = with_strategy([note, "Never said.".into()]).run("note it");
    check("strategy_finishes", &scenario.then(Step::Lose).resume()).await;
}

#[tokio::test]
async fn a_round_that_a_strategy_gives_back_is_not_counted() {
    let lines = [
        call("look"),
        call("look"),
        Line::new().call("read", json!({ "path": "a" })),
        "Done.".into(),
    ];
    check("strategy_refunds", &with_strategy(lines).run("look")).await;
}

#[tokio::test]
async fn a_strategy_that_fails_ends_the_run_and_can_be_resumed() {
    let scenario = with_strategy([call("fail"), "Done.".into()]).run("try");
    let scenario = scenario.run("something else");
    // A host is told at once, as an error of its step.
    check_apart_from_ends("strategy_fails", &scenario).await;
}

#[tokio::test]
async fn a_strategy_has_no_say_in_what_is_given_up() {
    let pays = Line::new()
        .call("ask_pay", json!({ "amount": 1 }))
        .call("note", json!({ "text": "a" }));
    let scenario = with_strategy([pays, "As you like.".into()])
        .run("pay and note")
        .run("never mind");
    check("strategy_has_no_say", &scenario).await;
}

#[tokio::test]
async fn a_strategy_knows_the_round_of_a_turn_that_is_taken_up_again() {
    let pay = Line::new().call("ask_pay", json!({ "amount": 1 }));
    let scenario = with_strategy([pay, "Done.".into()])
        .run("pay")
        .decide(0, Ruling::Approve)
        .resume();
    check("strategy_resumed", &scenario).await;
}
