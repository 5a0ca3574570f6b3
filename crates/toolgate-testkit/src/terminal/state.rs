//! The state of a terminal, updated by a thread that reads and one that waits for the end.

use std::{
    io::Read,
    num::NonZeroU16,
    os::unix::process::ExitStatusExt,
    process::Child,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::{KeyboardWriter, TerminalScreen};

/// The number of scrolled lines that are stored.
const SCROLLBACK: usize = 20_000;

/// The state, with a notification of changes.
pub(super) struct SharedTerminal {
    state: Mutex<TerminalState>,
    news: Condvar,
}

/// The state of a terminal.
pub(super) struct TerminalState {
    parser: vt100::Parser<TerminalQueries>,
    pub(super) log: Vec<u8>,
    /// True once all output is read.
    pub(super) closed: bool,
    pub(super) exit: Option<i32>,
}

impl SharedTerminal {
    pub(super) fn new(columns: u16, rows: u16) -> Self {
        let rows = at_least_one(rows);
        let columns = at_least_one(columns);
        let parser = vt100::Parser::new_with_callbacks(
            rows,
            columns,
            SCROLLBACK,
            TerminalQueries::default(),
        );
        let state = TerminalState {
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

    /// Locks the state. A failed test may leave it poisoned; the content is still valid.
    pub(super) fn lock_state(&self) -> MutexGuard<'_, TerminalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed, at most as long as `patience`.
    pub(super) fn wait_for_change<'a>(
        &'a self,
        state: MutexGuard<'a, TerminalState>,
        patience: Duration,
    ) -> MutexGuard<'a, TerminalState> {
        self.news
            .wait_timeout(state, patience)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Reads until the end, and answers the terminal queries of the program.
    pub(super) fn read_output(&self, mut from: impl Read, typing: &KeyboardWriter) {
        let mut buffer = [0; 4096];
        loop {
            // Linux reports an error instead of an end when no process has the other side open any
            // more.
            let read = from.read(&mut buffer).unwrap_or(0);
            let mut state = self.lock_state();
            state.log.extend_from_slice(&buffer[..read]);
            state.parser.process(&buffer[..read]);
            state.closed = read == 0;
            let answers = std::mem::take(&mut state.parser.callbacks_mut().answers);
            drop(state);
            self.news.notify_all();
            if read == 0 {
                return;
            }
            // Without the lock on the state: if the program does not read its input, this write
            // blocks, and the test could not even look at the screen.
            let mut typing = typing.lock().unwrap_or_else(PoisonError::into_inner);
            // A program that asked and exited needs no answer.
            let _ = typing
                .write_all(answers.as_bytes())
                .and_then(|()| typing.flush());
        }
    }

    /// Waits for the end of the process.
    pub(super) fn wait_for_exit(&self, mut child: Child, pid: Pid) {
        // A signal is sent with the state locked. The process must not be reaped before the lock is
        // taken here, or the signal could hit another process with the same id.
        let _ = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        );
        let mut state = self.lock_state();
        let status = child.wait().expect("no other thread waits for this child");
        state.exit = Some(
            status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        );
        drop(state);
        self.news.notify_all();
    }
}

impl TerminalState {
    pub(super) fn screen(&self) -> TerminalScreen {
        TerminalScreen::from_vt100(self.parser.screen())
    }

    pub(super) fn resize(&mut self, columns: u16, rows: u16) {
        self.parser
            .set_size(at_least_one(rows), at_least_one(columns));
    }

    /// Returns what has scrolled away and what is on the screen.
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
        // Otherwise the next screen would be the view that is scrolled up.
        screen.set_scrollback(0);
        text + &screen.contents()
    }
}

fn at_least_one(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap_or(NonZeroU16::MIN)
}

/// Terminal queries of a program, and the answers of a real terminal.
#[derive(Default)]
struct TerminalQueries {
    answers: String,
}

impl vt100::Callbacks for TerminalQueries {
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
            // A terminal with colours and no other features.
            (None, [] | [[0]], 'c') => self.answers.push_str("\u{1b}[?62;22c"),
            _ => {}
        }
    }
}
