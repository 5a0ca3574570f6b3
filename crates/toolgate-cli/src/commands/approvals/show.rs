//! `toolgate approvals list` and `show`: approvals in a table, and one in full.

use serde_json::{Value, json};
use toolgate::{
    approval::{ApprovalAnswer, ApprovalDetails, ApprovalService, Vote},
    layers::SecretScanner,
    store::{ApprovalFilter, ApprovalRow, ApprovalState, StoreHandle},
    value::ApprovalId,
};

use super::{ApprovalsListArgs, ApprovalsShowArgs};
use crate::{
    CliError, CommandContext, Exit,
    env::{ids, style, times},
    show::{
        entitlement::{join_names, voter_names},
        render::{self, StyledLine, TextTable},
        stored_requests,
    },
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
    let desk = open_service(cx, &store)?;
    let rows = load_approvals(&desk, filter).await?;
    if cx.out.is_json() {
        for row in &rows {
            cx.out.print_json(&listed_json(&desk, row).await)?;
        }
        return Ok(Exit::Done);
    }
    let mut table = TextTable::for_output().with_head([
        "approval",
        "tool",
        &times::zoned_head("requested"),
        "session",
        "status",
        "arguments",
    ]);
    for row in &rows {
        let (tool, arguments) = short_call(&desk, row).await;
        table.add_row([
            style::bold(ids::short_id(row.request.approval_id)),
            tool,
            times::format_column_time(row.asked_at).into(),
            ids::short_id(row.session).into(),
            state_label(row.state),
            arguments,
        ]);
    }
    if table.is_empty() {
        cx.out.print_note("no approval is pending")?
    } else {
        cx.out.print_line(table)?
    }
    Ok(Exit::Done)
}

/// Opens the approval service on a store, with the keys of the user. What approvers see is masked by
/// the bundled rules for secrets.
pub(super) fn open_service(
    cx: &CommandContext,
    store: &StoreHandle,
) -> Result<ApprovalService, CliError> {
    let keyring = cx.load_keys()?.keyring();
    let service = ApprovalService::new(store.clone()).keyring(keyring);
    Ok(service.redactor(SecretScanner::standard()))
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
    let desk = open_service(cx, &store)?;
    let shown = desk.find_approval(id).await?;
    // It was found a moment ago; its session may have been erased since.
    let shown =
        shown.ok_or_else(|| CliError::usage(format!("the approval {id} no longer exists")))?;
    let row = &shown.row.request;
    let answer = store
        .load_answer(row.approval_id.call_id(), row.generation)
        .await?;
    let answer = answer.as_deref();
    if cx.out.is_json() {
        let mut said = approval_json(&shown.row);
        let deciders = answer.map(|answer| answer.approvers().collect::<Vec<_>>());
        said["decided_by"] = serde_json::to_value(deciders.unwrap_or_default())?;
        said["votes"] =
            serde_json::to_value(shown.votes.iter().map(|vote| &vote.by).collect::<Vec<_>>())?;
        let rendered = shown.request.as_ref();
        let rendered = rendered.map(|request| desk.show_request(request).lines().collect());
        said["rendered"] = serde_json::to_value::<Option<Vec<String>>>(rendered)?;
        cx.out.print_json(&said)?;
    } else {
        print_approval(cx, &desk, &shown, answer)?;
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
        ApprovalState::Answered | ApprovalState::Running => style::note(state.text()),
        ApprovalState::Settled(status) if status.is_refusal() => style::bad(state.text()),
        ApprovalState::Settled(_) => style::good(state.text()),
    }
}

/// Returns tool and arguments in one line: of a pending request as the approver sees them. Of a
/// request that was changed in the store nothing is shown.
async fn short_call(desk: &ApprovalService, row: &ApprovalRow) -> (StyledLine, StyledLine) {
    if row.state != ApprovalState::Pending {
        let given = row.request.arguments.as_json().as_value();
        let given = StyledLine::from(render::arguments::format_short(given));
        return (row.request.tool.as_str().into(), given.clip_on_terminal(60));
    }
    match stored_requests::load_request(desk, row.request.approval_id).await {
        Ok(request) => {
            let shown = desk.show_request(&request);
            let given = StyledLine::from(render::arguments::format_shown(&shown));
            (shown.tool.as_str().into(), given.clip_on_terminal(60))
        }
        Err(error) => ("?".into(), style::bad(format!("not shown: {error}"))),
    }
}

/// Returns a row of the list as JSON, without the request if it was changed in the store.
async fn listed_json(desk: &ApprovalService, row: &ApprovalRow) -> Value {
    let mut listed = approval_json(row);
    if let Err(error) = stored_requests::load_request(desk, row.request.approval_id).await
        && row.state == ApprovalState::Pending
    {
        listed["tool"] = Value::Null;
        listed["request"] = Value::Null;
        listed["error"] = error.to_string().into();
    }
    listed
}

fn print_approval(
    cx: &CommandContext,
    desk: &ApprovalService,
    shown: &ApprovalDetails,
    answer: Option<&ApprovalAnswer>,
) -> Result<(), CliError> {
    let ApprovalDetails {
        row,
        request,
        votes,
    } = shown;
    let id = row.request.approval_id;
    cx.out.print_line(format_args!(
        "{}  {}",
        style::bold(id),
        state_label(row.state)
    ))?;
    cx.out.print_line(format_args!(
        "session {}, requested {}",
        row.session,
        times::format_time(row.asked_at)
    ))?;
    if let Some(deciders) = describe_deciders(votes, answer) {
        cx.out.print_line(deciders)?;
    }
    // Without the stored request nothing can be decided, so nothing has to be shown.
    let shown = request.as_ref().map(|request| desk.show_request(request));
    let width = render::text_width();
    let lines = shown.map(|shown| render::render_shown(&shown, width));
    let mut lines = lines.into_iter().flatten();
    lines.try_for_each(|line| cx.out.print_line(line))?;
    match row.state {
        ApprovalState::Pending => cx.out.print_note(next_step_hint(cx, id)),
        ApprovalState::Answered | ApprovalState::Running | ApprovalState::Settled(_) => Ok(()),
    }
}

fn next_step_hint(cx: &CommandContext, id: ApprovalId) -> String {
    let id = ids::short_id(id);
    let approve = cx.command_line(&format!("approvals approve {id}"));
    let deny = cx.command_line(&format!("approvals deny {id} --reason \"…\""));
    format!("{}: `{approve}`, or `{deny}`", style::note("next"))
}

/// Names everyone who took part in the decision: the approvers, or those who approved before it was
/// denied or while more approvals are missing.
fn describe_deciders(votes: &[Vote], answer: Option<&ApprovalAnswer>) -> Option<String> {
    let so_far = (!votes.is_empty()).then(|| format!("approved so far by {}", voter_names(votes)));
    let Some(answer) = answer else {
        return so_far;
    };
    let names = join_names(answer.approvers());
    if !answer.is_denial() {
        return Some(format!("approved by {names}"));
    }
    let before = so_far.map(|_| format!("; approved before by {}", voter_names(votes)));
    Some(format!("denied by {names}{}", before.unwrap_or_default()))
}
