//! A turn of three calls whose second one needs approval: it is suspended in a file, approved by
//! another process with edited arguments, and run exactly once by a third.
//!
//! `cargo run -p approve-and-resume` runs all steps. Each step is a separate process, so you can also
//! run them one by one: `cargo run -p approve-and-resume -- help`. No key, no network; the "model" is
//! a list of calls.

mod office;
mod show;
mod tools;

use std::{
    error::Error,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use office::Office;
use serde_json::Value;
use toolgate::{Arguments, Decision};

const HELP: &str = "usage: approve-and-resume [--dir DIRECTORY] COMMAND

  create                             run the three calls; the one that needs approval is suspended
  pending                            list pending approval requests
  show APPROVAL                      show one approval request in full
  decide APPROVAL approve            run the call unchanged
  decide APPROVAL edit ARGUMENTS     run it with these arguments (JSON) instead
  decide APPROVAL deny [REASON]      do not run it
  resume                             resume after the decisions, and print all results in the order of the calls
  verify                             check the chain of receipts
  export                             print the receipts, one sealed record per line
  check                              check the database for damage
  backup FILE                        copy the database, also while it is in use

Without a command, all steps run in a temporary directory.";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut dir = PathBuf::from(".");
    if words.first().is_some_and(|word| word == "--dir") && words.len() > 1 {
        dir = words.drain(..2).next_back().unwrap_or_default().into();
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run_command(&dir, &words).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", show::format_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run_command(dir: &Path, words: &[&str]) -> Result<(), Box<dyn Error>> {
    if words.is_empty() {
        return run_all_steps();
    }
    if let ["help" | "--help" | "-h", ..] = words {
        println!("{HELP}");
        return Ok(());
    }
    let office = Office::open(dir)?;
    match words {
        ["create"] => office.create().await,
        ["pending"] => office.pending().await,
        ["show", approval] => office.show(approval.parse()?).await,
        ["decide", approval, decision @ ..] => {
            office
                .decide(approval.parse()?, parse_decision(decision)?)
                .await
        }
        ["resume"] => office.resume().await,
        ["verify"] => office.verify().await,
        ["export"] => office.export().await,
        ["check"] => office.check(),
        ["backup", path] => office.backup(Path::new(path)),
        _ => Err("unknown command\nhint: `approve-and-resume help` lists all commands".into()),
    }
}

/// Parses a decision; the current user is the approver.
fn parse_decision(words: &[&str]) -> Result<Decision, Box<dyn Error>> {
    let me = std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned());
    match words {
        ["approve"] => Ok(Decision::approve(me.as_str())),
        ["deny", reason @ ..] => {
            let reason = reason.join(" ");
            Ok(Decision::deny(
                me.as_str(),
                Some(&*reason).filter(|reason| !reason.is_empty()),
            ))
        }
        ["edit", arguments] => {
            let arguments: Value = serde_json::from_str(arguments)?;
            Ok(Decision::approve_with_edits(
                me.as_str(),
                Arguments::try_from(arguments)?,
            ))
        }
        _ => Err("a decision is `approve`, `edit ARGUMENTS` or `deny [REASON]`".into()),
    }
}

/// Runs every step in a separate process.
fn run_all_steps() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let step = |words: &[&str]| -> Result<String, Box<dyn Error>> {
        println!("$ approve-and-resume {}", words.join(" "));
        let mut command = Command::new(std::env::current_exe()?);
        let done = command.arg("--dir").arg(dir.path()).args(words).output()?;
        let said = String::from_utf8(done.stdout)?;
        println!("{said}{}", String::from_utf8_lossy(&done.stderr));
        if done.status.success() {
            Ok(said)
        } else {
            Err(format!("{} failed", words[0]).into())
        }
    };
    step(&["create"])?;
    let pending = step(&["pending"])?;
    let approval = pending
        .split_whitespace()
        .find(|word| word.starts_with("approval_"))
        .ok_or("no approval request is pending")?;
    step(&["show", approval])?;
    step(&[
        "decide",
        approval,
        "edit",
        r#"{"customer":"Ada","amount":90}"#,
    ])?;
    step(&["resume"])?;
    step(&["resume"])?;
    step(&["verify"])?;
    step(&["check"])?;
    println!(
        "sent, exactly once: {}",
        std::fs::read_to_string(dir.path().join("outbox.txt"))?.trim()
    );
    Ok(())
}
