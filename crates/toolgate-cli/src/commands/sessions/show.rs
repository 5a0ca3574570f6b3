//! `toolgate sessions show`: the conversation of a session with its calls, or its events.

use toolgate::{Event, event::EventBody, store::StoreHandle, value::SessionId};

use super::{
    SessionShowArgs,
    list::{apply_events, fold_session},
};
use crate::{
    CliError, CommandContext, Exit,
    env::{ids, style, times},
    show::{
        render,
        screen::{AgentView, ConversationItem, SessionScreen},
    },
};

/// The number of events per query.
const PAGE: usize = 500;

pub(super) async fn show_session(
    args: &SessionShowArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    let session = ids::find_session(&store, &args.id).await?;
    if args.events || cx.out.is_json() {
        print_events(cx, &store, session).await?;
    } else {
        print_session(cx, session, &fold_with_agents(&store, session).await?)?;
    }
    Ok(Exit::Done)
}

/// Folds the events of a session and of its agents into one screen.
pub(super) async fn fold_with_agents(
    store: &StoreHandle,
    session: SessionId,
) -> Result<SessionScreen, CliError> {
    let mut screen = fold_session(store, session).await?;
    let mut looked = 0;
    // An agent's calls are appended to the list while it is walked, so agents of agents are found
    // too.
    while let Some(call) = screen.calls().get(looked).map(|call| call.invocation.id) {
        looked += 1;
        let agent = call.agent_session();
        if store.revision(agent).await? > 0 {
            apply_events(&mut screen, store, agent).await?;
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
) -> Result<(), CliError> {
    let cost = screen
        .cost()
        .map_or_else(String::new, |cost| format!(", {cost}"));
    let calls = screen.calls().len();
    cx.out.print_line(format_args!(
        "{}  {calls} calls{cost}, last {}",
        style::bold(session),
        times::format_time(screen.last_event_at())
    ))?;
    for agent in screen.agents() {
        if agent.session != session {
            let name = agent.name.as_deref().unwrap_or("agent");
            cx.out.print_line(format_args!(
                "\n{} {}",
                style::note(name),
                style::dim(agent.session)
            ))?;
        }
        print_conversation(cx, screen, agent)?;
    }
    Ok(())
}

fn print_conversation(
    cx: &CommandContext,
    screen: &SessionScreen,
    agent: &AgentView,
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
                    let id = ids::short_id(*id);
                    let line = render::call_line(
                        call,
                        render::text_width().saturating_sub(id.len() + 3),
                        screen.last_event_at(),
                        0,
                    );
                    cx.out
                        .print_line(format_args!("  {} {line}", style::dim(id)))?;
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
