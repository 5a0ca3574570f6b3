//! `toolgate demo`: an agent mends a small project before your eyes.

use std::{
    fs::File,
    io::{IsTerminal, Read, Write},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use clap::Args;
use rustix::{process::Signal, termios};
use tempfile::TempDir;
use toolgate::{Input, SessionId};

use super::run::{Watch, open};
use crate::{
    CliError, Cx, Exit, Gate, GateArgs, demo, paths::CONFIG_NAME, runtime, settings::ApproveMode,
    style, watch::Stops,
};

/// Shows what Toolgate does, without a key and without a network.
///
/// A scripted model mends a small project in a temporary directory. Its tools are real: it reads files, runs the tests in
/// a sandbox, is refused a file with secrets, and asks before it changes anything. In the end all receipts are verified.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  toolgate demo                  decide yourself about the edit
  toolgate demo --yes            approve it, for unattended use
  toolgate demo --yes --crash    kill the process in the middle of the edit, and go on
  toolgate demo --yes --json     the events, one JSON object per line")]
pub struct DemoArgs {
    /// Approve what needs an approval
    #[arg(long, short)]
    pub yes: bool,
    /// Kill the process (SIGKILL) in the middle of the edit, and resume
    #[arg(long)]
    pub crash: bool,
    /// Keep the project afterwards
    #[arg(long)]
    pub keep: bool,
    /// Work in this session, and die in the middle of the edit. For the process that is killed.
    #[arg(long, hide = true, value_name = "SESSION")]
    pub doomed: Option<String>,
}

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs, cx: &Cx) -> Result<Exit, CliError> {
    if let Some(session) = &args.doomed {
        let session: SessionId = session
            .parse()
            .map_err(|_| CliError::usage("--doomed names no session"))?;
        return runtime::block_on_all(play(args, cx, Part::Doomed(session)));
    }
    let (dir, secret) = (project()?, demo::new_secret());
    let root = dir.path().canonicalize()?;
    demo::write_project(&root, &secret)?;
    let mut inside = cx.clone();
    (inside.paths.named, inside.paths.workspace) = (Some(root.join(CONFIG_NAME)), root);
    let part = match args.crash {
        true => Part::Rest(crash(args, &inside)?),
        false => Part::Whole,
    };
    let exit = runtime::block_on_all(play(args, &inside, part))?;
    if !cx.out.is_json() {
        look_for_secret(&inside, &secret)?;
    }
    leave(args, &inside, dir, exit)?;
    Ok(exit)
}

/// Which part of the demo this process plays.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// All of it.
    Whole,
    /// From the beginning to the middle of the edit.
    Doomed(SessionId),
    /// What comes after that.
    Rest(SessionId),
}

fn project() -> Result<TempDir, CliError> {
    let made = tempfile::Builder::new().prefix("toolgate-demo-").tempdir();
    made.map_err(|error| {
        CliError::from(error)
            .while_doing("no temporary directory can be made")
            .hint("set TMPDIR to a directory that you can write to")
    })
}

async fn play(args: &DemoArgs, cx: &Cx, part: Part) -> Result<Exit, CliError> {
    let mut stops = Stops::listen()?;
    let approve = args.yes.then_some(ApproveMode::Yes);
    let mut gate = Gate::open(
        cx,
        &GateArgs {
            approve,
            ..GateArgs::default()
        },
    )
    .await?;
    let (session, input) = match part {
        Part::Whole => (None, Some(Input::from(demo::TASK))),
        Part::Doomed(session) => (Some(session), Some(Input::from(demo::TASK))),
        Part::Rest(session) => (Some(session), None),
    };
    if let Part::Doomed(_) = part {
        let layers = gate
            .stack
            .any_layers()
            .into_iter()
            .chain([demo::killer()])
            .collect();
        gate.stack = gate
            .stack
            .with_layers(layers, Some(gate.registry.clone()))
            .build()?;
    } else if !cx.out.is_json() {
        cx.out.note(format!(
            "{} {}",
            style::dim("project"),
            cx.paths.workspace.display()
        ))?;
    }
    let builder = gate.session(gate.model(None)?, session)?;
    let session = open(cx, &gate, builder).await?;
    if let (Part::Rest(id), true) = (part, cx.out.is_json()) {
        // What the lost process has done is part of the stream.
        for event in gate.store.events(id, 0, usize::MAX).await? {
            cx.out.json(&*event)?;
        }
    }
    Watch {
        input,
        pieces: false,
        next: Some(next_commands()),
    }
    .over(cx, &gate, &session, &mut stops)
    .await
}

/// What to try after the demo.
fn next_commands() -> Vec<(String, String)> {
    let command = |command: &str, what: &str| (command.to_owned(), what.to_owned());
    vec![
        command(
            "toolgate demo --yes --crash",
            "the same, with a process that is killed",
        ),
        command(
            "toolgate receipts verify",
            "recompute the chain of receipts",
        ),
        command(
            "toolgate run --model … \"…\"",
            "your own task, in your own project",
        ),
    ]
}

/// Plays the first part in a process of its own, which is killed in the middle of the edit. Returns the session that it
/// has left.
fn crash(args: &DemoArgs, cx: &Cx) -> Result<SessionId, CliError> {
    let session = SessionId::new(uuid::Uuid::now_v7());
    let mut child = Command::new(std::env::current_exe()?);
    child
        .arg("demo")
        .arg("--doomed")
        .arg(session.to_string())
        .args(args.yes.then_some("--yes"));
    child
        .arg("-C")
        .arg(&cx.paths.workspace)
        .arg("--config")
        .arg(cx.paths.workspace.join(CONFIG_NAME));
    child
        .arg("--db")
        .arg(&cx.paths.db)
        .env("TOOLGATE_HOME", &cx.paths.home);
    if cx.out.is_json() {
        // The whole log is printed by whoever comes next.
        child
            .arg("--quiet")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
    }
    // A process that is killed leaves the terminal as it was in that moment.
    let terminal = termios::tcgetattr(std::io::stdin()).ok();
    let ended = child
        .status()
        .map_err(|error| CliError::from(error).while_doing("no process can be started"))?;
    if let Some(terminal) = terminal {
        let _ = termios::tcsetattr(std::io::stdin(), termios::OptionalActions::Now, &terminal);
        if std::io::stdout().is_terminal() {
            let _ =
                write!(std::io::stdout(), "\x1b[?25h\r").and_then(|()| std::io::stdout().flush());
        }
    }
    if ended.signal() != Some(Signal::KILL.as_raw()) {
        return Err(CliError::new("the process ended before it was killed")
            .hint("approve the edit, or add --yes"));
    }
    cx.out.note(format!(
        "\n{} The process was killed (SIGKILL) when the file was changed and nothing said so yet. Another one goes on:\n",
        style::bad("crash")
    ))?;
    Ok(session)
}

/// Looks for the secret of the project in the whole database.
fn look_for_secret(cx: &Cx, secret: &str) -> Result<(), CliError> {
    let Some(path) = cx.paths.db.strip_prefix("sqlite:") else {
        return Ok(());
    };
    let (mut bytes, mut found) = (0, false);
    for part in [path.to_owned(), format!("{path}-wal")] {
        // What was written back into the database is not in the file beside it any more.
        let Ok(file) = File::open(&part) else {
            continue;
        };
        let (size, is_there) = search(file, secret.as_bytes())?;
        (bytes, found) = (bytes + size, found | is_there);
    }
    if found {
        return Err(CliError::new(
            "the key of shop.ini is in the database: redaction has failed",
        ));
    }
    let looked = format!(
        "the key of shop.ini is nowhere in the database ({} KB looked at)",
        bytes / 1000
    );
    cx.out.note(format!("{} {looked}", style::good("✓")))
}

/// How long something is, and whether `wanted` is in it. Databases may be larger than memory.
fn search(mut file: impl Read, wanted: &[u8]) -> std::io::Result<(usize, bool)> {
    let (mut window, mut size, mut found) = (Vec::new(), 0, false);
    loop {
        // The end of the last piece stays: what is looked for may begin there.
        let kept = window.len().min(wanted.len().saturating_sub(1));
        window.drain(..window.len() - kept);
        let read = (&mut file).take(1 << 20).read_to_end(&mut window)?;
        (size, found) = (
            size + read,
            found || window.windows(wanted.len()).any(|part| part == wanted),
        );
        if read == 0 {
            return Ok((size, found));
        }
    }
}

/// Removes the project, unless it is wanted or there is something left to do in it.
fn leave(args: &DemoArgs, cx: &Cx, dir: TempDir, exit: Exit) -> Result<(), CliError> {
    if !args.keep && exit == Exit::Done {
        return Ok(());
    }
    let kept: PathBuf = dir.keep();
    if exit == Exit::Suspended {
        cx.out
            .note("hint: --yes approves the edit; on a terminal you are asked")?;
    }
    cx.out.note(format!(
        "the project is kept in {0}; go on there with: toolgate -C {0} --config {0}/{CONFIG_NAME} run --resume",
        kept.display()
    ))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_wherever_it_lies() {
        let mut bytes = vec![b'x'; (1 << 20) + 3];
        assert_eq!(
            search(&bytes[..], b"secret").expect("reads"),
            (bytes.len(), false)
        );
        // Across the border of two pieces.
        bytes.splice((1 << 20) - 3..(1 << 20) + 3, *b"secret");
        assert!(search(&bytes[..], b"secret").expect("reads").1);
        assert!(search(&b"secret"[..], b"secret").expect("reads").1);
    }
}
