//! A run without a terminal: messages of the model go to stdout, everything else to stderr.

use toolgate::{
    Gate,
    approval::ApprovalService,
    gate::ApproveMode,
    value::{Clock, SystemClock},
};

use super::FeedSink;
use crate::{
    CliError, CommandOutput,
    env::style,
    show::{
        feed::FeedItem,
        render::{OutputRows, call_line, render_output},
        screen::{CallState, ConversationItem, SessionScreen},
        stored_requests::load_requests,
    },
};

/// The width of lines.
const LINE_WIDTH: usize = 120;

/// A sink that prints each line once.
pub(crate) struct PlainSink {
    out: CommandOutput,
    screen: SessionScreen,
    /// The number of printed items of the session.
    told: usize,
    clock: SystemClock,
    desk: ApprovalService,
    /// How much of the output of a command is printed.
    rows: OutputRows,
    /// True if the mode of the gate decides every request at once: then none is pending.
    is_decided: bool,
}

impl PlainSink {
    /// Creates a sink that prints only what is not in `screen` yet.
    pub(crate) fn new(
        out: CommandOutput,
        screen: SessionScreen,
        gate: &Gate,
        rows: OutputRows,
    ) -> Self {
        let told = screen.agents().first().map_or(0, |agent| agent.items.len());
        Self {
            out,
            screen,
            told,
            clock: SystemClock::new(),
            rows,
            desk: gate.approvals(),
            is_decided: matches!(gate.approve_mode(), ApproveMode::Yes | ApproveMode::Never),
        }
    }

    /// Returns the folded screen.
    pub(crate) fn into_screen(self) -> SessionScreen {
        self.screen
    }

    fn print_new_items(&mut self) -> Result<(), CliError> {
        let Some(agent) = self.screen.agents().first() else {
            return Ok(());
        };
        for (at, item) in agent.items.iter().enumerate().skip(self.told) {
            match item {
                // The summary says it.
                ConversationItem::Note(_) if agent.end_note == Some(at) => {}
                // With --quiet only the last message is printed, at the end.
                ConversationItem::Model(text) if !self.out.is_quiet() => self
                    .out
                    .print_line(style::escape_controls(text.trim_end()))?,
                ConversationItem::Note(text) => self.out.print_note(style::dim(text))?,
                ConversationItem::Model(_)
                | ConversationItem::User { .. }
                | ConversationItem::Call(_) => {}
            }
        }
        self.told = agent.items.len();
        Ok(())
    }
}

impl FeedSink for PlainSink {
    async fn receive(&mut self, fed: &FeedItem) -> Result<(), CliError> {
        let FeedItem::Event(event) = fed else {
            return Ok(());
        };
        let call = event.as_tool().map(|(invocation, _)| invocation.clone());
        let state = |screen: &SessionScreen| {
            call.as_ref()
                .and_then(|call| screen.call(call.id))
                .map(|call| call.state)
        };
        let before = state(&self.screen);
        self.screen.apply(event);
        let after = state(&self.screen);
        // A line that is printed stays, so only states that a reader must see are printed.
        let is_news = after != before
            && match after {
                Some(CallState::Pending) => !self.is_decided,
                Some(CallState::Settled(_)) => true,
                _ => false,
            };
        if after == Some(CallState::Pending) {
            load_requests(&mut self.screen, &self.desk).await;
        }
        if let Some(invocation) = call.filter(|_| is_news)
            && let Some(call) = self.screen.call(invocation.id)
        {
            self.out
                .print_note(call_line(call, LINE_WIDTH, self.clock.now(), 0))?;
            for row in render_output(call, self.rows, LINE_WIDTH) {
                self.out.print_note(row)?;
            }
        }
        self.print_new_items()
    }

    fn notify_stopping(&mut self) -> Result<(), CliError> {
        self.out
            .print_note(style::warn("stopping; progress is saved"))
    }
}
