//! `toolgate chat` in a real terminal: messages, approvals, resizing, quitting.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::Signal;
use toolgate_testkit::terminal::{Key, Terminal, TerminalBuilder, TerminalScreen};

const TOOLGATE: &str = env!("CARGO_BIN_EXE_toolgate");

/// Requests two files at once, then replies to the results.
const TWO_FILES: &str = r#"
[[reply]]
text = "Let me **write** two files."
calls = [
    { tool = "write_file", arguments = { path = "first.txt", content = "one\n" } },
    { tool = "write_file", arguments = { path = "second.txt", content = "two\n" } },
]
[[reply]]
when = { tool_result = { tool = "write_file", contains = "wrong file" } }
text = "I see, it was the wrong file."
[[reply]]
text = "Both are settled."
[[reply]]
repeat = "always"
text = "That was all."
"#;

/// An isolated workspace, home and script.
struct ChatPlace {
    dir: tempfile::TempDir,
}

impl ChatPlace {
    fn with_script(script: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["work", "home"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        fs::write(dir.path().join("script.toml"), script).expect("written");
        Self { dir }
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.work().join(name)).ok()
    }

    fn model(&self) -> String {
        format!("script:{}", self.dir.path().join("script.toml").display())
    }

    fn set_up(&self, terminal: TerminalBuilder) -> TerminalBuilder {
        let home = self.dir.path().join("home");
        terminal
            .dir(self.work())
            .env("TOOLGATE_HOME", &home)
            .env("HOME", &home)
            .env("TOOLGATE_USER", "ann")
    }

    fn chat(&self, arguments: &[&str]) -> TerminalBuilder {
        let terminal = Terminal::builder(TOOLGATE)
            .args(["chat", "--model", &self.model()])
            .args(arguments);
        self.set_up(terminal).size(90, 26)
    }

    /// Builds the same command, followed by the settings of the terminal.
    fn chat_and_look(&self, arguments: &[&str]) -> TerminalBuilder {
        let script = "\"$@\"; echo \"exit $?\"; stty -a";
        let terminal = Terminal::builder("sh").args([
            "-c",
            script,
            "sh",
            TOOLGATE,
            "chat",
            "--model",
            &self.model(),
        ]);
        self.set_up(terminal.args(arguments)).size(90, 26)
    }
}

fn write_executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("made executable");
}

/// Enters the panel of two approval requests and selects the first. The calls run at the same time, and
/// the request that arrived first is the selected one.
fn select_first_of_two(terminal: &mut Terminal) {
    terminal.wait_for("2 approvals pending");
    terminal.press_key(Key::Tab);
    terminal.wait_for("y approve");
    terminal.press_key(Key::Up);
    terminal.wait_for("▸1");
}

#[test]
fn two_calls_are_approved_in_reverse_order_and_the_terminal_is_restored() {
    let place = ChatPlace::with_script(TWO_FILES);
    let mut terminal = place.chat_and_look(&[]).spawn();
    terminal.wait_for("Write a message");
    terminal.wait_for("1  Describe a task");
    assert!(terminal.screen().alternate);
    terminal.send("write two files");
    terminal.press_key(Key::Enter);
    select_first_of_two(&mut terminal);
    terminal.press_key(Key::Down);
    terminal.wait_for("▸2");
    terminal.send("y");
    terminal.wait_for("1 approval pending");
    terminal.wait_for(&format!("done · {}", crate::account_name()));
    assert_eq!(
        (place.read("first.txt"), place.read("second.txt").as_deref()),
        (None, Some("two\n"))
    );
    terminal.resize(58, 16);
    // The narrow line ends with the last key only after everything is redrawn.
    terminal.wait_until("every key in the narrow panel", |screen| {
        let keys = "  y approve  n deny  e edit  a always  ? explain  s later";
        screen.rows().iter().any(|row| row.trim_end() == keys)
    });
    terminal.send("y");
    terminal.wait_for("Both are settled.");
    assert_eq!(place.read("first.txt").as_deref(), Some("one\n"));
    terminal.press_key(Key::Ctrl('d'));
    terminal.wait_for("exit 0");
    assert_eq!(terminal.wait_exit(), 0);
    let screen = terminal.screen();
    assert!(!screen.alternate && !screen.cursor_hidden, "{screen}");
    let set = terminal.transcript();
    assert!(
        set.contains(" icanon") && set.contains(" echo ") && !set.contains("-icanon"),
        "{set}"
    );
    assert!(set.contains("--resume"), "{set}");
}

#[test]
fn a_denial_with_a_reason_reaches_the_model() {
    let place = ChatPlace::with_script(TWO_FILES);
    let mut terminal = place.chat(&["write", "two", "files"]).spawn();
    select_first_of_two(&mut terminal);
    terminal.send("n");
    terminal.wait_for("because:");
    terminal.send("wrong file");
    terminal.press_key(Key::Enter);
    terminal.wait_for("1 approval pending");
    terminal.send("y");
    terminal.wait_for("I see, it was the wrong file.");
    assert_eq!(
        (place.read("first.txt"), place.read("second.txt").as_deref()),
        (None, Some("two\n"))
    );
    terminal.press_key(Key::Ctrl('q'));
    assert_eq!(terminal.wait_exit(), 0);
}

#[test]
fn arguments_are_edited_in_an_editor_and_confirmed_before_they_are_used() {
    let place = ChatPlace::with_script(TWO_FILES);
    let editor = place.dir.path().join("editor");
    write_executable(&editor, "#!/bin/sh\nsed -i 's/one/changed/' \"$1\"\n");
    let mut terminal = place
        .chat(&["write two files"])
        .env("EDITOR", &editor)
        .spawn();
    select_first_of_two(&mut terminal);
    terminal.send("e");
    terminal.wait_for("with these arguments?");
    assert_eq!(place.read("first.txt"), None);
    terminal.send("y");
    terminal.wait_for("1 approval pending");
    terminal.send("y");
    terminal.wait_for("Both are settled.");
    assert_eq!(place.read("first.txt").as_deref(), Some("changed\n"));
    terminal.press_key(Key::Ctrl('q'));
    assert_eq!(terminal.wait_exit(), 0);
}

#[test]
fn an_editor_that_fails_decides_nothing() {
    let place = ChatPlace::with_script(TWO_FILES);
    let mut terminal = place
        .chat(&["write two files"])
        .env("EDITOR", "false")
        .spawn();
    select_first_of_two(&mut terminal);
    terminal.send("e");
    terminal.wait_for("nothing was decided");
    assert!(terminal.screen().contains("2 approvals pending"));
    terminal.press_key(Key::Ctrl('q'));
    assert_eq!(terminal.wait_exit(), 0);
}

#[test]
fn a_standing_rule_shows_its_past_matches_before_it_is_stored() {
    let script = r#"
[[reply]]
calls = [{ tool = "write_file", arguments = { path = "a.txt", content = "one\n" } }]
[[reply]]
calls = [{ tool = "write_file", arguments = { path = "a.txt", content = "one\n" } }]
[[reply]]
text = "Written twice."
"#;
    let place = ChatPlace::with_script(script);
    let mut terminal = place.chat(&["write it twice"]).spawn();
    terminal.wait_for("1 approval pending");
    terminal.press_key(Key::Tab);
    terminal.send("a");
    terminal.wait_for("would have answered one approval request so far");
    terminal.send("p");
    terminal.wait_until("a preview for the project", |screen| {
        screen.contains("in this project")
            && screen.contains("would have answered one approval request so far")
    });
    terminal.send("y");
    // The rule covers the second call: no approval is requested.
    terminal.wait_for("Written twice.");
    terminal.press_key(Key::Ctrl('q'));
    assert_eq!(terminal.wait_exit(), 0);
}

#[test]
fn the_verdict_of_each_layer_is_explained() {
    let place = ChatPlace::with_script(TWO_FILES);
    let mut terminal = place.chat(&["write two files"]).spawn();
    select_first_of_two(&mut terminal);
    terminal.send("?");
    terminal.wait_for("What each layer decides");
    terminal.send("G");
    terminal.wait_for("would run if approved");
    terminal.press_key(Key::Ctrl('q'));
    assert_eq!(terminal.wait_exit(), 0);
}

#[test]
fn ctrl_c_stops_the_run_and_the_conversation_can_be_resumed() {
    let place = ChatPlace::with_script(TWO_FILES);
    let mut terminal = place.chat(&["write two files"]).spawn();
    terminal.wait_for("2 approvals pending");
    terminal.press_key(Key::Ctrl('c'));
    // The requests stay pending, and resuming shows them again.
    terminal.wait_for("suspended; Ctrl-R resumes");
    terminal.press_key(Key::Ctrl('d'));
    assert_eq!(terminal.wait_exit(), 0);
    let mut again = place.chat(&["--resume"]).spawn();
    again.wait_for("write two files");
    again.wait_for("2 approvals pending");
    again.press_key(Key::Ctrl('c'));
    again.wait_for("suspended; Ctrl-R resumes");
    // The next message gives them up.
    again.send("never mind");
    again.press_key(Key::Enter);
    again.wait_for("Both are settled.");
    again.press_key(Key::Ctrl('c'));
    again.press_key(Key::Ctrl('c'));
    assert_eq!(again.wait_exit(), 0);
    assert_eq!(place.read("first.txt"), None);
}

#[test]
fn an_approval_request_of_a_dead_process_is_shown_again() {
    let place = ChatPlace::with_script(TWO_FILES);
    let mut terminal = place.chat(&["write two files"]).spawn();
    terminal.wait_for("2 approvals pending");
    terminal.signal(Signal::KILL);
    terminal.wait_exit();
    let mut again = place.chat(&["--resume"]).spawn();
    select_first_of_two(&mut again);
    again.send("y");
    again.wait_for("1 approval pending");
    again.wait_for(&format!("done · {}", crate::account_name()));
    assert_eq!(place.read("first.txt").as_deref(), Some("one\n"));
    again.press_key(Key::Ctrl('q'));
    assert_eq!(again.wait_exit(), 0);
}

#[test]
fn a_signal_to_terminate_restores_the_terminal() {
    let place = ChatPlace::with_script(TWO_FILES);
    let mut terminal = place.chat(&["write two files"]).spawn();
    terminal.wait_for("2 approvals pending");
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.wait_exit(), 143);
    let screen = terminal.screen();
    assert!(!screen.alternate && !screen.cursor_hidden, "{screen}");
}

#[test]
fn an_agent_that_is_delegated_to_asks_in_the_same_place() {
    let place = ChatPlace::with_script(
        r#"
[[reply]]
calls = [{ tool = "writer", arguments = { task = "write the file" } }]
[[reply]]
text = "The writer is done."
"#,
    );
    let own = place.dir.path().join("writer.toml");
    fs::write(
        &own,
        r#"
[[reply]]
calls = [{ tool = "write_file", arguments = { path = "a.txt", content = "one\n" } }]
[[reply]]
text = "Written by the writer."
"#,
    )
    .expect("written");
    let config = place.dir.path().join("config.toml");
    let agent = format!(
        "[[agent]]\nname = \"writer\"\ndescription = \"Writes files.\"\nmodel = \"script:{}\"\n",
        own.display()
    );
    fs::write(&config, agent).expect("written");
    let config = config.display().to_string();
    let mut terminal = place
        .chat(&["--config", &config, "--allow", "writer", "have it written"])
        .spawn();
    terminal.wait_for("1 approval pending");
    terminal.wait_for("(writer)");
    terminal.press_key(Key::Tab);
    terminal.send("y");
    terminal.wait_for("The writer is done.");
    terminal.press_key(Key::Ctrl('n'));
    terminal.wait_for("Written by the writer.");
    terminal.press_key(Key::Ctrl('q'));
    assert_eq!(terminal.wait_exit(), 0);
}

/// Writes a line and sends it.
fn send_line(terminal: &mut Terminal, text: &str) {
    terminal.send(text);
    terminal.press_key(Key::Enter);
}

#[test]
fn a_new_session_is_begun_and_the_earlier_one_is_opened_again() {
    let place = ChatPlace::with_script("[[reply]]\nrepeat = 'always'\ntext = 'Understood.'");
    let mut terminal = place.chat(&[]).spawn();
    terminal.wait_for("1  Describe a task");
    send_line(&mut terminal, "count the ducks");
    terminal.wait_for("Understood.");
    terminal.wait_for("ready");
    send_line(&mut terminal, "/clear");
    terminal.wait_for("saved; /resume returns to it");
    assert!(!terminal.screen().contains("count the ducks"));
    send_line(&mut terminal, "count the geese");
    terminal.wait_for("Understood.");
    terminal.wait_for("ready");
    send_line(&mut terminal, "/resume");
    terminal.wait_for("Sessions here");
    terminal.wait_for("count the ducks");
    terminal.press_key(Key::Enter);
    terminal.wait_until("the first conversation", |screen| {
        screen.contains("› count the ducks") && !screen.contains("geese")
    });
    // It is driven by this process again.
    send_line(&mut terminal, "and the swans");
    terminal.wait_until("a second reply", |screen| {
        screen.text().matches("Understood.").count() == 2
    });
    terminal.press_key(Key::Ctrl('q'));
    assert_eq!(terminal.wait_exit(), 0);
    // The note names the last session.
    let said = terminal.transcript();
    let id = said.rsplit("--resume ").next().unwrap_or_default();
    let mut again = place.chat(&["--resume", &id[..8]]).spawn();
    again.wait_for("and the swans");
    again.press_key(Key::Ctrl('q'));
    assert_eq!(again.wait_exit(), 0);
}

#[test]
fn another_model_continues_the_same_session() {
    let place = ChatPlace::with_script("[[reply]]\nrepeat = 'always'\ntext = 'I am the first.'");
    let other = place.dir.path().join("other.toml");
    let script = "[[reply]]\nrepeat = 'always'\ntext = 'I am the second.'";
    fs::write(&other, script).expect("written");
    let mut terminal = place.chat(&["who are you?"]).spawn();
    terminal.wait_for("I am the first.");
    terminal.wait_for("ready");
    send_line(&mut terminal, "/model nosuch:thing");
    terminal.wait_for("│ chat: ");
    send_line(&mut terminal, &format!("/model script:{}", other.display()));
    terminal.wait_for("the next run uses");
    terminal.wait_for("I am the first.");
    send_line(&mut terminal, "and now?");
    terminal.wait_for("I am the second.");
    terminal.press_key(Key::Ctrl('q'));
    assert_eq!(terminal.wait_exit(), 0);
}

#[test]
fn files_that_the_policy_hides_are_not_offered() {
    let place = ChatPlace::with_script(TWO_FILES);
    let work = place.work();
    fs::create_dir(work.join("sub")).expect("a directory");
    for file in [
        "notes-one.md",
        "notes-ignored.md",
        "notes-denied.md",
        "notes.pem",
        "sub/notes.rs",
    ] {
        fs::write(work.join(file), "x").expect("written");
    }
    fs::write(work.join(".gitignore"), "notes-ignored.md\n").expect("written");
    let denied = ["--deny", "read_file(notes-denied.md)"];
    let mut terminal = place.chat(&denied).spawn();
    terminal.wait_for("1  Describe a task");
    terminal.send("read @not");
    let screen = terminal.wait_for("sub/notes.rs");
    assert!(screen.contains("notes-one.md"), "{screen}");
    for hidden in ["notes-ignored.md", "notes-denied.md", "notes.pem"] {
        assert!(!screen.contains(hidden), "{hidden} in {screen}");
    }
    terminal.press_key(Key::Tab);
    terminal.wait_for("› read notes-one.md");
    terminal.press_key(Key::Ctrl('q'));
    assert_eq!(terminal.wait_exit(), 0);
}

#[test]
fn ctrl_z_returns_to_the_shell_and_fg_to_a_clean_screen() {
    let place = ChatPlace::with_script(TWO_FILES);
    let script = "set -m; \"$@\"; echo in-the-shell; read line; fg >/dev/null; echo \"exit $?\"";
    let model = place.model();
    let chat = ["-c", script, "bash", TOOLGATE, "chat", "--model", &model];
    let terminal = Terminal::builder("bash").args(chat);
    let mut terminal = place.set_up(terminal).size(60, 20).spawn();
    terminal.wait_for("1  Describe a task");
    terminal.send("half a thought");
    let shown = |screen: &TerminalScreen| -> Vec<String> {
        let rows = screen.rows().into_iter();
        rows.map(|row| row.trim_end().to_owned()).collect()
    };
    // The last row is drawn last, and its end is the name of the model.
    let before = terminal.wait_until("the whole screen", |screen| {
        let is_drawn = shown(screen)
            .last()
            .is_some_and(|row| row.ends_with("script.toml"));
        is_drawn && screen.contains("half a thought")
    });
    let before = shown(&before);
    terminal.press_key(Key::Ctrl('z'));
    let shell = terminal.wait_for("in-the-shell");
    assert!(!shell.alternate && !shell.cursor_hidden, "{shell}");
    terminal.press_key(Key::Enter);
    terminal.wait_until("the chat as it was", |screen| {
        screen.alternate && shown(screen) == before
    });
    terminal.press_key(Key::Ctrl('q'));
    terminal.wait_for("exit 0");
    assert_eq!(terminal.wait_exit(), 0);
}

#[test]
fn without_colours_nothing_is_coloured() {
    let script = "[[reply]]\ntext = \"```rust\\nfn main() {}\\n```\"";
    for (colour, is_coloured) in [("", true), ("1", false)] {
        let place = ChatPlace::with_script(script);
        let mut terminal = place.chat(&["code"]).env("NO_COLOR", colour).spawn();
        terminal.wait_for("fn main() {}");
        terminal.press_key(Key::Ctrl('q'));
        assert_eq!(terminal.wait_exit(), 0);
        let log = String::from_utf8_lossy(&terminal.log()).into_owned();
        assert_eq!(log.contains("[38;5;5;"), is_coloured, "{log:?}");
    }
}

#[test]
fn without_a_terminal_the_other_command_is_named() {
    let place = ChatPlace::with_script(TWO_FILES);
    let home = place.dir.path().join("home");
    let output = Command::new(TOOLGATE)
        .args(["chat", "--model", &place.model()])
        .current_dir(place.work())
        .env("TOOLGATE_HOME", &home)
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("needs a terminal") && said.contains("toolgate run"),
        "{said}"
    );
}

/// A private tmux server, stopped also if the test fails.
struct Tmux(String);

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .args(["-S", &self.0, "kill-server"])
            .stderr(Stdio::null())
            .status();
    }
}

#[test]
fn it_works_in_tmux() {
    if Command::new("tmux")
        .arg("-V")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        eprintln!("skipped: tmux is not installed");
        return;
    }
    let place = ChatPlace::with_script(TWO_FILES);
    let socket = place.dir.path().join("tmux");
    let server = Tmux(socket.display().to_string());
    let command = format!(
        "{TOOLGATE} chat --model {} 'write 日本語 two files'",
        place.model()
    );
    let tmux = [
        "-S",
        &server.0,
        "-f",
        "/dev/null",
        "new-session",
        "-x",
        "80",
        "-y",
        "34",
        &command,
    ];
    let terminal = Terminal::builder("tmux")
        .args(tmux)
        .env("TERM", "xterm-256color")
        .env("LC_ALL", "C.UTF-8");
    let mut terminal = place.set_up(terminal).size(80, 34).spawn();
    terminal.wait_for("2 approvals pending");
    terminal.wait_for("› write 日本語 two files");
    select_first_of_two(&mut terminal);
    terminal.send("y");
    terminal.wait_for("1 approval pending");
    terminal.send("y");
    terminal.wait_for("Both are settled.");
    terminal.press_key(Key::Ctrl('q'));
    // The server ends with its last session.
    terminal.wait_exit();
}
