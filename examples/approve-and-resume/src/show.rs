//! What people read.

use std::error::Error;

use toolgate::{ApprovalRow, TurnReport};

/// What came of each call, in the order in which the model asked.
pub(crate) fn report(report: &TurnReport) {
    for result in &report.results {
        let said = match result.model_text() {
            Some(text) => text.into_owned(),
            None => "(waits for a decision)".to_owned(),
        };
        let status = result
            .status()
            .map_or_else(|| "waiting".to_owned(), |status| status.to_string());
        println!(
            "{:<8} {:<14} {status:<16} {said}",
            result.call_id, result.tool
        );
    }
}

/// One pending approval in one line.
pub(crate) fn line(row: &ApprovalRow) {
    println!(
        "{} {} {}",
        row.request.approval_id,
        row.request.tool,
        row.request.arguments.as_json()
    );
}

/// Everything a person needs to know before deciding.
pub(crate) fn question(row: &ApprovalRow) {
    let request = &row.request;
    println!("{}", request.approval_id);
    println!("  tool       {}", request.tool);
    println!("  arguments  {}", request.arguments.as_json());
    println!(
        "  reason     {}",
        request.reason.as_deref().unwrap_or("(none given)")
    );
    println!(
        "  asked by   {}",
        request
            .requester
            .as_ref()
            .map_or("(unknown)", |who| who.as_str())
    );
    println!("  asked at   {}", row.asked_at);
}

/// An error with what caused it, one line each.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}\n  because {source}");
        cause = source.source();
    }
    text
}
