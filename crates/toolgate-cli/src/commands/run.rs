//! `toolgate run`: lets an agent work on a task, and shows what it does.

use std::{path::PathBuf, time::Instant};

use clap::Args;
use toolgate::{Input, Session, SessionBuilder, SessionId};

use crate::{
    CliError, Cx, Exit, Gate, TalkArgs, context, ids, runtime,
    screen::Screen,
    style,
    watch::{
        Ended, Ending, Job, JsonSink, PlainSink, Stops, TerminalWatch, catch_up, report_json,
        summary,
    },
};

/// Lets an agent work on a task in this directory, until it is done or somebody has to decide.
///
/// On a terminal you see each call and are asked about those that need it. Elsewhere the run stops when it needs an
/// answer, and goes on with --resume when there is one. Ctrl-C stops it and keeps what was done; twice quits at once.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "\
Examples:
  toolgate run \"why does the test fail?\"
  git diff | toolgate run \"review this\" --model anthropic:claude-sonnet-4-5
  toolgate run \"fix it\" -f notes.md --allow 'run_shell(cargo test)' --budget 0.50
  toolgate run --resume                 go on with the last session of this directory
  toolgate run --resume 1a2b3c4d \"and now the docs\"
  toolgate run \"list the files\" --json | jq -r .type")]
pub struct RunArgs {
    /// What to do; `-` reads it from the standard input
    #[arg(value_name = "TASK")]
    pub task: Vec<String>,
    /// Pass on a file along with the task
    #[arg(long, short, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// Go on with a session: the last one here, or the one that is named
    #[arg(long, value_name = "SESSION", num_args = 0..=1, default_missing_value = LAST)]
    pub resume: Option<String>,
    /// With --json: print pieces of replies as they come, too
    #[arg(long, requires = "json")]
    pub pieces: bool,
    /// Which model, and how far it may go.
    #[command(flatten)]
    pub talk: TalkArgs,
}

/// Stands for the session of this directory that was used last.
const LAST: &str = "last";

/// Runs an agent.
pub(crate) fn run(args: &RunArgs, cx: &Cx) -> Result<Exit, CliError> {
    let said = context::gather(&args.task, &args.file, &cx.paths.workspace)?;
    if said.is_none() && args.resume.is_none() {
        return Err(CliError::usage("there is no task")
            .hint("say what to do: toolgate run \"why does the test fail?\"; --resume goes on with the last session"));
    }
    runtime::block_on_all(work(args, cx, said))
}

async fn work(args: &RunArgs, cx: &Cx, said: Option<String>) -> Result<Exit, CliError> {
    let mut stops = Stops::listen()?;
    let gate = Gate::open(cx, &args.talk.gate).await?;
    let named = find(args.resume.as_deref(), cx, &gate).await?;
    let builder = args.talk.session(&gate, named)?;
    let session = open(cx, &gate, builder).await?;
    let watch = Watch {
        input: said.map(Input::from),
        pieces: args.pieces,
        next: None,
    };
    watch.over(cx, &gate, &session, &mut stops).await
}

/// Opens a session that is watched the way `cx` says.
pub(crate) async fn open(
    cx: &Cx,
    gate: &Gate,
    mut builder: SessionBuilder,
) -> Result<Session, CliError> {
    if Watching::of(cx) == Watching::Terminal {
        builder = builder.wait_for_answers();
    }
    let session = builder.build().await?;
    ids::remember_workspace(&gate.store, &cx.paths.workspace, session.id()).await?;
    Ok(session)
}

/// A run that is watched to its end.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// What is said; without it, the last run goes on.
    pub(crate) input: Option<Input>,
    /// Whether machines are told pieces of replies, too.
    pub(crate) pieces: bool,
    /// Commands to try next and what for, in place of the usual ones.
    pub(crate) next: Option<Vec<(String, String)>>,
}

impl Watch {
    /// Starts the run and shows it until it ends.
    pub(crate) async fn over(
        self,
        cx: &Cx,
        gate: &Gate,
        session: &Session,
        stops: &mut Stops,
    ) -> Result<Exit, CliError> {
        let (how, began) = (Watching::of(cx), Instant::now());
        let (screen, feed) = catch_up(session, &gate.store).await?;
        let mut job = Job::start(session, feed, self.input);
        let watched = match how {
            Watching::Json => {
                let mut sink = JsonSink::new(cx.out, self.pieces);
                job.follow(stops, &mut sink)
                    .await
                    .map(|ended| (ended, screen))
            }
            Watching::Plain => {
                let mut sink = PlainSink::new(cx.out, screen);
                let ended = job.follow(stops, &mut sink).await;
                ended.map(|ended| (ended, sink.into_screen()))
            }
            Watching::Terminal => {
                TerminalWatch::new(cx, gate, session, screen)?
                    .watch(&mut job, stops)
                    .await
            }
        };
        if watched.is_err() {
            // Whoever was to see it is gone: what is under way is stopped, and kept.
            job.stop().await;
        }
        let (ended, screen) = watched?;
        let ending =
            Ending::of(session.id(), &ended, &screen, began.elapsed()).suggesting(self.next);
        match how {
            Watching::Json => {
                gate.vouch().await?;
                json_end(cx, &ended, &ending)
            }
            Watching::Plain | Watching::Terminal => {
                end(cx, gate, (&ended, &ending), &screen, how).await
            }
        }
    }
}

/// How a run is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watching {
    Json,
    Plain,
    Terminal,
}

impl Watching {
    fn of(cx: &Cx) -> Self {
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

/// The session that is gone on with, if one is.
async fn find(resume: Option<&str>, cx: &Cx, gate: &Gate) -> Result<Option<SessionId>, CliError> {
    match resume {
        None => Ok(None),
        Some(LAST) => {
            let last = ids::last_session(&gate.store, &cx.paths.workspace).await?;
            let none = || {
                CliError::usage("there is no session of this directory yet")
                    .hint("begin one with `toolgate run \"…\"`; `toolgate sessions list --all` shows those of others")
            };
            last.map(Some).ok_or_else(none)
        }
        Some(named) => {
            let found = ids::find_session_of(&gate.store, named, &cx.paths.workspace).await;
            found.map(Some).map_err(|error| match named.contains(' ') {
                true => error
                    .hint("to say something in the last session: toolgate run --resume last \"…\""),
                false => error,
            })
        }
    }
}

/// The last line for machines.
fn json_end(cx: &Cx, ended: &Ended, ending: &Ending) -> Result<Exit, CliError> {
    let exit = ending.exit();
    if let Ended::Report(report) = ended {
        cx.out.json(&report_json(report, exit))?;
    }
    Ok(exit)
}

/// What people are told at the end.
async fn end(
    cx: &Cx,
    gate: &Gate,
    (ended, ending): (&Ended, &Ending),
    screen: &Screen,
    how: Watching,
) -> Result<Exit, CliError> {
    if cx.out.is_quiet() {
        if let Ended::Report(report) = ended {
            cx.out.line(style::plain(report.text.trim_end()))?;
        }
        return Ok(ending.exit());
    }
    if let Ended::Quit = ended {
        // Whoever is in a hurry is only told how to go on.
        cx.out.note(ending.resume())?;
        return Ok(ending.exit());
    }
    for line in summary(cx, gate, screen, ending).await? {
        match how {
            Watching::Terminal => cx.out.line(line)?,
            Watching::Plain | Watching::Json => cx.out.note(line)?,
        }
    }
    Ok(ending.exit())
}
