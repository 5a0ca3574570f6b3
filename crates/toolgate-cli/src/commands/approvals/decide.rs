//! `toolgate approvals approve` and `deny`: a decision is stored before the command returns.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::json;
use toolgate::{
    Arguments, Decision, Registry, Stack, View,
    approval::{
        AdmittedDecision, ApprovalRequest, ApprovalRequestRef, ApprovalService, Verdict,
        VisibleText,
    },
    layers::{FilePreview, PathBase, SharedPreview},
    session::{DeliverError, Dispatcher},
    stack::CallSeed,
    store::{ApprovalFilter, ApprovalRow, SessionFilter, StoreHandle},
    tools::{ToolboxOptions, Workspace, register_all},
    value::SessionId,
};

use super::{
    ApproveArgs, DecisionArgs, DenyArgs,
    show::{load_approvals, open_service},
};
use crate::{
    CliError, CommandContext, Exit,
    env::{
        confirm::{nothing_done, read_answer, require_confirmation},
        holders::SessionHolder,
        ids, style,
    },
    show::{
        agent_sessions,
        entitlement::{describe_counted, describe_rejection},
        render::{self, PAGE_ROWS, StyledLine, render_shown},
        stored_requests::{edit_request, request_with_arguments},
    },
};

pub(super) async fn run_approve(args: &ApproveArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let verdict = match &args.edit {
        Some(_) if args.which.ids.len() > 1 => {
            return Err(CliError::usage("--edit is for one call at a time"));
        }
        Some(text) => Verdict::ApproveWithEdits {
            arguments: parse_edited_arguments(text)?,
        },
        None => Verdict::Approve,
    };
    decide_approvals(&args.which, cx, verdict, args.unseen).await
}

pub(super) async fn run_deny(args: &DenyArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    decide_approvals(
        &args.which,
        cx,
        Verdict::Deny {
            reason: args.reason.clone(),
        },
        false,
    )
    .await
}

fn parse_edited_arguments(text: &str) -> Result<Arguments, CliError> {
    let text = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| CliError::usage(format!("{path}: {error}")))?,
        None => text.to_owned(),
    };
    let how = "write an object: --edit '{\"path\": \"a.txt\"}', or --edit @arguments.json";
    Arguments::parse(&text)
        .map_err(|error| CliError::usage(format!("the new arguments: {error}")).with_hint(how))
}

async fn decide_approvals(
    which: &DecisionArgs,
    cx: &CommandContext,
    verdict: Verdict,
    unseen: bool,
) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    let desk = open_service(cx, &store)?;
    // All ids are resolved first: a misspelt one must not leave half of the decisions made.
    let rows = find_approvals(which, cx, &store, &desk).await?;
    let mut unread = vec![unseen; rows.len()];
    if !matches!(verdict, Verdict::Deny { .. }) && !unseen {
        // A person at a terminal reads page by page; a script has everything in its output.
        let by_page = cx.out.is_interactive() && !which.yes;
        for (at, (row, unread)) in rows.iter().zip(&mut unread).enumerate() {
            if at > 0 && !cx.out.is_json() {
                cx.out.print_line("")?;
            }
            let lines = render_request(cx, &store, &desk, row, &verdict).await?;
            *unread = !print_pages(cx, &lines, by_page)?;
        }
    }
    confirm_decisions(which, cx, &rows, &verdict, unseen)?;
    let by = cx.current_approver(which.by.as_deref());
    let mut exit = Exit::Done;
    let mut sessions = Vec::new();
    for (row, unseen) in rows.iter().zip(unread) {
        let decision = Decision {
            verdict: verdict.clone(),
            by: by.clone(),
            unseen,
            approval_reason: None,
        };
        let answer = desk
            .decide(ApprovalRequestRef::from(&*row.request), decision)
            .await;
        // A rejected decision does not stop the others; the exit code reports it.
        match &answer {
            Err(error) => exit = CliError::from_error(error).exit_status(),
            // With a vote that others have to join, nothing continues yet.
            Ok(AdmittedDecision::Counted { .. }) => {}
            Ok(AdmittedDecision::Decided { .. }) if sessions.contains(&row.session) => {}
            Ok(AdmittedDecision::Decided { .. }) => sessions.push(row.session),
        }
        // A vote is counted with those before it.
        let counted = match &answer {
            Ok(AdmittedDecision::Counted { missing }) => {
                describe_counted(&desk, row.request.approval_id, *missing).await
            }
            Ok(AdmittedDecision::Decided { .. }) | Err(_) => String::new(),
        };
        print_decision(cx, row, &verdict, &answer, &counted)?;
    }
    for session in sessions {
        print_next_step(cx, &store, session).await?;
    }
    Ok(exit)
}

/// Finds the approvals to decide on.
async fn find_approvals(
    which: &DecisionArgs,
    cx: &CommandContext,
    store: &StoreHandle,
    desk: &ApprovalService,
) -> Result<Vec<ApprovalRow>, CliError> {
    if !which.all {
        let mut rows = Vec::new();
        for id in &which.ids {
            rows.push(ids::find_approval(store, id).await?);
        }
        return Ok(rows);
    }
    let filter = ApprovalFilter {
        limit: 500,
        ..ApprovalFilter::default()
    };
    let rows = load_approvals(desk, filter).await?;
    if rows.is_empty() {
        cx.out.print_note("no approval is pending")?;
    }
    Ok(rows)
}

/// Returns the rows of what is about to be approved, in full. As JSON it is printed at once.
///
/// # Errors
///
/// Fails if the request cannot be shown: nothing is approved that was not printed.
async fn render_request(
    cx: &CommandContext,
    store: &StoreHandle,
    desk: &ApprovalService,
    row: &ApprovalRow,
    verdict: &Verdict,
) -> Result<Vec<StyledLine>, CliError> {
    let id = row.request.approval_id;
    let details = desk.find_approval(id).await?;
    // Whatever the state in the list says: anyone who can write to the database can change it.
    let Some(mut request) = details.and_then(|details| details.request) else {
        let problem = format!("{}: the request cannot be shown", ids::short_id(id));
        return Err(CliError::new(problem)
            .with_hint("it may be decided already; --unseen approves it without reading it"));
    };
    if let Verdict::ApproveWithEdits { arguments } = verdict {
        // The sealed request names the directory. Requests of earlier versions do not.
        let stored = ids::workspace_of(store, row.session).await?;
        let workspace = request.workspace.as_ref().map(PathBuf::from);
        let workspace = workspace.or(stored);
        let workspace = workspace.unwrap_or_else(|| cx.paths.workspace.clone());
        let preview = SharedPreview::new(FilePreview::new(&PathBase::new(&workspace)));
        let seed = rehearse_builtin(&workspace, &request, arguments).await;
        request = Arc::new(edit_request(&request, arguments, Some(&preview), seed));
    }
    let shown = desk.show_request(&request);
    if cx.out.is_json() {
        let rendered: Vec<String> = shown.lines().collect();
        cx.out
            .print_json(&json!({ "approval_id": id, "rendered": rendered }))?;
        return Ok(Vec::new());
    }
    let mut lines = vec![style::bold(ids::short_id(id))];
    lines.extend(render_shown(&shown, render::text_width()));
    Ok(lines)
}

/// Returns the call of a request with other arguments, if it is one of a built-in tool: only of these
/// is it known outside the session which argument names a file.
async fn rehearse_builtin(
    workspace: &Path,
    request: &ApprovalRequest,
    arguments: &Arguments,
) -> Option<CallSeed> {
    let registry = Registry::new();
    let files = Workspace::open(workspace).ok()?;
    register_all(&registry, &files, &ToolboxOptions::default()).ok()?;
    let stack = Stack::over(registry.clone()).build().ok()?;
    let view = View::for_stack(&registry, &stack).ok()?;
    let dispatcher = Dispatcher::builder(stack).build().await.ok()?;
    Some(dispatcher.rehearse_call(&view, &request_with_arguments(request, arguments)))
}

/// Prints rows, page by page if `by_page`. Returns false if the user approves without the rest.
///
/// # Errors
///
/// Fails if the user does neither read on nor acknowledge that.
fn print_pages(cx: &CommandContext, rows: &[StyledLine], by_page: bool) -> Result<bool, CliError> {
    let page = if by_page {
        PAGE_ROWS
    } else {
        rows.len().max(1)
    };
    let mut left = rows.len();
    for rows in rows.chunks(page) {
        rows.iter().try_for_each(|row| cx.out.print_line(row))?;
        left -= rows.len();
        if left == 0 {
            break;
        }
        let question = format!(
            "… {left} more rows are not shown yet. v shows them, u approves without reading the rest:"
        );
        match read_answer(cx, &question)?.as_str() {
            "v" => {}
            "u" => return Ok(false),
            _ => return Err(nothing_done()),
        }
    }
    Ok(true)
}

/// Asks for confirmation: of all decisions together, and at a terminal of every approval.
fn confirm_decisions(
    which: &DecisionArgs,
    cx: &CommandContext,
    rows: &[ApprovalRow],
    verdict: &Verdict,
    unseen: bool,
) -> Result<(), CliError> {
    let is_denial = matches!(verdict, Verdict::Deny { .. });
    // A script has the request in its output; a person at a terminal has to read it first.
    let asks = which.all || cx.out.is_interactive() && !is_denial && !unseen;
    if rows.is_empty() || !asks {
        return Ok(());
    }
    for row in rows
        .iter()
        .filter(|_| is_denial && !which.yes && !cx.out.is_json())
    {
        let tool = VisibleText::new(row.request.tool.as_str());
        let id = ids::short_id(row.request.approval_id);
        cx.out.print_line(format_args!("{id}  {tool}"))?;
    }
    let what = if is_denial { "Deny" } else { "Approve" };
    let which_ones = match (which.all, rows.len()) {
        (true, count) => format!("all {count}"),
        (false, 1) => "it".to_owned(),
        (false, count) => format!("these {count}"),
    };
    require_confirmation(cx, &format!("{what} {which_ones}?"), which.yes)
}

fn print_decision(
    cx: &CommandContext,
    row: &ApprovalRow,
    verdict: &Verdict,
    answer: &Result<AdmittedDecision, DeliverError>,
    counted: &str,
) -> Result<(), CliError> {
    let id = row.request.approval_id;
    let tool = VisibleText::new(row.request.tool.as_str());
    if cx.out.is_json() {
        let (taken, missing) = match answer {
            Ok(AdmittedDecision::Decided { .. }) => ("decided", None),
            Ok(AdmittedDecision::Counted { missing }) => ("counted", Some(*missing)),
            Err(_) => ("refused", None),
        };
        let error = answer.as_ref().err();
        return cx.out.print_json(&json!({
            "approval_id": id, "session": row.session, "tool": row.request.tool, "taken": taken, "missing": missing,
            "code": error.and_then(DeliverError::code), "error": error.map(ToString::to_string),
        }));
    }
    let name = format!("{tool} ({})", ids::short_id(id));
    match (answer, verdict) {
        (Ok(AdmittedDecision::Decided { .. }), Verdict::Deny { .. }) => cx
            .out
            .print_line(format_args!("{} {name}", style::bad("denied"))),
        (
            Ok(AdmittedDecision::Decided { .. }),
            Verdict::Approve | Verdict::ApproveWithEdits { .. },
        ) => cx
            .out
            .print_line(format_args!("{} {name}", style::good("approved"))),
        (Ok(AdmittedDecision::Counted { .. }), _) => cx
            .out
            .print_line(format_args!("{} {name}; {counted}", style::warn("counted"),)),
        (Err(error), _) => {
            cx.out.print_error(&CliError::new(format!(
                "{name}: {}",
                describe_rejection(error)
            )));
            Ok(())
        }
    }
}

/// Prints how the suspended session continues.
async fn print_next_step(
    cx: &CommandContext,
    store: &StoreHandle,
    session: SessionId,
) -> Result<(), CliError> {
    if cx.out.is_json() {
        return Ok(());
    }
    // The session of an agent is resumed through the one that delegated to it.
    let root = agent_sessions::root_session(store, session).await?;
    let row = store
        .sessions(SessionFilter::for_session(root))
        .await?
        .pop();
    let holder = row.as_ref().and_then(SessionHolder::of_row);
    if let Some(holder) = holder.filter(|holder| !holder.is_stopped) {
        return cx.out.print_note(format_args!(
            "session {} is running ({holder}) and continues by itself",
            ids::short_id(root)
        ));
    }
    let next = style::note("next");
    let command = cx.command_line(&format!("run --resume {}", ids::short_id(root)));
    cx.out
        .print_note(format_args!("{next}: `{command}` continues the session"))
}
