//! `--take-over`: drives a session that another process holds, after asking.

use toolgate::{
    Gate,
    session::{Gated, HolderState, LeaseHolder, SessionBuilder},
    store::SessionFilter,
    value::SessionId,
};

use crate::{CliError, CommandContext, SessionArgs, env::confirm::require_confirmation};

impl SessionArgs {
    /// Lets the builder take the session over if the user wants that and confirms it.
    ///
    /// A holder that has ended needs no confirmation: its session is free.
    pub(crate) async fn confirm_take_over(
        &self,
        cx: &CommandContext,
        gate: &Gate,
        session: Option<SessionId>,
        builder: SessionBuilder<Gated>,
    ) -> Result<SessionBuilder<Gated>, CliError> {
        let Some(session) = session.filter(|_| self.take_over) else {
            return Ok(builder);
        };
        let filter = SessionFilter::for_session(session);
        let row = gate.store().sessions(filter).await?.pop();
        let Some((holder, _)) = row.and_then(|row| row.held) else {
            return Ok(builder);
        };
        let question = match LeaseHolder::parse(&holder) {
            Some(holder) if holder.state() == HolderState::Ended => return Ok(builder),
            Some(holder) => format!(
                "The session is driven by {holder}; the process {}. A call that it runs now may end with an \
                 unknown outcome. Take the session over?",
                holder.state().text()
            ),
            None => "The session is driven by another program. Take it over?".to_owned(),
        };
        require_confirmation(cx, &question, self.yes)?;
        Ok(builder.take_over())
    }
}
