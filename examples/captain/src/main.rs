//! The governance recipe for an agent that acts on its own: every call is recorded, explained and
//! limited, changes need approval, secrets are redacted, handoffs become records, and some tools run
//! as a dry run.
//!
//! Run it with `cargo run --release -p captain`. The stack is in `captain.toml`; the "model" is the list of calls.

use serde_json::json;
use toolgate::{
    approval::ApprovalRequest,
    layers::{HandoffRecord, HandoffSink, MemoryReceipts, Receipt, lint},
    prelude::*,
    session::TurnRequest,
    stack::ToolRequest,
};

/// Searches the ship's log.
#[tool(read_only, idempotent, kind = "search")]
async fn search_log(
    /// The text to search for.
    query: String,
) -> String {
    format!("2 entries about {query}; the harbour key is ghp_0123456789abcdefghijABCDEFGHIJ012345")
}

/// Changes the course.
#[tool(kind = "edit", side_effect = "workspace_write")]
async fn set_course(
    /// Degrees from north.
    degrees: u32,
) -> String {
    format!("steering {degrees}")
}

/// Hands the watch over to another agent.
#[tool(read_only, idempotent)]
async fn relieve_watch(
    /// The agent that takes over.
    officer: String,
) -> serde_json::Value {
    json!({ "handoff": {
        "target": officer, "task": "keep the course until dawn", "policy_override": { "allowed_tools": ["search_log"] },
    } })
}

/// Wakes the crew. In this stack that is a dry run.
#[tool(kind = "execute", side_effect = "process_exec")]
async fn page_crew() -> String {
    unreachable!("the stack answers with a dry run")
}

/// The approver: approves small changes of course, and every call that changes no course.
struct Owner;

impl Approver for Owner {
    async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
        let degrees = request
            .arguments
            .get("degrees")
            .and_then(|value| value.as_u64());
        Some(match degrees {
            Some(0..=30) => Decision::approve("owner"),
            Some(_) => Decision::deny("owner", Some("no more than 30 degrees without me on board")),
            None => Decision::approve("owner"),
        })
    }
}

fn scripted_calls() -> Vec<ToolRequest> {
    [
        (
            "search_log",
            r#"{"query":"reefs","reason":"to find out what lies ahead"}"#,
        ),
        (
            "search_log",
            r#"{"query":"reefs","reason":"to find out what lies ahead"}"#,
        ),
        (
            "set_course",
            r#"{"degrees":20,"reason":"to pass the reef on the lee side"}"#,
        ),
        ("set_course", r#"{"degrees":90,"reason":"to go home"}"#),
        ("set_course", r#"{"degrees":10}"#),
        ("page_crew", r#"{"reason":"to trim the sails"}"#),
        (
            "relieve_watch",
            r#"{"officer":"mate","reason":"it is midnight"}"#,
        ),
        (
            "search_log",
            r#"{"query":"weather","reason":"to plan the next day"}"#,
        ),
    ]
    .iter()
    .enumerate()
    .map(|(n, (tool, arguments))| ToolRequest::from_text(&format!("call_{n}"), tool, arguments))
    .collect()
}

fn print_receipt(receipt: &Receipt) {
    let consent = receipt
        .consent
        .as_ref()
        .map_or_else(String::new, |consent| {
            format!(", {} by {}", consent.decision, consent.decided_by)
        });
    let summary = receipt.summary.as_deref().unwrap_or("(no reason given)");
    println!(
        "  {:<14} {:<16} {summary}{consent}",
        receipt.tool_name, receipt.status
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Callbacks cannot be written in a file, so they are passed as resources.
    let handoff = HandoffSink::new(|record: &HandoffRecord, _: &Call| {
        println!("handed over to {:?}: {:?}", record.target, record.task)
    });
    let gate = Gate::builder()
        .in_memory()?
        .config_file(concat!(env!("CARGO_MANIFEST_DIR"), "/captain.toml"))
        .resource(handoff)
        .approver(Owner)
        .max_concurrent(1)
        .tool(search_log)
        .tool(set_course)
        .tool(relieve_watch)
        .tool(page_crew)
        .build()?;
    let deadline = gate.configuration().stack().turn_deadline;
    for finding in lint(&gate.stack().any_layers(), deadline.map(|span| span.get())) {
        println!("warning: {finding}");
    }

    println!("explanation of a change of course:");
    let arguments = json!({ "degrees": 90, "reason": "to see what would happen" });
    println!("{}\n", gate.explain("set_course", arguments).await?);

    let turn = TurnRequest::new(gate.view()?, scripted_calls());
    let dispatcher = gate.dispatcher(None).await?;
    let report = dispatcher.open_turn(turn).await?.run().await?;

    println!("\nresults for the model:");
    for result in &report.results {
        println!(
            "  {:<14} {}",
            result.tool,
            result.model_text().unwrap_or_default()
        );
    }
    println!("\nreceipts:");
    gate.resources()
        .get_or_default::<MemoryReceipts>()
        .receipts()
        .iter()
        .for_each(|receipt| print_receipt(receipt));
    Ok(())
}
