//! Adapters between Toolgate and tower: a stack as a service, and a tower layer as a layer.

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

use crate::{
    Band, Call, CallError, ErrorCategory, Failure, Layer, LayerName, Next, Outcome, Stack,
};

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

/// The request type of a tower layer: the call and the rest of the stack.
#[derive(Debug, Clone)]
pub struct TowerRequest {
    /// The call.
    pub call: Call,
    /// The rest of the stack.
    pub next: Next,
}

/// The innermost service under a tower layer; it runs the rest of the stack.
#[derive(Debug, Clone, Copy, Default)]
pub struct NextService;

impl Service<TowerRequest> for NextService {
    type Response = Outcome;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Outcome, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, passage: TowerRequest) -> Self::Future {
        Box::pin(async move { Ok(passage.next.run(passage.call).await) })
    }
}

/// A tower layer as a Toolgate layer.
///
/// The service is created once, so its state (a rate limit, for example) spans calls. An error of
/// the service settles the call as `executor_error` with the error for the operator, unless
/// `on_error` says otherwise.
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
        L: tower_layer::Layer<NextService, Service = S>,
    {
        let on_error = |error: Box<dyn std::error::Error + Send + Sync>| {
            let text = CallError::new(ErrorCategory::Internal, "the call could not be handled");
            Outcome::error(
                Failure::ExecutorError,
                text.with_operator_detail(error.to_string()),
            )
        };
        Self {
            name: name.into(),
            band,
            service: Mutex::new(layer.layer(NextService)),
            on_error: Arc::new(on_error),
        }
    }

    /// Sets the outcome for an error of the service, for example `rate_limited`.
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
    S: Service<TowerRequest, Response = Outcome> + Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Future: Send,
{
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let answer = {
            // `poll_ready` reserves capacity for the next `call`, so both happen under one lock.
            // The returned future runs outside it.
            let mut service = self.service.lock().await;
            match poll_fn(|cx| service.poll_ready(cx)).await {
                Ok(()) => service.call(TowerRequest { call, next }),
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
