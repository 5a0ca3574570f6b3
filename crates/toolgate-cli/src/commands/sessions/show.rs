//! One session: the conversation with its calls, or its events.

use toolgate::{Event, EventBody, SessionId, StoreHandle};

use super::{ShowArgs, list::take_in};
use crate::{
    CliError, Cx, Exit, ids, render,
    screen::{AgentView, Item, Screen},
    style, times,
};

/// How many events are read at once.
const PAGE: usize = 500;

pub(super) async fn run(args: &ShowArgs, cx: &Cx) -> Result<Exit, CliError> {
    let store = cx.store().await?;
    let session = ids::find_session(&store, &args.id).await?;
    if args.events || cx.out.is_json() {
        events(cx, &store, session).await?;
    } else {
        print(cx, session, &with_agents(&store, session).await?)?;
    }
    Ok(Exit::Done)
}

/// The screen of a session with those of its agents.
pub(super) async fn with_agents(
    store: &StoreHandle,
    session: SessionId,
) -> Result<Screen, CliError> {
    let mut screen = Screen::new();
    take_in(&mut screen, store, session).await?;
    let mut looked = 0;
    // Calls of agents come behind those that are known, so that theirs are looked at as well.
    while let Some(call) = screen.calls().get(looked).map(|call| call.invocation.id) {
        looked += 1;
        let agent = SessionId::new(call.uuid());
        if store.revision(agent).await? > 0 {
            take_in(&mut screen, store, agent).await?;
        }
    }
    Ok(screen)
}

async fn events(cx: &Cx, store: &StoreHandle, session: SessionId) -> Result<(), CliError> {
    let mut after = 0;
    loop {
        let page = store.events(session, after, PAGE).await?;
        for event in &page {
            match cx.out.is_json() {
                true => cx.out.json(&**event)?,
                false => cx.out.line(event_line(event))?,
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
            format!("{} {}", invocation.tool, ids::short(invocation.id))
        }
        EventBody::Turn(turn, _) | EventBody::Loop(turn, _) => {
            style::dim(format!("turn {}", ids::short(turn.turn))).to_string()
        }
    };
    format!(
        "{:>6}  {}  {:<28} {about}",
        event.sequence(),
        event.at(),
        event.name()
    )
}

fn print(cx: &Cx, session: SessionId, screen: &Screen) -> Result<(), CliError> {
    let cost = screen
        .cost()
        .map_or_else(String::new, |cost| format!(", {cost}"));
    let calls = screen.calls().len();
    cx.out.line(format_args!(
        "{}  {calls} calls{cost}, last {}",
        style::bold(session),
        times::shown(screen.now())
    ))?;
    for agent in screen.agents() {
        if agent.session != session {
            let name = agent.name.as_deref().unwrap_or("agent");
            cx.out.line(format_args!(
                "\n{} {}",
                style::note(style::plain(name)),
                style::dim(agent.session)
            ))?;
        }
        conversation(cx, screen, agent)?;
    }
    Ok(())
}

fn conversation(cx: &Cx, screen: &Screen, agent: &AgentView) -> Result<(), CliError> {
    for item in &agent.items {
        match item {
            Item::User { text, .. } => {
                cx.out.line("")?;
                text.lines().try_for_each(|line| {
                    cx.out
                        .line(style::bold(format!("> {}", style::plain(line))))
                })?;
            }
            Item::Model(text) => {
                cx.out.line("")?;
                render::markdown(text, render::width())
                    .iter()
                    .try_for_each(|line| cx.out.line(line))?;
            }
            Item::Call(id) => {
                if let Some(call) = screen.call(*id) {
                    let id = ids::short(*id);
                    let line = render::call_line(
                        call,
                        render::width().saturating_sub(id.len() + 3),
                        screen.now(),
                        0,
                    );
                    cx.out.line(format_args!("  {} {line}", style::dim(id)))?;
                }
            }
            Item::Note(text) => cx
                .out
                .line(style::dim(format!("  {}", style::plain(text))))?,
        }
    }
    if let Some(end) = agent.end {
        cx.out.line(style::dim(format!("  ({end})")))?;
    }
    Ok(())
}
