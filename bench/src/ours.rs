//! The same work through Toolgate.

use std::{sync::atomic::Ordering, time::Duration};

use toolgate::{
    Annotations, Arguments, Call, Layer, Next, Outcome, Registry, Stack, ToolError, View,
    session::{Dispatcher, TurnRequest},
    stack::ToolRequest,
    store::MemoryStore,
    tool_fn,
};

use crate::floors::SEEN;

#[derive(serde::Deserialize, schemars::JsonSchema)]
pub(crate) struct EchoInput {
    text: String,
    #[serde(default)]
    #[allow(dead_code, reason = "the tool takes it and does not need it")]
    limit: u32,
    #[serde(default)]
    #[allow(dead_code, reason = "the tool takes it and does not need it")]
    path: String,
}

impl EchoInput {
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

/// A layer that counts and passes every call on.
pub(crate) struct CountingLayer;

impl Layer for CountingLayer {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        SEEN.fetch_add(1, Ordering::Relaxed);
        next.run(call).await
    }
}

pub(crate) fn registry(sleep: Option<Duration>) -> Registry {
    let registry = Registry::new();
    let tool = tool_fn(
        "echo",
        "Says it again.",
        move |input: EchoInput, _cx| async move {
            if let Some(span) = sleep {
                tokio::time::sleep(span).await;
            }
            Ok::<_, ToolError>(input.text)
        },
    );
    registry
        .register(tool.with_annotations(Annotations::read_only()))
        .expect("the name is free");
    registry
}

pub(crate) fn stack(registry: &Registry, layers: usize) -> Stack {
    let builder = (0..layers).fold(Stack::over(registry.clone()), |stack, _| {
        stack.layer(CountingLayer)
    });
    builder.build().expect("layers of one band are in order")
}

pub(crate) fn call() -> Call {
    Call::detached(
        "echo",
        Arguments::try_from(crate::floors::arguments()).expect("an object"),
    )
}

/// A dispatcher with a stack, ready to run turns.
pub(crate) struct TurnGate {
    dispatcher: Dispatcher,
    view: View,
}

impl TurnGate {
    pub(crate) async fn new(layers: usize, cap: usize, sleep: Option<Duration>) -> Self {
        let registry = registry(sleep);
        let view = toolgate_testkit::plain_view(&registry);
        let builder = Dispatcher::builder(stack(&registry, layers))
            .store(MemoryStore::new())
            .max_concurrent(cap);
        let dispatcher = builder
            .build()
            .await
            .expect("an empty session can be opened");
        Self { dispatcher, view }
    }

    /// Runs one turn of `calls` calls and returns how many came back.
    pub(crate) async fn turn(&self, text: impl Fn(usize) -> String, calls: usize) -> usize {
        let requests = (0..calls)
            .map(|n| ToolRequest::from_text(&format!("call_{n}"), "echo", &text(n)))
            .collect();
        let opened = self
            .dispatcher
            .open_turn(TurnRequest::new(self.view.clone(), requests))
            .await;
        let report = opened.expect("opens").run().await.expect("runs");
        assert!(report.results.iter().all(|result| result.outcome.is_some()));
        report.results.len()
    }
}
