//! The rules of turns, each as a test with real tasks.

mod common;

use std::time::Duration;

use common::{
    Probe, dispatcher, life, made_up, question, registry, request, stack, statuses, texts,
    transcript, view,
};
use serde_json::json;
use toolgate_core::{
    ApprovalRequest, Approver, Arguments, Decision, Json, Outcome, PostCode, RedactionFailed,
    Redactor, Status, Store as _, Suspension, ToolEvent, ToolRequest,
};
use toolgate_runtime::{Delivery, DispatchError, Dispatcher, OnFailure, TurnEnd, TurnRequest};
use toolgate_testkit::{CountingIds, TestClock};

#[tokio::test]
async fn one_failing_denied_or_panicking_sibling_does_not_void_the_others() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let calls = vec![
        request("1", "echo", "one"),
        request("2", "boom", "secret"),
        request("3", "no_such_tool", "x"),
        ToolRequest::text("4", "echo", "not json"),
        request("5", "fail", "x"),
        request("6", "echo", "six"),
    ];
    let report = dispatcher
        .open(TurnRequest::new(view, calls))
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
    let unknown = life(&events, report.results[2].id);
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
        .open(TurnRequest::new(view, calls))
        .await
        .expect("opens");
    let mut feed = dispatcher.bus().subscribe();
    let running = tokio::spawn(run.run());
    let mut ended = Vec::new();
    while ended.len() < 3 {
        let Some(Delivery::Event(event)) = feed.next().await else {
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
async fn no_more_than_the_cap_run_at_once() {
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
            .open(TurnRequest::new(view(&registry), calls))
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
    let write =
        |n: usize| ToolRequest::json(&n.to_string(), "write", json!({ "path": spellings[n % 4] }));
    let calls = (0..24).map(write).collect();
    let report = dispatcher
        .open(TurnRequest::new(view, calls))
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
        .open(TurnRequest::new(view, calls))
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
        .open(TurnRequest::new(view, vec![]))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!((report.end, report.results.len()), (TurnEnd::Settled, 0));
    assert_eq!(transcript(&dispatcher).await.1.settled_turns, 1);
}

#[tokio::test]
async fn a_gated_call_suspends_alone_and_its_siblings_are_durable_at_once() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let calls = vec![
        request("1", "echo", "a"),
        request("2", "ask_echo", "b"),
        request("3", "echo", "c"),
    ];
    let report = dispatcher
        .open(TurnRequest::new(view, calls))
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
        life(&events, report.results[1].id),
        ["tool_requested", "tool_approval_requested"]
    );
    assert_eq!(probe.ran(), 2);
}

#[tokio::test]
async fn a_suspended_call_goes_on_in_a_process_that_knows_only_the_store() {
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
        .open(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let (session, turn, call) = (first.session(), before.turn, before.results[1].id);
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
        .decide(turn, asked, Decision::approve_with_edits("ann", edited))
        .await
        .expect("taken");
    drop(second);

    let third = Dispatcher::builder(stack(&registry))
        .session(session)
        .store(store)
        .take_over()
        .build()
        .await
        .expect("builds");
    let again = third
        .decide(turn, asked, Decision::deny("bob", None))
        .await
        .expect_err("decided already");
    assert_eq!(again.code(), Some(PostCode::Duplicate));
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
    assert_eq!(life(&events, call), expected);
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
async fn a_denial_is_terminal_is_told_to_the_model_and_a_late_result_does_not_change_it() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let calls = vec![request("1", "ask_echo", "a")];
    let suspended = dispatcher
        .open(TurnRequest::new(view.clone(), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let (turn, call) = (suspended.turn, suspended.results[0].id);
    let asked = question(&suspended.results[0]);
    dispatcher
        .decide(turn, asked, Decision::deny("ann", Some("too risky")))
        .await
        .expect("taken");
    let late = dispatcher
        .decide(turn, asked, Decision::approve("bob"))
        .await
        .expect_err("denied already");
    assert_eq!(late.code(), Some(PostCode::AlreadyDenied));
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
            .deliver(turn, call, Outcome::ok("late"))
            .await
            .expect_err("denied");
        assert_eq!(late.code(), Some(PostCode::AlreadyDenied));
    }
    let (events, _) = transcript(&dispatcher).await;
    assert_eq!(
        life(&events, call),
        ["tool_requested", "tool_approval_requested", "tool_denied"]
    );
    let denied = events.iter().find_map(|event| match event.as_tool() {
        Some((_, ToolEvent::ToolDenied { approver, .. })) => approver.clone(),
        _ => None,
    });
    assert_eq!(denied.expect("named").as_str(), "ann");
}

#[tokio::test]
async fn a_result_from_outside_settles_the_call_once() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let calls = vec![request("1", "host", "a"), request("2", "slow", "b")];
    let run = dispatcher
        .open(TurnRequest::new(view, calls))
        .await
        .expect("opens");
    let handle = run.handle();
    let mut feed = dispatcher.bus().subscribe();
    let running = tokio::spawn(run.run_to_end());
    let host = loop {
        let Some(Delivery::Event(event)) = feed.next().await else {
            panic!("no event")
        };
        match event.as_tool() {
            Some((head, ToolEvent::ToolExecutionStarted { external: true, .. })) => break head.id,
            _ => continue,
        }
    };
    let wrong_kind = handle
        .decide(made_up(host), Decision::approve("ann"))
        .await
        .expect_err("not asked");
    assert_eq!(wrong_kind.code(), Some(PostCode::NoWaiter));
    handle
        .deliver(host, Outcome::ok("from outside"))
        .await
        .expect("taken");
    let duplicate = handle
        .deliver(host, Outcome::ok("again"))
        .await
        .expect_err("delivered");
    assert_eq!(duplicate.code(), Some(PostCode::Duplicate));
    probe.gate.0.add_permits(1);
    let report = running.await.expect("no panic").expect("runs");
    assert_eq!(texts(&report), ["from outside", "b"]);
    let late = handle
        .deliver(host, Outcome::ok("late"))
        .await
        .expect_err("over");
    assert_eq!(late.code(), Some(PostCode::Duplicate));
    let (events, _) = transcript(&dispatcher).await;
    assert_eq!(
        life(&events, host),
        [
            "tool_requested",
            "tool_execution_started",
            "tool_execution_succeeded"
        ]
    );
    let refused = events
        .iter()
        .filter(|event| event.name() == "post_refused")
        .count();
    assert_eq!(
        refused, 3,
        "refusals are recorded, also the one that came after the end"
    );
}

#[tokio::test]
async fn posts_for_foreign_turns_and_calls_are_refused_and_start_nothing() {
    let probe = Probe::default();
    let (dispatcher, view) = dispatcher(&probe).await;
    let first = dispatcher
        .open(TurnRequest::new(
            view.clone(),
            vec![request("1", "host", "a")],
        ))
        .await
        .expect("opens");
    let first = first.run().await.expect("runs");
    let other = dispatcher
        .open(TurnRequest::new(
            view.clone(),
            vec![request("1", "echo", "a")],
        ))
        .await
        .expect("opens");
    let handle = other.handle();
    let host = first.results[0].id;
    let mismatch = handle
        .deliver(host, Outcome::ok("x"))
        .await
        .expect_err("not of this turn");
    assert_eq!(
        mismatch.code(),
        Some(PostCode::UnknownInvocation),
        "nobody drives the turn it belongs to"
    );
    let driven = dispatcher
        .resume(first.turn, view.clone())
        .await
        .expect("resumes");
    let mismatch = handle
        .deliver(host, Outcome::ok("x"))
        .await
        .expect_err("of another turn");
    assert_eq!(mismatch.code(), Some(PostCode::TurnMismatch));
    drop(driven);
    let nobody = toolgate_core::TurnId::new(uuid::Uuid::from_u128(77));
    let unknown = dispatcher
        .deliver(nobody, host, Outcome::ok("x"))
        .await
        .expect_err("no such turn");
    assert_eq!(unknown.code(), Some(PostCode::UnknownInvocation));
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
    let (registry, clock) = (registry(&probe), TestClock::new());
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
        .open(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let (handle, mut feed) = (run.handle(), dispatcher.bus().subscribe());
    let running = tokio::spawn(run.run_to_end());
    let mut seen = (0, 0);
    while seen != (6, 2) {
        let Some(Delivery::Event(event)) = feed.next().await else {
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
    while clock.sleepers() < 2 {
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
    let late = handle
        .deliver(report.results[5].id, Outcome::ok("late"))
        .await
        .expect_err("over");
    assert_eq!(late.code(), Some(PostCode::Duplicate));
    let (_, summary) = transcript(&dispatcher).await;
    assert_eq!((summary.ended.len(), summary.settled_turns), (7, 1));
}

#[tokio::test]
async fn on_abort_finished_results_are_kept_and_what_has_not_started_is_cancelled() {
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
        .open(TurnRequest::new(view(&registry), calls))
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
async fn a_started_call_is_not_repeated_after_a_crash_unless_that_does_no_harm() {
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
        .open(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let (turn, session, mut feed) = (run.turn(), first.session(), first.bus().subscribe());
    let running = tokio::spawn(run.run());
    let mut seen = 0;
    while seen < 5 {
        let Some(Delivery::Event(event)) = feed.next().await else {
            panic!("no event")
        };
        seen += usize::from(matches!(
            event.name(),
            "tool_execution_started" | "tool_execution_succeeded"
        ));
    }
    // The process is lost: nothing of it runs on.
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
        .open(TurnRequest::new(view.clone(), vec![]))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let next = || TurnRequest::new(view.clone(), vec![]).after(first.turn);
    dispatcher
        .open(next())
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let again = dispatcher.open(next()).await.expect_err("continued");
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
    let refused = second().build().await.expect_err("somebody drives it");
    assert!(matches!(refused, DispatchError::Held { .. }), "{refused}");
    first
        .open(turn())
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let taken = second().take_over().build().await.expect("builds");
    let before = store.revision(first.session()).await.expect("reads");
    let refused = first.open(turn()).await.expect_err("stale");
    assert!(matches!(refused, DispatchError::Fenced { .. }), "{refused}");
    assert_eq!(
        (
            probe.ran(),
            store.revision(first.session()).await.expect("reads")
        ),
        (1, before)
    );
    taken
        .open(turn())
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
                Some("panic") => panic!("the clerk fell over"),
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
        .open(TurnRequest::new(view(&registry), calls))
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
async fn what_events_show_is_redacted_and_withheld_if_that_fails() {
    struct Mask;
    impl Redactor for Mask {
        fn redact(&self, value: &Json) -> Result<Json, RedactionFailed> {
            let text = value.to_string();
            assert!(!text.contains("panic"), "the redactor fell over");
            if text.contains("broken") {
                return Err(RedactionFailed);
            }
            text.replace("hunter2", "[redacted]")
                .parse()
                .map_err(|_| RedactionFailed)
        }
        fn redact_text(&self, text: &str) -> Result<String, RedactionFailed> {
            if text.contains("broken") {
                Err(RedactionFailed)
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
        .open(TurnRequest::new(view(&registry), calls))
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
        "a redactor that panics costs nobody a result"
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
        "who decides sees what will run"
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
        .open(TurnRequest::new(view, vec![request("1", "slow", "x")]))
        .await
        .expect("opens");
    let handle = run.handle();
    let running = tokio::spawn(run.run());
    probe.entered.notified().await;
    handle.message("hurry up");
    probe.gate.0.add_permits(1);
    assert_eq!(
        running.await.expect("no panic").expect("runs").messages,
        ["hurry up"]
    );
}

#[tokio::test]
async fn a_turn_reads_the_same_every_time() {
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
        .open(request)
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    dispatcher
        .decide(
            report.turn,
            question(&report.results[1]),
            Decision::approve("ann"),
        )
        .await
        .expect("taken");
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
        .open(TurnRequest::new(view, vec![request("1", "stubborn", "x")]))
        .await
        .expect("opens");
    let running = tokio::spawn(run.run());
    probe.entered.notified().await;
    running.abort();
    assert!(running.await.expect_err("aborted").is_cancelled());
    let (_, summary) = transcript(&dispatcher).await;
    assert_eq!(summary.open.len(), 1, "not settled: it can be resumed");
}
