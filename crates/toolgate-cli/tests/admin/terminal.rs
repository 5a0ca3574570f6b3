//! The same commands in a real terminal: questions that wait for an answer, and lines that fit.

use rustix::fs::{CWD, Mode, mkfifoat};
use toolgate_testkit::terminal::{Key, Terminal};

use crate::Place;

/// The program in a terminal, with nothing else in its environment.
fn terminal(place: &Place, arguments: &[&str], columns: u16) -> Terminal {
    let terminal = Terminal::builder(env!("CARGO_BIN_EXE_toolgate"))
        .args(arguments)
        .dir(place.work());
    let terminal = terminal
        .env("HOME", place.root())
        .env("TOOLGATE_HOME", place.home())
        .env("TOOLGATE_USER", "ann");
    terminal.size(columns, 40).spawn()
}

#[test]
fn a_configuration_is_shown_before_it_is_trusted() {
    let place = Place::new();
    place.write(
        "toolgate.toml",
        "[layers.policy]\ndefault = \"allow\" # \u{202e}\n",
    );
    let mut terminal = terminal(&place, &["config", "trust"], 80);
    let screen = terminal.wait_for("[y/N]");
    assert!(screen.contains("default = \"allow\""), "{screen}");
    assert!(
        screen.contains("\\u{202e}"),
        "what a file says cannot turn the text around: {screen}"
    );
    terminal.send("y");
    terminal.key(Key::Enter);
    assert_eq!(terminal.wait_exit(), 0);
    assert_eq!(place.run(["stack", "show"]).code, 0);
}

#[test]
fn any_answer_but_yes_leaves_it_untrusted() {
    let place = Place::new();
    place.write("toolgate.toml", "[run]\n");
    for answer in ["", "n", "yup"] {
        let mut terminal = terminal(&place, &["config", "trust"], 80);
        terminal.wait_for("[y/N]");
        terminal.send(answer);
        terminal.key(Key::Enter);
        assert_eq!(terminal.wait_exit(), 5, "{answer:?}");
        assert_eq!(place.run(["stack", "show"]).code, 2, "{answer:?}");
    }
}

#[test]
fn tables_are_folded_where_the_terminal_ends() {
    let place = Place::new();
    let mut terminal = terminal(&place, &["stack", "show"], 60);
    assert_eq!(terminal.wait_exit(), 0);
    let shown = terminal.transcript();
    // A line that the terminal had to break would begin with the rest of a word.
    let continued = shown.lines().filter(|line| line.starts_with("   ")).count();
    assert!(continued > 16 && shown.contains("receipts"), "{shown}");
}

#[test]
fn ctrl_c_stops_a_call_and_what_is_known_of_it_is_kept() {
    let place = Place::new().configured("[tools.shell]\nsandbox = \"best-effort\"\n");
    let started = place.work().join("started");
    mkfifoat(CWD, &started, Mode::RUSR | Mode::WUSR).expect("made");
    let command = "command=echo yes > started; sleep 600";
    let mut terminal = terminal(
        &place,
        &["tools", "call", "run_shell", command, "--approve", "yes"],
        80,
    );
    assert_eq!(std::fs::read_to_string(&started).expect("reads"), "yes\n");
    terminal.key(Key::Ctrl('c'));
    assert_eq!(terminal.wait_exit(), 130);
    let database = rusqlite::Connection::open(place.database()).expect("opens");
    let kept: i64 = database
        .query_row("SELECT count(*) FROM entries", [], |row| row.get(0))
        .expect("counts");
    assert_eq!(kept, 1, "the call has its receipt");
}
