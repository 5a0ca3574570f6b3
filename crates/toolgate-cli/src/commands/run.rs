//! `toolgate run`: lets an agent work on a task, and shows what it does.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;
use toolgate::{
    Gate, RunEnd, Session,
    gate::{RunSection, RunStrategy},
    session::{Documents, Gated, RunInput, SessionBuilder},
};

use crate::{
    CliError, CommandContext, Exit, SessionArgs,
    assembly::{
        input,
        stored_options::{LAST_SESSION, ResumedSession},
    },
    commands::{receipts::SignedReceipts, tools::finish_call},
    env::{
        runtime,
        signals::{StopSignal, StopSignals},
        style,
    },
    show::{
        live::{
            FollowEnd, JsonSink, PlainSink, RunEnding, RunTask, TerminalFollower, catch_up,
            render_receipts, render_summary, report_json,
        },
        project_notice::ProjectNotice,
        render::{OutputRows, text_width},
        screen::{ConversationItem, SessionScreen},
        stored_requests::load_requests,
        whole_texts::WholeTexts,
    },
};

/// The time for which the program waits for the hooks of a run, after its answer is printed.
const HOOK_TIME: Duration = Duration::from_secs(10);

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
  toolgate run --resume 1a2b3c4d \"and now the docs\"")]
pub struct RunArgs {
    /// The task; `-` reads it from the standard input
    #[arg(value_name = "TASK")]
    pub task: Vec<String>,
    /// Send a file along with the task
    #[arg(long, short, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// Send files along (direct), or let the model search them (recursive)
    #[arg(long, value_name = "HOW", value_parser = parse_strategy)]
    pub strategy: Option<RunStrategy>,
    /// Resume a session: the last one here, or the one that is named
    #[arg(long, value_name = "SESSION", num_args = 0..=1, default_missing_value = LAST_SESSION)]
    pub resume: Option<String>,
    /// With --json: also print pieces of replies as they arrive
    #[arg(long, requires = "json")]
    pub pieces: bool,
    /// Print more of the output of commands
    #[arg(long, short)]
    pub verbose: bool,
    /// The model and the limits.
    #[command(flatten)]
    pub talk: SessionArgs,
}

/// Runs an agent.
pub(crate) fn run(args: &RunArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    runtime::block_on_all(run_task(args, cx))
}

/// The input of a run: a message and, with the recursive strategy, documents.
struct GatheredInput {
    text: Option<String>,
    documents: Option<Documents>,
}

impl GatheredInput {
    /// Gathers the input; files are relative to `dir`.
    fn gather(
        args: &RunArgs,
        strategy: Option<RunStrategy>,
        cx: &CommandContext,
        dir: &Path,
    ) -> Result<Self, CliError> {
        let strategy = match strategy {
            Some(strategy) => strategy,
            None => RunSection::of(&cx.load_config()?)?.strategy,
        };
        Ok(match strategy {
            RunStrategy::Direct => Self {
                text: input::gather_input(&args.task, &args.file, dir)?,
                documents: None,
            },
            RunStrategy::Recursive => Self {
                text: Some(args.task.join(" ")).filter(|task| !task.trim().is_empty()),
                documents: input::gather_documents(&args.file, dir, args.resume.is_some())?,
            },
        })
    }
}

fn parse_strategy(word: &str) -> Result<RunStrategy, String> {
    match word {
        "direct" => Ok(RunStrategy::Direct),
        "recursive" => Ok(RunStrategy::Recursive),
        _ => Err("expected direct or recursive".to_owned()),
    }
}

async fn run_task(args: &RunArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let given = SessionArgs {
        strategy: args.strategy,
        ..args.talk.clone()
    };
    let resumed = match args.resume.as_deref() {
        Some(named) => Some(ResumedSession::find(cx, named, &given).await?),
        None => None,
    };
    // Files are named from here, whatever the directory of the session is.
    let here = &cx.paths.workspace;
    let cx = resumed.as_ref().map_or(cx, |resumed| &resumed.cx);
    let talk = resumed.as_ref().map_or(&given, |resumed| &resumed.args);
    let said = GatheredInput::gather(args, talk.strategy, cx, here)?;
    if said.text.is_none() && resumed.is_none() {
        return Err(CliError::usage("there is no task")
            .with_hint("name one: toolgate run \"why does the test fail?\"; --resume continues the last session"));
    }
    if let Some(resumed) = &resumed {
        resumed.print_note()?;
        if resumed.is_single_call && said.text.is_none() {
            return finish_call(cx, &talk.gate, resumed.id).await;
        }
    }
    let gate = talk.gate.open_gate(cx).await?;
    args.talk.gate.check_tools(cx, &gate)?;
    let named = resumed.as_ref().map(|resumed| resumed.id);
    let mut builder = talk.session_builder(&gate, named)?;
    let has_strategy = said.documents.is_some();
    if let Some(documents) = said.documents {
        builder = builder.recursive(documents)?;
    }
    let builder = talk.confirm_take_over(cx, &gate, named, builder).await?;
    let session = open_displayed_session(cx, &gate, talk, builder).await?;
    if let Some(notice) = ProjectNotice::of_gate(&gate, &cx.paths.workspace) {
        notice.print(cx)?;
    }
    let watch = DisplayedRun {
        input: said.text.map(RunInput::from),
        pieces: args.pieces,
        verbose: args.verbose,
        has_strategy,
        next: None,
    };
    watch.run_to_end(cx, &gate, &session).await
}

/// Opens a session for the display that `cx` selects, and stores its directory and its options.
pub(crate) async fn open_displayed_session(
    cx: &CommandContext,
    gate: &Gate,
    talk: &SessionArgs,
    mut builder: SessionBuilder<Gated>,
) -> Result<Session, CliError> {
    // Only at a terminal can the user answer while the run waits; elsewhere it must end as
    // suspended.
    if DisplayMode::for_context(cx) == DisplayMode::Terminal {
        builder = builder.wait_for_answers();
    }
    let session = builder.build().await?;
    talk.store_for(cx, gate, session.id()).await?;
    Ok(session)
}

/// A run that is displayed until it ends.
#[derive(Debug, Default)]
pub(crate) struct DisplayedRun {
    /// The input; without it, the last run is resumed.
    pub(crate) input: Option<RunInput>,
    /// True if the JSON output includes pieces of replies.
    pub(crate) pieces: bool,
    /// True if more of the output of commands is printed.
    pub(crate) verbose: bool,
    /// True if a strategy may answer in place of the model.
    pub(crate) has_strategy: bool,
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
    ) -> Result<Exit, CliError> {
        let how = DisplayMode::for_context(cx);
        let rows = if self.verbose {
            OutputRows::Page
        } else {
            OutputRows::Few
        };
        let began = Instant::now();
        // Unreadable receipts are reported when the run has ended.
        let receipts_before = gate
            .ledger()
            .head()
            .await
            .map_or(u64::MAX, |head| head.counter);
        let (screen, feed) = catch_up(session, gate.store()).await?;
        // Until here a request to stop ends the program at once: nothing is under way.
        let mut stops = StopSignals::listen();
        let mut job = RunTask::start(session, feed, self.input);
        let (ended, screen) = match how {
            DisplayMode::Json => {
                let mut sink = JsonSink::new(cx.out, self.pieces);
                (job.follow(&mut stops, None, &mut sink).await, screen)
            }
            DisplayMode::Plain => {
                let mut sink = PlainSink::new(cx.out, screen, gate, rows);
                let whole = Some(WholeTexts::new(gate.store(), gate));
                let ended = job.follow(&mut stops, whole, &mut sink).await;
                (ended, sink.into_screen())
            }
            DisplayMode::Terminal => {
                let follower = TerminalFollower::new(cx, gate, session, screen, rows)?;
                follower.follow(&mut job, &mut stops).await
            }
        };
        let (ended, exit) = settle_display(&job, ended).await?;
        // From here on a request to stop ends the program at once again.
        drop(stops);
        let mut screen = screen;
        load_requests(&mut screen, &gate.approvals()).await;
        let ending = RunEnding::from_follow_end(session.id(), &ended, &screen, began.elapsed())
            .with_exit(exit)
            .with_suggestions(self.next);
        require_database(cx)?;
        let signed = sign_run(gate, &ended, &ending, receipts_before).await?;
        let status = ending.exit_status();
        let ending = ending.with_exit(signed.as_ref().and_then(|signed| signed.failure(status)));
        if let Some(error) = signed.as_ref().and_then(SignedReceipts::error)
            && (how == DisplayMode::Json || cx.out.is_quiet())
        {
            cx.out.print_error(error);
        }
        if self.has_strategy && how != DisplayMode::Json {
            print_strategy_answer(cx, gate, &ended, &screen)?;
        }
        let printed = match how {
            DisplayMode::Json => print_json_report(cx, gate, &ended, ending.exit_status()),
            DisplayMode::Plain | DisplayMode::Terminal => {
                print_summary(cx, gate, &ended, &ending, &screen, how, signed.as_ref())
            }
        };
        // After the answer is printed: a hook never delays it.
        session.wait_for_hooks(HOOK_TIME).await;
        match printed {
            // The run has ended, and its exit code stands.
            Err(error) if error.is_broken_pipe() || exit == Some(Exit::HungUp) => {
                Ok(ending.exit_status())
            }
            printed => printed,
        }
    }
}

/// Returns how the run ended, and the exit code if the end alone does not give it. If the display
/// failed, what runs is stopped and saved first.
async fn settle_display(
    job: &RunTask,
    ended: Result<FollowEnd, CliError>,
) -> Result<(FollowEnd, Option<Exit>), CliError> {
    let stopped = job.stopped.map(StopSignal::exit_status);
    let error = match ended {
        Ok(ended) => return Ok((ended, stopped)),
        Err(error) => error,
    };
    let left = job.leave().await;
    // The terminal was closed: an error about writing to it would say less.
    if !error.is_broken_pipe() && stopped != Some(Exit::HungUp) {
        return Err(error);
    }
    let report = left?;
    // `toolgate run … | head -1` ends half-way, and that is no success.
    let half_done = (report.end != RunEnd::Completed).then_some(Exit::OutputClosed);
    Ok((FollowEnd::Report(Box::new(report)), stopped.or(half_done)))
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
        match (cx.out.is_json(), cx.out.can_redraw() && !cx.out.is_quiet()) {
            (true, _) => Self::Json,
            (false, true) => Self::Terminal,
            (false, false) => Self::Plain,
        }
    }
}

/// Fails if the file of the database was deleted while the run used it: what was written to it is
/// lost with the process.
fn require_database(cx: &CommandContext) -> Result<(), CliError> {
    let path = cx.paths.db.strip_prefix("sqlite:").map(Path::new);
    match path {
        Some(path) if !path.exists() => Err(CliError::new(format!(
            "the database {} was deleted during the run, and nothing of the run is stored",
            cx.paths.display_db()
        ))
        .with_hint("restore the file from a backup; the next run starts with a new database")
        .with_exit(Exit::StoreFailed)),
        _ => Ok(()),
    }
}

/// Signs the receipts of a run that has ended. Nothing is signed for a user who quits at once, or if
/// the run failed and the store with it.
async fn sign_run(
    gate: &Gate,
    ended: &FollowEnd,
    ending: &RunEnding,
    receipts_before: u64,
) -> Result<Option<SignedReceipts>, CliError> {
    if matches!(ended, FollowEnd::Quit) {
        return Ok(None);
    }
    let ledger = gate.ledger();
    let since = Some((&ledger, receipts_before));
    match SignedReceipts::sign_since(&gate.evidence(), since).await {
        Ok(signed) => Ok(Some(signed)),
        // The error of the run says more.
        Err(_) if ending.is_failed() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Prints the report as the last line of JSON.
fn print_json_report(
    cx: &CommandContext,
    gate: &Gate,
    ended: &FollowEnd,
    exit: Exit,
) -> Result<Exit, CliError> {
    if let FollowEnd::Report(report) = ended {
        cx.out.print_json(&report_json(gate, report, exit))?;
    }
    Ok(exit)
}

/// Prints the answer of a strategy, which is no reply of the model and so not on the screen yet.
fn print_strategy_answer(
    cx: &CommandContext,
    gate: &Gate,
    ended: &FollowEnd,
    screen: &SessionScreen,
) -> Result<(), CliError> {
    let FollowEnd::Report(report) = ended else {
        return Ok(());
    };
    let answer = gate.redact_text(report.text.trim_end());
    let is_answer = |item: &ConversationItem| matches!(item, ConversationItem::Model(text) if text.trim_end() == answer);
    let mut items = screen.agents().iter().flat_map(|agent| &agent.items);
    // Quiet output is the text of the report, and comes later.
    if cx.out.is_quiet() || report.end != RunEnd::Completed || items.any(is_answer) {
        return Ok(());
    }
    cx.out.print_line(style::escape_controls(&answer))
}

/// Prints the summary for people.
fn print_summary(
    cx: &CommandContext,
    gate: &Gate,
    ended: &FollowEnd,
    ending: &RunEnding,
    screen: &SessionScreen,
    how: DisplayMode,
    signed: Option<&SignedReceipts>,
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
        cx.out.print_note(ending.resume_hint(cx))?;
        return Ok(ending.exit_status());
    }
    let receipts = signed.and_then(|signed| render_receipts(signed, screen));
    let width = match how {
        DisplayMode::Terminal => Some(text_width()),
        DisplayMode::Plain | DisplayMode::Json => None,
    };
    for line in render_summary(cx, screen, ending, receipts, width) {
        match how {
            DisplayMode::Terminal => cx.out.print_line(line)?,
            DisplayMode::Plain | DisplayMode::Json => cx.out.print_note(line)?,
        }
    }
    Ok(ending.exit_status())
}
