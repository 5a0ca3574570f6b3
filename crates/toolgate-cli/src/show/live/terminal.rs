//! A run on a terminal: draws its events and asks the user for approval.

use std::{io, sync::Arc, time::Duration};

use crossterm::{
    event::{Event as Input, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    terminal::{disable_raw_mode, enable_raw_mode},
};
use futures::StreamExt;
use tokio::{sync::watch::Receiver, time::MissedTickBehavior};
use toolgate::{
    Gate, Session,
    layers::{Toast, ToastManager},
};

use super::{FollowEnd, RunTask, answer::AnswerHandler, complete_item, display::LiveDisplay};
use crate::{
    CliError, CommandContext,
    env::{
        signals::{self, StopSignal, StopSignals, SuspendSignals},
        style::DIM,
    },
    show::{
        feed::FeedItem,
        render::{OutputRows, terminal_size},
        screen::{CallState, CallView, SessionScreen},
        stored_requests::load_requests,
        whole_texts::WholeTexts,
    },
};

/// The time between two frames.
const FRAME_INTERVAL: Duration = Duration::from_millis(80);

/// A run on a terminal.
pub(crate) struct TerminalFollower<'a> {
    session: Session,
    whole: WholeTexts<'a>,
    display: LiveDisplay,
    desk: AnswerHandler<'a>,
    keyboard: Keyboard,
    toasts: ToastManager,
    suspends: SuspendSignals,
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

    /// Stops to read a keyboard that is gone.
    fn close(&mut self) {
        self.0 = None;
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
    Stop(StopSignal),
    Suspend,
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
        rows: OutputRows,
    ) -> Result<Self, CliError> {
        let keyboard = Keyboard::open()?;
        let me = cx.current_approver(None);
        let display = LiveDisplay::new(
            screen,
            me,
            terminal_size().unwrap_or((80, 24)),
            cx.out.is_colored(),
        )
        .with_output(rows);
        let desk = AnswerHandler::new(cx, gate, session);
        Ok(Self {
            session: session.clone(),
            whole: WholeTexts::new(gate.store(), gate),
            display,
            desk,
            keyboard,
            toasts: gate.resources().get_or_default(),
            suspends: SuspendSignals::listen(),
        })
    }

    /// Draws and asks until the run ends. The terminal is restored when this returns.
    pub(crate) async fn follow(
        mut self,
        job: &mut RunTask,
        stops: &mut StopSignals,
    ) -> (Result<FollowEnd, CliError>, SessionScreen) {
        let ended = self.follow_until_end(job, stops).await;
        // Also after an error: its message is printed below the display, whose cursor is hidden.
        let released = self.display.release().map_err(CliError::from);
        let ended = ended.and_then(|ended| released.map(|()| ended));
        (ended, self.display.screen)
    }

    async fn follow_until_end(
        &mut self,
        job: &mut RunTask,
        stops: &mut StopSignals,
    ) -> Result<FollowEnd, CliError> {
        self.load_requests().await;
        let mut toasted = self.toasts.subscribe();
        let mut ticks = tokio::time::interval(FRAME_INTERVAL);
        // Otherwise the ticks that are missed while an editor is open would all come at once.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let woken = tokio::select! {
                biased;
                // Signals and keys first: a busy run must not delay Ctrl-C.
                stop = stops.next() => WakeCause::Stop(stop),
                () = self.suspends.next() => WakeCause::Suspend,
                input = self.keyboard.next() => WakeCause::Pressed(input),
                _ = ticks.tick() => WakeCause::Tick,
                fed = job.feed.next() => WakeCause::Fed(fed?),
                () = toasts_changed(&mut toasted) => WakeCause::Toasts,
                report = job.run.report() => {
                    // The run may end before its last events were read from the bus.
                    for fed in job.feed.drain().await? {
                        let fed = complete_item(Some(self.whole), fed).await?;
                        self.display.apply_item(&fed);
                    }
                    WakeCause::Done(FollowEnd::Report(Box::new(report?)))
                }
            };
            if let Some(ended) = self.handle_wake(woken, job).await? {
                return Ok(ended);
            }
        }
    }

    async fn handle_wake(
        &mut self,
        woken: WakeCause,
        job: &mut RunTask,
    ) -> Result<Option<FollowEnd>, CliError> {
        match woken {
            WakeCause::Stop(stop) => return Ok(self.stop(job, stop)),
            WakeCause::Suspend => self.suspend_program()?,
            // Some terminals also report releases; a key must not count twice.
            WakeCause::Pressed(Some(Ok(Input::Key(key)))) if key.kind != KeyEventKind::Release => {
                return self.handle_key(key, job).await;
            }
            // A frame asks for the size itself.
            WakeCause::Pressed(Some(Ok(Input::Resize(..)))) => self.display.draw()?,
            WakeCause::Pressed(Some(Ok(_))) => {}
            // The signal that the terminal was closed may come later.
            WakeCause::Pressed(Some(Err(_)) | None) => {
                self.keyboard.close();
                return Ok(self.stop(job, StopSignal::HangUp));
            }
            WakeCause::Tick => {
                self.display.tick();
                self.expire_toasts();
                self.display.draw()?;
                return Ok(self.is_postponed(job).then_some(FollowEnd::Postponed));
            }
            WakeCause::Fed(Some(fed)) => {
                let fed = complete_item(Some(self.whole), fed).await?;
                if let FeedItem::Event(event) = &fed {
                    self.toasts.apply_event(event);
                }
                self.display.apply_item(&fed);
                self.load_requests().await;
            }
            WakeCause::Fed(None) => return Err(CliError::new("the run ended without a report")),
            WakeCause::Toasts => self.display.set_toasts(self.toasts.current()),
            WakeCause::Done(ended) => return Ok(Some(ended)),
        }
        Ok(None)
    }

    /// Loads the approval requests that came up, and shows the current one.
    async fn load_requests(&mut self) {
        let desk = self.session.dispatcher().approval_service();
        load_requests(&mut self.display.screen, &desk).await;
        self.display.update_prompt();
    }

    async fn handle_key(
        &mut self,
        key: KeyEvent,
        job: &mut RunTask,
    ) -> Result<Option<FollowEnd>, CliError> {
        // In raw mode Ctrl-C and Ctrl-Z are keys like any other and raise no signal.
        match key.code {
            KeyCode::Char('c' | 'C') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Ok(self.handle_interrupt(job));
            }
            KeyCode::Char('z' | 'Z') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                signals::raise_suspend();
                return Ok(None);
            }
            code if self.display.is_asking_to_leave() => {
                return Ok(self.handle_leave_key(code, job));
            }
            _ => {}
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('k' | 'K') => self.cancel_call(job),
                KeyCode::Char('o' | 'O') => self.run_toast_action(),
                _ => {}
            }
        }
        let act = self.display.prompt.handle_key(key);
        self.desk
            .carry_out(act, &mut self.display, &mut self.keyboard)
            .await?;
        self.display.update_prompt();
        self.display.draw()?;
        Ok(None)
    }

    /// Handles Ctrl-C: at an approval request it asks whether the request stays pending, and
    /// otherwise it stops the run.
    fn handle_interrupt(&mut self, job: &mut RunTask) -> Option<FollowEnd> {
        let asks = job.stopped.is_none() && self.display.screen.pending_calls().next().is_some();
        if asks && !self.display.is_asking_to_leave() {
            self.display.ask_to_leave(true);
            return None;
        }
        self.stop(job, StopSignal::Interrupt)
    }

    /// Handles the answer to the question whether the requests stay pending.
    fn handle_leave_key(&mut self, code: KeyCode, job: &mut RunTask) -> Option<FollowEnd> {
        match code {
            KeyCode::Enter | KeyCode::Char('l' | 'L') => self.stop(job, StopSignal::Interrupt),
            KeyCode::Char('c' | 'C') => {
                self.display.ask_to_leave(false);
                self.display.show_stopping();
                job.cancel(StopSignal::Interrupt);
                None
            }
            KeyCode::Esc => {
                self.display.ask_to_leave(false);
                None
            }
            _ => None,
        }
    }

    /// Stops the run the first time, and leaves requests pending; the second time, quits without
    /// waiting until it is saved.
    fn stop(&mut self, job: &mut RunTask, stop: StopSignal) -> Option<FollowEnd> {
        self.display.ask_to_leave(false);
        if job.suspend(stop) {
            return Some(FollowEnd::Quit);
        }
        self.display.show_stopping();
        None
    }

    /// Restores the terminal, suspends the program, and draws everything again when it continues.
    fn suspend_program(&mut self) -> Result<(), CliError> {
        self.display.pause()?;
        self.keyboard.release()?;
        signals::suspend_process();
        self.keyboard.reacquire()?;
        Ok(self.display.draw()?)
    }

    /// Checks whether only postponed approvals are left.
    fn is_postponed(&self, job: &RunTask) -> bool {
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
        job.stopped.is_none()
            && screen.pending_calls().next().is_some()
            && screen.open_calls().all(put_off)
            // An agent with a model request in flight may still request calls.
            && !screen.agents().iter().any(|agent| agent.asking)
    }

    fn expire_toasts(&mut self) {
        self.toasts.expire(self.display.now());
    }

    /// Does what the newest toast with an action offers.
    fn run_toast_action(&mut self) {
        let toasts = self.toasts.current();
        let offered = toasts.iter().rev();
        let offered = offered.filter_map(|toast| Some((toast.id, toast.action.as_ref()?)));
        let Some((id, action)) = offered.into_iter().next() else {
            return self.display.note("no message offers anything", DIM);
        };
        self.display.run_toast_action(action);
        self.toasts.dismiss(id);
    }

    /// Cancels the oldest call that runs.
    fn cancel_call(&mut self, job: &RunTask) {
        let mut open = self.display.screen.open_calls();
        let running = open.find(|call| call.state == CallState::Running);
        let running = running.map(|call| call.invocation.id);
        drop(open);
        if !running.is_some_and(|call| job.run.cancel_call(call)) {
            self.display.note("no call of this session is running", DIM);
        }
    }
}

/// Waits until the toasts have changed.
async fn toasts_changed(toasts: &mut Receiver<Arc<[Toast]>>) {
    if toasts.changed().await.is_err() {
        // There are no toasts to show any more.
        std::future::pending().await
    }
}
