//! The calls of one model message, on their way into a dispatcher.

use std::sync::Arc;

use toolgate_core::{
    AgentId, Principal, ProviderCall, RecordKey, SessionEvent, SessionId, Stack, StoreRecord,
    ToolRequest, TurnId, TurnInfo, View,
};

/// The calls that a model asked for in one message.
#[derive(Debug, Clone)]
pub struct TurnRequest {
    pub(crate) view: View,
    pub(crate) calls: Vec<ToolRequest>,
    pub(crate) ran: Vec<ProviderCall>,
    pub(crate) after: Option<TurnId>,
    pub(crate) info: Arc<TurnInfo>,
    pub(crate) stack: Option<Stack>,
    /// Session events that belong to the same write.
    pub(crate) events: Vec<SessionEvent>,
    pub(crate) records: Vec<(RecordKey, StoreRecord)>,
    /// True if the previous turn is known to be settled, so that the store need not be asked.
    pub(crate) trusted: bool,
}

impl TurnRequest {
    /// Creates a request of calls, which are checked against the view the model saw.
    pub fn new(view: View, calls: Vec<ToolRequest>) -> Self {
        let nil = uuid::Uuid::nil();
        Self::for_turn(
            Arc::new(TurnInfo::new(SessionId::new(nil), TurnId::new(nil))),
            view,
            calls,
        )
    }

    /// Creates a request for a turn that has its id already.
    pub(crate) fn for_turn(info: Arc<TurnInfo>, view: View, calls: Vec<ToolRequest>) -> Self {
        let ran = Vec::new();
        let events = Vec::new();
        let records = Vec::new();
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

    /// Adds provider-executed calls. They are recorded, not run.
    pub fn provider_calls(mut self, calls: Vec<ProviderCall>) -> Self {
        self.ran = calls;
        self
    }

    /// Sends the calls through another stack than the dispatcher's. It has to be named again when
    /// the turn is resumed.
    pub(crate) fn stack(mut self, stack: Stack) -> Self {
        self.stack = Some(stack);
        self
    }

    /// Sets the turn that this one continues. A turn is continued once, also across processes.
    pub fn after(mut self, turn: TurnId) -> Self {
        self.after = Some(turn);
        self
    }

    /// Sets the agent that asked.
    pub fn agent(mut self, id: impl Into<AgentId>, name: &str) -> Self {
        let info = Arc::make_mut(&mut self.info);
        info.agent_id = Some(id.into());
        info.agent_name = Some(name.into());
        self
    }

    /// Sets the model that asked.
    pub fn model(mut self, provider: &str, model: &str) -> Self {
        let info = Arc::make_mut(&mut self.info);
        info.provider = Some(provider.into());
        info.model = Some(model.into());
        self
    }

    /// Sets the principal on whose behalf the calls are made.
    pub fn principal(mut self, principal: impl Into<Principal>) -> Self {
        Arc::make_mut(&mut self.info).principal = Some(principal.into());
        self
    }

    /// Sets the iteration of the run.
    pub fn iteration(mut self, iteration: u32) -> Self {
        Arc::make_mut(&mut self.info).iteration = iteration;
        self
    }
}
