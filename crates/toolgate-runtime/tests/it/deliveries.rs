//! Deliveries from several sides, layers that violate their contract, and turns that are resumed.

use std::time::Duration;

use crate::common::{
    Probe, dispatcher, question, registry, request, stack, statuses, texts, transcript, view,
};
use toolgate_core::{
    ApprovalRequest, Decision, Outcome, RejectCode, Status, Suspension, ToolEvent,
};
use toolgate_runtime::{BusDelivery, DispatchError, Dispatcher, OnFailure, TurnEnd, TurnRequest};
use toolgate_testkit::TestClock;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bogus_deliveries_to_two_turns_at_once_do_not_deadlock() {
    let (dispatcher, view) = dispatcher(&Probe::default()).await;
    let open = || {
        dispatcher.open_turn(TurnRequest::new(
            view.clone(),
            vec![request("1", "host", "x")],
        ))
    };
    let a = open().await.expect("opens");
    let b = open().await.expect("opens");
    let unknown_call = toolgate_core::CallId::new(uuid::Uuid::from_u128(9));
    let flood = |turn| {
        let service = dispatcher.approval_service();
        tokio::spawn(async move {
            for _ in 0..2_000 {
                service
                    .deliver_result(turn, unknown_call, Outcome::ok("x"))
                    .await
                    .expect_err("unknown");
            }
        })
    };
    let first = flood(a.turn());
    let second = flood(b.turn());
    first.await.expect("no panic");
    second.await.expect("no panic");
}

#[tokio::test]
async fn an_answer_to_an_earlier_request_is_not_accepted_for_a_later_one() {
    use toolgate_core::{Band, LayerExt, Stack, from_fn};
    let probe = Probe::default();
    let registry = registry(&probe);
    let ask = |name| {
        from_fn(
            async |call: toolgate_core::Call, next: toolgate_core::Next| match next
                .decision_on(&call)
            {
                Some(_) => next.run(call).await,
                None => Outcome::await_decision(ApprovalRequest::for_call(&call)),
            },
        )
        .named(name)
        .in_band(Band::Decide)
    };
    let stack = Stack::over(registry.clone())
        .layer(ask("first"))
        .layer(ask("second"))
        .build()
        .expect("in order");
    let dispatcher = Dispatcher::builder(stack).build().await.expect("builds");
    let calls = vec![request("1", "echo", "x")];
    let report = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let turn = report.turn;
    let first = question(&report.results[0]);
    dispatcher
        .approval_service()
        .decide(first, Decision::approve("ann"))
        .await
        .expect("accepted");
    let report = dispatcher
        .resume(turn, view(&registry))
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    let stale = dispatcher
        .approval_service()
        .decide(first, Decision::approve("bob"))
        .await
        .expect_err("answered before");
    assert_eq!(stale.code(), Some(RejectCode::NoWaiter));
    let nameless = dispatcher
        .approval_service()
        .decide(question(&report.results[0]), Decision::approve(" "))
        .await;
    assert!(matches!(
        nameless,
        Err(toolgate_runtime::DeliverError::NoApprover)
    ));
    assert_eq!(probe.ran(), 0);
    dispatcher
        .approval_service()
        .decide(question(&report.results[0]), Decision::approve("bob"))
        .await
        .expect("accepted");
    let report = dispatcher
        .resume(turn, view(&registry))
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    assert_eq!(statuses(&report), [Some(Status::Ok)]);
    transcript(&dispatcher).await;
}

#[tokio::test]
async fn a_layer_that_violates_its_contract_settles_the_call_and_hangs_nothing() {
    use toolgate_core::{Band, Call, LayerExt, Next, Stack, from_fn, map_outcome};
    let probe = Probe::default();
    let registry = registry(&probe);
    let whitewash = map_outcome(|_, outcome| match outcome {
        Outcome::Settled(_) => Outcome::ok("all fine"),
        suspended @ Outcome::Suspended(_) => suspended,
    });
    let ask = || {
        from_fn(
            async |call: Call, next: Next| match next.decision_on(&call) {
                Some(_) => Outcome::denied(None),
                None => Outcome::await_decision(ApprovalRequest::for_call(&call)),
            },
        )
    };
    let late = from_fn(async |call: Call, next: Next| {
        next.run(call.clone()).await;
        Outcome::await_decision(ApprovalRequest::for_call(&call))
    });
    let waits = from_fn(async |_: Call, _: Next| Outcome::await_result());
    let pretends = Stack::over(registry.clone())
        .layer(whitewash)
        .layer(ask().named("ask").in_band(Band::Decide));
    let suspends_late = Stack::over(registry.clone()).layer(late.named("late"));
    let waits_for_nothing = Stack::over(registry.clone()).layer(waits.named("waits"));
    for (stack, ran) in [(pretends, 0), (suspends_late, 1), (waits_for_nothing, 1)] {
        let dispatcher = Dispatcher::builder(stack.build().expect("in order"))
            .build()
            .await
            .expect("builds");
        let calls = vec![request("1", "echo", "x")];
        let run = dispatcher
            .open_turn(TurnRequest::new(view(&registry), calls))
            .await
            .expect("opens");
        let mut report = run.run().await.expect("runs");
        if report.end == TurnEnd::Suspended {
            let asked = question(&report.results[0]);
            dispatcher
                .approval_service()
                .decide(asked, Decision::deny("ann", None))
                .await
                .expect("accepted");
            report = dispatcher
                .resume(report.turn, view(&registry))
                .await
                .expect("resumes")
                .run()
                .await
                .expect("runs");
        }
        assert_eq!(statuses(&report), [Some(Status::LayerException)]);
        assert_eq!(probe.ran(), ran, "nothing ran twice");
        transcript(&dispatcher).await;
    }
}

#[tokio::test]
async fn nothing_is_sealed_about_an_outcome_that_was_rejected() {
    use toolgate_core::{Band, Call, LayerExt, LedgerDraft, LedgerName, Next, Stack, from_fn};
    let registry = registry(&Probe::default());
    let notary = from_fn(async |call: Call, next: Next| {
        let outcome = next.run(call.clone()).await;
        if let Some(status) = outcome.status() {
            let body = serde_json::json!({ "status": status }).to_string().into();
            let kept = call.env().probe().seal_with_outcome(
                &call,
                LedgerDraft {
                    ledger: LedgerName::main(),
                    body,
                },
            );
            kept.expect("the turn is driven");
        }
        outcome
    });
    let whitewash = from_fn(async |call: Call, next: Next| match next.run(call).await {
        Outcome::Settled(_) => Outcome::ok("all fine"),
        suspended @ Outcome::Suspended(_) => suspended,
    });
    let stack = Stack::over(registry.clone())
        .layer(notary.named("notary").in_band(Band::Record))
        .layer(whitewash.named("whitewash").in_band(Band::Record))
        .layer(crate::common::Ask)
        .build()
        .expect("in order");
    let dispatcher = Dispatcher::builder(stack).build().await.expect("builds");
    let calls = vec![request("1", "echo", "x"), request("2", "ask_echo", "y")];
    let run = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let report = run.run().await.expect("runs");
    let asked = question(&report.results[1]);
    dispatcher
        .approval_service()
        .decide(asked, Decision::deny("ann", None))
        .await
        .expect("accepted");
    let report = dispatcher
        .resume(report.turn, view(&registry))
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    assert_eq!(
        statuses(&report),
        [Some(Status::Ok), Some(Status::LayerException)]
    );
    let sealed = dispatcher
        .store()
        .entries(&LedgerName::main(), 0, 10)
        .await
        .expect("reads");
    let bodies: Vec<&str> = sealed.iter().map(|entry| &*entry.body).collect();
    assert_eq!(
        bodies,
        [r#"{"status":"ok"}"#],
        "only of the call that is ok"
    );
}

#[tokio::test]
async fn an_accepted_result_survives_an_interruption() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let dispatcher = Dispatcher::builder(stack(&registry))
        .max_concurrent(2)
        .build()
        .await
        .expect("builds");
    let calls = vec![
        request("1", "host", "a"),
        request("2", "slow", "b"),
        request("3", "slow", "c"),
    ];
    let run = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let handle = run.handle();
    let mut feed = dispatcher.bus().subscribe();
    let running = tokio::spawn(run.run_to_end());
    let mut host = None;
    let mut started = 0;
    while started < 2 {
        let Some(BusDelivery::Event(event)) = feed.next().await else {
            panic!("no event")
        };
        if let Some((head, ToolEvent::ToolExecutionStarted { external, .. })) = event.as_tool() {
            started += 1;
            host = host.or(external.then_some(head.id));
        }
    }
    dispatcher
        .approval_service()
        .deliver_result(
            handle.turn(),
            host.expect("runs outside"),
            Outcome::ok("done outside"),
        )
        .await
        .expect("accepted");
    handle.interrupt("stop").await.expect("recorded");
    let report = running.await.expect("no panic").expect("runs");
    assert_eq!(report.end, TurnEnd::Interrupted);
    assert_eq!(texts(&report)[0], "done outside");
    let again = dispatcher
        .resume(report.turn, view(&registry))
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    assert_eq!(
        again.end,
        TurnEnd::Interrupted,
        "also when it is loaded again"
    );
    transcript(&dispatcher).await;
}

#[tokio::test]
async fn a_turn_that_fails_can_still_be_interrupted() {
    let probe = Probe::default();
    let clock = TestClock::new();
    let registry = registry(&probe);
    let builder = Dispatcher::builder(stack(&registry))
        .clock(clock.clone())
        .on_failure(OnFailure::Abort);
    let dispatcher = builder.build().await.expect("builds");
    let calls = vec![request("1", "stubborn", "x"), request("2", "fail", "x")];
    let run = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let handle = run.handle();
    let mut feed = dispatcher.bus().subscribe();
    let running = tokio::spawn(run.run_to_end());
    loop {
        let Some(BusDelivery::Event(event)) = feed.next().await else {
            panic!("no event")
        };
        if event.name() == "turn_interrupted" {
            break;
        }
    }
    assert!(handle.interrupt("enough").await.expect("recorded"));
    // One more sleeps to renew the lease.
    while clock.sleeper_count() < 2 {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(2));
    let report = running.await.expect("no panic").expect("runs");
    assert_eq!(
        statuses(&report),
        [Some(Status::Cancelled), Some(Status::ExecutorError)]
    );
}

#[tokio::test]
async fn a_turn_that_is_resumed_elsewhere_stops_its_earlier_driver() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let run = dispatcher
        .open_turn(TurnRequest::new(
            view.clone(),
            vec![request("1", "ask_echo", "x")],
        ))
        .await
        .expect("opens");
    let turn = run.turn();
    let mut feed = dispatcher.bus().subscribe();
    let first = tokio::spawn(run.run_to_end());
    let asked = loop {
        let Some(BusDelivery::Event(event)) = feed.next().await else {
            panic!("no event")
        };
        if let Some((_, ToolEvent::ToolApprovalRequested(request))) = event.as_tool() {
            break toolgate_core::ApprovalRequestRef::from(&**request);
        }
    };
    let second = dispatcher.resume(turn, view).await.expect("resumes");
    let superseded = first
        .await
        .expect("no panic")
        .expect_err("driven elsewhere");
    assert!(matches!(superseded, DispatchError::Superseded { .. }));
    let second = tokio::spawn(second.run_to_end());
    dispatcher
        .approval_service()
        .decide(asked, Decision::approve("ann"))
        .await
        .expect("accepted");
    assert_eq!(
        statuses(&second.await.expect("no panic").expect("runs")),
        [Some(Status::Ok)]
    );
    assert_eq!(probe.ran(), 1);
}

#[tokio::test]
async fn an_unsettled_turn_cannot_be_continued_and_of_two_successors_one_wins() {
    let (dispatcher, view) = dispatcher(&Probe::default()).await;
    let open = |calls| dispatcher.open_turn(TurnRequest::new(view.clone(), calls));
    let waiting = open(vec![request("1", "ask_echo", "x")])
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let early = dispatcher
        .open_turn(TurnRequest::new(view.clone(), vec![]).after(waiting.turn))
        .await;
    assert!(matches!(early, Err(DispatchError::NotSettled { .. })));
    let settled = open(vec![])
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let next = || dispatcher.open_turn(TurnRequest::new(view.clone(), vec![]).after(settled.turn));
    let (first, second) = tokio::join!(next(), next());
    assert!(first.is_ok() != second.is_ok());
    open(vec![])
        .await
        .expect("the session continues")
        .run()
        .await
        .expect("runs");
}

#[tokio::test]
async fn an_approval_request_says_when_its_arguments_are_too_large_to_show() {
    let (dispatcher, view) = dispatcher(&Probe::default()).await;
    let calls = vec![request("1", "ask_echo", &"x".repeat(70_000))];
    let report = dispatcher
        .open_turn(TurnRequest::new(view, calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let (events, _) = transcript(&dispatcher).await;
    let shown = events.iter().find_map(|event| match event.as_tool() {
        Some((_, ToolEvent::ToolApprovalRequested(request))) => Some(request.clone()),
        _ => None,
    });
    let shown = shown.expect("asked");
    assert!(shown.withheld && shown.arguments.as_map().is_empty());
    let Some(Suspension::Decision(real)) = &report.results[0].waits_for else {
        panic!("not asked")
    };
    assert!(!real.withheld && real.arguments.digest() == shown.arguments_digest);
}

#[tokio::test]
async fn the_concurrency_limit_includes_external_calls() {
    let registry = registry(&Probe::default());
    let dispatcher = Dispatcher::builder(stack(&registry))
        .max_concurrent(2)
        .build()
        .await
        .expect("builds");
    let calls = (0..5)
        .map(|n| request(&n.to_string(), "host", "x"))
        .collect();
    let mut report = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let mut rounds = 0;
    while report.end == TurnEnd::Suspended {
        let outside: Vec<_> = report
            .results
            .iter()
            .filter(|result| result.waits_for.is_some())
            .map(|r| r.id)
            .collect();
        assert!((1..=2).contains(&outside.len()), "{}", outside.len());
        dispatcher
            .approval_service()
            .deliver_result(report.turn, outside[0], Outcome::ok("done"))
            .await
            .expect("accepted");
        report = dispatcher
            .resume(report.turn, view(&registry))
            .await
            .expect("resumes")
            .run()
            .await
            .expect("runs");
        rounds += 1;
    }
    assert_eq!(rounds, 5);
    assert_eq!(statuses(&report), [Some(Status::Ok); 5]);
    transcript(&dispatcher).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_dropped_turn_have_stopped_before_it_is_resumed() {
    use std::sync::{Arc, Condvar, Mutex};
    // A tool that cannot be stopped while it holds its thread, and that may be repeated.
    let held: Arc<(Mutex<u32>, Condvar)> = Arc::default();
    let registry = registry(&Probe::default());
    let inside = held.clone();
    let probe = Probe::default();
    let entered = probe.clone();
    let tool = toolgate_core::tool_fn(
        "blocking",
        "Holds its thread.",
        move |_: crate::common::Text, _cx| {
            let held = inside.clone();
            let probe = entered.clone();
            async move {
                let mut state = held.0.lock().expect("no panic");
                assert_eq!(*state % 2, 0, "no other call is inside");
                *state += 1;
                probe.entered.notify_one();
                while *state == 1 {
                    state = held.1.wait(state).expect("no panic");
                }
                *state = 4;
                Ok::<_, toolgate_core::ToolError>("done")
            }
        },
    );
    registry
        .register(tool.with_annotations(toolgate_core::Annotations::read_only()))
        .expect("free");
    let dispatcher = Dispatcher::builder(stack(&registry))
        .grace(Duration::from_secs(60))
        .build()
        .await
        .expect("builds");
    let calls = vec![request("1", "blocking", "x")];
    let run = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let turn = run.turn();
    let driver = tokio::spawn(run.run());
    probe.entered.notified().await;
    driver.abort();
    let _ = driver.await;
    let mut resuming = Box::pin(dispatcher.resume(turn, view(&registry)));
    assert!(
        futures::poll!(&mut resuming).is_pending(),
        "the old call is still inside"
    );
    *held.0.lock().expect("no panic") = 2;
    held.1.notify_all();
    let report = resuming.await.expect("resumes").run().await.expect("runs");
    assert_eq!(statuses(&report), [Some(Status::Ok)]);
    transcript(&dispatcher).await;
}
