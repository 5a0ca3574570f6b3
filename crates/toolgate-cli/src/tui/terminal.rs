//! The terminal while the UI has it, and giving it back whatever happens.

use std::{
    io::{self, Stdout, Write},
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crossterm::{
    cursor::{Hide, Show},
    event::{DisableBracketedPaste, EnableBracketedPaste},
    execute,
    terminal::{
        Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
        enable_raw_mode,
    },
};
use ratatui::{Terminal, backend::CrosstermBackend};

use super::{App, draw};

/// The terminal while the UI has it. It is given back when this is dropped, and before a panic is reported.
pub(super) struct Screenful {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    has_it: Arc<AtomicBool>,
}

impl Screenful {
    /// Takes the terminal.
    pub(super) fn take() -> io::Result<Self> {
        let has_it = Arc::new(AtomicBool::new(false));
        report_panics(has_it.clone());
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        let mut screenful = Self { terminal, has_it };
        screenful.enter()?;
        Ok(screenful)
    }

    /// Takes the terminal, again after [`Self::leave`].
    pub(super) fn enter(&mut self) -> io::Result<()> {
        self.has_it.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        execute!(
            io::stdout(),
            EnterAlternateScreen,
            Clear(ClearType::All),
            EnableBracketedPaste,
            Hide
        )?;
        // A fresh one draws everything. `clear` would ask the terminal where its cursor is, and not all answer.
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }

    /// Gives the terminal back, for a while or for good.
    pub(super) fn leave(&mut self) {
        if self.has_it.swap(false, Ordering::SeqCst) {
            give_back();
        }
    }

    /// Draws the UI.
    pub(super) fn draw(&mut self, app: &mut App) -> io::Result<()> {
        self.terminal.draw(|frame| draw(app, frame)).map(drop)
    }

    /// Hands text to the clipboard of the terminal, as far as it allows that.
    pub(super) fn copy(&mut self, text: &str) -> io::Result<()> {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let mut out = io::stdout();
        write!(out, "\x1b]52;c;{}\x07", STANDARD.encode(text))?;
        out.flush()
    }
}

impl Drop for Screenful {
    fn drop(&mut self) {
        self.leave();
    }
}

fn give_back() {
    // If not even this can be written, nobody sees the terminal any more.
    let _ = execute!(
        io::stdout(),
        DisableBracketedPaste,
        LeaveAlternateScreen,
        Show
    );
    let _ = disable_raw_mode();
}

/// A panic of the UI is reported on a terminal that was given back. One on another thread is the library's to contain;
/// a report of it would only spoil the screen.
fn report_panics(has_it: Arc<AtomicBool>) {
    let (before, ui) = (panic::take_hook(), thread::current().id());
    panic::set_hook(Box::new(move |info| {
        if !has_it.load(Ordering::SeqCst) {
            return before(info);
        }
        if thread::current().id() == ui {
            has_it.store(false, Ordering::SeqCst);
            give_back();
            before(info);
        }
    }));
}
