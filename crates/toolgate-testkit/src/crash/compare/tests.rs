//! Each bug that the kit exists for, planted once: it has to be found.

use std::sync::Arc;

use toolgate_core::{
    CallId, Digest, Event, EventStore, Invocation, LedgerDraft, LedgerName, LedgerStore,
    LogPosition, MemoryStore, Outcome, RecordKey, SessionId, SettledOutcome, Status, StoreHandle,
    StoreRecord, Timestamp, ToolEvent, ToolName, TurnEvent, TurnId, TurnInfo, WriteBatch,
};
use uuid::Uuid;

use super::*;
use crate::crash::{EffectLog, LedgerChains};

/// Two turns of one call each, written as a runtime would, with an effect and a receipt per call.
struct PlantedSession {
    store: MemoryStore,
    effects: EffectLog,
    _dir: tempfile::TempDir,
}

const SESSION: SessionId = SessionId::new(Uuid::from_u128(1));

fn turn_id(n: u128) -> TurnId {
    TurnId::new(Uuid::from_u128(10 + n))
}

fn call_id(n: u128) -> CallId {
    CallId::new(Uuid::from_u128(20 + n))
}

fn invocation(n: u128) -> Arc<Invocation> {
    let turn = Arc::new(TurnInfo::new(SESSION, turn_id(n)));
    Arc::new(Invocation {
        id: call_id(n),
        call_id: "c".into(),
        tool: "pay".into(),
        emit_order: 0,
        turn,
    })
}

fn settled_outcome(status: Status) -> SettledOutcome {
    let mut outcome = Outcome::ok("paid").settled().expect("settled").clone();
    outcome.status = status;
    outcome
}

type Records = Vec<(RecordKey, StoreRecord)>;

/// Returns the events of a call, with the records that are written with them.
fn life_events(n: u128, status: Status) -> Vec<(Vec<ToolEvent>, Records)> {
    let digest = Digest::of_bytes(b"");
    let mut end = settled_outcome(status);
    end.attempts = 1;
    let requested = ToolEvent::ToolRequested {
        arguments: None,
        arguments_digest: digest,
        arguments_bytes: 0,
        executor: None,
    };
    let started = ToolEvent::ToolExecutionStarted {
        attempt: 1,
        executor: None,
        external: false,
        arguments_digest: digest,
        arguments: None,
    };
    let ended = ToolEvent::from_settled(&end, true, None, None);
    let outcome = (
        RecordKey::Outcome(call_id(n)),
        StoreRecord::Outcome(Arc::new(end)),
    );
    vec![
        (vec![requested], vec![]),
        (vec![started], vec![]),
        (vec![ended], vec![outcome]),
    ]
}

impl PlantedSession {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let planted = Self {
            store: MemoryStore::new(),
            effects: EffectLog::open_at(dir.path().join("case.effects")),
            _dir: dir,
        };
        planted.write_turn(0, Status::Ok).await;
        planted.write_turn(1, Status::Ok).await;
        planted
    }

    async fn write_turn(&self, n: u128, status: Status) {
        let info = invocation(n).turn.clone();
        let after = (n > 0).then(|| turn_id(n - 1));
        let successor =
            after.map(|after| (RecordKey::Successor(after), StoreRecord::Turn(turn_id(n))));
        self.append_events(
            n,
            vec![Err(TurnEvent::TurnOpened { size: 1, after })],
            successor.into_iter().collect(),
        )
        .await;
        for (events, records) in life_events(n, status) {
            self.append_events(n, events.into_iter().map(Ok).collect(), records)
                .await;
        }
        self.append_events(
            n,
            vec![Err(TurnEvent::TurnSettled)],
            vec![(RecordKey::Ended(info.turn), StoreRecord::Turn(info.turn))],
        )
        .await;
        self.add_effect(n);
        self.add_receipt(n).await;
    }

    async fn append_events(
        &self,
        n: u128,
        events: Vec<Result<ToolEvent, TurnEvent>>,
        records: Records,
    ) {
        let revision = self.store.revision(SESSION).await.expect("reads");
        let event = |(at, event): (u64, Result<ToolEvent, TurnEvent>)| match event {
            Ok(event) => {
                Event::for_invocation(at, Timestamp::EPOCH, invocation(n), event).expect("valid")
            }
            Err(event) => Event::for_turn(at, Timestamp::EPOCH, invocation(n).turn.clone(), event)
                .expect("valid"),
        };
        let events = (revision + 1..)
            .zip(events)
            .map(event)
            .map(Arc::new)
            .collect();
        let batch = WriteBatch {
            events,
            records,
            ..WriteBatch::default()
        };
        self.store
            .append(SESSION, LogPosition::unleased(revision), batch)
            .await
            .expect("written");
    }

    fn add_effect(&self, n: u128) {
        self.effects
            .record_effect(
                &toolgate_core::IdempotencyKey::for_call(call_id(n)),
                "pay",
                "42",
            )
            .expect("written");
    }

    async fn add_receipt(&self, n: u128) {
        let body = format!(r#"{{"invocation_id":"{}"}}"#, call_id(n)).into();
        self.store
            .seal_entries(vec![LedgerDraft {
                ledger: LedgerName::main(),
                body,
            }])
            .await
            .expect("sealed");
    }

    async fn inspect(&self) -> SessionSnapshot {
        let store = StoreHandle::new(self.store.clone());
        SessionSnapshot::inspect(&store, SESSION, &self.effects, &mut LedgerChains::default())
            .await
            .expect("reads")
    }
}

/// Asserts that exactly one rule is broken.
fn assert_only(wrong: &[String], words: &str) {
    assert!(
        wrong.len() == 1 && wrong[0].contains(words),
        "{words}: {wrong:?}"
    );
}

fn facts_with(repeats: RepeatRule) -> ScenarioFacts {
    ScenarioFacts {
        repeats: [(ToolName::from("pay"), repeats)].into(),
        ..ScenarioFacts::default()
    }
}

#[tokio::test]
async fn two_runs_with_the_same_outcome_have_no_differences() {
    let calm = PlantedSession::new().await.inspect().await;
    let after = PlantedSession::new().await.inspect().await;
    assert_eq!(
        compare_runs(&calm, &after, &ScenarioFacts::default()),
        Vec::<String>::new()
    );
    assert_eq!(find_losses(&calm, &after), Vec::<String>::new());
    assert_eq!(calm.receipts.values().copied().collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn an_effect_that_is_repeated_is_found_unless_it_may_be() {
    let calm = PlantedSession::new().await.inspect().await;
    let twice = PlantedSession::new().await;
    twice.add_effect(1);
    let twice = twice.inspect().await;
    assert_only(
        &compare_runs(&calm, &twice, &ScenarioFacts::default()),
        "had the effects",
    );
    let harmless = facts_with(RepeatRule::Harmless);
    assert_eq!(compare_runs(&calm, &twice, &harmless), Vec::<String>::new());
    let reconciled = facts_with(RepeatRule::Reconciled);
    assert_only(&compare_runs(&calm, &twice, &reconciled), "had the effects");
}

#[tokio::test]
async fn an_effect_that_is_missing_is_found() {
    let calm = PlantedSession::new().await.inspect().await;
    let mut after = calm.clone();
    after.effects.pop();
    assert_only(
        &compare_runs(&calm, &after, &ScenarioFacts::default()),
        "had the effects",
    );
    after.effects = calm.effects.clone();
    after.effects[0].key = "another call".to_owned();
    assert!(
        compare_runs(&calm, &after, &ScenarioFacts::default())
            .iter()
            .any(|wrong| wrong.contains("belongs to no call"))
    );
}

#[tokio::test]
async fn an_unknown_outcome_is_allowed_only_where_it_cannot_be_known() {
    let calm = PlantedSession::new().await.inspect().await;
    let mut after = calm.clone();
    after.calls[0].outcome = Some(Arc::new(settled_outcome(Status::OutcomeUnknown)));
    after.calls[0].life = vec!["tool_requested", STARTED, "tool_execution_interrupted"];
    assert_eq!(
        compare_runs(&calm, &after, &ScenarioFacts::default()),
        Vec::<String>::new()
    );
    let harmless = facts_with(RepeatRule::Harmless);
    assert_only(
        &compare_runs(&calm, &after, &harmless),
        "although it could be known",
    );
}

#[tokio::test]
async fn an_outcome_that_is_lost_or_changed_is_found() {
    let calm = PlantedSession::new().await.inspect().await;
    let mut after = calm.clone();
    after.calls[1].outcome = None;
    assert_only(&find_losses(&calm, &after), "was changed or lost");
    after.calls[1].outcome = Some(Arc::new(settled_outcome(Status::Timeout)));
    assert_only(&find_losses(&calm, &after), "was changed or lost");
    assert!(
        compare_runs(&calm, &after, &ScenarioFacts::default())
            .iter()
            .any(|wrong| wrong.contains("settled as"))
    );
}

#[tokio::test]
async fn a_log_that_lost_an_event_is_found() {
    let calm = PlantedSession::new().await.inspect().await;
    let mut after = calm.clone();
    after.log.remove(2);
    assert_only(&find_losses(&calm, &after), "the log does not begin");
}

#[tokio::test]
async fn a_store_that_lost_a_record_is_found() {
    let planted = PlantedSession::new().await;
    // The end is in the log, but its outcome was never stored.
    planted
        .append_events(
            2,
            vec![Err(TurnEvent::TurnOpened {
                size: 1,
                after: Some(turn_id(1)),
            })],
            Vec::new(),
        )
        .await;
    for (events, _lost) in life_events(2, Status::Ok) {
        planted
            .append_events(2, events.into_iter().map(Ok).collect(), Vec::new())
            .await;
    }
    assert_only(
        &planted.inspect().await.broken,
        "has an end in the log and no outcome",
    );
}

#[tokio::test]
async fn an_approval_that_is_requested_twice_is_found() {
    let calm = PlantedSession::new().await.inspect().await;
    let mut once = calm.clone();
    let mut twice = calm.clone();
    once.calls[0]
        .life
        .splice(1..1, [APPROVAL_REQUESTED, APPROVED]);
    twice.calls[0].life.splice(
        1..1,
        [APPROVAL_REQUESTED, APPROVED, APPROVAL_REQUESTED, APPROVED],
    );
    let wrong = compare_runs(&once, &twice, &ScenarioFacts::default());
    assert!(
        wrong
            .iter()
            .any(|wrong| wrong.contains("had 2 approval requests instead of 1")),
        "{wrong:?}"
    );
    assert_eq!(
        compare_runs(
            &once,
            &twice,
            &ScenarioFacts::default().allow_second_request()
        ),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn an_approval_that_is_lost_or_left_pending_is_found() {
    let calm = PlantedSession::new().await.inspect().await;
    let mut before = calm.clone();
    before.pending.insert(call_id(0));
    assert_only(
        &find_losses(&before, &calm),
        "the approval of turn 1 call 1 (pay) was lost",
    );
    assert_only(
        &compare_runs(&calm, &before, &ScenarioFacts::default()),
        "still pending at the end",
    );
    let mut answered = calm.clone();
    answered.answered.insert(call_id(0));
    assert_eq!(find_losses(&before, &answered), Vec::<String>::new());
    assert_only(
        &find_losses(&answered, &before),
        "the decision on turn 1 call 1 (pay) was lost",
    );
}

#[tokio::test]
async fn an_agent_that_never_worked_is_found_unless_its_call_exceeded_the_budget() {
    let mut calm = PlantedSession::new().await.inspect().await;
    let mut after = calm.clone();
    calm.inner.insert(call_id(0), SessionSnapshot::default());
    assert_only(
        &compare_runs(&calm, &after, &ScenarioFacts::default()),
        "no agent worked on turn 1 call 1 (pay)",
    );
    after.calls[0].outcome = Some(Arc::new(settled_outcome(Status::BudgetExceeded)));
    after.effects.remove(0);
    assert_eq!(
        compare_runs(
            &calm,
            &after,
            &ScenarioFacts::default().allow_budget_rejections()
        ),
        Vec::<String>::new()
    );
    let wrong = compare_runs(&calm, &after, &ScenarioFacts::default());
    assert!(
        wrong.iter().any(|wrong| wrong.contains("no agent worked")),
        "{wrong:?}"
    );
}

#[tokio::test]
async fn a_callback_that_is_called_twice_is_found() {
    let mut calm = PlantedSession::new().await.inspect().await;
    let notice = LoggedEffect {
        key: call_id(0).to_string(),
        tool: "on_request".into(),
        what: String::new(),
    };
    calm.notices = vec![notice.clone()];
    let mut after = calm.clone();
    after.notices = vec![notice.clone(), notice];
    assert_only(
        &compare_runs(&calm, &after, &ScenarioFacts::default()),
        "on_request was called 2 times",
    );
}

#[tokio::test]
async fn a_second_continuation_is_found() {
    let planted = PlantedSession::new().await;
    let calm = planted.inspect().await;
    // Another turn that claims to follow the first one, without the record that only one successor
    // can have.
    planted
        .append_events(
            2,
            vec![Err(TurnEvent::TurnOpened {
                size: 0,
                after: Some(turn_id(0)),
            })],
            Vec::new(),
        )
        .await;
    planted
        .append_events(2, vec![Err(TurnEvent::TurnSettled)], Vec::new())
        .await;
    let wrong = compare_runs(&calm, &planted.inspect().await, &ScenarioFacts::default());
    assert!(
        wrong
            .iter()
            .any(|wrong| wrong.contains("3 turns instead of 2")),
        "{wrong:?}"
    );
    assert!(
        wrong
            .iter()
            .any(|wrong| wrong.contains("turn 2 is not continued")),
        "{wrong:?}"
    );
}

#[tokio::test]
async fn a_receipt_too_many_or_too_few_is_found() {
    let calm = PlantedSession::new().await.inspect().await;
    let twice = PlantedSession::new().await;
    twice.add_receipt(0).await;
    assert_only(
        &compare_runs(&calm, &twice.inspect().await, &ScenarioFacts::default()),
        "has 2 receipts",
    );
    let mut none = calm.clone();
    none.receipts.remove(&call_id(1));
    assert_only(
        &compare_runs(&calm, &none, &ScenarioFacts::default()),
        "has 0 receipts",
    );
}

#[tokio::test]
async fn a_chain_that_is_broken_is_found() {
    let planted = PlantedSession::new().await;
    let mut chains = LedgerChains::default();
    let store = StoreHandle::new(planted.store.clone());
    chains.read_new_entries(&store).await.expect("reads");
    assert!(chains.broken.is_empty() && chains.receipt_count(call_id(0)) == 1);
    // The same chain, started again by another store: the next entry does not follow the one that
    // was read.
    let other = PlantedSession::new().await;
    other.add_receipt(1).await;
    let mixed = StoreHandle::new(MemoryStore::new());
    let body: Arc<str> = "{}".into();
    for _ in 0..3 {
        let draft = LedgerDraft {
            ledger: LedgerName::main(),
            body: body.clone(),
        };
        mixed.seal_entries(vec![draft]).await.expect("sealed");
    }
    chains.read_new_entries(&mixed).await.expect("reads");
    assert_only(&chains.broken, "entry 3 of ledger main breaks the chain");
}
