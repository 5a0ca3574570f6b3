//! The state that screens show: a fold of lifecycle events, shared by the live display and the
//! terminal UI.
//!
//! [`SessionScreen::apply`] takes an event and [`SessionScreen::apply_piece`] a fragment of a reply that is still
//! streaming. Nothing else changes what is shown, and nothing is inferred: a screen that was closed
//! and reopened folds the same log to the same picture. Both cost the same whether the session is
//! short or long.

mod agent;
mod call;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod streaming;

use std::{collections::HashMap, sync::Arc};

use toolgate::{
    Event, RunEnd,
    approval::ShownRequest,
    budget::BudgetAlert,
    event::{Cost, EventBody, SessionEvent, StreamPiece, ToolEvent},
    model::Usage,
    value::{CallId, SessionId, Timestamp},
};

pub use agent::{AgentView, ConversationItem};
pub use call::{CallState, CallView};

/// The visible state of a session and of the agents it delegates to.
#[derive(Debug, Clone, Default)]
pub struct SessionScreen {
    agents: Vec<AgentView>,
    by_session: HashMap<SessionId, usize>,
    calls: Vec<CallView>,
    by_call: HashMap<CallId, usize>,
    /// The calls that are not settled, in the order in which they were requested.
    open: Vec<CallId>,
    alerts: Vec<BudgetAlert>,
    usage: Usage,
    cost: Option<Cost>,
    end: Option<RunEnd>,
    now: Timestamp,
}

impl SessionScreen {
    /// Creates an empty screen.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies an event of the session or of an agent.
    pub fn apply(&mut self, event: &Event) {
        // Each session is read by itself, so the events of all of them are not sorted by time.
        self.now = self.now.max(event.at());
        let agent = self.agent_index(event.turn_info());
        // After a gap, events are read again from the store; those that were seen change nothing.
        if event.sequence() <= self.agents[agent].last_sequence {
            return;
        }
        self.agents[agent].last_sequence = event.sequence();
        match event.body() {
            EventBody::Tool(invocation, happened) => {
                let at = event.at();
                if let ToolEvent::ToolRequested { arguments, .. } = happened
                    && !self.by_call.contains_key(&invocation.id)
                {
                    self.by_call.insert(invocation.id, self.calls.len());
                    let call = CallView::new(invocation.clone(), at, arguments.clone());
                    self.calls.push(call);
                    self.open.push(invocation.id);
                    self.agents[agent].add_call(invocation.id);
                }
                let Some(place) = self.by_call.get(&invocation.id) else {
                    return;
                };
                let call = &mut self.calls[*place];
                call.apply(happened, at);
                if call.state.is_settled() {
                    self.open.retain(|open| *open != invocation.id);
                }
            }
            EventBody::Turn(_, happened) => self.agents[agent].apply_turn(happened),
            EventBody::Loop(_, happened) => self.apply_loop(agent, happened),
        }
    }

    fn apply_loop(&mut self, agent: usize, happened: &SessionEvent) {
        match happened {
            SessionEvent::InferenceFinished { usage, cost, .. } => {
                self.usage = usage.map_or(self.usage, |usage| self.usage.plus(usage));
                self.cost = Some(self.cost.map_or(*cost, |sum| sum.plus(*cost)));
            }
            SessionEvent::BudgetAlert(alert) => {
                self.alerts.retain(|known| known.budget != alert.budget);
                self.alerts.push(alert.clone());
            }
            // Agents end their own runs; only the root session's end is the end of the run.
            SessionEvent::RunEnded { end, .. } if agent == 0 => self.end = Some(*end),
            SessionEvent::UserMessage { .. } if agent == 0 => self.end = None,
            SessionEvent::UserMessage { .. }
            | SessionEvent::ModelRouted(_)
            | SessionEvent::InferenceStarted { .. }
            | SessionEvent::InferenceFailed { .. }
            | SessionEvent::HistoryCompacted { .. }
            | SessionEvent::SkillLoaded { .. }
            | SessionEvent::MemoryRecalled { .. }
            | SessionEvent::RecursiveIteration { .. }
            | SessionEvent::ImportedCall { .. }
            | SessionEvent::ImportedResult { .. }
            | SessionEvent::RunEnded { .. } => {}
        }
        self.agents[agent].apply_loop(happened);
    }

    /// Applies a fragment of a reply that is still streaming.
    pub fn apply_piece(&mut self, piece: &StreamPiece) {
        let agent = self.agent_index(&piece.turn);
        self.agents[agent].apply_delta(piece.after, &piece.delta);
    }

    /// Returns the position of the agent whose session it is. The first session that is seen is the
    /// root: the one that all others work for.
    fn agent_index(&mut self, turn: &Arc<toolgate::stack::TurnInfo>) -> usize {
        if let Some(place) = self.by_session.get(&turn.session) {
            self.agents[*place].iteration = turn.iteration;
            return *place;
        }
        let place = self.agents.len();
        let is_its_call = |call: &&mut CallView| call.invocation.id.agent_session() == turn.session;
        if let Some(call) = self.calls.iter_mut().find(is_its_call) {
            call.is_agent = true;
        }
        self.by_session.insert(turn.session, place);
        self.agents.push(AgentView::new(turn));
        place
    }

    /// Returns the session and the agents it delegates to, in the order in which they were first
    /// seen.
    pub fn agents(&self) -> &[AgentView] {
        &self.agents
    }

    /// Returns every call, in the order in which they were requested.
    pub fn calls(&self) -> &[CallView] {
        &self.calls
    }

    /// Returns a call.
    pub fn call(&self, id: CallId) -> Option<&CallView> {
        self.by_call.get(&id).map(|place| &self.calls[*place])
    }

    /// Returns the calls that are not settled, in the order in which they were requested.
    pub fn open_calls(&self) -> impl Iterator<Item = &CallView> {
        self.open.iter().filter_map(|id| self.call(*id))
    }

    /// Returns the calls with a pending approval request, in the order in which they were
    /// requested.
    pub fn pending_calls(&self) -> impl Iterator<Item = &CallView> {
        self.open_calls()
            .filter(|call| call.state == CallState::Pending)
    }

    /// Returns the pending requests of which it is not known yet what an approver sees, with their
    /// generations.
    pub fn unloaded_requests(&self) -> Vec<(CallId, u32)> {
        let unloaded = self.pending_calls().filter(|call| call.shown.is_none());
        let named =
            |call: &CallView| Some((call.invocation.id, call.question.as_ref()?.generation));
        unloaded.filter_map(named).collect()
    }

    /// Sets what an approver sees of a request, unless approval was requested again since.
    pub fn set_shown(
        &mut self,
        call: CallId,
        generation: u32,
        shown: Result<Arc<ShownRequest>, String>,
    ) {
        let Some(place) = self.by_call.get(&call) else {
            return;
        };
        let call = &mut self.calls[*place];
        let asked = call.question.as_ref();
        if asked.is_some_and(|question| question.generation == generation) {
            call.shown = Some(shown);
        }
    }

    /// Returns the last alert of each budget.
    pub fn budget_alerts(&self) -> &[BudgetAlert] {
        &self.alerts
    }

    /// Returns the tokens that all models used.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the cost of all model requests; `None` if there was none.
    pub fn cost(&self) -> Option<Cost> {
        self.cost
    }

    /// Returns why the session's run ended, if it has.
    pub fn run_end(&self) -> Option<RunEnd> {
        self.end
    }

    /// Returns the time of the last event.
    pub fn last_event_at(&self) -> Timestamp {
        self.now
    }
}
