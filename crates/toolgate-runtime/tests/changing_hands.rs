//! What is said to a session while it changes hands: answers and interruptions reach whoever drives it next.

mod common;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use common::{Probe, question, registry, request, stack, statuses, transcript, view};
use tokio::sync::Semaphore;
use toolgate_core::{
    Decision, MemoryStore, PostCode, Question, Registry, Status, Store, StoreHandle, TurnId,
};
use toolgate_runtime::{Approvals, CallResult, Dispatcher, TurnEnd, TurnRequest};
use toolgate_testkit::{Fault, FaultyStore, StoreCall};

async fn driver(registry: &Registry, store: impl Store, after: Option<&Dispatcher>) -> Dispatcher {
    let builder = Dispatcher::builder(stack(registry)).store(store);
    let builder = match after {
        Some(after) => builder.session(after.session()).take_over(),
        None => builder,
    };
    builder.build().await.expect("builds")
}

/// Lets everything that can go on go on.
async fn settle_down() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_answer_that_a_stale_driver_takes_reaches_the_new_one() {
    let probe = Probe::default();
    let (registry, store) = (registry(&probe), MemoryStore::new());
    let stale = driver(&registry, store.clone(), None).await;
    let calls = vec![request("1", "ask_echo", "a")];
    let report = stale
        .open(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let asked = question(&report.results[0]);
    let new = driver(&registry, store, Some(&stale)).await;
    let running = tokio::spawn(
        new.resume(report.turn, view(&registry))
            .await
            .expect("resumes")
            .run_to_end(),
    );
    stale
        .decide(report.turn, asked, Decision::approve("ann"))
        .await
        .expect("it is durable and will be acted on");
    let report = running.await.expect("no panic").expect("runs");
    assert_eq!(
        (statuses(&report), probe.ran()),
        (vec![Some(Status::Ok)], 1)
    );
    transcript(&new).await;
}

#[tokio::test]
async fn an_answer_that_nobody_acted_on_is_acted_on_when_the_question_is_answered_again() {
    use toolgate_core::{Answer, Record, RecordKey};
    let probe = Probe::default();
    let (registry, store) = (registry(&probe), MemoryStore::new());
    let dispatcher = driver(&registry, store.clone(), None).await;
    let calls = vec![request("1", "ask_echo", "a")];
    let run = dispatcher
        .open(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let (turn, handle) = (run.turn(), run.handle());
    let running = tokio::spawn(run.run_to_end());
    settle_down().await;
    let rows = dispatcher
        .store()
        .approvals(Default::default())
        .await
        .expect("reads");
    let request = &rows[0].request;
    // Kept by a process that was lost before it could say so.
    let kept = Record::Answer(Arc::new(Answer::to(request, Decision::approve("ann"))));
    let key = RecordKey::Answer(request.approval_id.call(), request.generation);
    store.once(key, kept).await.expect("writes");
    let again = handle
        .decide(&**request, Decision::deny("bob", None))
        .await
        .expect_err("answered before");
    assert_eq!(again.code(), Some(PostCode::Duplicate));
    let report = running.await.expect("no panic").expect("runs");
    assert_eq!(
        (report.turn, statuses(&report), probe.ran()),
        (turn, vec![Some(Status::Ok)], 1)
    );
    transcript(&dispatcher).await;
}

/// A turn that one process has lost and another is just taking up, held where it has read everything.
struct TakingUp {
    new: Dispatcher,
    desk: Approvals,
    turn: TurnId,
    asked: Question,
    gate: Arc<Semaphore>,
    resuming: tokio::task::JoinHandle<toolgate_runtime::TurnRun>,
    probe: Probe,
}

async fn taking_up() -> TakingUp {
    let probe = Probe::default();
    let (registry, store) = (registry(&probe), MemoryStore::new());
    let lost = driver(&registry, store.clone(), None).await;
    let calls = vec![
        request("1", "stubborn_write", "a"),
        request("2", "ask_echo", "b"),
    ];
    let run = lost
        .open(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let turn = run.turn();
    let running = tokio::spawn(run.run_to_end());
    settle_down().await;
    running.abort();
    let _ = running.await;

    let (gate, held) = (
        Arc::new(Semaphore::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let slow = {
        let (gate, held) = (gate.clone(), held.clone());
        FaultyStore::new(store.clone(), move |call, _| {
            let gate = gate.clone();
            match call == StoreCall::Append && held.load(Ordering::SeqCst) {
                true => Fault::Wait(Box::pin(async move { drop(gate.acquire().await) })),
                false => Fault::Pass,
            }
        })
    };
    let new = driver(&registry, slow, Some(&lost)).await;
    // Another turn is driven meanwhile, so posts are looked after.
    let other = TurnRequest::new(view(&registry), vec![request("1", "slow", "c")]);
    tokio::spawn(new.open(other).await.expect("opens").run_to_end());
    settle_down().await;
    held.store(true, Ordering::SeqCst);
    let resuming = {
        let (new, view) = (new.clone(), view(&registry));
        tokio::spawn(async move { new.resume(turn, view).await.expect("resumes") })
    };
    settle_down().await;
    let desk = Approvals::new(StoreHandle::new(store));
    let rows = desk.pending(Default::default()).await.expect("reads");
    let asked = Question::from(&*rows[0].request);
    TakingUp {
        new,
        desk,
        turn,
        asked,
        gate,
        resuming,
        probe,
    }
}

impl TakingUp {
    async fn run_to_end(self) -> (TurnEnd, Vec<Option<Status>>, usize) {
        settle_down().await;
        assert!(
            !self.resuming.is_finished(),
            "the turn was taken up too early for this test"
        );
        self.gate.close();
        let report = self
            .resuming
            .await
            .expect("no panic")
            .run_to_end()
            .await
            .expect("runs");
        transcript(&self.new).await;
        let statuses = report.results.iter().map(CallResult::status).collect();
        (report.end, statuses, self.probe.ran())
    }
}

#[tokio::test]
async fn an_answer_that_comes_while_its_turn_is_taken_up_is_acted_on() {
    let taking_up = taking_up().await;
    taking_up
        .desk
        .decide(taking_up.asked, Decision::approve("ann"))
        .await
        .expect("taken");
    let (end, statuses, ran) = taking_up.run_to_end().await;
    assert_eq!(statuses, [Some(Status::OutcomeUnknown), Some(Status::Ok)]);
    assert_eq!((end, ran), (TurnEnd::Settled, 3));
}

#[tokio::test]
async fn an_interruption_that_comes_while_its_turn_is_taken_up_stops_it() {
    let taking_up = taking_up().await;
    assert!(
        taking_up
            .desk
            .interrupt(taking_up.turn, "enough")
            .await
            .expect("left")
    );
    let (end, statuses, _) = taking_up.run_to_end().await;
    assert_eq!(
        statuses,
        [Some(Status::OutcomeUnknown), Some(Status::Cancelled)]
    );
    assert_eq!(end, TurnEnd::Interrupted);
}
