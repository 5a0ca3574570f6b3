//! The rules of turns, each as a test with real tasks.

use std::time::Duration;

use crate::common::{
    Probe, dispatcher, event_names, question, registry, request, stack, statuses, texts,
    transcript, unknown_question, view,
};
use serde_json::json;
use toolgate_core::{
    ApprovalRequest, Approver, Arguments, Decision, EventStore as _, Json, Outcome, RedactionError,
    Redactor, RejectCode, Status, Suspension, ToolEvent, ToolRequest,
};
use toolgate_runtime::{BusDelivery, DispatchError, Dispatcher, OnFailure, TurnEnd, TurnRequest};
use toolgate_testkit::{CountingIds, TestClock};

#[tokio::test]
async fn one_failing_denied_or_panicking_sibling_does_not_void_the_others() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let calls = vec![
        request("1", "echo", "one"),
        request("2", "boom", "secret"),
        request("3", "no_such_tool", "x"),
        ToolRequest::from_text("4", "echo", "not json"),
        request("5", "fail", "x"),
        request("6", "echo", "six"),
    ];
    let report = dispatcher
        .open_turn(TurnRequest::new(view, calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!(report.end, TurnEnd::Settled);
    use Status::{Exception, ExecutorError, Ok, SchemaViolation, ToolNotFound};
    let expected = [
        Ok,
        Exception,
        ToolNotFound,
        SchemaViolation,
        ExecutorError,
        Ok,
    ];
    assert_eq!(statuses(&report), expected.map(Some));
    assert_eq!(texts(&report)[0], "one");
    let (events, summary) = transcript(&dispatcher).await;
    assert_eq!((summary.ended.len(), summary.settled_turns), (6, 1));
    let all = serde_json::to_string(&events).expect("writes");
    assert_eq!(
        all.matches("secret").count(),
        1,
        "only in the arguments the model wrote, never from the panic"
    );
    let unknown = event_names(&events, report.results[2].id);
    assert_eq!(
        unknown,
        ["tool_requested", "tool_execution_failed"],
        "one terminal event and no start"
    );
}

#[tokio::test]
async fn results_come_in_call_order_whatever_order_they_finish_in() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let calls = vec![
        request("a", "slow", "first"),
        request("b", "echo", "second"),
        request("c", "echo", "third"),
    ];
    let run = dispatcher
        .open_turn(TurnRequest::new(view, calls))
        .await
        .expect("opens");
    let mut feed = dispatcher.bus().subscribe();
    let running = tokio::spawn(run.run());
    let mut ended = Vec::new();
    while ended.len() < 3 {
        let Some(BusDelivery::Event(event)) = feed.next().await else {
            panic!("no event")
        };
        if let Some((head, ToolEvent::ToolExecutionSucceeded { .. })) = event.as_tool() {
            ended.push(head.emit_order);
            if ended.len() == 2 {
                probe.gate.0.add_permits(1);
            }
        }
    }
    assert_eq!(ended[2], 0, "reported as they come");
    let report = running.await.expect("no panic").expect("runs");
    assert_eq!(texts(&report), ["first", "second", "third"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_calls_than_the_limit_run_at_once() {
    for cap in [1, 3] {
        let probe = Probe::default();
        let registry = registry(&probe);
        let dispatcher = Dispatcher::builder(stack(&registry))
            .max_concurrent(cap)
            .build()
            .await
            .expect("builds");
        let calls = (0..50)
            .map(|n| request(&n.to_string(), "echo", "x"))
            .collect();
        let report = dispatcher
            .open_turn(TurnRequest::new(view(&registry), calls))
            .await
            .expect("opens")
            .run()
            .await;
        assert_eq!(statuses(&report.expect("runs")), [Some(Status::Ok); 50]);
        assert!(
            (1..=cap).contains(&probe.peak()),
            "{} of {cap}",
            probe.peak()
        );
        if cap == 1 {
            let (events, _) = transcript(&dispatcher).await;
            let started = events
                .iter()
                .filter_map(|event| event.as_tool())
                .filter_map(|(head, event)| match event {
                    ToolEvent::ToolExecutionStarted { .. } => Some(head.emit_order),
                    _ => None,
                });
            assert!(
                started.is_sorted(),
                "one after the other means in call order"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writes_to_one_file_never_overlap() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let spellings = ["a/b", "a/./b", "a/x/../b", "a"];
    let write = |n: usize| {
        ToolRequest::from_json(&n.to_string(), "write", json!({ "path": spellings[n % 4] }))
    };
    let calls = (0..24).map(write).collect();
    let report = dispatcher
        .open_turn(TurnRequest::new(view, calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!(statuses(&report), [Some(Status::Ok); 24]);
    assert_eq!(probe.peak(), 1);
}

#[tokio::test]
async fn duplicate_and_empty_provider_ids_are_answered_one_by_one() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let calls = ["x", "x", "", "", "y"]
        .map(|id| request(id, "echo", id))
        .to_vec();
    let report = dispatcher
        .open_turn(TurnRequest::new(view, calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!(report.results.len(), 5);
    assert_eq!(statuses(&report), [Some(Status::Ok); 5]);
    let labels: std::collections::HashSet<_> = report
        .results
        .iter()
        .map(|result| result.call_id.clone())
        .collect();
    assert!(labels.len() == 5 && !labels.contains(""));
    assert_eq!(&*report.results[0].call_id, "x");
    assert_eq!(&*report.results[1].provider_call_id, "x");
    transcript(&dispatcher).await;
}

#[tokio::test]
async fn an_empty_turn_settles_at_once() {
    let (dispatcher, view) = dispatcher(&Probe::default()).await;
    let report = dispatcher
        .open_turn(TurnRequest::new(view, vec![]))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!((report.end, report.results.len()), (TurnEnd::Settled, 0));
    assert_eq!(transcript(&dispatcher).await.1.settled_turns, 1);
}

#[tokio::test]
async fn a_call_that_needs_approval_suspends_alone_and_its_siblings_are_durable_at_once() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let calls = vec![
        request("1", "echo", "a"),
        request("2", "ask_echo", "b"),
        request("3", "echo", "c"),
    ];
    let report = dispatcher
        .open_turn(TurnRequest::new(view, calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!(report.end, TurnEnd::Suspended);
    assert_eq!(
        statuses(&report),
        [Some(Status::Ok), None, Some(Status::Ok)]
    );
    assert!(matches!(
        report.results[1].waits_for,
        Some(Suspension::Decision(_))
    ));
    let (events, summary) = transcript(&dispatcher).await;
    assert_eq!(
        (
            summary.ended.len(),
            summary.open.len(),
            summary.settled_turns
        ),
        (2, 1, 0)
    );
    assert_eq!(
        event_names(&events, report.results[1].id),
        ["tool_requested", "tool_approval_requested"]
    );
    assert_eq!(probe.ran(), 2);
}

#[tokio::test]
async fn a_suspended_call_resumes_in_a_process_that_knows_only_the_store() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let store = toolgate_core::MemoryStore::new();
    let first = Dispatcher::builder(stack(&registry))
        .store(store.clone())
        .build()
        .await
        .expect("builds");
    let calls = vec![
        request("1", "echo", "a"),
        request("2", "ask_echo", "b"),
        request("3", "echo", "c"),
    ];
    let before = first
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let session = first.session();
    let turn = before.turn;
    let call = before.results[1].id;
    let asked = question(&before.results[1]);
    drop(first);

    let second = Dispatcher::builder(stack(&registry))
        .session(session)
        .store(store.clone())
        .take_over()
        .build()
        .await
        .expect("builds");
    let edited = Arguments::parse(r#"{"text":"B"}"#).expect("object");
    second
        .approval_service()
        .decide(asked, Decision::approve_with_edits("ann", edited))
        .await
        .expect("accepted");
    drop(second);

    let third = Dispatcher::builder(stack(&registry))
        .session(session)
        .store(store)
        .take_over()
        .build()
        .await
        .expect("builds");
    let again = third
        .approval_service()
        .decide(asked, Decision::deny("bob", None))
        .await
        .expect_err("decided already");
    assert_eq!(again.code(), Some(RejectCode::Duplicate));
    let report = third
        .resume(turn, view(&registry))
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    assert_eq!(report.end, TurnEnd::Settled);
    assert_eq!(texts(&report), ["a", "B", "c"]);
    assert_eq!(probe.ran(), 3, "nothing ran twice");
    let (events, summary) = transcript(&third).await;
    assert_eq!(summary.settled_turns, 1);
    let expected = [
        "tool_requested",
        "tool_approval_requested",
        "tool_approved",
        "tool_execution_started",
        "tool_execution_succeeded",
    ];
    assert_eq!(event_names(&events, call), expected);
    let twice = third
        .resume(turn, view(&registry))
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    assert_eq!(probe.ran(), 3);
    assert_eq!(texts(&twice), ["a", "B", "c"]);
}

#[tokio::test]
async fn a_denial_is_final_is_read_by_the_model_and_a_late_result_does_not_change_it() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let calls = vec![request("1", "ask_echo", "a")];
    let suspended = dispatcher
        .open_turn(TurnRequest::new(view.clone(), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let turn = suspended.turn;
    let call = suspended.results[0].id;
    let asked = question(&suspended.results[0]);
    dispatcher
        .approval_service()
        .decide(asked, Decision::deny("ann", Some("too risky")))
        .await
        .expect("accepted");
    let late = dispatcher
        .approval_service()
        .decide(asked, Decision::approve("bob"))
        .await
        .expect_err("denied already");
    assert_eq!(late.code(), Some(RejectCode::AlreadyDenied));
    let report = dispatcher
        .resume(turn, view.clone())
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    assert_eq!(texts(&report), ["Tool execution denied: too risky"]);
    assert_eq!(probe.ran(), 0);
    for _ in 0..2 {
        let late = dispatcher
            .approval_service()
            .deliver_result(turn, call, Outcome::ok("late"))
            .await
            .expect_err("denied");
        assert_eq!(late.code(), Some(RejectCode::AlreadyDenied));
    }
    let (events, _) = transcript(&dispatcher).await;
    assert_eq!(
        event_names(&events, call),
        ["tool_requested", "tool_approval_requested", "tool_denied"]
    );
    let denied = events.iter().find_map(|event| match event.as_tool() {
        Some((_, denied @ ToolEvent::ToolDenied { .. })) => Some(denied.clone()),
        _ => None,
    });
    let expected = ToolEvent::ToolDenied {
        status: Status::Denied,
        approver: Some("ann".into()),
        established: Default::default(),
        reason: Some("too risky".into()),
        error: Some("Tool execution denied: too risky".into()),
    };
    assert_eq!(denied, Some(expected), "the reason is data of its own");
}

#[tokio::test]
async fn an_external_result_settles_the_call_once() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let calls = vec![request("1", "host", "a"), request("2", "slow", "b")];
    let all = view.clone();
    let run = dispatcher
        .open_turn(TurnRequest::new(view, calls))
        .await
        .expect("opens");
    let handle = run.handle();
    let mut feed = dispatcher.bus().subscribe();
    let running = tokio::spawn(run.run_to_end());
    let host = loop {
        let Some(BusDelivery::Event(event)) = feed.next().await else {
            panic!("no event")
        };
        match event.as_tool() {
            Some((head, ToolEvent::ToolExecutionStarted { external: true, .. })) => break head.id,
            _ => continue,
        }
    };
    let service = dispatcher.approval_service();
    let wrong_kind = service
        .decide(unknown_question(host), Decision::approve("ann"))
        .await
        .expect_err("not asked");
    assert_eq!(
        wrong_kind.code(),
        Some(RejectCode::UnknownInvocation),
        "no approval was requested for this call"
    );
    let requests = dispatcher
        .store()
        .load_turn_requests(handle.turn())
        .await
        .expect("reads")
        .expect("there are requests");
    let wrong_call = service
        .deliver_result(handle.turn(), requests.calls[1].id, Outcome::ok("no"))
        .await
        .expect_err("runs here");
    assert_eq!(wrong_call.code(), Some(RejectCode::NoWaiter));
    service
        .deliver_result(handle.turn(), host, Outcome::ok("from outside"))
        .await
        .expect("accepted");
    let duplicate = service
        .deliver_result(handle.turn(), host, Outcome::ok("again"))
        .await
        .expect_err("delivered");
    assert_eq!(duplicate.code(), Some(RejectCode::Duplicate));
    probe.gate.0.add_permits(1);
    let report = running.await.expect("no panic").expect("runs");
    assert_eq!(texts(&report), ["from outside", "b"]);
    let late = service
        .deliver_result(handle.turn(), host, Outcome::ok("late"))
        .await
        .expect_err("ended");
    assert_eq!(late.code(), Some(RejectCode::Duplicate));
    // Resuming empties the mailbox; the turn has ended and stays so.
    let again = dispatcher
        .resume(report.turn, all)
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    assert_eq!(texts(&again), ["from outside", "b"]);
    let (events, _) = transcript(&dispatcher).await;
    assert_eq!(
        event_names(&events, host),
        [
            "tool_requested",
            "tool_execution_started",
            "tool_execution_succeeded"
        ]
    );
    let refused = events
        .iter()
        .filter(|event| event.name() == "input_rejected")
        .count();
    assert_eq!(
        refused, 3,
        "rejections are recorded, also the one after the end"
    );
}

#[tokio::test]
async fn deliveries_to_foreign_turns_and_calls_are_rejected_and_start_nothing() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let first = dispatcher
        .open_turn(TurnRequest::new(
            view.clone(),
            vec![request("1", "host", "a")],
        ))
        .await
        .expect("opens");
    let first = first.run().await.expect("runs");
    let other = dispatcher
        .open_turn(TurnRequest::new(
            view.clone(),
            vec![request("1", "echo", "a")],
        ))
        .await
        .expect("opens");
    let service = dispatcher.approval_service();
    let host = first.results[0].id;
    let mismatch = service
        .deliver_result(other.turn(), host, Outcome::ok("x"))
        .await
        .expect_err("of another turn, which has no driver");
    assert_eq!(mismatch.code(), Some(RejectCode::TurnMismatch));
    let driven = dispatcher
        .resume(first.turn, view.clone())
        .await
        .expect("resumes");
    let mismatch = service
        .deliver_result(other.turn(), host, Outcome::ok("x"))
        .await
        .expect_err("of another turn");
    assert_eq!(mismatch.code(), Some(RejectCode::TurnMismatch));
    drop(driven);
    let unknown_call = toolgate_core::CallId::new(uuid::Uuid::from_u128(78));
    let unknown = service
        .deliver_result(other.turn(), unknown_call, Outcome::ok("x"))
        .await
        .expect_err("no such call");
    assert_eq!(unknown.code(), Some(RejectCode::UnknownInvocation));
    let unknown_turn = toolgate_core::TurnId::new(uuid::Uuid::from_u128(77));
    let unknown = dispatcher
        .approval_service()
        .deliver_result(unknown_turn, host, Outcome::ok("x"))
        .await
        .expect_err("no such turn");
    assert_eq!(unknown.code(), Some(RejectCode::UnknownInvocation));
    let revision = dispatcher
        .store()
        .revision(dispatcher.session())
        .await
        .expect("reads");
    assert_eq!(transcript(&dispatcher).await.0.len() as u64, revision);
    assert_eq!(probe.ran(), 0);
}

#[tokio::test]
async fn interrupting_keeps_finished_results_and_settles_the_rest_honestly() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let clock = TestClock::new();
    let dispatcher = Dispatcher::builder(stack(&registry))
        .clock(clock.clone())
        .max_concurrent(5)
        .build()
        .await
        .expect("builds");
    let calls = [
        "echo",
        "slow",
        "stubborn",
        "stubborn_write",
        "ask_echo",
        "host",
        "echo",
    ];
    let calls = calls.iter().map(|tool| request(tool, tool, "x")).collect();
    let run = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let handle = run.handle();
    let mut feed = dispatcher.bus().subscribe();
    let running = tokio::spawn(run.run_to_end());
    let mut seen = (0, 0);
    while seen != (6, 2) {
        let Some(BusDelivery::Event(event)) = feed.next().await else {
            panic!("no event")
        };
        match event.name() {
            "tool_execution_started" => seen.0 += 1,
            "tool_execution_succeeded" => seen.1 += 1,
            _ => {}
        }
    }
    assert!(
        handle
            .interrupt("the user pressed escape")
            .await
            .expect("recorded")
    );
    assert!(!handle.interrupt("again").await.expect("nothing to do"));
    // One more sleeps to renew the lease.
    while clock.sleeper_count() < 2 {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(2));
    let report = running.await.expect("no panic").expect("runs");
    assert_eq!(report.end, TurnEnd::Interrupted);
    use Status::{Cancelled, Ok, OutcomeUnknown};
    let expected = [
        Ok,
        Cancelled,
        Cancelled,
        OutcomeUnknown,
        Cancelled,
        OutcomeUnknown,
        Ok,
    ];
    assert_eq!(statuses(&report), expected.map(Some));
    let late = dispatcher
        .approval_service()
        .deliver_result(report.turn, report.results[5].id, Outcome::ok("late"))
        .await
        .expect_err("ended");
    assert_eq!(late.code(), Some(RejectCode::Duplicate));
    let (_, summary) = transcript(&dispatcher).await;
    assert_eq!((summary.ended.len(), summary.settled_turns), (7, 1));
}

#[tokio::test]
async fn on_abort_finished_results_are_kept_and_waiting_calls_are_cancelled() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let builder = Dispatcher::builder(stack(&registry))
        .max_concurrent(1)
        .on_failure(OnFailure::Abort);
    let dispatcher = builder.build().await.expect("builds");
    let calls = ["echo", "fail", "echo", "ask_echo"]
        .iter()
        .map(|tool| request(tool, tool, "x"))
        .collect();
    let report = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!(report.end, TurnEnd::Aborted);
    use Status::{Cancelled, ExecutorError, Ok};
    assert_eq!(
        statuses(&report),
        [Ok, ExecutorError, Cancelled, Cancelled].map(Some)
    );
    assert_eq!(probe.ran(), 1);
    transcript(&dispatcher).await;
}

#[tokio::test]
async fn a_started_call_is_not_repeated_after_a_crash_unless_that_is_harmless() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let store = toolgate_core::MemoryStore::new();
    let first = Dispatcher::builder(stack(&registry))
        .store(store.clone())
        .build()
        .await
        .expect("builds");
    let tools = ["slow", "slow_write", "idempotent_write", "echo"];
    let calls = tools.iter().map(|tool| request(tool, tool, tool)).collect();
    let run = first
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let turn = run.turn();
    let session = first.session();
    let mut feed = first.bus().subscribe();
    let running = tokio::spawn(run.run());
    let mut seen = 0;
    while seen < 5 {
        let Some(BusDelivery::Event(event)) = feed.next().await else {
            panic!("no event")
        };
        seen += usize::from(matches!(
            event.name(),
            "tool_execution_started" | "tool_execution_succeeded"
        ));
    }
    // The process is lost: nothing of it continues to run.
    running.abort();
    let _ = running.await;
    drop(first);
    tokio::task::yield_now().await;
    probe.gate.0.add_permits(2);
    let second = Dispatcher::builder(stack(&registry))
        .session(session)
        .store(store)
        .take_over()
        .build()
        .await
        .expect("builds");
    let report = second
        .resume(turn, view(&registry))
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    use Status::{Ok, OutcomeUnknown};
    assert_eq!(statuses(&report), [Ok, OutcomeUnknown, Ok, Ok].map(Some));
    assert_eq!(
        report.results[0]
            .outcome
            .as_ref()
            .expect("settled")
            .attempts,
        2
    );
    assert_eq!(
        probe.ran(),
        6,
        "two reads and idempotent calls ran again, the settled one did not"
    );
    transcript(&second).await;
}

#[tokio::test]
async fn a_turn_is_continued_by_one_turn_only() {
    let (dispatcher, view) = dispatcher(&Probe::default()).await;
    let first = dispatcher
        .open_turn(TurnRequest::new(view.clone(), vec![]))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let next = || TurnRequest::new(view.clone(), vec![]).after(first.turn);
    dispatcher
        .open_turn(next())
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let again = dispatcher.open_turn(next()).await.expect_err("continued");
    assert!(matches!(again, DispatchError::AlreadyContinued { .. }));
    let resumed = dispatcher
        .resume(first.turn, view.clone())
        .await
        .expect_err("continued");
    assert!(matches!(resumed, DispatchError::AlreadyContinued { .. }));
}

#[tokio::test]
async fn two_drivers_of_one_session_cannot_both_write() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let store = toolgate_core::MemoryStore::new();
    let first = Dispatcher::builder(stack(&registry))
        .store(store.clone())
        .build()
        .await
        .expect("builds");
    let second = || {
        Dispatcher::builder(stack(&registry))
            .session(first.session())
            .store(store.clone())
    };
    let turn = || TurnRequest::new(view(&registry), vec![request("1", "echo", "x")]);
    let refused = second()
        .build()
        .await
        .expect_err("another dispatcher drives it");
    assert!(matches!(refused, DispatchError::Held { .. }), "{refused}");
    first
        .open_turn(turn())
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let taken = second().take_over().build().await.expect("builds");
    let before = store.revision(first.session()).await.expect("reads");
    let refused = first.open_turn(turn()).await.expect_err("stale");
    assert!(matches!(refused, DispatchError::Fenced { .. }), "{refused}");
    assert_eq!(
        (
            probe.ran(),
            store.revision(first.session()).await.expect("reads")
        ),
        (1, before)
    );
    taken
        .open_turn(turn())
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!(probe.ran(), 2);
    transcript(&taken).await;
}

#[tokio::test]
async fn an_approver_is_asked_at_once_and_one_that_panics_leaves_the_call_suspended() {
    struct Clerk;
    impl Approver for Clerk {
        async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
            match request.arguments.get("text").and_then(|text| text.as_str()) {
                Some("yes") => Some(Decision::approve("clerk")),
                Some("no") => Some(Decision::deny("clerk", None)),
                Some("panic") => panic!("the clerk panicked"),
                _ => None,
            }
        }
    }
    let probe = Probe::default();
    let registry = registry(&probe);
    let dispatcher = Dispatcher::builder(stack(&registry))
        .approver(Clerk)
        .build()
        .await
        .expect("builds");
    let calls = ["yes", "no", "panic", "later"]
        .map(|text| request(text, "ask_echo", text))
        .to_vec();
    let report = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!(report.end, TurnEnd::Suspended);
    assert_eq!(
        statuses(&report),
        [Some(Status::Ok), Some(Status::Denied), None, None]
    );
    assert_eq!(probe.ran(), 1);
    transcript(&dispatcher).await;
}

#[tokio::test]
async fn events_are_redacted_and_values_withheld_if_that_fails() {
    struct Mask;
    impl Redactor for Mask {
        fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
            let text = value.to_string();
            assert!(!text.contains("panic"), "the redactor panicked");
            if text.contains("broken") {
                return Err(RedactionError);
            }
            text.replace("hunter2", "[redacted]")
                .parse()
                .map_err(|_| RedactionError)
        }
        fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
            if text.contains("broken") {
                Err(RedactionError)
            } else {
                Ok(text.replace("hunter2", "[redacted]"))
            }
        }
    }
    let probe = Probe::default();
    let registry = registry(&probe);
    let dispatcher = Dispatcher::builder(stack(&registry))
        .redactor(Mask)
        .build()
        .await
        .expect("builds");
    let texts_in = ["hunter2", "broken hunter2", "panic hunter2"];
    let calls = texts_in
        .iter()
        .flat_map(|text| ["echo", "ask_echo"].map(|tool| request("", tool, text)))
        .collect();
    let report = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!(
        texts(&report)[0],
        "hunter2",
        "the tool and the model get the real thing"
    );
    assert_eq!(
        report.results[4].status(),
        Some(Status::Ok),
        "a redactor that panics loses no result"
    );
    let resumed = dispatcher
        .resume(report.turn, view(&registry))
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    let Some(Suspension::Decision(question)) = &resumed.results[3].waits_for else {
        panic!("not asked")
    };
    assert_eq!(
        question.arguments.get("text"),
        Some(&json!("broken hunter2")),
        "the approver sees what will run"
    );
    let (events, _) = transcript(&dispatcher).await;
    let all = serde_json::to_string(&events).expect("writes");
    assert!(!all.contains("hunter2"), "{all}");
    assert!(all.contains("[redacted]"));
}

#[tokio::test]
async fn messages_of_the_user_are_reported_with_the_turn() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let run = dispatcher
        .open_turn(TurnRequest::new(view, vec![request("1", "slow", "x")]))
        .await
        .expect("opens");
    let handle = run.handle();
    let running = tokio::spawn(run.run());
    probe.entered.notified().await;
    handle.send_message("hurry up");
    probe.gate.0.add_permits(1);
    assert_eq!(
        running.await.expect("no panic").expect("runs").messages,
        ["hurry up"]
    );
}

#[tokio::test]
async fn a_turn_has_the_same_transcript_every_time() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let builder = Dispatcher::builder(stack(&registry))
        .clock(TestClock::new())
        .ids(CountingIds::new())
        .max_concurrent(1);
    let dispatcher = builder.build().await.expect("builds");
    let calls = vec![
        request("a", "echo", "hi"),
        request("b", "ask_echo", "gated"),
        request("c", "nope", "x"),
    ];
    let request = TurnRequest::new(view(&registry), calls)
        .agent("main", "Main")
        .model("scripted", "m1");
    let report = dispatcher
        .open_turn(request)
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    dispatcher
        .approval_service()
        .decide(question(&report.results[1]), Decision::approve("ann"))
        .await
        .expect("accepted");
    dispatcher
        .resume(report.turn, view(&registry))
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    let (events, _) = transcript(&dispatcher).await;
    let lines: Vec<_> = events
        .iter()
        .map(|event| serde_json::to_value(&**event).expect("writes"))
        .collect();
    // A build may keep fields in the order in which they were written.
    insta::with_settings!({ sort_maps => true }, { insta::assert_json_snapshot!(lines) });
}

#[tokio::test]
async fn a_dropped_turn_stops_its_calls() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let run = dispatcher
        .open_turn(TurnRequest::new(view, vec![request("1", "stubborn", "x")]))
        .await
        .expect("opens");
    let running = tokio::spawn(run.run());
    probe.entered.notified().await;
    running.abort();
    assert!(running.await.expect_err("aborted").is_cancelled());
    let (_, summary) = transcript(&dispatcher).await;
    assert_eq!(summary.open.len(), 1, "not settled: it can be resumed");
}
