//! `toolgate demo`: an agent fixes a small project while you watch.

use std::{
    fs::File,
    io::{IsTerminal, Read, Write},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use anstyle::Style;
use clap::Args;
use rustix::{process::Signal, termios};
use tempfile::TempDir;
use toolgate::{
    gate::{ApproveMode, CONFIG_NAME, ModelOptions, TrustedConfigs},
    session::RunInput,
    value::SessionId,
};

use super::run::{DisplayedRun, open_displayed_session};
use crate::{
    CliError, CommandContext, Exit, SessionArgs,
    assembly::session_args::session_with_model,
    demo,
    env::{runtime, style},
    show::{
        render::{ERASE_BELOW, result::is_reconciled},
        screen::SessionScreen,
    },
};

/// Shows what Toolgate does, without a key and without a network.
///
/// A scripted model fixes a small project in a temporary directory. Its tools are real: it reads
/// files, runs the tests in a sandbox, is blocked from a file with secrets, and needs an approval
/// before it changes anything. In the end all receipts are verified. It has a database of its own,
/// demo.db beside the usual one.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  toolgate demo                  approve or deny the edit yourself
  toolgate demo --yes            approve it, for unattended use
  toolgate demo --yes --crash    kill the process in the middle of the edit, and resume
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
pub(crate) fn run(args: &DemoArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    if let Some(session) = &args.doomed {
        let session: SessionId = session
            .parse()
            .map_err(|_| CliError::usage("--doomed names no session"))?;
        return runtime::block_on_all(play_part(args, cx, DemoPart::Doomed(session)));
    }
    let dir = create_project_dir()?;
    let secret = demo::new_secret();
    let root = dir.path().canonicalize()?;
    demo::write_project(&root, &secret)?;
    let mut inside = cx.clone();
    demo::trust_project(&root, &cx.paths.home)?;
    inside.paths.named = Some(root.join(CONFIG_NAME));
    inside.paths.workspace = root;
    // The sessions of the user are not touched, wherever they are stored.
    let database = cx.paths.home.path().join(DATABASE_NAME);
    inside.paths.db = format!("sqlite:{}", database.display());
    inside.paths.db_option = Some(inside.paths.db.clone());
    let part = if args.crash {
        DemoPart::Rest(run_until_killed(args, &inside)?)
    } else {
        DemoPart::Whole
    };
    let exit = runtime::block_on_all(play_part(args, &inside, part))?;
    if !cx.out.is_json() {
        if let DemoPart::Rest(session) = part {
            runtime::block_on_all(print_recovered(&inside, session))?;
        }
        search_database_for_secret(&inside, &secret)?;
    }
    clean_up_project(args, &inside, dir, exit)?;
    Ok(exit)
}

/// The name of the demo's own database, in the directory of the usual one.
const DATABASE_NAME: &str = "demo.db";

/// The part of the demo that this process runs.
#[derive(Debug, Clone, Copy)]
enum DemoPart {
    /// All of it.
    Whole,
    /// From the beginning to the middle of the edit.
    Doomed(SessionId),
    /// The rest, after the crash.
    Rest(SessionId),
}

fn create_project_dir() -> Result<TempDir, CliError> {
    let made = tempfile::Builder::new().prefix("toolgate-demo-").tempdir();
    made.map_err(|error| {
        CliError::from(error)
            .while_doing("no temporary directory can be created")
            .with_hint("set TMPDIR to a directory that you can write to")
    })
}

async fn play_part(args: &DemoArgs, cx: &CommandContext, part: DemoPart) -> Result<Exit, CliError> {
    let mut talk = SessionArgs::default();
    talk.gate.approve = args.yes.then_some(ApproveMode::Yes);
    let builder = talk.gate.gate_builder(cx)?;
    let builder = match part {
        // Added last to the innermost band: nothing but the tool runs before it.
        DemoPart::Doomed(_) => builder.layer(demo::KillerLayer),
        DemoPart::Whole | DemoPart::Rest(_) => builder,
    };
    let gate = builder.open().await?;
    let (session, input) = match part {
        DemoPart::Whole => (None, Some(RunInput::from(demo::TASK))),
        DemoPart::Doomed(session) => (Some(session), Some(RunInput::from(demo::TASK))),
        DemoPart::Rest(session) => (Some(session), None),
    };
    if !matches!(part, DemoPart::Doomed(_)) && !cx.out.is_json() {
        cx.out.print_note(format!(
            "{} {}",
            style::dim("project"),
            cx.paths.workspace.display()
        ))?;
    }
    let mut builder = session_with_model(&gate, None, ModelOptions::default())?;
    if let Some(session) = session {
        builder = builder.session(session);
    }
    let session = open_displayed_session(cx, &gate, &talk, builder).await?;
    if let (DemoPart::Rest(id), true) = (part, cx.out.is_json()) {
        // The events of the killed process are part of the stream.
        for event in gate.store().events(id, 0, usize::MAX).await? {
            cx.out.print_json(&*event)?;
        }
    }
    DisplayedRun {
        input,
        pieces: false,
        verbose: false,
        has_strategy: false,
        next: Some(next_commands(cx, part)),
    }
    .run_to_end(cx, &gate, &session)
    .await
}

/// Returns the commands to suggest after the demo.
fn next_commands(cx: &CommandContext, part: DemoPart) -> Vec<(String, String)> {
    let command = |command: &str, what: &str| (command.to_owned(), what.to_owned());
    let crash = command(
        "toolgate demo --yes --crash",
        "the same, with a killed process",
    );
    let others = [
        command(
            &cx.command_line("receipts verify"),
            "recompute the chain of receipts",
        ),
        command(
            "toolgate run --model … \"…\"",
            "your own task, in your own project",
        ),
    ];
    // After the crash there is nothing more to see in the demo.
    let crash = matches!(part, DemoPart::Whole).then_some(crash);
    crash.into_iter().chain(others).collect()
}

/// Runs the first part in a child process, which is killed in the middle of the edit. Returns its
/// session.
fn run_until_killed(args: &DemoArgs, cx: &CommandContext) -> Result<SessionId, CliError> {
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
    // The same store and keys, so that this process can resume the session.
    child
        .arg("--db")
        .arg(&cx.paths.db)
        .env("TOOLGATE_HOME", cx.paths.home.path());
    if cx.out.is_json() {
        // The next process prints the whole log.
        child
            .arg("--quiet")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
    }
    // A killed process cannot restore the terminal: it may leave raw mode on and the cursor hidden.
    let terminal = termios::tcgetattr(std::io::stdin()).ok();
    let ended = child
        .status()
        .map_err(|error| CliError::from(error).while_doing("no process can be started"))?;
    if let Some(terminal) = terminal {
        let _ = termios::tcsetattr(std::io::stdin(), termios::OptionalActions::Now, &terminal);
        if std::io::stdout().is_terminal() {
            // It may also leave the live part of its display, which begins at the cursor.
            let _ = write!(std::io::stdout(), "{ERASE_BELOW}\x1b[?25h")
                .and_then(|()| std::io::stdout().flush());
        }
    }
    if ended.signal() != Some(Signal::KILL.as_raw()) {
        return Err(CliError::new("the process ended before it was killed")
            .with_hint("approve the edit, or add --yes"));
    }
    let crash = style::bad("crash").with(
        " The process was killed (SIGKILL) after the edit and before it was recorded. Another process resumes:",
        Style::new(),
    );
    cx.out.print_note("")?;
    cx.out.print_wrapped_note(&crash, "      ")?;
    cx.out.print_note("")?;
    Ok(session)
}

/// Prints what became of the call that the killed process had started.
async fn print_recovered(cx: &CommandContext, session: SessionId) -> Result<(), CliError> {
    let mut screen = SessionScreen::new();
    for event in cx
        .open_store()
        .await?
        .events(session, 0, usize::MAX)
        .await?
    {
        screen.apply(&event);
    }
    let calls = || screen.calls().iter();
    let recovered = calls().filter(|call| is_reconciled(call)).count();
    let repeated: u32 = calls().map(|call| call.attempts.saturating_sub(1)).sum();
    cx.out.print_note(format!(
        "{} the edit was already applied, not run again; {recovered} recovered, {repeated} repeated",
        style::good("✓")
    ))
}

/// Searches the whole database for the secret of the project.
fn search_database_for_secret(cx: &CommandContext, secret: &str) -> Result<(), CliError> {
    let Some(path) = cx.paths.db.strip_prefix("sqlite:") else {
        return Ok(());
    };
    let mut bytes = 0;
    let mut found = false;
    for part in [path.to_owned(), format!("{path}-wal")] {
        // The write-ahead log does not exist after a checkpoint.
        let Ok(file) = File::open(&part) else {
            continue;
        };
        let (size, is_there) = search_reader(file, secret.as_bytes())?;
        bytes += size;
        found |= is_there;
    }
    if found {
        return Err(CliError::new(
            "the key of shop.ini is in the database: redaction has failed",
        ));
    }
    let looked = format!(
        "the key of shop.ini is nowhere in the database ({} KB searched)",
        bytes / 1000
    );
    cx.out.print_note(format!("{} {looked}", style::good("✓")))
}

/// Returns the length of a file, and true if it contains `wanted`. Reads in pieces: databases may
/// be larger than memory.
fn search_reader(mut file: impl Read, wanted: &[u8]) -> std::io::Result<(usize, bool)> {
    let mut window = Vec::new();
    let mut size = 0;
    let mut found = false;
    loop {
        // Keep the end of the last piece: a match may begin there.
        let kept = window.len().min(wanted.len().saturating_sub(1));
        window.drain(..window.len() - kept);
        let read = (&mut file).take(1 << 20).read_to_end(&mut window)?;
        size += read;
        found = found || window.windows(wanted.len()).any(|part| part == wanted);
        if read == 0 {
            return Ok((size, found));
        }
    }
}

/// Deletes the project, unless `--keep` is set or the run is not complete.
fn clean_up_project(
    args: &DemoArgs,
    cx: &CommandContext,
    dir: TempDir,
    exit: Exit,
) -> Result<(), CliError> {
    if !args.keep && exit == Exit::Done {
        let home = &cx.paths.home;
        let config = cx.paths.workspace.join(CONFIG_NAME);
        TrustedConfigs::load(home)?.revoke_trust(home, &config)?;
        return Ok(());
    }
    let kept: PathBuf = dir.keep();
    if exit == Exit::Suspended {
        cx.out
            .print_note("hint: --yes approves the edit; on a terminal you decide yourself")?;
    }
    cx.out
        .print_note(format!("the project is kept in {}", kept.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_at_any_position() {
        let mut bytes = vec![b'x'; (1 << 20) + 3];
        assert_eq!(
            search_reader(&bytes[..], b"secret").expect("reads"),
            (bytes.len(), false)
        );
        // Across the border of two pieces.
        bytes.splice((1 << 20) - 3..(1 << 20) + 3, *b"secret");
        assert!(search_reader(&bytes[..], b"secret").expect("reads").1);
        assert!(search_reader(&b"secret"[..], b"secret").expect("reads").1);
    }
}
