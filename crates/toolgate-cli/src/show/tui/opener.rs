//! Opens the sessions of a chat: the first one, another one, or the same one with another model.

use std::{path::Path, sync::Arc};

use toolgate::{
    Gate, Session,
    session::{Gated, SessionBuilder},
    store::{SessionFilter, SessionOrder},
    value::SessionId,
};

use super::{ChatSetup, SessionChange, SessionChoice};
use crate::{CliError, CommandContext, SessionArgs, env::times};

/// The most sessions to choose from.
const MAX_SESSIONS: usize = 50;

/// Opens the sessions of a chat.
pub(crate) struct SessionOpener {
    pub(crate) gate: Arc<Gate>,
    /// The options of the command; the model is that of the current session.
    pub(crate) args: SessionArgs,
    pub(crate) cx: CommandContext,
}

impl SessionOpener {
    /// Returns the directory that the sessions work in.
    pub(super) fn workspace(&self) -> &Path {
        &self.cx.paths.workspace
    }

    /// Stores the options of a session that was begun, or continues with another model, so that
    /// `--resume` finds them. A session that is only opened again keeps its own.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot write, or if the keys cannot be loaded.
    pub(super) async fn store_options(
        &self,
        change: &SessionChange,
        session: SessionId,
    ) -> Result<(), CliError> {
        match change {
            SessionChange::Begin | SessionChange::UseModel(_) => {
                self.args.store_for(&self.cx, &self.gate, session).await
            }
            SessionChange::Resume(_) => Ok(()),
        }
    }

    /// Returns the facts about an open session for the screen.
    ///
    /// # Errors
    ///
    /// Fails if the tools cannot be shown.
    pub(crate) fn describe(&self, session: &Session) -> Result<ChatSetup, CliError> {
        let model = self.args.model.as_deref().or(self.gate.default_model());
        Ok(ChatSetup {
            session: session.id(),
            me: self.cx.current_approver(None),
            project: self.workspace().display().to_string(),
            model: model.unwrap_or_default().to_owned(),
            previous: None,
            tools: self.gate.view()?,
        })
    }

    /// Returns the builder of the session after a change, and the options with which it is built.
    ///
    /// # Errors
    ///
    /// Fails if the model cannot be opened.
    pub(super) fn prepare(
        &self,
        change: &SessionChange,
        current: SessionId,
    ) -> Result<(SessionBuilder<Gated>, SessionArgs), CliError> {
        let mut args = self.args.clone();
        let session = match change {
            SessionChange::Begin => None,
            SessionChange::Resume(session) => Some(*session),
            SessionChange::UseModel(name) => {
                args.model = Some(name.clone());
                Some(current)
            }
        };
        let builder = args.session_builder(&self.gate, session)?;
        Ok((builder.wait_for_answers(), args))
    }
}

/// Lists the sessions of a directory that were used, except `current`, the last used first.
///
/// # Errors
///
/// Fails if the store cannot answer.
pub(super) async fn list_sessions(
    gate: &Gate,
    workspace: &Path,
    current: SessionId,
) -> Result<Vec<SessionChoice>, CliError> {
    let filter = SessionFilter {
        directory: Some(workspace.display().to_string().into()),
        order: SessionOrder::LastUse,
        limit: MAX_SESSIONS,
        ..SessionFilter::default()
    };
    let rows = gate.store().sessions(filter).await?;
    // Sessions of agents are opened with those they work for, an imported session is history, and
    // one without a message has nothing to return to.
    let rows = rows
        .into_iter()
        .filter(|row| row.session != current && row.parent.is_none() && row.imported.is_none());
    let choices = rows.filter_map(|row| {
        Some(SessionChoice {
            session: row.session,
            used: times::format_time(row.updated_at),
            about: row.title?.to_string(),
        })
    });
    Ok(choices.collect())
}
