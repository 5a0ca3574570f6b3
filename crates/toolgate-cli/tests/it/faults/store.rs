//! A store that is full, locked, deleted or read-only: its own message and exit code, and what was
//! stored can be resumed.

use std::fs;

use rusqlite::Connection;
use rustix::process::Signal;

use super::{exit_code, finish, send_signal, start, wait_until};
use crate::run::world::{RunWorld, to_text};

const WORK: &str = r#"
    [[reply]]
    text = "I look first."
    calls = [{ tool = "run_shell", arguments = { command = "echo up > up.txt; while [ ! -e go.txt ]; do sleep 0.01; done" } }]
    [[reply]]
    repeat = "always"
    text = "That is all."
"#;

const SHORT: &str = "[[reply]]\nrepeat = 'always'\ntext = 'Hello.'";

/// The exit code of a store that failed.
const STORE_FAILED: i32 = 10;

fn lock_database(world: &RunWorld) -> Connection {
    let database = Connection::open(world.home().join("toolgate.db")).expect("opens");
    database.execute_batch("BEGIN IMMEDIATE").expect("locks");
    database
}

#[test]
fn a_full_disk_has_its_own_message_and_leaves_a_session_that_can_be_resumed() {
    let world = RunWorld::new(SHORT);
    assert_eq!(exit_code(world.run_plain(&["hello"]).status), 0);
    let mut failed = 0;
    for kib in [1, 8, 24, 48, 96] {
        // A limit on the size of files: a write beyond it fails as on a full disk.
        let output = world.run_in_shell(&format!("ulimit -f {kib}; RUN hello"));
        let stderr = to_text(&output.stderr);
        match exit_code(output.status) {
            0 => {}
            STORE_FAILED => {
                failed += 1;
                assert!(
                    stderr.contains("toolgate.db") && stderr.contains("hint:"),
                    "{stderr}"
                );
            }
            code => panic!("{kib} KiB: {code}: {stderr}"),
        }
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
    assert!(failed > 0, "the smallest limit is too small for a run");
    let output = world.run_plain(&["--resume", "last", "again"]);
    assert_eq!(exit_code(output.status), 0, "{}", to_text(&output.stderr));
}

#[test]
fn a_stop_is_served_while_the_database_is_locked() {
    let world = RunWorld::new(WORK);
    let child = start(&mut world.command(&["x", "--approve", "yes"]));
    wait_until("the command runs", || world.work().join("up.txt").exists());
    let lock = lock_database(&world);
    // Two signals of one kind may arrive as one.
    send_signal(&child, Signal::INT);
    send_signal(&child, Signal::TERM);
    let code = exit_code(finish(child).status);
    assert!(matches!(code, 130 | 143), "{code}");
    drop(lock);
    let output = world.run_plain(&["--resume", "--approve", "yes"]);
    assert_eq!(exit_code(output.status), 0, "{}", to_text(&output.stderr));
}

#[test]
fn a_database_that_stays_locked_has_its_own_message() {
    let mut world = RunWorld::new(SHORT);
    world.set_variable("TOOLGATE_DB_PATIENCE", "500ms");
    assert_eq!(exit_code(world.run_plain(&["hello"]).status), 0);
    let lock = lock_database(&world);
    let output = world.run_plain(&["hello"]);
    let stderr = to_text(&output.stderr);
    assert_eq!(exit_code(output.status), STORE_FAILED, "{stderr}");
    assert!(
        stderr.contains("locked by another process") && stderr.contains("hint:"),
        "{stderr}"
    );
    drop(lock);
    assert_eq!(exit_code(world.run_plain(&["hello"]).status), 0);
}

#[test]
fn a_database_that_was_deleted_under_a_run_is_reported() {
    let world = RunWorld::new(WORK);
    let child = start(&mut world.command(&["x", "--approve", "yes"]));
    wait_until("the command runs", || world.work().join("up.txt").exists());
    for name in ["toolgate.db", "toolgate.db-wal", "toolgate.db-shm"] {
        fs::remove_file(world.home().join(name)).expect("deleted");
    }
    world.write("go.txt", "");
    let output = finish(child);
    let stderr = to_text(&output.stderr);
    assert_eq!(exit_code(output.status), STORE_FAILED, "{stderr}");
    assert!(stderr.contains("deleted"), "{stderr}");
}

#[test]
fn a_directory_that_cannot_be_written_has_its_own_message() {
    let mut world = RunWorld::new(SHORT);
    // Nobody can write there, not even root.
    world.set_variable("TOOLGATE_HOME", "/proc/toolgate");
    let output = world.run_plain(&["hello"]);
    let stderr = to_text(&output.stderr);
    assert!(!output.status.success(), "{stderr}");
    assert!(
        stderr.contains("/proc/toolgate")
            && stderr.contains("hint:")
            && !stderr.contains("panicked"),
        "{stderr}"
    );
}
