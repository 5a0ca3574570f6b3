//! `toolgate chat`: talk with an agent in the terminal.

use clap::Args;
use toolgate::SessionId;

use crate::{
    CliError, Cx, Exit, Gate, TalkArgs, ids,
    tui::{self, Opening, Setup},
};

/// Talks with an agent in the terminal, decides on its calls, and looks at what it does.
///
/// Everything is kept: `--resume` takes a conversation up again, also one that was interrupted or lost.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate chat                                  begin a conversation
  toolgate chat \"why does the test fail?\"        begin with this message
  toolgate chat --resume                         go on with the last one here

F1 shows the keys, Ctrl-P all commands. Ctrl-C stops the agent, once more quits.")]
pub struct ChatArgs {
    /// The first message
    #[arg(value_name = "MESSAGE")]
    pub message: Vec<String>,
    /// Go on with a session: the last one here, or the one whose id begins or ends like this
    #[arg(long, value_name = "SESSION", num_args = 0..=1, default_missing_value = "")]
    pub resume: Option<String>,
    /// Which model, and how far it may go.
    #[command(flatten)]
    pub talk: TalkArgs,
}

/// Talks until the person leaves.
pub(crate) fn run(args: &ChatArgs, cx: &Cx) -> Result<Exit, CliError> {
    if !cx.out.is_interactive() {
        return Err(CliError::usage("chat needs a terminal to talk in")
            .hint("`toolgate run \"…\"` does the same work without one, also with --json"));
    }
    crate::runtime::block_on_all(talk(args, cx))
}

async fn talk(args: &ChatArgs, cx: &Cx) -> Result<Exit, CliError> {
    let gate = Gate::open(cx, &args.talk.gate).await?;
    let session = resumed(args, &gate, cx).await?;
    let taken_up = session.is_some();
    let session = args
        .talk
        .session(&gate, session)?
        .wait_for_answers()
        .build()
        .await?;
    let model = args
        .talk
        .model
        .clone()
        .or_else(|| gate.run_section().model.clone())
        .unwrap_or_default();
    let setup = Setup {
        session: session.id(),
        me: gate.me.clone(),
        project: cx.paths.workspace.display().to_string(),
        model,
    };
    let message = args.message.join(" ");
    let opening = match (message.trim().is_empty(), taken_up) {
        (false, _) => Opening::Say(message),
        (true, true) => Opening::TakeUp,
        (true, false) => Opening::Wait,
    };
    let id = session.id();
    ids::remember_workspace(&gate.store, &cx.paths.workspace, id).await?;
    let exit = tui::run(gate, session, setup, opening, cx.paths.workspace.clone()).await?;
    cx.out.note(format!(
        "The conversation is kept. `toolgate chat --resume {}` goes on.",
        ids::short(id)
    ))?;
    Ok(exit)
}

/// The session to go on with, if one is wanted.
async fn resumed(args: &ChatArgs, gate: &Gate, cx: &Cx) -> Result<Option<SessionId>, CliError> {
    match args.resume.as_deref() {
        None => Ok(None),
        Some("") => {
            let last = ids::last_session(&gate.store, &cx.paths.workspace).await?;
            let none = || {
                CliError::usage("there is no session in this directory yet")
                    .hint("`toolgate chat` begins one")
            };
            last.map(Some).ok_or_else(none)
        }
        Some(named) => ids::find_session_of(&gate.store, named, &cx.paths.workspace)
            .await
            .map(Some),
    }
}
