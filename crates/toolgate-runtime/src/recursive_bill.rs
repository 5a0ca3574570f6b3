//! Pays for a question that a coordinator has somebody answer.

use toolgate_core::{
    BudgetError, Context, Digest, ErrorCategory, LogLevel, ModelErrorKind, ModelName, ModelRequest,
    Routed, ToolError, TurnId, Usage,
};

use crate::{Hold, Spending, paying::may_be_charged, recursive_state::RunState};

/// What is set aside for a question.
pub(crate) struct Bill(Spending, Hold);

impl Bill {
    /// Sets aside what the question may cost, or says that it must not be asked.
    pub(crate) async fn open(
        cx: &Context,
        state: &RunState,
        question: Digest,
        (request, model): (&ModelRequest, &ModelName),
    ) -> Result<Self, ToolError> {
        let (spending, id) = (state.spending(), charge_id(cx, question));
        // If there is something already, a lost process has asked, and nobody knows what came of that.
        state.to_tell(spending.recover(id, true).await?);
        let hold = spending
            .reserve(id, request, model)
            .await
            .map_err(refused)?;
        Ok(Self(spending, hold))
    }

    /// Another model answers.
    pub(crate) fn routed(&mut self, routed: &Routed) {
        self.1.routed(routed);
    }

    /// The question was asked, and this is what it used; all that was set aside, if nobody knows.
    pub(crate) async fn settle(self, cx: &Context, state: &RunState, usage: Option<Usage>) {
        let Self(spending, hold) = self;
        let paid = spending.settle(hold, usage).await;
        if let Some(error) = paid.unbooked {
            cx.log(
                LogLevel::Error,
                &format!("what a question has cost could not be booked: {error}"),
            );
        }
        state.to_tell(paid.alerts);
    }

    /// The question was not answered.
    pub(crate) async fn failed(self, cx: &Context, state: &RunState, kind: ModelErrorKind) {
        if may_be_charged(kind) {
            return self.settle(cx, state, None).await;
        }
        let Self(spending, hold) = self;
        if let Err(error) = spending.release(hold).await {
            cx.log(
                LogLevel::Error,
                &format!("what was set aside for a question is not free again: {error}"),
            );
        }
    }
}

/// The same for the same question of the same call, in whatever process.
fn charge_id(cx: &Context, question: Digest) -> TurnId {
    let whole = Digest::of_bytes(format!("{}/{question}", cx.id).as_bytes());
    let mut half = [0; 16];
    half.copy_from_slice(&whole.as_bytes()[..16]);
    // A kind of its own, by which it is told from the turns of the session.
    TurnId::new(uuid::Builder::from_custom_bytes(half).into_uuid())
}

/// Whether something was set aside for a question and not for a turn of the session. A question is sent as soon as it is
/// paid for.
pub(crate) fn is_question(turn: TurnId) -> bool {
    turn.uuid().get_version() == Some(uuid::Version::Custom)
}

fn refused(error: BudgetError) -> ToolError {
    let told = ToolError::new(
        "The question was not asked: the budget does not allow it. Set the answer soon.",
    );
    told.with_category(ErrorCategory::Permission)
        .with_operator(error.to_string())
}
