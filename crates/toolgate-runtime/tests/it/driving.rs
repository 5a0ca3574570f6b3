//! One driver at a time: leases, the mailbox, expiry, recovery, and calls that end elsewhere.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{
    Probe, event_names, registry, request, sessions::Odd, stack, statuses, texts, transcript, view,
};
use toolgate_core::{
    ApprovalAnswer, ApprovalFilter, ApprovalRequest, ApprovalState, Band, Call, CallId,
    CatalogueStore, Clock, Decision, EventStore, ImportOrigin, InputKind, Layer, LeaseRequest,
    LeaseTerm, LedgerDraft, LedgerName, LedgerStore, MailboxItem, MailboxStore, MemoryStore, Next,
    Outcome, RecordKey, Registry, RejectCode, RunEnd, SealedEntry, SessionFilter, SessionId, Stack,
    Status, StoreRecord, Suspension, TurnId, Verdict, from_fn,
};
use toolgate_runtime::{
    CallResult, DispatchError, Dispatcher, DispatcherBuilder, RecoveredState, Session, TurnEnd,
    TurnReport, TurnRequest,
};
use toolgate_testkit::{FaultyStore, StoreFault, TestClock};

const SPAN: Duration = Duration::from_secs(9);

fn asked(result: &CallResult) -> &ApprovalRequest {
    match &result.waits_for {
        Some(Suspension::Decision(request)) => request,
        other => panic!("not asked but {other:?}"),
    }
}

/// Leaves an answer in the store, as another process does.
async fn leave_answer(
    store: &MemoryStore,
    session: SessionId,
    turn: TurnId,
    request: &ApprovalRequest,
    decision: Decision,
) {
    let call = request.approval_id.call_id();
    let generation = request.generation;
    let answer = StoreRecord::Answer(Arc::new(ApprovalAnswer::for_request(request, decision)));
    let post = MailboxItem::Answer {
        turn,
        call,
        generation,
    };
    store
        .post_item(
            session,
            post,
            vec![(RecordKey::Answer(call, generation), answer)],
        )
        .await
        .expect("is left");
}

async fn wait_until(what: impl Fn() -> bool) {
    while !what() {
        tokio::task::yield_now().await;
    }
}

async fn run(dispatcher: &Dispatcher, request: TurnRequest) -> TurnReport {
    dispatcher
        .open_turn(request)
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs")
}

#[tokio::test]
async fn a_dropped_dispatcher_releases_its_session() {
    let probe = Probe::default();
    let store = MemoryStore::new();
    let registry = registry(&probe);
    let first = Dispatcher::builder(stack(&registry))
        .store(store.clone())
        .build()
        .await
        .expect("builds");
    let session = first.session();
    drop(first);
    Dispatcher::builder(stack(&registry))
        .session(session)
        .store(store)
        .build()
        .await
        .expect("is free");
}

#[tokio::test]
async fn a_dropped_dispatcher_releases_its_store_before_its_lease_is_due() {
    let probe = Probe::default();
    let held = Arc::new(());
    let registry = registry(&probe);
    let store = FaultyStore::new(MemoryStore::new(), {
        let held = held.clone();
        move |_, _| {
            let _ = &held;
            StoreFault::Pass
        }
    });
    // On a clock that stands still nothing is ever due.
    let builder = Dispatcher::builder(stack(&registry))
        .store(store)
        .clock(TestClock::new());
    let dispatcher = builder.build().await.expect("builds");
    let running = tokio::spawn(async move {
        run(
            &dispatcher,
            TurnRequest::new(view(&registry), vec![request("1", "slow", "a")]),
        )
        .await
    });
    wait_until(|| probe.ran() == 1).await;
    probe.gate.0.add_permits(1);
    let report = running.await.expect("no panic");
    assert_eq!(statuses(&report), [Some(Status::Ok)]);
    let gone = async { wait_until(|| Arc::strong_count(&held) == 1).await };
    tokio::time::timeout(Duration::from_secs(60), gone)
        .await
        .expect("the store is closed with its dispatcher");
}

#[tokio::test]
async fn an_imported_session_is_not_driven() {
    let session = SessionId::new(uuid::Uuid::from_u128(77));
    for key in [
        ImportOrigin::record_key(session),
        ImportOrigin::archive_key(session),
    ] {
        let store = toolgate_core::StoreHandle::new(MemoryStore::new());
        let origin = ImportOrigin {
            format: "claude".into(),
            source: None,
        };
        let put = store.put_json_once(key, origin.to_json()).await;
        put.expect("writes");
        let registry = registry(&Probe::default());
        let builder = || {
            Dispatcher::builder(stack(&registry))
                .store(store.clone())
                .session(session)
        };
        for builder in [builder(), builder().take_over()] {
            let refused = builder.build().await;
            assert!(matches!(refused, Err(DispatchError::Imported { .. })));
        }
    }
}

#[tokio::test]
async fn a_living_driver_keeps_its_expired_lease_until_it_is_taken_over() {
    let probe = Probe::default();
    let store = MemoryStore::new();
    let clock = TestClock::new();
    let registry = registry(&probe);
    let builder = || {
        Dispatcher::builder(stack(&registry))
            .store(store.clone())
            .clock(clock.clone())
            .lease(SPAN)
    };
    let first = builder().build().await.expect("builds");
    let again = || builder().session(first.session());
    clock.advance(SPAN / 2);
    assert!(matches!(
        again().build().await,
        Err(DispatchError::Held { .. })
    ));
    run(
        &first,
        TurnRequest::new(view(&registry), vec![request("1", "echo", "x")]),
    )
    .await;
    clock.advance(SPAN / 2);
    assert!(
        matches!(again().build().await, Err(DispatchError::Held { .. })),
        "the write extended it"
    );
    clock.advance(SPAN);
    assert!(
        matches!(again().build().await, Err(DispatchError::Held { .. })),
        "it expired, but its holder is alive"
    );
    let second = again().take_over().build().await.expect("is taken over");
    let refused = first
        .open_turn(TurnRequest::new(
            view(&registry),
            vec![request("2", "echo", "x")],
        ))
        .await;
    assert!(
        matches!(refused, Err(DispatchError::Fenced { .. })),
        "{refused:?}"
    );
    assert_eq!(probe.ran(), 1);
    transcript(&second).await;
}

#[tokio::test]
async fn a_driver_that_is_lost_elsewhere_is_replaced_after_its_lease_expired_or_by_force() {
    let probe = Probe::default();
    let store = MemoryStore::new();
    let clock = TestClock::new();
    let registry = registry(&probe);
    let take_elsewhere = async |session: SessionId, ahead: Duration| {
        let request = LeaseRequest {
            session,
            holder: "driver 0 in process 7+7 of elsewhere; host=build-7; user=ann; since=0".into(),
            term: LeaseTerm {
                now: clock.now().plus(ahead),
                span: SPAN,
            },
            instead_of: None,
            parent: None,
            directory: None,
        };
        store.acquire_lease(request).await.expect("leases");
    };
    let open = |session: SessionId| {
        Dispatcher::builder(stack(&registry))
            .store(store.clone())
            .clock(clock.clone())
            .session(session)
    };
    let lost = SessionId::new(uuid::Uuid::from_u128(1));
    take_elsewhere(lost, Duration::ZERO).await;
    let held = open(lost).build().await.expect_err("it may be alive");
    assert!(
        held.to_string().contains("process 7 of ann on build-7"),
        "{held}"
    );
    clock.advance(SPAN);
    open(lost).build().await.expect("its lease expired");
    // The clock of the lost machine was a day ahead.
    let ahead = SessionId::new(uuid::Uuid::from_u128(2));
    take_elsewhere(ahead, Duration::from_secs(86_400)).await;
    clock.advance(SPAN);
    let held = open(ahead).build().await;
    assert!(matches!(held, Err(DispatchError::Held { .. })), "{held:?}");
    let taken = open(ahead).take_over().build().await;
    taken.expect("is taken over");
}

/// Lets more than a whole lease pass, and expects that it is renewed each time a third has passed.
async fn expect_renewals(store: &MemoryStore, clock: &TestClock) {
    let held_until = async || {
        let row = store
            .sessions(SessionFilter::default())
            .await
            .expect("reads")
            .remove(0);
        row.held.expect("held").1
    };
    for _ in 0..4 {
        wait_until(|| clock.sleeper_count() > 0).await;
        let before = held_until().await;
        clock.advance(SPAN / 3);
        while held_until().await == before {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_driver_keeps_its_lease_while_the_model_thinks() {
    let store = MemoryStore::new();
    let clock = TestClock::new();
    let model = Odd::new(|_| Box::pin(futures::stream::pending()));
    let driven = {
        let store = store.clone();
        let clock = clock.clone();
        Session::ungated(model, Registry::new())
            .dispatcher(|builder| builder.store(store).clock(clock).lease(SPAN))
    };
    let session = driven.build().await.expect("builds");
    let run = session.start("Think.");
    expect_renewals(&store, &clock).await;
    let another = Dispatcher::builder(stack(&Registry::new()))
        .store(store.clone())
        .clock(clock.clone())
        .session(session.id());
    let refused = another.build().await;
    assert!(
        matches!(refused, Err(DispatchError::Held { .. })),
        "it was renewed all along"
    );
    let report = run.stop().await.expect("ends");
    assert_eq!(report.end, RunEnd::Cancelled);
}

#[tokio::test]
async fn a_waiting_driver_renews_its_lease_and_notices_when_it_is_lost() {
    let probe = Probe::default();
    let store = MemoryStore::new();
    let clock = TestClock::new();
    let registry = registry(&probe);
    let builder = || {
        Dispatcher::builder(stack(&registry))
            .store(store.clone())
            .clock(clock.clone())
            .lease(SPAN)
    };
    let first = builder().build().await.expect("builds");
    let again = || builder().session(first.session());
    let turn = first
        .open_turn(TurnRequest::new(
            view(&registry),
            vec![request("1", "ask_echo", "x")],
        ))
        .await
        .expect("opens");
    let waiting = tokio::spawn(turn.run_to_end());
    expect_renewals(&store, &clock).await;
    assert!(
        matches!(again().build().await, Err(DispatchError::Held { .. })),
        "it was renewed all along"
    );
    let second = again().take_over().build().await.expect("by force");
    wait_until(|| clock.sleeper_count() > 0).await;
    clock.advance(SPAN / 3);
    let end = waiting.await.expect("no panic");
    assert!(matches!(end, Err(DispatchError::Fenced { .. })), "{end:?}");
    let report = second.recover_turns(&view(&registry)).await.expect("reads");
    assert_eq!(
        report.count_calls(|found| found == RecoveredState::Pending),
        1
    );
}

#[tokio::test]
async fn an_answer_from_another_process_is_applied_by_the_driver() {
    let probe = Probe::default();
    let store = MemoryStore::new();
    let registry = registry(&probe);
    let dispatcher = Dispatcher::builder(stack(&registry))
        .store(store.clone())
        .build()
        .await
        .expect("builds");
    let calls = vec![request("1", "ask_echo", "a"), request("2", "ask_echo", "b")];
    let turn = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let id = turn.turn();
    let session = dispatcher.session();
    let waiting = tokio::spawn(turn.run_to_end());
    let pending = async || {
        store
            .approvals(ApprovalFilter::default())
            .await
            .expect("reads")
    };
    while pending().await.len() < 2 {
        tokio::task::yield_now().await;
    }
    let rows = pending().await;
    leave_answer(
        &store,
        session,
        id,
        &rows[1].request,
        Decision::deny("bob", Some("no")),
    )
    .await;
    leave_answer(
        &store,
        session,
        id,
        &rows[0].request,
        Decision::approve("ann"),
    )
    .await;
    assert!(pending().await.is_empty(), "what is answered is not listed");
    let report = waiting.await.expect("no panic").expect("runs");
    assert_eq!(statuses(&report), [Some(Status::Ok), Some(Status::Denied)]);
    let (events, _) = transcript(&dispatcher).await;
    let lived = event_names(&events, report.results[0].id);
    assert_eq!(
        lived[1..4],
        [
            "tool_approval_requested",
            "tool_approved",
            "tool_execution_started"
        ]
    );
    assert!(
        store.posts(session, 0, 10).await.expect("reads").is_empty(),
        "applied"
    );
    assert_eq!(probe.ran(), 1);
}

#[tokio::test]
async fn an_answer_to_a_turn_without_a_driver_counts_on_resume() {
    let probe = Probe::default();
    let store = MemoryStore::new();
    let registry = registry(&probe);
    let builder = || Dispatcher::builder(stack(&registry)).store(store.clone());
    let first = builder().build().await.expect("builds");
    let calls = vec![
        request("1", "ask_echo", "a"),
        request("2", "ask_echo", "b"),
        request("3", "ask_echo", "c"),
    ];
    let report = run(&first, TurnRequest::new(view(&registry), calls)).await;
    let session = first.session();
    drop(first);
    leave_answer(
        &store,
        session,
        report.turn,
        asked(&report.results[0]),
        Decision::approve("ann"),
    )
    .await;
    leave_answer(
        &store,
        session,
        report.turn,
        asked(&report.results[2]),
        Decision::deny("ann", None),
    )
    .await;
    let refused = MailboxItem::Refused {
        turn: report.turn,
        call: report.results[1].id,
        what: InputKind::Decision,
        code: RejectCode::Forged,
    };
    store
        .post_item(session, refused, Vec::new())
        .await
        .expect("is left");
    let second = builder().session(session).build().await.expect("is free");
    let recovery = second.recover_turns(&view(&registry)).await.expect("reads");
    let found: Vec<_> = recovery.runs[0]
        .found()
        .calls
        .iter()
        .map(|call| call.found)
        .collect();
    assert_eq!(
        found,
        [
            RecoveredState::Decided,
            RecoveredState::Pending,
            RecoveredState::Decided
        ]
    );
    assert!(
        recovery.to_string().contains("pending approval"),
        "{recovery}"
    );
    let [turn] = <[_; 1]>::try_from(recovery.runs).expect("one turn");
    let report = turn.run().await.expect("runs");
    assert_eq!(
        statuses(&report),
        [Some(Status::Ok), None, Some(Status::Denied)]
    );
    let (events, _) = transcript(&second).await;
    let forged = |event: &&Arc<toolgate_core::Event>| event.name() == "input_rejected";
    assert_eq!(
        events.iter().filter(forged).count(),
        1,
        "a rejection by another process is in the log"
    );
    assert!(event_names(&events, report.results[0].id).contains(&"tool_approved"));
}

#[tokio::test]
async fn a_turn_can_be_interrupted_from_another_process() {
    for driven in [true, false] {
        let probe = Probe::default();
        let store = MemoryStore::new();
        let registry = registry(&probe);
        let builder = || Dispatcher::builder(stack(&registry)).store(store.clone());
        let first = builder().build().await.expect("builds");
        let request = TurnRequest::new(view(&registry), vec![request("1", "ask_echo", "a")]);
        let turn = first.open_turn(request).await.expect("opens");
        let id = turn.turn();
        let session = first.session();
        let post = MailboxItem::Interrupt {
            turn: id,
            reason: "enough".into(),
        };
        let report = if driven {
            let waiting = tokio::spawn(turn.run_to_end());
            store
                .post_item(session, post, Vec::new())
                .await
                .expect("is left");
            waiting.await.expect("no panic").expect("runs")
        } else {
            turn.run().await.expect("suspends");
            drop(first);
            store
                .post_item(session, post, Vec::new())
                .await
                .expect("is left");
            let second = builder().session(session).build().await.expect("is free");
            second
                .resume(id, view(&registry))
                .await
                .expect("reads")
                .run()
                .await
                .expect("runs")
        };
        assert_eq!(
            (report.end, statuses(&report)),
            (TurnEnd::Interrupted, vec![Some(Status::Cancelled)])
        );
    }
}

/// Asks for approval with a deadline.
struct AskUntil(toolgate_core::Timestamp);

impl Layer for AskUntil {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        match next.decision_on(&call).map(|decision| &decision.verdict) {
            Some(Verdict::Deny { reason }) => Outcome::denied(reason.as_deref()),
            Some(_) => next.run(call).await,
            None => Outcome::await_decision(ApprovalRequest::for_call(&call).expiring_at(self.0)),
        }
    }
    fn band(&self) -> Band {
        Band::Decide
    }
}

fn asking_until(registry: &toolgate_core::Registry, clock: &TestClock) -> DispatcherBuilder {
    use toolgate_core::Clock;
    let layer = AskUntil(clock.now().plus(Duration::from_secs(60)));
    let stack = Stack::over(registry.clone())
        .layer(layer)
        .build()
        .expect("in order");
    Dispatcher::builder(stack).clock(clock.clone())
}

#[tokio::test]
async fn an_approval_request_expires_while_the_driver_waits() {
    let probe = Probe::default();
    let clock = TestClock::new();
    let registry = registry(&probe);
    let dispatcher = asking_until(&registry, &clock)
        .build()
        .await
        .expect("builds");
    let turn = dispatcher
        .open_turn(TurnRequest::new(
            view(&registry),
            vec![request("1", "echo", "x")],
        ))
        .await
        .expect("opens");
    let waiting = tokio::spawn(turn.run_to_end());
    // The lease and the approval request.
    wait_until(|| clock.sleeper_count() > 1).await;
    clock.advance(Duration::from_secs(60));
    let report = waiting.await.expect("no panic").expect("runs");
    assert_eq!(statuses(&report), [Some(Status::Expired)]);
    assert!(
        texts(&report)[0].contains("no decision was made"),
        "{:?}",
        texts(&report)
    );
    assert_eq!(probe.ran(), 0);
    transcript(&dispatcher).await;
}

#[tokio::test]
async fn an_approval_request_that_expired_meanwhile_settles_on_resume() {
    let probe = Probe::default();
    let clock = TestClock::new();
    let store = MemoryStore::new();
    let registry = registry(&probe);
    let first = asking_until(&registry, &clock)
        .store(store.clone())
        .build()
        .await
        .expect("builds");
    let report = run(
        &first,
        TurnRequest::new(view(&registry), vec![request("1", "echo", "x")]),
    )
    .await;
    let session = first.session();
    let question = crate::common::question(&report.results[0]);
    drop(first);
    clock.advance(Duration::from_secs(60));
    let second = asking_until(&registry, &clock)
        .session(session)
        .store(store.clone())
        .build()
        .await
        .expect("is free");
    let report = second
        .resume(report.turn, view(&registry))
        .await
        .expect("reads")
        .run()
        .await
        .expect("runs");
    assert_eq!(statuses(&report), [Some(Status::Expired)]);
    let late = second
        .approval_service()
        .decide(question, Decision::approve("ann"))
        .await
        .expect_err("too late");
    assert_eq!(late.code(), Some(RejectCode::Expired));
    let row = store
        .approvals(ApprovalFilter::for_call(report.results[0].id))
        .await
        .expect("reads")
        .remove(0);
    assert_eq!(row.state, ApprovalState::Settled(Status::Expired));
}

/// Records every end it sees, and seals it with the outcome.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<(CallId, Status)>>>);

impl Layer for Recorder {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let outcome = next.run(call.clone()).await;
        if let Some(settled) = outcome.settled() {
            self.0
                .lock()
                .expect("whole")
                .push((call.id, settled.status));
            let body = format!(r#"{{"call":"{}","status":"{}"}}"#, call.id, settled.status).into();
            let entry = LedgerDraft {
                ledger: LedgerName::main(),
                body,
            };
            call.env()
                .probe()
                .seal_with_outcome(&call, entry)
                .expect("is taken");
        }
        outcome
    }
    fn band(&self) -> Band {
        Band::Record
    }
}

async fn sealed(store: &MemoryStore) -> Vec<SealedEntry> {
    store
        .entries(&LedgerName::main(), 0, 1000)
        .await
        .expect("reads")
}

#[tokio::test]
async fn calls_that_end_outside_the_stack_are_seen_by_recorders_only_and_once() {
    let probe = Probe::default();
    let store = MemoryStore::new();
    let recorder = Recorder::default();
    let registry = registry(&probe);
    let decided = Arc::new(Mutex::new(0));
    let deciding = {
        let decided = decided.clone();
        from_fn(move |call, next: Next| {
            *decided.lock().expect("whole") += 1;
            async move { next.run(call).await }
        })
    };
    let stack = Stack::over(registry.clone())
        .layer(recorder.clone())
        .layer(toolgate_core::LayerExt::in_band(deciding, Band::Decide))
        .layer(crate::common::Ask)
        .build()
        .expect("in order");
    let dispatcher = Dispatcher::builder(stack)
        .store(store.clone())
        .max_concurrent(2)
        .build()
        .await
        .expect("builds");
    let calls = vec![
        request("1", "echo", "a"),
        request("2", "slow", "b"),
        request("3", "slow", "c"),
        request("4", "ask_echo", "d"),
    ];
    let turn = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let handle = turn.handle();
    let waiting = tokio::spawn(turn.run_to_end());
    wait_until(|| probe.ran() == 3).await;
    let seen_by_deciders = *decided.lock().expect("whole");
    handle.interrupt("enough").await.expect("is recorded");
    let report = waiting.await.expect("no panic").expect("runs");
    assert_eq!(statuses(&report)[0], Some(Status::Ok));
    assert_eq!(statuses(&report)[3], Some(Status::Cancelled));
    assert_eq!(
        *decided.lock().expect("whole"),
        seen_by_deciders,
        "nothing is decided anew"
    );
    let seen = recorder.0.lock().expect("whole").clone();
    for result in &report.results {
        let ends: Vec<_> = seen
            .iter()
            .filter(|(call, _)| *call == result.id)
            .map(|(_, status)| *status)
            .collect();
        assert_eq!(ends, [result.status().expect("settled")], "one end each");
    }
    let entries = sealed(&store).await;
    assert_eq!(entries.len(), 4, "one entry each, sealed with the outcome");
}

#[tokio::test]
async fn a_call_whose_outcome_is_unknown_after_a_loss_is_recorded_as_such() {
    let probe = Probe::default();
    let store = MemoryStore::new();
    let recorder = Recorder::default();
    let registry = registry(&probe);
    let stack = || {
        Stack::over(registry.clone())
            .layer(recorder.clone())
            .build()
            .expect("in order")
    };
    let first = Dispatcher::builder(stack())
        .store(store.clone())
        .build()
        .await
        .expect("builds");
    let calls = vec![
        request("1", "stubborn_write", "a"),
        request("2", "slow", "b"),
        request("3", "echo", "c"),
    ];
    let turn = first
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let id = turn.turn();
    let lost = tokio::spawn(turn.run_to_end());
    wait_until(|| probe.ran() == 3).await;
    while sealed(&store).await.is_empty() {
        tokio::task::yield_now().await;
    }
    lost.abort();
    let builder = Dispatcher::builder(stack())
        .session(first.session())
        .store(store.clone());
    let second = builder.take_over().build().await.expect("by force");
    let turn = second.resume(id, view(&registry)).await.expect("reads");
    let found: Vec<_> = turn.found().calls.iter().map(|call| call.found).collect();
    assert_eq!(
        found,
        [
            RecoveredState::Unknown,
            RecoveredState::RunAgain,
            RecoveredState::Settled(Status::Ok)
        ]
    );
    probe.gate.0.add_permits(1);
    let report = turn.run().await.expect("runs");
    assert_eq!(
        statuses(&report),
        [
            Some(Status::OutcomeUnknown),
            Some(Status::Ok),
            Some(Status::Ok)
        ]
    );
    assert_eq!(sealed(&store).await.len(), 3, "one entry each");
    let seen = recorder.0.lock().expect("whole").clone();
    assert_eq!(
        seen.iter()
            .filter(|(call, _)| *call == report.results[0].id)
            .count(),
        1
    );
}

/// Seals every end it sees: with the outcome or, where that is not possible, by itself.
struct Sealer;

impl Layer for Sealer {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let outcome = next.run(call.clone()).await;
        if let Some(settled) = outcome.settled() {
            let body = format!(r#"{{"status":"{}"}}"#, settled.status).into();
            let entry = LedgerDraft {
                ledger: LedgerName::main(),
                body,
            };
            if let Err(entry) = call.env().probe().seal_with_outcome(&call, entry) {
                call.env()
                    .store()
                    .seal_entries(vec![entry])
                    .await
                    .expect("is sealed");
            }
        }
        outcome
    }
    fn band(&self) -> Band {
        Band::Record
    }
}

/// A tool that holds its thread until it is released, so that nothing can stop it.
fn register_hold(registry: &toolgate_core::Registry, probe: &Probe) -> std::sync::mpsc::Sender<()> {
    let (let_go, held) = std::sync::mpsc::channel();
    let held = Arc::new(Mutex::new(held));
    let ran = probe.ran.clone();
    let hold = toolgate_core::tool_fn(
        "hold",
        "Holds its thread.",
        move |_: crate::common::Text, _cx| {
            let held = held.clone();
            let ran = ran.clone();
            async move {
                ran.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let let_go = held.lock().expect("whole").recv();
                let_go.map_err(|_| toolgate_core::ToolError::new("the tool was not released"))
            }
        },
    );
    registry.register(hold).expect("free");
    let_go
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_copy_of_a_turn_that_is_no_longer_driven_seals_nothing() {
    let probe = Probe::default();
    let store = MemoryStore::new();
    let registry = registry(&probe);
    let let_go = register_hold(&registry, &probe);
    let stack = Stack::over(registry.clone())
        .layer(Sealer)
        .build()
        .expect("in order");
    let builder = Dispatcher::builder(stack)
        .store(store.clone())
        .clock(TestClock::new());
    let dispatcher = builder.build().await.expect("builds");
    let calls = vec![request("1", "hold", "a")];
    let turn = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let id = turn.turn();
    let first = tokio::spawn(turn.run_to_end());
    wait_until(|| probe.ran() == 1).await;
    let again = dispatcher.clone();
    let tools = view(&registry);
    let second = tokio::spawn(async move { again.resume(id, tools).await });
    // The first copy is not driven any more, and only then does its call return.
    let _ = first.await.expect("no panic");
    let_go.send(()).expect("it waits");
    let report = second
        .await
        .expect("no panic")
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    assert_eq!(statuses(&report), [Some(Status::OutcomeUnknown)]);
    let bodies: Vec<_> = sealed(&store)
        .await
        .iter()
        .map(|entry| entry.body.to_string())
        .collect();
    assert_eq!(
        bodies,
        [r#"{"status":"outcome_unknown"}"#],
        "one entry, and it says what was settled"
    );
}

/// Keeps both passes of a call from leaving once they are sealed.
#[derive(Clone, Default)]
struct Keeping {
    sealed: Arc<Mutex<Vec<bool>>>,
    closes: Arc<tokio::sync::Notify>,
}

impl Layer for Keeping {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let closing = call.closing_outcome().is_some();
        let outcome = next.run(call).await;
        self.sealed.lock().expect("whole").push(closing);
        if closing {
            self.closes.notified().await
        } else {
            std::future::pending().await
        }
        outcome
    }
    fn band(&self) -> Band {
        Band::Record
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_sealed_entry_is_that_of_the_pass_that_settled_the_call() {
    let probe = Probe::default();
    let store = MemoryStore::new();
    let clock = TestClock::new();
    let keeping = Keeping::default();
    let registry = registry(&probe);
    let let_go = register_hold(&registry, &probe);
    let stack = Stack::over(registry.clone())
        .layer(keeping.clone())
        .layer(Sealer)
        .build()
        .expect("in order");
    let builder = Dispatcher::builder(stack)
        .store(store.clone())
        .clock(clock.clone());
    let dispatcher = builder.build().await.expect("builds");
    let calls = vec![request("1", "hold", "a")];
    let turn = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let handle = turn.handle();
    let waiting = tokio::spawn(turn.run_to_end());
    wait_until(|| probe.ran() == 1).await;
    handle.interrupt("enough").await.expect("is recorded");
    let sealed_by = || keeping.sealed.lock().expect("whole").clone();
    while sealed_by().is_empty() {
        clock.advance(Duration::from_millis(100));
        tokio::task::yield_now().await;
    }
    // The call was abandoned and is being closed; now it returns after all.
    let_go.send(()).expect("it waits");
    wait_until(|| sealed_by() == [true, false]).await;
    keeping.closes.notify_one();
    let report = waiting.await.expect("no panic").expect("runs");
    assert_eq!(statuses(&report), [Some(Status::OutcomeUnknown)]);
    let bodies: Vec<_> = sealed(&store)
        .await
        .iter()
        .map(|entry| entry.body.to_string())
        .collect();
    assert_eq!(bodies, [r#"{"status":"outcome_unknown"}"#]);
}

#[tokio::test]
async fn a_run_that_is_stopped_before_it_begins_asks_no_model() {
    let asked = Arc::new(Mutex::new(0));
    let model = {
        let asked = asked.clone();
        Odd::new(move |_| {
            *asked.lock().expect("not poisoned") += 1;
            Box::pin(futures::stream::pending())
        })
    };
    let session = Session::ungated(model, Registry::new()).build().await;
    let session = session.expect("builds");
    let run = session.start("Go.");
    // On this runtime the task of the run has not been polled yet.
    run.interrupt();
    let report = run.report().await.expect("ends");
    assert_eq!(report.end, RunEnd::Cancelled);
    assert_eq!(*asked.lock().expect("not poisoned"), 0);
}
