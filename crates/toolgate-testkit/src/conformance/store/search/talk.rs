//! A session with messages and calls, for the rules of search.

use std::sync::Arc;

use serde_json::json;
use toolgate_core::{
    AgentId, CallId, Cost, Digest, ErrorCategory, Event, FinishReason, IdSource, Invocation, Json,
    LogPosition, SessionEvent, SessionId, Status, StoreHandle, Timestamp, ToolEvent, TurnId,
    TurnInfo, WriteBatch,
};

use crate::conformance::store::{ENDED_TERM, error_text, event_batch, lease_request};

/// A session whose event n happens n days after the beginning of time.
pub(super) struct Talk<'a> {
    store: &'a StoreHandle,
    pub(super) session: SessionId,
    turn: Arc<TurnInfo>,
    call: CallId,
    fence: u64,
}

impl<'a> Talk<'a> {
    pub(super) fn new(store: &'a StoreHandle, ids: &dyn IdSource) -> Self {
        let session = SessionId::from_source(ids);
        let mut turn = TurnInfo::new(session, TurnId::from_source(ids));
        turn.agent_id = Some(AgentId::from("a1"));
        turn.agent_name = Some("scout".into());
        // As the runtime writes it: the provider is not part of the name, which may have a colon.
        turn.provider = Some("far".into());
        turn.model = Some("big:1".into());
        Self {
            store,
            session,
            turn: Arc::new(turn),
            call: CallId::from_source(ids),
            fence: 0,
        }
    }

    /// Makes it a session of a directory.
    pub(super) async fn in_directory(mut self, directory: &str) -> Result<Self, String> {
        let mut request = lease_request(self.session, "driver", ENDED_TERM);
        request.directory = Some(directory.into());
        let lease = self
            .store
            .acquire_lease(request)
            .await
            .map_err(error_text)?;
        self.store.release_lease(&lease).await.map_err(error_text)?;
        self.fence = lease.fence;
        Ok(self)
    }

    pub(super) async fn user(&self, n: u64, text: &str) -> Result<(), String> {
        self.append(vec![self.user_event(n, text)]).await
    }

    pub(super) async fn many_users(&self, texts: &[String]) -> Result<(), String> {
        let events = (1..).zip(texts).map(|(n, text)| self.user_event(n, text));
        self.append(events.collect()).await
    }

    pub(super) async fn assistant(&self, n: u64, text: &str) -> Result<(), String> {
        let event = SessionEvent::InferenceFinished {
            message: n,
            text: Some(text.into()),
            text_bytes: None,
            calls: 0,
            finish: FinishReason::Stop,
            usage: None,
            cost: Cost::Unknown,
        };
        let event = Event::for_run(n, day(n), self.turn.clone(), event).expect("a valid event");
        self.append(vec![Arc::new(event)]).await
    }

    pub(super) async fn call(&self, n: u64, tool: &str, text: &str) -> Result<(), String> {
        let arguments = Json::new(json!({ "command": text })).expect("shallow");
        let event = ToolEvent::ToolRequested {
            arguments_digest: arguments.digest(),
            arguments_bytes: 1,
            arguments: Some(arguments),
            executor: None,
        };
        self.tool(n, tool, event).await
    }

    pub(super) async fn succeeded(&self, n: u64, tool: &str, text: &str) -> Result<(), String> {
        let event = ToolEvent::ToolExecutionSucceeded {
            result: Some(Json::from(text)),
            result_digest: Digest::of_bytes(text.as_bytes()),
            result_bytes: 1,
            model_bytes: 1,
            model_text: None,
            attempts: 1,
            cached: false,
            duration_ms: 1,
        };
        self.tool(n, tool, event).await
    }

    pub(super) async fn failed(&self, n: u64, tool: &str, text: &str) -> Result<(), String> {
        let event = ToolEvent::ToolExecutionFailed {
            status: Status::ExecutorError,
            error: text.into(),
            category: ErrorCategory::NotFound,
            attempts: 1,
            duration_ms: 1,
        };
        self.tool(n, tool, event).await
    }

    fn user_event(&self, n: u64, text: &str) -> Arc<Event> {
        let event = SessionEvent::UserMessage {
            message: n,
            text: Some(text.into()),
            text_bytes: None,
            steering: false,
        };
        Arc::new(Event::for_run(n, day(n), self.turn.clone(), event).expect("a valid event"))
    }

    async fn tool(&self, n: u64, tool: &str, event: ToolEvent) -> Result<(), String> {
        let head = Invocation {
            id: self.call,
            call_id: "c".into(),
            tool: tool.into(),
            emit_order: 0,
            turn: self.turn.clone(),
        };
        let event = Event::for_invocation(n, day(n), Arc::new(head), event).expect("a valid event");
        self.append(vec![Arc::new(event)]).await
    }

    async fn append(&self, events: Vec<Arc<Event>>) -> Result<(), String> {
        let revision = self
            .store
            .revision(self.session)
            .await
            .map_err(error_text)?;
        let position = LogPosition {
            fence: self.fence,
            ..LogPosition::unleased(revision)
        };
        let batch: WriteBatch = event_batch(events);
        let appended = self.store.append(self.session, position, batch).await;
        appended.map(drop).map_err(error_text)
    }
}

fn day(n: u64) -> Timestamp {
    let day = 86_400 * 1_000_000;
    Timestamp::from_micros(i64::try_from(n).expect("few events") * day)
}
