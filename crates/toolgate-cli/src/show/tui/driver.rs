//! The driver: feeds keys and events to the update function, draws, and carries out effects.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use crossterm::event::{Event as Input, EventStream};
use futures::StreamExt;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};
use toolgate::{
    Arguments, RunEnd, Session,
    approval::{ApprovalRequestRef, ShownRequest},
    event::ToolEvent,
    layers::{Toast, ToastLevel, ToastManager},
    value::{SessionId, ToolName},
};

use super::{
    ChatApp, SessionChange, SessionOpener, UiEffect, UiMessage,
    effects::{EffectRunner, describe_problem},
    terminal::TerminalGuard,
    update,
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

/// Runs the UI until the user leaves. Returns the last session as well.
pub(crate) async fn run_chat(
    opener: SessionOpener,
    session: Session,
    opening: ChatOpening,
) -> Result<(Exit, SessionId), CliError> {
    let mut driver = ChatDriver::new(opener, session)?;
    driver.open_chat(opening).await?;
    // For as long as the terminal is ours: a signal between two sessions must not leave it as it is.
    let mut stops = StopSignals::listen();
    let mut suspends = SuspendSignals::listen();
    loop {
        let exit = match driver.run_loop(&mut stops, &mut suspends).await {
            Ok(ChatEnd::Change(change)) => {
                driver = driver.change_session(change).await?;
                continue;
            }
            Ok(ChatEnd::Exit(exit)) => Ok((exit, driver.carrier.session.id())),
            // Also after an error: the run has to be stopped, so that it is saved.
            Err(error) => Err(error),
        };
        driver.finish().await;
        return exit;
    }
}

/// Why the conversation with a session ends.
#[derive(Debug, Clone)]
enum ChatEnd {
    /// The program ends.
    Exit(Exit),
    /// Another session or model follows.
    Change(SessionChange),
}

struct ChatDriver {
    opener: SessionOpener,
    app: ChatApp,
    carrier: EffectRunner,
    feed: EventFeed,
    toasted: watch::Receiver<Arc<[Toast]>>,
    inbox: mpsc::UnboundedReceiver<UiMessage>,
    screenful: Option<TerminalGuard>,
    /// `None` while an editor has the keyboard.
    keys: Option<EventStream>,
    run: Option<JoinHandle<()>>,
    end: Option<ChatEnd>,
}

impl ChatDriver {
    fn new(opener: SessionOpener, session: Session) -> Result<Self, CliError> {
        let toasts = opener.gate.resources().get_or_default::<ToastManager>();
        let (back, inbox) = mpsc::unbounded_channel();
        let mut toasted = toasts.subscribe();
        // Messages that are older than the subscription are shown, too.
        toasted.mark_changed();
        Ok(Self {
            app: ChatApp::new(opener.describe(&session)?),
            toasted,
            screenful: None,
            keys: None,
            run: None,
            end: None,
            // Subscribed before the log is read, so that no event is lost in between.
            feed: EventFeed::new(session.bus(), opener.gate.store().clone()),
            carrier: EffectRunner {
                gate: opener.gate.clone(),
                session,
                toasts,
                dir: opener.workspace().to_owned(),
                leaving: Arc::default(),
                back,
            },
            inbox,
            opener,
        })
    }

    /// Continues with another session or model. If that cannot be opened, the one before stays.
    async fn change_session(mut self, change: SessionChange) -> Result<Self, CliError> {
        self.end = None;
        let before = self.carrier.session.id();
        let (builder, args) = match self.opener.prepare(&change, before) {
            Ok(prepared) => prepared,
            Err(error) => {
                self.carrier
                    .show_toast(ToastLevel::Error, describe_problem(&error));
                return Ok(self);
            }
        };
        self.stop_run().await;
        let Self {
            mut opener,
            screenful,
            keys,
            carrier,
            mut inbox,
            ..
        } = self;
        // Only a session that no task uses any more gives its lease back. Each of them can report,
        // so there is none left when no report can come.
        drop(carrier);
        let _ = timeout(SAVE_TIMEOUT, async {
            while inbox.recv().await.is_some() {}
        })
        .await;
        let opened = builder.build().await.map_err(CliError::from);
        let problem = opened.as_ref().err().map(describe_problem);
        let session = match opened {
            Ok(session) => {
                opener.args = args;
                opener.store_options(&change, session.id()).await?;
                session
            }
            Err(_) => {
                let (builder, _) = opener.prepare(&SessionChange::Resume(before), before)?;
                builder.build().await?
            }
        };
        let mut driver = Self::new(opener, session)?;
        driver.screenful = screenful;
        driver.keys = keys;
        driver.announce_change(change, before, problem).await?;
        Ok(driver)
    }

    /// Shows the session after a change, and says what has changed or why nothing has.
    async fn announce_change(
        &mut self,
        change: SessionChange,
        before: SessionId,
        problem: Option<String>,
    ) -> Result<(), CliError> {
        let opening = match (&change, &problem) {
            (SessionChange::Resume(_), None) => ChatOpening::Resume,
            _ => ChatOpening::Wait,
        };
        self.open_chat(opening).await?;
        match (change, problem) {
            (_, Some(problem)) => self.carrier.show_toast(ToastLevel::Error, problem),
            (SessionChange::Begin, None) => self.app.setup.previous = Some(before),
            (SessionChange::UseModel(name), None) => self
                .carrier
                .show_toast(ToastLevel::Success, format!("the next run uses {name}")),
            (SessionChange::Resume(_), None) => {}
        }
        Ok(())
    }

    async fn open_chat(&mut self, opening: ChatOpening) -> Result<(), CliError> {
        // Before the terminal is taken over, so that an error is printed normally.
        self.load_history().await?;
        self.load_requests().await;
        self.apply_message(UiMessage::Tick(super::effects::current_time()));
        match opening {
            ChatOpening::Wait => {}
            ChatOpening::Say(text) => self.run_effect(UiEffect::Say(text)),
            ChatOpening::Resume => {
                let screen = self.app.screen();
                let is_open = matches!(screen.run_end(), None | Some(RunEnd::Suspended))
                    && !screen.agents().is_empty();
                if is_open {
                    self.run_effect(UiEffect::Resume);
                }
            }
        }
        if self.screenful.is_none() {
            self.screenful = Some(TerminalGuard::acquire()?);
            self.keys = Some(EventStream::new());
        }
        Ok(())
    }

    async fn run_loop(
        &mut self,
        stops: &mut StopSignals,
        suspends: &mut SuspendSignals,
    ) -> Result<ChatEnd, CliError> {
        let mut ticks = interval(TICK_INTERVAL);
        // Otherwise the ticks that are missed while an editor is open would all come at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut next_frame = Instant::now();
        let mut dirty = true;
        loop {
            if let Some(end) = &self.end {
                return Ok(end.clone());
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
            UiEffect::Say(text) => {
                self.announce_run();
                self.carrier.send_message(text, &mut self.run);
            }
            UiEffect::Resume => {
                self.announce_run();
                self.carrier.resume_run(&mut self.run);
            }
            UiEffect::Quit => self.set_exit(Exit::Done),
            UiEffect::Change(change) => self.end = Some(ChatEnd::Change(change)),
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

    /// Shows that a run starts before its task does: a screen that still says "stopped" would take
    /// Ctrl-C for quitting.
    fn announce_run(&mut self) {
        self.apply_message(UiMessage::RunStarted);
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
        self.end = Some(ChatEnd::Exit(exit));
    }

    /// Gives the terminal back, and stops the run.
    async fn finish(&mut self) {
        self.keys = None;
        // Before the wait for the run: a user who quits should not look at a frozen screen.
        if let Some(screenful) = &mut self.screenful {
            screenful.release();
        }
        self.stop_run().await;
    }

    /// Stops the run and waits until it is saved, up to a limit.
    async fn stop_run(&mut self) {
        if let Some(run) = self.run.take()
            && !run.is_finished()
        {
            self.carrier.stop_runs();
            // A run that does not stop in time is recovered when the session is resumed.
            let _ = timeout(SAVE_TIMEOUT, run).await;
        }
        // The screen is given back already.
        self.carrier.session.wait_for_hooks(SAVE_TIMEOUT).await;
    }
}

async fn next_key(keys: &mut Option<EventStream>) -> Option<std::io::Result<Input>> {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}
