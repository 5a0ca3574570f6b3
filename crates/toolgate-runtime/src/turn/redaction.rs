//! Limits what events show of texts and values: redacted, bounded, or withheld.

use serde_json::Value;
use toolgate_core::{
    Arguments, FileChange, InvalidLabel, Json, Labels, Notes, SessionEvent, ToolEvent,
    run_contained_sync,
};

use crate::turn::DispatcherShared;

impl DispatcherShared {
    /// The largest value that an event shows; larger ones are named by digest and size only.
    const SHOWN_BYTES: usize = 64 * 1024;

    /// The longest text that an event shows.
    const SAID_BYTES: usize = 16 * 1024;

    /// The longest text for the model that an event shows beside the result.
    const MODEL_TEXT_BYTES: usize = 2 * 1024;

    /// The most changed files that an event lists, and the most bytes of their paths.
    const MAX_CHANGES: usize = 100;
    const CHANGES_BYTES: usize = 16 * 1024;

    /// Returns what an event may show of a value: a redacted copy, or nothing.
    pub(crate) fn visible_json(&self, value: &Json) -> Option<Json> {
        if value.size() > Self::SHOWN_BYTES {
            return None;
        }
        match &self.redactor {
            // A redactor that panics has redacted nothing, so the value is withheld.
            Some(redactor) => run_contained_sync(|| redactor.redact(value).ok())
                .ok()
                .flatten(),
            None => Some(value.clone()),
        }
    }

    pub(crate) fn visible_value(&self, value: &Value) -> Option<Value> {
        let json = Json::new(value.clone()).ok()?;
        self.visible_json(&json).map(|json| json.as_value().clone())
    }

    pub(crate) fn visible_arguments(&self, arguments: &Arguments) -> Option<Arguments> {
        self.visible_json(arguments.as_json())
            .and_then(|json| Arguments::try_from(json).ok())
    }

    /// Returns what an event may show of a text.
    pub(crate) fn visible_text(&self, text: &str) -> String {
        self.visible_message(text).0
    }

    /// Returns what an event may show of a message, and its whole length if that is only the
    /// beginning.
    pub(crate) fn visible_message(&self, text: &str) -> (String, Option<u64>) {
        let said = match &self.redactor {
            Some(redactor) => run_contained_sync(|| redactor.redact_text(text).ok())
                .ok()
                .flatten(),
            None => Some(text.to_owned()),
        };
        // An empty text would hide that something was withheld.
        let mut said = said
            .filter(|said| !said.trim().is_empty())
            .unwrap_or_else(|| "(withheld)".to_owned());
        let whole = said.len();
        said.truncate(said.floor_char_boundary(Self::SAID_BYTES));
        let cut = (said.len() < whole).then_some(whole as u64);
        (said, cut)
    }

    /// Returns `labels` with more of them. Values are redacted here, because labels are part of
    /// events, receipts and spans.
    pub(crate) fn add_labels(
        &self,
        labels: &Labels,
        more: &[(String, String)],
    ) -> Result<Labels, InvalidLabel> {
        // Checked first: a redacted value may be longer or shorter.
        Labels::new(more.iter().map(|(name, value)| (name, value)))?;
        let visible = more.iter().map(|(name, value)| {
            let mut shown = self.visible_text(value);
            shown.truncate(shown.floor_char_boundary(Labels::MAX_VALUE_BYTES));
            (name, shown)
        });
        labels.with(visible)
    }

    /// Returns how much of a text that is still arriving can be redacted and shown now.
    pub(crate) fn safe_prefix(&self, text: &str) -> usize {
        let Some(redactor) = &self.redactor else {
            return text.len();
        };
        // One that panics has said nothing.
        let safe = run_contained_sync(|| redactor.safe_prefix(text)).unwrap_or(0);
        text.floor_char_boundary(safe)
    }

    /// Returns what a screen may show of a piece of a reply; nothing if it cannot be redacted.
    pub(crate) fn redact_piece(&self, text: &str) -> Option<String> {
        match &self.redactor {
            Some(redactor) => run_contained_sync(|| redactor.redact_text(text).ok())
                .ok()
                .flatten(),
            None => Some(text.to_owned()),
        }
    }

    /// Returns the event with its texts redacted.
    pub(crate) fn redact_event(&self, mut event: ToolEvent) -> ToolEvent {
        let words = match &mut event {
            ToolEvent::ToolDenied { reason, error, .. } => [reason.as_mut(), error.as_mut()],
            ToolEvent::ToolExecutionFailed { error, .. } => [Some(error), None],
            ToolEvent::ToolExecutionInterrupted { reason, .. } => [Some(reason), None],
            ToolEvent::ToolSkipped { reason } | ToolEvent::ToolApproved { reason, .. } => {
                [reason.as_mut(), None]
            }
            ToolEvent::ToolExecutionSucceeded { model_text, .. } => [model_text.as_mut(), None],
            ToolEvent::ToolToast(toast) => [Some(&mut toast.title), Some(&mut toast.message)],
            _ => [None, None],
        };
        words
            .into_iter()
            .flatten()
            .for_each(|text| *text = self.visible_text(text));
        if let ToolEvent::ToolExecutionSucceeded {
            model_text: Some(text),
            ..
        } = &mut event
        {
            // Truncated last: a detector does not recognise half a secret.
            text.truncate(text.floor_char_boundary(Self::MODEL_TEXT_BYTES));
        }
        event
    }

    /// Returns the changes with redacted paths as an event, limited in number and bytes.
    pub(crate) fn files_event(&self, changes: Vec<FileChange>, omitted: u64) -> ToolEvent {
        let mut room = Self::CHANGES_BYTES;
        let mut listed = Vec::new();
        let all = changes.len();
        for mut change in changes.into_iter().take(Self::MAX_CHANGES) {
            change.path = self.visible_text(&change.path);
            change.old_path = change.old_path.map(|path| self.visible_text(&path));
            let bytes = change.path.len() + change.old_path.as_ref().map_or(0, String::len);
            let Some(left) = room.checked_sub(bytes) else {
                break;
            };
            room = left;
            listed.push(change);
        }
        ToolEvent::ToolFilesChanged {
            omitted: omitted + (all - listed.len()) as u64,
            changes: listed,
        }
    }

    /// Returns the event with the model's notes redacted.
    pub(crate) fn redact_strategy_event(&self, mut event: SessionEvent) -> SessionEvent {
        if let SessionEvent::RecursiveIteration {
            summary,
            scratchpad,
            ..
        } = &mut event
        {
            let words = [summary, scratchpad]
                .into_iter()
                .filter(|text| !text.is_empty());
            words.for_each(|text| *text = self.visible_text(text));
        }
        event
    }

    /// Returns the notes of a call as an event, redacted; nothing if they cannot be redacted.
    pub(crate) fn audit_event(&self, notes: &Notes) -> Option<ToolEvent> {
        if self.redactor.is_none() {
            return Some(ToolEvent::ToolCallAudit {
                audit: notes.clone(),
            });
        }
        let value = serde_json::to_value(notes).ok()?;
        let audit = serde_json::from_value(self.visible_value(&value)?).ok()?;
        Some(ToolEvent::ToolCallAudit { audit })
    }
}
