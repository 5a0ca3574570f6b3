//! `toolgate chat`: a conversation with an agent in the terminal.

use std::sync::Arc;

use clap::Args;

use crate::{
    CliError, CommandContext, Exit, SessionArgs,
    assembly::stored_options::{LAST_SESSION, ResumedSession},
    commands::receipts::sign_receipts,
    env::ids,
    show::{
        project_notice::ProjectNotice,
        tui::{self, ChatOpening, SessionOpener},
    },
};

/// Opens a conversation with an agent in the terminal, with its calls and approval requests.
///
/// Everything is stored: `--resume` continues a conversation, also after an interruption or a
/// crash.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate chat                                  start a conversation
  toolgate chat \"why does the test fail?\"        start with this message
  toolgate chat --resume                         resume the last one here

F1 or ? shows the keys, / the commands, @ the files. Ctrl-C stops the agent; pressed again, it quits.")]
pub struct ChatArgs {
    /// The first message
    #[arg(value_name = "MESSAGE")]
    pub message: Vec<String>,
    /// Resume a session: the last one here, or the one that is named
    #[arg(long, value_name = "SESSION", num_args = 0..=1, default_missing_value = LAST_SESSION)]
    pub resume: Option<String>,
    /// The model and the limits.
    #[command(flatten)]
    pub talk: SessionArgs,
}

/// Runs the conversation until the user quits.
pub(crate) fn run(args: &ChatArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    if !cx.out.can_redraw() {
        return Err(CliError::usage("chat needs a terminal")
            .with_hint("`toolgate run \"…\"` does the same work without one, also with --json"));
    }
    crate::env::runtime::block_on_all(run_chat(args, cx))
}

async fn run_chat(args: &ChatArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let resumed = match args.resume.as_deref() {
        Some(named) => Some(ResumedSession::find(cx, named, &args.talk).await?),
        None => None,
    };
    let cx = resumed.as_ref().map_or(cx, |resumed| &resumed.cx);
    let talk = resumed.as_ref().map_or(&args.talk, |resumed| &resumed.args);
    let gate = talk.gate.open_gate(cx).await?;
    args.talk.gate.check_tools(cx, &gate)?;
    let named = resumed.as_ref().map(|resumed| resumed.id);
    let builder = talk.session_builder(&gate, named)?;
    let builder = talk.confirm_take_over(cx, &gate, named, builder).await?;
    let session = builder.wait_for_answers().build().await?;
    talk.store_for(cx, &gate, session.id()).await?;
    let message = args.message.join(" ");
    let opening = match (message.trim().is_empty(), resumed.is_some()) {
        (false, _) => ChatOpening::Say(message),
        (true, true) => ChatOpening::Resume,
        (true, false) => ChatOpening::Wait,
    };
    if let Some(notice) = ProjectNotice::of_gate(&gate, &cx.paths.workspace) {
        // Also above the screen of the chat, where it stays.
        notice.print(cx)?;
        notice.show_toast(&gate);
    }
    let evidence = gate.evidence();
    let opener = SessionOpener {
        gate: Arc::new(gate),
        args: talk.clone(),
        cx: cx.clone(),
    };
    let (exit, session) = tui::run_chat(opener, session, opening).await?;
    let exit = sign_receipts(cx, &evidence, exit).await?;
    cx.out.print_note(format!(
        "The conversation is saved. `{}` continues it.",
        cx.command_line(&format!("chat --resume {}", ids::short_id(session)))
    ))?;
    Ok(exit)
}
