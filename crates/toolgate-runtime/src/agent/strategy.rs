//! Strategies: take part in each iteration of a run.

use futures::future::BoxFuture;
use toolgate_core::{
    AnyLayer, ModelRequest, SessionEvent, SessionId, StoreHandle, Timestamp, Usage,
};

use crate::{ModelBilling, TurnReport};

/// A way of working that goes beyond asking the model repeatedly, such as skills or a recursive
/// search.
///
/// Strategies are asked in the order in which they were given to the session. State that must
/// survive a suspension or the loss of the process belongs in the store.
pub trait Strategy: Send + Sync + 'static {
    /// Changes the request before the model is asked.
    fn prepare_request<'a>(
        &'a self,
        _round: &'a mut RequestContext<'_>,
    ) -> BoxFuture<'a, Result<(), StrategyError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Decides how the run continues when every call of a turn is settled.
    fn turn_settled<'a>(
        &'a self,
        _turned: &'a mut TurnContext<'_>,
    ) -> BoxFuture<'a, Result<StrategyAction, StrategyError>> {
        Box::pin(std::future::ready(Ok(StrategyAction::Continue)))
    }
}

/// An iteration that is about to begin.
#[derive(Debug)]
pub struct RequestContext<'a> {
    /// The iteration of the run, counted from 0.
    pub iteration: u32,
    /// The session's id.
    pub session: SessionId,
    /// The number of the message that began the run.
    pub run: u64,
    /// The store, for state of the strategy.
    pub store: &'a StoreHandle,
    /// The time at which it begins.
    pub now: Timestamp,
    /// The billing of models that are asked in this run.
    pub spending: &'a ModelBilling,
    /// The request to the model. Instructions, view, choice and the like are set anew for each
    /// iteration before the first strategy sees them; messages must not be changed.
    pub request: &'a mut ModelRequest,
    /// Events to be written before the model is asked.
    pub events: &'a mut Vec<SessionEvent>,
    /// Layers for the calls of this iteration, inside the session's own of the same band.
    pub layers: &'a mut Vec<AnyLayer>,
}

/// An iteration whose calls are settled.
#[derive(Debug)]
pub struct TurnContext<'a> {
    /// The iteration of the run, counted from 0.
    pub iteration: u32,
    /// The session's id.
    pub session: SessionId,
    /// The number of the message that began the run.
    pub run: u64,
    /// The store, for state of the strategy.
    pub store: &'a StoreHandle,
    /// The time at which it ended.
    pub now: Timestamp,
    /// The results of its calls.
    pub report: &'a TurnReport,
    /// The tokens the model has used in this run so far.
    pub usage: Usage,
    /// Events to be written.
    pub events: &'a mut Vec<SessionEvent>,
}

/// The action of a run after an iteration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StrategyAction {
    /// The model is asked again.
    Continue,
    /// The model is asked again, and the iteration is not counted.
    Refund,
    /// The run is completed with this answer.
    Finish(String),
}

/// A failure of a strategy; the run ends as failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StrategyError(pub String);
