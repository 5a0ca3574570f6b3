//! Ctrl-C, wherever the run is, and going on afterwards.

use rustix::process::Signal;
use toolgate::Status;
use toolgate_testkit::terminal::Key;

use crate::world::World;

const BACK: &str = "[[reply]]\nrepeat = 'always'\ntext = 'Here I am again.'";

/// Goes on with the last session and expects it to come to an end.
fn go_on(world: &mut World) {
    world.play(BACK);
    let mut terminal = world.terminal(&["--resume"]).spawn();
    assert_eq!(terminal.wait_exit(), 0, "{}", terminal.transcript());
    assert!(
        terminal.transcript().contains("Here I am again."),
        "{}",
        terminal.transcript()
    );
}

const SLOW: &str = "chunk = 4\ndelay_ms = 100\n[[reply]]\ntext = '''One two three four five six seven eight nine ten \
    eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty and so on and so on.'''";

#[test]
fn a_reply_that_is_still_coming_is_stopped_and_asked_for_again() {
    let mut world = World::new(SLOW);
    let mut terminal = world.terminal(&["count"]).spawn();
    terminal.wait_for("One two");
    terminal.key(Key::Ctrl('c'));
    assert_eq!(terminal.wait_exit(), 130);
    let transcript = terminal.transcript();
    assert!(
        transcript.contains("interrupted") && transcript.contains("toolgate run --resume"),
        "{transcript}"
    );
    go_on(&mut world);
}

const SHELL: &str = r#"
    [[reply]]
    calls = [{ tool = "run_shell", arguments = { command = "echo up-$((1+1)); sleep 1000" } }]
    [[reply]]
    text = "It slept."
"#;

#[test]
fn a_command_that_runs_is_ended_and_the_model_is_told() {
    let mut world = World::new(SHELL);
    let mut terminal = world.terminal(&["sleep", "--approve", "yes"]).spawn();
    terminal.wait_for("up-2");
    terminal.key(Key::Ctrl('c'));
    assert_eq!(terminal.wait_exit(), 130);
    let ended = world.ended("run_shell");
    assert!(
        matches!(*ended, [Status::Cancelled | Status::OutcomeUnknown]),
        "{ended:?}"
    );
    go_on(&mut world);
    assert_eq!(world.ended("run_shell").len(), 1, "it is not run again");
}

#[test]
fn a_signal_to_end_does_the_same() {
    let mut world = World::new(SHELL);
    let mut terminal = world.terminal(&["sleep", "--approve", "yes"]).spawn();
    terminal.wait_for("up-2");
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.wait_exit(), 130);
    assert!(!terminal.screen().cursor_hidden);
    go_on(&mut world);
}

#[test]
fn a_question_that_waits_is_given_up_and_nothing_was_done() {
    let mut world = World::new(
        r#"
        [[reply]]
        calls = [{ tool = "write_file", arguments = { path = "a.txt", content = "two\n" } }]
        "#,
    );
    let mut terminal = world.terminal(&["change it"]).spawn();
    terminal.wait_for("Run write_file?");
    terminal.key(Key::Ctrl('c'));
    assert_eq!(terminal.wait_exit(), 130);
    go_on(&mut world);
    assert_eq!(
        (world.read("a.txt").as_str(), world.ended("write_file")),
        ("one\n", vec![Status::Cancelled])
    );
}

#[test]
fn where_there_is_nothing_to_go_on_with_that_is_said() {
    let world = World::new(BACK);
    for (arguments, said) in [
        (&["--resume"][..], "there is no session of this directory"),
        (&[], "there is no task"),
    ] {
        let output = world.plain(arguments);
        let stderr = crate::world::text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains(said) && stderr.contains("hint:"),
            "{stderr}"
        );
    }
    let output = world.plain(&["--resume", "abcdef12"]);
    assert!(crate::world::text(&output.stderr).contains("there is no session abcdef12"));
}
