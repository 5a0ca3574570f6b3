//! Commands about the past on terminals of some width, and their output in a file.

use toolgate_testkit::terminal::Terminal;

use super::HistoryPlace;

/// The columns of the terminal in these tests.
const COLUMNS: u16 = 60;

impl HistoryPlace {
    /// Starts a program in a terminal, with the variables of this place.
    fn start_terminal(&self, program: &str, args: &[&str]) -> Terminal {
        Terminal::builder(program)
            .args(args)
            .dir(self.work())
            .env("HOME", self.dir.path())
            .env("TOOLGATE_HOME", self.dir.path().join("home"))
            .env("TZ", "UTC")
            .size(COLUMNS, 40)
            .spawn()
    }

    /// Writes a file with one long line and returns that line and the id of the session.
    fn write_long_line(&self) -> (String, String) {
        let words: Vec<String> = (0..30).map(|number| format!("word{number}")).collect();
        let long = words.join(" ");
        self.write("long.txt", &long);
        (long, super::sessions::last_session_id(self))
    }
}

#[test]
fn the_diff_of_an_undo_is_marked_where_its_lines_wrap() {
    let place = HistoryPlace::new();
    let (long, session) = place.write_long_line();
    let program = env!("CARGO_BIN_EXE_toolgate");
    let args = ["sessions", "undo", &session, "--dry-run"];
    let mut terminal = place.start_terminal(program, &args);
    assert_eq!(terminal.wait_exit(), 0);
    let shown = terminal.transcript();
    let mut rows = shown
        .lines()
        .skip_while(|row| !row.starts_with("  │ +word0"));
    let first = rows.next().unwrap_or_default();
    let rest: Vec<&str> = rows.take_while(|row| row.starts_with("  ┆ ")).collect();
    assert!(rest.len() >= 2, "{shown}");
    let row_text = |row: &str| row.chars().skip(4).collect::<String>();
    let drawn: String = [first]
        .into_iter()
        .chain(rest.iter().copied())
        .map(|row| format!("{:<56}", row_text(row)))
        .collect();
    assert_eq!(drawn.trim_end(), format!("+{long}"), "{shown}");
}

#[test]
fn a_file_gets_whole_lines_whatever_the_width_of_the_terminal() {
    let place = HistoryPlace::new();
    let (long, session) = place.write_long_line();
    let script = format!(
        "'{program}' sessions undo {session} --dry-run > undo.txt && \
         '{program}' sessions show {session} > show.txt",
        program = env!("CARGO_BIN_EXE_toolgate"),
    );
    let mut terminal = place.start_terminal("sh", &["-c", &script]);
    assert_eq!(terminal.wait_exit(), 0, "{}", terminal.transcript());
    let undo = place.read("undo.txt").expect("is written");
    assert!(
        undo.lines().any(|line| line == format!("+{long}")),
        "{undo}"
    );
    let show = place.read("show.txt").expect("is written");
    let calls: Vec<&str> = show
        .lines()
        .filter(|line| line.contains("write_file"))
        .collect();
    assert!(
        matches!(calls[..], [line] if line.contains("approved by")),
        "{show}"
    );
}
