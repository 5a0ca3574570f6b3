//! Answers an identical call with the cached result of the first.

mod single_flight;
mod stored;

use std::{fmt, sync::Arc, time::Duration};

use moka::{policy::EvictionPolicy, sync::Cache};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{
    Arguments, Band, Call, CallError, CallId, Digest, ErrorCategory, Failure, Layer,
    LayerCapabilities, Next, Outcome, Refusal, SettledOutcome, Status, StoreError, Timestamp,
    ToolName, canonical_json, note_keys, run_contained_sync,
};

use crate::{
    BadOption, Configurable, HumanDuration, Resources, SharedRedactor,
    config::tool_globs::ToolCoverage,
    identity::CallOwner,
    repeat::idempotency::single_flight::{FlightRole, FlightSeat, SingleFlight},
};

/// Caches successes for a while and answers identical calls with them.
///
/// Calls are identical if owner, tool, version of the tool and arguments are. The owner is the
/// principal or, without one, the session: a user never gets the result of another user. Identical
/// calls at the same time wait for the first; if it fails, one of them runs next. The model reads
/// the result as if the tool had run; the outcome is marked `cached` and names the invocation it
/// came from. The layer is below everything that decides, so a call that is answered here has been
/// allowed, counted and approved like any other.
///
/// Successes are cached in this process and stored with the outcome of the call, so another process
/// on the same store answers with them too. Only identical calls that run at the same time in two
/// processes both run.
///
/// Only tools that may be repeated are cached unless `writes` is set. Cached results have passed
/// the redactor of the stack, if it has one; if redaction fails, the result is not cached. Neither
/// is a result of more than 1 MB.
///
/// Calls with external results do not wait for each other: a suspended call may be resumed in
/// another process or never, so identical calls before its result are sent out as well. Once it has
/// settled with a success, that is cached like any other. An external system that must not do a
/// thing twice has to detect repeats itself.
///
/// ```
/// # use {toolgate_core::Stack, toolgate_layers::Idempotency, toolgate_testkit::echo};
/// let by_path = Idempotency::default().key_fn(|call| Some(call.arguments.get("path")?.as_str()?.to_owned()));
/// let stack = Stack::over(echo()).layer(by_path).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Idempotency {
    ttl: Duration,
    covered: ToolCoverage,
    writes: bool,
    key: IdempotencyKeyBy,
    key_fn: Option<KeyFn>,
    redactor: Option<SharedRedactor>,
    kept: Cache<CacheKey, Arc<CachedSuccess>>,
    flights: SingleFlight<CacheKey, Arc<CachedSuccess>>,
}

type KeyFn = Arc<dyn Fn(&Call) -> Option<String> + Send + Sync>;

/// The largest result that is cached: a larger one would evict too many others.
const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// The estimated overhead of a cached result.
const ENTRY_OVERHEAD_BYTES: usize = 512;

/// The options of [`Idempotency`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IdempotencyOptions {
    /// The time a result stays cached.
    pub ttl: HumanDuration,
    /// The maximum number of cached results; the least recently used are evicted first.
    pub max_entries: u64,
    /// The approximate size limit of all cached results in bytes; less than 4 GB.
    pub max_bytes: u64,
    /// Names and globs of the only tools that are cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<String>>,
    /// Names and globs of tools that are not cached. Not together with `only`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub except: Option<Vec<String>>,
    /// The criterion for identical calls of the same tool.
    pub key: IdempotencyKeyBy,
    /// If true, tools that may write are cached too. Then doing the same thing twice on purpose,
    /// such as sending two equal messages, does it once.
    pub writes: bool,
}

/// The criterion for identical calls of the same tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum IdempotencyKeyBy {
    /// `"arguments"`: all arguments.
    All(AllArguments),
    /// The arguments with these names, such as `["path", "body"]`. Others may differ.
    Named(Vec<String>),
}

/// The word for all arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllArguments {
    /// All arguments.
    Arguments,
}

impl IdempotencyKeyBy {
    /// Returns the digest of the arguments that count.
    fn digest(&self, arguments: &Arguments) -> Digest {
        match self {
            Self::All(AllArguments::Arguments) => arguments.digest(),
            Self::Named(names) => {
                let named = arguments.as_map().iter();
                let named = named.filter(|(name, _)| names.contains(name));
                let chosen = named.map(|(name, value)| (name.clone(), value.clone()));
                Digest::of_bytes(canonical_json(&Value::Object(chosen.collect())).as_bytes())
            }
        }
    }
}

impl Default for IdempotencyOptions {
    fn default() -> Self {
        Self {
            ttl: HumanDuration::from_secs(300),
            max_entries: 10_000,
            max_bytes: 64 * 1024 * 1024,
            only: None,
            except: None,
            key: IdempotencyKeyBy::All(AllArguments::Arguments),
            writes: false,
        }
    }
}

/// The identity of a call in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CacheKey {
    owner: CallOwner,
    tool: ToolName,
    fingerprint: Option<Digest>,
    which: CallIdentity,
}

/// The part of the key that distinguishes calls of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum CallIdentity {
    Arguments(Digest),
    Named(String),
}

/// A cached success.
struct CachedSuccess {
    settled: SettledOutcome,
    bytes: usize,
    at: Timestamp,
    from: CallId,
}

impl Idempotency {
    /// Creates the layer from its options.
    ///
    /// # Errors
    ///
    /// Rejects values of zero, invalid globs, and `only` together with `except`.
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
        if matches!(key, IdempotencyKeyBy::Named(names) if names.is_empty()) {
            return Err(BadOption::new("key", "has to name at least one argument"));
        }
        if ttl.get().is_zero() {
            return Err(BadOption::new("ttl", "has to be longer than 0s"));
        }
        if *max_entries == 0 {
            return Err(BadOption::new("max_entries", "has to be at least 1"));
        }
        // The cache weighs an entry in 32 bits, and one entry may weigh as much as the limit.
        if *max_bytes == 0 || u32::try_from(*max_bytes).is_err() {
            return Err(BadOption::new(
                "max_bytes",
                "has to be at least 1 and less than 4 GB",
            ));
        }
        let covered = ToolCoverage::from_options(only.as_deref(), except.as_deref())?;
        let kept = build_cache(*max_entries, *max_bytes);
        let ttl = ttl.get();
        let writes = *writes;
        let flights = SingleFlight::new();
        Ok(Self {
            ttl,
            covered,
            writes,
            key: key.clone(),
            key_fn: None,
            redactor: None,
            kept,
            flights,
        })
    }

    /// Distinguishes calls of the same tool by `key` instead of by their arguments. A call without
    /// a key is not cached; if the function panics, the call does not run.
    pub fn key_fn(mut self, key: impl Fn(&Call) -> Option<String> + Send + Sync + 'static) -> Self {
        self.key_fn = Some(Arc::new(key));
        self
    }

    /// Redacts results before they are cached.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// Returns the key of a call that may be cached. The error is the report of a panic in the key
    /// function.
    fn cache_key(&self, call: &Call) -> Result<Option<CacheKey>, String> {
        if !(self.writes || call.annotations().may_repeat()) || !self.covered.includes(&call.tool) {
            return Ok(None);
        }
        let which = match &self.key_fn {
            None => CallIdentity::Arguments(self.key.digest(&call.arguments)),
            Some(key) => match run_contained_sync(|| key(call))? {
                Some(key) => CallIdentity::Named(key),
                None => return Ok(None),
            },
        };
        // A tool that was replaced by another version may give another result for the same
        // arguments.
        let fingerprint = call.shown_tool().map(|shown| shown.entry.fingerprint);
        Ok(Some(CacheKey {
            owner: CallOwner::for_call(call),
            tool: call.tool.clone(),
            fingerprint,
            which,
        }))
    }

    /// Returns the cached result for a key, unless it has expired.
    fn find_cached(&self, key: &CacheKey, call: &Call) -> Option<Arc<CachedSuccess>> {
        let kept = self.kept.get(key)?;
        // By the call's clock: the cache would use the wall clock, which tests and replays do not
        // control.
        (call.env().clock().now().since(kept.at) < self.ttl).then_some(kept)
    }

    /// Returns the result for a key that this process has cached or another one has stored.
    ///
    /// An error of the store counts as nothing found if the call may be repeated.
    async fn find_anywhere(
        &self,
        key: &CacheKey,
        call: &Call,
        next: &Next,
    ) -> Result<Option<Arc<CachedSuccess>>, StoreError> {
        // Another call may have finished between the first lookup and now.
        if let Some(kept) = self.find_cached(key, call) {
            return Ok(Some(kept));
        }
        let found = match stored::load_success(call, next.layer_name(), key, self.ttl).await {
            Err(_) if call.annotations().may_repeat() => None,
            found => found?.map(Arc::new),
        };
        if let Some(kept) = &found {
            self.kept.insert(key.clone(), kept.clone());
        }
        Ok(found)
    }

    /// Runs the call and, if it succeeds, caches the result.
    async fn run_and_cache(
        &self,
        key: CacheKey,
        call: Call,
        next: Next,
        seat: Option<&FlightSeat<'_, CacheKey, Arc<CachedSuccess>>>,
    ) -> Outcome {
        let from = call.id;
        let clock = call.env().clock().clone();
        let writing = (call.clone(), next.layer_name().clone());
        let outcome = next.run(call).await;
        if let Some(settled) = outcome
            .settled()
            .and_then(|settled| self.cacheable_copy(settled))
        {
            let kept = Arc::new(CachedSuccess {
                bytes: estimate_bytes(&settled),
                settled,
                at: clock.now(),
                from,
            });
            // The waiting calls get a large result all the same; it is only not stored for later
            // ones.
            if kept.bytes <= MAX_RESULT_BYTES {
                let (call, layer) = writing;
                stored::store_success(&call, &layer, &key, &kept);
                self.kept.insert(key, kept.clone());
            }
            // After the cache: a call that joins once the flight is gone has to find the result
            // there.
            if let Some(seat) = seat {
                seat.land(kept);
            }
        }
        outcome
    }

    /// Returns the redacted copy of a success; `None` if it must not be cached. The notes of the
    /// first call are about that call: the files that it changed, its cost, its approval.
    fn cacheable_copy(&self, settled: &SettledOutcome) -> Option<SettledOutcome> {
        if settled.status != Status::Ok {
            return None;
        }
        let mut copy = SettledOutcome::new(Status::Ok);
        copy.cached = true;
        copy.value = settled.value.clone();
        copy.text = settled.text.clone();
        if let Some(redactor) = &self.redactor {
            copy.value = redactor.redacted_json(&copy.value)?;
            copy.text = match &copy.text {
                Some(text) => Some(redactor.redacted_text(text)?.into()),
                None => None,
            };
        }
        Some(copy)
    }
}

/// Creates a cache with both limits.
///
/// Each entry weighs its bytes, but at least its share of the total, so that the number is limited
/// too.
fn build_cache(max_entries: u64, max_bytes: u64) -> Cache<CacheKey, Arc<CachedSuccess>> {
    let share = (max_bytes / max_entries).max(1);
    let capacity = share.saturating_mul(max_entries).min(max_bytes);
    let weigh = move |key: &CacheKey, kept: &Arc<CachedSuccess>| {
        let name = match &key.which {
            CallIdentity::Arguments(_) => 0,
            CallIdentity::Named(name) => name.len(),
        };
        let bytes = (ENTRY_OVERHEAD_BYTES + name + kept.bytes) as u64;
        u32::try_from(bytes.max(share)).unwrap_or(u32::MAX)
    };
    Cache::builder()
        .max_capacity(capacity)
        .weigher(weigh)
        .eviction_policy(EvictionPolicy::lru())
        .build()
}

/// Estimates the memory size of a result.
fn estimate_bytes(settled: &SettledOutcome) -> usize {
    let text = settled.text.as_ref().map_or(0, |text| text.len());
    settled.value.size().saturating_add(text)
}

/// Returns the outcome of a call that is answered from the cache.
fn cached_outcome(kept: &CachedSuccess, next: &Next) -> Outcome {
    next.note_reason("answered with the result of an identical call");
    let note = json!({ "hit": true, "from": kept.from });
    Outcome::from(kept.settled.clone())
        .with_notes(|notes| notes.insert(note_keys::IDEMPOTENCY, &note))
}

impl Layer for Idempotency {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let key = match self.cache_key(&call) {
            Ok(Some(key)) => key,
            Ok(None) => return next.run(call).await,
            Err(report) => {
                // Fails closed: without a key it is unknown whether the call is a repeat.
                let error =
                    CallError::new(ErrorCategory::Panic, "an internal error stopped the call");
                return Outcome::error(
                    Failure::LayerException,
                    error.with_operator_detail(format!("key_fn: {report}")),
                );
            }
        };
        // An external result was delivered for this call: it must not be replaced by that of
        // another call.
        if !call.resume_state().results.is_empty() {
            return self.run_and_cache(key, call, next, None).await;
        }
        if let Some(kept) = self.find_cached(&key, &call) {
            return cached_outcome(&kept, &next);
        }
        // A rehearsal must not join a flight: real calls would wait for it, although it has no
        // result to share.
        if call.is_rehearsal() {
            return next.run(call).await;
        }
        let seat = self.flights.join(key.clone());
        match call.cancel.run_until_cancelled(seat.wait_for_role()).await {
            None => {
                next.note_reason("cancelled while an identical call was running");
                Outcome::refused(
                    Refusal::Cancelled,
                    "the call was cancelled while it waited for an identical one",
                )
            }
            Some(FlightRole::Landed(kept)) => cached_outcome(&kept, &next),
            Some(FlightRole::Lead(_permit)) => match self.find_anywhere(&key, &call, &next).await {
                Ok(Some(kept)) => {
                    seat.land(kept.clone());
                    cached_outcome(&kept, &next)
                }
                Ok(None) => {
                    self.run_and_cache(key, call.clone(), next, Some(&seat))
                        .await
                }
                // Fails closed: it is unknown whether the effect has happened already.
                Err(error) => {
                    let text = "the store could not be read, so the call was not made";
                    let error = CallError::new(ErrorCategory::Internal, text)
                        .with_operator_detail(format!("idempotency: {error}"));
                    Outcome::error(Failure::LayerException, error)
                }
            },
        }
    }

    fn band(&self) -> Band {
        Band::Repeat
    }

    fn capabilities(&self) -> LayerCapabilities {
        let traits = LayerCapabilities::for_kind(Self::NAME)
            .answering()
            .caching();
        // Without a redactor the cache holds what the tool returned, so the linter has to treat the
        // layer as a recorder.
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
        "Answers identical calls with the cached result of the first, for a while.";
    type Options = IdempotencyOptions;

    fn configure(options: IdempotencyOptions, parts: &Resources) -> Result<Self, BadOption> {
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
mod tests;
