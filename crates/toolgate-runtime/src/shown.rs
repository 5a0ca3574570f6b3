//! What events may show of what people, models and tools say: redacted, bounded, or nothing.

use serde_json::Value;
use toolgate_core::{Arguments, Json, LoopEvent, Notes, ToolEvent, contained_sync};

use crate::dispatch::Shared;

impl Shared {
    /// The largest value that is put into an event; larger ones are named by digest and size only.
    const SHOWN_BYTES: usize = 64 * 1024;

    /// The longest text that is put into an event.
    const SAID_BYTES: usize = 16 * 1024;

    /// What an event may show of a value: a redacted copy, or nothing.
    pub(crate) fn shown(&self, value: &Json) -> Option<Json> {
        if value.size() > Self::SHOWN_BYTES {
            return None;
        }
        match &self.redactor {
            // A redactor that panics has redacted nothing.
            Some(redactor) => contained_sync(|| redactor.redact(value).ok())
                .ok()
                .flatten(),
            None => Some(value.clone()),
        }
    }

    pub(crate) fn shown_value(&self, value: &Value) -> Option<Value> {
        let json = Json::new(value.clone()).ok()?;
        self.shown(&json).map(|json| json.as_value().clone())
    }

    pub(crate) fn shown_arguments(&self, arguments: &Arguments) -> Option<Arguments> {
        self.shown(arguments.as_json())
            .and_then(|json| Arguments::try_from(json).ok())
    }

    /// What an event may say in words.
    pub(crate) fn said_text(&self, text: &str) -> String {
        let said = match &self.redactor {
            Some(redactor) => contained_sync(|| redactor.redact_text(text).ok())
                .ok()
                .flatten(),
            None => Some(text.to_owned()),
        };
        let mut said = said
            .filter(|said| !said.trim().is_empty())
            .unwrap_or_else(|| "(withheld)".to_owned());
        said.truncate(said.floor_char_boundary(Self::SAID_BYTES));
        said
    }

    /// The same event with its words redacted.
    pub(crate) fn said(&self, mut event: ToolEvent) -> ToolEvent {
        let words = match &mut event {
            ToolEvent::ToolDenied { reason, error, .. } => [reason.as_mut(), error.as_mut()],
            ToolEvent::ToolExecutionFailed { error, .. } => [Some(error), None],
            ToolEvent::ToolExecutionInterrupted { reason, .. } => [Some(reason), None],
            ToolEvent::ToolSkipped { reason } => [reason.as_mut(), None],
            _ => [None, None],
        };
        words
            .into_iter()
            .flatten()
            .for_each(|text| *text = self.said_text(text));
        event
    }

    /// The same event with what a model noted down redacted.
    pub(crate) fn said_by_strategy(&self, mut event: LoopEvent) -> LoopEvent {
        if let LoopEvent::RecursiveIteration {
            summary,
            scratchpad,
            ..
        } = &mut event
        {
            let words = [summary, scratchpad]
                .into_iter()
                .filter(|text| !text.is_empty());
            words.for_each(|text| *text = self.said_text(text));
        }
        event
    }

    /// The notes of a call as an event, redacted; none if that cannot be made sure.
    pub(crate) fn audit(&self, notes: &Notes) -> Option<ToolEvent> {
        if self.redactor.is_none() {
            return Some(ToolEvent::ToolCallAudit {
                audit: notes.clone(),
            });
        }
        let value = serde_json::to_value(notes).ok()?;
        let audit = serde_json::from_value(self.shown_value(&value)?).ok()?;
        Some(ToolEvent::ToolCallAudit { audit })
    }
}
