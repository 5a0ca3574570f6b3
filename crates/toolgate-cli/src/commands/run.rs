//! `toolgate run`: lets an agent work on a task, and shows what it does.

use std::{path::PathBuf, time::Instant};

use clap::Args;
use toolgate::{
    Gate, Session,
    session::{Gated, RunInput, SessionBuilder},
    value::SessionId,
};

use crate::{
    CliError, CommandContext, Exit, SessionArgs,
    assembly::input,
    commands::receipts::sign_receipts,
    env::{ids, runtime, style},
    show::{
        live::{
            FollowEnd, JsonSink, PlainSink, RunEnding, RunTask, StopSignals, TerminalFollower,
            catch_up, render_summary, report_json,
        },
        screen::SessionScreen,
    },
};

/// Lets an agent work on a task in this directory, until it is done or needs an approval.
///
/// On a terminal you see each call and approve or deny those that need it. Elsewhere the run is
/// suspended until there is a decision, and --resume continues it. Ctrl-C stops it and saves the
/// session; twice quits at once.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  toolgate run \"why does the test fail?\"
  git diff | toolgate run \"review this\" --model anthropic:claude-sonnet-4-5
  toolgate run \"fix it\" -f notes.md --allow 'run_shell(cargo test)' --budget 0.50
  toolgate run --resume                 resume the last session of this directory
  toolgate run --resume 1a2b3c4d \"and now the docs\"
  toolgate run \"list the files\" --json | jq -r .type")]
pub struct RunArgs {
    /// The task; `-` reads it from the standard input
    #[arg(value_name = "TASK")]
    pub task: Vec<String>,
    /// Send a file along with the task
    #[arg(long, short, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// Resume a session: the last one here, or the one that is named
    #[arg(long, value_name = "SESSION", num_args = 0..=1, default_missing_value = LAST_SESSION)]
    pub resume: Option<String>,
    /// With --json: also print pieces of replies as they arrive
    #[arg(long, requires = "json")]
    pub pieces: bool,
    /// The model and the limits.
    #[command(flatten)]
    pub talk: SessionArgs,
}

/// The placeholder for the session of this directory that was used last.
const LAST_SESSION: &str = "last";

/// Runs an agent.
pub(crate) fn run(args: &RunArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let said = input::gather_input(&args.task, &args.file, &cx.paths.workspace)?;
    if said.is_none() && args.resume.is_none() {
        return Err(CliError::usage("there is no task")
            .with_hint("name one: toolgate run \"why does the test fail?\"; --resume continues the last session"));
    }
    runtime::block_on_all(run_task(args, cx, said))
}

async fn run_task(
    args: &RunArgs,
    cx: &CommandContext,
    said: Option<String>,
) -> Result<Exit, CliError> {
    // Before the session opens: from here on Ctrl-C interrupts the run instead of killing the
    // process.
    let mut stops = StopSignals::listen()?;
    let gate = args.talk.gate.open_gate(cx).await?;
    let named = find_resumed_session(args.resume.as_deref(), cx, &gate).await?;
    let builder = args.talk.session_builder(&gate, named)?;
    let session = open_displayed_session(cx, &gate, builder).await?;
    let watch = DisplayedRun {
        input: said.map(RunInput::from),
        pieces: args.pieces,
        next: None,
    };
    watch.run_to_end(cx, &gate, &session, &mut stops).await
}

/// Opens a session for the display that `cx` selects, and stores its workspace.
pub(crate) async fn open_displayed_session(
    cx: &CommandContext,
    gate: &Gate,
    mut builder: SessionBuilder<Gated>,
) -> Result<Session, CliError> {
    // Only at a terminal can the user answer while the run waits; elsewhere it must end as
    // suspended.
    if DisplayMode::for_context(cx) == DisplayMode::Terminal {
        builder = builder.wait_for_answers();
    }
    let session = builder.build().await?;
    // Before the first message, so that `--resume` finds the session even after a crash.
    ids::store_workspace(gate.store(), &cx.paths.workspace, session.id()).await?;
    Ok(session)
}

/// A run that is displayed until it ends.
#[derive(Debug, Default)]
pub(crate) struct DisplayedRun {
    /// The input; without it, the last run is resumed.
    pub(crate) input: Option<RunInput>,
    /// True if the JSON output includes pieces of replies.
    pub(crate) pieces: bool,
    /// Commands to suggest at the end and their purpose, in place of the usual ones.
    pub(crate) next: Option<Vec<(String, String)>>,
}

impl DisplayedRun {
    /// Starts the run and displays it until it ends.
    pub(crate) async fn run_to_end(
        self,
        cx: &CommandContext,
        gate: &Gate,
        session: &Session,
        stops: &mut StopSignals,
    ) -> Result<Exit, CliError> {
        let how = DisplayMode::for_context(cx);
        let began = Instant::now();
        let (screen, feed) = catch_up(session, gate.store()).await?;
        let mut job = RunTask::start(session, feed, self.input);
        let watched = match how {
            DisplayMode::Json => {
                let mut sink = JsonSink::new(cx.out, self.pieces);
                job.follow(stops, &mut sink)
                    .await
                    .map(|ended| (ended, screen))
            }
            DisplayMode::Plain => {
                let mut sink = PlainSink::new(cx.out, screen);
                let ended = job.follow(stops, &mut sink).await;
                ended.map(|ended| (ended, sink.into_screen()))
            }
            DisplayMode::Terminal => {
                TerminalFollower::new(cx, gate, session, screen)?
                    .follow(&mut job, stops)
                    .await
            }
        };
        if watched.is_err() {
            // The display failed, for example because the terminal closed: stop the run and save
            // it.
            job.stop().await;
        }
        let (ended, screen) = watched?;
        let ending = RunEnding::from_follow_end(session.id(), &ended, &screen, began.elapsed())
            .with_suggestions(self.next);
        match how {
            DisplayMode::Json => {
                // The summary for people signs the checkpoint; JSON has no summary, so it is signed
                // here.
                sign_receipts(cx, &gate.evidence()).await?;
                print_json_report(cx, gate, &ended, &ending)
            }
            DisplayMode::Plain | DisplayMode::Terminal => {
                print_summary(cx, gate, &ended, &ending, &screen, how).await
            }
        }
    }
}

/// The display of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DisplayMode {
    Json,
    Plain,
    Terminal,
}

impl DisplayMode {
    fn for_context(cx: &CommandContext) -> Self {
        match (
            cx.out.is_json(),
            cx.out.is_interactive() && !cx.out.is_quiet(),
        ) {
            (true, _) => Self::Json,
            (false, true) => Self::Terminal,
            (false, false) => Self::Plain,
        }
    }
}

/// Finds the session to resume, if one is named.
async fn find_resumed_session(
    resume: Option<&str>,
    cx: &CommandContext,
    gate: &Gate,
) -> Result<Option<SessionId>, CliError> {
    match resume {
        None => Ok(None),
        Some(LAST_SESSION) => {
            let last = ids::last_session(gate.store(), &cx.paths.workspace).await?;
            let none = || {
                CliError::usage("there is no session of this directory yet")
                    .with_hint("start one with `toolgate run \"…\"`; `toolgate sessions list --all` lists all sessions")
            };
            last.map(Some).ok_or_else(none)
        }
        Some(named) => {
            let found = ids::find_session_in(gate.store(), named, &cx.paths.workspace).await;
            found.map(Some).map_err(|error| {
                // `--resume "fix it"` takes the task for the id of a session.
                if named.contains(' ') {
                    error.with_hint(
                        "to send a message to the last session: toolgate run --resume last \"…\"",
                    )
                } else {
                    error
                }
            })
        }
    }
}

/// Prints the report as the last line of JSON.
fn print_json_report(
    cx: &CommandContext,
    gate: &Gate,
    ended: &FollowEnd,
    ending: &RunEnding,
) -> Result<Exit, CliError> {
    let exit = ending.exit_status();
    if let FollowEnd::Report(report) = ended {
        cx.out.print_json(&report_json(gate, report, exit))?;
    }
    Ok(exit)
}

/// Prints the summary for people.
async fn print_summary(
    cx: &CommandContext,
    gate: &Gate,
    ended: &FollowEnd,
    ending: &RunEnding,
    screen: &SessionScreen,
    how: DisplayMode,
) -> Result<Exit, CliError> {
    if cx.out.is_quiet() {
        if let FollowEnd::Report(report) = ended {
            let text = gate.redact_text(report.text.trim_end());
            cx.out.print_line(style::escape_controls(&text))?;
        }
        return Ok(ending.exit_status());
    }
    if let FollowEnd::Quit = ended {
        // After a second Ctrl-C the user wants the prompt back: print only how to resume.
        cx.out.print_note(ending.resume_hint())?;
        return Ok(ending.exit_status());
    }
    for line in render_summary(cx, gate, screen, ending).await? {
        match how {
            DisplayMode::Terminal => cx.out.print_line(line)?,
            DisplayMode::Plain | DisplayMode::Json => cx.out.print_note(line)?,
        }
    }
    Ok(ending.exit_status())
}
