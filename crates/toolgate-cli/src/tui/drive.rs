//! The driver: feeds keys and events to the update function, draws, and has effects carried out.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use crossterm::event::{Event as Input, EventStream};
use futures::StreamExt;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};
use toolgate::{
    Arguments, RunEnd, Session, SessionId, ToolEvent, ToolName, View,
    layers::{Toast, ToastLevel, ToastManager},
};

use super::{App, Effect, Msg, Setup, carry::Carrier, terminal::Screenful, update};
use crate::{
    CliError, Exit, Gate,
    feed::{Fed, Feed},
    watch::editor,
};

/// How often time moves on for spinners and messages.
const TICK: Duration = Duration::from_millis(100);
/// The least time between two frames: replies come in many small pieces.
const FRAME: Duration = Duration::from_millis(16);
/// How long a run that is being stopped may take to be saved before the program ends anyway.
const PATIENCE: Duration = Duration::from_secs(3);

/// How a conversation begins.
#[derive(Debug)]
pub(crate) enum Opening {
    /// Somebody writes the first message in the UI.
    Wait,
    /// With this message.
    Say(String),
    /// With what was left open, if something was.
    TakeUp,
}

/// Talks with the person at the terminal until they leave.
pub(crate) async fn run(
    gate: Gate,
    session: Session,
    setup: Setup,
    opening: Opening,
    dir: std::path::PathBuf,
) -> Result<Exit, CliError> {
    let gate = Arc::new(gate);
    let toasts = gate.parts.get_or_default::<ToastManager>();
    let (back, inbox) = mpsc::unbounded_channel();
    let feed = Feed::new(session.bus(), gate.store.clone());
    let carrier = Carrier {
        gate,
        session,
        toasts: toasts.clone(),
        back,
        dir,
        leaving: Arc::default(),
    };
    let mut driver = Driver {
        app: App::new(setup),
        toasted: toasts.subscribe(),
        screenful: None,
        keys: None,
        run: None,
        exit: None,
        carrier,
        feed,
        inbox,
    };
    driver.begin(opening).await?;
    let exit = driver.attend().await;
    driver.finish().await;
    exit
}

struct Driver {
    app: App,
    carrier: Carrier,
    feed: Feed,
    toasted: watch::Receiver<Arc<[Toast]>>,
    inbox: mpsc::UnboundedReceiver<Msg>,
    screenful: Option<Screenful>,
    /// Nothing while an editor has the keyboard.
    keys: Option<EventStream>,
    run: Option<JoinHandle<()>>,
    exit: Option<Exit>,
}

impl Driver {
    async fn begin(&mut self, opening: Opening) -> Result<(), CliError> {
        self.read().await?;
        self.put(Msg::Tick(super::carry::now()));
        match opening {
            Opening::Wait => {}
            Opening::Say(text) => self.carrier.say(text, &mut self.run),
            Opening::TakeUp => {
                let screen = self.app.screen();
                let is_open = matches!(screen.end(), None | Some(RunEnd::Suspended))
                    && !screen.agents().is_empty();
                if is_open {
                    self.carrier.go_on(&mut self.run);
                }
            }
        }
        self.screenful = Some(Screenful::take()?);
        self.keys = Some(EventStream::new());
        Ok(())
    }

    async fn attend(&mut self) -> Result<Exit, CliError> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut terminated = signal(SignalKind::terminate())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        let (mut next_frame, mut dirty) = (Instant::now(), true);
        loop {
            if let Some(exit) = self.exit {
                return Ok(exit);
            }
            tokio::select! {
                biased;
                _ = terminated.recv() => self.end(Exit::Interrupted),
                _ = hung_up.recv() => self.end(Exit::Interrupted),
                key = next_key(&mut self.keys) => self.typed(key).await?,
                () = sleep_until(next_frame), if dirty => {
                    self.draw()?;
                    (next_frame, dirty) = (Instant::now() + FRAME, false);
                    continue;
                }
                Some(msg) = self.inbox.recv() => self.put_and_edit(msg).await?,
                Ok(()) = self.toasted.changed() => {
                    let toasts = self.toasted.borrow_and_update().clone();
                    self.put(Msg::Toasts(toasts));
                }
                fed = self.feed.next() => match fed? {
                    Some(Fed::Event(event)) => {
                        self.carrier.toasts.apply(&event);
                        self.put(Msg::Event(event));
                    }
                    Some(Fed::Piece(piece)) => self.put(Msg::Piece(piece)),
                    None => return Err(CliError::new("the session has gone away")),
                },
                _ = ticks.tick() => {
                    let now = super::carry::now();
                    self.carrier.toasts.expire(now);
                    self.put(Msg::Tick(now));
                    if !self.app.moves() {
                        continue;
                    }
                }
            }
            dirty = true;
        }
    }

    fn draw(&mut self) -> Result<(), CliError> {
        match &mut self.screenful {
            Some(screenful) => Ok(screenful.draw(&mut self.app)?),
            None => Ok(()),
        }
    }

    async fn typed(&mut self, key: Option<std::io::Result<Input>>) -> Result<(), CliError> {
        match key {
            Some(Ok(Input::Key(key))) => self.put_and_edit(Msg::Key(key)).await,
            Some(Ok(Input::Paste(text))) => self.put_and_edit(Msg::Paste(text)).await,
            Some(Ok(
                Input::Resize(..) | Input::FocusGained | Input::FocusLost | Input::Mouse(_),
            )) => Ok(()),
            Some(Err(error)) => Err(error.into()),
            // The terminal has gone.
            None => {
                self.end(Exit::Interrupted);
                Ok(())
            }
        }
    }

    /// Reads what happened so far: in the session, then in those of its agents, which may have agents of their own.
    async fn read(&mut self) -> Result<(), CliError> {
        let agents: Vec<String> = self.carrier.gate.agent_names().collect();
        let mut sessions = VecDeque::from([self.carrier.session.id()]);
        while let Some(session) = sessions.pop_front() {
            let events = self.feed.read(session).await?;
            // An agent's session has the id of the call that began it.
            sessions.extend(events.iter().filter_map(|event| match event.as_tool() {
                Some((call, ToolEvent::ToolRequested { .. }))
                    if agents.iter().any(|name| name == call.tool.as_str()) =>
                {
                    Some(SessionId::new(call.id.uuid()))
                }
                _ => None,
            }));
            events
                .into_iter()
                .for_each(|event| self.put(Msg::Event(event)));
        }
        Ok(())
    }

    fn put(&mut self, msg: Msg) {
        for effect in update(&mut self.app, msg) {
            // Only keys and what comes back from effects want the terminal for themselves.
            self.carry(effect);
        }
    }

    async fn put_and_edit(&mut self, msg: Msg) -> Result<(), CliError> {
        for effect in update(&mut self.app, msg) {
            match effect {
                Effect::Edit(question, tool, arguments) => {
                    let edited = self.edit(&tool, &arguments).await?;
                    let _ = self.carrier.back.send(Msg::Edited(question, edited));
                }
                other => self.carry(other),
            }
        }
        Ok(())
    }

    fn carry(&mut self, effect: Effect) {
        match effect {
            Effect::Say(text) => self.carrier.say(text, &mut self.run),
            Effect::GoOn => self.carrier.go_on(&mut self.run),
            Effect::Quit => self.end(Exit::Done),
            Effect::Copy(text) => {
                let copied = self
                    .screenful
                    .as_mut()
                    .map(|screenful| screenful.copy(&text));
                match copied {
                    Some(Ok(())) => self
                        .carrier
                        .tell(ToastLevel::Info, "handed to the clipboard".to_owned()),
                    Some(Err(error)) => self.carrier.tell(ToastLevel::Error, error.to_string()),
                    None => {}
                }
            }
            other => self.carrier.carry(other),
        }
    }

    /// Gives keyboard and screen to an editor until it ends.
    async fn edit(
        &mut self,
        tool: &ToolName,
        arguments: &Arguments,
    ) -> Result<Result<Option<Arguments>, String>, CliError> {
        let view = View::under(&self.carrier.gate.registry, &self.carrier.gate.stack)?;
        let schema = view.get(tool.as_str()).map(|tool| tool.spec.input.clone());
        // Two readers of one keyboard would take each other's keys.
        self.keys = None;
        if let Some(screenful) = &mut self.screenful {
            screenful.leave();
        }
        let edited = editor::edit(arguments, schema.as_ref()).await;
        if let Some(screenful) = &mut self.screenful {
            screenful.enter()?;
        }
        self.keys = Some(EventStream::new());
        Ok(edited.map_err(|error| error.to_string()))
    }

    fn end(&mut self, exit: Exit) {
        self.exit = Some(exit);
    }

    /// Stops the run and waits until it is saved, but not for ever.
    async fn finish(&mut self) {
        self.keys = None;
        if let Some(screenful) = &mut self.screenful {
            screenful.leave();
        }
        if let Some(run) = self.run.take()
            && !run.is_finished()
        {
            self.carrier.leave();
            let _ = timeout(PATIENCE, run).await;
        }
    }
}

async fn next_key(keys: &mut Option<EventStream>) -> Option<std::io::Result<Input>> {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}
