//! What is on the terminal while a run goes on: settled lines that scroll up, and the open part below them.

use std::{
    collections::{HashMap, HashSet},
    io::{self, Stdout},
    sync::Arc,
};

use anstyle::{AnsiColor, Style};
use toolgate::{
    ApprovalRequest, CallId, Clock, Event, LoopEvent, SessionId, SystemClock, Timestamp,
    layers::{Toast, ToastLevel},
};

use super::prompt::Prompt;
use crate::{
    feed::Fed,
    render::{Blocks, Line, Live, SPINNER, call_line, markdown, question},
    screen::{CallView, Item, Screen},
};

const DIM: Style = Style::new().dimmed();
/// How many rows of the reply that is still coming are shown.
const MOST_COMING: usize = 8;

/// What is on the terminal.
pub(crate) struct Display {
    pub(crate) screen: Screen,
    pub(crate) prompt: Prompt,
    live: Live<Stdout>,
    /// The reply that is still coming, of the session that was opened.
    blocks: Blocks,
    /// How many items of each session were told.
    told: HashMap<SessionId, usize>,
    told_calls: HashSet<CallId>,
    /// Lines that are settled and not printed yet.
    settled: Vec<Line>,
    toasts: Vec<Toast>,
    frame: usize,
    stopping: bool,
    clock: SystemClock,
}

impl Display {
    /// Goes on behind what `screen` has already.
    pub(crate) fn new(screen: Screen, size: (u16, u16), colored: bool) -> Self {
        let told = screen
            .agents()
            .iter()
            .map(|agent| (agent.session, agent.items.len()))
            .collect();
        let settled = screen.calls().iter().filter(|call| call.state.is_settled());
        let told_calls = settled.map(|call| call.invocation.id).collect();
        Self {
            prompt: Prompt::default(),
            live: Live::new(io::stdout(), size, colored),
            blocks: Blocks::default(),
            told,
            told_calls,
            settled: Vec::new(),
            toasts: Vec::new(),
            frame: 0,
            stopping: false,
            clock: SystemClock::new(),
            screen,
        }
    }

    /// Takes in something that happened.
    pub(crate) fn fed(&mut self, fed: &Fed) {
        match fed {
            Fed::Event(event) => {
                self.screen.apply(event);
                self.tell_call(event);
                self.tell_items();
                if let Some(LoopEvent::InferenceStarted { .. }) = event.as_loop() {
                    // What a request left behind that was broken off is asked for again.
                    self.blocks = Blocks::default();
                }
                self.ask();
            }
            Fed::Piece(piece) => {
                self.screen.piece(piece);
                let is_main = self
                    .screen
                    .agents()
                    .first()
                    .is_some_and(|agent| agent.session == piece.turn.session);
                if let toolgate::Delta::Text(text) = &piece.delta
                    && is_main
                {
                    self.blocks.push(text);
                    if let Some(block) = self.blocks.complete() {
                        self.say(&block);
                    }
                }
            }
        }
    }

    /// Takes up the questions that wait, and shows the one that comes up.
    pub(crate) fn ask(&mut self) {
        if let Some(request) = self.prompt.sync(&self.screen) {
            self.show_question(&request);
        }
    }

    /// Shows short messages.
    pub(crate) fn toast(&mut self, toasts: Vec<Toast>) {
        self.toasts = toasts;
    }

    /// Prints a question in full.
    pub(crate) fn show_question(&mut self, request: &Arc<ApprovalRequest>) {
        let lines = question(request, self.clock.now(), self.live.width() - 1);
        self.settled.push(Line::new());
        self.settled.extend(lines);
    }

    /// Prints lines for good.
    pub(crate) fn print(&mut self, lines: impl IntoIterator<Item = Line>) {
        self.settled.extend(lines);
    }

    /// Prints a line for good.
    pub(crate) fn note(&mut self, text: &str, style: Style) {
        self.settled
            .extend(text.lines().map(|line| Line::styled(line, style)));
    }

    /// How wide lines may be.
    pub(crate) fn width(&self) -> usize {
        self.live.width() - 1
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The run is asked to stop.
    pub(crate) fn stopping(&mut self) {
        self.stopping = true;
    }

    /// Lets what turns turn.
    pub(crate) fn tick(&mut self) {
        self.frame += 1;
    }

    /// Draws everything.
    pub(crate) fn draw(&mut self) -> io::Result<()> {
        let open = self.open();
        let settled = std::mem::take(&mut self.settled);
        self.live.draw(settled, &open)
    }

    /// Draws everything anew at another size.
    pub(crate) fn resize(&mut self, size: (u16, u16)) -> io::Result<()> {
        self.draw()?;
        let open = self.open();
        self.live.resize(size, &open)
    }

    /// Prints what is settled, takes the open part away and gives the terminal back.
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        let open = std::mem::take(&mut self.blocks);
        self.say(open.open());
        let settled = std::mem::take(&mut self.settled);
        self.live.draw(settled, &[])?;
        self.live.leave()
    }

    /// What a model said, as it is printed.
    fn say(&mut self, text: &str) {
        let lines = markdown(text, self.live.width() - 1);
        if !lines.is_empty() {
            self.settled.push(Line::new());
            self.settled.extend(lines);
        }
    }

    /// Prints the call that `event` settled, if it did.
    fn tell_call(&mut self, event: &Event) {
        let Some((invocation, _)) = event.as_tool() else {
            return;
        };
        let settled = self
            .screen
            .call(invocation.id)
            .filter(|call| call.state.is_settled());
        if let Some(line) = settled.map(|call| self.line(call))
            && self.told_calls.insert(invocation.id)
        {
            self.settled.push(line);
        }
    }

    fn tell_items(&mut self) {
        let mut said = Vec::new();
        for (at, agent) in self.screen.agents().iter().enumerate() {
            let told = self.told.entry(agent.session).or_default();
            for item in &agent.items[*told..] {
                match item {
                    Item::Model(text) => said.push((at, agent.name.clone(), text.clone())),
                    Item::Note(text) => self.settled.push(Line::styled(text, DIM)),
                    Item::User { .. } | Item::Call(_) => {}
                }
            }
            *told = agent.items.len();
        }
        for (at, name, text) in said {
            match name {
                _ if at == 0 => {
                    if let Some(rest) = self.blocks.finish(&text) {
                        self.say(&rest);
                    }
                }
                name => {
                    let name = name.as_deref().unwrap_or("agent").to_owned();
                    self.settled.push(Line::styled(
                        &format!("{name}:"),
                        AnsiColor::Blue.on_default(),
                    ));
                    let lines = markdown(&text, self.live.width().saturating_sub(3));
                    let set_in = |line: Line| {
                        let mut row = Line::plain("  ");
                        row.extend(line);
                        row
                    };
                    self.settled.extend(lines.into_iter().map(set_in));
                }
            }
        }
    }

    fn line(&self, call: &CallView) -> Line {
        call_line(call, self.live.width() - 1, self.clock.now(), self.frame)
    }

    /// The part that is drawn again and again.
    fn open(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        let coming = markdown(self.blocks.open(), self.live.width() - 1);
        lines.extend(
            coming
                .iter()
                .skip(coming.len().saturating_sub(MOST_COMING))
                .cloned(),
        );
        let calls: Vec<&CallView> = self.screen.open_calls().collect();
        let room = (self.live.height() / 3).max(2);
        lines.extend(calls.iter().take(room).map(|call| self.line(call)));
        if calls.len() > room {
            lines.push(Line::styled(
                &format!("  … and {} more", calls.len() - room),
                DIM,
            ));
        }
        lines.extend(self.toasts.iter().map(toast_line));
        lines.push(self.status());
        lines.extend(self.prompt.lines());
        lines
    }

    /// What goes on, and what it took so far.
    fn status(&self) -> Line {
        let turning = SPINNER[self.frame % SPINNER.len()];
        let agent = self.screen.agents().first();
        let doing = match () {
            () if self.stopping => {
                "stopping; what was done is saved (Ctrl-C again quits at once)".to_owned()
            }
            () if self.screen.pending().next().is_some() => "waits for a decision".to_owned(),
            () if agent.is_some_and(|agent| agent.asking && !agent.thinking.is_empty()) => {
                "thinking".to_owned()
            }
            () if agent.is_some_and(|agent| agent.asking) => "the model writes".to_owned(),
            () => "working".to_owned(),
        };
        let mut line =
            Line::styled(turning, AnsiColor::Cyan.on_default()).with(&format!(" {doing}"), DIM);
        if let Some(cost) = self.screen.cost() {
            let usage = self.screen.usage();
            let read = usage.input + usage.cache_read + usage.cache_write;
            line.push(
                &format!("  {read} read, {} written, {cost}", usage.output),
                DIM,
            );
        }
        if let Some(alert) = self.screen.alerts().last() {
            let text = format!("  {} % of {}", alert.percent, alert.budget);
            line.push(&text, AnsiColor::Yellow.on_default());
        }
        line
    }
}

fn toast_line(toast: &Toast) -> Line {
    let style = match toast.level {
        ToastLevel::Info => AnsiColor::Cyan.on_default(),
        ToastLevel::Success => AnsiColor::Green.on_default(),
        ToastLevel::Warning => AnsiColor::Yellow.on_default(),
        ToastLevel::Error => AnsiColor::Red.on_default(),
    };
    Line::styled(&format!("▌{}: ", toast.title), style).with(&toast.message, Style::new())
}
