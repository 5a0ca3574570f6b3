//! What is known of a terminal, kept up to date by a thread that reads and one that waits for the end.

use std::{
    io::Read,
    num::NonZeroU16,
    os::unix::process::ExitStatusExt,
    process::Child,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::{TerminalScreen, Typing};

/// How many lines that scrolled away are kept.
const SCROLLBACK: usize = 20_000;

/// The state, and the news that it has changed.
pub(super) struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

/// What is known of a terminal.
pub(super) struct State {
    parser: vt100::Parser<Questions>,
    pub(super) log: Vec<u8>,
    /// Whether everything is read that will ever come.
    pub(super) closed: bool,
    pub(super) exit: Option<i32>,
}

impl Shared {
    pub(super) fn new(columns: u16, rows: u16) -> Self {
        let (rows, columns) = (at_least_one(rows), at_least_one(columns));
        let parser =
            vt100::Parser::new_with_callbacks(rows, columns, SCROLLBACK, Questions::default());
        let state = State {
            parser,
            log: Vec::new(),
            closed: false,
            exit: None,
        };
        Self {
            state: Mutex::new(state),
            news: Condvar::new(),
        }
    }

    /// A failed test may leave it poisoned; what it holds is still right.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed, at most as long as `patience`.
    pub(super) fn changed<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        patience: Duration,
    ) -> MutexGuard<'a, State> {
        self.news
            .wait_timeout(state, patience)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Reads until nothing more comes, and answers what the program asks its terminal.
    pub(super) fn read(&self, mut from: impl Read, typing: &Typing) {
        let mut buffer = [0; 4096];
        loop {
            // Linux reports an error instead of an end when nobody has the other side open any more.
            let read = from.read(&mut buffer).unwrap_or(0);
            let mut state = self.state();
            state.log.extend_from_slice(&buffer[..read]);
            state.parser.process(&buffer[..read]);
            state.closed = read == 0;
            let answers = std::mem::take(&mut state.parser.callbacks_mut().answers);
            drop(state);
            self.news.notify_all();
            if read == 0 {
                return;
            }
            let mut typing = typing.lock().unwrap_or_else(PoisonError::into_inner);
            // A program that asked and went away needs no answer.
            let _ = typing
                .write_all(answers.as_bytes())
                .and_then(|()| typing.flush());
        }
    }

    /// Waits for the end of the process.
    pub(super) fn wait(&self, mut child: Child, pid: Pid) {
        // Whoever sends a signal holds the state: until it is held here, the process stays to receive it.
        let _ = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        );
        let mut state = self.state();
        let status = child.wait().expect("nobody else waits for this child");
        state.exit = Some(
            status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        );
        drop(state);
        self.news.notify_all();
    }
}

impl State {
    pub(super) fn screen(&self) -> TerminalScreen {
        TerminalScreen::of(self.parser.screen())
    }

    pub(super) fn resize(&mut self, columns: u16, rows: u16) {
        self.parser
            .set_size(at_least_one(rows), at_least_one(columns));
    }

    /// What has scrolled away and what is on the screen.
    pub(super) fn transcript(&mut self) -> String {
        let screen = self.parser.screen_mut();
        let columns = screen.size().1.get();
        let mut text = String::new();
        for back in (1..=screen.scrollback_len()).rev() {
            screen.set_scrollback(back);
            text.push_str(
                screen
                    .rows(0, columns)
                    .next()
                    .unwrap_or_default()
                    .trim_end(),
            );
            text.push('\n');
        }
        screen.set_scrollback(0);
        text + &screen.contents()
    }
}

fn at_least_one(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap_or(NonZeroU16::MIN)
}

/// What a program asks its terminal, and what a real one would answer.
#[derive(Default)]
struct Questions {
    answers: String,
}

impl vt100::Callbacks for Questions {
    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        first: Option<u8>,
        _second: Option<u8>,
        parameters: &[&[u16]],
        last: char,
    ) {
        match (first, parameters, last) {
            (None, [[6]], 'n') => {
                let (row, column) = screen.cursor_position();
                self.answers
                    .push_str(&format!("\u{1b}[{};{}R", row + 1, column + 1));
            }
            (None, [[5]], 'n') => self.answers.push_str("\u{1b}[0n"),
            // A terminal with colours that can do nothing else.
            (None, [] | [[0]], 'c') => self.answers.push_str("\u{1b}[?62;22c"),
            _ => {}
        }
    }
}
