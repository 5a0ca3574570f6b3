//! Approvals in a list, and one in full.

use serde_json::{Value, json};
use toolgate::{
    ApprovalFilter, ApprovalId, ApprovalRequest, ApprovalRow, ApprovalState, Approvals, Changed, ShownApproval,
    SideEffect, Vote,
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
    let filter = ApprovalFilter { session, pending: !args.all, limit: PAGE, ..ApprovalFilter::default() };
    let rows = every(&Approvals::new(store), filter).await?;
    if cx.out.is_json() {
        rows.iter().try_for_each(|row| cx.out.json(&as_json(row)))?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new().head(["approval", "tool", "asked", "session", "how it stands", "what"]);
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
pub(super) async fn every(desk: &Approvals, mut filter: ApprovalFilter) -> Result<Vec<ApprovalRow>, CliError> {
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
    let id = ids::find_approval(&store, &args.id).await?.request.approval_id;
    let shown = Approvals::new(store).keyring(cx.keys()?.keyring()).show(id).await?;
    let shown = shown.ok_or_else(|| CliError::usage(format!("the approval {id} is gone")))?;
    if cx.out.is_json() {
        let mut said = as_json(&shown.row);
        said["votes"] = serde_json::to_value(shown.votes.iter().map(|vote| &vote.by).collect::<Vec<_>>())?;
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
    let text = serde_json::to_string(&request.arguments).unwrap_or_default();
    render::Line::plain(&text).clip(60).text()
}

fn print(cx: &Cx, shown: &ShownApproval) -> Result<(), CliError> {
    let ShownApproval { row, votes } = shown;
    let request = &row.request;
    let mut facts = Table::new();
    let mut fact = |name: &str, text: String| facts.row([style::note(name).to_string(), style::plain(&text)]);
    fact("tool", request.tool.to_string());
    fact("session", row.session.to_string());
    fact("asked", times::shown(row.asked_at));
    fact("risk", risk(request.risk).to_owned());
    if let Some(reason) = &request.reason {
        fact("why", reason.clone());
    }
    if let Some(by) = &request.requester {
        fact("for", by.to_string());
    }
    if let Some(at) = request.expires_at {
        fact("expires", format!("{}, in {}", times::shown(at), times::span(at.since(times::now()))));
    }
    if let Some(quorum) = &request.quorum {
        fact("takes", format!("{} who agree{}", quorum.needed, voted(votes)));
    }
    for changed in &request.changed {
        fact("asked again", since(changed));
    }
    cx.out.line(format_args!("{}  {}", style::bold(request.approval_id), state(row.state)))?;
    cx.out.line(facts)?;
    arguments(cx, request)?;
    if row.state == ApprovalState::Pending {
        cx.out.note(next_step(request.approval_id))?;
    }
    Ok(())
}

fn arguments(cx: &Cx, request: &ApprovalRequest) -> Result<(), CliError> {
    if request.withheld {
        return cx.out.line("the arguments cannot be shown: they are too large, or may hold a secret");
    }
    let text = serde_json::to_string_pretty(&request.arguments)?;
    cx.out.line(format_args!("\n{}", style::plain(&text)))?;
    match &request.shown {
        Some(Value::String(text)) => render::diff(text).iter().try_for_each(|line| cx.out.line(line)),
        Some(other) => cx.out.line(style::plain(&serde_json::to_string_pretty(other)?)),
        None => Ok(()),
    }
}

fn next_step(id: ApprovalId) -> String {
    let id = ids::short(id);
    format!("{}: `toolgate approvals approve {id}`, or `toolgate approvals deny {id} --reason …`", style::note("next"))
}

fn voted(votes: &[Vote]) -> String {
    let names: Vec<String> = votes.iter().map(|vote| vote.by.to_string()).collect();
    if names.is_empty() { String::new() } else { format!("; so far {}", names.join(", ")) }
}

fn risk(effect: SideEffect) -> &'static str {
    match effect {
        SideEffect::None => "has no effect",
        SideEffect::ReadOnly => "only reads",
        SideEffect::WorkspaceWrite => "changes files in the workspace",
        SideEffect::ProcessExec => "runs programs",
        SideEffect::Network => "reaches the network, or does not say how far it reaches",
    }
}

fn since(changed: &Changed) -> String {
    match changed {
        Changed::Arguments => "the call has other arguments now".to_owned(),
        Changed::Tool => "the tool is not the same any more".to_owned(),
        Changed::Policy => "the policy is another one now".to_owned(),
        Changed::File { path } => format!("{path} has changed since"),
        Changed::Forged => "the approval was not signed by us".to_owned(),
        Changed::KeyGone => "the approval was signed with a key that does not count any more".to_owned(),
        Changed::Replayed => "the approval was used for another run of the call".to_owned(),
    }
}
