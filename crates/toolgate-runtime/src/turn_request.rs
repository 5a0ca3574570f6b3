//! What a model asked for in one message, on its way into a dispatcher.

use std::sync::Arc;

use toolgate_core::{
    AgentId, LoopEvent, Principal, ProviderCall, Record, RecordKey, SessionId, Stack, ToolRequest,
    TurnId, TurnInfo, View,
};

/// What a model asked for in one message.
#[derive(Debug, Clone)]
pub struct TurnRequest {
    pub(crate) view: View,
    pub(crate) calls: Vec<ToolRequest>,
    pub(crate) ran: Vec<ProviderCall>,
    pub(crate) after: Option<TurnId>,
    pub(crate) info: Arc<TurnInfo>,
    pub(crate) stack: Option<Stack>,
    /// What the loop writes in the same write.
    pub(crate) events: Vec<LoopEvent>,
    pub(crate) records: Vec<(RecordKey, Record)>,
    /// Whether the turn before is known to be settled, so that the store need not be asked.
    pub(crate) trusted: bool,
}

impl TurnRequest {
    /// Calls, checked against what the model was shown.
    pub fn new(view: View, calls: Vec<ToolRequest>) -> Self {
        let nil = uuid::Uuid::nil();
        Self::within(
            Arc::new(TurnInfo::new(SessionId::new(nil), TurnId::new(nil))),
            view,
            calls,
        )
    }

    /// Calls of a turn that has its id already.
    pub(crate) fn within(info: Arc<TurnInfo>, view: View, calls: Vec<ToolRequest>) -> Self {
        let (ran, events, records) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            view,
            calls,
            ran,
            after: None,
            info,
            stack: None,
            events,
            records,
            trusted: false,
        }
    }

    /// Adds calls that the provider has made by itself. They are recorded, not run.
    pub fn ran(mut self, calls: Vec<ProviderCall>) -> Self {
        self.ran = calls;
        self
    }

    /// Sends the calls through another stack than the dispatcher's. Whoever resumes the turn has to name it again.
    pub fn stack(mut self, stack: Stack) -> Self {
        self.stack = Some(stack);
        self
    }

    /// Says which turn this one continues. A turn is continued once, also across processes.
    pub fn after(mut self, turn: TurnId) -> Self {
        self.after = Some(turn);
        self
    }

    /// Says which agent asked.
    pub fn agent(mut self, id: impl Into<AgentId>, name: &str) -> Self {
        let info = Arc::make_mut(&mut self.info);
        (info.agent_id, info.agent_name) = (Some(id.into()), Some(name.into()));
        self
    }

    /// Says which model asked.
    pub fn model(mut self, provider: &str, model: &str) -> Self {
        let info = Arc::make_mut(&mut self.info);
        (info.provider, info.model) = (Some(provider.into()), Some(model.into()));
        self
    }

    /// Says on whose behalf.
    pub fn principal(mut self, principal: impl Into<Principal>) -> Self {
        Arc::make_mut(&mut self.info).principal = Some(principal.into());
        self
    }

    /// Says which round of the loop this is.
    pub fn iteration(mut self, iteration: u32) -> Self {
        Arc::make_mut(&mut self.info).iteration = iteration;
        self
    }
}
