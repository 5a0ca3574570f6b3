//! Answers an identical call with the result of the first.

use std::{fmt, sync::Arc, time::Duration};

use moka::{policy::EvictionPolicy, sync::Cache};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Band, Call, CallError, CallId, Digest, ErrorCategory, Json, Layer, LayerTraits, Next,
    NoteFields, Notes, Outcome, Settled, Status, Timestamp, ToolName, contained_sync,
};

use crate::{
    BadOption, Configurable, Parts, SharedRedactor, Span,
    owner::Owner,
    single_flight::{Flights, Seat, Turn},
    tool_globs::Covered,
};

/// Remembers successes for a while and answers identical calls with them.
///
/// Calls are identical if owner, tool, version of the tool and arguments are. The owner is the principal or, where
/// nobody is named, the session: nobody is ever given what was found out for another. Identical calls that come
/// together wait for the first; if that one fails, one of them is next. The model reads the result as if the tool had
/// run; the outcome is marked `cached` and names the invocation it came from. It stands below everything that decides,
/// so a call that is answered here has been allowed, counted and approved like any other.
///
/// Only tools that may be repeated are remembered unless `writes` says otherwise. What is kept has passed the redactor
/// of the stack, if it has one, and is not kept if that fails. Neither is a result of more than 1 MB.
///
/// Calls that run outside do not wait for each other: one that is suspended may come back in another process or never,
/// so identical ones that come before its result are sent out as well. Once it has come back with a success, that is
/// remembered like any other. An outside system that must not do a thing twice has to tell repeats by itself.
///
/// ```
/// # use {toolgate_core::Stack, toolgate_layers::Idempotency, toolgate_testkit::echo};
/// let by_path = Idempotency::default().key_fn(|call| Some(call.arguments.get("path")?.as_str()?.to_owned()));
/// let stack = Stack::over(echo()).layer(by_path).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Idempotency {
    ttl: Duration,
    covered: Covered,
    writes: bool,
    key_fn: Option<KeyFn>,
    redactor: Option<SharedRedactor>,
    kept: Cache<Key, Arc<Kept>>,
    flights: Flights<Key, Arc<Kept>>,
}

type KeyFn = Arc<dyn Fn(&Call) -> Option<String> + Send + Sync>;

/// A larger result is not kept: it would push out all the others.
const MOST_BYTES_OF_ONE: usize = 1024 * 1024;

/// What the keeping of a result takes besides the result.
const BYTES_AROUND: usize = 512;

/// What is remembered, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IdempotencyOptions {
    /// For how long a result stands in for the tool.
    pub ttl: Span,
    /// How many results are kept at most; those not asked for the longest go first.
    pub max_entries: u64,
    /// How many bytes the results that are kept take at most, about; 4 GB is the most.
    pub max_bytes: u64,
    /// Names and globs of the only tools that are remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<String>>,
    /// Names and globs of tools that are not remembered. Not together with `only`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub except: Option<Vec<String>>,
    /// What makes two calls of the same tool identical.
    pub key: IdempotencyKeyBy,
    /// Whether tools that may write are remembered too. Then doing the same thing twice on purpose, such as sending
    /// two equal messages, does it once.
    pub writes: bool,
}

/// What makes two calls of the same tool identical.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdempotencyKeyBy {
    /// All their arguments.
    Arguments,
}

impl Default for IdempotencyOptions {
    fn default() -> Self {
        Self {
            ttl: Span::secs(300),
            max_entries: 10_000,
            max_bytes: 64 * 1024 * 1024,
            only: None,
            except: None,
            key: IdempotencyKeyBy::Arguments,
            writes: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    owner: Owner,
    tool: ToolName,
    fingerprint: Option<Digest>,
    which: Which,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Which {
    Arguments(Digest),
    Named(String),
}

/// A success, ready to be handed out again.
struct Kept {
    settled: Settled,
    bytes: usize,
    at: Timestamp,
    from: CallId,
}

impl Idempotency {
    /// Remembers as `options` say.
    pub fn new(options: &IdempotencyOptions) -> Result<Self, BadOption> {
        let IdempotencyOptions {
            ttl,
            max_entries,
            max_bytes,
            only,
            except,
            key,
            writes,
        } = options;
        let IdempotencyKeyBy::Arguments = key;
        if ttl.get().is_zero() {
            return Err(BadOption::new("ttl", "has to be longer than nothing"));
        }
        if *max_entries == 0 {
            return Err(BadOption::new("max_entries", "has to be at least 1"));
        }
        if *max_bytes == 0 || u32::try_from(*max_bytes).is_err() {
            return Err(BadOption::new(
                "max_bytes",
                "has to be at least 1 and less than 4 GB",
            ));
        }
        let covered = Covered::read(only.as_deref(), except.as_deref())?;
        let kept = cache(*max_entries, *max_bytes);
        let (ttl, writes, flights) = (ttl.get(), *writes, Flights::new());
        Ok(Self {
            ttl,
            covered,
            writes,
            key_fn: None,
            redactor: None,
            kept,
            flights,
        })
    }

    /// Tells calls of the same tool apart by `key` instead of by their arguments. A call without a key is not
    /// remembered; if the function panics the call does not run.
    pub fn key_fn(mut self, key: impl Fn(&Call) -> Option<String> + Send + Sync + 'static) -> Self {
        self.key_fn = Some(Arc::new(key));
        self
    }

    /// Keeps only what has passed `redactor`.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// The key of a call that may be remembered; an error is a panic in the key function.
    fn key(&self, call: &Call) -> Result<Option<Key>, String> {
        if !(self.writes || call.annotations().may_repeat()) || !self.covered.includes(&call.tool) {
            return Ok(None);
        }
        let which = match &self.key_fn {
            None => Which::Arguments(call.arguments.digest()),
            Some(key) => match contained_sync(|| key(call))? {
                Some(key) => Which::Named(key),
                None => return Ok(None),
            },
        };
        let fingerprint = call.shown().map(|shown| shown.entry.fingerprint);
        Ok(Some(Key {
            owner: Owner::of(call),
            tool: call.tool.clone(),
            fingerprint,
            which,
        }))
    }

    fn find(&self, key: &Key, call: &Call) -> Option<Arc<Kept>> {
        let kept = self.kept.get(key)?;
        // By the call's clock: the cache's own would be the wall.
        (call.env().clock().now().since(kept.at) < self.ttl).then_some(kept)
    }

    /// Runs the call and, if it succeeds, keeps what came of it.
    async fn run(
        &self,
        key: Key,
        call: Call,
        next: Next,
        seat: Option<&Seat<'_, Key, Arc<Kept>>>,
    ) -> Outcome {
        let (from, clock) = (call.id, call.env().clock().clone());
        let outcome = next.run(call).await;
        if let Some(settled) = outcome.settled().and_then(|settled| self.copy(settled)) {
            let kept = Arc::new(Kept {
                bytes: bytes(&settled),
                settled,
                at: clock.now(),
                from,
            });
            if kept.bytes <= MOST_BYTES_OF_ONE {
                self.kept.insert(key, kept.clone());
            }
            if let Some(seat) = seat {
                seat.land(kept);
            }
        }
        outcome
    }

    /// The copy of a success that may be kept.
    fn copy(&self, settled: &Settled) -> Option<Settled> {
        if settled.status != Status::Ok {
            return None;
        }
        let mut copy = Settled::new(Status::Ok);
        copy.cached = true;
        copy.value = settled.value.clone();
        copy.text = settled.text.clone();
        copy.notes = remarks(&settled.notes);
        if let Some(redactor) = &self.redactor {
            copy.value = redactor.json(&copy.value)?;
            copy.text = match &copy.text {
                Some(text) => Some(redactor.text(text)?.into()),
                None => None,
            };
            copy.notes = redacted(redactor, &copy.notes)?;
        }
        Some(copy)
    }
}

/// A cache that keeps within both bounds: each entry weighs its bytes, and at least its share of them.
fn cache(max_entries: u64, max_bytes: u64) -> Cache<Key, Arc<Kept>> {
    let share = (max_bytes / max_entries).max(1);
    let capacity = share.saturating_mul(max_entries).min(max_bytes);
    let weigh = move |key: &Key, kept: &Arc<Kept>| {
        let name = match &key.which {
            Which::Arguments(_) => 0,
            Which::Named(name) => name.len(),
        };
        let bytes = (BYTES_AROUND + name + kept.bytes) as u64;
        u32::try_from(bytes.max(share)).unwrap_or(u32::MAX)
    };
    Cache::builder()
        .max_capacity(capacity)
        .weigher(weigh)
        .eviction_policy(EvictionPolicy::lru())
        .build()
}

/// About how much memory a result takes.
fn bytes(settled: &Settled) -> usize {
    let text = settled.text.as_ref().map_or(0, |text| text.len());
    let notes = if settled.notes.is_empty() {
        0
    } else {
        serde_json::to_vec(&settled.notes).map_or(0, |vec| vec.len())
    };
    settled
        .value
        .size()
        .saturating_add(text)
        .saturating_add(notes)
}

/// What a tool or layer below remarked. Who agreed, which layers ran and who changed what belong to the other call.
fn remarks(notes: &Notes) -> Notes {
    let Some(fields) = notes.fields().filter(|fields| fields.has_remarks()) else {
        return Notes::default();
    };
    let mut copy = Notes::default();
    let mut kept = NoteFields::clone(fields);
    (kept.consent, kept.superseded, kept.layers, kept.provenance) =
        (None, Vec::new(), Vec::new(), Vec::new());
    *copy.edit() = kept;
    copy
}

fn redacted(redactor: &SharedRedactor, notes: &Notes) -> Option<Notes> {
    if notes.is_empty() {
        return Some(Notes::default());
    }
    let shown = redactor.json(&Json::new(serde_json::to_value(notes).ok()?).ok()?)?;
    serde_json::from_value(shown.as_value().clone()).ok()
}

fn hit(kept: &Kept, next: &Next) -> Outcome {
    next.because("answered with the result of an identical call");
    Outcome::from(kept.settled.clone()).noting(|notes| {
        notes.metadata.insert(
            "idempotency".into(),
            json!({ "hit": true, "from": kept.from }),
        );
    })
}

impl Layer for Idempotency {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let key = match self.key(&call) {
            Ok(Some(key)) => key,
            Ok(None) => return next.run(call).await,
            Err(report) => {
                let error =
                    CallError::new(ErrorCategory::Panic, "an internal error stopped the call");
                return Outcome::error(
                    Status::LayerException,
                    error.with_operator(format!("key_fn: {report}")),
                );
            }
        };
        // A result that was delivered for this very call is its own.
        if !call.resumed().results.is_empty() {
            return self.run(key, call, next, None).await;
        }
        if let Some(kept) = self.find(&key, &call) {
            return hit(&kept, &next);
        }
        if call.is_rehearsal() {
            return next.run(call).await;
        }
        let seat = self.flights.join(key.clone());
        match call.cancel.run_until_cancelled(seat.turn()).await {
            None => {
                next.because("cancelled while an identical call was running");
                Outcome::refused(
                    Status::Cancelled,
                    "the call was cancelled while it waited for an identical one",
                )
            }
            Some(Turn::Landed(kept)) => hit(&kept, &next),
            // The first one may have landed between looking and joining.
            Some(Turn::Lead(_permit)) => match self.find(&key, &call) {
                Some(kept) => hit(&kept, &next),
                None => self.run(key, call.clone(), next, Some(&seat)).await,
            },
        }
    }

    fn band(&self) -> Band {
        Band::Repeat
    }

    fn traits(&self) -> LayerTraits {
        let traits = LayerTraits::of(Self::NAME).answering().remembering();
        if self.redactor.is_some() {
            traits
        } else {
            traits.recording()
        }
    }
}

impl Configurable for Idempotency {
    const NAME: &'static str = "idempotency";
    const SUMMARY: &'static str =
        "Answers identical calls with the result of the first, for a while.";
    type Options = IdempotencyOptions;

    fn configure(options: IdempotencyOptions, parts: &Parts) -> Result<Self, BadOption> {
        let layer = Self::new(&options)?;
        Ok(match parts.get() {
            Some(redactor) => layer.redactor(redactor),
            None => layer,
        })
    }
}

impl Default for Idempotency {
    fn default() -> Self {
        Self::new(&IdempotencyOptions::default()).expect("the defaults make sense")
    }
}

impl fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotency")
            .field("ttl", &self.ttl)
            .field("covered", &self.covered)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "idempotency_tests.rs"]
mod tests;
