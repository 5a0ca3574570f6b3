//! The program under faults: signals, kills, full disks, lost databases, stalled readers and bad
//! providers. `docs/reference/promises.md` lists what holds under each of them.

mod flips;
mod kills;
mod output;
mod postgres;
#[cfg(target_os = "linux")]
mod postgres_server;
mod providers;
mod signals;
mod store;

use std::{
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::run::world::to_text;

/// The longest time that any program of these tests may take. Nothing here depends on its value: a
/// program that hangs must not hang the tests.
const HANG: Duration = Duration::from_secs(60);

/// The end of a program: its exit code, or 128 plus the signal that ended it, as a shell reports it.
fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .expect("it has ended")
}

/// Starts a program with pipes.
fn start(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts")
}

fn send_signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    // A program that has ended by now gets no signal.
    let _ = kill_process(pid, signal);
}

/// Waits for the end of a program and reads its output. A program that hangs is killed and fails the
/// test.
fn finish(child: Child) -> Output {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    let (ended, watch) = std::sync::mpsc::channel::<()>();
    let guard = thread::spawn(move || {
        if watch
            .recv_timeout(HANG)
            .is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            let _ = kill_process(pid, Signal::KILL);
            return true;
        }
        false
    });
    let output = child.wait_with_output().expect("ends");
    drop(ended);
    let hung = guard.join().expect("watches");
    assert!(!hung, "it hung: {}", to_text(&output.stderr));
    output
}

/// Waits until `holds` is true, and panics with `what` if it never is.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < HANG, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}
