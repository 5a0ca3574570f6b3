//! Billing of a question that a coordinator delegates.

use toolgate_core::{
    BudgetError, ChargeId, Context, Digest, ErrorCategory, ExpenseState, LogLevel, ModelErrorKind,
    ModelName, ModelRequest, RoutedModel, ToolError, TurnId, Usage,
};

use crate::{BudgetReservation, ModelBilling, agent::recursive::state::RecursiveRun};

/// The reservation for a question.
pub(crate) struct QuestionBill {
    spending: ModelBilling,
    turn: TurnId,
    /// Nothing only between two attempts.
    hold: Option<BudgetReservation>,
}

impl QuestionBill {
    /// Reserves what the question may cost, or returns why it must not be asked.
    pub(crate) async fn reserve_budget(
        cx: &Context,
        state: &RecursiveRun,
        question: Digest,
        request: &ModelRequest,
        model: &ModelName,
    ) -> Result<Self, ToolError> {
        let spending = state.spending();
        let turn = question_turn(cx, question);
        // If there is a reservation already, a lost process has asked, and the outcome is unknown.
        let lost = spending
            .service()
            .recover(ChargeId::Turn(turn), ExpenseState::Spent);
        state.queue_alerts(lost.await?);
        let hold = spending
            .reserve(turn, request, model)
            .await
            .map_err(budget_error)?;
        Ok(Self {
            spending,
            turn,
            hold: Some(hold),
        })
    }

    /// Notes that another model answers.
    pub(crate) fn use_routed_model(&mut self, routed: &RoutedModel) {
        if let Some(hold) = &mut self.hold {
            hold.use_routed_model(routed);
        }
    }

    /// Ends the bill of an attempt that failed like this, and reserves for the next one.
    pub(crate) async fn begin_retry(
        &mut self,
        state: &RecursiveRun,
        failed: ModelErrorKind,
        request: &ModelRequest,
        model: &ModelName,
    ) -> Result<(), BudgetError> {
        if let Some(hold) = self.hold.take() {
            let ended = self.spending.settle_failed(hold, failed).await;
            state.queue_alerts(ended.alerts);
        }
        self.hold = Some(self.spending.reserve(self.turn, request, model).await?);
        Ok(())
    }

    /// Charges what the question used, or all of the reservation if that is unknown. That of a
    /// failed question is released unless the provider may charge for it.
    pub(crate) async fn settle(
        self,
        cx: &Context,
        state: &RecursiveRun,
        usage: Result<Option<Usage>, ModelErrorKind>,
    ) {
        let Self { spending, hold, .. } = self;
        let Some(hold) = hold else { return };
        let ended = match usage {
            Ok(usage) => spending.settle(hold, usage).await,
            Err(kind) => spending.settle_failed(hold, kind).await,
        };
        if let Some(error) = ended.unbooked {
            cx.write_log(
                LogLevel::Error,
                &format!("the cost of a question could not be charged: {error}"),
            );
        }
        state.queue_alerts(ended.alerts);
    }
}

/// Returns the same id for the same question of the same call, in whatever process.
fn question_turn(cx: &Context, question: Digest) -> TurnId {
    let whole = Digest::of_bytes(format!("{}/{question}", cx.id).as_bytes());
    let mut half = [0; 16];
    half.copy_from_slice(&whole.as_bytes()[..16]);
    // A custom UUID version, by which it is told from the turns of the session.
    TurnId::new(uuid::Builder::from_custom_bytes(half).into_uuid())
}

/// Checks whether a reservation is for a question and not for a turn of the session. A question is
/// sent as soon as it is reserved.
pub(crate) fn is_question(turn: TurnId) -> bool {
    turn.uuid().get_version() == Some(uuid::Version::Custom)
}

fn budget_error(error: BudgetError) -> ToolError {
    let told = ToolError::new(
        "The question was not asked: the budget does not allow it. Set the answer soon.",
    );
    told.with_category(ErrorCategory::Permission)
        .with_operator_detail(error.to_string())
}
