//! The same commands in a real terminal: prompts, and lines that fit.

use rustix::fs::{CWD, Mode, mkfifoat};
use toolgate_testkit::terminal::{Key, Terminal};

use crate::admin::AdminPlace;

/// Starts the program in a terminal, with a clean environment.
fn start_terminal(place: &AdminPlace, arguments: &[&str], columns: u16) -> Terminal {
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
    let place = AdminPlace::new();
    place.write(
        "toolgate.toml",
        "[layers.policy]\ndefault = \"allow\" # \u{202e}\n",
    );
    let mut terminal = start_terminal(&place, &["config", "trust"], 80);
    let screen = terminal.wait_for("[y/N]");
    assert!(screen.contains("default = \"allow\""), "{screen}");
    assert!(
        screen.contains("⟨U+202E⟩"),
        "the contents of a file cannot reverse the text: {screen}"
    );
    terminal.send("y");
    terminal.press_key(Key::Enter);
    assert_eq!(terminal.wait_exit(), 0);
    assert_eq!(place.run(["stack", "show"]).code, 0);
}

#[test]
fn any_answer_but_yes_leaves_it_untrusted() {
    let place = AdminPlace::new();
    place.write("toolgate.toml", "[run]\n");
    for answer in ["", "n", "yup"] {
        let mut terminal = start_terminal(&place, &["config", "trust"], 80);
        terminal.wait_for("[y/N]");
        terminal.send(answer);
        terminal.press_key(Key::Enter);
        assert_eq!(terminal.wait_exit(), 5, "{answer:?}");
        assert_eq!(place.run(["stack", "show"]).code, 2, "{answer:?}");
    }
}

#[test]
fn tables_are_wrapped_at_the_width_of_the_terminal() {
    let place = AdminPlace::new();
    let mut terminal = start_terminal(&place, &["stack", "show"], 60);
    assert_eq!(terminal.wait_exit(), 0);
    let shown = terminal.transcript();
    // A line that the terminal had to break would begin with the rest of a word.
    let continued = shown.lines().filter(|line| line.starts_with("   ")).count();
    assert!(continued > 16 && shown.contains("receipts"), "{shown}");
}

#[test]
fn ctrl_c_interrupts_a_call_and_its_receipt_is_stored() {
    let place = AdminPlace::new().configured("[tools.shell]\nsandbox = \"best-effort\"\n");
    let started = place.work().join("started");
    mkfifoat(CWD, &started, Mode::RUSR | Mode::WUSR).expect("made");
    let command = "command=echo yes > started; sleep 600";
    let mut terminal = start_terminal(
        &place,
        &["tools", "call", "run_shell", command, "--approve", "yes"],
        80,
    );
    assert_eq!(std::fs::read_to_string(&started).expect("reads"), "yes\n");
    terminal.press_key(Key::Ctrl('c'));
    assert_eq!(terminal.wait_exit(), 130);
    let database = rusqlite::Connection::open(place.database()).expect("opens");
    let kept: i64 = database
        .query_row("SELECT count(*) FROM entries", [], |row| row.get(0))
        .expect("counts");
    assert_eq!(kept, 1, "the call has its receipt");
}
