//! The usage and findings of a recursive run, stored so that it can be resumed anywhere.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;
use toolgate_core::{
    AlertUnit, BudgetAlert, BudgetAmounts, CallId, Digest, Json, RecordKey, SessionId, StoreError,
    StoreHandle, Timestamp,
};

use crate::ModelBilling;

/// Limits of a recursive run. The first one that is reached ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecursiveLimits {
    /// The maximum number of iterations of the coordinator.
    pub iterations: u32,
    /// The maximum number of tokens, of the coordinator and the models it asks.
    pub tokens: u64,
    /// The maximum time.
    pub time: Duration,
}

impl Default for RecursiveLimits {
    fn default() -> Self {
        Self {
            iterations: crate::session::builder::DEFAULT_MAX_ITERATIONS,
            tokens: 1_000_000,
            time: Duration::from_secs(30 * 60),
        }
    }
}

/// One run of a session: its keys in the store, and a cache of what is there.
pub(crate) struct RecursiveRun {
    session: SessionId,
    pub(crate) run: u64,
    pub(crate) started_at: Timestamp,
    spending: ModelBilling,
    tally: Mutex<UsageTally>,
}

#[derive(Debug, Default)]
struct UsageTally {
    coordinator: u64,
    asked: u64,
    reserved: u64,
    notes: BTreeMap<CallId, String>,
    answers: BTreeMap<CallId, CoordinatorAnswer>,
    alerts: Vec<BudgetAlert>,
}

impl UsageTally {
    /// Adds a stored record; returns nothing if it cannot be parsed.
    fn add_record(&mut self, kind: &str, name: &str, record: &Json) -> Option<()> {
        match kind {
            "asked" => {
                self.asked = self
                    .asked
                    .saturating_add(from_record::<DelegateAnswer>(record)?.tokens)
            }
            "step" => {
                self.coordinator = self
                    .coordinator
                    .max(from_record::<IterationUsage>(record)?.coordinator)
            }
            "note" => drop(
                self.notes
                    .insert(name.parse().ok()?, from_record::<NoteRecord>(record)?.text),
            ),
            "answer" => drop(
                self.answers
                    .insert(name.parse().ok()?, from_record(record)?),
            ),
            _ => {}
        }
        Some(())
    }
}

/// The answer of the coordinator so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CoordinatorAnswer {
    pub(crate) text: String,
    pub(crate) ready: bool,
}

/// The answer of a model that was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DelegateAnswer {
    pub(crate) answer: String,
    pub(crate) tokens: u64,
}

/// The record of an iteration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IterationUsage {
    pub(crate) coordinator: u64,
}

#[derive(Serialize, Deserialize)]
struct StartRecord {
    at: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct NoteRecord {
    text: String,
}

/// The limit that is nearest to being reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitUsage {
    pub(crate) of: &'static str,
    /// From 0 to 100.
    pub(crate) percent: u8,
    pub(crate) spent: String,
    pub(crate) limit: String,
    pub(crate) amounts: BudgetAmounts,
}

impl LimitUsage {
    fn new(of: &'static str, unit: AlertUnit, spent: u128, limit: u128) -> Self {
        let percent = spent
            .saturating_mul(100)
            .checked_div(limit)
            .unwrap_or(100)
            .min(100);
        let percent = u8::try_from(percent).unwrap_or(100);
        Self {
            of,
            percent,
            spent: spent.to_string(),
            limit: limit.to_string(),
            amounts: BudgetAmounts {
                unit,
                spent: u64::try_from(spent).unwrap_or(u64::MAX),
                limit: u64::try_from(limit).unwrap_or(u64::MAX),
            },
        }
    }

    fn for_time(spent: Duration, limit: Duration) -> Self {
        let unit = AlertUnit::Seconds;
        let used = Self::new("time", unit, spent.as_micros(), limit.as_micros());
        Self {
            amounts: BudgetAmounts {
                unit,
                spent: spent.as_secs(),
                limit: limit.as_secs(),
            },
            spent: format!("{} s", spent.as_secs()),
            limit: format!("{} s", limit.as_secs()),
            ..used
        }
    }
}

impl fmt::Display for LimitUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} % of the {} ({} of {})",
            self.percent, self.of, self.spent, self.limit
        )
    }
}

impl RecursiveRun {
    /// Begins a run, or resumes it.
    pub(crate) async fn begin_or_resume(
        store: &StoreHandle,
        session: SessionId,
        run: u64,
        now: Timestamp,
        spending: ModelBilling,
    ) -> Result<Self, StoreError> {
        let state = Self {
            session,
            run,
            started_at: now,
            spending,
            tally: Mutex::default(),
        };
        // Only the first process sets the start time, so that a resumed run keeps its time limit.
        let kept = store
            .put_json_once(
                state.record_key("started", "at"),
                to_record(&StartRecord { at: now }),
            )
            .await?;
        let started_at = kept
            .as_ref()
            .and_then(from_record::<StartRecord>)
            .map_or(now, |started| started.at);
        let state = Self {
            started_at,
            ..state
        };
        state.load_records(store).await?;
        Ok(state)
    }

    /// Loads everything that was stored.
    async fn load_records(&self, store: &StoreHandle) -> Result<(), StoreError> {
        let prefix = self.key_prefix();
        let kept = list_all(store, &prefix).await?;
        let mut tally = self.lock_tally();
        for (key, record) in &kept {
            let (kind, name) = key[prefix.len()..]
                .split_once('/')
                .ok_or_else(|| damaged_record(key))?;
            tally
                .add_record(kind, name, record)
                .ok_or_else(|| damaged_record(key))?;
        }
        Ok(())
    }

    /// Returns the answer to the same question, if it was asked before in this run.
    pub(crate) async fn stored_answer(
        &self,
        store: &StoreHandle,
        question: Digest,
    ) -> Result<Option<DelegateAnswer>, StoreError> {
        let kept = store
            .load_json(&self.record_key("asked", &question.to_string()))
            .await?;
        Ok(kept.as_ref().and_then(from_record))
    }

    /// Stores an answer. The first one stands.
    pub(crate) async fn store_answer(
        &self,
        store: &StoreHandle,
        question: Digest,
        asked: DelegateAnswer,
    ) -> Result<DelegateAnswer, StoreError> {
        let kept = store
            .put_json_once(
                self.record_key("asked", &question.to_string()),
                to_record(&asked),
            )
            .await?;
        let mut tally = self.lock_tally();
        // Counted even if another answer stands: the tokens were used.
        tally.asked = tally.asked.saturating_add(asked.tokens);
        Ok(kept.as_ref().and_then(from_record).unwrap_or(asked))
    }

    /// Stores a note and returns its number, counted from 1. A replayed call does not store it
    /// twice.
    pub(crate) async fn add_note(
        &self,
        store: &StoreHandle,
        call: CallId,
        text: String,
    ) -> Result<usize, StoreError> {
        store
            .put_json_once(
                self.record_key("note", &call.to_string()),
                to_record(&NoteRecord { text: text.clone() }),
            )
            .await?;
        let mut tally = self.lock_tally();
        tally.notes.insert(call, text);
        Ok(tally.notes.range(..=call).count())
    }

    /// Stores an answer; that of the newest call counts.
    pub(crate) async fn set_answer(
        &self,
        store: &StoreHandle,
        call: CallId,
        answer: CoordinatorAnswer,
    ) -> Result<(), StoreError> {
        store
            .put_json_once(
                self.record_key("answer", &call.to_string()),
                to_record(&answer),
            )
            .await?;
        self.lock_tally().answers.insert(call, answer);
        Ok(())
    }

    /// Stores what the coordinator has used after an iteration.
    pub(crate) async fn record_usage(
        &self,
        store: &StoreHandle,
        iteration: u32,
        coordinator: u64,
    ) -> Result<(), StoreError> {
        let coordinator = {
            let mut tally = self.lock_tally();
            tally.coordinator = tally.coordinator.max(coordinator);
            tally.coordinator
        };
        store
            .put_json_once(
                self.record_key("step", &format!("{iteration:06}")),
                to_record(&IterationUsage { coordinator }),
            )
            .await?;
        Ok(())
    }

    /// Checks whether `who` is the one that reports a threshold: the first, also when it asks
    /// again.
    pub(crate) async fn claim_threshold(
        &self,
        store: &StoreHandle,
        what: &str,
        percent: u8,
        who: &str,
    ) -> Result<bool, StoreError> {
        let said = Json::new(json!(who)).expect("plain text");
        let kept = store
            .put_json_once(self.record_key(what, &percent.to_string()), said.clone())
            .await?;
        Ok(kept.is_none_or(|first| first == said))
    }

    /// Returns the billing for questions.
    pub(crate) fn spending(&self) -> ModelBilling {
        self.spending.clone()
    }

    /// Adds budget alerts, to be reported at the end of the iteration.
    pub(crate) fn queue_alerts(&self, alerts: Vec<BudgetAlert>) {
        self.lock_tally().alerts.extend(alerts);
    }

    /// Removes and returns the alerts to report.
    pub(crate) fn take_alerts(&self) -> Vec<BudgetAlert> {
        std::mem::take(&mut self.lock_tally().alerts)
    }

    /// Returns the newest answer.
    pub(crate) fn best_answer(&self) -> Option<CoordinatorAnswer> {
        self.lock_tally()
            .answers
            .last_key_value()
            .map(|(_, answer)| answer.clone())
    }

    /// Returns all notes, oldest first.
    pub(crate) fn scratchpad(&self) -> String {
        self.lock_tally()
            .notes
            .values()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Returns all tokens used so far.
    pub(crate) fn used_tokens(&self) -> u64 {
        let tally = self.lock_tally();
        tally.coordinator.saturating_add(tally.asked)
    }

    /// Reserves tokens, or returns how many are left if they are too few. Nothing else can use them
    /// meanwhile.
    pub(crate) fn reserve_tokens(
        self: &Arc<Self>,
        tokens: u64,
        limit: u64,
    ) -> Result<ReservedTokens, u64> {
        let mut tally = self.lock_tally();
        let gone = tally
            .coordinator
            .saturating_add(tally.asked)
            .saturating_add(tally.reserved);
        let left = limit.saturating_sub(gone);
        if tokens > left {
            return Err(left);
        }
        tally.reserved = tally.reserved.saturating_add(tokens);
        drop(tally);
        Ok(ReservedTokens {
            state: self.clone(),
            tokens,
        })
    }

    /// Returns how much is used of the limit that is nearest to being reached, after so many
    /// iterations.
    pub(crate) fn limit_usage(
        &self,
        limits: &RecursiveLimits,
        iterations: u32,
        now: Timestamp,
    ) -> LimitUsage {
        let iterations = LimitUsage::new(
            "iterations",
            AlertUnit::Iterations,
            iterations.into(),
            limits.iterations.into(),
        );
        let tokens = LimitUsage::new(
            "tokens",
            AlertUnit::Tokens,
            self.used_tokens().into(),
            limits.tokens.into(),
        );
        let time = LimitUsage::for_time(now.since(self.started_at), limits.time);
        let worse = |a: LimitUsage, b: LimitUsage| if b.percent > a.percent { b } else { a };
        worse(worse(iterations, tokens), time)
    }

    fn key_prefix(&self) -> String {
        format!("recursive/{}/{:012}/", self.session, self.run)
    }

    fn record_key(&self, kind: &str, name: &str) -> RecordKey {
        RecordKey::Other(format!("{}{kind}/{name}", self.key_prefix()).into())
    }

    // A poisoned lock is used anyway: every change is completed within a few lines of this file.
    fn lock_tally(&self) -> MutexGuard<'_, UsageTally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reserved tokens; released when this is dropped, since by then the usage is counted or there was
/// none.
pub(crate) struct ReservedTokens {
    state: Arc<RecursiveRun>,
    pub(crate) tokens: u64,
}

impl Drop for ReservedTokens {
    fn drop(&mut self) {
        let mut tally = self.state.lock_tally();
        tally.reserved = tally.reserved.saturating_sub(self.tokens);
    }
}

async fn list_all(store: &StoreHandle, prefix: &str) -> Result<Vec<(Arc<str>, Json)>, StoreError> {
    const PAGE: usize = 500;
    let mut all: Vec<(Arc<str>, Json)> = Vec::new();
    loop {
        let after = all.last().map(|(key, _)| key.clone());
        let page = store.list_json(prefix, after.as_deref(), PAGE).await?;
        let whole = page.len() == PAGE;
        all.extend(page);
        if !whole {
            return Ok(all);
        }
    }
}

fn to_record(value: &impl Serialize) -> Json {
    let value = serde_json::to_value(value).expect("plain data is JSON");
    Json::new(value).expect("flat JSON")
}

fn from_record<T: DeserializeOwned>(record: &Json) -> Option<T> {
    T::deserialize(record.as_value()).ok()
}

fn damaged_record(key: &str) -> StoreError {
    StoreError::Damaged {
        what: key.to_owned(),
        source: "it is not a record of a recursive run".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::MemoryStore;
    use uuid::Uuid;

    const SESSION: SessionId = SessionId::new(Uuid::from_u128(5));
    const NOW: Timestamp = Timestamp::from_micros(1_000_000);

    fn call(n: u128) -> CallId {
        CallId::new(Uuid::from_u128(n))
    }

    async fn begins(
        store: &StoreHandle,
        run: u64,
        now: Timestamp,
    ) -> Result<Arc<RecursiveRun>, StoreError> {
        let service = toolgate_core::BillingService::new(store.clone(), Default::default());
        let spending = ModelBilling::new(service, Arc::new(toolgate_core::StoppedClock));
        RecursiveRun::begin_or_resume(store, SESSION, run, now, spending)
            .await
            .map(Arc::new)
    }

    async fn begun(store: &StoreHandle, run: u64) -> Arc<RecursiveRun> {
        begins(store, run, NOW).await.expect("begins")
    }

    #[tokio::test]
    async fn the_records_of_a_run_are_erased_with_its_session() {
        let store = StoreHandle::new(MemoryStore::new());
        begun(&store, 2)
            .await
            .add_note(&store, call(2), "second".into())
            .await
            .expect("stored");
        assert!(
            !store
                .list_records("", None, 10)
                .await
                .expect("reads")
                .is_empty()
        );
        store.erase_session(SESSION, NOW).await.expect("erases");
        assert_eq!(store.list_records("", None, 10).await.expect("reads"), []);
    }

    #[tokio::test]
    async fn a_resumed_run_knows_everything_it_stored() {
        let store = StoreHandle::new(MemoryStore::new());
        begun(&store, 2).await;
        let state = begun(&store, 10).await;
        state
            .add_note(&store, call(2), "second".into())
            .await
            .expect("stored");
        state
            .add_note(&store, call(1), "first".into())
            .await
            .expect("stored");
        state
            .set_answer(
                &store,
                call(3),
                CoordinatorAnswer {
                    text: "a".into(),
                    ready: false,
                },
            )
            .await
            .expect("stored");
        state
            .set_answer(
                &store,
                call(4),
                CoordinatorAnswer {
                    text: "b".into(),
                    ready: true,
                },
            )
            .await
            .expect("stored");
        let digest = Digest::of_bytes(b"q");
        state
            .store_answer(
                &store,
                digest,
                DelegateAnswer {
                    answer: "42".into(),
                    tokens: 7,
                },
            )
            .await
            .expect("stored");
        state.record_usage(&store, 0, 5).await.expect("stored");
        state.record_usage(&store, 1, 11).await.expect("stored");
        let again = begins(&store, 10, NOW.plus(Duration::from_secs(60)))
            .await
            .expect("begins");
        assert_eq!(
            (again.run, again.started_at, again.used_tokens()),
            (10, NOW, 18)
        );
        assert_eq!(
            again.scratchpad(),
            "first\nsecond",
            "in the order of the calls"
        );
        assert_eq!(
            again.best_answer(),
            Some(CoordinatorAnswer {
                text: "b".into(),
                ready: true
            })
        );
        let kept = again.stored_answer(&store, digest).await.expect("reads");
        assert_eq!(kept.map(|asked| asked.answer).as_deref(), Some("42"));
        assert_eq!(
            begun(&store, 2).await.used_tokens(),
            0,
            "another run has its own"
        );
    }

    #[tokio::test]
    async fn reserved_tokens_cannot_be_used_elsewhere() {
        let store = StoreHandle::new(MemoryStore::new());
        let state = begun(&store, 0).await;
        let first = state.reserve_tokens(60, 100).expect("enough");
        assert_eq!(
            state.reserve_tokens(60, 100).map(|held| held.tokens),
            Err(40)
        );
        state
            .store_answer(
                &store,
                Digest::of_bytes(b"q"),
                DelegateAnswer {
                    answer: String::new(),
                    tokens: 10,
                },
            )
            .await
            .expect("stored");
        drop(first);
        assert_eq!(
            state.reserve_tokens(91, 100).map(|held| held.tokens),
            Err(90)
        );
        assert_eq!(
            state.reserve_tokens(90, 100).map(|held| held.tokens),
            Ok(90)
        );
    }

    #[tokio::test]
    async fn the_limit_nearest_to_being_reached_is_reported() {
        let store = StoreHandle::new(MemoryStore::new());
        let state = begun(&store, 0).await;
        let limits = RecursiveLimits {
            iterations: 10,
            tokens: 1000,
            time: Duration::from_secs(100),
        };
        let after = |iterations, seconds| {
            state.limit_usage(&limits, iterations, NOW.plus(Duration::from_secs(seconds)))
        };
        assert_eq!(after(3, 20).to_string(), "30 % of the iterations (3 of 10)");
        assert_eq!(after(3, 76).to_string(), "76 % of the time (76 s of 100 s)");
        state.record_usage(&store, 0, 900).await.expect("stored");
        assert_eq!(after(3, 76).to_string(), "90 % of the tokens (900 of 1000)");
        assert_eq!(after(50, 0).percent, 100, "never more than all of it");
        let nothing = RecursiveLimits {
            iterations: 0,
            ..limits
        };
        assert_eq!(
            state.limit_usage(&nothing, 0, NOW).percent,
            100,
            "a limit of zero is reached"
        );
    }

    #[tokio::test]
    async fn a_threshold_is_reported_by_one_caller_and_again_by_the_same_caller() {
        let store = StoreHandle::new(MemoryStore::new());
        let state = begun(&store, 0).await;
        for (who, expected) in [("a", true), ("b", false), ("a", true)] {
            assert_eq!(
                state
                    .claim_threshold(&store, "warned", 75, who)
                    .await
                    .expect("stored"),
                expected,
                "{who}"
            );
        }
        assert!(
            state
                .claim_threshold(&store, "warned", 90, "b")
                .await
                .expect("stored")
        );
        assert!(
            state
                .claim_threshold(&store, "alerted", 75, "b")
                .await
                .expect("stored")
        );
        assert!(
            begins(&store, 0, NOW).await.is_ok(),
            "earlier reports do not prevent a new start"
        );
    }

    #[tokio::test]
    async fn an_unreadable_record_is_an_error() {
        let store = StoreHandle::new(MemoryStore::new());
        let state = begun(&store, 0).await;
        store
            .put_json_once(state.record_key("asked", "x"), Json::null())
            .await
            .expect("stored");
        assert!(matches!(
            begins(&store, 0, NOW).await.err(),
            Some(StoreError::Damaged { .. })
        ));
    }
}
