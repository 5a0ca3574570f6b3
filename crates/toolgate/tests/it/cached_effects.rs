//! A cached effect does not happen again in another process.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use toolgate::{
    Registry, Status, ToolError,
    layers::{Idempotency, IdempotencyOptions},
    store::{MemoryStore, StoreHandle},
    tool_fn,
    value::{SessionId, TimeOrderedIds},
};

use crate::one_process::OneProcess;

/// Starts a process whose tool counts in `sent`.
async fn start(store: &StoreHandle, session: SessionId, sent: &Arc<AtomicUsize>) -> OneProcess {
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
    OneProcess::start(store, session, registry, layer).await
}

/// Calls the tool; returns the text that the model reads.
async fn send(process: &OneProcess, body: &str) -> String {
    let arguments = serde_json::json!({ "body": body }).to_string();
    let result = process.send(&arguments).await;
    assert_eq!(result.status(), Some(Status::Ok));
    let outcome = result.outcome.expect("settled");
    outcome.model_text().into_owned()
}

#[tokio::test]
async fn a_cached_effect_does_not_happen_again_in_another_process() {
    let store = StoreHandle::new(MemoryStore::new());
    let session = SessionId::from_source(&TimeOrderedIds);
    let sent = Arc::new(AtomicUsize::new(0));
    let first = start(&store, session, &sent).await;
    assert_eq!(send(&first, "hello").await, "sent 1");
    drop(first);
    let second = start(&store, session, &sent).await;
    let text = send(&second, "hello").await;
    assert_eq!(text, "sent 1", "the result of the first process");
    assert_eq!(send(&second, "something else").await, "sent 2");
    assert_eq!(sent.load(Ordering::SeqCst), 2);
    // Another session is another user.
    let other = SessionId::from_source(&TimeOrderedIds);
    let third = start(&store, other, &sent).await;
    assert_eq!(send(&third, "hello").await, "sent 3");
}
