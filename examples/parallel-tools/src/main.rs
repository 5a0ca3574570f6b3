//! A turn with three parallel tools through a stack; its events are printed as they happen.
//!
//! Run it with `cargo run --release -p parallel-tools`. It needs no key and no network: the "model" is the
//! list of calls at the top of `main`.

use std::time::Duration;

use toolgate::{
    approval::ApprovalRequest,
    event::{BusDelivery, ToolEvent},
    prelude::*,
    session::TurnRequest,
    stack::{Progress, ToolRequest, observe},
    tool::Context,
};

/// Counts the words of a text.
#[tool(read_only, idempotent)]
async fn count_words(
    /// The text to count in.
    text: String,
) -> usize {
    text.split_whitespace().count()
}

/// Adds up numbers, slowly, to show progress.
#[tool(side_effect = "none", idempotent, long_running = "Adding up")]
async fn add_up(
    /// The numbers to add up.
    numbers: Vec<f64>,
    cx: &Context,
) -> Result<f64, ToolError> {
    let mut sum = 0.0;
    for (done, number) in (1..).zip(&numbers) {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(20)) => sum += number,
            () = cx.cancelled() => return Err(ToolError::cancelled()),
        }
        cx.report_progress(Progress::fraction(done, numbers.len() as u64));
    }
    Ok(sum)
}

/// Writes a note to the project's notebook.
#[tool(kind = "edit", side_effect = "workspace_write", resource = "page")]
async fn write_note(
    /// The page to write on.
    page: String,
    /// The text to write.
    text: String,
) -> String {
    format!("wrote {} characters on {page}", text.len())
}

/// An approver who reads each request and approves it.
struct Ann;

impl Approver for Ann {
    async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
        println!(
            "        ? approval request for ann: {} {}",
            request.reason.unwrap_or_default(),
            request.arguments.as_json()
        );
        Some(Decision::approve("ann"))
    }
}

/// Renders one event as one line.
fn print_event(event: &Event) {
    let Some((invocation, what)) = event.as_tool() else {
        return println!("{:>3}     {}", event.sequence(), event.name());
    };
    let detail = match what {
        ToolEvent::ToolExecutionProgress { progress } => {
            format!("{:.0} %", progress.percent().unwrap_or_default())
        }
        ToolEvent::ToolExecutionSucceeded {
            result: Some(result),
            ..
        } => result.to_string(),
        ToolEvent::ToolExecutionFailed { error, .. } => error.clone(),
        ToolEvent::ToolApproved { approver, .. } => format!("by {approver}"),
        ToolEvent::ToolDenied { error, reason, .. } => {
            error.clone().or(reason.clone()).unwrap_or_default()
        }
        _ => String::new(),
    };
    println!(
        "{:>3}     #{} {:<12} {:<26} {detail}",
        event.sequence(),
        invocation.emit_order,
        invocation.tool,
        event.name()
    );
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The calls of one model message: three valid ones, and one to a tool that does not exist.
    let calls = vec![
        ToolRequest::from_json(
            "call_1",
            "add_up",
            serde_json::json!({ "numbers": [1.5, 2.5, 3.0, 4.0] }),
        ),
        ToolRequest::from_json(
            "call_2",
            "count_words",
            serde_json::json!({ "text": "one gate for every call" }),
        ),
        ToolRequest::from_json(
            "call_3",
            "write_note",
            serde_json::json!({ "page": "today", "text": "It works." }),
        ),
        ToolRequest::from_json(
            "call_4",
            "count_wrods",
            serde_json::json!({ "text": "typo" }),
        ),
    ];

    let print_status = observe(|call: &Call, outcome: &Outcome| {
        let status = outcome
            .status()
            .map_or("suspended".to_owned(), |status| status.to_string());
        println!("        | {} left the stack: {status}", call.tool);
    });
    // By default, tools that only read run at once, and all others need an approval.
    let gate = Gate::builder()
        .in_memory()?
        .layer(print_status)
        .approver(Ann)
        .tool(count_words)
        .tool(add_up)
        .tool(write_note)
        .build()?;
    let dispatcher = gate.dispatcher(None).await?;
    let screen = dispatcher.bus().attach(|delivery| match delivery {
        BusDelivery::Event(event) => print_event(&event),
        BusDelivery::Piece(_) => {}
        BusDelivery::Lagged(missed) => println!("        … missed {missed} events"),
    });

    let turn = dispatcher
        .open_turn(TurnRequest::new(gate.view()?, calls).agent("main", "Main"))
        .await?;
    let report = turn.run().await?;

    // The screen runs in its own task; wait until it has printed everything.
    screen.finish().await;
    println!("\nThe results for the model, in the order of its calls:");
    for result in &report.results {
        let text = result
            .outcome
            .as_ref()
            .map(|outcome| outcome.model_text().into_owned())
            .unwrap_or_default();
        println!(
            "  {:<8} {:<12} {:<16} {text}",
            result.call_id,
            result.tool,
            result.status().map_or("", Status::as_str)
        );
    }
    Ok(())
}
