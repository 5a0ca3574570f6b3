//! Pays for a question that a coordinator has somebody answer.

use toolgate_core::{
    BudgetError, Context, Digest, ErrorCategory, LogLevel, ModelErrorKind, ModelName, ModelRequest, Payer, Routed,
    ToolError, TurnId, Usage,
};
use uuid::Uuid;

use crate::{Hold, Recursive, Spending, recursive_state::RunState};

/// What is set aside for a question, if budgets are kept at all.
pub(crate) struct Bill(Option<(Spending, Hold)>);

impl Bill {
    /// Sets aside what the question may cost, or says that it must not be asked.
    pub(crate) async fn open(
        recursive: &Recursive,
        cx: &Context,
        state: &RunState,
        question: Digest,
        (request, model): (&ModelRequest, &ModelName),
    ) -> Result<Self, ToolError> {
        let Some(spending) = &recursive.0.spending else { return Ok(Self(None)) };
        let (session, run) = (Some(cx.turn().session), Some(state.run));
        let spending = spending.paid_by(Payer { session, run, ..spending.payer().clone() });
        let id = charge_id(cx, question);
        // If there is something already, a lost process has asked, and nobody knows what came of that.
        state.to_tell(spending.recover(id, true).await?);
        let hold = spending.reserve(id, request, model).await.map_err(refused)?;
        Ok(Self(Some((spending, hold))))
    }

    /// Another model answers.
    pub(crate) fn routed(&mut self, routed: &Routed) {
        if let Some((_, hold)) = &mut self.0 {
            hold.routed(routed);
        }
    }

    /// The question was asked, and this is what it used; all that was set aside, if nobody knows.
    pub(crate) async fn settle(self, cx: &Context, state: &RunState, usage: Option<Usage>) {
        let Some((spending, hold)) = self.0 else { return };
        let paid = spending.settle(hold, usage).await;
        if let Some(error) = paid.unbooked {
            cx.log(LogLevel::Error, &format!("what a question has cost could not be booked: {error}"));
        }
        state.to_tell(paid.alerts);
    }

    /// The question was not answered. What a provider refuses before it works costs nothing.
    pub(crate) async fn failed(self, cx: &Context, state: &RunState, kind: ModelErrorKind) {
        use ModelErrorKind as Kind;
        let free = match kind {
            Kind::RateLimited | Kind::Overloaded | Kind::Auth | Kind::Quota | Kind::BadRequest => true,
            Kind::TooLong | Kind::NotFound | Kind::Budget | Kind::Setup => true,
            Kind::Refused | Kind::Server | Kind::Timeout | Kind::Connection | Kind::Malformed => false,
        };
        match (self.0, free) {
            (Some((spending, hold)), true) => {
                if let Err(error) = spending.release(hold).await {
                    cx.log(LogLevel::Error, &format!("what was set aside for a question is not free again: {error}"));
                }
            }
            (bill, _) => Self(bill).settle(cx, state, None).await,
        }
    }
}

/// The same for the same question of the same call, in whatever process.
fn charge_id(cx: &Context, question: Digest) -> TurnId {
    let whole = Digest::of_bytes(format!("{}/{question}", cx.id).as_bytes());
    let mut half = [0; 16];
    half.copy_from_slice(&whole.as_bytes()[..16]);
    TurnId::new(Uuid::from_bytes(half))
}

fn refused(error: BudgetError) -> ToolError {
    let told = ToolError::new("The question was not asked: the budget does not allow it. Set the answer soon.");
    told.with_category(ErrorCategory::Permission).with_operator(error.to_string())
}
