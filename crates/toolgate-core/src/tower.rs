//! Both ways between Toolgate and tower: a stack as a service, and a tower layer as a layer.

use std::{
    convert::Infallible,
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use tokio::sync::Mutex;
use tower_service::Service;

use crate::{Band, Call, CallError, ErrorCategory, Layer, LayerName, Next, Outcome, Stack, Status};

/// A stack answers every call, so its error type has no values.
impl Service<Call> for Stack {
    type Response = Outcome;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Outcome, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let stack = self.clone();
        Box::pin(async move { Ok(stack.run(call).await) })
    }
}

/// What flows through a tower layer: the call and what is below it.
#[derive(Debug, Clone)]
pub struct Passage {
    /// The call.
    pub call: Call,
    /// What is below.
    pub next: Next,
}

/// The innermost service under a tower layer: runs what is below.
#[derive(Debug, Clone, Copy, Default)]
pub struct Below;

impl Service<Passage> for Below {
    type Response = Outcome;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Outcome, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, passage: Passage) -> Self::Future {
        Box::pin(async move { Ok(passage.next.run(passage.call).await) })
    }
}

/// A tower layer as a Toolgate layer.
///
/// The service is made once, so what it counts is counted across calls. An error of the service settles
/// the call as `executor_error` with the error for the operator, unless `on_error` says otherwise.
pub struct TowerLayer<S> {
    name: LayerName,
    band: Band,
    service: Mutex<S>,
    on_error: Arc<dyn Fn(Box<dyn std::error::Error + Send + Sync>) -> Outcome + Send + Sync>,
}

impl<S> TowerLayer<S> {
    /// Wraps a tower layer.
    pub fn new<L>(name: &str, band: Band, layer: L) -> Self
    where
        L: tower_layer::Layer<Below, Service = S>,
    {
        let on_error = |error: Box<dyn std::error::Error + Send + Sync>| {
            let text = CallError::new(ErrorCategory::Internal, "the call could not be handled");
            Outcome::error(Status::ExecutorError, text.with_operator(error.to_string()))
        };
        Self {
            name: name.into(),
            band,
            service: Mutex::new(layer.layer(Below)),
            on_error: Arc::new(on_error),
        }
    }

    /// Says what an error of the service means, for example `rate_limited`.
    pub fn on_error<F>(mut self, outcome: F) -> Self
    where
        F: Fn(Box<dyn std::error::Error + Send + Sync>) -> Outcome + Send + Sync + 'static,
    {
        self.on_error = Arc::new(outcome);
        self
    }
}

impl<S> Layer for TowerLayer<S>
where
    S: Service<Passage, Response = Outcome> + Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Future: Send,
{
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let answer = {
            // Readiness belongs to the one who waited for it, so waiting and calling share the lock. The call
            // itself runs outside it.
            let mut service = self.service.lock().await;
            match poll_fn(|cx| service.poll_ready(cx)).await {
                Ok(()) => service.call(Passage { call, next }),
                Err(error) => return (self.on_error)(error.into()),
            }
        };
        match answer.await {
            Ok(outcome) => outcome,
            Err(error) => (self.on_error)(error.into()),
        }
    }
    fn name(&self) -> LayerName {
        self.name.clone()
    }
    fn band(&self) -> Band {
        self.band
    }
}

impl<S> fmt::Debug for TowerLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TowerLayer({})", self.name)
    }
}
