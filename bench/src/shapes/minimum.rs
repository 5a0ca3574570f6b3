//! The least that a governed, journaled and receipted call can do, written by hand.
//!
//! It parses and checks the arguments, notes one decision per layer on a trail, digests arguments and
//! result, writes a canonical receipt that is chained by hash, and one journal entry that has
//! everything that resuming needs. Nothing is written twice, and only the good case exists.

use std::{future::Future, path::Path, pin::Pin, sync::Mutex, time::Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::broadcast;
use toolgate::value::Schema;
use uuid::Uuid;

use super::{DEFAULT_LAYERS, TextInput};

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

const NAMES: [&str; DEFAULT_LAYERS] = [
    "receipts",
    "toasts",
    "summary",
    "output_cap",
    "redact",
    "policy",
    "validate",
    "loop_guard",
    "approval",
    "retry",
    "circuit_breaker",
    "timeout",
    "catch_panic",
];

/// A digest that is written as hex.
#[derive(Clone, Copy)]
struct HexDigest([u8; 32]);

impl HexDigest {
    fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl Serialize for HexDigest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        serializer.serialize_str(std::str::from_utf8(&text).expect("ASCII"))
    }
}

/// One decision on the trail. Fields are in the order of canonical JSON.
#[derive(Clone, Copy, Serialize)]
struct TrailNote {
    band: &'static str,
    duration_us: u64,
    name: &'static str,
    status: &'static str,
}

struct LeastCall {
    arguments: Value,
    trail: Mutex<Vec<TrailNote>>,
}

trait LeastLayer: Send + Sync {
    fn handle<'a>(&'a self, call: &'a LeastCall, next: LeastNext<'a>) -> BoxFuture<'a, Value>;
}

struct PassOn;

impl LeastLayer for PassOn {
    fn handle<'a>(&'a self, call: &'a LeastCall, next: LeastNext<'a>) -> BoxFuture<'a, Value> {
        next.run(call)
    }
}

#[derive(Clone, Copy)]
struct LeastNext<'a> {
    rest: &'a [(&'static str, Box<dyn LeastLayer>)],
}

impl<'a> LeastNext<'a> {
    fn run(self, call: &'a LeastCall) -> BoxFuture<'a, Value> {
        let Some(((name, layer), rest)) = self.rest.split_first() else {
            return Box::pin(async move {
                let input = TextInput::deserialize(&call.arguments).expect("fits");
                Value::String(input.text)
            });
        };
        Box::pin(async move {
            let start = Instant::now();
            let value = layer.handle(call, LeastNext { rest }).await;
            call.trail.lock().expect("no panic").push(TrailNote {
                band: "decide",
                duration_us: start.elapsed().as_micros() as u64,
                name,
                status: "ok",
            });
            value
        })
    }
}

/// The receipt of a call. Fields are in the order of canonical JSON.
#[derive(Serialize)]
struct LeastReceipt<'a> {
    args_bytes: usize,
    args_digest: HexDigest,
    call_id: &'a str,
    fingerprint: HexDigest,
    invocation_id: Uuid,
    layers: &'a [TrailNote],
    policy_version: HexDigest,
    result_bytes: usize,
    result_digest: HexDigest,
    session_id: Uuid,
    status: &'static str,
    tool_name: &'static str,
    turn_id: Uuid,
}

/// The journal entry of a turn: enough to resume from.
#[derive(Serialize)]
struct LeastEntry<'a> {
    sequence: usize,
    turn_id: Uuid,
    invocation_id: Uuid,
    call_id: &'a str,
    tool_name: &'static str,
    arguments: &'a Value,
    arguments_digest: HexDigest,
    result: &'a Value,
    result_digest: HexDigest,
}

#[derive(Clone)]
#[allow(dead_code, reason = "events are made to be sent, not read")]
enum LeastEvent {
    Requested(Uuid, HexDigest),
    Started(Uuid),
    Succeeded(Uuid, HexDigest),
}

/// Where journal entries and receipts go: memory, or a database that syncs each of them.
enum LeastStore {
    Memory(Vec<(Vec<u8>, Vec<u8>)>),
    File(rusqlite::Connection),
}

impl LeastStore {
    fn open(path: &Path) -> rusqlite::Result<Self> {
        let connection = rusqlite::Connection::open(path)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch(
            "CREATE TABLE log (n INTEGER PRIMARY KEY, body BLOB, receipt BLOB, hash BLOB)",
        )?;
        Ok(Self::File(connection))
    }

    fn append(&mut self, n: usize, entry: Vec<u8>, receipt: Vec<u8>, hash: HexDigest) {
        match self {
            Self::Memory(rows) => rows.push((entry, receipt)),
            Self::File(connection) => {
                let sql = "INSERT INTO log VALUES (?1, ?2, ?3, ?4)";
                let mut insert = connection.prepare_cached(sql).expect("valid SQL");
                insert
                    .execute((n as i64, entry, receipt, hash.0))
                    .expect("is written");
            }
        }
    }
}

/// Runs `turns` turns of one call.
pub(super) async fn run(turns: usize, file: Option<&Path>) {
    let schema = Schema::for_type::<TextInput>();
    let layers: Vec<(_, Box<dyn LeastLayer>)> = NAMES
        .into_iter()
        .map(|name| (name, Box::new(PassOn) as Box<dyn LeastLayer>))
        .collect();
    let (bus, _subscriber) = broadcast::channel(4_096);
    let session_id = Uuid::now_v7();
    let known = HexDigest::of(b"rules");
    let mut head = HexDigest::of(b"");
    let mut store = match file {
        Some(path) => LeastStore::open(path).expect("opens"),
        None => LeastStore::Memory(Vec::new()),
    };
    let mut messages = Vec::new();
    for turn in 0..turns {
        let label = format!("c{turn}_0");
        let text = format!("{{\"text\":\"t{turn}-0\"}}");
        let arguments: Value = serde_json::from_str(&text).expect("valid");
        assert!(schema.check_value(&arguments).is_ok());
        let canonical = serde_json::to_vec(&arguments).expect("is JSON");
        let args_digest = HexDigest::of(&canonical);
        let args_bytes = canonical.len();
        let turn_id = Uuid::now_v7();
        let invocation_id = Uuid::now_v7();
        let call = LeastCall {
            arguments,
            trail: Mutex::new(Vec::with_capacity(layers.len())),
        };
        let _ = bus.send(LeastEvent::Requested(invocation_id, args_digest));
        let _ = bus.send(LeastEvent::Started(invocation_id));
        let result = LeastNext { rest: &layers }.run(&call).await;
        let canonical = serde_json::to_vec(&result).expect("is JSON");
        let result_digest = HexDigest::of(&canonical);
        let trail = call.trail.into_inner().expect("no panic");
        let receipt = LeastReceipt {
            args_bytes,
            args_digest,
            call_id: &label,
            fingerprint: known,
            invocation_id,
            layers: &trail,
            policy_version: known,
            result_bytes: canonical.len(),
            result_digest,
            session_id,
            status: "ok",
            tool_name: "echo",
            turn_id,
        };
        let mut sealed = head.0.to_vec();
        serde_json::to_writer(&mut sealed, &receipt).expect("is JSON");
        head = HexDigest::of(&sealed);
        let entry = LeastEntry {
            sequence: turn,
            turn_id,
            invocation_id,
            call_id: &label,
            tool_name: "echo",
            arguments: &call.arguments,
            arguments_digest: args_digest,
            result: &result,
            result_digest,
        };
        let body = serde_json::to_vec(&entry).expect("is JSON");
        store.append(turn, body, sealed, head);
        let _ = bus.send(LeastEvent::Succeeded(invocation_id, result_digest));
        messages.push((label, result));
    }
    assert_eq!(messages.len(), turns);
}
