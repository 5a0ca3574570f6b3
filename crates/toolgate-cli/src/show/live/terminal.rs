//! A run on a terminal: draws its events and asks the user for approval.

use std::{io, sync::Arc, time::Duration};

use crossterm::{
    event::{Event as Input, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    terminal::{disable_raw_mode, enable_raw_mode, size},
};
use futures::StreamExt;
use tokio::{sync::watch::Receiver, time::MissedTickBehavior};
use toolgate::{
    Gate, Session,
    layers::{Toast, ToastManager},
    session::RunHandle,
};

use super::{FollowEnd, RunTask, StopSignals, answer::AnswerHandler, display::LiveDisplay};
use crate::{
    CliError, CommandContext,
    show::{
        feed::FeedItem,
        screen::{CallState, CallView, SessionScreen},
        stored_requests::load_shown,
    },
};

/// The time between two frames.
const FRAME_INTERVAL: Duration = Duration::from_millis(80);

/// A run on a terminal.
pub(crate) struct TerminalFollower<'a> {
    session: Session,
    display: LiveDisplay,
    desk: AnswerHandler<'a>,
    keyboard: Keyboard,
    toasts: Option<ToastManager>,
    stopping: bool,
}

/// The key presses. Dropping it restores the terminal.
pub(crate) struct Keyboard(Option<EventStream>);

impl Keyboard {
    fn open() -> io::Result<Self> {
        enable_raw_mode()?;
        Ok(Self(Some(EventStream::new())))
    }

    /// Releases the keyboard for another program.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        self.0 = None;
        disable_raw_mode()
    }

    /// Takes the keyboard over again.
    pub(crate) fn reacquire(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        self.0 = Some(EventStream::new());
        Ok(())
    }

    async fn next(&mut self) -> Option<io::Result<Input>> {
        match &mut self.0 {
            Some(keys) => keys.next().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // Nothing more can be done for a terminal that is gone.
        let _ = disable_raw_mode();
    }
}

/// The cause of a wake-up.
enum WakeCause {
    Stop,
    Pressed(Option<io::Result<Input>>),
    Tick,
    Fed(Option<FeedItem>),
    Toasts,
    Done(FollowEnd),
}

impl<'a> TerminalFollower<'a> {
    /// Takes over the terminal. What is in `screen` already is not printed again.
    pub(crate) fn new(
        cx: &'a CommandContext,
        gate: &'a Gate,
        session: &Session,
        screen: SessionScreen,
    ) -> Result<Self, CliError> {
        let keyboard = Keyboard::open()?;
        let me = cx.current_approver(None);
        let display = LiveDisplay::new(screen, me, size()?, cx.out.is_colored());
        let desk = AnswerHandler::new(cx, gate, session);
        Ok(Self {
            session: session.clone(),
            display,
            desk,
            keyboard,
            toasts: gate.resources().get(),
            stopping: false,
        })
    }

    /// Draws and asks until the run ends. The terminal is restored when this returns.
    pub(crate) async fn follow(
        mut self,
        job: &mut RunTask,
        stops: &mut StopSignals,
    ) -> Result<(FollowEnd, SessionScreen), CliError> {
        let ended = self.follow_until_end(job, stops).await;
        // Also after an error: its message is printed below the display, whose cursor is hidden.
        self.display.release()?;
        Ok((ended?, self.display.screen))
    }

    async fn follow_until_end(
        &mut self,
        job: &mut RunTask,
        stops: &mut StopSignals,
    ) -> Result<FollowEnd, CliError> {
        self.load_requests().await;
        let mut toasted = self.toasts.as_ref().map(ToastManager::subscribe);
        let mut ticks = tokio::time::interval(FRAME_INTERVAL);
        // Otherwise the ticks that are missed while an editor is open would all come at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let woken = tokio::select! {
                biased;
                // Signals and keys first: a busy run must not delay Ctrl-C.
                () = stops.next() => WakeCause::Stop,
                input = self.keyboard.next() => WakeCause::Pressed(input),
                _ = ticks.tick() => WakeCause::Tick,
                fed = job.feed.next() => WakeCause::Fed(fed?),
                () = toasts_changed(&mut toasted) => WakeCause::Toasts,
                report = job.run.report() => {
                    // The run may end before its last events were read from the bus.
                    for event in job.feed.drain_events().await? {
                        self.display.apply_item(&FeedItem::Event(event));
                    }
                    WakeCause::Done(FollowEnd::Report(Box::new(report?)))
                }
            };
            if let Some(ended) = self.handle_wake(woken, &job.run).await? {
                return Ok(ended);
            }
        }
    }

    async fn handle_wake(
        &mut self,
        woken: WakeCause,
        run: &RunHandle,
    ) -> Result<Option<FollowEnd>, CliError> {
        match woken {
            WakeCause::Stop => return Ok(self.stop(run)),
            // Some terminals also report releases; a key must not count twice.
            WakeCause::Pressed(Some(Ok(Input::Key(key)))) if key.kind != KeyEventKind::Release => {
                return self.handle_key(key, run).await;
            }
            WakeCause::Pressed(Some(Ok(Input::Resize(width, height)))) => {
                self.display.resize((width, height))?
            }
            WakeCause::Pressed(Some(Ok(_))) => {}
            // A terminal that is gone stops the run as Ctrl-C does.
            WakeCause::Pressed(Some(Err(_)) | None) => {
                self.keyboard.release()?;
                return Ok(self.stop(run));
            }
            WakeCause::Tick => {
                self.display.tick();
                self.expire_toasts();
                self.display.draw()?;
                return Ok(self.is_postponed().then_some(FollowEnd::Postponed));
            }
            WakeCause::Fed(Some(fed)) => {
                self.display.apply_item(&fed);
                self.load_requests().await;
            }
            WakeCause::Fed(None) => return Err(CliError::new("the run ended without a report")),
            WakeCause::Toasts => self.display.set_toasts(
                self.toasts
                    .as_ref()
                    .map(ToastManager::current)
                    .unwrap_or_default(),
            ),
            WakeCause::Done(ended) => return Ok(Some(ended)),
        }
        Ok(None)
    }

    /// Loads the approval requests that came up, and shows the current one.
    async fn load_requests(&mut self) {
        let desk = self.session.dispatcher().approval_service();
        for (call, generation, shown) in load_shown(&self.display.screen, &desk).await {
            self.display.screen.set_shown(call, generation, shown);
        }
        self.display.update_prompt();
    }

    async fn handle_key(
        &mut self,
        key: KeyEvent,
        run: &RunHandle,
    ) -> Result<Option<FollowEnd>, CliError> {
        // In raw mode Ctrl-C is a key like any other and raises no signal.
        if key.modifiers.contains(KeyModifiers::CONTROL)
            && matches!(key.code, KeyCode::Char('c' | 'C'))
        {
            return Ok(self.stop(run));
        }
        let act = self.display.prompt.handle_key(key);
        self.desk
            .carry_out(act, &mut self.display, &mut self.keyboard)
            .await?;
        self.display.update_prompt();
        self.display.draw()?;
        Ok(None)
    }

    /// Interrupts the turn the first time; the second time, quits without waiting until it is
    /// saved.
    fn stop(&mut self, run: &RunHandle) -> Option<FollowEnd> {
        if std::mem::replace(&mut self.stopping, true) {
            return Some(FollowEnd::Quit);
        }
        run.interrupt();
        self.display.show_stopping();
        None
    }

    /// Checks whether only postponed approvals are left.
    fn is_postponed(&self) -> bool {
        let screen = &self.display.screen;
        let prompt = &self.display.prompt;
        // The call of an agent is open while the agent waits for approval.
        let is_agent = |call: &CallView| {
            let session = call.invocation.id.agent_session();
            screen.agents().iter().any(|agent| agent.session == session)
        };
        let put_off = |call: &CallView| {
            let asked = call
                .question
                .as_deref()
                .filter(|_| call.state == CallState::Pending);
            asked.is_some_and(|question| prompt.is_skipped(question)) || is_agent(call)
        };
        !self.stopping
            && screen.pending_calls().next().is_some()
            && screen.open_calls().all(put_off)
            // An agent with a model request in flight may still request calls.
            && !screen.agents().iter().any(|agent| agent.asking)
    }

    fn expire_toasts(&mut self) {
        if let Some(toasts) = &self.toasts {
            toasts.expire(self.display.now());
        }
    }
}

/// Waits until the toasts have changed.
async fn toasts_changed(toasts: &mut Option<Receiver<Arc<[Toast]>>>) {
    let told = match toasts {
        Some(toasts) => toasts.changed().await.is_ok(),
        None => false,
    };
    if !told {
        // There are no toasts to show any more.
        std::future::pending().await
    }
}
