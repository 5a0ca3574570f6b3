//! What there is to show: a fold of lifecycle events, shared by the live display and the terminal UI.
//!
//! [`Screen::apply`] takes an event and [`Screen::piece`] a piece of a reply that is still coming. Nothing else changes
//! what is shown, and nothing is inferred: a screen that was closed and opened again folds the same log to the same
//! picture. Both cost the same whether the session is short or long.

mod agent;
mod call;

use std::{collections::HashMap, sync::Arc};

use toolgate::{
    CallId, Cost, Event, EventBody, LoopEvent, Piece, RunEnd, SessionId, Timestamp, ToolEvent,
    Usage,
};

pub use agent::{AgentView, Item};
pub use call::{CallState, CallView};

/// Everything that there is to show of a session and the agents it delegates to.
#[derive(Debug, Clone, Default)]
pub struct Screen {
    agents: Vec<AgentView>,
    by_session: HashMap<SessionId, usize>,
    calls: Vec<CallView>,
    by_call: HashMap<CallId, usize>,
    /// The calls that are not settled, in the order in which they were asked for.
    open: Vec<CallId>,
    alerts: Vec<BudgetAlertView>,
    usage: Usage,
    cost: Option<Cost>,
    end: Option<RunEnd>,
    now: Timestamp,
}

/// How much of a budget is used up, as it was last told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetAlertView {
    /// Which budget.
    pub budget: String,
    /// The threshold in percent.
    pub percent: u8,
    /// What is spent.
    pub spent: String,
    /// What there is.
    pub limit: String,
    /// When it was told.
    pub at: Timestamp,
}

impl Screen {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in an event of the session or of an agent.
    pub fn apply(&mut self, event: &Event) {
        self.now = self.now.max(event.at());
        let agent = self.agent_of(event.turn_info());
        match event.body() {
            EventBody::Tool(invocation, happened) => {
                let at = event.at();
                if let ToolEvent::ToolRequested { .. } = happened
                    && !self.by_call.contains_key(&invocation.id)
                {
                    self.by_call.insert(invocation.id, self.calls.len());
                    self.calls.push(CallView::new(invocation.clone(), at));
                    self.open.push(invocation.id);
                    self.agents[agent].called(invocation.id);
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
            EventBody::Loop(_, happened) => self.apply_loop(agent, happened, event.at()),
        }
    }

    fn apply_loop(&mut self, agent: usize, happened: &LoopEvent, at: Timestamp) {
        match happened {
            LoopEvent::InferenceFinished { usage, cost, .. } => {
                self.usage = usage.map_or(self.usage, |usage| self.usage.plus(usage));
                self.cost = Some(self.cost.map_or(*cost, |sum| sum.plus(*cost)));
            }
            LoopEvent::BudgetAlert {
                budget,
                percent,
                spent,
                limit,
                ..
            } => {
                let (budget, spent, limit) = (budget.clone(), spent.clone(), limit.clone());
                self.alerts.retain(|known| known.budget != budget);
                self.alerts.push(BudgetAlertView {
                    budget,
                    percent: *percent,
                    spent,
                    limit,
                    at,
                });
            }
            LoopEvent::RunEnded { end, .. } if agent == 0 => self.end = Some(*end),
            LoopEvent::UserMessage { .. } if agent == 0 => self.end = None,
            LoopEvent::UserMessage { .. }
            | LoopEvent::ModelRouted(_)
            | LoopEvent::InferenceStarted { .. }
            | LoopEvent::InferenceFailed { .. }
            | LoopEvent::HistoryCompacted { .. }
            | LoopEvent::SkillLoaded { .. }
            | LoopEvent::RecursiveIteration { .. }
            | LoopEvent::RunEnded { .. } => {}
        }
        self.agents[agent].apply_loop(happened);
    }

    /// Takes in a piece of a reply that is still coming.
    pub fn piece(&mut self, piece: &Piece) {
        let agent = self.agent_of(&piece.turn);
        self.agents[agent].piece(&piece.delta);
    }

    /// The agent whose session it is; the first session that is seen is the one that everything else works for.
    fn agent_of(&mut self, turn: &Arc<toolgate::TurnInfo>) -> usize {
        if let Some(place) = self.by_session.get(&turn.session) {
            self.agents[*place].iteration = turn.iteration;
            return *place;
        }
        let place = self.agents.len();
        self.by_session.insert(turn.session, place);
        self.agents.push(AgentView::new(turn));
        place
    }

    /// The session and the agents it delegates to, in the order in which they were first seen.
    pub fn agents(&self) -> &[AgentView] {
        &self.agents
    }

    /// Every call, in the order in which they were asked for.
    pub fn calls(&self) -> &[CallView] {
        &self.calls
    }

    /// A call.
    pub fn call(&self, id: CallId) -> Option<&CallView> {
        self.by_call.get(&id).map(|place| &self.calls[*place])
    }

    /// The calls that are not settled, in the order in which they were asked for.
    pub fn open_calls(&self) -> impl Iterator<Item = &CallView> {
        self.open.iter().filter_map(|id| self.call(*id))
    }

    /// The calls that wait for a decision, in the order in which they were asked for.
    pub fn pending(&self) -> impl Iterator<Item = &CallView> {
        self.open_calls()
            .filter(|call| call.state == CallState::Asked)
    }

    /// What was last told about each budget.
    pub fn alerts(&self) -> &[BudgetAlertView] {
        &self.alerts
    }

    /// What all models used.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// What that cost; nothing if no model was asked.
    pub fn cost(&self) -> Option<Cost> {
        self.cost
    }

    /// Why the run of the session ended, if it has.
    pub fn end(&self) -> Option<RunEnd> {
        self.end
    }

    /// When something last happened.
    pub fn now(&self) -> Timestamp {
        self.now
    }
}
