//! A model that learns the rules of a task from a skill, lets another agent look things up, and may
//! call a tool only after it has read the rules.
//!
//! Run it with `cargo run --release -p agents-and-skills`. It needs no key and no network: the
//! models are scripts. The skill is in `skills/refunds/SKILL.md`.

use serde_json::json;
use toolgate::{
    Agent,
    approval::FixedApprover,
    event::{BusDelivery, ToolEvent},
    model::{ScriptLine, ScriptedModel},
    prelude::*,
    session::Skills,
};

/// The directory with the skills.
const SKILLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/skills");

/// Lists the payments of a customer.
#[tool(read_only)]
async fn list_payments(customer: String) -> String {
    format!("{customer} paid 20 on Monday and 20 on Monday")
}

/// Sends money back.
#[tool(side_effect = "network")]
async fn refund(customer: String, amount: u32) -> String {
    format!("sent {amount} to {customer}")
}

/// The agent that looks things up: its own model and its own tools, under the layers of the gate.
fn clerk() -> toolgate::Result<Agent> {
    let tools = Registry::new();
    tools.register(list_payments)?;
    let model = ScriptedModel::new([
        ScriptLine::new().call("list_payments", json!({ "customer": "Ann" })),
        ScriptLine::new().say("Ann paid 20 twice on Monday."),
    ]);
    let agent = Agent::new("clerk", "Finds out what customers paid.", model, tools);
    Ok(agent.session(|session| {
        session
            .instructions("Look it up, do not guess.")
            .max_iterations(5)
    }))
}

/// The model of the run. It tries to refund at once, which it cannot: the tool is not shown yet.
fn assistant() -> ScriptedModel {
    let read_limits = json!({ "skill": "refunds", "path": "references/limits.md" });
    ScriptedModel::new([
        ScriptLine::new().call("refund", json!({ "customer": "Ann", "amount": 20 })),
        ScriptLine::new().call("load_skill", json!({ "name": "refunds" })),
        ScriptLine::new()
            .call("load_reference", read_limits)
            .call("clerk", json!({ "task": "What did Ann pay this week?" })),
        ScriptLine::new().call("refund", json!({ "customer": "Ann", "amount": 20 })),
        ScriptLine::new().say("Ann paid twice and has her 20 back."),
    ])
}

/// Prints how calls end, of the run and of its agents.
fn print_end(event: &Event) {
    let Some((call, what)) = event.as_tool() else {
        return;
    };
    let text = match what {
        ToolEvent::ToolExecutionSucceeded { result, .. } => match result {
            Some(result) => result.to_string(),
            None => String::new(),
        },
        ToolEvent::ToolExecutionFailed { error, .. } => error.clone(),
        ToolEvent::ToolDenied { error, reason, .. } => {
            error.clone().or(reason.clone()).unwrap_or_default()
        }
        _ => return,
    };
    println!("   {:<16} {text}", call.tool.as_str());
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> toolgate::Result<()> {
    let carol = FixedApprover::new(Decision::approve("carol"));
    let found = Skills::discover([SKILLS]);
    for problem in &found.problems {
        println!("warning: {problem}");
    }
    // Until a skill that names it is loaded, the model is not shown this tool.
    let skills = found.skills.hold_back(["refund"]);
    let gate = Gate::in_memory()?.tool(refund)?.approver(carol);
    let gate = gate.install(|registry| skills.install(registry))?;

    let builder = gate.session_builder(assistant())?;
    let session = builder.agent(clerk()?).strategy(skills).build().await?;
    let screen = session.bus().attach(|delivery| {
        if let BusDelivery::Event(event) = delivery {
            print_end(&event);
        }
    });
    println!("the calls, and how they ended:");
    let report = session
        .run("Ann wants her money back.")
        .await?
        .completed()?;
    screen.finish().await;
    println!("the answer: {}", report.text);

    println!("the receipts:");
    for sealed in gate
        .ledger()
        .list_receipts(&Default::default())
        .await?
        .receipts
    {
        println!(
            "   {:<16} {}",
            sealed.receipt.tool_name.as_str(),
            sealed.receipt.status
        );
    }
    Ok(())
}
