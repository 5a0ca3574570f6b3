//! The terminal during a run: settled lines that scroll up, and the open part below them.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
};

use anstyle::{AnsiColor, Style};
use toolgate::{
    Event,
    approval::{ApprovalRequest, ApproverIdentity},
    event::SessionEvent,
    layers::{Toast, ToastAction, ToastLevel},
    value::{CallId, Clock, SessionId, SystemClock, Timestamp},
};

use super::{
    prompt::{ApprovalPrompt, key_lines},
    terminal_writer::TerminalWriter,
};
use crate::{
    env::style::{BAD, DIM, NOTE, WARN},
    show::{
        feed::FeedItem,
        render::{
            LiveArea, OutputRows, PAGE_ROWS, ReplyBlocks, SPINNER, StyledLine, call_line,
            render_details, render_markdown, render_output, render_shown, terminal_size,
        },
        screen::{CallView, ConversationItem, SessionScreen},
    },
};

/// The most rows shown of the reply that is still streaming.
const MAX_REPLY_ROWS: usize = 8;

/// The most rows shown below the question of what happened since it was asked.
const MAX_HELD_ROWS: usize = 3;

/// The number of frames after the last resize until a request is printed again.
const RESIZE_FRAMES: usize = 3;

/// The content of the terminal.
pub(crate) struct LiveDisplay {
    pub(crate) screen: SessionScreen,
    pub(crate) prompt: ApprovalPrompt,
    live: LiveArea<TerminalWriter>,
    /// The streaming reply of the session that was opened.
    blocks: ReplyBlocks,
    /// The number of printed items of each session.
    told: HashMap<SessionId, usize>,
    told_calls: HashSet<CallId>,
    /// Lines that are settled and not printed yet.
    settled: Vec<StyledLine>,
    /// Lines that are printed when the current approval request is answered, so that nothing stands
    /// between the request and the question.
    held: Vec<StyledLine>,
    /// The widest row that was printed of the current approval request.
    request_width: usize,
    /// The frame after which the current request is printed again, because it was cut by a resize.
    reprint_at: Option<usize>,
    toasts: Vec<Toast>,
    /// How much of the output of a command is printed.
    rows: OutputRows,
    frame: usize,
    stopping: bool,
    /// True while the user is asked whether pending requests stay pending.
    asking_to_leave: bool,
    clock: SystemClock,
}

impl LiveDisplay {
    /// Creates a display that prints only what is not in `screen` yet.
    pub(crate) fn new(
        screen: SessionScreen,
        me: ApproverIdentity,
        size: (u16, u16),
        colored: bool,
    ) -> Self {
        // The history was printed when it happened, so only what is new is printed here.
        let told = screen
            .agents()
            .iter()
            .map(|agent| (agent.session, agent.items.len()))
            .collect();
        let settled = screen.calls().iter().filter(|call| call.state.is_settled());
        let told_calls = settled.map(|call| call.invocation.id).collect();
        Self {
            prompt: ApprovalPrompt::new(me),
            live: LiveArea::new(TerminalWriter::stdout(), size, colored),
            blocks: ReplyBlocks::default(),
            told,
            told_calls,
            settled: Vec::new(),
            held: Vec::new(),
            request_width: 0,
            reprint_at: None,
            toasts: Vec::new(),
            rows: OutputRows::Few,
            frame: 0,
            stopping: false,
            asking_to_leave: false,
            clock: SystemClock::new(),
            screen,
        }
    }

    /// Prints this much of the output of a command.
    pub(crate) fn with_output(mut self, rows: OutputRows) -> Self {
        self.rows = rows;
        self
    }

    /// Applies an item of the feed.
    pub(crate) fn apply_item(&mut self, fed: &FeedItem) {
        match fed {
            FeedItem::Event(event) => {
                if let Some(SessionEvent::InferenceFailed { .. }) = event.as_session() {
                    // The note on the failure speaks of the text above it.
                    self.print_replies_before(event.sequence());
                }
                self.screen.apply(event);
                self.print_settled_call(event);
                self.print_new_items(event.sequence());
                self.update_prompt();
            }
            FeedItem::Piece(piece) => {
                // The next reply has begun, and the end of the last one is not known yet.
                self.print_replies_before(piece.after);
                self.screen.apply_piece(piece);
                let agent = self.screen.agents().first();
                let block =
                    agent.and_then(|agent| self.blocks.take_complete(agent.reply, &agent.coming));
                if let Some(block) = block {
                    self.print_reply(&block);
                }
            }
        }
    }

    /// Prints the open part of the streaming reply for good if it was asked for before event `number`.
    fn print_replies_before(&mut self, number: u64) {
        let mut agents = self.screen.agents().first().into_iter();
        let agent = agents.find(|agent| agent.reply < number);
        let open = agent.and_then(|agent| self.blocks.take_open(agent.reply, &agent.coming));
        if let Some(open) = open {
            self.print_reply(&open);
        }
    }

    /// Updates the prompt from the screen, and shows the approval request that comes up.
    pub(crate) fn update_prompt(&mut self) {
        let came_up = self.prompt.sync_requests(&self.screen);
        if came_up.is_some() || self.prompt.current().is_none() {
            self.settled.append(&mut self.held);
        }
        if let Some(request) = came_up {
            self.show_request(&request);
        }
    }

    /// Prints lines of the run for good, after the approval request that the user is asked about.
    fn print_settled(&mut self, lines: impl IntoIterator<Item = StyledLine>) {
        if self.prompt.current().is_some() {
            self.held.extend(lines);
        } else {
            self.settled.extend(lines);
        }
    }

    /// Sets the toasts to show.
    pub(crate) fn set_toasts(&mut self, toasts: Vec<Toast>) {
        self.toasts = toasts;
    }

    /// Prints what the action of a toast shows.
    pub(crate) fn run_toast_action(&mut self, action: &ToastAction) {
        let call = action.shown_call().and_then(|call| self.screen.call(call));
        if let Some(call) = call {
            let rows = render_details(call, self.live.width() - 1);
            self.settled.push(StyledLine::new());
            self.settled.extend(rows);
            return;
        }
        let alerts = self.screen.budget_alerts().iter().map(|alert| {
            let text = format!(
                "{}: {} % is used, {} of {}",
                alert.budget, alert.percent, alert.spent, alert.limit
            );
            StyledLine::styled(&text, WARN)
        });
        self.settled.extend(alerts);
    }

    /// Prints an approval request from its beginning.
    pub(crate) fn show_request(&mut self, request: &ApprovalRequest) {
        self.settled.push(StyledLine::new());
        self.request_width = 0;
        self.reprint_at = None;
        self.print_page(request, 0);
    }

    /// Prints all of these requests and asks whether they are approved together. One that cannot be
    /// shown in full at once is left to a decision of its own.
    pub(crate) fn show_all(&mut self, requests: Vec<Arc<ApprovalRequest>>) {
        let (shown, left): (Vec<_>, Vec<_>) = requests.into_iter().partition(|request| {
            self.show_request(request);
            self.prompt.is_complete(request)
        });
        for request in left {
            let text = format!(
                "{} is not shown in full: decide on it by itself",
                request.tool
            );
            self.note(&text, WARN);
        }
        if !shown.is_empty() {
            self.prompt.confirm_all(shown);
        }
    }

    /// Prints the next page of an approval request.
    pub(crate) fn show_more(&mut self, request: &ApprovalRequest) {
        self.print_page(request, self.prompt.printed_rows(request));
    }

    fn print_page(&mut self, request: &ApprovalRequest, from: usize) {
        let call = self.screen.call(request.approval_id.call_id());
        let rows = match call.and_then(|call| call.shown.as_ref()) {
            Some(Ok(shown)) => render_shown(shown, self.live.width() - 1),
            Some(Err(problem)) => {
                let problem = problem.clone();
                return self.note(&problem, BAD);
            }
            None => return,
        };
        let end = rows.len().min(from.saturating_add(PAGE_ROWS));
        let left = rows.len() - end;
        // The line after the title may be cut; every character of the request counts.
        let width = |row: &StyledLine| StyledLine::plain(row.text().trim_end_matches('─')).width();
        let widest = rows[from.min(end)..end].iter().map(width).max();
        self.request_width = self.request_width.max(widest.unwrap_or_default());
        self.settled.extend(rows.into_iter().take(end).skip(from));
        if left > 0 {
            self.note(
                &format!("… {left} more rows are not shown yet; v shows them"),
                Style::new().bold(),
            );
        }
        self.prompt.mark_printed(request, end, left == 0);
    }

    /// Prints lines for good.
    pub(crate) fn print_lines(&mut self, lines: impl IntoIterator<Item = StyledLine>) {
        self.settled.extend(lines);
    }

    /// Prints text for good.
    pub(crate) fn note(&mut self, text: &str, style: Style) {
        self.settled
            .extend(text.lines().map(|line| StyledLine::styled(line, style)));
    }

    /// Returns the width of lines.
    pub(crate) fn width(&self) -> usize {
        self.live.width() - 1
    }

    /// Returns the time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Shows that the run was asked to stop.
    pub(crate) fn show_stopping(&mut self) {
        self.stopping = true;
    }

    /// Asks whether pending requests stay pending when the run is stopped, or withdraws the question.
    pub(crate) fn ask_to_leave(&mut self, asking: bool) {
        self.asking_to_leave = asking;
    }

    /// Checks whether the user is asked whether pending requests stay pending.
    pub(crate) fn is_asking_to_leave(&self) -> bool {
        self.asking_to_leave
    }

    /// Advances the spinners.
    pub(crate) fn tick(&mut self) {
        self.frame += 1;
        if self.reprint_at.is_some_and(|frame| frame <= self.frame)
            && let Some(request) = self.prompt.current().cloned()
        {
            self.show_request(&request);
        }
    }

    /// Draws everything.
    pub(crate) fn draw(&mut self) -> io::Result<()> {
        // The terminal reports a new size after it has one, and a row that is too long for it would
        // take two.
        if let Some(size) = terminal_size() {
            self.resize(size);
        }
        let open = self.open_lines();
        let settled = std::mem::take(&mut self.settled);
        self.live.draw(settled, &open)
    }

    /// Uses another size from the next frame on.
    pub(crate) fn resize(&mut self, size: (u16, u16)) {
        if !self.live.resize(size) {
            return;
        }
        // Some terminals cut the rows that do not fit any more, and an approver has to see all of them.
        // Not at once: a window that is dragged reports many sizes.
        if self.prompt.current().is_some() && self.request_width > self.width() {
            self.reprint_at = Some(self.frame + RESIZE_FRAMES);
        }
    }

    /// Prints what is settled and erases the open part for a while.
    pub(crate) fn pause(&mut self) -> io::Result<()> {
        let settled = std::mem::take(&mut self.settled);
        self.live.draw(settled, &[])?;
        self.live.release()
    }

    /// Prints what is settled, erases the open part and releases the terminal.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        self.settled.append(&mut self.held);
        self.print_replies_before(u64::MAX);
        self.pause()
    }

    /// Prints text of a model.
    fn print_reply(&mut self, text: &str) {
        let lines = render_markdown(text, self.live.width() - 1);
        if !lines.is_empty() {
            self.print_settled([StyledLine::new()].into_iter().chain(lines));
        }
    }

    /// Prints the call that `event` settled, if it did.
    fn print_settled_call(&mut self, event: &Event) {
        let Some((invocation, _)) = event.as_tool() else {
            return;
        };
        let settled = self
            .screen
            .call(invocation.id)
            .filter(|call| call.state.is_settled());
        let rows = settled.map(|call| {
            let indent = StyledLine::plain("  ");
            let line = self.render_call(call).wrap(self.width(), &indent);
            let output = render_output(call, self.rows, self.width());
            line.into_iter().chain(output)
        });
        if let Some(rows) = rows
            // Later events of a settled call must not print it again.
            && self.told_calls.insert(invocation.id)
        {
            self.print_settled(rows);
        }
    }

    /// Prints the items that event `number` added.
    fn print_new_items(&mut self, number: u64) {
        let mut new = Vec::new();
        for (at, agent) in self.screen.agents().iter().enumerate() {
            let told = self.told.entry(agent.session).or_default();
            for (number, item) in agent.items.iter().enumerate().skip(*told) {
                // The summary says why the session ended.
                if at > 0 || agent.end_note != Some(number) {
                    new.push((at == 0, agent.name.clone(), item.clone()));
                }
            }
            *told = agent.items.len();
        }
        for (is_main, name, item) in new {
            match item {
                ConversationItem::Model(text) if is_main => {
                    // Its complete paragraphs were printed while they streamed.
                    if let Some(rest) = self.blocks.take_rest(number, &text) {
                        self.print_reply(&rest);
                    }
                }
                ConversationItem::Model(text) => self.print_agent_reply(name.as_deref(), &text),
                ConversationItem::Note(text) => {
                    self.print_settled([StyledLine::styled(&text, DIM)]);
                }
                ConversationItem::User { .. } | ConversationItem::Call(_) => {}
            }
        }
    }

    /// Prints a message of an agent below its name.
    fn print_agent_reply(&mut self, name: Option<&str>, text: &str) {
        let name = StyledLine::styled(&format!("{}:", name.unwrap_or("agent")), NOTE);
        let lines = render_markdown(text, self.live.width().saturating_sub(3));
        let set_in = |line: StyledLine| {
            let mut row = StyledLine::plain("  ");
            row.extend(line);
            row
        };
        self.print_settled(std::iter::once(name).chain(lines.into_iter().map(set_in)));
    }

    fn render_call(&self, call: &CallView) -> StyledLine {
        call_line(call, self.live.width() - 1, self.clock.now(), self.frame)
    }

    /// Returns the part that is redrawn.
    fn open_lines(&self) -> Vec<StyledLine> {
        let width = self.width();
        let question = match (self.asking_to_leave, self.stopping) {
            (true, _) => leave_question(width),
            (false, true) => Vec::new(),
            (false, false) => self.prompt.render_lines(width),
        };
        let toasts = self.toasts.iter().map(|toast| toast_line(toast, width));
        if question.is_empty() {
            let mut lines = self.reply_lines();
            lines.extend(self.call_lines());
            lines.extend(toasts);
            lines.push(self.status_line());
            return lines;
        }
        // Right below the request: what other calls do stands below the question.
        let mut lines = question;
        lines.extend(self.held_lines());
        lines.extend(self.call_lines());
        lines.extend(toasts);
        lines
    }

    /// Returns the end of the reply that is still streaming.
    fn reply_lines(&self) -> Vec<StyledLine> {
        let agent = self.screen.agents().first();
        let open = agent.map_or("", |agent| {
            self.blocks.open_text(agent.reply, &agent.coming)
        });
        let mut lines = render_markdown(open, self.width());
        lines.drain(..lines.len().saturating_sub(MAX_REPLY_ROWS));
        lines
    }

    /// Returns a line for each call that is not settled, except those that the user is asked about.
    fn call_lines(&self) -> Vec<StyledLine> {
        let open = self.screen.open_calls();
        let calls: Vec<&CallView> = open
            .filter(|call| self.stopping || !self.prompt.is_asked(call.invocation.id))
            .collect();
        let room = (self.live.height() / 3).max(2);
        let mut lines: Vec<StyledLine> = calls
            .iter()
            .take(room)
            .map(|call| self.render_call(call))
            .collect();
        if calls.len() > room {
            let more = format!("  … and {} more", calls.len() - room);
            lines.push(StyledLine::styled(&more, DIM));
        }
        lines
    }

    /// Returns the last lines of what happened since the question was asked.
    fn held_lines(&self) -> Vec<StyledLine> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let left = self.held.len().saturating_sub(MAX_HELD_ROWS);
        let text = match left {
            0 => "meanwhile:".to_owned(),
            left => format!("meanwhile ({left} more lines above are printed after the answer):"),
        };
        let mut lines = vec![StyledLine::new(), StyledLine::styled(&text, DIM)];
        lines.extend(self.held[left..].iter().cloned());
        lines
    }

    /// Returns everything that was printed and not drawn yet, and the open part.
    #[cfg(test)]
    pub(crate) fn visible_text(&self) -> String {
        let open = self.open_lines();
        let printed = self.settled.iter().chain(&self.held);
        let rows = printed.chain(&open).map(StyledLine::text);
        rows.collect::<Vec<_>>().join("\n")
    }

    /// Returns the status line: what is in progress, tokens and cost.
    fn status_line(&self) -> StyledLine {
        let turning = SPINNER[self.frame % SPINNER.len()];
        let agent = self.screen.agents().first();
        let doing = if self.stopping {
            "stopping; progress is saved (Ctrl-C again quits at once)"
        } else if self.screen.pending_calls().next().is_some() {
            "approval pending"
        } else if agent.is_some_and(|agent| agent.asking && !agent.thinking.is_empty()) {
            "thinking"
        } else if agent.is_some_and(|agent| agent.asking) {
            "waiting for the model"
        } else {
            "working"
        };
        let mut line = StyledLine::styled(turning, AnsiColor::Cyan.on_default())
            .with(&format!(" {doing}"), DIM);
        if let Some(cost) = self.screen.cost() {
            let usage = self.screen.usage();
            let read = usage.input + usage.cache_read + usage.cache_write;
            line.push(
                &format!("  {read} tokens in, {} out, cost {cost}", usage.output),
                DIM,
            );
        }
        if let Some(alert) = self.screen.budget_alerts().last() {
            let text = format!("  {} % of {}", alert.percent, alert.budget);
            line.push(&text, AnsiColor::Yellow.on_default());
        }
        line
    }
}

/// Returns the question whether pending requests stay pending.
fn leave_question(width: usize) -> Vec<StyledLine> {
    let keys = [
        ("Enter", "leave the request pending"),
        ("c", "cancel it"),
        ("Esc", "return"),
    ];
    let mut lines = vec![StyledLine::styled("Stop the run?", Style::new().bold())];
    lines.extend(key_lines(keys, width));
    lines
}

fn toast_line(toast: &Toast, width: usize) -> StyledLine {
    let style = match toast.level {
        ToastLevel::Info => AnsiColor::Cyan.on_default(),
        ToastLevel::Success => AnsiColor::Green.on_default(),
        ToastLevel::Warning => AnsiColor::Yellow.on_default(),
        ToastLevel::Error => AnsiColor::Red.on_default(),
    };
    let line = StyledLine::styled(&format!("▌{}: ", toast.title), style)
        .with(&toast.message, Style::new());
    let Some(action) = &toast.action else {
        return line;
    };
    // The key stays visible, however long the message is.
    let offer = StyledLine::styled(&format!("  Ctrl-O {}", action.label), DIM);
    let mut line = line.clip(width.saturating_sub(offer.width()));
    line.extend(offer);
    line
}

#[cfg(test)]
mod tests;
