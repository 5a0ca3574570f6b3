//! A hand-written chain that does what the gate does for a call, and nothing else.
//!
//! Ids, parsing, the same schema check, RFC 8785 digests, typed arguments, layers that are boxed,
//! timed, noted and guarded against panics, a task per call, events that are numbered, logged and
//! broadcast, outcomes that are stored, results in call order. It omits what makes the gate a gate:
//! everything but the successful path.

use std::{
    collections::HashMap,
    hint::black_box,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::{
    sync::{Semaphore, broadcast},
    task::JoinSet,
};
use uuid::Uuid;

use crate::{floors::SEEN, ours::EchoInput};

type DigestBytes = [u8; 32];

#[allow(dead_code, reason = "kept to be kept")]
struct LoggedEvent {
    sequence: u64,
    at: Instant,
    invocation: Arc<(Uuid, String, Uuid)>,
    what: EventKind,
}

#[allow(dead_code, reason = "kept to be kept")]
enum EventKind {
    Requested(Arc<Value>, DigestBytes, usize),
    Started(u32),
    Succeeded(Arc<Value>, DigestBytes, usize),
}

#[allow(dead_code, reason = "kept to be kept")]
struct LayerTiming {
    layer: Arc<str>,
    started: Instant,
    ended: Instant,
    ok: bool,
}

#[allow(dead_code, reason = "kept to be kept")]
struct StoredOutcome {
    value: Arc<Value>,
    notes: Vec<LayerTiming>,
}

struct PlainInvocation {
    id: Uuid,
    arguments: Arc<Value>,
    notes: Mutex<Vec<LayerTiming>>,
}

trait PlainLayer: Send + Sync {
    fn handle(
        self: Arc<Self>,
        call: Arc<PlainInvocation>,
        next: PlainNext,
    ) -> BoxFuture<'static, Value>;
}

struct PlainThrough;

impl PlainLayer for PlainThrough {
    fn handle(
        self: Arc<Self>,
        call: Arc<PlainInvocation>,
        next: PlainNext,
    ) -> BoxFuture<'static, Value> {
        Box::pin(async move {
            SEEN.fetch_add(1, Ordering::Relaxed);
            next.run(call).await
        })
    }
}

struct PlainNext {
    gate: Arc<GateParts>,
    at: usize,
}

impl PlainNext {
    async fn run(self, call: Arc<PlainInvocation>) -> Value {
        let Some((name, layer)) = self.gate.layers.get(self.at) else {
            return self.gate.tool(&call).await;
        };
        let started = Instant::now();
        let below = PlainNext {
            gate: self.gate.clone(),
            at: self.at + 1,
        };
        let value = AssertUnwindSafe(layer.clone().handle(call.clone(), below))
            .catch_unwind()
            .await;
        let note = LayerTiming {
            layer: name.clone(),
            started,
            ended: Instant::now(),
            ok: value.is_ok(),
        };
        call.notes.lock().expect("no panic").push(note);
        value.unwrap_or_default()
    }
}

struct GateParts {
    layers: Vec<(Arc<str>, Arc<dyn PlainLayer>)>,
    schema: jsonschema::Validator,
    log: Mutex<Vec<Arc<LoggedEvent>>>,
    kept: Mutex<HashMap<Uuid, StoredOutcome>>,
    bus: broadcast::Sender<Arc<LoggedEvent>>,
    sleep: Option<Duration>,
}

impl GateParts {
    async fn tool(&self, call: &PlainInvocation) -> Value {
        let input = EchoInput::deserialize(&*call.arguments).expect("fits the schema");
        if let Some(span) = self.sleep {
            tokio::time::sleep(span).await;
        }
        serde_json::to_value(input.into_text()).expect("a value can be written")
    }

    fn record(&self, invocation: &Arc<(Uuid, String, Uuid)>, what: EventKind) {
        let mut log = self.log.lock().expect("no panic");
        let event = LoggedEvent {
            sequence: log.len() as u64 + 1,
            at: Instant::now(),
            invocation: invocation.clone(),
            what,
        };
        let event = Arc::new(event);
        log.push(event.clone());
        let _ = self.bus.send(event);
    }

    async fn dispatch(self: Arc<Self>, text: String, label: String, turn: Uuid) -> Arc<Value> {
        let arguments: Arc<Value> = Arc::new(serde_json::from_str(&text).expect("valid arguments"));
        assert!(self.schema.is_valid(&arguments));
        let id = Uuid::now_v7();
        let head = Arc::new((id, label, turn));
        let (print, size) = digest(&arguments);
        self.record(&head, EventKind::Requested(arguments.clone(), print, size));
        self.record(&head, EventKind::Started(1));
        let call = Arc::new(PlainInvocation {
            id,
            arguments,
            notes: Mutex::new(Vec::with_capacity(self.layers.len())),
        });
        let value = Arc::new(
            PlainNext {
                gate: self.clone(),
                at: 0,
            }
            .run(call.clone())
            .await,
        );
        let (print, size) = digest(&value);
        let notes = std::mem::take(&mut *call.notes.lock().expect("no panic"));
        self.kept.lock().expect("no panic").insert(
            call.id,
            StoredOutcome {
                value: value.clone(),
                notes,
            },
        );
        self.record(&head, EventKind::Succeeded(value.clone(), print, size));
        value
    }
}

fn digest(value: &Value) -> (DigestBytes, usize) {
    let bytes = serde_json_canonicalizer::to_vec(value).expect("a value can be written");
    (Sha256::digest(&bytes).into(), bytes.len())
}

/// The hand-written gate.
pub(crate) struct HandWritten(Arc<GateParts>);

impl HandWritten {
    pub(crate) fn new(layers: usize, sleep: Option<Duration>) -> Self {
        let schema = toolgate::value::Schema::for_type::<EchoInput>();
        let layer = |n| {
            (
                format!("through#{n}").into(),
                Arc::new(PlainThrough) as Arc<dyn PlainLayer>,
            )
        };
        Self(Arc::new(GateParts {
            layers: (0..layers).map(layer).collect(),
            schema: jsonschema::validator_for(schema.as_json()).expect("a valid schema"),
            log: Mutex::default(),
            kept: Mutex::default(),
            bus: broadcast::Sender::new(4096),
            sleep,
        }))
    }

    pub(crate) async fn turn(&self, text: &str, calls: usize, cap: usize) -> usize {
        let turn = Uuid::now_v7();
        let room = Arc::new(Semaphore::new(cap));
        let mut tasks = JoinSet::new();
        for n in 0..calls {
            let parts = self.0.clone();
            let room = room.clone();
            let text = text.to_owned();
            tasks.spawn(async move {
                let _permit = room.acquire().await;
                (n, parts.dispatch(text, format!("call_{n}"), turn).await)
            });
        }
        let mut results = tasks.join_all().await;
        results.sort_by_key(|(n, _)| *n);
        black_box(&results).len()
    }
}
