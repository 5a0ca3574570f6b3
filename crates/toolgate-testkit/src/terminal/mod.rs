//! Runs a program in a real pseudo terminal: types, waits, and reads the screen.
//!
//! Nothing here sleeps. A test says what it waits for, and the kit reads until it appears;
//! otherwise the test fails and shows the screen.
//!
//! ```
//! use toolgate_testkit::terminal::{Key, Terminal};
//!
//! let script = "stty -echo; printf 'your name? '; read name; echo \"hello, $name\"";
//! let mut terminal = Terminal::builder("sh").args(["-c", script]).size(60, 10).spawn();
//! terminal.wait_for("your name?");
//! terminal.send("Ann");
//! terminal.press_key(Key::Enter);
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
pub use screen::{CellColor, ScreenCell, TerminalScreen};
use state::{SharedTerminal, TerminalState};

/// The keyboard input, from the test and from the terminal itself.
type KeyboardWriter = Arc<Mutex<Box<dyn Write + Send>>>;

/// A program in a pseudo terminal. Dropping it kills the program and its process group.
pub struct Terminal {
    shared: Arc<SharedTerminal>,
    master: Box<dyn MasterPty + Send>,
    typing: KeyboardWriter,
    pid: Pid,
    patience: Duration,
}

impl Terminal {
    /// Returns a builder for a program.
    pub fn builder(program: impl AsRef<std::ffi::OsStr>) -> TerminalBuilder {
        TerminalBuilder::new(program.as_ref())
    }

    /// Types `text` as it is.
    ///
    /// # Panics
    ///
    /// If the program does not read any more.
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
    pub fn press_key(&mut self, key: Key) {
        self.send(&key.sequence());
    }

    /// Waits until `text` is on the screen. Text that was wrapped is found too, but not text that
    /// has scrolled away.
    ///
    /// # Panics
    ///
    /// If it does not appear; the message shows the screen.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> TerminalScreen {
        self.wait_until(&format!("{text:?} on the screen"), |screen| {
            screen.contains(text)
        })
    }

    /// Waits until `holds` accepts the screen; `what` describes it in the failure message.
    ///
    /// # Panics
    ///
    /// If that does not happen; the message shows the screen.
    #[track_caller]
    pub fn wait_until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&TerminalScreen) -> bool,
    ) -> TerminalScreen {
        let mut found = None;
        let seen = self.wait_for_state(|state| {
            let screen = state.screen();
            let held = holds(&screen);
            found = Some(screen);
            held
        });
        let screen = found.expect("the screen is checked before the first wait");
        if seen {
            screen
        } else {
            panic!("did not see {what}{}:\n{screen}", self.describe_end())
        }
    }

    /// Waits until `text` has been printed, whether it is still on the screen or has scrolled away.
    ///
    /// # Panics
    ///
    /// If it does not appear; the message shows everything that was printed.
    #[track_caller]
    pub fn wait_for_printed(&mut self, text: &str) {
        if !self.wait_for_state(|state| state.transcript().contains(text)) {
            panic!(
                "{text:?} was never printed{}:\n{}",
                self.describe_end(),
                self.transcript()
            );
        }
    }

    /// Waits until the program has ended and all of its output is read. Returns its exit code, or
    /// 128 plus the number of the signal that ended it.
    ///
    /// # Panics
    ///
    /// If it does not end, or if a process that it started keeps the terminal open.
    #[track_caller]
    pub fn wait_exit(&mut self) -> i32 {
        if !self.wait_for_state(|state| state.closed && state.exit.is_some()) {
            panic!(
                "the program and its terminal did not end{}:\n{}",
                self.describe_end(),
                self.screen()
            );
        }
        self.lock_state().exit.expect("it was just seen")
    }

    /// Returns the current screen.
    pub fn screen(&self) -> TerminalScreen {
        self.lock_state().screen()
    }

    /// Returns what has scrolled away and what is on the screen, as text.
    pub fn transcript(&self) -> String {
        self.lock_state().transcript()
    }

    /// Returns every byte that the program wrote, control codes included.
    pub fn log(&self) -> Vec<u8> {
        self.lock_state().log.clone()
    }

    /// Resizes the terminal; the program is notified, as by a real one.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        // Before the program is told: what it draws next is for the new size.
        self.lock_state().resize(columns, rows);
        let size = PtySize {
            rows,
            cols: columns,
            pixel_width: 0,
            pixel_height: 0,
        };
        self.master
            .resize(size)
            .expect("the terminal is open as long as this value exists");
    }

    /// Sends a signal to the program and its process group, if it still runs.
    pub fn signal(&mut self, signal: Signal) {
        // While the state is locked the process is not reaped, so its id cannot belong to another
        // process.
        let state = self.lock_state();
        if state.exit.is_none() {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Returns the process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    fn lock_state(&self) -> MutexGuard<'_, TerminalState> {
        self.shared.lock_state()
    }

    /// Checks the state whenever it changes, until `holds` accepts it or nothing more can come.
    /// Returns whether it was accepted.
    fn wait_for_state(&self, mut holds: impl FnMut(&mut TerminalState) -> bool) -> bool {
        let deadline = Instant::now() + self.patience;
        let mut state = self.lock_state();
        loop {
            if holds(&mut state) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // Not at the exit alone: the last output may still be on its way.
            if left.is_zero() || (state.closed && state.exit.is_some()) {
                return false;
            }
            state = self.shared.wait_for_change(state, left);
        }
    }

    fn describe_end(&self) -> String {
        let state = self.lock_state();
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

    fn shell_script(script: &str) -> TerminalBuilder {
        Terminal::builder("sh").args(["-c", script])
    }

    #[test]
    fn the_program_sees_a_terminal_of_the_size_that_was_given() {
        let mut terminal = shell_script("test -t 0 && test -t 1 && stty size")
            .size(61, 17)
            .spawn();
        terminal.wait_for("17 61");
        assert_eq!(terminal.wait_exit(), 0);
    }

    #[test]
    fn the_program_is_notified_when_the_size_changes() {
        let mut terminal =
            shell_script("trap 'stty size; exit 4' WINCH; echo ready; while :; do read line; done")
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
        let mut terminal = shell_script("env; echo end")
            .env("MINE", "yes")
            .size(80, 24)
            .spawn();
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
        let mut terminal = shell_script(r"printf '\033[1;31mred\033[0m 界\n'").spawn();
        terminal.wait_exit();
        let screen = terminal.screen();
        let cell = screen.cell(0, 0).expect("there");
        assert_eq!(
            (cell.text.as_str(), cell.fg, cell.bold),
            ("r", CellColor::Indexed(1), true)
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
        let mut terminal = shell_script("seq 1 40").size(20, 5).spawn();
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
    fn a_text_that_never_appears_fails_with_the_screen() {
        let mut terminal = shell_script("echo something else").spawn();
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
        let mut terminal = shell_script("echo up; exec sleep 1000").spawn();
        terminal.wait_for("up");
        terminal.signal(Signal::TERM);
        assert_eq!(terminal.wait_exit(), 128 + 15);
        let terminal = shell_script("sleep 1000").spawn();
        let shared = terminal.shared.clone();
        drop(terminal);
        let mut state = shared.lock_state();
        while state.exit.is_none() {
            state = shared.wait_for_change(state, Duration::from_secs(60));
        }
        assert_eq!(state.exit, Some(128 + 9));
    }
}
