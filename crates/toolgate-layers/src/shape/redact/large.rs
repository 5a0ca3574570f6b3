//! Redacts large results on a thread for blocking work, with a time limit.

use std::{pin::pin, time::Duration};

use futures::future::{Either, select};
use serde_json::Value;
use toolgate_core::{Call, RedactionError, SettledOutcome};

use crate::{Redact, record::receipts::jsonl::run_blocking};

/// Number of bytes up to which a result is redacted in place: that takes about a millisecond.
const MAX_INLINE_BYTES: usize = 256 * 1024;

/// Time that redaction has, whatever the deadline of the call: the tool has already had its effect.
const MIN_TIME: Duration = Duration::from_secs(2);
/// Time that redaction has if the call has no deadline.
const MAX_TIME: Duration = Duration::from_secs(30);

impl Redact {
    /// Redacts an outcome. A large one would block the other tasks of this thread, so another thread
    /// does the work. If it does not finish by the deadline of the call, redaction has failed.
    pub(super) async fn redact_outcome(
        &self,
        call: &Call,
        settled: &mut SettledOutcome,
    ) -> Result<bool, RedactionError> {
        if !is_large(settled) {
            return self.redact_settled(settled);
        }
        let layer = self.clone();
        let mut copy = settled.clone();
        let work = run_blocking(move || {
            let redacted = layer.redact_settled(&mut copy);
            redacted.map(|redacted| (redacted, copy))
        });
        let clock = call.env().clock();
        let now = clock.now();
        let left = call
            .deadline
            .map_or(MAX_TIME, |deadline| deadline.since(now));
        match select(pin!(work), clock.sleep(left.clamp(MIN_TIME, MAX_TIME))).await {
            Either::Left((Some(Ok((redacted, copy))), _)) => {
                *settled = copy;
                Ok(redacted)
            }
            Either::Left((Some(Err(_)) | None, _)) | Either::Right(_) => Err(RedactionError),
        }
    }
}

/// Checks whether the value and the texts of an outcome together have many bytes.
fn is_large(settled: &SettledOutcome) -> bool {
    let text = settled.text.as_deref().map_or(0, str::len);
    let error = settled.error.as_ref().map_or(0, |error| error.model.len());
    exceeds(
        &settled.value,
        &mut MAX_INLINE_BYTES.saturating_sub(text + error),
    )
}

/// Checks whether a value has more bytes than are left, and stops counting there.
fn exceeds(value: &Value, left: &mut usize) -> bool {
    let mut take = |bytes: usize| {
        *left = left.saturating_sub(bytes + 1);
        *left == 0
    };
    match value {
        Value::String(text) => take(text.len()),
        Value::Array(items) => take(0) || items.iter().any(|item| exceeds(item, left)),
        Value::Object(map) => {
            take(0)
                || map.iter().any(|(key, value)| {
                    *left = left.saturating_sub(key.len());
                    exceeds(value, left)
                })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => take(8),
    }
}
