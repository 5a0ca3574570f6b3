//! One way to decide and to deliver: the log is the same for every sender, and it costs no write
//! that is not needed.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::common::{
    Ask, Probe, event_names, question, registry, request, stack, statuses, texts, transcript, view,
};
use tokio::sync::Semaphore;
use toolgate_core::{
    AdmittedDecision, ApprovalChange, ApprovalRequest, Approver, Band, Call, CallError, Clock as _,
    Decision, ErrorCategory, Event, Failure, ImportOrigin, KeyKind, Keyring, Layer, LayerExt,
    MemoryStore, Next, Outcome, Quorum, RecordKey, Registry, RejectCode, SecretKey, Stack, Status,
    StoreError, StoreHandle, StoreRecord, Suspension, TurnEvent, Verdict,
};
use toolgate_runtime::{
    ApprovalService, BusDelivery, BusSubscription, DeliverError, DispatchError, Dispatcher,
    DispatcherBuilder, TurnReport, TurnRequest,
};
use toolgate_testkit::{CountingIds, FaultyStore, StoreCall, StoreFault, TestClock, authenticated};

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Decider {
    Approver,
    Here,
    Elsewhere,
}

const DECIDERS: [Decider; 3] = [Decider::Approver, Decider::Here, Decider::Elsewhere];

/// Decides what it is told to.
struct Says(Decision);

impl Approver for Says {
    async fn decide(&self, _: ApprovalRequest) -> Option<Decision> {
        Some(self.0.clone())
    }
}

/// A store that notes every write.
#[derive(Clone)]
struct Noting {
    store: FaultyStore<MemoryStore>,
    writes: Arc<Mutex<Vec<StoreCall>>>,
}

impl Noting {
    fn new() -> Self {
        let writes = Arc::<Mutex<Vec<StoreCall>>>::default();
        let noted = writes.clone();
        let plan = move |call: StoreCall, _| {
            if call.is_write() {
                noted.lock().expect("whole").push(call);
            }
            StoreFault::Pass
        };
        Self {
            store: FaultyStore::new(MemoryStore::new(), plan),
            writes,
        }
    }

    /// Returns the writes so far, without those about the lease.
    fn writes(&self) -> Vec<StoreCall> {
        let lease = [
            StoreCall::AcquireLease,
            StoreCall::RenewLease,
            StoreCall::ReleaseLease,
        ];
        let writes = self.writes.lock().expect("whole").clone();
        writes
            .into_iter()
            .filter(|call| !lease.contains(call))
            .collect()
    }
}

fn builder(registry: &Registry, store: &FaultyStore<MemoryStore>) -> DispatcherBuilder {
    Dispatcher::builder(stack(registry))
        .store(store.clone())
        .clock(TestClock::new())
        .ids(CountingIds::new())
}

/// Waits for an event of this name.
async fn wait_for(feed: &mut BusSubscription, name: &str) -> Arc<Event> {
    // Only a hang reaches this limit.
    let limit = Duration::from_secs(60);
    loop {
        match tokio::time::timeout(limit, feed.next()).await {
            Ok(Some(BusDelivery::Event(event))) if event.name() == name => return event,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => panic!("there is no {name}"),
        }
    }
}

fn service_of(decider: Decider, here: &Dispatcher, store: &Noting) -> ApprovalService {
    match decider {
        Decider::Approver | Decider::Here => here.approval_service(),
        // It knows nothing but the store.
        Decider::Elsewhere => {
            ApprovalService::new(StoreHandle::new(store.store.clone())).clock(TestClock::new())
        }
    }
}

/// Runs a turn with one call that is decided on while it is driven.
async fn decide(
    decider: Decider,
    decision: Decision,
) -> (Dispatcher, TurnReport, Vec<StoreCall>, usize) {
    let probe = Probe::default();
    let registry = registry(&probe);
    let store = Noting::new();
    let builder = builder(&registry, &store.store);
    let dispatcher = match decider {
        Decider::Approver => builder.approver(Says(decision.clone())),
        Decider::Here | Decider::Elsewhere => builder,
    };
    let dispatcher = dispatcher.build().await.expect("builds");
    let mut feed = dispatcher.bus().subscribe();
    let calls = vec![request("1", "ask_echo", "x")];
    let run = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let driving = tokio::spawn(run.run_to_end());
    wait_for(&mut feed, "tool_approval_requested").await;
    if decider != Decider::Approver {
        let service = service_of(decider, &dispatcher, &store);
        let rows = service.list_approvals(Default::default()).await;
        let asked = rows.expect("reads").remove(0).request;
        service.decide(&*asked, decision).await.expect("accepted");
    }
    // Only a hang reaches this limit.
    let report = tokio::time::timeout(Duration::from_secs(60), driving)
        .await
        .expect("no hang")
        .expect("no panic")
        .expect("runs");
    (dispatcher, report, store.writes(), probe.ran())
}

#[tokio::test]
async fn a_decision_leaves_the_same_log_for_every_sender() {
    for (decision, status) in [
        (Decision::approve("ann"), Status::Ok),
        (Decision::deny("ann", Some("no")), Status::Denied),
    ] {
        let mut logs = Vec::new();
        for decider in DECIDERS {
            let (dispatcher, report, _, ran) = decide(decider, decision.clone()).await;
            assert_eq!(statuses(&report), [Some(status)], "{decider:?}");
            assert_eq!(ran, usize::from(status == Status::Ok), "{decider:?}");
            let (events, _) = transcript(&dispatcher).await;
            let answer = RecordKey::Answer(report.results[0].id, 0);
            let stored = dispatcher
                .store()
                .load_record(&answer)
                .await
                .expect("reads");
            assert!(
                matches!(&stored, Some(StoreRecord::Answer(kept)) if kept.decision == decision),
                "{decider:?}: {stored:?}"
            );
            logs.push((events, stored));
        }
        assert_eq!(logs[0], logs[1], "the approver and the service");
        assert_eq!(logs[1], logs[2], "this process and another one");
    }
}

#[tokio::test]
async fn the_decision_of_an_approver_in_this_process_costs_no_write_of_its_own() {
    use StoreCall::{Append, PostItem};
    let approve = || Decision::approve("ann");
    let deny = || Decision::deny("ann", None);
    // Opened, asked, approved with the answer, started, settled.
    assert_eq!(decide(Decider::Approver, approve()).await.2, [Append; 5]);
    // Opened, asked, the answer, settled: a denial has no event before the end of the call.
    assert_eq!(decide(Decider::Approver, deny()).await.2, [Append; 4]);
    // The service adds one write, and what it leaves in the mailbox is consumed without another.
    let through_service = [Append, Append, PostItem, Append, Append, Append];
    assert_eq!(decide(Decider::Here, approve()).await.2, through_service);
    assert_eq!(
        decide(Decider::Elsewhere, deny()).await.2,
        [Append, Append, PostItem, Append]
    );
}

#[tokio::test]
async fn an_external_result_leaves_the_same_log_for_every_sender() {
    use StoreCall::{Append, PostItem};
    let mut logs = Vec::new();
    for decider in [Decider::Here, Decider::Elsewhere] {
        let registry = registry(&Probe::default());
        let store = Noting::new();
        let dispatcher = builder(&registry, &store.store)
            .build()
            .await
            .expect("builds");
        let mut feed = dispatcher.bus().subscribe();
        let run = dispatcher
            .open_turn(TurnRequest::new(
                view(&registry),
                vec![request("1", "host", "x")],
            ))
            .await
            .expect("opens");
        let turn = run.turn();
        let driving = tokio::spawn(run.run_to_end());
        let started = wait_for(&mut feed, "tool_execution_started").await;
        let call = started.as_tool().expect("is of a call").0.id;
        service_of(decider, &dispatcher, &store)
            .deliver_result(turn, call, Outcome::ok("done"))
            .await
            .expect("accepted");
        let report = driving.await.expect("no panic").expect("runs");
        assert_eq!(texts(&report), ["done"]);
        assert_eq!(store.writes(), [Append, Append, PostItem, Append]);
        logs.push(transcript(&dispatcher).await.0);
    }
    assert_eq!(logs[0], logs[1]);
}

/// Makes a failed call once more.
struct Again;

impl Layer for Again {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        match next.clone().run(call.clone()).await {
            failed if failed.status() == Some(Status::ExecutorError) => next.run(call).await,
            outcome => outcome,
        }
    }
    fn band(&self) -> Band {
        Band::Repeat
    }
}

#[tokio::test]
async fn each_attempt_has_a_result_of_its_own_even_if_they_are_alike() {
    let registry = registry(&Probe::default());
    let stack = Stack::over(registry.clone())
        .layer(Again)
        .build()
        .expect("in order");
    let dispatcher = Dispatcher::builder(stack).build().await.expect("builds");
    let mut feed = dispatcher.bus().subscribe();
    let run = dispatcher
        .open_turn(TurnRequest::new(
            view(&registry),
            vec![request("1", "host", "x")],
        ))
        .await
        .expect("opens");
    let turn = run.turn();
    let driving = tokio::spawn(run.run_to_end());
    let service = dispatcher.approval_service();
    let error = || CallError::new(ErrorCategory::Unknown, "not now");
    let failed = || Outcome::error(Failure::ExecutorError, error());
    for _ in 0..2 {
        let started = wait_for(&mut feed, "tool_execution_started").await;
        let call = started.as_tool().expect("is of a call").0.id;
        let delivered = service.deliver_result(turn, call, failed()).await;
        delivered.expect("accepted");
    }
    // Only a hang reaches this limit.
    let report = tokio::time::timeout(Duration::from_secs(60), driving)
        .await
        .expect("no hang")
        .expect("no panic")
        .expect("runs");
    assert_eq!(statuses(&report), [Some(Status::ExecutorError)]);
    let settled = report.results[0].outcome.as_ref().expect("is settled");
    assert_eq!(settled.attempts, 2);
}

/// Decides after another process has decided.
struct Outrun {
    elsewhere: ApprovalService,
    theirs: Decision,
    ours: Decision,
}

impl Approver for Outrun {
    async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
        let decided = self.elsewhere.decide(&request, self.theirs.clone()).await;
        decided.expect("is first");
        Some(self.ours.clone())
    }
}

/// A store whose driver does not see its mailbox until the gate is closed.
fn hidden_mailbox(gate: &Arc<Semaphore>) -> FaultyStore<MemoryStore> {
    let gate = gate.clone();
    FaultyStore::new(MemoryStore::new(), move |call, _| {
        let gate = gate.clone();
        match call {
            StoreCall::Posts => StoreFault::Wait(Box::pin(async move {
                drop(gate.acquire().await);
            })),
            _ => StoreFault::Pass,
        }
    })
}

#[tokio::test]
async fn of_an_approver_here_and_another_process_the_first_decides_and_both_are_recorded() {
    let approve = |name: &str| Decision::approve(name);
    let deny = |name: &str| Decision::deny(name, None);
    // The last one does not wait for answers, and still gets the one that was there first.
    for (theirs, ours, status, waits) in [
        (deny("bob"), approve("ann"), Status::Denied, true),
        (approve("bob"), deny("ann"), Status::Ok, true),
        (approve("bob"), approve("ann"), Status::Ok, true),
        (approve("bob"), deny("ann"), Status::Ok, false),
    ] {
        let probe = Probe::default();
        let registry = registry(&probe);
        let gate = Arc::new(Semaphore::new(0));
        let store = hidden_mailbox(&gate);
        let elsewhere = ApprovalService::new(StoreHandle::new(store.inner().clone()));
        let dispatcher = Dispatcher::builder(stack(&registry))
            .store(store)
            .approver(Outrun {
                elsewhere,
                theirs: theirs.clone(),
                ours,
            })
            .build()
            .await
            .expect("builds");
        let mut feed = dispatcher.bus().subscribe();
        let calls = vec![request("1", "ask_echo", "x"), request("2", "echo", "y")];
        let run = dispatcher
            .open_turn(TurnRequest::new(view(&registry), calls))
            .await
            .expect("opens");
        let driving = tokio::spawn(async move {
            if waits {
                run.run_to_end().await
            } else {
                run.run().await
            }
        });
        let rejected = wait_for(&mut feed, "input_rejected").await;
        assert!(
            matches!(
                rejected.as_turn(),
                Some(TurnEvent::InputRejected {
                    code: RejectCode::Duplicate,
                    ..
                })
            ),
            "{rejected:?}"
        );
        gate.close();
        let report = driving.await.expect("no panic").expect("runs");
        assert_eq!(statuses(&report), [Some(status), Some(Status::Ok)]);
        assert_eq!(probe.ran(), 1 + usize::from(status == Status::Ok));
        let (events, _) = transcript(&dispatcher).await;
        let names = event_names(&events, report.results[0].id);
        let approvals = names.iter().filter(|name| **name == "tool_approved");
        assert_eq!(approvals.count(), usize::from(status == Status::Ok));
        let answer = RecordKey::Answer(report.results[0].id, 0);
        let stored = dispatcher
            .store()
            .load_record(&answer)
            .await
            .expect("reads");
        assert!(matches!(stored, Some(StoreRecord::Answer(kept)) if kept.decision == theirs));
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

#[tokio::test]
async fn a_decision_in_time_counts_even_if_the_driver_has_not_seen_it_when_the_request_expires() {
    let registry = registry(&Probe::default());
    let clock = TestClock::new();
    let layer = AskUntil(clock.now().plus(Duration::from_secs(1)));
    let stack = Stack::over(registry.clone())
        .layer(layer)
        .build()
        .expect("in order");
    // The task that watches the mailbox is stuck; the driver itself reads it when the time is up.
    let stuck = Arc::new(Mutex::new(true));
    let store = FaultyStore::new(MemoryStore::new(), move |call, _| match call {
        StoreCall::Posts if std::mem::take(&mut *stuck.lock().expect("whole")) => {
            StoreFault::Wait(Box::pin(std::future::pending()))
        }
        _ => StoreFault::Pass,
    });
    let dispatcher = Dispatcher::builder(stack)
        .store(store)
        .clock(clock.clone())
        .build()
        .await
        .expect("builds");
    let mut feed = dispatcher.bus().subscribe();
    let run = dispatcher
        .open_turn(TurnRequest::new(
            view(&registry),
            vec![request("1", "echo", "x")],
        ))
        .await
        .expect("opens");
    let driving = tokio::spawn(run.run_to_end());
    wait_for(&mut feed, "tool_approval_requested").await;
    // The lease and the approval request.
    while clock.sleeper_count() < 2 {
        tokio::task::yield_now().await;
    }
    let service = dispatcher.approval_service();
    let rows = service.list_approvals(Default::default()).await;
    let asked = rows.expect("reads").remove(0).request;
    let decided = service.decide(&*asked, Decision::approve("ann")).await;
    decided.expect("in time");
    clock.advance(Duration::from_secs(1));
    let report = driving.await.expect("no panic").expect("runs");
    assert_eq!(statuses(&report), [Some(Status::Ok)]);
}

/// Asks for two approvals.
struct AskTwo;

impl Layer for AskTwo {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if next.decision_on(&call).is_some() {
            return next.run(call).await;
        }
        let mut request = ApprovalRequest::for_call(&call);
        request.quorum = Some(Quorum {
            needed: 2,
            among: Vec::new(),
        });
        Outcome::await_decision(request)
    }
    fn band(&self) -> Band {
        Band::Decide
    }
}

#[tokio::test]
async fn the_vote_of_an_approver_in_this_process_counts_together_with_those_of_others() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let stack = Stack::over(registry.clone())
        .layer(AskTwo)
        .build()
        .expect("in order");
    let dispatcher = Dispatcher::builder(stack)
        .approver(Says(Decision::approve(authenticated("ann"))))
        .build()
        .await
        .expect("builds");
    let report = dispatcher
        .open_turn(TurnRequest::new(
            view(&registry),
            vec![request("1", "echo", "x")],
        ))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!((statuses(&report), probe.ran()), (vec![None], 0));
    let Some(Suspension::Decision(asked)) = &report.results[0].waits_for else {
        panic!("not asked")
    };
    let service = dispatcher.approval_service();
    let claimed = service.decide(asked, Decision::approve("bob")).await;
    assert_eq!(
        claimed.expect_err("only a claim").code(),
        Some(RejectCode::UnverifiedApprover)
    );
    let again = service
        .decide(asked, Decision::approve(authenticated("ann")))
        .await;
    assert_eq!(
        again.expect_err("one person").code(),
        Some(RejectCode::Duplicate)
    );
    assert_eq!(
        service
            .decide(asked, Decision::approve(authenticated("bob")))
            .await
            .expect("counts"),
        AdmittedDecision::Decided {
            with: vec![authenticated("ann")]
        }
    );
    let report = dispatcher
        .resume(report.turn, view(&registry))
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs");
    assert_eq!(
        (statuses(&report), probe.ran()),
        (vec![Some(Status::Ok)], 1)
    );
}

#[tokio::test]
async fn a_turn_that_is_advanced_sees_every_decision_made_before() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let stack = Stack::over(registry.clone())
        .layer(Ask)
        .build()
        .expect("in order");
    let dispatcher = Dispatcher::builder(stack).build().await.expect("builds");
    let calls = vec![request("1", "ask_echo", "x"), request("2", "ask_echo", "y")];
    let mut run = dispatcher
        .open_turn(TurnRequest::new(view(&registry), calls))
        .await
        .expect("opens");
    let mut report = run.advance().await.expect("runs");
    for decided in 1..=2 {
        let open =
            report
                .results
                .iter()
                .find_map(|result| match (&result.waits_for, result.status()) {
                    (Some(Suspension::Decision(request)), None) => Some(request.clone()),
                    _ => None,
                });
        let service = dispatcher.approval_service();
        service
            .decide(&open.expect("one is pending"), Decision::approve("ann"))
            .await
            .expect("accepted");
        report = run.advance().await.expect("runs");
        assert_eq!(probe.ran(), decided);
    }
    assert_eq!(statuses(&report), [Some(Status::Ok); 2]);
}

#[tokio::test]
async fn a_failed_mailbox_read_delays_an_expiry_and_does_not_end_the_driver() {
    let registry = registry(&Probe::default());
    let clock = TestClock::new();
    let layer = AskUntil(clock.now().plus(Duration::from_secs(1)));
    let stack = Stack::over(registry.clone())
        .layer(layer)
        .build()
        .expect("in order");
    let failing = Arc::new(Mutex::new(false));
    let fails = failing.clone();
    let store = FaultyStore::new(MemoryStore::new(), move |call, _| match call {
        StoreCall::Posts if *fails.lock().expect("whole") => {
            StoreFault::Fail(StoreError::Backend("busy".into()))
        }
        _ => StoreFault::Pass,
    });
    let dispatcher = Dispatcher::builder(stack)
        .store(store.clone())
        .clock(clock.clone())
        .build()
        .await
        .expect("builds");
    let calls = vec![request("1", "echo", "x")];
    let run = dispatcher.open_turn(TurnRequest::new(view(&registry), calls));
    let driving = tokio::spawn(run.await.expect("opens").run_to_end());
    // The lease and the approval request.
    while clock.sleeper_count() < 2 {
        tokio::task::yield_now().await;
    }
    *failing.lock().expect("whole") = true;
    let reads = store.read_count();
    clock.advance(Duration::from_secs(1));
    while store.read_count() == reads || clock.sleeper_count() < 2 {
        assert!(!driving.is_finished(), "one failed read is not the end");
        tokio::task::yield_now().await;
    }
    *failing.lock().expect("whole") = false;
    clock.advance(Duration::from_secs(1));
    let report = driving.await.expect("no panic").expect("runs");
    assert_eq!(statuses(&report), [Some(Status::Expired)]);
}

/// Asks for approval whatever was answered.
struct AskAgain;

impl Layer for AskAgain {
    async fn handle(&self, call: Call, _next: Next) -> Outcome {
        let mut request = ApprovalRequest::for_call(&call);
        request.signed = true;
        Outcome::await_decision(request)
    }
    fn band(&self) -> Band {
        Band::Decide
    }
}

/// Approves everything and counts.
struct CountingApprover(Arc<AtomicUsize>);

impl Approver for CountingApprover {
    async fn decide(&self, _request: ApprovalRequest) -> Option<Decision> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Some(Decision::approve("ann"))
    }
}

#[tokio::test]
async fn a_layer_asks_about_one_call_a_limited_number_of_times() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let asked = Arc::new(AtomicUsize::new(0));
    let stack = Stack::over(registry.clone()).layer(AskAgain).build();
    let dispatcher = Dispatcher::builder(stack.expect("in order"))
        .approver(CountingApprover(asked.clone()))
        .build()
        .await
        .expect("builds");
    let calls = vec![request("1", "echo", "x")];
    let turn = dispatcher.open_turn(TurnRequest::new(view(&registry), calls));
    let report = turn.await.expect("opens").run().await.expect("runs");
    assert_eq!(statuses(&report), [Some(Status::Blocked)]);
    let text = report.results[0].model_text().expect("is settled");
    assert!(text.contains("approval was requested 5 times"), "{text}");
    assert_eq!((asked.load(Ordering::SeqCst), probe.ran()), (5, 0));
}

#[tokio::test]
async fn a_service_without_keys_rejects_a_decision_that_has_to_be_signed() {
    let registry = registry(&Probe::default());
    let stack = Stack::over(registry.clone()).layer(AskAgain).build();
    let key = SecretKey::new("k1".parse().expect("valid"), KeyKind::HmacSha256, [7; 32]);
    let ring = Keyring::new(key);
    let dispatcher = Dispatcher::builder(stack.expect("in order"))
        .keyring(ring.clone())
        .build()
        .await
        .expect("builds");
    let calls = vec![request("1", "echo", "x")];
    let turn = dispatcher.open_turn(TurnRequest::new(view(&registry), calls));
    let report = turn.await.expect("opens").run().await.expect("runs");
    let service = ApprovalService::new(dispatcher.store().clone());
    let asked = question(&report.results[0]);
    let refused = service.decide(asked, Decision::approve("ann")).await;
    assert!(matches!(refused, Err(DeliverError::NoKeys)), "{refused:?}");
    let signing = service.keyring(ring);
    let decided = signing.decide(asked, Decision::approve("ann")).await;
    decided.expect("can be signed");
}

#[tokio::test]
async fn requests_of_an_imported_session_are_neither_listed_nor_decided() {
    let registry = registry(&Probe::default());
    let store = Noting::new().store;
    let dispatcher = builder(&registry, &store).build().await.expect("builds");
    let calls = vec![request("1", "ask_echo", "x")];
    let turn = dispatcher.open_turn(TurnRequest::new(view(&registry), calls));
    let report = turn.await.expect("opens").run().await.expect("runs");
    let service = dispatcher.approval_service();
    let rows = service.list_approvals(Default::default()).await;
    assert_eq!(rows.expect("reads").len(), 1);
    let origin = ImportOrigin {
        format: ImportOrigin::ARCHIVE.into(),
        source: None,
    };
    let key = ImportOrigin::archive_key(dispatcher.session());
    let marked = dispatcher.store().put_json_once(key, origin.to_json());
    marked.await.expect("writes");
    let rows = service.list_approvals(Default::default()).await;
    assert_eq!(rows.expect("reads"), []);
    let asked = question(&report.results[0]);
    let refused = service.decide(asked, Decision::approve("ann")).await;
    refused.expect_err("the session never runs");
}

#[tokio::test]
async fn a_pending_request_without_a_seal_is_requested_again_when_the_turn_is_resumed() {
    let probe = Probe::default();
    let registry = registry(&probe);
    let store = Noting::new().store;
    // It stores its request without a seal, as earlier versions did.
    let before = builder(&registry, &store).build().await.expect("builds");
    let calls = vec![request("1", "ask_echo", "x")];
    let turn = before.open_turn(TurnRequest::new(view(&registry), calls));
    let report = turn.await.expect("opens").run().await.expect("runs");
    let unsealed = question(&report.results[0]);
    let session = before.session();
    let turn = report.turn;
    drop(before);
    let key = SecretKey::new("k1".parse().expect("valid"), KeyKind::HmacSha256, [7; 32]);
    let after = builder(&registry, &store)
        .keyring(Keyring::new(key))
        .session(session)
        .take_over();
    let after = after.build().await.expect("builds");
    let service = after.approval_service();
    // Resumed twice: the log with two requests in a row can be read.
    for _ in 0..2 {
        let resumed = after.resume(turn, view(&registry)).await.expect("resumes");
        let report = resumed.run().await.expect("runs");
        let asked = question(&report.results[0]);
        assert_eq!((asked.generation, probe.ran()), (1, 0));
        let rows = service.list_approvals(Default::default()).await;
        let rows = rows.expect("reads");
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0].request.changed, [ApprovalChange::Unsealed]);
    }
    let late = service.decide(unsealed, Decision::approve("ann")).await;
    late.expect_err("the request was replaced");
    let rows = service.list_approvals(Default::default()).await;
    let asked = rows.expect("reads").remove(0).request;
    let decided = service.decide(&*asked, Decision::approve("ann")).await;
    decided.expect("the new request is decided");
    let resumed = after.resume(turn, view(&registry)).await.expect("resumes");
    let report = resumed.run().await.expect("runs");
    assert_eq!(statuses(&report), [Some(Status::Ok)]);
    assert_eq!(probe.ran(), 1);
}

/// Verifies approvals with these keys.
struct Verifies(Keyring);

impl Layer for Verifies {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        next.run(call).await
    }
    fn approval_keys(&self) -> Option<&Keyring> {
        Some(&self.0)
    }
}

#[tokio::test]
async fn a_dispatcher_is_not_built_under_a_layer_that_verifies_other_keys() {
    let ring = |id: &str, secret| {
        let id = id.parse().expect("valid");
        Keyring::new(SecretKey::new(id, KeyKind::HmacSha256, [secret; 32]))
    };
    let builder = |layer| {
        let stack = Stack::over(Registry::new()).layer(layer).build();
        Dispatcher::builder(stack.expect("in order"))
    };
    let verifies = || Verifies(ring("k1", 1)).named("approval");
    let differs = |built: Result<Dispatcher, DispatchError>| match built {
        Err(DispatchError::KeysDiffer { layer }) => layer.as_str() == "approval",
        _ => false,
    };
    assert!(differs(builder(verifies()).build().await));
    for other in [ring("k2", 1), ring("k1", 2)] {
        assert!(differs(builder(verifies()).keyring(other).build().await));
    }
    let same = builder(verifies()).keyring(ring("k1", 1)).build().await;
    same.expect("signs with the key that is verified");
}

/// Runs what is below twice.
struct TwoAttempts;

impl Layer for TwoAttempts {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        match next.clone().run(call.clone()).await {
            Outcome::Settled(_) => next.run(call).await,
            suspended => suspended,
        }
    }
    fn band(&self) -> Band {
        Band::Repeat
    }
}

#[tokio::test]
async fn a_result_that_names_its_attempt_does_not_count_for_the_next_one() {
    let registry = registry(&Probe::default());
    let stack = Stack::over(registry.clone()).layer(TwoAttempts).build();
    let dispatcher = Dispatcher::builder(stack.expect("in order"))
        .build()
        .await
        .expect("builds");
    let calls = vec![request("1", "host", "x")];
    let turn = dispatcher.open_turn(TurnRequest::new(view(&registry), calls));
    let mut turn = turn.await.expect("opens");
    let first = turn.advance().await.expect("runs");
    let call = first.results[0].id;
    assert_eq!(first.results[0].attempt, 1);
    let service = dispatcher.approval_service();
    let deliver = |attempt, text: &str| {
        service.deliver_attempt_result(first.turn, call, attempt, Outcome::ok(text))
    };
    let early = deliver(2, "early").await;
    assert_eq!(
        early.expect_err("has not started").code(),
        Some(RejectCode::NoWaiter)
    );
    deliver(1, "one").await.expect("is waited for");
    let second = turn.advance().await.expect("runs");
    assert_eq!(second.results[0].attempt, 2);
    let again = deliver(1, "one").await;
    assert_eq!(
        again.expect_err("was delivered").code(),
        Some(RejectCode::Duplicate)
    );
    deliver(2, "two").await.expect("is waited for");
    let report = turn.advance().await.expect("runs");
    assert_eq!(report.results[0].model_text().as_deref(), Some("two"));
}
