//! The same work written by hand, without Toolgate: what a ratio of 1 would be.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    hint::black_box,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::StreamExt;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tower_service::Service;

pub(crate) static SEEN: AtomicU64 = AtomicU64::new(0);

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A call as a program without a framework would hold it.
#[derive(Clone)]
pub(crate) struct PlainCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
}

pub(crate) fn plain_call() -> PlainCall {
    PlainCall {
        id: "call_0123456789".into(),
        name: "echo".into(),
        arguments: arguments(),
    }
}

/// The arguments of every benchmark.
pub(crate) fn arguments() -> Value {
    serde_json::json!({ "text": "hello world", "limit": 10, "path": "src/main.rs" })
}

/// Returns the arguments of one call of many: each call has others.
pub(crate) fn arguments_of(call: usize) -> Value {
    serde_json::json!({ "text": format!("hello world {call}"), "limit": 10, "path": "src/main.rs" })
}

/// A bare async function.
#[inline(never)]
pub(crate) async fn bare(call: &PlainCall) -> Value {
    call.arguments["text"].clone()
}

// --- ten static tower layers ---------------------------------------------------------------------

#[derive(Clone)]
pub(crate) struct PassService<S>(S);

pub(crate) struct PassLayer;

impl<S> tower_layer::Layer<S> for PassLayer {
    type Service = PassService<S>;
    fn layer(&self, inner: S) -> PassService<S> {
        PassService(inner)
    }
}

impl<S: Service<PlainCall>> Service<PlainCall> for PassService<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }
    fn call(&mut self, call: PlainCall) -> S::Future {
        SEEN.fetch_add(1, Ordering::Relaxed);
        self.0.call(call)
    }
}

#[derive(Clone)]
pub(crate) struct LeafTool;

impl Service<PlainCall> for LeafTool {
    type Response = Value;
    type Error = Infallible;
    type Future = Ready<Result<Value, Infallible>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, call: PlainCall) -> Self::Future {
        ready(Ok(call.arguments["text"].clone()))
    }
}

pub(crate) fn tower_ten() -> impl Service<PlainCall, Response = Value, Error = Infallible> + Clone {
    let five = || {
        tower::ServiceBuilder::new()
            .layer(PassLayer)
            .layer(PassLayer)
            .layer(PassLayer)
            .layer(PassLayer)
            .layer(PassLayer)
    };
    five().layer(five().into_inner()).service(LeafTool)
}

// --- a chain of boxed layers ---------------------------------------------------------------------

pub(crate) trait Middleware: Send + Sync {
    fn call<'a>(&'a self, call: &'a PlainCall, next: ChainNext<'a>) -> BoxFuture<'a, Value>;
}

#[derive(Clone, Copy)]
pub(crate) struct ChainNext<'a> {
    rest: &'a [Box<dyn Middleware>],
    sleep: Option<Duration>,
}

impl<'a> ChainNext<'a> {
    pub(crate) fn run(self, call: &'a PlainCall) -> BoxFuture<'a, Value> {
        match self.rest.split_first() {
            Some((first, rest)) => first.call(call, ChainNext { rest, ..self }),
            None => Box::pin(async move {
                if let Some(span) = self.sleep {
                    tokio::time::sleep(span).await;
                }
                call.arguments["text"].clone()
            }),
        }
    }
}

struct CountingMiddleware;

impl Middleware for CountingMiddleware {
    fn call<'a>(&'a self, call: &'a PlainCall, next: ChainNext<'a>) -> BoxFuture<'a, Value> {
        Box::pin(async move {
            SEEN.fetch_add(1, Ordering::Relaxed);
            next.run(call).await
        })
    }
}

/// A hand-written chain of boxed layers over a tool.
pub(crate) struct BoxedChain {
    layers: Vec<Box<dyn Middleware>>,
    sleep: Option<Duration>,
}

impl BoxedChain {
    pub(crate) fn new(layers: usize, sleep: Option<Duration>) -> Arc<Self> {
        let layers = (0..layers)
            .map(|_| Box::new(CountingMiddleware) as Box<dyn Middleware>)
            .collect();
        Arc::new(Self { layers, sleep })
    }

    /// Runs one call through the chain.
    pub(crate) async fn run(&self, call: &PlainCall) -> Value {
        ChainNext {
            rest: &self.layers,
            sleep: self.sleep,
        }
        .run(call)
        .await
    }

    /// Runs the smallest possible turn: parse, three events, digests, results in order. `text` returns
    /// the arguments of a call.
    pub(crate) async fn turn(
        &self,
        text: impl Fn(usize) -> String,
        calls: usize,
        cap: usize,
    ) -> usize {
        let (events, mut sink) = mpsc::unbounded_channel();
        let mut results: Vec<(usize, Value)> = futures::stream::iter(0..calls)
            .map(|n| {
                let events = &events;
                let text = text(n);
                async move { (n, self.dispatch(&text, n, events).await) }
            })
            .buffer_unordered(cap)
            .collect()
            .await;
        results.sort_by_key(|(n, _)| *n);
        while sink.try_recv().is_ok() {}
        results.len()
    }

    async fn dispatch(
        &self,
        text: &str,
        id: usize,
        events: &mpsc::UnboundedSender<PlainEvent>,
    ) -> Value {
        let arguments = serde_json::from_str(text).expect("valid arguments");
        let call = PlainCall {
            id: format!("call_{id}"),
            name: "echo".into(),
            arguments,
        };
        let _ = events.send(PlainEvent::Requested(
            call.id.clone(),
            sorted_digest(&call.arguments),
        ));
        let _ = events.send(PlainEvent::Started(call.id.clone()));
        let value = self.run(&call).await;
        let _ = events.send(PlainEvent::Succeeded(
            call.id.clone(),
            sorted_digest(&value),
        ));
        black_box(&call.name);
        value
    }
}

#[allow(dead_code, reason = "events are made to be sent, not read")]
pub(crate) enum PlainEvent {
    Requested(String, [u8; 32]),
    Started(String),
    Succeeded(String, [u8; 32]),
}

fn sorted_digest(value: &Value) -> [u8; 32] {
    // `serde_json` sorts keys, so its output is canonical enough for a floor.
    let bytes = serde_json::to_vec(value).expect("a value can be written");
    Sha256::digest(bytes).into()
}
