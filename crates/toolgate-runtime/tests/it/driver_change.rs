//! Inputs while the driver of a session changes: answers and interruptions reach the next driver.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::common::{Probe, question, registry, request, stack, statuses, transcript, view};
use tokio::sync::Semaphore;
use toolgate_core::{
    ApprovalRequestRef, Decision, MemoryStore, Registry, Status, Store, StoreHandle, TurnId,
};
use toolgate_runtime::{ApprovalService, CallResult, Dispatcher, TurnEnd, TurnRequest};
use toolgate_testkit::{FaultyStore, StoreCall, StoreFault};

async fn driver(registry: &Registry, store: impl Store, after: Option<&Dispatcher>) -> Dispatcher {
    let builder = Dispatcher::builder(stack(registry)).store(store);
    let builder = match after {
        Some(after) => builder.session(after.session()).take_over(),
        None => builder,
    };
    builder.build().await.expect("builds")
}

/// Lets everything that can continue do so.
async fn yield_until_idle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_answer_accepted_by_a_stale_driver_reaches_the_new_one() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let store = MemoryStore::new();
    let stale = driver(&registry, store.clone(), None).await;
    let calls = vec![request("1", "ask_echo", "a")];
    let report = stale
        .open_turn(TurnRequest::new(view(&registry), calls))
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
        .approval_service()
        .decide(asked, Decision::approve("ann"))
        .await
        .expect("it is durable and will be applied");
    let report = running.await.expect("no panic").expect("runs");
    assert_eq!(
        (statuses(&report), probe.ran()),
        (vec![Some(Status::Ok)], 1)
    );
    transcript(&new).await;
}

/// A turn that one process has lost and another is just resuming, paused after it has loaded
/// everything.
struct ResumingTurn {
    new: Dispatcher,
    desk: ApprovalService,
    turn: TurnId,
    asked: ApprovalRequestRef,
    gate: Arc<Semaphore>,
    resuming: tokio::task::JoinHandle<toolgate_runtime::TurnRun>,
    probe: Probe,
}

async fn resuming_turn() -> ResumingTurn {
    let probe = Probe::default();
    let registry = registry(&probe);
    let store = MemoryStore::new();
    let lost = driver(&registry, store.clone(), None).await;
    let calls = vec![
        request("1", "stubborn_write", "a"),
        request("2", "ask_echo", "b"),
    ];
    let run = lost
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let turn = run.turn();
    let running = tokio::spawn(run.run_to_end());
    yield_until_idle().await;
    running.abort();
    let _ = running.await;

    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::new(AtomicBool::new(false));
    let slow = {
        let gate = gate.clone();
        let held = held.clone();
        FaultyStore::new(store.clone(), move |call, _| {
            let gate = gate.clone();
            if call == StoreCall::Append && held.load(Ordering::SeqCst) {
                StoreFault::Wait(Box::pin(async move { drop(gate.acquire().await) }))
            } else {
                StoreFault::Pass
            }
        })
    };
    let new = driver(&registry, slow, Some(&lost)).await;
    // Another turn is driven meanwhile, so the mailbox is processed.
    let other = TurnRequest::new(view(&registry), vec![request("1", "slow", "c")]);
    tokio::spawn(new.open_turn(other).await.expect("opens").run_to_end());
    yield_until_idle().await;
    held.store(true, Ordering::SeqCst);
    let resuming = {
        let new = new.clone();
        let view = view(&registry);
        tokio::spawn(async move { new.resume(turn, view).await.expect("resumes") })
    };
    yield_until_idle().await;
    let desk = ApprovalService::new(StoreHandle::new(store));
    let rows = desk
        .list_approvals(Default::default())
        .await
        .expect("reads");
    let asked = ApprovalRequestRef::from(&*rows[0].request);
    ResumingTurn {
        new,
        desk,
        turn,
        asked,
        gate,
        resuming,
        probe,
    }
}

impl ResumingTurn {
    async fn run_to_end(self) -> (TurnEnd, Vec<Option<Status>>, usize) {
        yield_until_idle().await;
        assert!(
            !self.resuming.is_finished(),
            "the turn was resumed too early for this test"
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
async fn an_answer_during_a_resumption_is_applied() {
    let taking_up = resuming_turn().await;
    taking_up
        .desk
        .decide(taking_up.asked, Decision::approve("ann"))
        .await
        .expect("accepted");
    let (end, statuses, ran) = taking_up.run_to_end().await;
    assert_eq!(statuses, [Some(Status::OutcomeUnknown), Some(Status::Ok)]);
    assert_eq!((end, ran), (TurnEnd::Settled, 3));
}

#[tokio::test]
async fn an_interruption_during_a_resumption_stops_the_turn() {
    let taking_up = resuming_turn().await;
    assert!(
        taking_up
            .desk
            .interrupt_turn(taking_up.turn, "enough")
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
