//! The driver: feeds keys and events to the update function, draws, and carries out effects.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use crossterm::event::{Event as Input, EventStream, KeyCode, KeyModifiers};
use futures::StreamExt;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};
use toolgate::{
    Arguments, Gate, RunEnd, Session,
    approval::{ApprovalRequestRef, ShownRequest},
    event::ToolEvent,
    layers::{Toast, ToastLevel, ToastManager},
    value::ToolName,
};

use super::{
    ChatApp, ChatSetup, UiEffect, UiMessage, effects::EffectRunner, terminal::TerminalGuard, update,
};
use crate::{
    CliError, Exit,
    env::signals::{self, StopSignals, SuspendSignals},
    show::{
        feed::{EventFeed, FeedItem},
        live::editor,
        stored_requests::show_edited,
    },
};

/// The interval of spinners and toasts.
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// The least time between two frames: replies arrive in many small fragments.
const MIN_FRAME_INTERVAL: Duration = Duration::from_millis(16);
/// The longest wait for a stopped run to be saved when the program ends.
const SAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The way in which a conversation begins.
#[derive(Debug)]
pub(crate) enum ChatOpening {
    /// The user writes the first message in the UI.
    Wait,
    /// With this message.
    Say(String),
    /// By resuming an open run, if there is one.
    Resume,
}

/// Runs the UI until the user leaves.
pub(crate) async fn run_chat(
    gate: Gate,
    session: Session,
    setup: ChatSetup,
    opening: ChatOpening,
    dir: std::path::PathBuf,
) -> Result<Exit, CliError> {
    let gate = Arc::new(gate);
    let toasts = gate.resources().get_or_default::<ToastManager>();
    let (back, inbox) = mpsc::unbounded_channel();
    // Subscribed before the log is read, so that no event is lost in between.
    let feed = EventFeed::new(session.bus(), gate.store().clone());
    let carrier = EffectRunner {
        gate,
        session,
        toasts: toasts.clone(),
        back,
        dir,
        leaving: Arc::default(),
    };
    let mut driver = ChatDriver {
        app: ChatApp::new(setup),
        toasted: toasts.subscribe(),
        screenful: None,
        keys: None,
        run: None,
        exit: None,
        carrier,
        feed,
        inbox,
    };
    // Messages that are older than the subscription are shown, too.
    driver.toasted.mark_changed();
    driver.open_chat(opening).await?;
    let exit = driver.run_loop().await;
    // Also after an error: the run has to be stopped, so that it is saved.
    driver.finish().await;
    exit
}

struct ChatDriver {
    app: ChatApp,
    carrier: EffectRunner,
    feed: EventFeed,
    toasted: watch::Receiver<Arc<[Toast]>>,
    inbox: mpsc::UnboundedReceiver<UiMessage>,
    screenful: Option<TerminalGuard>,
    /// `None` while an editor has the keyboard.
    keys: Option<EventStream>,
    run: Option<JoinHandle<()>>,
    exit: Option<Exit>,
}

impl ChatDriver {
    async fn open_chat(&mut self, opening: ChatOpening) -> Result<(), CliError> {
        // Before the terminal is taken over, so that an error is printed normally.
        self.load_history().await?;
        self.load_requests().await;
        self.apply_message(UiMessage::Tick(super::effects::current_time()));
        match opening {
            ChatOpening::Wait => {}
            ChatOpening::Say(text) => self.carrier.send_message(text, &mut self.run),
            ChatOpening::Resume => {
                let screen = self.app.screen();
                let is_open = matches!(screen.run_end(), None | Some(RunEnd::Suspended))
                    && !screen.agents().is_empty();
                if is_open {
                    self.carrier.resume_run(&mut self.run);
                }
            }
        }
        self.screenful = Some(TerminalGuard::acquire()?);
        self.keys = Some(EventStream::new());
        Ok(())
    }

    async fn run_loop(&mut self) -> Result<Exit, CliError> {
        let mut ticks = interval(TICK_INTERVAL);
        // Otherwise the ticks that are missed while an editor is open would all come at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut stops = StopSignals::listen();
        let mut suspends = SuspendSignals::listen();
        let mut next_frame = Instant::now();
        let mut dirty = true;
        loop {
            if let Some(exit) = self.exit {
                return Ok(exit);
            }
            tokio::select! {
                // Signals and keys first: a fast stream of events must not delay Ctrl-C.
                biased;
                stop = stops.next() => self.set_exit(stop.exit_status()),
                () = suspends.next() => self.suspend_program()?,
                key = next_key(&mut self.keys) => self.handle_input(key).await?,
                // Before events: a stream of fragments must not starve the screen.
                () = sleep_until(next_frame), if dirty => {
                    self.draw()?;
                    next_frame = Instant::now() + MIN_FRAME_INTERVAL;
                    dirty = false;
                    continue;
                }
                Some(msg) = self.inbox.recv() => self.apply_and_edit(msg).await?,
                Ok(()) = self.toasted.changed() => {
                    let toasts = self.toasted.borrow_and_update().clone();
                    self.apply_message(UiMessage::Toasts(toasts));
                }
                fed = self.feed.next() => match fed? {
                    Some(FeedItem::Event(event)) => {
                        let event = self.carrier.complete_event(event).await?;
                        self.carrier.toasts.apply_event(&event);
                        self.apply_message(UiMessage::Event(event));
                        self.load_requests().await;
                    }
                    Some(FeedItem::Piece(piece)) => self.apply_message(UiMessage::Piece(piece)),
                    None => return Err(CliError::new("the session is closed")),
                },
                _ = ticks.tick() => {
                    let now = super::effects::current_time();
                    self.carrier.toasts.expire(now);
                    self.apply_message(UiMessage::Tick(now));
                    // Nothing on the screen changes with time, so an idle UI does not redraw.
                    if !self.app.is_animated() {
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

    async fn handle_input(&mut self, key: Option<std::io::Result<Input>>) -> Result<(), CliError> {
        match key {
            Some(Ok(Input::Key(key)))
                if key.code == KeyCode::Char('z')
                    && key.modifiers.contains(KeyModifiers::CONTROL) =>
            {
                signals::raise_suspend();
                Ok(())
            }
            Some(Ok(Input::Key(key))) => self.apply_and_edit(UiMessage::Key(key)).await,
            Some(Ok(Input::Paste(text))) => self.apply_and_edit(UiMessage::Paste(text)).await,
            // A resize needs no message: a frame follows any input and asks for the size itself.
            Some(Ok(
                Input::Resize(..) | Input::FocusGained | Input::FocusLost | Input::Mouse(_),
            )) => Ok(()),
            Some(Err(error)) => Err(error.into()),
            // The terminal is gone.
            None => {
                self.set_exit(Exit::HungUp);
                Ok(())
            }
        }
    }

    /// Reads the events so far: of the session, then of its agents, which may have agents of their
    /// own.
    async fn load_history(&mut self) -> Result<(), CliError> {
        let agents: Vec<String> = self
            .carrier
            .gate
            .agent_names()
            .map(|name| name.to_string())
            .collect();
        let mut sessions = VecDeque::from([self.carrier.session.id()]);
        while let Some(session) = sessions.pop_front() {
            let events = self.feed.read_session(session).await?;
            sessions.extend(events.iter().filter_map(|event| match event.as_tool() {
                Some((call, ToolEvent::ToolRequested { .. }))
                    if agents.iter().any(|name| name == call.tool.as_str()) =>
                {
                    Some(call.id.agent_session())
                }
                _ => None,
            }));
            for event in events {
                let event = self.carrier.complete_event(event).await?;
                self.apply_message(UiMessage::Event(event));
            }
        }
        Ok(())
    }

    /// Loads what an approver sees of the requests that came up.
    async fn load_requests(&mut self) {
        for message in self.carrier.load_shown(self.app.screen()).await {
            self.apply_message(message);
        }
    }

    fn apply_message(&mut self, msg: UiMessage) {
        for effect in update(&mut self.app, msg) {
            // Events and ticks never ask for the editor; only keys and results of effects do.
            self.run_effect(effect);
        }
    }

    async fn apply_and_edit(&mut self, msg: UiMessage) -> Result<(), CliError> {
        for effect in update(&mut self.app, msg) {
            match effect {
                UiEffect::Edit(question, arguments) => {
                    let edited = self.edit_request(question, arguments).await?;
                    let _ = self.carrier.back.send(UiMessage::Edited(question, edited));
                }
                other => self.run_effect(other),
            }
        }
        Ok(())
    }

    fn run_effect(&mut self, effect: UiEffect) {
        match effect {
            UiEffect::Say(text) => self.carrier.send_message(text, &mut self.run),
            UiEffect::Resume => self.carrier.resume_run(&mut self.run),
            UiEffect::Quit => self.set_exit(Exit::Done),
            UiEffect::Copy(text) => {
                let copied = self
                    .screenful
                    .as_mut()
                    .map(|screenful| screenful.copy_to_clipboard(&text));
                match copied {
                    Some(Ok(())) => self
                        .carrier
                        .show_toast(ToastLevel::Info, "copied to the clipboard".to_owned()),
                    Some(Err(error)) => self
                        .carrier
                        .show_toast(ToastLevel::Error, error.to_string()),
                    None => {}
                }
            }
            other => self.carrier.run_effect(other),
        }
    }

    /// Lets the user edit the arguments of a request, and returns what an approver sees of them.
    async fn edit_request(
        &mut self,
        question: ApprovalRequestRef,
        arguments: Option<Arguments>,
    ) -> Result<Result<Option<(Arguments, Arc<ShownRequest>)>, String>, CliError> {
        let request = match self.carrier.load_request(question).await {
            Ok(request) => request,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let given = arguments.as_ref().unwrap_or(&request.arguments);
        let edited = self.run_editor(&request.tool, given).await?;
        let carrier = &self.carrier;
        let show = |edited: Arguments| {
            let shown = show_edited(&carrier.gate, &carrier.session, &request, &edited);
            (edited, Arc::new(shown))
        };
        Ok(edited.map(|edited| edited.map(show)))
    }

    /// Gives keyboard and screen to an editor until it exits.
    async fn run_editor(
        &mut self,
        tool: &ToolName,
        arguments: &Arguments,
    ) -> Result<Result<Option<Arguments>, String>, CliError> {
        let view = self.carrier.gate.view()?;
        let schema = view.get(tool.as_str()).map(|tool| tool.spec.input.clone());
        // Two readers of one keyboard would take each other's keys.
        self.keys = None;
        if let Some(screenful) = &mut self.screenful {
            screenful.release();
        }
        let edited = editor::edit_arguments(arguments, schema.as_ref()).await;
        if let Some(screenful) = &mut self.screenful {
            screenful.enter()?;
        }
        self.keys = Some(EventStream::new());
        Ok(edited.map_err(|error| error.to_string()))
    }

    /// Restores the terminal, suspends the program, and takes the terminal over again when it
    /// continues.
    fn suspend_program(&mut self) -> Result<(), CliError> {
        self.keys = None;
        if let Some(screenful) = &mut self.screenful {
            screenful.release();
        }
        signals::suspend_process();
        if let Some(screenful) = &mut self.screenful {
            screenful.enter()?;
        }
        self.keys = Some(EventStream::new());
        Ok(())
    }

    fn set_exit(&mut self, exit: Exit) {
        self.exit = Some(exit);
    }

    /// Stops the run and waits until it is saved, up to a limit.
    async fn finish(&mut self) {
        self.keys = None;
        // Before the wait for the run: a user who quits should not look at a frozen screen.
        if let Some(screenful) = &mut self.screenful {
            screenful.release();
        }
        if let Some(run) = self.run.take()
            && !run.is_finished()
        {
            self.carrier.stop_runs();
            // A run that does not stop in time is recovered when the session is resumed.
            let _ = timeout(SAVE_TIMEOUT, run).await;
        }
    }
}

async fn next_key(keys: &mut Option<EventStream>) -> Option<std::io::Result<Input>> {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}
