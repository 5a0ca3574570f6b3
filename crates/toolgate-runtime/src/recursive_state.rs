//! What a recursive run has used and found out so far, kept in the store so that it can go on anywhere.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;
use toolgate_core::{
    BudgetAlert, CallId, Digest, Json, Record, RecordKey, SessionId, StoreError, StoreHandle,
    Timestamp,
};

use crate::Spending;

/// How much a recursive run may use. What is reached first ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecursiveLimits {
    /// How many rounds of the coordinator.
    pub iterations: u32,
    /// How many tokens, of the coordinator and of everybody it asks.
    pub tokens: u64,
    /// How much time.
    pub time: Duration,
}

impl Default for RecursiveLimits {
    fn default() -> Self {
        Self {
            iterations: crate::SessionBuilder::MAX_ITERATIONS,
            tokens: 1_000_000,
            time: Duration::from_secs(30 * 60),
        }
    }
}

/// One run of a session: its place in the store, and a copy of what is there.
pub(crate) struct RunState {
    session: SessionId,
    pub(crate) run: u64,
    pub(crate) started_at: Timestamp,
    spending: Spending,
    tally: Mutex<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    coordinator: u64,
    asked: u64,
    reserved: u64,
    notes: BTreeMap<CallId, String>,
    answers: BTreeMap<CallId, Answer>,
    alerts: Vec<BudgetAlert>,
}

impl Tally {
    /// Takes up what was kept; nothing, if it cannot be read.
    fn take_up(&mut self, kind: &str, name: &str, record: &Record) -> Option<()> {
        match kind {
            "asked" => self.asked = self.asked.saturating_add(read::<Asked>(record)?.tokens),
            "step" => self.coordinator = self.coordinator.max(read::<Step>(record)?.coordinator),
            "note" => drop(
                self.notes
                    .insert(name.parse().ok()?, read::<Noted>(record)?.text),
            ),
            "answer" => drop(self.answers.insert(name.parse().ok()?, read(record)?)),
            _ => {}
        }
        Some(())
    }
}

/// What the coordinator holds for the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) ready: bool,
}

/// What somebody who was asked has said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) answer: String,
    pub(crate) tokens: u64,
}

/// What is kept of a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) coordinator: u64,
}

#[derive(Serialize, Deserialize)]
struct Started {
    at: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Noted {
    text: String,
}

/// The limit that is nearest its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) of: &'static str,
    /// From 0 to 100.
    pub(crate) percent: u8,
    pub(crate) spent: String,
    pub(crate) limit: String,
}

impl Used {
    fn new(of: &'static str, spent: u128, limit: u128) -> Self {
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
        }
    }

    fn time(spent: Duration, limit: Duration) -> Self {
        let used = Self::new("time", spent.as_micros(), limit.as_micros());
        Self {
            spent: format!("{} s", spent.as_secs()),
            limit: format!("{} s", limit.as_secs()),
            ..used
        }
    }
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} % of the {} ({} of {})",
            self.percent, self.of, self.spent, self.limit
        )
    }
}

impl RunState {
    /// Begins a run, or takes it up.
    pub(crate) async fn begin(
        store: &StoreHandle,
        (session, run): (SessionId, u64),
        now: Timestamp,
        spending: Spending,
    ) -> Result<Self, StoreError> {
        let state = Self {
            session,
            run,
            started_at: now,
            spending,
            tally: Mutex::default(),
        };
        let kept = store
            .once(state.key("started", "at"), record(&Started { at: now }))
            .await?;
        let started_at = kept
            .as_ref()
            .and_then(read::<Started>)
            .map_or(now, |started| started.at);
        let state = Self {
            started_at,
            ..state
        };
        state.load(store).await?;
        Ok(state)
    }

    /// Reads everything that was kept.
    async fn load(&self, store: &StoreHandle) -> Result<(), StoreError> {
        let prefix = self.prefix();
        let kept = all(store, &prefix).await?;
        let mut tally = self.tally();
        for (key, record) in &kept {
            let (kind, name) = key[prefix.len()..]
                .split_once('/')
                .ok_or_else(|| damaged(key))?;
            tally
                .take_up(kind, name, record)
                .ok_or_else(|| damaged(key))?;
        }
        Ok(())
    }

    /// What was said to the same question before, in this run.
    pub(crate) async fn asked(
        &self,
        store: &StoreHandle,
        question: Digest,
    ) -> Result<Option<Asked>, StoreError> {
        let kept = store
            .record(&self.key("asked", &question.to_string()))
            .await?;
        Ok(kept.as_ref().and_then(read))
    }

    /// Keeps what was said. The first answer stands.
    pub(crate) async fn keep_asked(
        &self,
        store: &StoreHandle,
        question: Digest,
        asked: Asked,
    ) -> Result<Asked, StoreError> {
        let kept = store
            .once(self.key("asked", &question.to_string()), record(&asked))
            .await?;
        let mut tally = self.tally();
        tally.asked = tally.asked.saturating_add(asked.tokens);
        Ok(kept.as_ref().and_then(read).unwrap_or(asked))
    }

    /// Keeps a note and says which it is, counted from 1. A call that comes back does not write it twice.
    pub(crate) async fn note(
        &self,
        store: &StoreHandle,
        call: CallId,
        text: String,
    ) -> Result<usize, StoreError> {
        store
            .once(
                self.key("note", &call.to_string()),
                record(&Noted { text: text.clone() }),
            )
            .await?;
        let mut tally = self.tally();
        tally.notes.insert(call, text);
        Ok(tally.notes.range(..=call).count())
    }

    /// Keeps an answer; that of the newest call stands.
    pub(crate) async fn answer(
        &self,
        store: &StoreHandle,
        call: CallId,
        answer: Answer,
    ) -> Result<(), StoreError> {
        store
            .once(self.key("answer", &call.to_string()), record(&answer))
            .await?;
        self.tally().answers.insert(call, answer);
        Ok(())
    }

    /// Keeps what the coordinator has used after a round.
    pub(crate) async fn step(
        &self,
        store: &StoreHandle,
        iteration: u32,
        coordinator: u64,
    ) -> Result<(), StoreError> {
        let coordinator = {
            let mut tally = self.tally();
            tally.coordinator = tally.coordinator.max(coordinator);
            tally.coordinator
        };
        store
            .once(
                self.key("step", &format!("{iteration:06}")),
                record(&Step { coordinator }),
            )
            .await?;
        Ok(())
    }

    /// Whether `who` is the one who says that a threshold was reached: the first, however often they ask.
    pub(crate) async fn first_to_say(
        &self,
        store: &StoreHandle,
        what: &str,
        percent: u8,
        who: &str,
    ) -> Result<bool, StoreError> {
        let said = Record::Json(Json::new(json!(who)).expect("plain text"));
        let kept = store
            .once(self.key(what, &percent.to_string()), said.clone())
            .await?;
        Ok(kept.is_none_or(|first| first == said))
    }

    /// How questions are paid for.
    pub(crate) fn spending(&self) -> Spending {
        self.spending.clone()
    }

    /// Budgets that have passed a threshold, to be told when the round is over.
    pub(crate) fn to_tell(&self, alerts: Vec<BudgetAlert>) {
        self.tally().alerts.extend(alerts);
    }

    /// What is to be told, once.
    pub(crate) fn take_alerts(&self) -> Vec<BudgetAlert> {
        std::mem::take(&mut self.tally().alerts)
    }

    /// The newest answer.
    pub(crate) fn best_answer(&self) -> Option<Answer> {
        self.tally()
            .answers
            .last_key_value()
            .map(|(_, answer)| answer.clone())
    }

    /// All notes, oldest first.
    pub(crate) fn scratchpad(&self) -> String {
        self.tally()
            .notes
            .values()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// All tokens used so far.
    pub(crate) fn tokens(&self) -> u64 {
        let tally = self.tally();
        tally.coordinator.saturating_add(tally.asked)
    }

    /// Sets tokens aside, if so many are left; says how many are left, if not. Nobody else can use them meanwhile.
    pub(crate) fn reserve(self: &Arc<Self>, tokens: u64, limit: u64) -> Result<SetAside, u64> {
        let mut tally = self.tally();
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
        Ok(SetAside {
            state: self.clone(),
            tokens,
        })
    }

    /// How much of the limit that is nearest its end is used, after so many rounds.
    pub(crate) fn used(&self, limits: &RecursiveLimits, rounds: u32, now: Timestamp) -> Used {
        let rounds = Used::new("rounds", rounds.into(), limits.iterations.into());
        let tokens = Used::new("tokens", self.tokens().into(), limits.tokens.into());
        let time = Used::time(now.since(self.started_at), limits.time);
        let worse = |a: Used, b: Used| if b.percent > a.percent { b } else { a };
        worse(worse(rounds, tokens), time)
    }

    fn prefix(&self) -> String {
        format!("recursive/{}/{:012}/", self.session, self.run)
    }

    fn key(&self, kind: &str, name: &str) -> RecordKey {
        RecordKey::Other(format!("{}{kind}/{name}", self.prefix()).into())
    }

    // Every change is made whole by a few lines of this file, so a poisoned lock hides nothing half-done.
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens that were set aside; given back when this is dropped, since by then what was used is counted or nothing was.
pub(crate) struct SetAside {
    state: Arc<RunState>,
    pub(crate) tokens: u64,
}

impl Drop for SetAside {
    fn drop(&mut self) {
        let mut tally = self.state.tally();
        tally.reserved = tally.reserved.saturating_sub(self.tokens);
    }
}

async fn all(store: &StoreHandle, prefix: &str) -> Result<Vec<(Arc<str>, Record)>, StoreError> {
    const PAGE: usize = 500;
    let mut all: Vec<(Arc<str>, Record)> = Vec::new();
    loop {
        let after = all.last().map(|(key, _)| key.clone());
        let page = store.list(prefix, after.as_deref(), PAGE).await?;
        let whole = page.len() == PAGE;
        all.extend(page);
        if !whole {
            return Ok(all);
        }
    }
}

fn record(value: &impl Serialize) -> Record {
    let value = serde_json::to_value(value).expect("plain data is JSON");
    Record::Json(Json::new(value).expect("flat JSON"))
}

fn read<T: DeserializeOwned>(record: &Record) -> Option<T> {
    match record {
        Record::Json(json) => T::deserialize(json.as_value()).ok(),
        _ => None,
    }
}

fn damaged(key: &str) -> StoreError {
    StoreError::Damaged {
        what: key.to_owned(),
        source: "it is not what a recursive run writes".into(),
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
    ) -> Result<Arc<RunState>, StoreError> {
        let spending = Spending::new(store.clone(), Arc::new(toolgate_core::StoppedClock));
        RunState::begin(store, (SESSION, run), now, spending)
            .await
            .map(Arc::new)
    }

    async fn begun(store: &StoreHandle, run: u64) -> Arc<RunState> {
        begins(store, run, NOW).await.expect("begins")
    }

    #[tokio::test]
    async fn what_a_run_was_told_goes_with_its_session() {
        let store = StoreHandle::new(MemoryStore::new());
        begun(&store, 2)
            .await
            .note(&store, call(2), "second".into())
            .await
            .expect("kept");
        assert!(!store.list("", None, 10).await.expect("reads").is_empty());
        store.erase(SESSION, NOW).await.expect("erases");
        assert_eq!(store.list("", None, 10).await.expect("reads"), []);
    }

    #[tokio::test]
    async fn a_run_that_is_taken_up_knows_everything_it_was_told() {
        let store = StoreHandle::new(MemoryStore::new());
        begun(&store, 2).await;
        let state = begun(&store, 10).await;
        state
            .note(&store, call(2), "second".into())
            .await
            .expect("kept");
        state
            .note(&store, call(1), "first".into())
            .await
            .expect("kept");
        state
            .answer(
                &store,
                call(3),
                Answer {
                    text: "a".into(),
                    ready: false,
                },
            )
            .await
            .expect("kept");
        state
            .answer(
                &store,
                call(4),
                Answer {
                    text: "b".into(),
                    ready: true,
                },
            )
            .await
            .expect("kept");
        let digest = Digest::of_bytes(b"q");
        state
            .keep_asked(
                &store,
                digest,
                Asked {
                    answer: "42".into(),
                    tokens: 7,
                },
            )
            .await
            .expect("kept");
        state.step(&store, 0, 5).await.expect("kept");
        state.step(&store, 1, 11).await.expect("kept");
        let again = begins(&store, 10, NOW.plus(Duration::from_secs(60)))
            .await
            .expect("begins");
        assert_eq!((again.run, again.started_at, again.tokens()), (10, NOW, 18));
        assert_eq!(
            again.scratchpad(),
            "first\nsecond",
            "in the order of the calls"
        );
        assert_eq!(
            again.best_answer(),
            Some(Answer {
                text: "b".into(),
                ready: true
            })
        );
        let kept = again.asked(&store, digest).await.expect("reads");
        assert_eq!(kept.map(|asked| asked.answer).as_deref(), Some("42"));
        assert_eq!(
            begun(&store, 2).await.tokens(),
            0,
            "another run has its own"
        );
    }

    #[tokio::test]
    async fn tokens_that_were_set_aside_are_nobody_elses() {
        let store = StoreHandle::new(MemoryStore::new());
        let state = begun(&store, 0).await;
        let first = state.reserve(60, 100).expect("enough");
        assert_eq!(state.reserve(60, 100).map(|held| held.tokens), Err(40));
        state
            .keep_asked(
                &store,
                Digest::of_bytes(b"q"),
                Asked {
                    answer: String::new(),
                    tokens: 10,
                },
            )
            .await
            .expect("kept");
        drop(first);
        assert_eq!(state.reserve(91, 100).map(|held| held.tokens), Err(90));
        assert_eq!(state.reserve(90, 100).map(|held| held.tokens), Ok(90));
    }

    #[tokio::test]
    async fn the_limit_nearest_its_end_is_told() {
        let store = StoreHandle::new(MemoryStore::new());
        let state = begun(&store, 0).await;
        let limits = RecursiveLimits {
            iterations: 10,
            tokens: 1000,
            time: Duration::from_secs(100),
        };
        let after =
            |rounds, seconds| state.used(&limits, rounds, NOW.plus(Duration::from_secs(seconds)));
        assert_eq!(after(3, 20).to_string(), "30 % of the rounds (3 of 10)");
        assert_eq!(after(3, 76).to_string(), "76 % of the time (76 s of 100 s)");
        state.step(&store, 0, 900).await.expect("kept");
        assert_eq!(after(3, 76).to_string(), "90 % of the tokens (900 of 1000)");
        assert_eq!(after(50, 0).percent, 100, "never more than all of it");
        let nothing = RecursiveLimits {
            iterations: 0,
            ..limits
        };
        assert_eq!(
            state.used(&nothing, 0, NOW).percent,
            100,
            "a limit of nothing is used up"
        );
    }

    #[tokio::test]
    async fn a_threshold_is_said_by_one_and_by_them_again_if_they_come_back() {
        let store = StoreHandle::new(MemoryStore::new());
        let state = begun(&store, 0).await;
        for (who, expected) in [("a", true), ("b", false), ("a", true)] {
            assert_eq!(
                state
                    .first_to_say(&store, "warned", 75, who)
                    .await
                    .expect("kept"),
                expected,
                "{who}"
            );
        }
        assert!(
            state
                .first_to_say(&store, "warned", 90, "b")
                .await
                .expect("kept")
        );
        assert!(
            state
                .first_to_say(&store, "alerted", 75, "b")
                .await
                .expect("kept")
        );
        assert!(
            begins(&store, 0, NOW).await.is_ok(),
            "what was said does not stand in the way"
        );
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_an_error_and_not_forgotten() {
        let store = StoreHandle::new(MemoryStore::new());
        let state = begun(&store, 0).await;
        store
            .once(state.key("asked", "x"), Record::Json(Json::null()))
            .await
            .expect("kept");
        assert!(matches!(
            begins(&store, 0, NOW).await.err(),
            Some(StoreError::Damaged { .. })
        ));
    }
}
