//! Signals from the first moment on: a stop counts, and what waits stays pending.

use std::{thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use toolgate::Status;
use toolgate_testkit::terminal::Key;

use super::{exit_code, finish, send_signal, start, wait_until};
use crate::run::world::{RunWorld, to_text};

/// A reply that takes much longer than the signals of the grid.
const SLOW: &str = "chunk = 1\ndelay = '200ms'\n[[reply]]\nrepeat = 'always'\ntext = '''One two three four five six \
    seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty.'''";

const BACK: &str = "[[reply]]\nrepeat = 'always'\ntext = 'Here I am again.'";

const WRITE: &str = r#"
    [[reply]]
    calls = [{ tool = "write_file", arguments = { path = "a.txt", content = "two\n" } }]
    [[reply]]
    text = "It is changed."
"#;

/// A call that waits for an approver beside one that runs.
const WAIT_AND_RUN: &str = r#"
    [[reply]]
    calls = [
        { tool = "write_file", arguments = { path = "a.txt", content = "two\n" } },
        { tool = "run_shell", arguments = { command = "echo up > up.txt; sleep 1000" } },
    ]
    [[reply]]
    text = "It is changed."
"#;

#[test]
fn a_stop_counts_from_the_first_millisecond_on() {
    let grid = |half: usize| {
        let signals = [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)];
        let world = RunWorld::new(SLOW);
        for (at, delay) in (0..=60).step_by(4).enumerate().skip(half).step_by(2) {
            let (signal, code) = signals[at % 3];
            let child = start(&mut world.command(&["count"]));
            thread::sleep(Duration::from_millis(delay));
            send_signal(&child, signal);
            let output = finish(child);
            assert_eq!(
                exit_code(output.status),
                code,
                "{signal:?} after {delay} ms: {}",
                to_text(&output.stderr)
            );
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| grid(0));
        scope.spawn(|| grid(1));
    });
}

#[test]
fn a_stop_is_served_while_the_reader_of_the_output_has_stalled() {
    // More pieces than a pipe holds, and nothing reads them.
    let text = "x".repeat(50_000);
    let script = format!("chunk = 50\n[[reply]]\nrepeat = 'always'\ntext = '{text}'");
    let world = RunWorld::new(&script);
    let mut child = start(&mut world.command(&["x", "--json", "--pieces"]));
    let reader = child.stdout.take().expect("a pipe");
    wait_until("the pipe is full", || {
        rustix::io::ioctl_fionread(&reader).expect("a pipe") > 50_000
    });
    send_signal(&child, Signal::TERM);
    let output = finish(child);
    assert_eq!(exit_code(output.status), 143, "{}", to_text(&output.stderr));
    drop(reader);
}

#[test]
fn a_second_signal_ends_a_run_that_cannot_be_saved() {
    // A tool that ignores requests to stop.
    let script = r#"
        [[reply]]
        calls = [{ tool = "run_shell", arguments = { command = "trap '' TERM INT HUP; echo up > up.txt; while :; do sleep 1; done" } }]
        [[reply]]
        text = "Done."
    "#;
    let world = RunWorld::new(script);
    let child = start(&mut world.command(&["sleep", "--approve", "yes"]));
    wait_until("the command runs", || world.work().join("up.txt").exists());
    send_signal(&child, Signal::TERM);
    send_signal(&child, Signal::INT);
    send_signal(&child, Signal::TERM);
    let code = exit_code(finish(child).status);
    assert!(matches!(code, 130 | 143), "{code}");
}

#[test]
fn a_closed_terminal_leaves_requests_pending_and_stops_what_runs() {
    for (signal, code) in [(Signal::HUP, 129), (Signal::TERM, 143), (Signal::INT, 130)] {
        let mut world = RunWorld::new(WAIT_AND_RUN);
        let mut terminal = world
            .terminal(&["change it", "--allow", "run_shell"])
            .spawn();
        terminal.wait_for("Run write_file?");
        wait_until("the command runs", || world.work().join("up.txt").exists());
        // Only to the program: the command has to be stopped by it.
        let pid = Pid::from_raw(terminal.pid()).expect("a process");
        kill_process(pid, signal).expect("it runs");
        assert_eq!(terminal.wait_exit(), code, "{}", terminal.transcript());
        let shell = world.statuses_of("run_shell");
        assert!(
            matches!(*shell, [Status::Cancelled | Status::OutcomeUnknown]),
            "{shell:?}"
        );
        assert_eq!(world.statuses_of("write_file"), []);
        assert_eq!(world.run_json(&["approvals", "list"]).len(), 1);
        if signal == Signal::HUP {
            // Resuming asks again, and the answer counts.
            world.set_script(BACK);
            let mut terminal = world
                .terminal(&["--resume", "--allow", "run_shell"])
                .spawn();
            terminal.wait_for("Run write_file?");
            terminal.send("y");
            assert_eq!(terminal.wait_exit(), 0, "{}", terminal.transcript());
            assert_eq!(world.read("a.txt"), "two\n");
        }
    }
}

#[test]
fn ctrl_c_at_a_request_asks_and_leaves_it_pending_by_default() {
    for (keys, status) in [
        ("\r", None),
        ("\u{3}", None),
        ("c", Some(Status::Cancelled)),
    ] {
        let world = RunWorld::new(WRITE);
        let mut terminal = world.terminal(&["change it"]).spawn();
        terminal.wait_for("Run write_file?");
        terminal.press_key(Key::Ctrl('c'));
        terminal.wait_for("leave the request pending");
        terminal.send(keys);
        assert_eq!(terminal.wait_exit(), 130, "{}", terminal.transcript());
        assert_eq!(
            world.statuses_of("write_file").first(),
            status.as_ref(),
            "{keys:?}"
        );
        assert_eq!(world.read("a.txt"), "one\n");
    }
}

#[test]
fn escape_returns_from_the_question_to_the_request() {
    let world = RunWorld::new(WRITE);
    let mut terminal = world.terminal(&["change it"]).spawn();
    terminal.wait_for("Run write_file?");
    terminal.press_key(Key::Ctrl('c'));
    terminal.wait_for("leave the request pending");
    terminal.press_key(Key::Escape);
    terminal.wait_for("Run write_file?");
    terminal.send("y");
    assert_eq!(terminal.wait_exit(), 0, "{}", terminal.transcript());
    assert_eq!(world.read("a.txt"), "two\n");
}

#[test]
fn a_suspended_program_gives_the_terminal_back_and_continues() {
    let world = RunWorld::new(WRITE);
    let mut terminal = world.terminal(&["change it"]).spawn();
    terminal.wait_for("Run write_file?");
    terminal.signal(Signal::TSTP);
    let stat = format!("/proc/{}/stat", terminal.pid());
    wait_until("it is stopped", || {
        let stat = std::fs::read_to_string(&stat).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('T'))
    });
    // What it printed last may still be on its way to the screen.
    terminal.wait_until("the cursor", |screen| !screen.cursor_hidden);
    // The store is not locked meanwhile.
    assert_eq!(world.run_json(&["approvals", "list"]).len(), 1);
    terminal.signal(Signal::CONT);
    terminal.send("y");
    assert_eq!(terminal.wait_exit(), 0, "{}", terminal.transcript());
    assert_eq!(world.read("a.txt"), "two\n");
}
