//! A process of its own, as far as a store can tell: its own layers and its own driver.

use toolgate::{
    Registry, Stack,
    session::{CallResult, Dispatcher, TurnRequest},
    store::StoreHandle,
    value::SessionId,
};
use toolgate_core::{Layer, ToolRequest};

/// The tools and the driver of one process.
pub(crate) struct OneProcess {
    registry: Registry,
    dispatcher: Dispatcher,
}

impl OneProcess {
    /// Takes the session over, with one layer above the tools.
    pub(crate) async fn start(
        store: &StoreHandle,
        session: SessionId,
        registry: Registry,
        layer: impl Layer,
    ) -> Self {
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

    /// Calls the tool `send` in a turn of its own.
    pub(crate) async fn send(&self, arguments: &str) -> CallResult {
        let calls = vec![ToolRequest::from_text("1", "send", arguments)];
        let view = toolgate_testkit::plain_view(&self.registry);
        let turn = self
            .dispatcher
            .open_turn(TurnRequest::new(view, calls))
            .await;
        let mut report = turn.expect("opens").run().await.expect("runs");
        report.results.remove(0)
    }
}
