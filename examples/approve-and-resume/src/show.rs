//! The output for people.

use std::error::Error;

use toolgate::{approval::ShownRequest, session::TurnReport, store::ApprovalRow};

/// Prints the result of each call, in the order of the calls.
pub(crate) fn print_report(report: &TurnReport) {
    for result in &report.results {
        let said = match result.model_text() {
            Some(text) => text.into_owned(),
            None => "(pending approval)".to_owned(),
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

/// Prints a pending approval request in one line.
pub(crate) fn print_pending(row: &ApprovalRow) {
    println!(
        "{} {} {}",
        row.request.approval_id,
        row.request.tool,
        row.request.arguments.as_json()
    );
}

/// Prints everything an approver needs to know before deciding.
pub(crate) fn print_request(row: &ApprovalRow, shown: &ShownRequest) {
    println!("{}, asked at {}", row.request.approval_id, row.asked_at);
    shown.lines().for_each(|line| println!("  {line}"));
}

/// Formats an error with its causes, one line each.
pub(crate) fn format_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        // An error of the gate prints its causes by itself.
        if !text.contains(&source.to_string()) {
            text = format!("{text}\n  caused by: {source}");
        }
        cause = source.source();
    }
    text
}
