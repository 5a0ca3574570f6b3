//! A real PostgreSQL server that is restarted, killed and paused under the program.

use toolgate_testkit::PostgresServer;

use super::{exit_code, finish, start, wait_until};
use crate::run::world::{RunWorld, to_text};

/// Returns a script with `count` calls. Call `n` writes a line, waits for the file `go-n`, and says
/// that it ends in the file `end-n`.
fn waiting_calls(count: usize) -> String {
    let call = |n: usize| {
        format!(
            r#"
            [[reply]]
            text = "Step {n}."
            calls = [{{ tool = "run_shell", arguments = {{ command = "echo {n} >> effects.txt; while [ ! -e go-{n} ]; do sleep 0.01; done; echo > end-{n}" }} }}]
            "#
        )
    };
    let done = r#"
        [[reply]]
        repeat = "always"
        text = "That is all."
    "#;
    let calls: String = (1..=count).map(call).collect();
    calls + done
}

fn world_on(server: &PostgresServer, calls: usize) -> RunWorld {
    let mut world = RunWorld::new(&waiting_calls(calls));
    world.set_variable("TOOLGATE_DB", &server.url());
    world
}

fn effects(world: &RunWorld) -> String {
    std::fs::read_to_string(world.work().join("effects.txt")).unwrap_or_default()
}

/// Waits until call `n` runs.
fn wait_for_call(world: &RunWorld, n: usize) {
    let line = format!("{n}\n");
    wait_until("the call runs", || effects(world).ends_with(&line));
}

#[test]
fn a_run_continues_when_its_server_is_restarted_killed_and_paused() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    let world = world_on(&server, 4);
    let child = start(&mut world.command(&["x", "--approve", "yes"]));
    wait_for_call(&world, 1);
    server.restart("INT");
    world.write("go-1", "");
    wait_for_call(&world, 2);
    server.restart("KILL");
    world.write("go-2", "");
    wait_for_call(&world, 3);
    // The end of this call and the start of the next one wait for the server.
    server.pause();
    world.write("go-3", "");
    wait_until("the call ends", || world.work().join("end-3").exists());
    assert!(!effects(&world).contains('4'), "its start is not durable");
    server.resume();
    wait_for_call(&world, 4);
    world.write("go-4", "");
    let output = finish(child);
    assert_eq!(exit_code(output.status), 0, "{}", to_text(&output.stderr));
    assert_eq!(effects(&world), "1\n2\n3\n4\n", "no call ran twice");
    assert_eq!(world.toolgate_status(&["receipts", "verify"]), 0);
    assert_eq!(world.toolgate_status(&["doctor", "--deep"]), 0);
}

#[test]
fn a_server_that_stays_paused_ends_the_run_with_its_own_message() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let mut world = world_on(&server, 2);
    world.set_variable("TOOLGATE_DB_PATIENCE", "1s");
    let child = start(&mut world.command(&["x", "--approve", "yes"]));
    wait_for_call(&world, 1);
    server.pause();
    world.write("go-1", "");
    let output = finish(child);
    let stderr = to_text(&output.stderr);
    assert_eq!(exit_code(output.status), 10, "{stderr}");
    assert!(
        stderr.contains("hint:") && !stderr.contains("panicked"),
        "{stderr}"
    );
    server.resume();
    world.write("go-2", "");
    let output = world.run_plain(&["--resume", "--approve", "yes"]);
    assert_eq!(exit_code(output.status), 0, "{}", to_text(&output.stderr));
    let ran = effects(&world);
    assert_eq!(ran.matches('1').count(), 1, "it did not run twice: {ran}");
}
