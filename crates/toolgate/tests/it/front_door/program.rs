//! The program of the README, with a scripted model: its call waits for approval, another process
//! continues it exactly once, and a secret that the tool returns is stored nowhere.

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use toolgate::{prelude::*, store::ApprovalFilter};

/// A secret that the tool returns. It looks like one, so that the redactor finds it.
const SECRET: &str = "sk_live_4f1e8a7cb2d94d0e9a51c77f00aa9931";

/// The part that a child process plays.
const PART: &str = "TOOLGATE_FRONT_DOOR_PART";

/// Sends money back.
#[tool(side_effect = "network")]
async fn refund(amount: u32) -> String {
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open("outbox");
    writeln!(file.expect("the directory can be written"), "{amount}").expect("written");
    format!("sent {amount} with {SECRET}")
}

/// The program of the README. Only the name of the model differs.
async fn run_program() -> toolgate::Result<()> {
    let gate = Gate::open("sqlite:agent.db")
        .await?
        .tool(refund)?
        .approver(Prompt::terminal("ann"));
    let session = gate.session("script:refund.toml").await?;
    println!("{}", session.run("Send Ann her 20 back.").await?.text);
    Ok(())
}

/// Another program, which continues the session of the first one.
async fn resume_program() -> toolgate::Result<()> {
    let gate = Gate::open("sqlite:agent.db").await?.tool(refund)?;
    let mut sessions = gate.store().sessions(Default::default()).await?;
    let id = sessions.pop().expect("the first program began one").session;
    let session = gate.open_session(id, "script:refund.toml").await?;
    match session.resume().await?.completed() {
        Ok(report) => println!("{}", report.text),
        Err(pending) => println!("{}", toolgate::Error::from(pending)),
    }
    Ok(())
}

/// Runs in the child processes of the other tests. By itself it does nothing.
#[tokio::test]
async fn child() {
    let ended = match std::env::var(PART).as_deref() {
        Ok("run") => run_program().await,
        Ok("resume") => resume_program().await,
        _ => return,
    };
    ended.expect("the program works");
    // Without running destructors: as a program that is killed.
    std::process::exit(0);
}

/// Plays a part in a process of its own, in `directory`, with `typed` as its input. Returns what it
/// printed.
fn run_process(directory: &Path, part: &str, typed: &str) -> String {
    let test = "front_door::program::child";
    let mut child = Command::new(std::env::current_exe().expect("a running program has a path"))
        .args(["--exact", test, "--nocapture"])
        .current_dir(directory)
        .env(PART, part)
        .env("TOOLGATE_HOME", directory.join("home"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(typed.as_bytes()).expect("written");
    drop(input);
    let Output { status, stdout, .. } = child.wait_with_output().expect("ends");
    let printed = String::from_utf8(stdout).expect("text");
    assert!(status.success(), "{printed}");
    printed
}

fn directory_with_script() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let script = r#"
        [[reply]]
        calls = [{ tool = "refund", arguments = { amount = 20 } }]
        [[reply]]
        text = "Done."
    "#;
    std::fs::write(dir.path().join("refund.toml"), script).expect("written");
    dir
}

fn outbox(directory: &Path) -> Option<String> {
    std::fs::read_to_string(directory.join("outbox")).ok()
}

#[test]
fn a_person_at_the_terminal_approves_and_the_tool_runs_once() {
    let dir = directory_with_script();
    let printed = run_process(dir.path(), "run", "yes\n");
    assert!(printed.contains("tool: refund") && printed.contains("Done."));
    assert!(!printed.contains(SECRET), "{printed}");
    assert_eq!(outbox(dir.path()).as_deref(), Some("20\n"));
    assert_no_secret(dir.path());
}

#[tokio::test]
async fn the_call_waits_for_approval_and_runs_once_in_another_process() {
    let dir = directory_with_script();
    // The input ends without an answer.
    run_process(dir.path(), "run", "");
    assert_eq!(outbox(dir.path()), None, "nothing ran");
    let waiting = run_process(dir.path(), "resume", "");
    assert!(
        waiting.contains("the run waits for the approval of refund"),
        "{waiting}"
    );
    approve_everything(dir.path()).await;
    assert!(run_process(dir.path(), "resume", "").contains("Done."));
    let again = run_process(dir.path(), "resume", "");
    assert!(again.contains("Done."), "nothing is left to do: {again}");
    assert_eq!(outbox(dir.path()).as_deref(), Some("20\n"), "once");
    assert_no_secret(dir.path());
}

/// Decides from a third place: another gate over the same database and keys.
async fn approve_everything(directory: &Path) {
    let database = format!("sqlite:{}", directory.join("agent.db").display());
    let state = toolgate::gate::StateDir::new(directory.join("home")).expect("absolute");
    let gate = Gate::builder().address(database).state_dir(state);
    let gate = gate.open().await.expect("opens");
    let approvals = gate.approvals();
    let pending = approvals.list_approvals(ApprovalFilter::default()).await;
    let pending = pending.expect("listed");
    assert_eq!(pending.len(), 1);
    for row in pending {
        let decided = approvals.decide(&*row.request, Decision::approve("ann"));
        decided.await.expect("accepted");
    }
}

/// Reads every file of the store as raw bytes: events, receipts, messages, records.
fn assert_no_secret(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_file() {
            let bytes = std::fs::read(&path).expect("readable");
            let found = bytes
                .windows(SECRET.len())
                .any(|window| window == SECRET.as_bytes());
            assert!(!found, "{} contains the secret", path.display());
        }
    }
}

#[test]
fn the_keys_are_in_the_state_directory_and_not_beside_the_database() {
    let dir = directory_with_script();
    run_process(dir.path(), "run", "");
    assert!(dir.path().join("home/keys").is_file());
    assert!(!dir.path().join("keys").exists());
}
