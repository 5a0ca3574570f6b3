//! A run on a terminal: draws what happens, and asks whoever sits there.

use std::{io, sync::Arc, time::Duration};

use crossterm::{
    event::{Event as Input, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll},
    terminal::{disable_raw_mode, enable_raw_mode, size},
};
use futures::StreamExt;
use tokio::{sync::watch::Receiver, time::MissedTickBehavior};
use toolgate::{
    Session, SessionId,
    layers::{Toast, ToastManager},
};

use super::{Ended, Job, Stops, answer::Desk, display::Display, joined};
use crate::{
    CliError, Cx, Gate,
    feed::Fed,
    screen::{CallState, CallView, Screen},
};

/// How often the screen is drawn while something goes on.
const FRAME: Duration = Duration::from_millis(80);

/// A run on a terminal.
pub(crate) struct TerminalWatch<'a> {
    session: Session,
    display: Display,
    desk: Desk<'a>,
    keyboard: Keyboard,
    toasts: Option<ToastManager>,
    stopping: bool,
}

/// The keys, as they are pressed. Dropping it gives the terminal back as it was.
pub(crate) struct Keyboard(Option<EventStream>);

impl Keyboard {
    fn open() -> io::Result<Self> {
        enable_raw_mode()?;
        Ok(Self(Some(EventStream::new())))
    }

    /// Lets another program have the keyboard.
    pub(crate) fn lend(&mut self) -> io::Result<()> {
        self.0 = None;
        // Closing it leaves a wake-up behind. Found together with the first key after this, it would hide that key until
        // another one is pressed.
        let _ = poll(Duration::ZERO);
        disable_raw_mode()
    }

    /// Takes the keyboard back.
    pub(crate) fn take_back(&mut self) -> io::Result<()> {
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

/// What woke the watch.
enum Woken {
    Stop,
    Pressed(Option<io::Result<Input>>),
    Tick,
    Fed(Option<Fed>),
    Toasts,
    Done(Ended),
}

impl<'a> TerminalWatch<'a> {
    /// Watches what goes on behind what `screen` has already.
    pub(crate) fn new(
        cx: &'a Cx,
        gate: &'a Gate,
        session: &Session,
        screen: Screen,
    ) -> Result<Self, CliError> {
        let keyboard = Keyboard::open()?;
        let mut display = Display::new(screen, size()?, cx.out.is_colored());
        display.ask();
        let desk = Desk::new(cx, gate, session);
        Ok(Self {
            session: session.clone(),
            display,
            desk,
            keyboard,
            toasts: gate.parts.get(),
            stopping: false,
        })
    }

    /// Draws and asks until the run ends. The terminal is as it was when this returns.
    pub(crate) async fn watch(
        mut self,
        job: &mut Job,
        stops: &mut Stops,
    ) -> Result<(Ended, Screen), CliError> {
        let ended = self.until_the_end(job, stops).await;
        self.display.leave()?;
        Ok((ended?, self.display.screen))
    }

    async fn until_the_end(&mut self, job: &mut Job, stops: &mut Stops) -> Result<Ended, CliError> {
        let mut toasted = self.toasts.as_ref().map(ToastManager::subscribe);
        let mut ticks = tokio::time::interval(FRAME);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let woken = tokio::select! {
                biased;
                () = stops.next() => Woken::Stop,
                input = self.keyboard.next() => Woken::Pressed(input),
                _ = ticks.tick() => Woken::Tick,
                fed = job.feed.next() => Woken::Fed(fed?),
                () = changed(&mut toasted) => Woken::Toasts,
                report = &mut job.task => {
                    for event in job.feed.rest().await? {
                        self.display.fed(&Fed::Event(event));
                    }
                    Woken::Done(Ended::Report(Box::new(joined(report)?)))
                }
            };
            if let Some(ended) = self.woken(woken).await? {
                return Ok(ended);
            }
        }
    }

    async fn woken(&mut self, woken: Woken) -> Result<Option<Ended>, CliError> {
        match woken {
            Woken::Stop => return Ok(self.stop()),
            Woken::Pressed(Some(Ok(Input::Key(key)))) if key.kind != KeyEventKind::Release => {
                return self.pressed(key).await;
            }
            Woken::Pressed(Some(Ok(Input::Resize(width, height)))) => {
                self.display.resize((width, height))?
            }
            Woken::Pressed(Some(Ok(_))) => {}
            // A terminal that is gone ends the run like somebody who goes away.
            Woken::Pressed(Some(Err(_)) | None) => {
                self.keyboard.lend()?;
                return Ok(self.stop());
            }
            Woken::Tick => {
                self.display.tick();
                self.expire_toasts();
                self.display.draw()?;
                return Ok(self.is_put_off().then_some(Ended::Left));
            }
            Woken::Fed(Some(fed)) => self.display.fed(&fed),
            Woken::Fed(None) => return Err(CliError::new("the run ended without a report")),
            Woken::Toasts => self.display.toast(
                self.toasts
                    .as_ref()
                    .map(ToastManager::current)
                    .unwrap_or_default(),
            ),
            Woken::Done(ended) => return Ok(Some(ended)),
        }
        Ok(None)
    }

    async fn pressed(&mut self, key: KeyEvent) -> Result<Option<Ended>, CliError> {
        if key.modifiers.contains(KeyModifiers::CONTROL)
            && matches!(key.code, KeyCode::Char('c' | 'C'))
        {
            return Ok(self.stop());
        }
        let act = self.display.prompt.key(key);
        self.desk
            .act(act, &mut self.display, &mut self.keyboard)
            .await?;
        self.display.ask();
        self.display.draw()?;
        Ok(None)
    }

    /// The first time, the turn is interrupted and saved; the second time, that is not waited for.
    fn stop(&mut self) -> Option<Ended> {
        if std::mem::replace(&mut self.stopping, true) {
            return Some(Ended::Quit);
        }
        self.session.interrupt();
        self.display.stopping();
        None
    }

    /// Whether nothing goes on but what somebody put off.
    fn is_put_off(&self) -> bool {
        let (screen, prompt) = (&self.display.screen, &self.display.prompt);
        // The call of an agent that waits is open as long as it does.
        let is_agent = |call: &CallView| {
            let session = SessionId::new(call.invocation.id.uuid());
            screen.agents().iter().any(|agent| agent.session == session)
        };
        let put_off = |call: &CallView| {
            let asked = call
                .question
                .as_deref()
                .filter(|_| call.state == CallState::Asked);
            asked.is_some_and(|question| prompt.is_skipped(question)) || is_agent(call)
        };
        !self.stopping
            && screen.pending().next().is_some()
            && screen.open_calls().all(put_off)
            && !screen.agents().iter().any(|agent| agent.asking)
    }

    fn expire_toasts(&mut self) {
        if let Some(toasts) = &self.toasts {
            toasts.expire(self.display.now());
        }
    }
}

/// Waits until the messages have changed.
async fn changed(toasts: &mut Option<Receiver<Arc<[Toast]>>>) {
    let told = match toasts {
        Some(toasts) => toasts.changed().await.is_ok(),
        None => false,
    };
    if !told {
        // Nobody shows messages any more.
        std::future::pending().await
    }
}
