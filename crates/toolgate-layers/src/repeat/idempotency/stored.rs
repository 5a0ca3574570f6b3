//! Cached successes in the store, for other processes.
//!
//! The result belongs to its call and is erased with the session of the call. The index has only
//! digests and ids; an index whose result was erased counts as nothing found.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolgate_core::{
    Call, CallId, Digest, Json, LayerName, Notes, RecordKey, SettledOutcome, StoreError, Timestamp,
};

use super::{CacheKey, CachedSuccess, CallIdentity, estimate_bytes};
use crate::identity::CallOwner;

/// The stored form of a cached success.
#[derive(Serialize, Deserialize)]
struct StoredSuccess {
    at: i64,
    settled: SettledOutcome,
}

/// Hands a success to the write that records the outcome of its call.
pub(super) fn store_success(call: &Call, layer: &LayerName, key: &CacheKey, kept: &CachedSuccess) {
    let stored = StoredSuccess {
        at: kept.at.as_micros(),
        settled: kept.settled.clone(),
    };
    // A value that is no JSON for the store is cached in this process only.
    let Some(result) = serde_json::to_value(stored)
        .ok()
        .and_then(|value| Json::new(value).ok())
    else {
        return;
    };
    // Newest first: the store lists keys in order.
    let age = i64::MAX - kept.at.as_micros();
    let index = format!("{}{age:020}/{}", index_prefix(layer, key), call.id);
    let records = vec![
        (result_key(call.id, layer), result),
        (
            RecordKey::Other(index.into()),
            Json::from(call.id.to_string()),
        ),
    ];
    call.env().probe().write_with_outcome(call, records);
}

/// Loads the newest success for a key, unless it is older than `ttl` or was erased.
pub(super) async fn load_success(
    call: &Call,
    layer: &LayerName,
    key: &CacheKey,
    ttl: Duration,
) -> Result<Option<CachedSuccess>, StoreError> {
    let store = call.env().store();
    let index = store.list_json(&index_prefix(layer, key), None, 1).await?;
    let from: Option<CallId> = index.first().and_then(|(_, id)| id.as_str()?.parse().ok());
    let Some(from) = from else { return Ok(None) };
    let Some(result) = store.load_json(&result_key(from, layer)).await? else {
        return Ok(None);
    };
    let Ok(mut stored) = StoredSuccess::deserialize(result.as_value()) else {
        return Ok(None);
    };
    // An earlier version stored the notes of the first call too.
    stored.settled.notes = Notes::default();
    let at = Timestamp::from_micros(stored.at);
    let is_fresh = call.env().clock().now().since(at) < ttl;
    Ok(is_fresh.then(|| CachedSuccess {
        bytes: estimate_bytes(&stored.settled),
        settled: stored.settled,
        at,
        from,
    }))
}

fn result_key(call: CallId, layer: &LayerName) -> RecordKey {
    RecordKey::Layer(call, format!("{layer}/success").into())
}

/// Returns the beginning of the index of a key. It has a digest of owner and arguments, no text.
fn index_prefix(layer: &LayerName, key: &CacheKey) -> String {
    let CacheKey {
        owner,
        tool,
        fingerprint,
        which,
    } = key;
    let owner = match owner {
        CallOwner::Principal(principal) => json!({ "principal": principal }),
        CallOwner::Session(session) => json!({ "session": session }),
    };
    let which = match which {
        CallIdentity::Arguments(digest) => json!({ "arguments": digest }),
        CallIdentity::Named(name) => json!({ "named": name }),
    };
    let identity = json!([owner, tool, fingerprint, which]).to_string();
    format!(
        "idempotency/{layer}/{}/",
        Digest::of_bytes(identity.as_bytes())
    )
}
