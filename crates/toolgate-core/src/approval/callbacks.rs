//! Callbacks of an approval layer about decisions, called when a decision is made.

use std::{fmt, future::Future, sync::Arc};

use futures::future::BoxFuture;

use crate::{
    ApprovalAnswer, ApprovalId, ApprovalRequest, Arguments, Call, Decision, SessionId, ToolName,
    Verdict, run_contained,
};

/// A decision on a call, for callbacks.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MadeDecision {
    /// The session of the call.
    pub session: SessionId,
    /// The approval.
    pub approval_id: ApprovalId,
    /// The number of times the call was asked about before.
    pub generation: u32,
    /// The tool.
    pub tool: ToolName,
    /// The arguments that were decided on, not redacted.
    pub arguments: Arguments,
    /// The decision.
    pub decision: Decision,
}

impl MadeDecision {
    /// Creates the notice of the answer to a request.
    pub fn for_request(
        session: SessionId,
        request: &ApprovalRequest,
        answer: &ApprovalAnswer,
    ) -> Self {
        Self {
            session,
            approval_id: request.approval_id,
            generation: answer.generation,
            tool: request.tool.clone(),
            arguments: request.arguments.clone(),
            decision: answer.decision.clone(),
        }
    }

    /// Creates the notice of the answer that a call came back with.
    pub fn for_call(call: &Call, answer: &ApprovalAnswer) -> Self {
        Self {
            session: call.turn().session,
            approval_id: ApprovalId::for_call(call.id),
            generation: answer.generation,
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            decision: answer.decision.clone(),
        }
    }

    /// Returns the record that is written, once, before a callback is called for this decision:
    /// the process that writes it calls the callback.
    pub fn claim_key(&self) -> String {
        decision_claim_key(&self.decision.verdict, self.generation)
    }
}

/// Returns the key under which an approval layer records that a decision was first seen.
pub fn decision_claim_key(verdict: &Verdict, generation: u32) -> String {
    format!("{}-{generation}", verdict.decided_word())
}

type DecisionCallback = Arc<dyn Fn(MadeDecision) -> BoxFuture<'static, ()> + Send + Sync>;

/// The callbacks of an approval layer about decisions.
///
/// The service that accepts a decision calls them when it is made. A decision that another process
/// accepted without them is reported when its call is resumed. Either way once per decision.
#[derive(Clone, Default)]
pub struct DecisionCallbacks {
    approved: Option<DecisionCallback>,
    denied: Option<DecisionCallback>,
}

impl DecisionCallbacks {
    /// Calls `f` for each approval.
    pub fn on_approved<F, Fut>(mut self, f: F) -> Self
    where
        F: Fn(MadeDecision) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.approved = Some(Arc::new(move |made| Box::pin(f(made))));
        self
    }

    /// Calls `f` for each denial.
    pub fn on_denied<F, Fut>(mut self, f: F) -> Self
    where
        F: Fn(MadeDecision) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.denied = Some(Arc::new(move |made| Box::pin(f(made))));
        self
    }

    /// Checks whether there is a callback for this verdict.
    pub fn hears_of(&self, verdict: &Verdict) -> bool {
        self.callback_for(verdict).is_some()
    }

    /// Calls the callback for a decision. A panic in it is contained and changes nothing.
    pub async fn notify(&self, made: MadeDecision) {
        if let Some(callback) = self.callback_for(&made.decision.verdict) {
            let _ = run_contained(async { callback(made).await }).await;
        }
    }

    fn callback_for(&self, verdict: &Verdict) -> Option<&DecisionCallback> {
        match verdict {
            Verdict::Approve | Verdict::ApproveWithEdits { .. } => self.approved.as_ref(),
            Verdict::Deny { .. } => self.denied.as_ref(),
        }
    }
}

impl fmt::Debug for DecisionCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionCallbacks")
            .field("approved", &self.approved.is_some())
            .field("denied", &self.denied.is_some())
            .finish()
    }
}
