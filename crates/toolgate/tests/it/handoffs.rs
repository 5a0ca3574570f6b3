//! Handoffs to agents: the limits of a handoff hold for the work of its target.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use toolgate::{
    Agent, Config, Gate, RunEnd, Session,
    model::{ScriptLine, ScriptedModel},
    prelude::*,
    tool::tool_fn,
};

type Ran = Arc<Mutex<Vec<String>>>;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Returns a tool that logs that it ran.
fn logging_tool(name: &'static str, effect: SideEffect, ran: &Ran) -> impl Tool {
    let ran = ran.clone();
    let annotations = Annotations::default().with_side_effect(effect);
    tool_fn(name, "Does it.", move |_: Nothing, _| {
        ran.lock().expect("whole").push(name.to_owned());
        async { Ok::<_, ToolError>("done") }
    })
    .with_annotations(annotations)
}

/// Opens a session whose tool `triage` hands over to the agent `helper` with these limits. The model
/// calls it, if it does, and then delegates; the agent calls all its tools, twice.
async fn open_session(limits: Option<Value>, hands_over: bool, config: &str, ran: &Ran) -> Session {
    let handoff = json!({ "target": "helper", "task": "look at it", "policy_override": limits });
    let triage = tool_fn("triage", "Hands over.", move |_: Nothing, _| {
        let handoff = handoff.clone();
        async move { Ok::<_, ToolError>(json!({ "handoff": handoff })) }
    })
    .with_annotations(Annotations::read_only());
    let text = format!("[layers.handoff]\n{config}");
    let catalog = toolgate::gate::gate_catalog();
    let config = Config::parse_with_catalog("toolgate.toml", &text, catalog).expect("valid");
    let gate = Gate::builder().in_memory().expect("keys").config(config);
    let gate = gate.tool(triage).build().expect("builds");
    let tools = Registry::new();
    for (name, effect) in [("look", SideEffect::ReadOnly), ("think", SideEffect::None)] {
        tools
            .register(logging_tool(name, effect, ran))
            .expect("free");
    }
    let all = || {
        ScriptLine::new()
            .call("look", json!({}))
            .call("think", json!({}))
    };
    let helper = ScriptedModel::new([all(), all(), "I did what I could.".into()]).in_order();
    let helper = Agent::new("helper", "Helps.", helper, tools);
    let mut lines = vec![
        ScriptLine::new().call("helper", json!({ "task": "look at it" })),
        "Done.".into(),
    ];
    if hands_over {
        lines.insert(0, ScriptLine::new().call("triage", json!({})));
    }
    let builder = gate.session_builder(ScriptedModel::new(lines).in_order());
    let builder = builder.expect("opens").agent(helper);
    builder.build().await.expect("opens")
}

/// Runs the session to its end and returns the tools that the agent ran.
async fn run_tools(limits: Option<Value>, hands_over: bool, config: &str) -> Vec<String> {
    let ran = Ran::default();
    let session = open_session(limits, hands_over, config, &ran).await;
    let report = session.run("Go.").await.expect("ends");
    assert_eq!(report.end, RunEnd::Completed, "{:?}", report.error);
    let ran = ran.lock().expect("whole");
    ran.clone()
}

#[tokio::test]
async fn the_limits_of_a_handoff_hold_for_the_work_of_its_target() {
    let everything = ["look", "think", "look", "think"];
    let thoughts = ["think", "think"];
    for (limits, expected) in [
        (None, &everything[..]),
        (Some(json!({})), &everything),
        (Some(json!({ "allowed_tools": ["think"] })), &thoughts),
        (Some(json!({ "side_effect_level": "none" })), &thoughts),
        (Some(json!({ "allowed_tools": [] })), &[]),
        (Some(json!({ "max_calls": 3 })), &everything[..3]),
        (Some(json!({ "max_calls": 0 })), &[]),
    ] {
        let mut ran = run_tools(limits.clone(), true, "").await;
        let mut expected = expected.to_vec();
        // The calls of one turn run at the same time.
        ran.sort();
        expected.sort_unstable();
        assert_eq!(ran, expected, "{limits:?}");
    }
    let unlimited = run_tools(Some(json!({ "allowed_tools": [] })), false, "").await;
    assert_eq!(unlimited.len(), 4, "nothing was handed over");
}

#[tokio::test]
async fn a_handoff_cannot_allow_what_the_policy_denies() {
    let denied = "[[layers.policy.rules]]\nname = 'shut'\neffect = 'deny'\ntool = 'look'\n";
    let limits = json!({ "allowed_tools": ["look", "think"], "side_effect_level": "network" });
    let ran = run_tools(Some(limits), true, denied).await;
    assert_eq!(ran, ["think", "think"]);
}
