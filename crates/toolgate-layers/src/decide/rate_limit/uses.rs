//! The calls that count for a limit: those of this process, and those in the store.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use serde_json::json;
use toolgate_core::{
    Call, CallId, Digest, Json, LayerName, RecordKey, SessionFilter, SessionId, StoreError,
    StoreHandle, Timestamp,
};

use super::{CallQuota, RateScope};
use crate::identity::CallOwner;

/// Maximum number of counts in memory at a time.
const MAX_COUNTS: usize = 10_000;
/// A use that was handed to the journal this long ago is in the store, or its call is suspended and
/// counts again.
const STORED_AFTER: Duration = Duration::from_secs(600);
/// Maximum number of agents above an agent that are looked for.
const MAX_DEPTH: usize = 32;

/// The name under which the uses of a quota are stored. It ends with a slash.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CountName(String);

/// The unit that a quota counts for a call.
pub(super) enum CountedUnit {
    All,
    Tool(String),
    Session(SessionId),
    Principal(String),
}

impl CountedUnit {
    /// Returns what `per` counts for a call. A session counts together with those of its agents:
    /// otherwise each agent would have the whole quota again.
    pub(super) async fn for_call(call: &Call, per: RateScope) -> Result<Self, StoreError> {
        let store = call.env().store();
        Ok(match per {
            RateScope::All => Self::All,
            RateScope::Tool => Self::Tool(call.tool.to_string()),
            RateScope::Session => Self::Session(root_session(store, call.turn().session).await?),
            RateScope::Principal => match CallOwner::for_call(call) {
                CallOwner::Principal(principal) => Self::Principal(principal.to_string()),
                CallOwner::Session(session) => Self::Session(root_session(store, session).await?),
            },
        })
    }
}

/// Returns the session at the top of a chain of agents.
async fn root_session(store: &StoreHandle, session: SessionId) -> Result<SessionId, StoreError> {
    let mut root = session;
    for _ in 0..MAX_DEPTH {
        let rows = store.sessions(SessionFilter::for_session(root)).await?;
        match rows.first().and_then(|row| row.parent) {
            Some(parent) => root = parent,
            None => break,
        }
    }
    Ok(root)
}

impl CountName {
    /// Creates the name for a quota of a layer. Limits with the same layer, tools, unit and period
    /// share their uses, whatever their numbers are.
    pub(super) fn new(
        layer: &LayerName,
        tools: &[String],
        quota: &CallQuota,
        unit: &CountedUnit,
    ) -> Self {
        let unit = match unit {
            CountedUnit::All => json!(["all"]),
            CountedUnit::Tool(tool) => json!(["tool", tool]),
            CountedUnit::Session(session) => json!(["session", session]),
            CountedUnit::Principal(principal) => json!(["principal", principal]),
        };
        let period = quota.period.map(|period| period.as_micros().to_string());
        let whole = json!([layer.to_string(), tools, period, unit]);
        // A digest: a principal or a tool may have any name, and the store needs none of them.
        let digest = Digest::of_bytes(whole.to_string().as_bytes());
        Self(format!("rate/{digest}/"))
    }

    /// Returns the record of a use. The newest sorts first.
    pub(super) fn record(&self, at: Timestamp, call: CallId) -> (RecordKey, Json) {
        let age = i64::MAX - at.as_micros();
        let key = format!("{}{age:020}/{call}", self.0);
        (RecordKey::Other(key.into()), Json::null())
    }

    /// Loads the newest uses, at most `limit`.
    pub(super) async fn load_uses(
        &self,
        store: &StoreHandle,
        limit: usize,
    ) -> Result<Vec<(CallId, Timestamp)>, StoreError> {
        let found = store.list_json(&self.0, None, limit).await?;
        let uses = found.iter().filter_map(|(key, _)| {
            let (age, call) = key.strip_prefix(&self.0)?.split_once('/')?;
            let at = i64::MAX - age.parse::<i64>().ok()?;
            Some((call.parse().ok()?, Timestamp::from_micros(at)))
        });
        Ok(uses.collect())
    }
}

/// The reason why a quota has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuotaFull {
    /// There is room again after this time.
    RetryAfter(Duration),
    /// There is never any room again.
    Always,
    /// There are too many counts for another one.
    TooManyCounts,
}

/// A call that enters the layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallEntry {
    pub(super) call: CallId,
    /// True if it was suspended or has run before.
    pub(super) is_reentry: bool,
    pub(super) now: Timestamp,
}

/// Where a call is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountedCall {
    /// Nowhere yet.
    Not,
    /// In this process, since this time. It gets into the store with its start or its outcome.
    Here(Timestamp),
    /// In the store.
    InStore,
}

/// The uses that this process has counted, by the name of their count.
///
/// They are kept beside those in the store, because a use gets there only with the start or the
/// outcome of its call, and concurrent calls must not exceed a limit.
#[derive(Debug, Default)]
pub(super) struct OwnUses(HashMap<CountName, Vec<OwnUse>>);

#[derive(Debug, Clone, Copy)]
struct OwnUse {
    call: CallId,
    at: Timestamp,
    is_handed_over: bool,
}

impl OwnUses {
    /// Checks whether there is room for a call at `now`, given the uses in the store. A call that
    /// enters again and is counted has room. Nothing is counted here.
    pub(super) fn check_room(
        &mut self,
        name: &CountName,
        quota: &CallQuota,
        stored: &[(CallId, Timestamp)],
        entry: CallEntry,
    ) -> Result<CountedCall, QuotaFull> {
        let CallEntry {
            call,
            is_reentry,
            now,
        } = entry;
        let is_in_period = |at: Timestamp| quota.period.is_none_or(|period| now.since(at) < period);
        let own = match self.0.get_mut(name) {
            Some(own) => {
                own.retain(|own| is_in_period(own.at));
                own.as_slice()
            }
            None => {
                self.make_room(now)?;
                &[]
            }
        };
        // Only a call that enters again can be counted already: calls without a runtime share one id.
        if is_reentry && stored.iter().any(|(other, _)| *other == call) {
            return Ok(CountedCall::InStore);
        }
        if let Some(own) = own.iter().find(|own| is_reentry && own.call == call) {
            return Ok(CountedCall::Here(own.at));
        }
        // A use may be in both.
        let own_calls: HashSet<CallId> = own.iter().map(|own| own.call).collect();
        let foreign = stored.iter().filter(|(call, _)| !own_calls.contains(call));
        let foreign = foreign.map(|(_, at)| *at);
        let mut times: Vec<Timestamp> = foreign.filter(|at| is_in_period(*at)).collect();
        times.extend(own.iter().map(|own| own.at));
        let most = usize::try_from(quota.calls).unwrap_or(usize::MAX);
        if times.len() < most {
            return Ok(CountedCall::Not);
        }
        times.sort_unstable_by(|a, b| b.cmp(a));
        match (
            quota.period,
            most.checked_sub(1).and_then(|last| times.get(last)),
        ) {
            (Some(period), Some(at)) => Err(QuotaFull::RetryAfter(period - now.since(*at))),
            (None, _) | (_, None) => Err(QuotaFull::Always),
        }
    }

    pub(super) fn count_call(
        &mut self,
        name: CountName,
        call: CallId,
        at: Timestamp,
        is_handed_over: bool,
    ) {
        self.0.entry(name).or_default().push(OwnUse {
            call,
            at,
            is_handed_over,
        });
    }

    /// Makes room for another count.
    fn make_room(&mut self, now: Timestamp) -> Result<(), QuotaFull> {
        if self.0.len() < MAX_COUNTS {
            return Ok(());
        }
        let is_stored = |own: &OwnUse| own.is_handed_over && now.since(own.at) >= STORED_AFTER;
        self.0.retain(|_, uses| {
            uses.retain(|own| !is_stored(own));
            !uses.is_empty()
        });
        // Fail closed: to drop a use that is only here would let its count exceed the limit.
        if self.0.len() < MAX_COUNTS {
            Ok(())
        } else {
            Err(QuotaFull::TooManyCounts)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn seconds(secs: i64) -> Timestamp {
        Timestamp::from_micros(secs * 1_000_000)
    }

    fn call(number: u128) -> CallId {
        CallId::new(Uuid::from_u128(number))
    }

    fn entry(number: u128, at: i64) -> CallEntry {
        CallEntry {
            call: call(number),
            is_reentry: false,
            now: seconds(at),
        }
    }

    fn quota(calls: u64, period: Option<u64>) -> CallQuota {
        CallQuota {
            calls,
            period: period.map(Duration::from_secs),
            per: RateScope::All,
        }
    }

    fn name(number: usize) -> CountName {
        CountName(format!("rate/{number}/"))
    }

    #[test]
    fn uses_of_this_process_and_of_the_store_count_together_and_each_once() {
        let mut own = OwnUses::default();
        let three = quota(3, Some(10));
        own.count_call(name(0), call(1), seconds(0), true);
        own.count_call(name(0), call(2), seconds(4), true);
        // One of them has arrived in the store.
        let mut stored = vec![(call(2), seconds(4))];
        let mut check = |stored: &[_], new: u128, at, is_reentry| {
            let entry = CallEntry {
                is_reentry,
                ..entry(new, at)
            };
            own.check_room(&name(0), &three, stored, entry)
        };
        assert_eq!(check(&stored, 3, 5, false), Ok(CountedCall::Not));
        stored.push((call(9), seconds(1)));
        assert_eq!(
            check(&stored, 1, 5, true),
            Ok(CountedCall::Here(seconds(0)))
        );
        assert_eq!(check(&stored, 9, 5, true), Ok(CountedCall::InStore));
        let five = Duration::from_secs(5);
        for (number, is_reentry) in [(3, false), (3, true), (1, false)] {
            let full = check(&stored, number, 5, is_reentry);
            assert_eq!(full, Err(QuotaFull::RetryAfter(five)));
        }
        assert_eq!(check(&stored, 3, 10, false), Ok(CountedCall::Not));
    }

    #[test]
    fn a_total_never_has_room_again() {
        let mut own = OwnUses::default();
        let stored = [(call(1), seconds(0))];
        let later = entry(2, 1_000_000_000);
        let total = quota(1, None);
        let full = own.check_room(&name(0), &total, &stored, later);
        assert_eq!(full, Err(QuotaFull::Always));
        for none in [quota(0, None), quota(0, Some(1))] {
            let full = own.check_room(&name(0), &none, &[], later);
            assert_eq!(full, Err(QuotaFull::Always));
        }
    }

    #[test]
    fn counts_that_are_in_the_store_make_room_for_others() {
        let mut own = OwnUses::default();
        let one = quota(1, None);
        (0..MAX_COUNTS).for_each(|n| own.count_call(name(n), call(n as u128), seconds(0), n > 0));
        let another = name(MAX_COUNTS);
        let full = own.check_room(&another, &one, &[], entry(1, 599));
        assert_eq!(full, Err(QuotaFull::TooManyCounts));
        let room = own.check_room(&another, &one, &[], entry(1, 600));
        assert_eq!(room, Ok(CountedCall::Not));
        assert_eq!(own.0.len(), 1, "what is only here is kept");
    }

    #[test]
    fn limits_share_their_uses_if_they_count_the_same_in_the_same_period() {
        let layer = LayerName::from("rate_limit");
        let tools = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let base = CountName::new(
            &layer,
            &tools(&["a"]),
            &quota(1, Some(60)),
            &CountedUnit::All,
        );
        let other_number = CountName::new(
            &layer,
            &tools(&["a"]),
            &quota(9, Some(60)),
            &CountedUnit::All,
        );
        assert_eq!(base, other_number);
        let unit = CountedUnit::Tool("all".into());
        for other in [
            CountName::new(
                &layer,
                &tools(&["b"]),
                &quota(1, Some(60)),
                &CountedUnit::All,
            ),
            CountName::new(&layer, &tools(&["a"]), &quota(1, None), &CountedUnit::All),
            CountName::new(&layer, &tools(&["a"]), &quota(1, Some(60)), &unit),
        ] {
            assert_ne!(base, other);
        }
    }

    proptest! {
        #[test]
        fn no_period_ever_has_more_calls_than_allowed(
            calls in 1_u64..5, steps in proptest::collection::vec(0_i64..8, 1..60),
        ) {
            let mut own = OwnUses::default();
            let quota = quota(calls, Some(10));
            let mut now = 0;
            let mut passed = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                now += step;
                let entry = entry(number as u128, now);
                if own.check_room(&name(0), &quota, &[], entry) == Ok(CountedCall::Not) {
                    own.count_call(name(0), entry.call, entry.now, true);
                    passed.push(now);
                }
            }
            for start in &passed {
                let within = passed.iter().filter(|at| (*start..start + 10).contains(*at)).count();
                prop_assert!(within as u64 <= calls);
            }
        }
    }
}
