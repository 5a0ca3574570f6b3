//! `toolgate approvals list` and `show`: approvals in a table, and one in full.

use serde_json::{Value, json};
use toolgate::{
    approval::{ApprovalDetails, ApprovalRequest, ApprovalService, Vote},
    store::{ApprovalFilter, ApprovalRow, ApprovalState},
    value::ApprovalId,
};

use super::{ApprovalsListArgs, ApprovalsShowArgs};
use crate::{
    CliError, CommandContext, Exit,
    env::{ids, style, times},
    show::render::{self, StyledLine, TextTable},
};

/// The number of rows per query.
const PAGE: usize = 500;

pub(super) async fn list_approvals(
    args: &ApprovalsListArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    let session = match &args.session {
        Some(text) => Some(ids::find_session(&store, text).await?),
        None => None,
    };
    let filter = ApprovalFilter {
        session,
        pending: !args.all,
        limit: PAGE,
        ..ApprovalFilter::default()
    };
    let rows = load_approvals(&ApprovalService::new(store), filter).await?;
    if cx.out.is_json() {
        rows.iter()
            .try_for_each(|row| cx.out.print_json(&approval_json(row)))?;
        return Ok(Exit::Done);
    }
    let mut table = TextTable::for_output().with_head([
        "approval",
        "tool",
        "requested",
        "session",
        "status",
        "arguments",
    ]);
    for row in &rows {
        table.add_row([
            style::bold(ids::short_id(row.request.approval_id)),
            row.request.tool.as_str().into(),
            times::format_time(row.asked_at).into(),
            ids::short_id(row.session).into(),
            state_label(row.state),
            short_arguments(&row.request),
        ]);
    }
    if table.is_empty() {
        cx.out.print_note("no approval is pending")?
    } else {
        cx.out.print_line(table)?
    }
    Ok(Exit::Done)
}

/// Loads all rows that match a filter, page by page.
pub(super) async fn load_approvals(
    desk: &ApprovalService,
    mut filter: ApprovalFilter,
) -> Result<Vec<ApprovalRow>, CliError> {
    let mut rows = Vec::new();
    loop {
        let page = desk.list_approvals(filter.clone()).await?;
        let is_full = page.len() == filter.limit;
        rows.extend(page);
        filter.after = rows.last().map(|row: &ApprovalRow| row.request.approval_id);
        if !is_full {
            return Ok(rows);
        }
    }
}

pub(super) async fn show_approval(
    args: &ApprovalsShowArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    let id = ids::find_approval(&store, &args.id)
        .await?
        .request
        .approval_id;
    let shown = ApprovalService::new(store)
        .keyring(cx.load_keys()?.keyring())
        .find_approval(id)
        .await?;
    // It was found a moment ago; its session may have been erased since.
    let shown =
        shown.ok_or_else(|| CliError::usage(format!("the approval {id} no longer exists")))?;
    if cx.out.is_json() {
        let mut said = approval_json(&shown.row);
        said["votes"] =
            serde_json::to_value(shown.votes.iter().map(|vote| &vote.by).collect::<Vec<_>>())?;
        cx.out.print_json(&said)?;
    } else {
        print_approval(cx, &shown)?;
    }
    Ok(Exit::Done)
}

fn approval_json(row: &ApprovalRow) -> Value {
    json!({
        "approval_id": row.request.approval_id,
        "session": row.session,
        "turn": row.turn,
        "tool": row.request.tool,
        "asked_at": row.asked_at,
        "state": row.state.as_str(),
        "request": row.request,
    })
}

fn state_label(state: ApprovalState) -> StyledLine {
    match state {
        ApprovalState::Pending => style::warn(state.text()),
        ApprovalState::Answered => style::note(state.text()),
        ApprovalState::Settled(status) if status.is_refusal() => style::bad(state.text()),
        ApprovalState::Settled(_) => style::good(state.text()),
    }
}

/// Returns the arguments in one line.
fn short_arguments(request: &ApprovalRequest) -> StyledLine {
    if request.withheld {
        // Too large to show, or redaction failed: the request carries no arguments.
        return "(withheld)".into();
    }
    let text = render::arguments::format_short(request.arguments.as_json().as_value());
    StyledLine::from(text).clip(60)
}

fn print_approval(cx: &CommandContext, shown: &ApprovalDetails) -> Result<(), CliError> {
    let ApprovalDetails { row, votes } = shown;
    let request = &row.request;
    cx.out.print_line(format_args!(
        "{}  {}",
        style::bold(request.approval_id),
        state_label(row.state)
    ))?;
    cx.out.print_line(format_args!(
        "session {}, requested {}",
        row.session,
        times::format_time(row.asked_at)
    ))?;
    if let Some(by) = &request.requester {
        cx.out.print_line(format_args!(
            "on behalf of {}",
            style::escape_controls(by.as_str())
        ))?;
    }
    if !votes.is_empty() {
        cx.out
            .print_line(format_args!("approved so far by {}", voter_names(votes)))?;
    }
    let lines = render::render_approval(request, times::current_time(), render::text_width());
    lines.iter().try_for_each(|line| cx.out.print_line(line))?;
    match row.state {
        ApprovalState::Pending => cx.out.print_note(next_step_hint(request.approval_id)),
        ApprovalState::Answered | ApprovalState::Settled(_) => Ok(()),
    }
}

fn next_step_hint(id: ApprovalId) -> String {
    let id = ids::short_id(id);
    format!(
        "{}: `toolgate approvals approve {id}`, or `toolgate approvals deny {id} --reason …`",
        style::note("next")
    )
}

fn voter_names(votes: &[Vote]) -> String {
    style::escape_controls(
        &votes
            .iter()
            .map(|vote| vote.by.to_string())
            .collect::<Vec<_>>()
            .join(", "),
    )
}
