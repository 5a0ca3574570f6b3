//! One session as a screen shows it: messages, calls, and what is in progress.

use std::sync::Arc;

use toolgate::{
    RunEnd,
    event::{SessionEvent, TurnEvent},
    model::{Delta, ModelErrorKind},
    stack::TurnInfo,
    value::{CallId, SessionId},
};

use crate::env::ids;

/// A session: the one that was opened, or that of an agent it delegates to.
#[derive(Debug, Clone)]
pub struct AgentView {
    /// The session's id.
    pub session: SessionId,
    /// The agent's name; `None` for the session that was opened.
    pub name: Option<Arc<str>>,
    /// Messages and calls, in order.
    pub items: Vec<ConversationItem>,
    /// The reply that is still streaming.
    pub coming: String,
    /// The model's reasoning so far, if the provider sends it.
    pub thinking: String,
    /// The reply that is streaming, or the end of the last one, by the number of an event. Pieces of
    /// replies with a lower number are void.
    pub reply: u64,
    /// True if the reply before the streaming one has not ended in the log, although it had begun.
    broke_off: bool,
    /// The model that was last called.
    pub model: Option<Arc<str>>,
    /// True while a model request is in flight.
    pub asking: bool,
    /// The iteration of the run.
    pub iteration: u32,
    /// The reason why its run ended, if it has.
    pub end: Option<RunEnd>,
    /// The position of the note that says why its last run ended, if there is one.
    pub(crate) end_note: Option<usize>,
    /// The number of the last event that was applied.
    pub(super) last_sequence: u64,
}

/// A message, a call or a note in the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversationItem {
    /// A message of the user; `steering` if it was sent during a run.
    User {
        /// The message text.
        text: String,
        /// True if it was sent during a run.
        steering: bool,
    },
    /// A message of the model.
    Model(String),
    /// A call that the model requested.
    Call(CallId),
    /// Other information for the user.
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
            reply: 0,
            broke_off: false,
            model: None,
            asking: false,
            iteration: turn.iteration,
            end: None,
            end_note: None,
            last_sequence: 0,
        }
    }

    /// Checks whether a run is in progress in it.
    pub fn is_busy(&self) -> bool {
        self.end.is_none() && !self.items.is_empty()
    }

    pub(super) fn add_call(&mut self, call: CallId) {
        self.items.push(ConversationItem::Call(call));
    }

    pub(super) fn apply_turn(&mut self, event: &TurnEvent) {
        match event {
            TurnEvent::TurnInterrupted { reason } => self
                .items
                .push(ConversationItem::Note(format!("interrupted: {reason}"))),
            TurnEvent::InputRejected { what, code, .. } => {
                self.items.push(ConversationItem::Note(
                    format!("rejected a {what:?}: not expected ({code:?})").to_lowercase(),
                ));
            }
            TurnEvent::TurnOpened { .. } | TurnEvent::TurnSettled => {}
        }
    }

    pub(super) fn apply_loop(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::UserMessage { text, steering, .. } => {
                let text = text.clone().unwrap_or_else(|| "(not shown)".to_owned());
                self.items.push(ConversationItem::User {
                    text,
                    steering: *steering,
                });
                // A message starts the next run, or steers one that has not ended.
                self.end = None;
            }
            SessionEvent::InferenceStarted { .. } => {
                // The fragments of a request that failed are void: a retry streams the whole reply
                // again. Those of this request may have arrived before the event, and stay.
                self.asking = true;
                self.begin_reply(self.last_sequence);
            }
            SessionEvent::InferenceFinished {
                text, text_bytes, ..
            } => self.finish_reply(text.as_deref(), *text_bytes),
            SessionEvent::InferenceFailed {
                code, retry_in_ms, ..
            } => self.fail_reply(*code, *retry_in_ms),
            SessionEvent::ModelRouted(routed) => {
                self.model = Some(routed.selected.to_string().into())
            }
            SessionEvent::HistoryCompacted { .. }
            | SessionEvent::SkillLoaded { .. }
            | SessionEvent::MemoryRecalled { .. }
            | SessionEvent::BudgetAlert(_)
            | SessionEvent::ImportedCall { .. }
            | SessionEvent::ImportedResult { .. }
            | SessionEvent::RecursiveIteration { .. } => {
                let note = describe_step(event);
                self.items.extend(note.map(ConversationItem::Note));
            }
            SessionEvent::RunEnded { end, error, .. } => {
                self.asking = false;
                self.end = Some(*end);
                if let Some(error) = error {
                    self.end_note = Some(self.items.len());
                    self.items
                        .push(ConversationItem::Note(format!("{end}: {error}")));
                }
            }
        }
    }

    /// Adds the whole reply, which replaces its fragments.
    fn finish_reply(&mut self, text: Option<&str>, text_bytes: Option<u64>) {
        self.asking = false;
        self.begin_reply(self.last_sequence);
        self.broke_off = false;
        // A reply that only requests calls has no text.
        let text = text.filter(|text| !text.trim().is_empty());
        self.items
            .extend(text.map(|text| ConversationItem::Model(text.to_owned())));
        self.items.extend(text_bytes.map(|bytes| {
            ConversationItem::Note(format!("truncated; the whole text has {bytes} bytes"))
        }));
    }

    /// Notes that a request failed and is sent again. Without a retry the run ends, and its end gives
    /// the same error.
    fn fail_reply(&mut self, code: ModelErrorKind, retry_in_ms: Option<u64>) {
        self.asking = false;
        let broke_off = if self.reply < self.last_sequence {
            !self.coming.is_empty()
        } else {
            std::mem::take(&mut self.broke_off)
        };
        let note = retry_in_ms.map(|delay| retry_note(code, delay, broke_off));
        self.items.extend(note.map(ConversationItem::Note));
    }

    /// Discards the text of the replies before the one with this number.
    fn begin_reply(&mut self, number: u64) {
        if number > self.reply {
            self.reply = number;
            self.coming.clear();
            self.thinking.clear();
        }
    }

    /// Applies a fragment of the reply that was asked for after event `after`. Fragments and events
    /// may arrive in any order, but each kind arrives in its own.
    pub(super) fn apply_delta(&mut self, after: u64, delta: &Delta) {
        // The log has the whole reply already, or the request failed and was sent again.
        if after < self.reply {
            return;
        }
        if after > self.reply {
            self.asking = true;
            self.broke_off = !self.coming.is_empty();
            self.begin_reply(after);
        }
        match delta {
            Delta::Text(text) => self.coming.push_str(text),
            Delta::Reasoning(text) => self.thinking.push_str(text),
            // The events of a retry void the fragments.
            Delta::Retry(_)
            | Delta::Routed(_)
            | Delta::Call { .. }
            | Delta::Arguments { .. }
            | Delta::Done(_) => {}
        }
    }
}

/// Returns the line about an event that changes nothing but the conversation.
fn describe_step(event: &SessionEvent) -> Option<String> {
    Some(match event {
        SessionEvent::HistoryCompacted { skipped, kept } => {
            format!("history compacted: the first {skipped} messages are left out, {kept} remain")
        }
        SessionEvent::SkillLoaded { skill, .. } => format!("loaded the skill {skill}"),
        SessionEvent::MemoryRecalled { memories, tokens } => {
            let count = count_memories(memories.len());
            let ids: Vec<String> = memories.iter().map(ids::short_id).collect();
            let ids = ids.join(", ");
            format!(
                "recalled {count} ({ids}; about {tokens} tokens); `toolgate memory why ID` shows a source"
            )
        }
        SessionEvent::BudgetAlert(alert) => format!(
            "{} % of {} is used: {} of {}",
            alert.percent, alert.budget, alert.spent, alert.limit
        ),
        SessionEvent::RecursiveIteration {
            iteration,
            max,
            summary,
            ..
        } => format!("step {iteration} of {max}: {summary}"),
        SessionEvent::ImportedCall {
            tool, arguments, ..
        } => {
            let arguments = arguments.as_ref().map(ToString::to_string);
            format!("{tool} {}", arguments.unwrap_or_default())
        }
        SessionEvent::ImportedResult {
            tool,
            text,
            is_error,
            ..
        } => {
            let state = if *is_error { "failed" } else { "result" };
            format!(
                "{tool}, {state}: {}",
                text.as_deref().unwrap_or("(not shown)")
            )
        }
        SessionEvent::UserMessage { .. }
        | SessionEvent::InferenceStarted { .. }
        | SessionEvent::InferenceFinished { .. }
        | SessionEvent::InferenceFailed { .. }
        | SessionEvent::ModelRouted(_)
        | SessionEvent::RunEnded { .. } => return None,
    })
}

fn count_memories(count: usize) -> String {
    match count {
        1 => "1 memory".to_owned(),
        more => format!("{more} memories"),
    }
}

/// Returns the line about a request that is sent again.
fn retry_note(code: ModelErrorKind, delay_ms: u64, broke_off: bool) -> String {
    let what = match code {
        ModelErrorKind::RateLimited => "rate limited".to_owned(),
        other => other.to_string(),
    };
    let void = if broke_off {
        " (the text above is void)"
    } else {
        ""
    };
    match delay_ms {
        0 => format!("{what}, asking another model{void}"),
        delay => format!("{what}, retrying in {} s{void}", delay.div_ceil(1000)),
    }
}
