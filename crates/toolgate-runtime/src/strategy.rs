//! Has a say in each round of a run: what the model is asked with, and whether the run goes on.

use futures::future::BoxFuture;
use toolgate_core::{AnyLayer, LoopEvent, ModelRequest, SessionId, StoreHandle, Timestamp, Usage};

use crate::{Spending, TurnReport};

/// A way of working that goes beyond asking the model again and again, such as skills or a recursive search.
///
/// Strategies are asked in the order in which they were given to the session. What one must remember across a
/// suspension or the loss of the process, it keeps in the store.
pub trait Strategy: Send + Sync + 'static {
    /// Has a say before the model is asked.
    fn prepare<'a>(
        &'a self,
        _round: &'a mut Round<'_>,
    ) -> BoxFuture<'a, Result<(), StrategyError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Has a say when every call of a turn is settled.
    fn settled<'a>(
        &'a self,
        _turned: &'a mut Turned<'_>,
    ) -> BoxFuture<'a, Result<Onward, StrategyError>> {
        Box::pin(std::future::ready(Ok(Onward::Continue)))
    }
}

/// A round that is about to begin.
#[derive(Debug)]
pub struct Round<'a> {
    /// Which round of the run, counted from 0.
    pub iteration: u32,
    /// In which session.
    pub session: SessionId,
    /// The number of the message that began the run.
    pub run: u64,
    /// Where to remember things.
    pub store: &'a StoreHandle,
    /// When it begins.
    pub now: Timestamp,
    /// How models are paid for that are asked in this run.
    pub spending: &'a Spending,
    /// What the model is asked with. Instructions, view, choice and the like are set anew for each round before the
    /// first strategy sees them; messages are not to be changed.
    pub request: &'a mut ModelRequest,
    /// What is written to the log before the model is asked.
    pub events: &'a mut Vec<LoopEvent>,
    /// Layers for the calls of this round, inside the session's own of the same band.
    pub layers: &'a mut Vec<AnyLayer>,
}

/// A round whose calls are settled.
#[derive(Debug)]
pub struct Turned<'a> {
    /// Which round of the run, counted from 0.
    pub iteration: u32,
    /// In which session.
    pub session: SessionId,
    /// The number of the message that began the run.
    pub run: u64,
    /// Where to remember things.
    pub store: &'a StoreHandle,
    /// When it ended.
    pub now: Timestamp,
    /// What came of its calls.
    pub report: &'a TurnReport,
    /// What the model has used in this run so far.
    pub usage: Usage,
    /// What is written to the log.
    pub events: &'a mut Vec<LoopEvent>,
}

/// How a run goes on after a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Onward {
    /// The model is asked again.
    Continue,
    /// The model is asked again, and the round is not counted.
    Refund,
    /// The run is completed with this answer.
    Finish(String),
}

/// A strategy could not do its work; the run ends as failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StrategyError(pub String);
