//! The journal when the store is slow, fails, or belongs to another process.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::common::{Probe, question, registry, request, stack, transcript, view};
use toolgate_core::{EventStore, MemoryStore, Status, StoreError, ToolEvent};
use toolgate_runtime::{DispatchError, Dispatcher, TurnEnd, TurnRequest};
use toolgate_testkit::{FaultyStore, StoreCall, StoreFault};

/// A store that answers later, counts its appends and record reads, and fails from a chosen append on.
#[derive(Clone)]
struct Slow {
    store: FaultyStore<MemoryStore>,
    writes: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
    fail_from: Arc<AtomicU64>,
    panic_at: Arc<AtomicU64>,
}

impl Slow {
    fn new() -> Self {
        let never = || Arc::new(AtomicU64::new(u64::MAX));
        let writes = Arc::<AtomicU64>::default();
        let reads = Arc::default();
        let fail_from = never();
        let panic_at = never();
        let plan = {
            let writes = writes.clone();
            let reads = Arc::<AtomicU64>::clone(&reads);
            let fail_from = fail_from.clone();
            let panic_at = panic_at.clone();
            move |call, _| match call {
                StoreCall::Append => {
                    let write = writes.fetch_add(1, Ordering::SeqCst);
                    if write == panic_at.load(Ordering::SeqCst) {
                        return StoreFault::Panic("the store fell over");
                    }
                    if write >= fail_from.load(Ordering::SeqCst) {
                        return StoreFault::Fail(StoreError::Backend("disk full".into()));
                    }
                    StoreFault::Wait(Box::pin(async {
                        for _ in 0..20 {
                            tokio::task::yield_now().await;
                        }
                    }))
                }
                StoreCall::LoadRecord | StoreCall::LoadRecords => {
                    reads.fetch_add(1, Ordering::SeqCst);
                    StoreFault::Pass
                }
                StoreCall::Events => StoreFault::Wait(Box::pin(tokio::task::yield_now())),
                _ => StoreFault::Pass,
            }
        };
        Self {
            store: FaultyStore::new(MemoryStore::new(), plan),
            writes,
            reads,
            fail_from,
            panic_at,
        }
    }
}

#[tokio::test]
async fn concurrent_writes_are_batched_and_stay_in_order() {
    let probe = Probe::default();
    let store = Slow::new();
    let registry = registry(&probe);
    let builder = Dispatcher::builder(stack(&registry))
        .store(store.store.clone())
        .max_concurrent(64);
    let dispatcher = builder.build().await.expect("builds");
    let calls = (0..64)
        .map(|n| request(&n.to_string(), "echo", "x"))
        .collect();
    let report = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!(report.end, TurnEnd::Settled);
    let (events, _) = transcript(&dispatcher).await;
    assert_eq!(events.len(), 2 + 3 * 64);
    let writes = store.writes.load(Ordering::SeqCst);
    assert!(writes < 20, "{writes} writes for {} events", events.len());
}

#[tokio::test]
async fn an_effect_waits_until_its_intent_is_durable() {
    let probe = Probe::default();
    let store = Slow::new();
    let registry = registry(&probe);
    let dispatcher = Dispatcher::builder(stack(&registry))
        .store(store.store.clone())
        .build()
        .await
        .expect("builds");
    let calls = vec![request("1", "stubborn_write", "x")];
    let run = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let running = tokio::spawn(run.run());
    probe.entered.notified().await;
    let events = store
        .store
        .events(dispatcher.session(), 0, usize::MAX)
        .await
        .expect("reads");
    let started = events.iter().any(|event| {
        matches!(
            event.as_tool(),
            Some((_, ToolEvent::ToolExecutionStarted { .. }))
        )
    });
    assert!(started, "the tool runs, so its start is in the store");
    running.abort();
}

#[tokio::test]
async fn when_the_store_fails_nothing_more_runs_and_the_turn_reports_it() {
    for fail_from in 0..4 {
        let probe = Probe::default();
        let store = Slow::new();
        let registry = registry(&probe);
        store.fail_from.store(fail_from, Ordering::SeqCst);
        let builder = Dispatcher::builder(stack(&registry))
            .store(store.store.clone())
            .max_concurrent(1);
        let dispatcher = builder.build().await.expect("builds");
        let calls = (0..3)
            .map(|n| request(&n.to_string(), "echo", "x"))
            .collect();
        let error = match dispatcher
            .open_turn(TurnRequest::new(view(&registry), calls))
            .await
        {
            Ok(run) => run.run().await.expect_err("the store fails"),
            Err(error) => error,
        };
        assert!(matches!(error, DispatchError::Journal(_)), "{error}");
        // Write 0 requests, 1 starts the first call, 2 settles it.
        let ran = if fail_from <= 1 { 0 } else { 1 };
        assert_eq!(probe.ran(), ran, "failing from write {fail_from}");
        let again = dispatcher
            .open_turn(TurnRequest::new(view(&registry), vec![]))
            .await
            .expect_err("still failed");
        assert!(matches!(again, DispatchError::Journal(_)));
    }
}

#[tokio::test]
async fn a_caller_who_stops_waiting_does_not_tear_a_write() {
    let probe = Probe::default();
    let store = Slow::new();
    let registry = registry(&probe);
    let dispatcher = Dispatcher::builder(stack(&registry))
        .store(store.store.clone())
        .build()
        .await
        .expect("builds");
    let request = TurnRequest::new(view(&registry), vec![request("1", "ask_echo", "x")]);
    let report = dispatcher
        .open_turn(request)
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let run = dispatcher
        .resume(report.turn, view(&registry))
        .await
        .expect("resumes");
    let handle = run.handle();
    let mut stopping = Box::pin(handle.interrupt("enough"));
    assert!(futures::poll!(&mut stopping).is_pending());
    drop(stopping);
    let report = run.run().await.expect("runs");
    assert_eq!(
        (report.end, report.results[0].status()),
        (TurnEnd::Interrupted, Some(Status::Cancelled))
    );
    let (events, _) = transcript(&dispatcher).await;
    let stopped = |event: &&Arc<toolgate_core::Event>| event.name() == "turn_interrupted";
    assert_eq!(events.iter().filter(stopped).count(), 1);
}

#[tokio::test]
async fn an_event_is_in_the_store_before_it_is_published() {
    let probe = Probe::default();
    let store = Slow::new();
    let registry = registry(&probe);
    let dispatcher = Dispatcher::builder(stack(&registry))
        .store(store.store.clone())
        .build()
        .await
        .expect("builds");
    let mut feed = dispatcher.bus().subscribe();
    let calls = (0..5)
        .map(|n| request(&n.to_string(), "slow", "x"))
        .collect();
    let run = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let running = tokio::spawn(run.run());
    probe.gate.0.add_permits(5);
    loop {
        let Some(toolgate_runtime::BusDelivery::Event(event)) = feed.next().await else {
            panic!("no event")
        };
        let stored = store
            .store
            .events(dispatcher.session(), event.sequence() - 1, 1)
            .await
            .expect("reads");
        assert_eq!(stored.first(), Some(&event));
        if event.name() == "turn_settled" {
            break;
        }
    }
    running.await.expect("no panic").expect("runs");
}

#[tokio::test]
async fn a_store_that_panics_has_failed_and_no_caller_waits_for_ever() {
    // A turn of one call is three writes: requested, started, settled.
    for panic_at in 0..3 {
        let probe = Probe::default();
        let store = Slow::new();
        let registry = registry(&probe);
        store.panic_at.store(panic_at, Ordering::SeqCst);
        let dispatcher = Dispatcher::builder(stack(&registry))
            .store(store.store.clone())
            .build()
            .await
            .expect("builds");
        let calls = vec![request("1", "echo", "x")];
        let error = match dispatcher
            .open_turn(TurnRequest::new(view(&registry), calls))
            .await
        {
            Ok(run) => run.run().await.expect_err("the store fails"),
            Err(error) => error,
        };
        assert!(matches!(error, DispatchError::Journal(_)), "{error}");
    }
}

#[tokio::test]
async fn a_tool_may_report_from_a_thread_of_its_own() {
    let probe = Probe::default();
    let store = Slow::new();
    let registry = registry(&probe);
    let tool = toolgate_core::tool_fn(
        "threaded",
        "Works elsewhere.",
        async |_: crate::common::Text, cx: toolgate_core::Context| {
            let (tell, told) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                cx.report_progress(toolgate_core::Progress::fraction(1, 2));
                let _ = tell.send(());
            });
            told.await?;
            Ok::<_, toolgate_core::ToolError>("done")
        },
    );
    registry.register(tool).expect("free");
    let dispatcher = Dispatcher::builder(stack(&registry))
        .store(store.store)
        .build()
        .await
        .expect("builds");
    let calls = vec![request("1", "threaded", "x")];
    let report = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!(report.results[0].status(), Some(Status::Ok));
    let (events, _) = transcript(&dispatcher).await;
    assert!(
        events
            .iter()
            .any(|event| event.name() == "tool_execution_progress")
    );
}

#[tokio::test]
async fn deciding_a_large_batch_does_not_load_its_turn() {
    let probe = Probe::default();
    let store = Slow::new();
    let registry = registry(&probe);
    let dispatcher = Dispatcher::builder(stack(&registry))
        .store(store.store.clone())
        .build()
        .await
        .expect("builds");
    let calls = (0..100)
        .map(|n| request(&n.to_string(), "ask_echo", "x"))
        .collect();
    let report = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let before = store.reads.load(Ordering::SeqCst);
    for result in &report.results {
        let decision = toolgate_core::Decision::approve("ann");
        dispatcher
            .approval_service()
            .decide(question(result), decision)
            .await
            .expect("accepted");
    }
    let reads = store.reads.load(Ordering::SeqCst) - before;
    assert!(reads < 5 * 100, "{reads} reads for 100 decisions");
    let report = dispatcher
        .resume(report.turn, view(&registry))
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    assert_eq!((report.end, probe.ran()), (TurnEnd::Settled, 100));
}

#[tokio::test]
async fn a_decision_during_a_resumption_reaches_the_driver() {
    let probe = Probe::default();
    let store = Slow::new();
    let registry = registry(&probe);
    let dispatcher = Dispatcher::builder(stack(&registry))
        .store(store.store)
        .build()
        .await
        .expect("builds");
    let calls = vec![request("1", "ask_echo", "x")];
    let report = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let asked = question(&report.results[0]);
    // The resumption is reading the log when the decision comes.
    let mut resuming = Box::pin(dispatcher.resume(report.turn, view(&registry)));
    assert!(futures::poll!(&mut resuming).is_pending());
    dispatcher
        .approval_service()
        .decide(asked, toolgate_core::Decision::approve("ann"))
        .await
        .expect("accepted");
    let driving = tokio::spawn(resuming.await.expect("resumes").run_to_end());
    // Only a hang reaches this limit.
    let limit = std::time::Duration::from_secs(60);
    let report = tokio::time::timeout(limit, driving)
        .await
        .expect("no hang")
        .expect("no panic")
        .expect("runs");
    assert_eq!(
        (report.results[0].status(), probe.ran()),
        (Some(Status::Ok), 1)
    );
    transcript(&dispatcher).await;
}
