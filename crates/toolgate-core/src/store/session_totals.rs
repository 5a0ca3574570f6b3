//! What a list of sessions says about each of them without reading its log.

use std::sync::Arc;

use crate::{Cost, Event, EventBody, SessionEvent, ToolEvent, ToolName};

/// What the events of a session add up to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// The number of calls.
    pub calls: u64,
    /// The cost of all model requests, if there was one.
    pub cost: Option<Cost>,
    /// The model that replied last.
    pub model: Option<Arc<str>>,
    /// The tool of the first call.
    pub first_tool: Option<ToolName>,
}

/// What is not settled in a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnsettledWork {
    /// The number of approval requests without a decision.
    pub pending: u64,
    /// The number of approved calls that have not started.
    pub answered: u64,
    /// The number of approved calls that have started.
    pub running: u64,
    /// True if a turn is not settled.
    pub has_open_turn: bool,
}

impl SessionTotals {
    /// Returns what `events` add up to.
    pub fn from_events<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut totals = Self::default();
        events.into_iter().for_each(|event| totals.add_event(event));
        totals
    }

    /// Adds the next event.
    pub fn add_event(&mut self, event: &Event) {
        match event.body() {
            EventBody::Tool(invocation, ToolEvent::ToolRequested { .. }) => {
                self.calls += 1;
                self.first_tool
                    .get_or_insert_with(|| invocation.tool.clone());
            }
            EventBody::Loop(info, SessionEvent::InferenceFinished { cost, .. }) => {
                self.add_cost(Some(*cost));
                self.model = info.model.clone().or(self.model.take());
            }
            EventBody::Tool(..) | EventBody::Loop(..) | EventBody::Turn(..) => {}
        }
    }

    /// Adds the totals of later events.
    pub fn add_later(&mut self, later: &Self) {
        self.calls += later.calls;
        self.add_cost(later.cost);
        self.model = later.model.clone().or(self.model.take());
        self.first_tool = self.first_tool.take().or(later.first_tool.clone());
    }

    /// Checks whether the events changed nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn add_cost(&mut self, more: Option<Cost>) {
        self.cost = match (self.cost, more) {
            (Some(cost), Some(more)) => Some(cost.plus(more)),
            (cost, more) => cost.or(more),
        };
    }
}
