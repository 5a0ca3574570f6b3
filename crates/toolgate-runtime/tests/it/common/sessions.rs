//! Helpers for tests of whole sessions: models that do as they are told, and what is in the store.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test uses its part, and a test has no public items"
)]

use futures::{StreamExt, stream, stream::BoxStream};
use serde_json::Value;
use toolgate_core::{
    AccountRow, Delta, MemoryStore, Message, MessagePart, Model, ModelError, ModelName,
    ModelRequest, PartContent, Reply, Role, SessionEvent, SessionId, StoreHandle, ToolRequest,
};
use toolgate_runtime::{Session, SessionBuilder};
use uuid::Uuid;

pub const SESSION: SessionId = SessionId::new(Uuid::from_u128(7));

pub type Pieces = BoxStream<'static, Result<Delta, ModelError>>;

/// A model that does what a function says. The function gets the number of replies in the
/// conversation so far.
pub struct Odd(ModelName, Box<dyn Fn(usize) -> Pieces + Send + Sync>);

impl Odd {
    pub fn new(reply: impl Fn(usize) -> Pieces + Send + Sync + 'static) -> Self {
        Self(ModelName::new("test", "odd"), Box::new(reply))
    }

    /// Creates a model that says these lines.
    pub fn saying(lines: Vec<Message>) -> Self {
        Self::new(move |at| {
            whole_reply(
                lines
                    .get(at)
                    .cloned()
                    .unwrap_or_else(|| Message::assistant("the end")),
            )
        })
    }
}

impl Model for Odd {
    fn name(&self) -> &ModelName {
        &self.0
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        (self.1)(
            request
                .messages
                .iter()
                .filter(|message| message.role == Role::Assistant)
                .count(),
        )
    }
}

/// Gives a model another name.
pub fn renamed(model: Odd, name: ModelName) -> Odd {
    Odd(name, model.1)
}

/// Returns a reply in one piece.
pub fn whole_reply(message: Message) -> Pieces {
    stream::once(async { Ok(Delta::Done(Box::new(Reply::new(message)))) }).boxed()
}

/// Returns a reply that asks for these calls.
pub fn calling_reply(calls: &[(&str, Value)]) -> Message {
    let parts = calls.iter().zip(0..).map(|((tool, arguments), n)| {
        MessagePart::from(PartContent::Call(ToolRequest::from_json(
            &format!("c{n}"),
            tool,
            arguments.clone(),
        )))
    });
    Message::new(Role::Assistant, parts.collect())
}

/// Opens the session of these tests, taking its lease from any holder.
pub async fn open_session(builder: SessionBuilder, store: &StoreHandle) -> Session {
    let store = store.clone();
    let builder =
        builder.dispatcher(move |dispatcher| dispatcher.store(store).session(SESSION).take_over());
    builder.build().await.expect("opens")
}

pub async fn loop_events(store: &StoreHandle) -> Vec<SessionEvent> {
    let events = store.events(SESSION, 0, 1000).await.expect("reads");
    events
        .iter()
        .filter_map(|event| event.as_session().cloned())
        .collect()
}

pub fn memory_store() -> StoreHandle {
    StoreHandle::new(MemoryStore::new())
}

/// Returns what is spent and what is reserved, by account.
pub async fn spent_accounts(store: &StoreHandle) -> Vec<(String, u64, u64)> {
    let rows = store.accounts("", None, 100).await.expect("lists");
    rows.into_iter()
        .map(
            |AccountRow {
                 account,
                 spent,
                 reserved,
             }| (account.to_string(), spent, reserved),
        )
        .collect()
}
