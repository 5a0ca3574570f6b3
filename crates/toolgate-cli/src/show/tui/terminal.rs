//! The terminal while the UI owns it; it is restored in every case.

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

use super::{ChatApp, draw};

/// The terminal while the UI owns it. It is restored when this is dropped, and before a panic is
/// reported.
pub(super) struct TerminalGuard {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    has_it: Arc<AtomicBool>,
}

impl TerminalGuard {
    /// Takes over the terminal.
    pub(super) fn acquire() -> io::Result<Self> {
        let has_it = Arc::new(AtomicBool::new(false));
        install_panic_hook(has_it.clone());
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        let mut screenful = Self { terminal, has_it };
        screenful.enter()?;
        Ok(screenful)
    }

    /// Takes over the terminal, again after [`Self::release`].
    pub(super) fn enter(&mut self) -> io::Result<()> {
        // Set first: if a step below fails, dropping this restores the terminal.
        self.has_it.store(true, Ordering::SeqCst);
        enable_raw_mode()?;
        // Bracketed paste: otherwise pasted text would arrive as keys, and a `y` in it could
        // approve a call.
        execute!(
            io::stdout(),
            EnterAlternateScreen,
            Clear(ClearType::All),
            EnableBracketedPaste,
            Hide
        )?;
        // A fresh one draws everything. `clear` would ask the terminal for the cursor position, and
        // not all of them answer.
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }

    /// Restores the terminal, for a while or for good.
    pub(super) fn release(&mut self) {
        if self.has_it.swap(false, Ordering::SeqCst) {
            restore_terminal();
        }
    }

    /// Draws the UI.
    pub(super) fn draw(&mut self, app: &mut ChatApp) -> io::Result<()> {
        self.terminal.draw(|frame| draw(app, frame)).map(drop)
    }

    /// Copies text to the clipboard through the terminal, if it allows that.
    pub(super) fn copy_to_clipboard(&mut self, text: &str) -> io::Result<()> {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let mut out = io::stdout();
        // OSC 52: the terminal itself sets the clipboard, so this works over SSH, too.
        write!(out, "\x1b]52;c;{}\x07", STANDARD.encode(text))?;
        out.flush()
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        self.release();
    }
}

fn restore_terminal() {
    // If even this cannot be written, the terminal is gone.
    let _ = execute!(
        io::stdout(),
        DisableBracketedPaste,
        LeaveAlternateScreen,
        Show
    );
    let _ = disable_raw_mode();
}

/// Installs a panic hook that restores the terminal before it reports a panic of the UI.
fn install_panic_hook(has_it: Arc<AtomicBool>) {
    let before = panic::take_hook();
    let ui = thread::current().id();
    panic::set_hook(Box::new(move |info| {
        if !has_it.load(Ordering::SeqCst) {
            return before(info);
        }
        // A panic on another thread is contained by the library; printing it would garble the
        // screen.
        if thread::current().id() == ui {
            has_it.store(false, Ordering::SeqCst);
            restore_terminal();
            before(info);
        }
    }));
}
