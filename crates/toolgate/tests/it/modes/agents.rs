//! Scenarios in which the model delegates to agents, which have sessions of their own.

use serde_json::json;
use toolgate::{
    Agent, Session,
    model::{ModelErrorKind, ScriptLine, ScriptedModel},
    session::RunOptions,
};

use crate::modes::{
    parity::check_both,
    scenario::{ModeScenario, ScenarioDecision, ScenarioStep},
    stage::{ActMoment, UserAct},
    tools::{RunMode, build_registry, tool_specs},
    world::ModeWorld,
};

fn delegate_line(task: &str) -> ScriptLine {
    ScriptLine::new().call("helper", json!({ "task": task }))
}

fn pay_line() -> ScriptLine {
    ScriptLine::new().call("ask_pay", json!({ "amount": 5 }))
}

/// Builds an agent that replies with these lines. Toolgate executes its tools, also in a
/// host-driven run.
fn build_agent(world: &ModeWorld, name: &str, lines: &[ScriptLine]) -> Agent {
    let tools = build_registry(RunMode::Managed, tool_specs(), &world.deeds, &world.stage);
    Agent::new(
        name,
        "Does what it is told.",
        ScriptedModel::new(lines.to_vec()),
        tools,
    )
}

/// Builds a session with an agent that replies with these lines.
fn with_helper(
    lines: impl IntoIterator<Item = ScriptLine>,
    helper: impl IntoIterator<Item = ScriptLine>,
) -> ModeScenario {
    let helper: Vec<ScriptLine> = helper.into_iter().collect();
    ModeScenario::with_lines(lines)
        .setup(move |world, builder| builder.agent(build_agent(world, "helper", &helper)))
}

#[tokio::test]
async fn an_agent_works_in_a_session_of_its_own_and_its_answer_is_the_result() {
    let scenario = with_helper(
        [
            delegate_line("look around").call("look", json!({})),
            "Done.".into(),
        ],
        [
            ScriptLine::new().call("look", json!({})),
            "I saw it.".into(),
        ],
    );
    check_both("agent", &scenario.run("have somebody look")).await;
}

#[tokio::test]
async fn approval_requests_of_an_agent_are_decided_in_the_root_session() {
    let scenario = with_helper(
        [delegate_line("pay"), "Done.".into()],
        [pay_line(), "It is paid.".into()],
    );
    check_both(
        "agent_approved",
        &scenario
            .run("pay")
            .decide(0, ScenarioDecision::Approve)
            .resume(),
    )
    .await;
}

#[tokio::test]
async fn approval_requests_of_an_agent_are_decided_in_another_process() {
    let scenario = with_helper(
        [delegate_line("pay"), "Done.".into()],
        [pay_line(), "It was not to be.".into()],
    );
    let scenario = scenario
        .run("pay")
        .then(ScenarioStep::Lose)
        .decide(0, ScenarioDecision::Deny(Some("too much")))
        .then(ScenarioStep::Lose);
    check_both("agent_elsewhere", &scenario.resume().on_sqlite()).await;
}

#[tokio::test]
async fn approval_requests_of_a_nested_agent_are_decided_in_the_root_session() {
    let scenario =
        ModeScenario::with_lines([delegate_line("pay"), "Done.".into()]).setup(|world, builder| {
            let payer = build_agent(world, "payer", &[pay_line(), "It is paid.".into()]);
            let lines = [
                ScriptLine::new().call("payer", json!({ "task": "pay 5" })),
                "I had it paid.".into(),
            ];
            let helper = build_agent(world, "helper", &lines)
                .session(move |builder| builder.agent(payer.clone()));
            builder.agent(helper)
        });
    let scenario = scenario
        .run("pay")
        .then(ScenarioStep::Lose)
        .decide(0, ScenarioDecision::Approve);
    check_both("agent_of_an_agent", &scenario.resume()).await;
}

#[tokio::test]
async fn two_agents_wait_at_the_same_time_and_each_is_decided_on_alone() {
    let both = delegate_line("pay")
        .call("helper", json!({ "task": "pay again" }))
        .call("look", json!({}));
    let scenario = with_helper([both, "Done.".into()], [pay_line(), "I am done.".into()]);
    let scenario = scenario
        .run("pay twice")
        .decide(1, ScenarioDecision::Approve)
        .resume();
    check_both(
        "two_agents",
        &scenario.decide(0, ScenarioDecision::Deny(None)).resume(),
    )
    .await;
}

#[tokio::test]
async fn stopping_a_run_stops_its_agents_and_settles_their_calls() {
    let scenario = with_helper(
        [delegate_line("wait"), "Done.".into()],
        [
            ScriptLine::new()
                .call("look", json!({}))
                .call("stops", json!({})),
            "Never said.".into(),
        ],
    );
    let scenario = scenario.at_moment(ActMoment::Runs("stops".to_owned()), UserAct::Interrupt);
    crate::modes::parity::check_managed("agent_interrupted", &scenario.run("wait").resume()).await;
}

#[tokio::test]
async fn a_new_message_that_abandons_them_cancels_the_pending_calls_of_agents() {
    let scenario = with_helper(
        [delegate_line("pay"), "As you like.".into()],
        [pay_line(), "Never said.".into()],
    );
    let scenario = scenario
        .run("pay")
        .run_with("never mind", |_| RunOptions::new().abandon_pending());
    check_both("agent_given_up", &scenario).await;
}

#[tokio::test]
async fn an_agent_whose_model_fails_has_failed() {
    let broken = ScriptLine::new()
        .fail(ModelErrorKind::Auth, "no key")
        .times(9);
    let scenario = with_helper([delegate_line("try"), "It did not work.".into()], [broken]);
    check_both("agent_failed", &scenario.run("try")).await;
}

#[tokio::test]
async fn an_agent_that_reaches_its_iteration_limit_reports_it() {
    let lines = [
        ScriptLine::new().call("look", json!({})),
        "This is all.".into(),
    ];
    let scenario = ModeScenario::with_lines([delegate_line("look"), "Done.".into()]).setup(
        move |world, builder| {
            builder.agent(
                build_agent(world, "helper", &lines).session(|builder| builder.max_iterations(1)),
            )
        },
    );
    check_both("agent_capped", &scenario.run("look")).await;
}

#[tokio::test]
async fn a_session_that_waits_for_answers_waits_for_those_that_agents_need() {
    let scenario = with_helper(
        [delegate_line("pay"), "Done.".into()],
        [pay_line(), "It is paid.".into()],
    );
    let mut world = ModeWorld::new(&scenario, RunMode::Managed);
    let lines = [pay_line(), ScriptLine::new().say("It is paid.")];
    let waiting = ModeScenario::with_lines([delegate_line("pay"), "Done.".into()]).setup(
        move |world, builder| {
            builder
                .agent(build_agent(world, "helper", &lines))
                .wait_for_answers()
        },
    );
    let session: Session = world.open_session(&waiting).await;
    let mut events = session.bus().subscribe();
    let decided = async {
        while let Some(delivery) = events.next().await {
            let toolgate::event::BusDelivery::Event(event) = delivery else {
                continue;
            };
            if let Some((_, toolgate::event::ToolEvent::ToolApprovalRequested(request))) =
                event.as_tool()
            {
                session
                    .decide(&**request, toolgate::Decision::approve("ann"))
                    .await
                    .expect("is accepted");
                break;
            }
        }
    };
    let (report, ()) = tokio::join!(session.run("pay"), decided);
    assert_eq!(report.expect("runs").text, "Done.");
    assert_eq!(world.deeds.sorted_effects(), [r#"ask_pay{"amount":5}"#]);
    world.cues.close();
}
