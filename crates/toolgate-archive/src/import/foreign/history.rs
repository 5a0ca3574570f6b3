//! The events and records of imported messages.
//!
//! A message of the user or the model has the ordinary event of its kind, so that lists, screens and
//! search show it. Calls and results have events of their own, which say that another program made
//! them: there is no `tool_requested` or `tool_execution_started`, because no gate decided on them, and
//! no receipt.

use std::{collections::HashMap, sync::Arc};

use toolgate_core::{
    Cost, Event, FinishReason, Json, Labels, Message, MessagePart, MessageRecord, PartContent,
    RecordKey, Redactor, Role, SessionEvent, SessionId, StoreRecord, Timestamp, ToolAnswer,
    ToolRequest, TurnId, TurnInfo, WriteBatch, run_contained_sync,
};

use super::{
    ForeignFormat, ForeignMessage, ForeignPart, ForeignRole,
    store::{derived_uuid, last_time},
};
use crate::redaction::{redact_json, redact_text};

/// The longest text and the largest value that an event shows, as for our own events.
const SAID_BYTES: usize = 16 * 1024;
const SHOWN_BYTES: usize = 64 * 1024;

/// The longest name of a tool or model.
const NAME_BYTES: usize = 200;

/// The text in place of one that could not be redacted.
const WITHHELD: &str = "(withheld)";

/// Builds the events and records of messages.
pub(super) struct HistoryWriter<'a> {
    session: SessionId,
    labels: Labels,
    redactor: &'a dyn Redactor,
    tools: HashMap<String, String>,
    turn: TurnId,
    message: u64,
    sequence: u64,
    at: Timestamp,
    batch: WriteBatch,
    pub(super) warnings: Vec<String>,
}

impl<'a> HistoryWriter<'a> {
    pub(super) fn new(
        session: SessionId,
        format: ForeignFormat,
        redactor: &'a dyn Redactor,
        tools: HashMap<String, String>,
    ) -> Self {
        let labels = Labels::new([("imported_from", format.as_str())]);
        Self {
            session,
            labels: labels.expect("the word for a format is a valid label"),
            redactor,
            tools,
            turn: TurnId::new(derived_uuid(session, "turn", 0)),
            message: 0,
            sequence: 0,
            at: Timestamp::EPOCH,
            batch: WriteBatch::default(),
            warnings: Vec::new(),
        }
    }

    /// Continues after messages that are stored already.
    pub(super) fn begin(
        &mut self,
        known: &[ForeignMessage],
        messages: u64,
        revision: u64,
        now: Timestamp,
    ) {
        self.message = messages;
        self.sequence = revision;
        // A message without a time has that of the one before it; the first, that of the import.
        self.at = last_time(known).unwrap_or(now);
        // Results continue the turn of the message that asked for them.
        let number = known
            .iter()
            .rposition(|message| message.role != ForeignRole::Tool);
        if let Some(number) = number {
            self.turn = TurnId::new(derived_uuid(self.session, "turn", number as u64));
        }
    }

    pub(super) fn take_batch(&mut self) -> WriteBatch {
        std::mem::take(&mut self.batch)
    }

    pub(super) fn add_message(&mut self, message: &ForeignMessage) {
        let number = self.message;
        self.message += 1;
        self.at = message.at.unwrap_or(self.at);
        if message.role != ForeignRole::Tool {
            self.turn = TurnId::new(derived_uuid(self.session, "turn", number));
        }
        let parts: Vec<_> = message
            .parts
            .iter()
            .map(|part| self.convert_part(part))
            .collect();
        let role = match message.role {
            ForeignRole::User => Role::User,
            ForeignRole::Assistant => Role::Assistant,
            ForeignRole::Tool => Role::Tool,
        };
        let stored = Message::new(role, parts);
        self.add_events(number, message, &stored);
        let mut record = MessageRecord::new(self.turn, 0, 0, Arc::new(stored));
        record.usage = message.usage;
        let key = RecordKey::Message(self.session, number);
        self.batch
            .records
            .push((key, StoreRecord::Message(Arc::new(record))));
    }

    fn add_events(&mut self, number: u64, message: &ForeignMessage, stored: &Message) {
        let model = message.model.as_deref().map(|model| self.name(model));
        let (text, text_bytes) = bounded(stored.text());
        match message.role {
            ForeignRole::User => self.add_event(
                model.clone(),
                SessionEvent::UserMessage {
                    message: number,
                    text: Some(text),
                    text_bytes,
                    steering: false,
                },
            ),
            ForeignRole::Assistant => {
                let calls = stored.calls().count();
                let finish = if calls > 0 {
                    FinishReason::Calls
                } else {
                    FinishReason::Other
                };
                self.add_event(
                    model.clone(),
                    SessionEvent::InferenceFinished {
                        message: number,
                        text: Some(text),
                        text_bytes,
                        calls: u32::try_from(calls).unwrap_or(u32::MAX),
                        finish,
                        usage: message.usage,
                        cost: Cost::Unknown,
                    },
                );
            }
            ForeignRole::Tool => {}
        }
        for part in &stored.parts {
            if let Some(event) = call_event(number, &part.content) {
                self.add_event(model.clone(), event);
            }
        }
    }

    fn add_event(&mut self, model: Option<String>, event: SessionEvent) {
        self.sequence += 1;
        let mut info = TurnInfo::new(self.session, self.turn);
        info.model = model.map(Into::into);
        info.labels = self.labels.clone();
        let event = Event::for_run(self.sequence, self.at, Arc::new(info), event);
        let event = event.expect("the ids are derived and not nil");
        self.batch.events.push(Arc::new(event));
    }

    /// Returns a part with its texts redacted.
    fn convert_part(&mut self, part: &ForeignPart) -> MessagePart {
        let content = match part {
            ForeignPart::Text(text) => PartContent::Text(self.redact(text)),
            ForeignPart::Reasoning(text) => PartContent::Reasoning(self.redact(text)),
            ForeignPart::Call {
                label,
                tool,
                arguments,
            } => {
                let json = Json::new(arguments.clone()).ok();
                let shown = json.and_then(|json| {
                    let redacted = run_contained_sync(|| redact_json(self.redactor, &json).ok());
                    redacted.ok().flatten()
                });
                if shown.is_none() {
                    self.warn_withheld();
                }
                let shown = shown.unwrap_or_else(|| Json::from(WITHHELD));
                let mut request = ToolRequest::from_text(&self.name(label), &self.name(tool), "");
                request.arguments = toolgate_core::RawArguments::Json(shown);
                PartContent::Call(request)
            }
            ForeignPart::Result {
                label,
                text,
                is_error,
            } => {
                let tool = self.tools.get(label).cloned().unwrap_or_default();
                PartContent::Result(ToolAnswer {
                    call_id: self.name(label),
                    tool: self.name(&tool),
                    text: self.redact(text),
                    is_error: *is_error,
                    media: Vec::new(),
                })
            }
        };
        content.into()
    }

    fn redact(&mut self, text: &str) -> String {
        let redacted = run_contained_sync(|| redact_text(self.redactor, text).ok());
        redacted.ok().flatten().unwrap_or_else(|| {
            self.warn_withheld();
            WITHHELD.to_owned()
        })
    }

    /// Returns a short name: that of a tool, a model or a call.
    fn name(&mut self, text: &str) -> String {
        let mut name = self.redact(text);
        name.truncate(name.floor_char_boundary(NAME_BYTES));
        name
    }

    fn warn_withheld(&mut self) {
        let number = self.message;
        let what = format!("message {number}: a part could not be redacted and was withheld");
        if self.warnings.last() != Some(&what) {
            self.warnings.push(what);
        }
    }
}

/// Returns the event of a call or a result.
fn call_event(message: u64, content: &PartContent) -> Option<SessionEvent> {
    match content {
        PartContent::Call(request) => {
            let arguments = match &request.arguments {
                toolgate_core::RawArguments::Json(json) => Some(json.clone()),
                toolgate_core::RawArguments::Text(_) => None,
            };
            Some(SessionEvent::ImportedCall {
                message,
                label: request.provider_call_id.clone(),
                tool: request.tool.clone(),
                arguments: arguments
                    .filter(|json| !json.as_value().is_null() && json.size() <= SHOWN_BYTES),
            })
        }
        PartContent::Result(answer) => {
            let (text, text_bytes) = bounded(answer.text.clone());
            Some(SessionEvent::ImportedResult {
                message,
                label: answer.call_id.clone(),
                tool: answer.tool.clone(),
                text: Some(text),
                text_bytes,
                is_error: answer.is_error,
            })
        }
        PartContent::Text(_)
        | PartContent::Reasoning(_)
        | PartContent::Media(_)
        | PartContent::Ran(_)
        | PartContent::Opaque => None,
    }
}

/// Returns what an event shows of a redacted text, and its whole length if that is only the
/// beginning.
fn bounded(mut text: String) -> (String, Option<u64>) {
    let whole = text.len();
    text.truncate(text.floor_char_boundary(SAID_BYTES));
    let cut = (text.len() < whole).then_some(whole as u64);
    (text, cut)
}
