//! `toolgate sessions show`: the conversation of a session with its calls, or its events.

use std::collections::HashMap;

use anstyle::Style;
use serde_json::json;
use toolgate::{
    Event, Status,
    archive::Importer,
    event::EventBody,
    store::StoreHandle,
    value::{CallId, SessionId, Timestamp},
};

use super::{SessionShowArgs, list::apply_events};
use crate::{
    CliError, CommandContext, Exit, GateArgs,
    env::{ids, style, times},
    show::{
        render::{self, OutputRows, StyledLine},
        screen::{AgentView, CallState, CallView, ConversationItem, SessionScreen},
        whole_texts::WholeTexts,
    },
};

/// The number of events per query.
const PAGE: usize = 500;

/// What stands before the rest of a call, below its id.
const CALL_INDENT: &str = "    ";

pub(super) async fn show_session(
    args: &SessionShowArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    let session = ids::find_session(&store, &args.id).await?;
    if args.operator {
        let screen = fold_whole(cx, &store, session).await?;
        let details = OperatorDetails::load(&store, &screen).await?;
        if cx.out.is_json() {
            details.print_json(cx, &screen)?;
        } else {
            print_session(cx, session, &screen, &details)?;
        }
    } else if args.events || cx.out.is_json() {
        print_events(cx, &store, session).await?;
    } else {
        let screen = fold_whole(cx, &store, session).await?;
        print_session(cx, session, &screen, &OperatorDetails::default())?;
        print_origin(cx, &store, session).await?;
    }
    Ok(Exit::Done)
}

/// Says where an imported session comes from, and whether its receipts verify.
async fn print_origin(
    cx: &CommandContext,
    store: &StoreHandle,
    session: SessionId,
) -> Result<(), CliError> {
    let Some(origin) = store.load_import_origin(session).await? else {
        return Ok(());
    };
    let format = style::escape_controls(&origin.format);
    cx.out.print_note(style::dim(format!(
        "imported ({format}): history, which cannot be resumed"
    )))?;
    let importer = Importer::new(store.clone(), times::current_time());
    for ledger in importer.verify_receipts(session, None).await? {
        cx.out.print_note(style::dim(format!(
            "{} receipts came with it; their part of the ledger {} up to record {} is unbroken",
            ledger.receipts, ledger.ledger, ledger.last
        )))?;
    }
    Ok(())
}

/// What only the operator reads of the calls of a session, by call. It was redacted when it was
/// stored.
#[derive(Default)]
struct OperatorDetails(HashMap<CallId, String>);

impl OperatorDetails {
    /// Loads the details of the calls that did not succeed.
    async fn load(store: &StoreHandle, screen: &SessionScreen) -> Result<Self, CliError> {
        let mut found = HashMap::new();
        for call in screen.calls() {
            let failed = matches!(call.state, CallState::Settled(status) if status != Status::Ok);
            if !failed {
                continue;
            }
            let id = call.invocation.id;
            let outcome = store.load_outcome(id).await?;
            let error = outcome.as_ref().and_then(|outcome| outcome.error.as_ref());
            if let Some(detail) = error.and_then(|error| error.operator.clone()) {
                found.insert(id, detail);
            }
        }
        Ok(Self(found))
    }

    /// Prints one object for each call that has a detail, in the order of the calls.
    fn print_json(&self, cx: &CommandContext, screen: &SessionScreen) -> Result<(), CliError> {
        for call in screen.calls() {
            let CallState::Settled(status) = call.state else {
                continue;
            };
            if let Some(detail) = self.0.get(&call.invocation.id) {
                cx.out.print_json(&json!({
                    "invocation_id": call.invocation.id,
                    "tool_name": call.invocation.tool,
                    "status": status,
                    "operator": detail,
                }))?;
            }
        }
        Ok(())
    }

    /// Prints the detail of a call below its line.
    fn print_below(&self, cx: &CommandContext, call: CallId) -> Result<(), CliError> {
        let Some(detail) = self.0.get(&call) else {
            return Ok(());
        };
        detail.lines().try_for_each(|line| {
            let line = style::escape_controls(line);
            cx.out.print_line(style::dim(format!("       {line}")))
        })
    }
}

/// Folds the events of a session and of its agents into one screen, with the whole texts of
/// messages. Without a valid configuration there is no redactor for them, and the screen says that
/// they are truncated.
async fn fold_whole(
    cx: &CommandContext,
    store: &StoreHandle,
    session: SessionId,
) -> Result<SessionScreen, CliError> {
    let gate = GateArgs::default().open_preview(cx).ok();
    let whole = gate.as_ref().map(|gate| WholeTexts::new(store, gate));
    fold_with_agents(store, session, whole).await
}

/// Folds the events of a session and of its agents into one screen.
pub(super) async fn fold_with_agents(
    store: &StoreHandle,
    session: SessionId,
    whole: Option<WholeTexts<'_>>,
) -> Result<SessionScreen, CliError> {
    let mut screen = SessionScreen::new();
    apply_events(&mut screen, store, session, whole).await?;
    let mut looked = 0;
    // An agent's calls are appended to the list while it is walked, so agents of agents are found
    // too.
    while let Some(call) = screen.calls().get(looked).map(|call| call.invocation.id) {
        looked += 1;
        let agent = call.agent_session();
        if store.revision(agent).await? > 0 {
            apply_events(&mut screen, store, agent, whole).await?;
        }
    }
    Ok(screen)
}

async fn print_events(
    cx: &CommandContext,
    store: &StoreHandle,
    session: SessionId,
) -> Result<(), CliError> {
    let mut after = 0;
    loop {
        let page = store.events(session, after, PAGE).await?;
        for event in &page {
            if cx.out.is_json() {
                cx.out.print_json(&**event)?
            } else {
                cx.out.print_line(event_line(event))?
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE => after = last.sequence(),
            _ => return Ok(()),
        }
    }
}

fn event_line(event: &Event) -> String {
    let about = match event.body() {
        EventBody::Tool(invocation, _) => {
            format!("{} {}", invocation.tool, ids::short_id(invocation.id))
        }
        EventBody::Turn(turn, _) | EventBody::Loop(turn, _) => {
            style::dim(format!("turn {}", ids::short_id(turn.turn))).to_string()
        }
    };
    format!(
        "{:>6}  {}  {:<28} {about}",
        event.sequence(),
        event.at(),
        event.name()
    )
}

fn print_session(
    cx: &CommandContext,
    session: SessionId,
    screen: &SessionScreen,
    details: &OperatorDetails,
) -> Result<(), CliError> {
    let cost = screen
        .cost()
        .map_or_else(String::new, |cost| format!(", cost {cost}"));
    let calls = screen.calls().len();
    let calls = if calls == 1 {
        "1 call".to_owned()
    } else {
        format!("{calls} calls")
    };
    let last = times::format_time(screen.last_event_at());
    let head = style::bold(session).with(&format!("  {calls}{cost}, last {last}"), Style::new());
    for row in render::wrap_for_output(&head, "  ") {
        cx.out.print_line(row)?;
    }
    for agent in screen.agents() {
        if agent.session != session {
            let name = agent.name.as_deref().unwrap_or("agent");
            cx.out.print_line(format_args!(
                "\n{} {}",
                style::note(name),
                style::dim(agent.session)
            ))?;
        }
        print_conversation(cx, screen, agent, details)?;
    }
    Ok(())
}

fn print_conversation(
    cx: &CommandContext,
    screen: &SessionScreen,
    agent: &AgentView,
    details: &OperatorDetails,
) -> Result<(), CliError> {
    for item in &agent.items {
        match item {
            ConversationItem::User { text, .. } => {
                cx.out.print_line("")?;
                text.lines()
                    .try_for_each(|line| cx.out.print_line(style::bold(format!("> {line}"))))?;
            }
            ConversationItem::Model(text) => {
                cx.out.print_line("")?;
                render::render_markdown(text, render::text_width())
                    .iter()
                    .try_for_each(|line| cx.out.print_line(line))?;
            }
            ConversationItem::Call(id) => {
                if let Some(call) = screen.call(*id) {
                    print_call(cx, call, screen.last_event_at())?;
                    details.print_below(cx, *id)?;
                }
            }
            ConversationItem::Note(text) => cx.out.print_line(style::dim(format!("  {text}")))?,
        }
    }
    if let Some(end) = agent.end {
        cx.out
            .print_line(style::dim(format!("  ({})", end.text())))?;
    }
    Ok(())
}

/// Prints a call with all of its output.
fn print_call(cx: &CommandContext, call: &CallView, now: Timestamp) -> Result<(), CliError> {
    let short = ids::short_id(call.invocation.id);
    // A pipe gets whole lines.
    let width = render::output_width().unwrap_or(usize::MAX);
    let room = width.saturating_sub(short.len() + 3);
    let mut line = style::dim(format!("  {short} "));
    line.extend(render::call_line(call, room, now, 0));
    for row in line.wrap(width, &StyledLine::plain(CALL_INDENT)) {
        cx.out.print_line(row)?;
    }
    let width = width.saturating_sub(CALL_INDENT.len());
    for row in render::render_output(call, OutputRows::All, width) {
        cx.out.print_line(format_args!("{CALL_INDENT}{row}"))?;
    }
    Ok(())
}
