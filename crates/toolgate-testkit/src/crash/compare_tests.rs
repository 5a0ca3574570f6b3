//! Each bug that the kit is for, planted once: it has to be found.

use std::sync::Arc;

use toolgate_core::{
    Batch, CallId, Digest, Event, Invocation, LedgerDraft, LedgerName, MemoryStore, Outcome,
    Position, Record, RecordKey, SessionId, Settled, Status, Store, StoreHandle, Timestamp,
    ToolEvent, ToolName, TurnEvent, TurnId, TurnInfo,
};
use uuid::Uuid;

use super::*;
use crate::crash::{Chains, EffectLog};

/// Two turns of one call each, written the way a runtime would, with an effect and a receipt per call.
struct Planted {
    store: MemoryStore,
    effects: EffectLog,
    _dir: tempfile::TempDir,
}

const SESSION: SessionId = SessionId::new(Uuid::from_u128(1));

fn turn(n: u128) -> TurnId {
    TurnId::new(Uuid::from_u128(10 + n))
}

fn call(n: u128) -> CallId {
    CallId::new(Uuid::from_u128(20 + n))
}

fn head(n: u128) -> Arc<Invocation> {
    let turn = Arc::new(TurnInfo::new(SESSION, turn(n)));
    Arc::new(Invocation {
        id: call(n),
        call_id: "c".into(),
        tool: "pay".into(),
        emit_order: 0,
        turn,
    })
}

fn settled(status: Status) -> Settled {
    match status {
        Status::Ok => Outcome::ok("paid").settled().expect("settled").clone(),
        status => Outcome::refused(status, "no")
            .settled()
            .expect("settled")
            .clone(),
    }
}

type Records = Vec<(RecordKey, Record)>;

/// What a call goes through, with the records that are written along.
fn life(n: u128, status: Status) -> Vec<(Vec<ToolEvent>, Records)> {
    let digest = Digest::of_bytes(b"");
    let mut end = settled(status);
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
    };
    let ended = ToolEvent::settling(&end, true, None, None);
    let outcome = (RecordKey::Outcome(call(n)), Record::Outcome(Arc::new(end)));
    vec![
        (vec![requested], vec![]),
        (vec![started], vec![]),
        (vec![ended], vec![outcome]),
    ]
}

impl Planted {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let planted = Self {
            store: MemoryStore::new(),
            effects: EffectLog::at(dir.path().join("case.effects")),
            _dir: dir,
        };
        planted.turn(0, Status::Ok).await;
        planted.turn(1, Status::Ok).await;
        planted
    }

    async fn turn(&self, n: u128, status: Status) {
        let info = head(n).turn.clone();
        let after = (n > 0).then(|| turn(n - 1));
        let successor = after.map(|after| (RecordKey::Successor(after), Record::Turn(turn(n))));
        self.say(
            n,
            vec![Err(TurnEvent::TurnOpened { size: 1, after })],
            successor.into_iter().collect(),
        )
        .await;
        for (events, records) in life(n, status) {
            self.say(n, events.into_iter().map(Ok).collect(), records)
                .await;
        }
        self.say(
            n,
            vec![Err(TurnEvent::TurnSettled)],
            vec![(RecordKey::Ended(info.turn), Record::Turn(info.turn))],
        )
        .await;
        self.effect(n);
        self.receipt(n).await;
    }

    async fn say(&self, n: u128, events: Vec<Result<ToolEvent, TurnEvent>>, records: Records) {
        let revision = self.store.revision(SESSION).await.expect("reads");
        let event = |(at, event): (u64, Result<ToolEvent, TurnEvent>)| match event {
            Ok(event) => Event::tool(at, Timestamp::EPOCH, head(n), event).expect("valid"),
            Err(event) => {
                Event::turn(at, Timestamp::EPOCH, head(n).turn.clone(), event).expect("valid")
            }
        };
        let events = (revision + 1..)
            .zip(events)
            .map(event)
            .map(Arc::new)
            .collect();
        let batch = Batch {
            events,
            records,
            ..Batch::default()
        };
        self.store
            .append(SESSION, Position::unleased(revision), batch)
            .await
            .expect("written");
    }

    fn effect(&self, n: u128) {
        self.effects
            .happen(&toolgate_core::IdempotencyKey::of(call(n)), "pay", "42")
            .expect("written");
    }

    async fn receipt(&self, n: u128) {
        let body = format!(r#"{{"invocation_id":"{}"}}"#, call(n)).into();
        self.store
            .seal(vec![LedgerDraft {
                ledger: LedgerName::main(),
                body,
            }])
            .await
            .expect("sealed");
    }

    async fn seen(&self) -> Seen {
        let store = StoreHandle::new(self.store.clone());
        Seen::look(&store, SESSION, &self.effects, &mut Chains::default())
            .await
            .expect("reads")
    }
}

/// The only rule that is broken.
fn only(wrong: &[String], words: &str) {
    assert!(
        wrong.len() == 1 && wrong[0].contains(words),
        "{words}: {wrong:?}"
    );
}

fn knowing(repeats: Repeats) -> Facts {
    Facts {
        repeats: [(ToolName::from("pay"), repeats)].into(),
        ..Facts::default()
    }
}

#[tokio::test]
async fn two_runs_that_came_to_the_same_are_the_same() {
    let (calm, after) = (
        Planted::new().await.seen().await,
        Planted::new().await.seen().await,
    );
    assert_eq!(
        compare(&calm, &after, &Facts::default()),
        Vec::<String>::new()
    );
    assert_eq!(kept(&calm, &after), Vec::<String>::new());
    assert_eq!(calm.receipts.values().copied().collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn an_effect_that_is_repeated_is_found_unless_it_may_be() {
    let (calm, twice) = (Planted::new().await.seen().await, Planted::new().await);
    twice.effect(1);
    let twice = twice.seen().await;
    only(
        &compare(&calm, &twice, &Facts::default()),
        "had the effects",
    );
    let harmless = knowing(Repeats::Harmless);
    assert_eq!(compare(&calm, &twice, &harmless), Vec::<String>::new());
    let reconciled = knowing(Repeats::Reconciled);
    only(&compare(&calm, &twice, &reconciled), "had the effects");
}

#[tokio::test]
async fn an_effect_that_is_missing_is_found() {
    let calm = Planted::new().await.seen().await;
    let mut after = calm.clone();
    after.effects.pop();
    only(
        &compare(&calm, &after, &Facts::default()),
        "had the effects",
    );
    after.effects = calm.effects.clone();
    after.effects[0].key = "somebody else".to_owned();
    assert!(
        compare(&calm, &after, &Facts::default())
            .iter()
            .any(|wrong| wrong.contains("belongs to no call"))
    );
}

#[tokio::test]
async fn an_unknown_outcome_is_allowed_only_where_nobody_can_know() {
    let calm = Planted::new().await.seen().await;
    let mut after = calm.clone();
    after.calls[0].outcome = Some(Arc::new(settled(Status::OutcomeUnknown)));
    after.calls[0].life = vec!["tool_requested", STARTED, "tool_execution_interrupted"];
    assert_eq!(
        compare(&calm, &after, &Facts::default()),
        Vec::<String>::new()
    );
    let harmless = knowing(Repeats::Harmless);
    only(
        &compare(&calm, &after, &harmless),
        "although it could be known",
    );
}

#[tokio::test]
async fn an_outcome_that_is_lost_or_changed_is_found() {
    let calm = Planted::new().await.seen().await;
    let mut after = calm.clone();
    after.calls[1].outcome = None;
    only(&kept(&calm, &after), "was changed or lost");
    after.calls[1].outcome = Some(Arc::new(settled(Status::Timeout)));
    only(&kept(&calm, &after), "was changed or lost");
    assert!(
        compare(&calm, &after, &Facts::default())
            .iter()
            .any(|wrong| wrong.contains("settled as"))
    );
}

#[tokio::test]
async fn a_log_that_lost_an_event_is_found() {
    let calm = Planted::new().await.seen().await;
    let mut after = calm.clone();
    after.log.remove(2);
    only(&kept(&calm, &after), "the log does not begin");
}

#[tokio::test]
async fn a_store_that_lost_a_record_is_found() {
    let planted = Planted::new().await;
    // The end is in the log, but its outcome never was.
    planted
        .say(
            2,
            vec![Err(TurnEvent::TurnOpened {
                size: 1,
                after: Some(turn(1)),
            })],
            Vec::new(),
        )
        .await;
    for (events, _lost) in life(2, Status::Ok) {
        planted
            .say(2, events.into_iter().map(Ok).collect(), Vec::new())
            .await;
    }
    only(
        &planted.seen().await.broken,
        "has an end in the log and no outcome",
    );
}

#[tokio::test]
async fn an_approval_that_is_asked_twice_is_found() {
    let calm = Planted::new().await.seen().await;
    let (mut once, mut twice) = (calm.clone(), calm.clone());
    once.calls[0].life.splice(1..1, [ASKED, APPROVED]);
    twice.calls[0]
        .life
        .splice(1..1, [ASKED, APPROVED, ASKED, APPROVED]);
    let wrong = compare(&once, &twice, &Facts::default());
    assert!(
        wrong
            .iter()
            .any(|wrong| wrong.contains("was asked about 2 times instead of 1")),
        "{wrong:?}"
    );
    assert_eq!(
        compare(&once, &twice, &Facts::default().asking_again()),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn an_approval_that_is_lost_or_left_is_found() {
    let calm = Planted::new().await.seen().await;
    let mut before = calm.clone();
    before.pending.insert(call(0));
    only(
        &kept(&before, &calm),
        "the approval of turn 1 call 1 (pay) was lost",
    );
    only(
        &compare(&calm, &before, &Facts::default()),
        "still pending at the end",
    );
    let mut answered = calm.clone();
    answered.answered.insert(call(0));
    assert_eq!(kept(&before, &answered), Vec::<String>::new());
    only(
        &kept(&answered, &before),
        "the decision on turn 1 call 1 (pay) was lost",
    );
}

#[tokio::test]
async fn an_agent_that_never_worked_is_found_unless_its_call_could_not_be_paid() {
    let mut calm = Planted::new().await.seen().await;
    let mut after = calm.clone();
    calm.inner.insert(call(0), Seen::default());
    only(
        &compare(&calm, &after, &Facts::default()),
        "no agent worked on turn 1 call 1 (pay)",
    );
    after.calls[0].outcome = Some(Arc::new(settled(Status::BudgetExceeded)));
    after.effects.remove(0);
    assert_eq!(
        compare(
            &calm,
            &after,
            &Facts::default().refusing_what_cannot_be_paid()
        ),
        Vec::<String>::new()
    );
    let wrong = compare(&calm, &after, &Facts::default());
    assert!(
        wrong.iter().any(|wrong| wrong.contains("no agent worked")),
        "{wrong:?}"
    );
}

#[tokio::test]
async fn a_callback_that_is_called_twice_is_found() {
    let mut calm = Planted::new().await.seen().await;
    let notice = Effect {
        key: call(0).to_string(),
        tool: "on_request".into(),
        what: String::new(),
    };
    calm.notices = vec![notice.clone()];
    let mut after = calm.clone();
    after.notices = vec![notice.clone(), notice];
    only(
        &compare(&calm, &after, &Facts::default()),
        "on_request was called 2 times",
    );
}

#[tokio::test]
async fn a_second_continuation_is_found() {
    let planted = Planted::new().await;
    let calm = planted.seen().await;
    // Another turn that claims to come after the first one, without the record that only one can have.
    planted
        .say(
            2,
            vec![Err(TurnEvent::TurnOpened {
                size: 0,
                after: Some(turn(0)),
            })],
            Vec::new(),
        )
        .await;
    planted
        .say(2, vec![Err(TurnEvent::TurnSettled)], Vec::new())
        .await;
    let wrong = compare(&calm, &planted.seen().await, &Facts::default());
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
    let (calm, twice) = (Planted::new().await.seen().await, Planted::new().await);
    twice.receipt(0).await;
    only(
        &compare(&calm, &twice.seen().await, &Facts::default()),
        "has 2 receipts",
    );
    let mut none = calm.clone();
    none.receipts.remove(&call(1));
    only(&compare(&calm, &none, &Facts::default()), "has 0 receipts");
}

#[tokio::test]
async fn a_chain_that_is_broken_is_found() {
    let planted = Planted::new().await;
    let mut chains = Chains::default();
    let store = StoreHandle::new(planted.store.clone());
    chains.follow(&store).await.expect("reads");
    assert!(chains.broken.is_empty() && chains.receipts(call(0)) == 1);
    // The same chain, begun anew by another store: what comes next does not follow what was read.
    let other = Planted::new().await;
    other.receipt(1).await;
    let mixed = StoreHandle::new(MemoryStore::new());
    let body: Arc<str> = "{}".into();
    for _ in 0..3 {
        let draft = LedgerDraft {
            ledger: LedgerName::main(),
            body: body.clone(),
        };
        mixed.seal(vec![draft]).await.expect("sealed");
    }
    chains.follow(&mixed).await.expect("reads");
    only(&chains.broken, "entry 3 of ledger main breaks the chain");
}
