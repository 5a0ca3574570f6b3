//! Approvals in a list, and one in full.

use serde_json::{Value, json};
use toolgate::{
    ApprovalFilter, ApprovalId, ApprovalRequest, ApprovalRow, ApprovalState, Approvals,
    ShownApproval, Vote,
};

use super::{ListArgs, ShowArgs};
use crate::{CliError, Cx, Exit, ids, render, style, table::Table, times};

/// How many rows are read at once.
const PAGE: usize = 500;

pub(super) async fn list(args: &ListArgs, cx: &Cx) -> Result<Exit, CliError> {
    let store = cx.store().await?;
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
    let rows = every(&Approvals::new(store), filter).await?;
    if cx.out.is_json() {
        rows.iter().try_for_each(|row| cx.out.json(&as_json(row)))?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new().head([
        "approval",
        "tool",
        "asked",
        "session",
        "how it stands",
        "what",
    ]);
    for row in &rows {
        table.row([
            style::bold(ids::short(row.request.approval_id)).to_string(),
            row.request.tool.to_string(),
            times::shown(row.asked_at),
            ids::short(row.session),
            state(row.state),
            in_short(&row.request),
        ]);
    }
    match table.is_empty() {
        true => cx.out.note("nothing waits for a decision")?,
        false => cx.out.line(table)?,
    }
    Ok(Exit::Done)
}

/// All rows that a filter wants, page by page.
pub(super) async fn every(
    desk: &Approvals,
    mut filter: ApprovalFilter,
) -> Result<Vec<ApprovalRow>, CliError> {
    let mut rows = Vec::new();
    loop {
        let page = desk.pending(filter.clone()).await?;
        let is_full = page.len() == filter.limit;
        rows.extend(page);
        filter.after = rows.last().map(|row: &ApprovalRow| row.request.approval_id);
        if !is_full {
            return Ok(rows);
        }
    }
}

pub(super) async fn show(args: &ShowArgs, cx: &Cx) -> Result<Exit, CliError> {
    let store = cx.store().await?;
    let id = ids::find_approval(&store, &args.id)
        .await?
        .request
        .approval_id;
    let shown = Approvals::new(store)
        .keyring(cx.keys()?.keyring())
        .show(id)
        .await?;
    let shown = shown.ok_or_else(|| CliError::usage(format!("the approval {id} is gone")))?;
    if cx.out.is_json() {
        let mut said = as_json(&shown.row);
        said["votes"] =
            serde_json::to_value(shown.votes.iter().map(|vote| &vote.by).collect::<Vec<_>>())?;
        cx.out.json(&said)?;
    } else {
        print(cx, &shown)?;
    }
    Ok(Exit::Done)
}

fn as_json(row: &ApprovalRow) -> Value {
    json!({
        "approval_id": row.request.approval_id,
        "session": row.session,
        "turn": row.turn,
        "tool": row.request.tool,
        "asked_at": row.asked_at,
        "state": state_word(row.state),
        "request": row.request,
    })
}

fn state_word(state: ApprovalState) -> &'static str {
    match state {
        ApprovalState::Pending => "pending",
        ApprovalState::Answered => "answered",
        ApprovalState::Settled(status) => status.as_str(),
    }
}

fn state(state: ApprovalState) -> String {
    match state {
        ApprovalState::Pending => style::warn("waits").to_string(),
        ApprovalState::Answered => style::note("decided, has not run yet").to_string(),
        ApprovalState::Settled(status) if status.is_refusal() => style::bad(status).to_string(),
        ApprovalState::Settled(status) => style::good(status).to_string(),
    }
}

/// The arguments in a line.
fn in_short(request: &ApprovalRequest) -> String {
    if request.withheld {
        return "(not shown)".to_owned();
    }
    let text = render::arguments::in_short(request.arguments.as_json().as_value());
    render::Line::plain(&text).clip(60).text()
}

fn print(cx: &Cx, shown: &ShownApproval) -> Result<(), CliError> {
    let ShownApproval { row, votes } = shown;
    let request = &row.request;
    cx.out.line(format_args!(
        "{}  {}",
        style::bold(request.approval_id),
        state(row.state)
    ))?;
    cx.out.line(format_args!(
        "session {}, asked {}",
        row.session,
        times::shown(row.asked_at)
    ))?;
    if let Some(by) = &request.requester {
        cx.out
            .line(format_args!("on behalf of {}", style::plain(by.as_str())))?;
    }
    if !votes.is_empty() {
        cx.out
            .line(format_args!("approved so far by {}", voted(votes)))?;
    }
    let lines = render::question(request, times::now(), render::width());
    lines.iter().try_for_each(|line| cx.out.line(line))?;
    match row.state {
        ApprovalState::Pending => cx.out.note(next_step(request.approval_id)),
        ApprovalState::Answered | ApprovalState::Settled(_) => Ok(()),
    }
}

fn next_step(id: ApprovalId) -> String {
    let id = ids::short(id);
    format!(
        "{}: `toolgate approvals approve {id}`, or `toolgate approvals deny {id} --reason …`",
        style::note("next")
    )
}

fn voted(votes: &[Vote]) -> String {
    style::plain(
        &votes
            .iter()
            .map(|vote| vote.by.to_string())
            .collect::<Vec<_>>()
            .join(", "),
    )
}
