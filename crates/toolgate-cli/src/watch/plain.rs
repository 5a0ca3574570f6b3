//! A run without a terminal: what the model says goes to the standard output, what happens to the error output.

use toolgate::{Clock, SystemClock};

use super::Sink;
use crate::{
    CliError, Out,
    feed::Fed,
    render::call_line,
    screen::{CallState, Item, Screen},
    style,
};

/// How long lines are meant to be.
const WIDTH: usize = 120;

/// Prints lines, each of them once.
pub(crate) struct PlainSink {
    out: Out,
    screen: Screen,
    /// How many items of the session were told.
    told: usize,
    clock: SystemClock,
}

impl PlainSink {
    /// Goes on behind what `screen` has already.
    pub(crate) fn new(out: Out, screen: Screen) -> Self {
        let told = screen.agents().first().map_or(0, |agent| agent.items.len());
        Self {
            out,
            screen,
            told,
            clock: SystemClock::new(),
        }
    }

    /// What there is to show.
    pub(crate) fn into_screen(self) -> Screen {
        self.screen
    }

    fn tell(&mut self) -> Result<(), CliError> {
        let Some(agent) = self.screen.agents().first() else {
            return Ok(());
        };
        for item in &agent.items[self.told..] {
            match item {
                // With --quiet the last thing said is printed at the end, and nothing else.
                Item::Model(text) if !self.out.is_quiet() => {
                    self.out.line(style::plain(text.trim_end()))?
                }
                Item::Note(text) => self.out.note(style::dim(style::plain(text)))?,
                Item::Model(_) | Item::User { .. } | Item::Call(_) => {}
            }
        }
        self.told = agent.items.len();
        Ok(())
    }
}

impl Sink for PlainSink {
    fn fed(&mut self, fed: &Fed) -> Result<(), CliError> {
        let Fed::Event(event) = fed else {
            return Ok(());
        };
        let call = event.as_tool().map(|(invocation, _)| invocation.clone());
        let state = |screen: &Screen| {
            call.as_ref()
                .and_then(|call| screen.call(call.id))
                .map(|call| call.state)
        };
        let before = state(&self.screen);
        self.screen.apply(event);
        let after = state(&self.screen);
        let is_news =
            after != before && matches!(after, Some(CallState::Asked | CallState::Settled(_)));
        if let Some(invocation) = call.filter(|_| is_news)
            && let Some(call) = self.screen.call(invocation.id)
        {
            self.out.note(call_line(call, WIDTH, self.clock.now(), 0))?;
        }
        self.tell()
    }

    fn stopping(&mut self) -> Result<(), CliError> {
        self.out
            .note(style::warn("stopping; what was done is saved"))
    }
}
