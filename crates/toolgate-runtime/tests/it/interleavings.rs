//! Random turns with real tasks, real deliveries from several sides, interruptions and lost
//! processes.
//!
//! The pure turn is shaken 100,000 times in `toolgate-core`; here fewer cases go through the whole dispatcher.
//! `TOOLGATE_INTERLEAVINGS` sets the number there; a hundredth of it runs here.

use std::time::Duration;

use crate::common::{Probe, registry, request, stack, unknown_question, view};
use proptest::{prelude::*, test_runner::Config};
use toolgate_core::{
    ApprovalRequestRef, Decision, MemoryStore, Outcome, RejectCode, Suspension, ToolEvent,
};
use toolgate_runtime::{BusDelivery, Dispatcher, TurnEnd, TurnRequest};
use toolgate_testkit::LifecycleChecker;

const TOOLS: [&str; 9] = [
    "echo",
    "ask_echo",
    "slow",
    "slow_write",
    "host",
    "boom",
    "fail",
    "no_such_tool",
    "write",
];

#[derive(Debug, Clone)]
struct Scenario {
    calls: Vec<(usize, &'static str)>,
    cap: usize,
    /// The actions of other tasks when they see the n-th event.
    posts: Vec<(usize, usize, u8)>,
    interrupt_after: Option<usize>,
    lose_process_after: Option<usize>,
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let call = (
        0..TOOLS.len(),
        prop::sample::select(vec!["", "x", "x", "y"]),
    );
    let post = (0_usize..40, 0_usize..12, any::<u8>());
    let parts = (
        prop::collection::vec(call, 1..=12),
        1_usize..6,
        prop::collection::vec(post, 0..24),
        prop::option::weighted(0.2, 0_usize..30),
        prop::option::weighted(0.3, 0_usize..30),
    );
    parts.prop_map(
        |(calls, cap, posts, interrupt_after, lose_process_after)| Scenario {
            calls,
            cap,
            posts,
            interrupt_after,
            lose_process_after,
        },
    )
}

async fn play(scenario: Scenario) {
    let probe = Probe::default();
    probe.gate.0.add_permits(1_000);
    let registry = registry(&probe);
    let store = MemoryStore::new();
    let build = |session: Option<toolgate_core::SessionId>| {
        let mut builder = Dispatcher::builder(stack(&registry))
            .store(store.clone())
            .max_concurrent(scenario.cap);
        builder = builder.grace(Duration::ZERO);
        if let Some(session) = session {
            builder = builder.session(session);
        }
        builder
    };
    let mut dispatcher = build(None).build().await.expect("builds");
    let calls = scenario.calls.iter().map(|(tool, id)| match TOOLS[*tool] {
        "write" => toolgate_core::ToolRequest::from_json(
            id,
            "write",
            serde_json::json!({ "path": "same" }),
        ),
        tool => request(id, tool, "x"),
    });
    let opened = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls.collect()))
        .await
        .expect("opens");
    let turn = opened.turn();
    let mut feed = dispatcher.bus().subscribe();
    let handle = opened.handle();
    let service = dispatcher.approval_service();
    let mut running = tokio::spawn(opened.run());
    let mut ids = Vec::new();
    // Other tasks watch events and interfere.
    for seen in 0..30_usize {
        let Ok(Some(BusDelivery::Event(event))) =
            tokio::time::timeout(Duration::from_millis(1), feed.next()).await
        else {
            break;
        };
        match event.as_tool() {
            Some((head, ToolEvent::ToolExecutionStarted { .. })) => {
                ids.push(unknown_question(head.id))
            }
            Some((_, ToolEvent::ToolApprovalRequested(request))) => {
                ids.push(ApprovalRequestRef::from(&**request))
            }
            _ => {}
        }
        for (_, target, kind) in scenario.posts.iter().filter(|(at, ..)| *at == seen) {
            let Some(question) = ids.get(target % ids.len().max(1)).copied() else {
                continue;
            };
            let posted = match kind % 3 {
                0 => service
                    .decide(question, Decision::approve("ann"))
                    .await
                    .map(drop),
                1 => service
                    .decide(question, Decision::deny("bob", None))
                    .await
                    .map(drop),
                _ => {
                    let call = question.approval_id.call_id();
                    service
                        .deliver_result(turn, call, Outcome::ok("outside"))
                        .await
                }
            };
            if let Err(error) = posted {
                assert!(
                    error
                        .code()
                        .is_some_and(|code| code != RejectCode::TurnMismatch),
                    "{error}"
                );
            }
        }
        if scenario.interrupt_after == Some(seen) {
            handle.interrupt("stop").await.expect("recorded");
        }
        if scenario.lose_process_after == Some(seen) {
            let session = dispatcher.session();
            running.abort();
            let _ = running.await;
            dispatcher = build(Some(session))
                .take_over()
                .build()
                .await
                .expect("builds");
            let resumed = dispatcher
                .resume(turn, view(&registry))
                .await
                .expect("resumes");
            running = tokio::spawn(resumed.run());
            break;
        }
    }
    // Every request is answered until nothing is open any more.
    let mut report = running.await.expect("no panic").expect("runs");
    let mut rounds = 0;
    while report.end == TurnEnd::Suspended {
        rounds += 1;
        assert!(rounds < 50, "the turn does not end");
        for result in &report.results {
            let posted = match &result.waits_for {
                Some(Suspension::Decision(request)) => dispatcher
                    .approval_service()
                    .decide(request, Decision::approve("ann"))
                    .await
                    .map(drop),
                Some(Suspension::Result) => {
                    dispatcher
                        .approval_service()
                        .deliver_result(turn, result.id, Outcome::ok("late"))
                        .await
                }
                None => continue,
            };
            if let Err(error) = posted {
                assert!(error.code().is_some(), "{error}");
            }
        }
        report = dispatcher
            .resume(turn, view(&registry))
            .await
            .expect("resumes")
            .run()
            .await
            .expect("runs");
    }
    assert!(
        report.results.iter().all(|result| result.outcome.is_some()),
        "every call is answered"
    );
    let events = dispatcher
        .store()
        .events(dispatcher.session(), 0, usize::MAX)
        .await
        .expect("reads");
    let summary = LifecycleChecker::check_all(events.iter().map(|event| &**event))
        .expect("the lifecycle holds");
    assert_eq!(
        (summary.ended.len(), summary.settled_turns),
        (scenario.calls.len(), 1)
    );
    for result in &report.results {
        assert_eq!(
            summary.ended.get(&result.id).copied(),
            result.status(),
            "the report says what the log says"
        );
        let late = dispatcher
            .approval_service()
            .deliver_result(turn, result.id, Outcome::ok("too late"))
            .await
            .expect_err("ended");
        assert!(
            matches!(
                late.code(),
                Some(RejectCode::Duplicate | RejectCode::AlreadyDenied)
            ),
            "{late}"
        );
    }
}

fn cases() -> u32 {
    let wanted = std::env::var("TOOLGATE_INTERLEAVINGS")
        .ok()
        .and_then(|text| text.parse::<u32>().ok());
    wanted.unwrap_or(100_000).div_ceil(100)
}

proptest! {
    #![proptest_config(Config { cases: cases(), failure_persistence: None, ..Config::default() })]

    #[test]
    fn every_turn_settles_each_call_once_under_any_interference(scenario in scenario()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("builds");
        runtime.block_on(async {
            // Only a hang reaches this limit.
            tokio::time::timeout(Duration::from_secs(60), play(scenario)).await.expect("no hang");
        });
    }
}
