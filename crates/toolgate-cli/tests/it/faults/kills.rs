//! SIGKILL at random moments: no effect is repeated or lost, no request is lost, every chain verifies.
//!
//! `TOOLGATE_FAULT_KILLS` sets the number of kills; 200 by default.

use std::{collections::BTreeSet, thread, time::Duration};

use rustix::process::Signal;
use toolgate::{Event, Status, event::ToolEvent};

use super::{exit_code, finish, send_signal, start};
use crate::run::world::{RunWorld, to_text};

/// Three effects, each a line in a file, and a request in between. The script follows the
/// conversation, so that any process can continue it.
const WORK: &str = r#"
    [[reply]]
    when = { last_contains = "begin" }
    calls = [{ tool = "run_shell", arguments = { command = "echo effect-1 >> log.txt; echo did-1" } }]
    [[reply]]
    when = { last_contains = "did-1" }
    calls = [{ tool = "write_file", arguments = { path = "asked.txt", content = "did-2\n" } }]
    [[reply]]
    when = { last_contains = "asked.txt" }
    calls = [{ tool = "run_shell", arguments = { command = "echo effect-3 >> log.txt; echo did-3" } }]
    [[reply]]
    repeat = "always"
    text = "That is all."
"#;

const ALLOW: [&str; 2] = ["--allow", "run_shell"];

/// Ends a run that was killed: the next step of it, until it is done. Returns the number of requests
/// that were approved.
fn complete_session(world: &RunWorld) -> usize {
    let mut approved = 0;
    for _ in 0..20 {
        let output = world.run_plain(&["--resume", ALLOW[0], ALLOW[1]]);
        match exit_code(output.status) {
            0 => return approved,
            3 => {
                let pending = world.run_json(&["approvals", "list"]);
                assert_eq!(
                    pending.len(),
                    1,
                    "one request, neither lost nor asked twice"
                );
                let id = pending[0]["approval_id"]
                    .as_str()
                    .expect("an id")
                    .to_owned();
                world.run_json(&["approvals", "approve", &id, "--yes"]);
                approved += 1;
            }
            // It was killed before there was a session.
            2 => {
                let output = world.run_plain(&["begin", ALLOW[0], ALLOW[1]]);
                assert_eq!(exit_code(output.status), 3, "{}", to_text(&output.stderr));
            }
            code => panic!("{code}: {}", to_text(&output.stderr)),
        }
    }
    panic!("the session is not done after 20 resumes");
}

/// Checks that each effect happened once if its call succeeded, and otherwise was reported as
/// interrupted.
fn check_effects(world: &RunWorld) {
    let log = std::fs::read_to_string(world.work().join("log.txt")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let distinct: BTreeSet<&str> = lines.iter().copied().collect();
    assert_eq!(lines.len(), distinct.len(), "no effect is repeated: {log}");
    let statuses = world.statuses_of("run_shell");
    let done = statuses
        .iter()
        .filter(|status| **status == Status::Ok)
        .count();
    let unknown = statuses
        .iter()
        .filter(|status| **status == Status::OutcomeUnknown)
        .count();
    assert!(
        done <= lines.len() && lines.len() <= done + unknown,
        "no effect is lost: {log} {statuses:?}"
    );
    let asked = |event: &Event| {
        matches!(
            event.as_tool(),
            Some((_, ToolEvent::ToolApprovalRequested { .. }))
        )
    };
    let requests = world.events().iter().filter(|event| asked(event)).count();
    assert!(requests <= 1, "asked {requests} times");
    let verified = world.toolgate_status(&["receipts", "verify"]);
    assert!(matches!(verified, 0 | 8), "the chain verifies: {verified}");
}

#[test]
fn a_killed_run_repeats_and_loses_nothing() {
    let kills: usize = std::env::var("TOOLGATE_FAULT_KILLS")
        .ok()
        .and_then(|kills| kills.parse().ok())
        .unwrap_or(200);
    let share = |seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut left = kills / 2;
        while left > 0 {
            let world = RunWorld::new(WORK);
            let mut begun = false;
            // Several kills of one session, so that resuming is killed as well.
            for _ in 0..left.min(8) {
                let arguments: &[&str] = if begun {
                    &["--resume", ALLOW[0], ALLOW[1]]
                } else {
                    &["begin", ALLOW[0], ALLOW[1]]
                };
                let child = start(&mut world.command(arguments));
                thread::sleep(Duration::from_micros(random.u64(0..120_000)));
                send_signal(&child, Signal::KILL);
                finish(child);
                begun = begun || world.home().join("toolgate.db").exists() && has_session(&world);
                left -= 1;
            }
            complete_session(&world);
            check_effects(&world);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| share(1));
        scope.spawn(|| share(2));
    });
}

fn has_session(world: &RunWorld) -> bool {
    !world.events().is_empty()
}
