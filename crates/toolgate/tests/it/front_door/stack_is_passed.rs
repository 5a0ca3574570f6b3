//! Whatever a program does with a gate, a tool runs only below its stack.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;
use serde_json::json;
use toolgate::{
    Agent, Band, Gate, Layer, Next, Registry, from_fn,
    gate::ApproveMode,
    model::{ScriptLine, ScriptedModel},
    prelude::*,
    session::{RunOptions, TurnRequest},
    stack::ToolRequest,
    tool::Context,
    value::CallId,
};

/// The calls that a layer of the gate saw, and the calls that ran.
#[derive(Clone, Default)]
struct Witness {
    passed: Arc<Mutex<BTreeSet<CallId>>>,
    ran: Arc<Mutex<BTreeSet<CallId>>>,
}

impl Witness {
    /// Returns a layer that records the calls which pass it.
    fn layer(&self) -> impl Layer {
        let passed = self.passed.clone();
        let layer = from_fn(move |call: Call, next: Next| {
            passed.lock().expect("not poisoned").insert(call.id);
            next.run(call)
        });
        layer.named("witness").in_band(Band::Bound)
    }

    /// Returns a tool that records the calls which run.
    fn tool(&self, name: &'static str) -> impl Tool {
        let ran = self.ran.clone();
        tool_fn(
            name,
            "Does something.",
            move |_: Nothing, context: Context| {
                ran.lock().expect("not poisoned").insert(context.id);
                async { Ok::<_, ToolError>("done") }
            },
        )
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Something that a program can do with a gate.
#[derive(Debug, Clone, Copy)]
enum Step {
    Run,
    RunWithOwnTool,
    RunWithOwnLayer,
    RunNarrowed,
    Delegate,
    Turn,
    Armed,
    Explain,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Run),
        Just(Step::RunWithOwnTool),
        Just(Step::RunWithOwnLayer),
        Just(Step::RunNarrowed),
        Just(Step::Delegate),
        Just(Step::Turn),
        Just(Step::Armed),
        Just(Step::Explain),
    ]
}

fn calls(tool: &str) -> ScriptedModel {
    let arguments = match tool {
        "helper" => json!({ "task": "do it" }),
        _ => json!({}),
    };
    ScriptedModel::new([
        ScriptLine::new().call(tool, arguments),
        ScriptLine::new().say("Done."),
    ])
}

async fn take_step(gate: &Gate, witness: &Witness, step: Step) -> toolgate::Result<()> {
    match step {
        Step::Run => drop(gate.session(calls("work")).await?.run("Go.").await?),
        Step::RunWithOwnTool => {
            let own = Registry::new();
            own.register(witness.tool("own"))?;
            let session = gate.session(calls("own")).await?;
            session
                .run_with("Go.", RunOptions::new().tools(own))
                .await?;
        }
        Step::RunWithOwnLayer => {
            let plain = from_fn(|call: Call, next: Next| next.run(call)).named("plain");
            let session = gate.session(calls("work")).await?;
            session
                .run_with("Go.", RunOptions::new().layer(plain))
                .await?;
        }
        Step::RunNarrowed => {
            let session = gate.session(calls("work")).await?;
            session
                .run_with("Go.", RunOptions::new().allow(["read_output"]))
                .await?;
        }
        Step::Delegate => {
            let own = Registry::new();
            own.register(witness.tool("work"))?;
            let agent = Agent::new("helper", "Helps.", calls("work"), own);
            let builder = gate.session_builder(calls("helper"))?.agent(agent);
            builder.build().await?.run("Go.").await?;
        }
        Step::Turn => {
            let request = ToolRequest::from_json("", "work", json!({}));
            let turn = TurnRequest::new(gate.view()?, vec![request]);
            gate.dispatcher(None)
                .await?
                .open_turn(turn)
                .await?
                .run()
                .await?;
        }
        Step::Armed => {
            let session = gate.host_session_builder()?.build().await?;
            for tool in session.arm_tools(RunOptions::new()).await?.tools() {
                if tool.spec().name.as_str() == "work" {
                    let _ = tool.call("", "{}").await;
                }
            }
        }
        Step::Explain => drop(gate.explain("work", json!({})).await?),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_tool_runs_only_below_the_stack_of_the_gate(
        steps in proptest::collection::vec(any_step(), 1..5),
        approve in prop_oneof![Just(ApproveMode::Yes), Just(ApproveMode::Never), Just(ApproveMode::AutoRead)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("starts").block_on(async {
            let witness = Witness::default();
            let gate = Gate::builder().in_memory().expect("keys").approve(approve);
            let gate = gate.layer(witness.layer()).tool(witness.tool("work"));
            let gate = gate.build().expect("builds");
            for step in &steps {
                take_step(&gate, &witness, *step).await.expect("the step is possible");
            }
            let ran = witness.ran.lock().expect("not poisoned").clone();
            let passed = witness.passed.lock().expect("not poisoned").clone();
            prop_assert!(ran.is_subset(&passed), "{steps:?}");
            let runs = steps.iter().any(|step| !matches!(step, Step::Explain | Step::RunNarrowed));
            prop_assert_eq!(!ran.is_empty(), runs && approve == ApproveMode::Yes, "{:?}", steps);
            Ok(())
        })?;
    }
}
