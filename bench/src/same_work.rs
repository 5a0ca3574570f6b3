//! A hand-written chain that does what the gate does for a call, and nothing else.
//!
//! Ids, parsing, the same schema check, RFC 8785 digests, typed arguments, layers that are boxed, timed, noted and kept
//! from panicking, a task per call, events that are numbered, kept in a log and broadcast, outcomes that are kept,
//! results in call order. What it leaves out is what makes the gate a gate: anything else than the happy way.

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

use crate::{floors::SEEN, ours::Echo};

type Print = [u8; 32];

#[allow(dead_code, reason = "kept to be kept")]
struct Event {
    sequence: u64,
    at: Instant,
    invocation: Arc<(Uuid, String, Uuid)>,
    what: What,
}

#[allow(dead_code, reason = "kept to be kept")]
enum What {
    Requested(Arc<Value>, Print, usize),
    Started(u32),
    Succeeded(Arc<Value>, Print, usize),
}

#[allow(dead_code, reason = "kept to be kept")]
struct Note {
    layer: Arc<str>,
    started: Instant,
    ended: Instant,
    ok: bool,
}

#[allow(dead_code, reason = "kept to be kept")]
struct Kept {
    value: Arc<Value>,
    notes: Vec<Note>,
}

struct Invocation {
    id: Uuid,
    arguments: Arc<Value>,
    notes: Mutex<Vec<Note>>,
}

trait Layer: Send + Sync {
    fn handle(self: Arc<Self>, call: Arc<Invocation>, next: Next) -> BoxFuture<'static, Value>;
}

struct Through;

impl Layer for Through {
    fn handle(self: Arc<Self>, call: Arc<Invocation>, next: Next) -> BoxFuture<'static, Value> {
        Box::pin(async move {
            SEEN.fetch_add(1, Ordering::Relaxed);
            next.run(call).await
        })
    }
}

struct Next {
    gate: Arc<Parts>,
    at: usize,
}

impl Next {
    async fn run(self, call: Arc<Invocation>) -> Value {
        let Some((name, layer)) = self.gate.layers.get(self.at) else {
            return self.gate.tool(&call).await;
        };
        let started = Instant::now();
        let below = Next {
            gate: self.gate.clone(),
            at: self.at + 1,
        };
        let value = AssertUnwindSafe(layer.clone().handle(call.clone(), below))
            .catch_unwind()
            .await;
        let note = Note {
            layer: name.clone(),
            started,
            ended: Instant::now(),
            ok: value.is_ok(),
        };
        call.notes.lock().expect("no panic").push(note);
        value.unwrap_or_default()
    }
}

struct Parts {
    layers: Vec<(Arc<str>, Arc<dyn Layer>)>,
    schema: jsonschema::Validator,
    log: Mutex<Vec<Arc<Event>>>,
    kept: Mutex<HashMap<Uuid, Kept>>,
    bus: broadcast::Sender<Arc<Event>>,
    sleep: Option<Duration>,
}

impl Parts {
    async fn tool(&self, call: &Invocation) -> Value {
        let input = Echo::deserialize(&*call.arguments).expect("fits the schema");
        if let Some(span) = self.sleep {
            tokio::time::sleep(span).await;
        }
        serde_json::to_value(input.into_text()).expect("a value can be written")
    }

    fn record(&self, invocation: &Arc<(Uuid, String, Uuid)>, what: What) {
        let mut log = self.log.lock().expect("no panic");
        let event = Event {
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
        self.record(&head, What::Requested(arguments.clone(), print, size));
        self.record(&head, What::Started(1));
        let call = Arc::new(Invocation {
            id,
            arguments,
            notes: Mutex::new(Vec::with_capacity(self.layers.len())),
        });
        let value = Arc::new(
            Next {
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
            Kept {
                value: value.clone(),
                notes,
            },
        );
        self.record(&head, What::Succeeded(value.clone(), print, size));
        value
    }
}

fn digest(value: &Value) -> (Print, usize) {
    let bytes = serde_json_canonicalizer::to_vec(value).expect("a value can be written");
    (Sha256::digest(&bytes).into(), bytes.len())
}

/// The hand-written gate.
pub(crate) struct HandWritten(Arc<Parts>);

impl HandWritten {
    pub(crate) fn new(layers: usize, sleep: Option<Duration>) -> Self {
        let schema = toolgate::Schema::of::<Echo>();
        let layer = |n| {
            (
                format!("through#{n}").into(),
                Arc::new(Through) as Arc<dyn Layer>,
            )
        };
        Self(Arc::new(Parts {
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
            let (parts, room, text) = (self.0.clone(), room.clone(), text.to_owned());
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
