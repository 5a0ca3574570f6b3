//! One session as a screen shows it: what was said, what was called, what is going on.

use std::sync::Arc;

use toolgate::{CallId, Delta, LoopEvent, RunEnd, SessionId, TurnEvent, TurnInfo};

/// A session: the one that was opened, or that of an agent it delegates to.
#[derive(Debug, Clone)]
pub struct AgentView {
    /// Which session.
    pub session: SessionId,
    /// What the agent is called; nothing for the session that was opened.
    pub name: Option<Arc<str>>,
    /// What was said and called, in order.
    pub items: Vec<Item>,
    /// The reply that is still coming.
    pub coming: String,
    /// What the model thinks meanwhile, as far as it tells.
    pub thinking: String,
    /// Which model was asked last.
    pub model: Option<Arc<str>>,
    /// Whether a model is being asked right now.
    pub asking: bool,
    /// Which round of the run it is.
    pub iteration: u32,
    /// Why its run ended, if it has.
    pub end: Option<RunEnd>,
}

/// Something that was said or called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A person said something; `steering` if that was while a run was under way.
    User {
        /// The words.
        text: String,
        /// Whether it came while a run was under way.
        steering: bool,
    },
    /// The model said something.
    Model(String),
    /// The model asked for a call.
    Call(CallId),
    /// Something else that people want to know.
    Note(String),
}

impl AgentView {
    pub(super) fn new(turn: &TurnInfo) -> Self {
        Self {
            session: turn.session,
            name: turn.agent_name.clone(),
            items: Vec::new(),
            coming: String::new(),
            thinking: String::new(),
            model: None,
            asking: false,
            iteration: turn.iteration,
            end: None,
        }
    }

    /// Whether there is work going on in it.
    pub fn is_busy(&self) -> bool {
        self.end.is_none() && !self.items.is_empty()
    }

    pub(super) fn called(&mut self, call: CallId) {
        self.items.push(Item::Call(call));
    }

    pub(super) fn apply_turn(&mut self, event: &TurnEvent) {
        match event {
            TurnEvent::TurnInterrupted { reason } => self
                .items
                .push(Item::Note(format!("interrupted: {reason}"))),
            TurnEvent::PostRefused { what, code, .. } => {
                self.items.push(Item::Note(
                    format!("a {what:?} came that nobody waits for ({code:?})").to_lowercase(),
                ));
            }
            TurnEvent::TurnOpened { .. } | TurnEvent::TurnSettled => {}
        }
    }

    pub(super) fn apply_loop(&mut self, event: &LoopEvent) {
        match event {
            LoopEvent::UserMessage { text, steering, .. } => {
                let text = text.clone().unwrap_or_else(|| "(not shown)".to_owned());
                self.items.push(Item::User {
                    text,
                    steering: *steering,
                });
                self.end = None;
            }
            LoopEvent::InferenceStarted { .. } => {
                self.asking = true;
                self.coming.clear();
                self.thinking.clear();
            }
            LoopEvent::InferenceFinished { text, .. } => {
                self.asking = false;
                self.coming.clear();
                self.thinking.clear();
                self.items.extend(
                    text.clone()
                        .filter(|text| !text.trim().is_empty())
                        .map(Item::Model),
                );
            }
            LoopEvent::InferenceFailed {
                error, retry_in_ms, ..
            } => {
                self.asking = false;
                let again =
                    retry_in_ms.map(|ms| format!("; asking again in {} s", ms.div_ceil(1000)));
                self.items.push(Item::Note(format!(
                    "the model did not reply: {error}{}",
                    again.unwrap_or_default()
                )));
            }
            LoopEvent::ModelRouted(routed) => self.model = Some(routed.selected.to_string().into()),
            LoopEvent::HistoryCompacted { skipped, kept } => {
                self.items.push(Item::Note(format!(
                    "the first {skipped} messages are left out, {kept} are kept"
                )));
            }
            LoopEvent::SkillLoaded { skill, .. } => self
                .items
                .push(Item::Note(format!("loaded the skill {skill}"))),
            LoopEvent::BudgetAlert {
                budget,
                percent,
                spent,
                limit,
                ..
            } => {
                self.items.push(Item::Note(format!(
                    "{percent} % of {budget} is used: {spent} of {limit}"
                )));
            }
            LoopEvent::RecursiveIteration {
                iteration,
                max,
                summary,
                ..
            } => {
                self.items
                    .push(Item::Note(format!("step {iteration} of {max}: {summary}")));
            }
            LoopEvent::RunEnded { end, error, .. } => {
                (self.asking, self.end) = (false, Some(*end));
                self.items.extend(
                    error
                        .clone()
                        .map(|error| Item::Note(format!("{end}: {error}"))),
                );
            }
        }
    }

    pub(super) fn piece(&mut self, delta: &Delta) {
        match delta {
            Delta::Text(text) => self.coming.push_str(text),
            Delta::Reasoning(text) => self.thinking.push_str(text),
            Delta::Routed(_) | Delta::Call { .. } | Delta::Arguments { .. } | Delta::Done(_) => {}
        }
    }
}
