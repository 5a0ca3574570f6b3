//! Runs a program in a real pseudo terminal: types, waits, and reads what is on the screen.
//!
//! Nothing here sleeps. A test says what it waits for, and the kit reads until that is so; if it does not become so, the
//! test fails with the screen as it stands.
//!
//! ```
//! use toolgate_testkit::terminal::{Key, Terminal};
//!
//! let script = "stty -echo; printf 'your name? '; read name; echo \"hello, $name\"";
//! let mut terminal = Terminal::builder("sh").args(["-c", script]).size(60, 10).spawn();
//! terminal.wait_for("your name?");
//! terminal.send("Ann");
//! terminal.key(Key::Enter);
//! terminal.wait_for("hello, Ann");
//! assert_eq!(terminal.wait_exit(), 0);
//! ```

mod builder;
mod key;
mod screen;
mod state;

use std::{
    fmt,
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use portable_pty::{MasterPty, PtySize};
use rustix::process::{Pid, Signal, kill_process_group};

pub use builder::TerminalBuilder;
pub use key::Key;
pub use screen::{Cell, Color, TerminalScreen};
use state::{Shared, State};

/// What is typed, from the test and from the terminal itself.
type Typing = Arc<Mutex<Box<dyn Write + Send>>>;

/// A program in a pseudo terminal. Dropping it kills the program and what it has started.
pub struct Terminal {
    shared: Arc<Shared>,
    master: Box<dyn MasterPty + Send>,
    typing: Typing,
    pid: Pid,
    patience: Duration,
}

impl Terminal {
    /// Describes a program to run.
    pub fn builder(program: impl AsRef<std::ffi::OsStr>) -> TerminalBuilder {
        TerminalBuilder::new(program.as_ref())
    }

    /// Types `text` as it is.
    ///
    /// # Panics
    ///
    /// If the program does not take it any more.
    #[track_caller]
    pub fn send(&mut self, text: &str) {
        let mut typing = self.typing.lock().unwrap_or_else(PoisonError::into_inner);
        let typed = typing
            .write_all(text.as_bytes())
            .and_then(|()| typing.flush());
        drop(typing);
        if let Err(error) = typed {
            panic!("{text:?} cannot be typed: {error}\n{}", self.screen());
        }
    }

    /// Presses a key.
    #[track_caller]
    pub fn key(&mut self, key: Key) {
        self.send(&key.sequence());
    }

    /// Waits until `text` is on the screen. A text that was wrapped is found too, but not one that has scrolled away.
    ///
    /// # Panics
    ///
    /// If it does not come, with the screen as it stands.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> TerminalScreen {
        self.wait_until(&format!("{text:?} on the screen"), |screen| {
            screen.contains(text)
        })
    }

    /// Waits until the screen is as `holds` says; `what` is for the message if it does not become so.
    ///
    /// # Panics
    ///
    /// If it does not become so, with the screen as it stands.
    #[track_caller]
    pub fn wait_until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&TerminalScreen) -> bool,
    ) -> TerminalScreen {
        let mut found = None;
        let seen = self.watch(|state| {
            let screen = state.screen();
            let held = holds(&screen);
            found = Some(screen);
            held
        });
        let screen = found.expect("the screen is looked at before anything is waited for");
        match seen {
            true => screen,
            false => panic!("there never was {what}{}:\n{screen}", self.how_it_stands()),
        }
    }

    /// Waits until `text` has been printed, whether it is still on the screen or has scrolled away.
    ///
    /// # Panics
    ///
    /// If it does not come, with everything that was printed.
    #[track_caller]
    pub fn wait_for_printed(&mut self, text: &str) {
        if !self.watch(|state| state.transcript().contains(text)) {
            panic!(
                "{text:?} was never printed{}:\n{}",
                self.how_it_stands(),
                self.transcript()
            );
        }
    }

    /// Waits until the program has ended and everything that it printed is read. Gives its exit code, or 128 and the
    /// number of the signal that ended it.
    ///
    /// # Panics
    ///
    /// If it does not end, or if something that it started keeps the terminal open.
    #[track_caller]
    pub fn wait_exit(&mut self) -> i32 {
        if !self.watch(|state| state.closed && state.exit.is_some()) {
            panic!(
                "the program and its terminal did not end{}:\n{}",
                self.how_it_stands(),
                self.screen()
            );
        }
        self.state().exit.expect("it was just seen")
    }

    /// What is on the screen now.
    pub fn screen(&self) -> TerminalScreen {
        self.state().screen()
    }

    /// What has scrolled away and what is on the screen, as text.
    pub fn transcript(&self) -> String {
        self.state().transcript()
    }

    /// Every byte that the program wrote, control codes included.
    pub fn log(&self) -> Vec<u8> {
        self.state().log.clone()
    }

    /// Makes the terminal larger or smaller; the program is told, as by a real one.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.state().resize(columns, rows);
        let size = PtySize {
            rows,
            cols: columns,
            pixel_width: 0,
            pixel_height: 0,
        };
        self.master
            .resize(size)
            .expect("the terminal is open as long as this value is there");
    }

    /// Sends a signal to the program and everything in its group, if it still runs.
    pub fn signal(&mut self, signal: Signal) {
        // While the state is held, the number cannot be that of another process: it is not reaped before.
        let state = self.state();
        if state.exit.is_none() {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// The number of the process.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// Looks at the state whenever it changes, until `holds` or nothing more can come. Says whether it held.
    fn watch(&self, mut holds: impl FnMut(&mut State) -> bool) -> bool {
        let deadline = Instant::now() + self.patience;
        let mut state = self.state();
        loop {
            if holds(&mut state) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || (state.closed && state.exit.is_some()) {
                return false;
            }
            state = self.shared.changed(state, left);
        }
    }

    fn how_it_stands(&self) -> String {
        let state = self.state();
        match (state.exit, state.closed) {
            (Some(code), true) => format!(" (the program ended with {code})"),
            (Some(code), false) => {
                format!(" (the program ended with {code}, but its terminal is still in use)")
            }
            (None, _) => format!(" within {:?}", self.patience),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> TerminalBuilder {
        Terminal::builder("sh").args(["-c", script])
    }

    #[test]
    fn the_program_sees_a_terminal_of_the_size_that_was_given() {
        let mut terminal = sh("test -t 0 && test -t 1 && stty size")
            .size(61, 17)
            .spawn();
        terminal.wait_for("17 61");
        assert_eq!(terminal.wait_exit(), 0);
    }

    #[test]
    fn the_program_is_told_when_the_size_changes() {
        let mut terminal =
            sh("trap 'stty size; exit 4' WINCH; echo ready; while :; do read line; done")
                .size(80, 24)
                .spawn();
        terminal.wait_for("ready");
        terminal.resize(40, 12);
        terminal.wait_for("12 40");
        assert_eq!(terminal.wait_exit(), 4);
        assert_eq!(terminal.screen().size(), (40, 12));
    }

    #[test]
    fn only_named_variables_reach_the_program() {
        let mut terminal = sh("env; echo end").env("MINE", "yes").size(80, 24).spawn();
        terminal.wait_for("end");
        let shown = terminal.transcript();
        assert!(
            shown.contains("MINE=yes") && shown.contains("TERM=xterm-256color"),
            "{shown}"
        );
        assert!(!shown.contains("CARGO"), "{shown}");
    }

    #[test]
    fn colours_and_wide_characters_are_known_for_each_cell() {
        let mut terminal = sh(r"printf '\033[1;31mred\033[0m 界\n'").spawn();
        terminal.wait_exit();
        let screen = terminal.screen();
        let cell = screen.cell(0, 0).expect("there");
        assert_eq!(
            (cell.text.as_str(), cell.fg, cell.bold),
            ("r", Color::Indexed(1), true)
        );
        assert_eq!(
            (
                screen.cell(0, 4).expect("there").width,
                screen.rows()[0].as_str()
            ),
            (2, "red 界")
        );
    }

    #[test]
    fn what_has_scrolled_away_is_in_the_transcript() {
        let mut terminal = sh("seq 1 40").size(20, 5).spawn();
        terminal.wait_for_printed("40");
        assert_eq!(terminal.wait_exit(), 0);
        assert!(!terminal.screen().contains("12"), "{}", terminal.screen());
        let numbers: Vec<String> = (1..=40).map(|number| number.to_string()).collect();
        assert_eq!(terminal.transcript().lines().collect::<Vec<_>>(), numbers);
    }

    #[test]
    fn a_program_that_asks_where_the_cursor_is_gets_an_answer() {
        let script = r#"stty raw -echo; printf 'ab\033[6n'; IFS= read -r -d R answer; printf '\r\n%s' "${answer#?}""#;
        let mut terminal = Terminal::builder("bash").args(["-c", script]).spawn();
        terminal.wait_for("[1;3");
    }

    #[test]
    fn a_text_that_never_comes_fails_with_the_screen() {
        let mut terminal = sh("echo something else").spawn();
        let failed =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| terminal.wait_for("hello")));
        let said = *failed
            .expect_err("it never came")
            .downcast::<String>()
            .expect("a text");
        assert!(
            said.contains("something else") && said.contains("ended with 0"),
            "{said}"
        );
    }

    #[test]
    fn a_signal_shows_in_the_exit_code_and_dropping_leaves_nothing_behind() {
        let mut terminal = sh("echo up; exec sleep 1000").spawn();
        terminal.wait_for("up");
        terminal.signal(Signal::TERM);
        assert_eq!(terminal.wait_exit(), 128 + 15);
        let terminal = sh("sleep 1000").spawn();
        let shared = terminal.shared.clone();
        drop(terminal);
        let mut state = shared.state();
        while state.exit.is_none() {
            state = shared.changed(state, Duration::from_secs(60));
        }
        assert_eq!(state.exit, Some(128 + 9));
    }
}
