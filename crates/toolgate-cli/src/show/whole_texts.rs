//! The whole texts of long messages: their events carry the beginning, and their records all of it.

use std::sync::Arc;

use toolgate::{
    Event, Gate,
    event::SessionEvent,
    store::{RecordKey, StoreError, StoreHandle, StoreRecord},
};

/// Loads the whole texts of messages, redacted as events are.
#[derive(Clone, Copy)]
pub(crate) struct WholeTexts<'a> {
    store: &'a StoreHandle,
    gate: &'a Gate,
}

impl<'a> WholeTexts<'a> {
    /// Loads from `store` and redacts with the redactor of `gate`.
    pub(crate) fn new(store: &'a StoreHandle, gate: &'a Gate) -> Self {
        Self { store, gate }
    }

    /// Returns the event with the whole text of its message. Every other event is returned as it is,
    /// and so is the event of a message that is gone.
    pub(crate) async fn complete(&self, event: Arc<Event>) -> Result<Arc<Event>, StoreError> {
        let Some(message) = cut_message(&event) else {
            return Ok(event);
        };
        let turn = event.turn_info().clone();
        let key = RecordKey::Message(turn.session, message);
        let Some(StoreRecord::Message(record)) = self.store.load_record(&key).await? else {
            return Ok(event);
        };
        let whole = self.gate.redact_text(&record.message.text());
        let mut body = event.as_session().cloned();
        if let Some(
            SessionEvent::UserMessage {
                text, text_bytes, ..
            }
            | SessionEvent::InferenceFinished {
                text, text_bytes, ..
            },
        ) = &mut body
        {
            *text = Some(whole);
            *text_bytes = None;
        }
        let completed =
            body.and_then(|body| Event::for_run(event.sequence(), event.at(), turn, body).ok());
        Ok(completed.map_or(event, Arc::new))
    }
}

/// Returns the number of the message if the event carries only its beginning.
pub(crate) fn cut_message(event: &Event) -> Option<u64> {
    match event.as_session()? {
        SessionEvent::UserMessage {
            message,
            text_bytes: Some(_),
            ..
        }
        | SessionEvent::InferenceFinished {
            message,
            text_bytes: Some(_),
            ..
        } => Some(*message),
        _ => None,
    }
}
