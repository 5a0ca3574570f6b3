//! Scenarios in which the model delegates to agents, which have sessions of their own.

use serde_json::json;
use toolgate::{
    Agent, ModelErrorKind, Session,
    models::{Line, Scripted},
};

use crate::{
    parity::check,
    scenario::{Ruling, Scenario, Step},
    stage::{Act, Moment},
    tools::{Regime, registry, specs},
    world::World,
};

fn delegate(task: &str) -> Line {
    Line::new().call("helper", json!({ "task": task }))
}

fn pay() -> Line {
    Line::new().call("ask_pay", json!({ "amount": 5 }))
}

/// An agent that says these lines. Its tools are always run by Toolgate, whoever drives the run that delegates.
fn agent(world: &World, name: &str, lines: &[Line]) -> Agent {
    let tools = registry(Regime::Core, specs(), &world.deeds, &world.stage);
    Agent::new(
        name,
        "Does what it is told.",
        Scripted::new(lines.to_vec()),
        tools,
    )
}

/// A session with an agent that says these lines.
fn with_helper(
    lines: impl IntoIterator<Item = Line>,
    helper: impl IntoIterator<Item = Line>,
) -> Scenario {
    let helper: Vec<Line> = helper.into_iter().collect();
    Scenario::of(lines).setup(move |world, builder| builder.agent(agent(world, "helper", &helper)))
}

#[tokio::test]
async fn an_agent_works_in_a_session_of_its_own_and_its_answer_is_the_result() {
    let scenario = with_helper(
        [
            delegate("look around").call("look", json!({})),
            "Done.".into(),
        ],
        [Line::new().call("look", json!({})), "I saw it.".into()],
    );
    check("agent", &scenario.run("have somebody look")).await;
}

#[tokio::test]
async fn what_an_agent_asks_is_decided_from_the_top() {
    let scenario = with_helper(
        [delegate("pay"), "Done.".into()],
        [pay(), "It is paid.".into()],
    );
    check(
        "agent_approved",
        &scenario.run("pay").decide(0, Ruling::Approve).resume(),
    )
    .await;
}

#[tokio::test]
async fn what_an_agent_asks_is_decided_in_another_process() {
    let scenario = with_helper(
        [delegate("pay"), "Done.".into()],
        [pay(), "It was not to be.".into()],
    );
    let scenario = scenario
        .run("pay")
        .then(Step::Lose)
        .decide(0, Ruling::Deny(Some("too much")))
        .then(Step::Lose);
    check("agent_elsewhere", &scenario.resume().on_sqlite()).await;
}

#[tokio::test]
async fn what_the_agent_of_an_agent_asks_is_decided_from_the_top() {
    let scenario = Scenario::of([delegate("pay"), "Done.".into()]).setup(|world, builder| {
        let payer = agent(world, "payer", &[pay(), "It is paid.".into()]);
        let lines = [
            Line::new().call("payer", json!({ "task": "pay 5" })),
            "I had it paid.".into(),
        ];
        let helper =
            agent(world, "helper", &lines).session(move |builder| builder.agent(payer.clone()));
        builder.agent(helper)
    });
    let scenario = scenario
        .run("pay")
        .then(Step::Lose)
        .decide(0, Ruling::Approve);
    check("agent_of_an_agent", &scenario.resume()).await;
}

#[tokio::test]
async fn two_agents_wait_at_the_same_time_and_each_is_decided_on_alone() {
    let both = delegate("pay")
        .call("helper", json!({ "task": "pay again" }))
        .call("look", json!({}));
    let scenario = with_helper([both, "Done.".into()], [pay(), "I am done.".into()]);
    let scenario = scenario
        .run("pay twice")
        .decide(1, Ruling::Approve)
        .resume();
    check(
        "two_agents",
        &scenario.decide(0, Ruling::Deny(None)).resume(),
    )
    .await;
}

#[tokio::test]
async fn stopping_a_run_stops_its_agents_and_settles_their_calls() {
    let scenario = with_helper(
        [delegate("wait"), "Done.".into()],
        [
            Line::new().call("look", json!({})).call("stops", json!({})),
            "Never said.".into(),
        ],
    );
    let scenario = scenario.at(Moment::Runs("stops".to_owned()), Act::Interrupt);
    crate::parity::check_core("agent_interrupted", &scenario.run("wait").resume()).await;
}

#[tokio::test]
async fn whoever_says_something_else_does_not_want_what_agents_wait_for_either() {
    let scenario = with_helper(
        [delegate("pay"), "As you like.".into()],
        [pay(), "Never said.".into()],
    );
    check("agent_given_up", &scenario.run("pay").run("never mind")).await;
}

#[tokio::test]
async fn an_agent_whose_model_fails_has_failed() {
    let broken = Line::new().fail(ModelErrorKind::Auth, "no key").times(9);
    let scenario = with_helper([delegate("try"), "It did not work.".into()], [broken]);
    check("agent_failed", &scenario.run("try")).await;
}

#[tokio::test]
async fn an_agent_that_uses_up_its_rounds_says_so() {
    let lines = [Line::new().call("look", json!({})), "This is all.".into()];
    let scenario = Scenario::of([delegate("look"), "Done.".into()]).setup(move |world, builder| {
        builder.agent(agent(world, "helper", &lines).session(|builder| builder.max_iterations(1)))
    });
    check("agent_capped", &scenario.run("look")).await;
}

#[tokio::test]
async fn a_session_that_waits_for_answers_waits_for_those_that_agents_need() {
    let scenario = with_helper(
        [delegate("pay"), "Done.".into()],
        [pay(), "It is paid.".into()],
    );
    let mut world = World::new(&scenario, Regime::Core);
    let lines = [pay(), Line::new().say("It is paid.")];
    let waiting = Scenario::of([delegate("pay"), "Done.".into()]).setup(move |world, builder| {
        builder
            .agent(agent(world, "helper", &lines))
            .wait_for_answers()
    });
    let session: Session = world.process(&waiting).await;
    let mut events = session.bus().subscribe();
    let decided = async {
        while let Some(delivery) = events.next().await {
            let toolgate::Delivery::Event(event) = delivery else {
                continue;
            };
            if let Some((_, toolgate::ToolEvent::ToolApprovalRequested(request))) = event.as_tool()
            {
                session
                    .decide(&**request, toolgate::Decision::approve("ann"))
                    .await
                    .expect("is taken");
                break;
            }
        }
    };
    let (report, ()) = tokio::join!(session.run("pay"), decided);
    assert_eq!(report.expect("runs").text, "Done.");
    assert_eq!(world.deeds.done(), [r#"ask_pay{"amount":5}"#]);
    world.cues.close();
}
