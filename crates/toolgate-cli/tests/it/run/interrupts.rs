//! Ctrl-C at every point of a run, and resuming afterwards.

use rustix::process::Signal;
use toolgate::Status;
use toolgate_testkit::terminal::Key;

use crate::run::world::RunWorld;

const BACK: &str = "[[reply]]\nrepeat = 'always'\ntext = 'Here I am again.'";

/// Resumes the last session, which has to complete.
fn resume_session(world: &mut RunWorld) {
    world.set_script(BACK);
    let mut terminal = world.terminal(&["--resume"]).spawn();
    assert_eq!(terminal.wait_exit(), 0, "{}", terminal.transcript());
    assert!(
        terminal.transcript().contains("Here I am again."),
        "{}",
        terminal.transcript()
    );
}

const SLOW: &str = "chunk = 4\ndelay = '100ms'\n[[reply]]\ntext = '''One two three four five six seven eight nine ten \
    eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty and so on and so on.'''";

#[test]
fn an_unfinished_reply_is_stopped_and_requested_again() {
    let mut world = RunWorld::new(SLOW);
    let mut terminal = world.terminal(&["count"]).spawn();
    terminal.wait_for("One two");
    terminal.press_key(Key::Ctrl('c'));
    assert_eq!(terminal.wait_exit(), 130);
    let transcript = terminal.transcript();
    assert!(
        transcript.contains("interrupted") && transcript.contains("toolgate run --resume"),
        "{transcript}"
    );
    resume_session(&mut world);
}

const SHELL: &str = r#"
    [[reply]]
    calls = [{ tool = "run_shell", arguments = { command = "echo up-$((1+1)); sleep 1000" } }]
    [[reply]]
    text = "It slept."
"#;

#[test]
fn a_running_command_is_stopped_and_the_model_reads_the_outcome() {
    let mut world = RunWorld::new(SHELL);
    let mut terminal = world.terminal(&["sleep", "--approve", "yes"]).spawn();
    terminal.wait_for("up-2");
    terminal.press_key(Key::Ctrl('c'));
    assert_eq!(terminal.wait_exit(), 130);
    let ended = world.statuses_of("run_shell");
    assert!(
        matches!(*ended, [Status::Cancelled | Status::OutcomeUnknown]),
        "{ended:?}"
    );
    resume_session(&mut world);
    assert_eq!(
        world.statuses_of("run_shell").len(),
        1,
        "it is not executed again"
    );
}

#[test]
fn ctrl_z_suspends_the_program_and_the_shell_continues_it() {
    let world = RunWorld::new(
        r#"
        [[reply]]
        calls = [{ tool = "write_file", arguments = { path = "a.txt", content = "two\n" } }]
        [[reply]]
        text = "It is changed."
        "#,
    );
    let mut shell = world.shell().spawn();
    shell.send("$RUN change it\n");
    shell.wait_for("y approve");
    shell.press_key(Key::Ctrl('z'));
    let screen = shell.wait_for("Stopped");
    assert!(!screen.contains("y approve"), "{screen}");
    assert!(!screen.cursor_hidden, "{screen}");
    shell.send("fg\n");
    shell.wait_for("y approve");
    shell.press_key(Key::Char('y'));
    // The last line of the summary: until then the program reads the keys.
    shell.wait_for("toolgate sessions show");
    shell.send("exit\n");
    assert_eq!(shell.wait_exit(), 0);
    assert_eq!(world.read("a.txt"), "two\n");
}

#[test]
fn a_signal_to_terminate_does_the_same() {
    let mut world = RunWorld::new(SHELL);
    let mut terminal = world.terminal(&["sleep", "--approve", "yes"]).spawn();
    terminal.wait_for("up-2");
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.wait_exit(), 143);
    assert!(!terminal.screen().cursor_hidden);
    resume_session(&mut world);
}

#[test]
fn resuming_without_a_session_is_an_error_with_a_hint() {
    let world = RunWorld::new(BACK);
    for (arguments, said) in [
        (&["--resume"][..], "there is no session of /"),
        (&[], "there is no task"),
    ] {
        let output = world.run_plain(arguments);
        let stderr = crate::run::world::to_text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains(said) && stderr.contains("hint:"),
            "{stderr}"
        );
    }
    let output = world.run_plain(&["--resume", "abcdef12"]);
    assert!(crate::run::world::to_text(&output.stderr).contains("there is no session abcdef12"));
}
