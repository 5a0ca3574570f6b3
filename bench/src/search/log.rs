//! Writes sessions as a runtime writes them: their events, appended to a store.

use std::sync::Arc;

use toolgate::{
    event::{Cost, Event, InvalidEvent, Invocation, SessionEvent, ToolEvent},
    model::FinishReason,
    stack::{ErrorCategory, Status, TurnInfo},
    store::{LogPosition, StoreHandle, WriteBatch},
    value::{CallId, Digest, Json, SessionId, Timestamp, ToolName, TurnId},
};
use uuid::Uuid;

use super::Fallible;

/// The number of events of one write.
const EVENTS_PER_WRITE: usize = 500;

/// A message, a call or a result.
#[derive(Debug, Clone)]
pub(super) enum LogLine {
    User { text: String },
    Assistant { text: String },
    Call { tool: String, arguments: String },
    Succeeded { tool: String, text: String },
    Failed { tool: String, text: String },
}

impl LogLine {
    /// Returns the words that can be found in it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::User { text } | Self::Assistant { text } => text.clone(),
            Self::Call { tool, arguments } => format!("{tool} {arguments}"),
            Self::Succeeded { text, .. } | Self::Failed { text, .. } => text.clone(),
        }
    }
}

/// A session that is being written.
pub(super) struct SessionLog {
    pub(super) session: SessionId,
    info: Arc<TurnInfo>,
    first: Timestamp,
    written: u64,
    pending: Vec<Arc<Event>>,
}

impl SessionLog {
    /// Begins a session; its number is part of its ids.
    pub(super) fn new(number: u64, first: Timestamp, model: &str) -> Self {
        // The bits of a version 7 id, which have to be set, and the number in front.
        let id = Uuid::from_u128((u128::from(number + 1) << 80) | 0x7000_8000_0000_0000_0000);
        let session = SessionId::new(id);
        let mut info = TurnInfo::new(session, TurnId::new(id));
        info.model = Some(model.into());
        Self {
            session,
            info: Arc::new(info),
            first,
            written: 0,
            pending: Vec::new(),
        }
    }

    /// Adds a line as the next event.
    pub(super) async fn push(&mut self, store: &StoreHandle, line: &LogLine) -> Fallible<()> {
        let sequence = self.written + self.pending.len() as u64 + 1;
        let seconds = i64::try_from(sequence)? * 7;
        let at = Timestamp::from_micros(self.first.as_micros() + seconds * 1_000_000);
        let event = to_event(sequence, at, &self.info, line)?;
        self.pending.push(Arc::new(event));
        if self.pending.len() >= EVENTS_PER_WRITE {
            self.flush(store).await?;
        }
        Ok(())
    }

    /// Writes what is pending.
    pub(super) async fn flush(&mut self, store: &StoreHandle) -> Fallible<()> {
        let events = std::mem::take(&mut self.pending);
        let count = events.len() as u64;
        let batch = WriteBatch {
            events,
            ..WriteBatch::default()
        };
        if count > 0 {
            let position = LogPosition::unleased(self.written);
            store.append(self.session, position, batch).await?;
        }
        self.written += count;
        Ok(())
    }
}

fn to_event(sequence: u64, at: Timestamp, info: &Arc<TurnInfo>, line: &LogLine) -> Fallible<Event> {
    let event = match line {
        LogLine::User { text } => {
            let event = SessionEvent::UserMessage {
                message: sequence,
                text: Some(text.clone()),
                text_bytes: None,
                steering: false,
            };
            Event::for_run(sequence, at, info.clone(), event)
        }
        LogLine::Assistant { text } => {
            let event = SessionEvent::InferenceFinished {
                message: sequence,
                text: Some(text.clone()),
                text_bytes: None,
                calls: 0,
                finish: FinishReason::Stop,
                usage: None,
                cost: Cost::Unknown,
            };
            Event::for_run(sequence, at, info.clone(), event)
        }
        LogLine::Call { tool, arguments } => {
            let event = ToolEvent::ToolRequested {
                arguments: Some(arguments.parse::<Json>()?),
                arguments_digest: Digest::of_bytes(arguments.as_bytes()),
                arguments_bytes: arguments.len() as u64,
                executor: None,
            };
            tool_event(sequence, at, info, tool, event)
        }
        LogLine::Succeeded { tool, text } => {
            let event = ToolEvent::ToolExecutionSucceeded {
                result: Some(Json::from(text.as_str())),
                result_digest: Digest::of_bytes(text.as_bytes()),
                result_bytes: text.len() as u64,
                model_bytes: text.len() as u64,
                model_text: None,
                attempts: 1,
                cached: false,
                duration_ms: 12,
            };
            tool_event(sequence, at, info, tool, event)
        }
        LogLine::Failed { tool, text } => {
            let event = ToolEvent::ToolExecutionFailed {
                status: Status::ExecutorError,
                error: text.clone(),
                category: ErrorCategory::Internal,
                attempts: 1,
                duration_ms: 12,
            };
            tool_event(sequence, at, info, tool, event)
        }
    };
    Ok(event?)
}

fn tool_event(
    sequence: u64,
    at: Timestamp,
    info: &Arc<TurnInfo>,
    tool: &str,
    event: ToolEvent,
) -> Result<Event, InvalidEvent> {
    let session = info.session.uuid().as_u128();
    let invocation = Invocation {
        id: CallId::new(Uuid::from_u128(session | u128::from(sequence))),
        call_id: format!("call_{sequence}").into(),
        tool: ToolName::from(tool),
        emit_order: 0,
        turn: info.clone(),
    };
    Event::for_invocation(sequence, at, Arc::new(invocation), event)
}
