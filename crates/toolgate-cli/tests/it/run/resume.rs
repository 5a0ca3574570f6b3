//! A session is resumed without options, from any directory, and every suggested command works.

use std::process::Command;

use rustix::process::Signal;
use serde_json::json;
use toolgate::{store::RecordKey, value::Json};
use toolgate_testkit::terminal::Key;

use crate::run::world::{RunWorld, to_text};

/// A model that writes a file, reads it, and says so.
const WRITES: &str = r#"
[[reply]]
calls = [{ tool = "write_file", arguments = { path = "new.txt", content = "made" } }]
[[reply]]
calls = [{ tool = "run_shell", arguments = { command = "cat new.txt" } }]
[[reply]]
text = "It is made."
[[reply]]
text = "Nothing more to do."
"#;

/// Returns the commands of a text that the program suggests: between backticks, or in the lines of
/// the summary from `next` on.
fn suggested_commands(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2).map(str::to_owned);
    let mut is_next = false;
    let listed = text.lines().filter_map(|line| {
        is_next = line.starts_with("next ") || is_next && line.starts_with("         ");
        let command = line.get(9..).filter(|_| is_next)?;
        Some(command.split("  ").next()?.trim().to_owned())
    });
    quoted
        .chain(listed)
        .filter(|command| command.starts_with("toolgate "))
        .collect()
}

/// Runs a suggested command in another directory than the session's.
fn paste(world: &RunWorld, command: &str) -> (i32, String) {
    let elsewhere = world.path_beside("elsewhere");
    std::fs::create_dir_all(&elsewhere).expect("made");
    let line = command.replacen("toolgate", env!("CARGO_BIN_EXE_toolgate"), 1);
    let mut shell = Command::new("sh");
    shell.args(["-c", &line.replace("\"…\"", "'and now?'")]);
    world.surround(&mut shell);
    let ran = shell.current_dir(elsewhere).output().expect("runs");
    let text = to_text(&ran.stdout) + &to_text(&ran.stderr);
    (ran.status.code().expect("ends by itself"), text)
}

/// Pastes every suggested command, and those that they suggest, until there is no new one.
fn paste_all(world: &RunWorld, text: &str) -> Vec<String> {
    let mut open = suggested_commands(text);
    let mut done: Vec<String> = Vec::new();
    while let Some(command) = open.first().cloned() {
        open.remove(0);
        if done.contains(&command) {
            continue;
        }
        let (code, said) = paste(world, &command);
        assert!(code == 0 || code == 3, "{command}: {code}\n{said}");
        done.push(command);
        // A message makes a new run each time.
        if !done.last().is_some_and(|command| command.contains('…')) {
            open.extend(suggested_commands(&said));
        }
    }
    done
}

#[test]
fn every_suggested_command_works_in_any_directory_without_further_options() {
    let world = RunWorld::new(WRITES);
    let ran = world.run_plain(&["write it", "--allow", "run_shell(cat new.txt)"]);
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    let done = paste_all(&world, &to_text(&ran.stderr));
    assert_eq!(world.read("new.txt"), "made");
    for part in ["approvals approve ", "run --resume ", "sessions show "] {
        let is_there = done.iter().any(|command| command.contains(part));
        assert!(is_there, "{part}: {done:?}");
    }
    // The rule that was given at the start still allows the command.
    assert_eq!(world.statuses_of("run_shell"), [toolgate::Status::Ok]);
}

#[test]
fn suggested_commands_name_a_database_that_is_not_the_default() {
    let world = RunWorld::new(WRITES);
    let ran = world.run_plain(&["write it", "--db", "../my db.sqlite"]);
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    let said = to_text(&ran.stderr);
    let path = world.work().canonicalize().expect("is there");
    let path = path.with_file_name("my db.sqlite");
    let option = format!("--db '{}'", path.display());
    assert!(said.contains(&option), "{said}");
    paste_all(&world, &said);
    assert_eq!(world.read("new.txt"), "made");
    assert!(!world.home().join("toolgate.db").exists());
}

#[test]
fn a_call_by_hand_is_finished_after_its_approval() {
    let world = RunWorld::new("");
    let ran = world.run_other(&["tools", "call", "write_file", "path=b.txt", "content=two"]);
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    let done = paste_all(&world, &to_text(&ran.stderr));
    assert!(done.len() >= 2, "{done:?}");
    assert_eq!(world.read("b.txt"), "two");
    let resume = done.iter().find(|command| command.contains("--resume"));
    let (code, said) = paste(&world, resume.expect("is suggested"));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("is one call, and it has settled"), "{said}");
}

#[test]
fn a_session_is_not_resumed_in_another_directory() {
    let world = RunWorld::new(WRITES);
    world.run_plain(&["write it"]);
    let rows = world.run_json(&["sessions", "list"]);
    let id = rows[0]["session"].as_str().expect("an id").to_owned();
    let (code, said) = paste(&world, &format!("toolgate run --resume {id} -C ."));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("leave out -C"), "{said}");
    let (code, said) = paste(&world, &format!("toolgate run --resume {id}"));
    assert_eq!(code, 3, "{said}");
    let work = world.work().canonicalize().expect("is there");
    let note = format!("in {} with --model script:", work.display());
    assert!(said.contains(&note), "{said}");
}

#[test]
fn options_that_were_stored_without_the_keys_allow_nothing() {
    let world = RunWorld::new(WRITES);
    world.run_plain(&["write it"]);
    let rows = world.run_json(&["sessions", "list"]);
    let id = rows[0]["session"].as_str().expect("an id").to_owned();
    let key = format!("session-options/{id}/000001");
    let options = json!({ "approve": "yes", "model": world.model() });
    let planted = json!({ "options": options, "seal": "tg1.k.e30.AAAA" });
    let stored = world.with_store(async |store| {
        let planted = Json::new(planted).expect("shallow");
        store
            .put_json_once(RecordKey::Other(key.into()), planted)
            .await
    });
    assert_eq!(stored.expect("stores"), None);
    let ran = world.run_other(&["run", "--resume"]);
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    let said = to_text(&ran.stderr);
    assert!(said.contains("have to be given again"), "{said}");
    assert!(!world.work().join("new.txt").exists());
}

#[test]
fn a_request_that_was_decided_elsewhere_is_not_shown_again() {
    let world = RunWorld::new(WRITES);
    world.run_plain(&["write it"]);
    let approved = world.run_other(&["approvals", "approve", "--all", "--yes"]);
    assert!(approved.status.success(), "{approved:?}");
    let mut terminal = world.terminal(&["--resume"]).size(100, 40).spawn();
    // The next call needs an approval of its own.
    terminal.wait_for("Run run_shell?");
    let shown = terminal.transcript();
    assert!(shown.contains("✓ write_file"), "{shown}");
    assert!(!shown.contains("── write_file"), "{shown}");
    assert!(!shown.contains("Run write_file?"), "{shown}");
}

#[test]
fn a_session_whose_process_was_killed_while_a_call_ran_is_listed_as_lost() {
    let world = RunWorld::new(
        "[[reply]]\ncalls = [{ tool = 'run_shell', arguments = { command = \"echo be''gun; sleep 30\" } }]",
    );
    let mut terminal = world.terminal(&["wait"]).size(100, 40).spawn();
    terminal.wait_for("Run run_shell?");
    terminal.press_key(Key::Char('y'));
    terminal.wait_for("begun");
    terminal.signal(Signal::KILL);
    terminal.wait_exit();
    let rows = world.run_json(&["sessions", "list"]);
    assert_eq!(rows[0]["state"], "lost", "{rows:?}");
    let listed = world.run_text(&["sessions", "list"]);
    assert!(listed.contains("process lost, can be resumed"), "{listed}");
}
