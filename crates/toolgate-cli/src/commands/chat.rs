//! `toolgate chat`: a conversation with an agent in the terminal.

use clap::Args;
use toolgate::{Gate, value::SessionId};

use crate::{
    CliError, CommandContext, Exit, SessionArgs,
    commands::receipts::sign_receipts,
    env::ids,
    show::{
        project_notice::ProjectNotice,
        tui::{self, ChatOpening, ChatSetup},
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

F1 shows the keys, Ctrl-P all commands. Ctrl-C stops the agent; pressed again, it quits.")]
pub struct ChatArgs {
    /// The first message
    #[arg(value_name = "MESSAGE")]
    pub message: Vec<String>,
    /// Resume a session: the last one here, or the one whose id begins or ends like this
    #[arg(long, value_name = "SESSION", num_args = 0..=1, default_missing_value = "")]
    pub resume: Option<String>,
    /// The model and the limits.
    #[command(flatten)]
    pub talk: SessionArgs,
}

/// Runs the conversation until the user quits.
pub(crate) fn run(args: &ChatArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    if !cx.out.is_interactive() {
        return Err(CliError::usage("chat needs a terminal")
            .with_hint("`toolgate run \"…\"` does the same work without one, also with --json"));
    }
    crate::env::runtime::block_on_all(run_chat(args, cx))
}

async fn run_chat(args: &ChatArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let gate = args.talk.gate.open_gate(cx).await?;
    let session = find_resumed_session(args, &gate, cx).await?;
    let taken_up = session.is_some();
    let builder = args.talk.session_builder(&gate, session)?;
    let builder = args
        .talk
        .confirm_take_over(cx, &gate, session, builder)
        .await?;
    let session = builder.wait_for_answers().build().await?;
    let model = args
        .talk
        .model
        .clone()
        .or_else(|| gate.run_section().model.clone())
        .unwrap_or_default();
    let setup = ChatSetup {
        session: session.id(),
        me: cx.current_approver(None),
        project: cx.paths.workspace.display().to_string(),
        model,
        tools: gate.view()?,
    };
    let message = args.message.join(" ");
    let opening = match (message.trim().is_empty(), taken_up) {
        (false, _) => ChatOpening::Say(message),
        (true, true) => ChatOpening::Resume,
        (true, false) => ChatOpening::Wait,
    };
    let id = session.id();
    if let Some(notice) = ProjectNotice::of_gate(&gate, &cx.paths.workspace) {
        // Also above the screen of the chat, where it stays.
        notice.print(cx)?;
        notice.show_toast(&gate);
    }
    let evidence = gate.evidence();
    let exit = tui::run_chat(gate, session, setup, opening, cx.paths.workspace.clone()).await?;
    let exit = sign_receipts(cx, &evidence, exit).await?;
    cx.out.print_note(format!(
        "The conversation is saved. `toolgate chat --resume {}` continues it.",
        ids::short_id(id)
    ))?;
    Ok(exit)
}

/// Finds the session to resume, if one is named.
async fn find_resumed_session(
    args: &ChatArgs,
    gate: &Gate,
    cx: &CommandContext,
) -> Result<Option<SessionId>, CliError> {
    match args.resume.as_deref() {
        None => Ok(None),
        Some("") => {
            let last = ids::last_session(gate.store(), &cx.paths.workspace).await?;
            let none = || {
                CliError::usage("there is no session in this directory yet")
                    .with_hint("`toolgate chat` starts one")
            };
            last.map(Some).ok_or_else(none)
        }
        Some(named) => ids::find_session_in(gate.store(), named, &cx.paths.workspace)
            .await
            .map(Some),
    }
}
