//! A cached effect does not happen again in another process.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use toolgate::{
    Registry, Stack, Status, ToolError,
    layers::{Idempotency, IdempotencyOptions},
    session::{Dispatcher, TurnRequest},
    store::{MemoryStore, StoreHandle},
    tool_fn,
    value::{SessionId, TimeOrderedIds},
};
use toolgate_core::{CallId, ToolRequest};

/// A process of its own: its own layers, on a shared store.
struct OneProcess {
    registry: Registry,
    dispatcher: Dispatcher,
}

impl OneProcess {
    async fn start(store: &StoreHandle, session: SessionId, sent: &Arc<AtomicUsize>) -> Self {
        let registry = Registry::new();
        let sent = sent.clone();
        let tool = tool_fn(
            "send",
            "Sends.",
            move |_: serde_json::Map<String, serde_json::Value>, _cx| {
                let number = sent.fetch_add(1, Ordering::SeqCst) + 1;
                async move { Ok::<_, ToolError>(format!("sent {number}")) }
            },
        );
        registry.register(tool).expect("free");
        let options = IdempotencyOptions {
            writes: true,
            ..IdempotencyOptions::default()
        };
        let layer = Idempotency::new(&options).expect("valid");
        let stack = Stack::over(registry.clone()).layer(layer).build();
        let dispatcher = Dispatcher::builder(stack.expect("in order"))
            .store(store.clone())
            .session(session)
            .take_over()
            .build()
            .await
            .expect("builds");
        Self {
            registry,
            dispatcher,
        }
    }

    /// Calls the tool; returns the text that the model reads, and the id of the call.
    async fn send(&self, body: &str) -> (String, CallId) {
        let arguments = serde_json::json!({ "body": body }).to_string();
        let calls = vec![ToolRequest::from_text("1", "send", &arguments)];
        let view = toolgate_testkit::plain_view(&self.registry);
        let turn = self
            .dispatcher
            .open_turn(TurnRequest::new(view, calls))
            .await;
        let report = turn.expect("opens").run().await.expect("runs");
        let result = &report.results[0];
        assert_eq!(result.status(), Some(Status::Ok));
        let text = result.outcome.as_ref().expect("settled").model_text();
        (text.into_owned(), result.id)
    }
}

#[tokio::test]
async fn a_cached_effect_does_not_happen_again_in_another_process() {
    let store = StoreHandle::new(MemoryStore::new());
    let session = SessionId::from_source(&TimeOrderedIds);
    let sent = Arc::new(AtomicUsize::new(0));
    let first = OneProcess::start(&store, session, &sent).await;
    let (text, _) = first.send("hello").await;
    assert_eq!(text, "sent 1");
    drop(first);
    let second = OneProcess::start(&store, session, &sent).await;
    let (text, _) = second.send("hello").await;
    assert_eq!(text, "sent 1", "the result of the first process");
    let (text, _) = second.send("something else").await;
    assert_eq!(text, "sent 2");
    assert_eq!(sent.load(Ordering::SeqCst), 2);
    // Another session is another user.
    let other = SessionId::from_source(&TimeOrderedIds);
    let third = OneProcess::start(&store, other, &sent).await;
    assert_eq!(third.send("hello").await.0, "sent 3");
}
