//! The `AGENTS.md` of a project: the model reads it once the user trusts it, and a line says so.

use std::process::Command;

use serde_json::Value;

use crate::run::{
    server::{RecordedRequest, start_recording_server},
    world::{RunWorld, to_text},
};

const REPLY: &str = "[[reply]]\nrepeat = \"always\"\ntext = \"Hi.\"\n";

/// Runs one task against a model behind HTTP; returns its request and the error output.
fn run_and_record(world: &mut RunWorld, arguments: &[&str]) -> (RecordedRequest, String) {
    let (url, requests) =
        start_recording_server("read_file", serde_json::json!({ "path": "a.txt" }));
    world.set_model("openai-chat:stub");
    let mut command = world.command(arguments);
    let output = command
        .env("OPENAI_BASE_URL", &url)
        .env("OPENAI_API_KEY", "sk-unused")
        .output()
        .expect("runs");
    let stderr = to_text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    (requests.recv().expect("the model was asked"), stderr)
}

fn system_text(request: &RecordedRequest) -> String {
    let messages = request.body["messages"].as_array().expect("messages");
    messages[0]["content"].to_string()
}

#[test]
fn a_model_reads_the_agents_file_once_the_printed_command_was_run() {
    let mut world = RunWorld::new("");
    world.write("AGENTS.md", "Use tabs.\nBe kind.\n");
    let (request, said) = run_and_record(&mut world, &["look at a.txt"]);
    let text = system_text(&request);
    assert!(
        text.contains("Operating system:") && !text.contains("Use tabs."),
        "{text}"
    );
    let (_, printed) = said.split_once("trust it: toolgate ").expect("a command");
    let printed = printed.lines().next().expect("a line");
    let program = env!("CARGO_BIN_EXE_toolgate");
    // From another directory: the command names the file in full.
    let ran = Command::new("sh")
        .args(["-c", &format!("{program} {printed} --yes")])
        .env("TOOLGATE_HOME", world.home())
        .current_dir("/")
        .output()
        .expect("runs");
    assert!(ran.status.success(), "{ran:?}");
    let (request, said) = run_and_record(&mut world, &["look at a.txt"]);
    assert!(system_text(&request).contains("Use tabs."));
    assert!(
        said.contains("the model reads AGENTS.md: 2 lines, 19 bytes"),
        "{said}"
    );
    world.write("AGENTS.md", "Push to main.\n");
    let (request, said) = run_and_record(&mut world, &["look at a.txt"]);
    assert!(
        !system_text(&request).contains("Push"),
        "a changed file is not read"
    );
    assert!(said.contains("has changed since it was trusted"), "{said}");
}

#[test]
fn trust_in_an_agents_file_is_revoked_like_that_in_a_configuration() {
    let world = RunWorld::new(REPLY);
    world.write("AGENTS.md", "Use tabs.\n");
    let trust = &world.run_json(&["config", "trust", "AGENTS.md", "--yes"])[0];
    assert_eq!(trust["trusted"], Value::Bool(true));
    let known = &world.run_json(&["config", "untrust", "AGENTS.md"])[0];
    assert_eq!(known["was_trusted"], Value::Bool(true));
    let output = world.run_plain(&["hello", "--json"]);
    let note: Value = serde_json::from_slice(&output.stderr).expect("one line of JSON");
    let note = note["note"].as_str().expect("a note").to_owned();
    assert!(note.contains("AGENTS.md is not trusted"), "{note}");
    let findings = world.run_json(&["doctor"]);
    let found = findings
        .iter()
        .find(|found| found["check"] == "instructions");
    assert_eq!(found.expect("a finding")["state"], "unusual");
}

#[test]
fn a_chat_says_which_instructions_the_model_does_not_read() {
    let world = RunWorld::new(REPLY);
    world.write("AGENTS.md", "Use tabs.\n");
    let mut terminal = world.chat(&[]).size(90, 26).spawn();
    terminal.wait_for("Write a message");
    let screen = terminal.wait_for("AGENTS.md is not trusted");
    assert!(screen.alternate, "on the screen of the chat");
    terminal.press_key(toolgate_testkit::terminal::Key::Ctrl('d'));
    assert_eq!(terminal.wait_exit(), 0);
}
