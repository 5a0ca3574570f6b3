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
    /// The name of the model that replied last, without its provider.
    pub model: Option<Arc<str>>,
    /// The provider of that model, if it is known. One of an imported session is not.
    pub provider: Option<Arc<str>>,
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
                self.set_model(info.model.as_ref(), info.provider.as_ref());
            }
            EventBody::Tool(..) | EventBody::Loop(..) | EventBody::Turn(..) => {}
        }
    }

    /// Adds the totals of later events.
    pub fn add_later(&mut self, later: &Self) {
        self.calls += later.calls;
        self.add_cost(later.cost);
        self.set_model(later.model.as_ref(), later.provider.as_ref());
        self.first_tool = self.first_tool.take().or(later.first_tool.clone());
    }

    /// Checks whether the events changed nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks whether the model that replied last is this one, written as `provider:name` or only the
    /// name. Names may contain colons themselves.
    pub fn has_model(&self, wanted: &str) -> bool {
        let Some(name) = self.model.as_deref() else {
            return false;
        };
        let with_provider = || wanted.strip_suffix(name)?.strip_suffix(':');
        name == wanted || (self.provider.is_some() && with_provider() == self.provider.as_deref())
    }

    /// Replaces the model and its provider together, if a model is named.
    fn set_model(&mut self, model: Option<&Arc<str>>, provider: Option<&Arc<str>>) {
        if let Some(model) = model {
            self.model = Some(model.clone());
            self.provider = provider.cloned();
        }
    }

    fn add_cost(&mut self, more: Option<Cost>) {
        self.cost = match (self.cost, more) {
            (Some(cost), Some(more)) => Some(cost.plus(more)),
            (cost, more) => cost.or(more),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_with_or_without_its_provider() {
        let totals = |provider: Option<&str>| SessionTotals {
            model: Some("qwen3:8b".into()),
            provider: provider.map(Arc::from),
            ..SessionTotals::default()
        };
        let ours = totals(Some("ollama"));
        for wanted in ["qwen3:8b", "ollama:qwen3:8b"] {
            assert!(ours.has_model(wanted), "{wanted}");
        }
        for wanted in ["8b", "qwen3", "ollama", ":qwen3:8b", "other:qwen3:8b"] {
            assert!(!ours.has_model(wanted), "{wanted}");
        }
        let imported = totals(None);
        assert!(imported.has_model("qwen3:8b"));
        assert!(!imported.has_model(":qwen3:8b") && !imported.has_model("ollama:qwen3:8b"));
        assert!(!SessionTotals::default().has_model(""));
    }
}
