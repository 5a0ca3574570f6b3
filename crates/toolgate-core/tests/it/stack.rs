//! The rules of layers and stacks, each as a test.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use toolgate_core::{
    ApprovalAnswer, ApprovalRequest, Arguments, Band, Call, CallEnv, CallSeed, ChangeSubject,
    Clock, Context, Decision, ErrorCategory, Executor, Failure, Layer, LayerExt, LayerStatus,
    Matcher, MemoryStore, Next, NoProbe, Outcome, Refusal, Registry, SettledOutcome, Stack,
    StackError, Status, StopConfirmation, StoreHandle, Suspension, ToolError, UnsettledReason,
    Verdict, from_fn, map_call, map_outcome, observe,
};
use toolgate_testkit::{FakeExecutor, TestClock, call, call_with, echo, seed};

type Log = Arc<Mutex<Vec<String>>>;

/// Logs when a call enters and leaves.
struct Trace(&'static str, Log);

impl Layer for Trace {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        self.1
            .lock()
            .expect("no panic")
            .push(format!("> {}", self.0));
        let outcome = next.run(call).await;
        self.1
            .lock()
            .expect("no panic")
            .push(format!("< {}", self.0));
        outcome
    }
}

/// Asks for approval unless it has been given; the shape every approval layer has.
struct Ask;

impl Layer for Ask {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        match next.decision_on(&call).map(|decision| &decision.verdict) {
            Some(Verdict::Approve | Verdict::ApproveWithEdits { .. }) => next.run(call).await,
            Some(Verdict::Deny { reason }) => Outcome::denied(reason.as_deref()),
            None => Outcome::await_decision(ApprovalRequest::for_call(&call)),
        }
    }
    fn band(&self) -> Band {
        Band::Decide
    }
}

fn pass() -> impl Layer {
    from_fn(async |call, next: Next| next.run(call).await)
}

fn operator_text(outcome: &Outcome) -> String {
    let error = outcome.settled().and_then(|settled| settled.error.clone());
    error.and_then(|error| error.operator).unwrap_or_default()
}

fn notes(outcome: &Outcome) -> &toolgate_core::NoteFields {
    outcome
        .settled()
        .and_then(|settled| settled.notes.fields())
        .expect("notes")
}

#[tokio::test]
async fn calls_enter_in_list_order_and_leave_in_reverse() {
    let log = Log::default();
    let stack = ["a", "b", "c"]
        .into_iter()
        .fold(Stack::over(echo()), |stack, name| {
            stack.layer(Trace(name, log.clone()))
        });
    stack.build().expect("in order").run(call("echo")).await;
    assert_eq!(
        *log.lock().expect("no panic"),
        ["> a", "> b", "> c", "< c", "< b", "< a"]
    );
}

#[tokio::test]
async fn an_empty_stack_is_transparent() {
    let mut answer = SettledOutcome::new(Status::ExecutorError);
    answer.value = json!({ "kept": true }).try_into().expect("shallow");
    answer.error = Some(
        ToolError::transient("try later")
            .with_operator_detail("db down")
            .into(),
    );
    let stack = Stack::over(FakeExecutor::new().then(answer.clone().into()))
        .build()
        .expect("in order");
    let outcome = stack.run(call("echo")).await;
    let settled = outcome.settled().expect("settled");
    assert!(settled.value.is_same(&answer.value), "the very same value");
    assert_eq!(settled.error, answer.error);
    assert!(settled.notes.is_empty());
}

#[tokio::test]
async fn a_later_band_cannot_enclose_an_earlier_one_and_the_error_says_why() {
    for outer in Band::ALL {
        for inner in Band::ALL {
            let builder = || {
                Stack::over(echo())
                    .layer(pass().named("o").in_band(outer))
                    .layer(pass().named("i").in_band(inner))
            };
            let legal = outer <= inner;
            assert_eq!(builder().build().is_ok(), legal, "{outer} around {inner}");
            assert!(builder().allow_out_of_band("o").build().is_ok());
            assert!(builder().allow_out_of_band("i").build().is_ok());
            if let Err(error @ StackError::OutOfBand { .. }) = builder().build() {
                let text = error.to_string();
                assert!(
                    text.contains(&format!("o ({outer}) encloses i ({inner}): ")),
                    "{text}"
                );
            }
        }
    }
    let rewriter_inside = Stack::over(echo())
        .layer(Ask)
        .layer(map_call(|call| call))
        .build();
    assert!(
        rewriter_inside
            .expect_err("out of band")
            .to_string()
            .contains("rewrite what the outer one has decided on")
    );
}

#[tokio::test]
async fn layers_of_the_same_name_are_numbered() {
    let stack = Stack::over(echo())
        .layer(pass())
        .layer(pass())
        .layer(pass())
        .build()
        .expect("in order");
    let names: Vec<_> = stack.layers().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["from_fn", "from_fn#2", "from_fn#3"]);
}

#[tokio::test]
async fn a_panic_in_a_tool_settles_as_exception_and_only_the_operator_reads_it() {
    let stack = Stack::over(FakeExecutor::new().then_panic("secret in tool"))
        .layer(pass())
        .build()
        .expect("in order");
    let outcome = stack.run(call("echo")).await;
    assert_eq!(outcome.status(), Some(Status::Exception));
    assert!(operator_text(&outcome).contains("secret in tool"));
    assert!(
        operator_text(&outcome).contains("fakes.rs"),
        "the location is named"
    );
    assert!(
        !outcome
            .settled()
            .expect("settled")
            .model_text()
            .contains("secret")
    );
    assert!(!format!("{outcome:?}").contains("secret"));
    assert!(
        stack.run(call("echo")).await.is_ok(),
        "the next call is fine"
    );
}

#[tokio::test]
async fn a_panic_in_a_layer_before_or_after_the_call_settles_it() {
    let before = from_fn(async |_: Call, _: Next| -> Outcome { panic!("secret before") });
    let after = from_fn(async |call: Call, next: Next| -> Outcome {
        next.run(call).await;
        panic!("secret after")
    });
    let executor = FakeExecutor::new();
    let log = Log::default();
    let stack = Stack::over(executor.clone())
        .layer(Trace("outer", log.clone()))
        .layer(before.named("bad"));
    let outcome = stack.build().expect("in order").run(call("echo")).await;
    assert_eq!(outcome.status(), Some(Status::LayerException));
    assert_eq!(executor.seen().len(), 0, "the tool did not run");
    assert!(operator_text(&outcome).contains("bad: it panicked: secret before"));
    assert!(
        !serde_json::to_string(&notes(&outcome).layers)
            .expect("writes")
            .contains("secret")
    );
    let stack = Stack::over(executor.clone())
        .layer(Trace("outer", log.clone()))
        .layer(after.named("bad"));
    let outcome = stack.build().expect("in order").run(call("echo")).await;
    assert_eq!(outcome.status(), Some(Status::LayerException));
    assert_eq!(executor.seen().len(), 1, "the tool ran once");
    assert_eq!(outcome.settled().expect("settled").attempts, 1);
    assert_eq!(
        log.lock().expect("no panic").len(),
        4,
        "the outer layer saw both outcomes"
    );
}

#[tokio::test]
async fn a_layer_that_never_calls_next_answers_for_the_call() {
    let executor = FakeExecutor::new();
    let refuse =
        from_fn(async |_: Call, _: Next| Outcome::refused(Refusal::RateLimited, "slow down"))
            .named("limit");
    let stack = Stack::over(executor.clone())
        .layer(pass())
        .layer(refuse)
        .build()
        .expect("in order");
    let outcome = stack.run(call("echo")).await;
    assert_eq!(outcome.status(), Some(Status::RateLimited));
    assert!(executor.seen().is_empty());
    let answered: Vec<bool> = notes(&outcome)
        .layers
        .iter()
        .map(|layer| layer.answered)
        .collect();
    assert_eq!(answered, [false, true]);
}

#[tokio::test]
async fn running_next_twice_makes_two_attempts() {
    let executor = FakeExecutor::new().then(Outcome::failed(ToolError::transient("again")));
    let twice = from_fn(async |call: Call, next: Next| {
        let first = next.clone().run(call.clone()).await;
        if first.is_ok() {
            first
        } else {
            next.run(call).await
        }
    });
    let stack = Stack::over(executor.clone())
        .layer(twice)
        .layer(pass().named("inner"))
        .build()
        .expect("in order");
    let outcome = stack.run(call("echo")).await;
    assert!(outcome.is_ok());
    assert_eq!(outcome.settled().expect("settled").attempts, 2);
    assert_eq!(
        executor
            .seen()
            .iter()
            .map(|call| call.attempt)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(
        executor.seen()[0].idempotency_key(),
        executor.seen()[1].idempotency_key()
    );
    let attempts: Vec<_> = notes(&outcome)
        .layers
        .iter()
        .map(|layer| (layer.name.as_str(), layer.attempt))
        .collect();
    assert_eq!(attempts, [("from_fn", 1), ("inner", 1), ("inner", 2)]);
}

#[tokio::test]
async fn retry_around_timeout_gives_each_attempt_a_fresh_deadline() {
    let clock = TestClock::new();
    let deadlines = Arc::new(Mutex::new(Vec::new()));
    let retry = from_fn(async |call: Call, next: Next| {
        let mut outcome = next.clone().run(call.clone()).await;
        for _ in 0..2 {
            if outcome.is_ok() {
                break;
            }
            outcome = next.clone().run(call.clone()).await;
        }
        outcome
    });
    let seen = deadlines.clone();
    let ticking = clock.clone();
    let timeout = from_fn(move |call: Call, next: Next| {
        let seen = seen.clone();
        let clock = ticking.clone();
        async move {
            let limited = call.with_time_limit(Duration::from_secs(1));
            let token = limited.cancel.clone();
            seen.lock().expect("no panic").push((
                limited.deadline,
                token.is_cancelled(),
                limited.attempt,
            ));
            let sleep = clock.sleep(Duration::from_secs(1));
            tokio::select! {
                outcome = next.run(limited) => outcome,
                () = sleep => {
                    token.cancel();
                    Outcome::failed_with(Failure::Timeout, "too slow")
                }
            }
        }
    });
    let executor = FakeExecutor::new().then_hang();
    let stack = Stack::over(executor.clone())
        .layer(retry.named("retry").in_band(Band::Repeat))
        .layer(timeout.named("timeout").in_band(Band::Bound))
        .build()
        .expect("in order");
    let mut seed = seed("slow", json!({}));
    seed.env = CallEnv::new(
        Arc::new(clock.clone()),
        StoreHandle::new(MemoryStore::new()),
        Arc::new(NoProbe),
    );
    let start = clock.now();
    let running = tokio::spawn(async move { stack.run(Call::new(seed)).await });
    while clock.sleeper_count() == 0 {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_secs(1));
    let outcome = running.await.expect("no panic");
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(outcome.settled().expect("settled").attempts, 2);
    let seconds = |n| Some(start.plus(Duration::from_secs(n)));
    assert_eq!(
        *deadlines.lock().expect("no panic"),
        [(seconds(1), false, 1), (seconds(2), false, 2)]
    );
    assert!(
        !executor.seen()[1].cancel.is_cancelled(),
        "stopping attempt 1 did not stop attempt 2"
    );
    let dropped = notes(&outcome)
        .layers
        .iter()
        .filter(|layer| layer.status == LayerStatus::Open(UnsettledReason::Dropped))
        .count();
    assert_eq!(dropped, 0, "there was no layer below the timeout");
}

#[tokio::test]
async fn layers_are_noted_in_order_of_entering_with_times_even_when_dropped() {
    let clock = TestClock::new();
    let ticking = clock.clone();
    let impatient = from_fn(move |call: Call, next: Next| {
        let clock = ticking.clone();
        async move {
            tokio::select! {
                biased;
                outcome = next.run(call) => outcome,
                () = async { clock.advance(Duration::from_millis(5)) } => Outcome::failed_with(Failure::Timeout, "late"),
            }
        }
    });
    let stack = Stack::over(FakeExecutor::new().then_hang())
        .layer(impatient.named("outer"))
        .layer(pass().named("inner"));
    let mut seed = seed("slow", json!({}));
    seed.env = CallEnv::new(
        Arc::new(clock.clone()),
        StoreHandle::new(MemoryStore::new()),
        Arc::new(NoProbe),
    );
    let start = clock.now();
    let outcome = stack.build().expect("in order").run(Call::new(seed)).await;
    let layers = &notes(&outcome).layers;
    let seen: Vec<_> = layers
        .iter()
        .map(|layer| (layer.name.as_str(), layer.status))
        .collect();
    let dropped = LayerStatus::Open(UnsettledReason::Dropped);
    assert_eq!(
        seen,
        [
            ("outer", LayerStatus::Settled(Status::Timeout)),
            ("inner", dropped)
        ]
    );
    for layer in layers {
        assert_eq!(
            (layer.started_at, layer.ended_at),
            (start, start.plus(Duration::from_millis(5)))
        );
    }
}

#[tokio::test]
async fn notes_survive_a_layer_that_replaces_the_outcome() {
    let inner = map_outcome(|_, outcome| {
        outcome.with_notes(|notes| notes.summary = Some("read a file".into()))
    });
    let replace = map_outcome(|_, _| Outcome::ok("replaced"));
    let stack = Stack::over(echo())
        .layer(pass())
        .layer(replace.named("replace"))
        .layer(inner.named("summary"));
    let outcome = stack.build().expect("in order").run(call("echo")).await;
    assert_eq!(outcome.settled().expect("settled").model_text(), "replaced");
    assert_eq!(notes(&outcome).summary.as_deref(), Some("read a file"));
}

#[tokio::test]
async fn the_trail_names_the_layer_that_changed_a_field_and_stores_no_value() {
    let trim = map_call(|call| {
        let arguments = call
            .arguments
            .with_argument("subject", json!("hunter2"))
            .expect("shallow");
        call.with_arguments(arguments)
    });
    let wrap = map_outcome(|_, _| Outcome::ok(json!({ "wrapped": "hunter2" })));
    let stack = Stack::over(echo())
        .layer(pass())
        .layer(trim.named("trim"))
        .layer(wrap.named("wrap"))
        .build();
    let sent = call_with("mail", json!({ "subject": " x ", "to": "ann" }));
    let outcome = stack.expect("in order").run(sent.clone()).await;
    let notes = notes(&outcome);
    let who = |subject, pointer| {
        notes
            .layers_that_changed(subject, pointer)
            .into_iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(who(ChangeSubject::Arguments, "/subject"), ["trim"]);
    assert!(who(ChangeSubject::Arguments, "/to").is_empty());
    assert_eq!(who(ChangeSubject::Result, "/wrapped"), ["wrap"]);
    assert!(
        !serde_json::to_string(&notes.provenance)
            .expect("writes")
            .contains("hunter2")
    );
    assert_eq!(
        sent.original_arguments().get("subject"),
        Some(&json!(" x ")),
        "the model's original arguments stay"
    );
    let changed: Vec<_> = notes.layers.iter().map(|layer| layer.changed).collect();
    assert_eq!(changed, [false, true, true]);
}

#[tokio::test]
async fn what_runs_is_what_every_deciding_layer_saw() {
    let rewrite = || {
        map_call(|call| call.with_arguments(Arguments::parse(r#"{"rm":"-rf"}"#).expect("object")))
    };
    let decide = || pass().in_band(Band::Decide);
    for band in [Band::Decide, Band::Repeat, Band::Bound] {
        let executor = FakeExecutor::new();
        let stack = Stack::over(executor.clone())
            .layer(decide())
            .layer(rewrite().named("sly").in_band(band))
            .layer(pass().in_band(band));
        let outcome = stack
            .build()
            .expect("in order")
            .run(call_with("sh", json!({ "ls": "" })))
            .await;
        assert_eq!(outcome.status(), Some(Status::Blocked), "{band}");
        assert!(executor.seen().is_empty());
        let notes = notes(&outcome);
        assert!(
            notes.metadata.contains_key("decided_digest")
                && notes.metadata.contains_key("final_digest")
        );
        assert_eq!(
            notes
                .layers_that_changed(ChangeSubject::Arguments, "/rm")
                .len(),
            1
        );
    }
    let equal = map_call(|call| {
        let same =
            Arguments::try_from(call.arguments.as_json().as_value().clone()).expect("object");
        call.with_arguments(same)
    });
    let stack = Stack::over(echo())
        .layer(decide())
        .layer(equal.in_band(Band::Bound))
        .build()
        .expect("in order");
    assert!(
        stack
            .run(call_with("sh", json!({ "ls": "" })))
            .await
            .is_ok(),
        "an equal copy is the same arguments"
    );
}

#[tokio::test]
async fn a_layer_cannot_pass_on_another_call() {
    let executor = FakeExecutor::new();
    let swap = from_fn(async |_: Call, next: Next| next.run(call_with("rm", json!({}))).await);
    let stack = Stack::over(executor.clone())
        .layer(swap)
        .build()
        .expect("in order");
    assert_eq!(
        stack.run(call("ls")).await.status(),
        Some(Status::LayerException)
    );
    assert!(executor.seen().is_empty());
}

#[tokio::test]
async fn approval_blocks_inside_and_outside_an_audit_layer() {
    let audit = || observe(|_, _| {}).named("audit");
    for ask_first in [true, false] {
        let executor = FakeExecutor::new();
        let builder = Stack::over(executor.clone());
        let builder = if ask_first {
            builder.layer(Ask).layer(audit()).allow_out_of_band("audit")
        } else {
            builder.layer(audit()).layer(Ask)
        };
        let stack = builder.build().expect("in order");
        let outcome = stack.run(call("rm")).await;
        let Some(Suspension::Decision(request)) = outcome.suspension() else {
            panic!("not asked")
        };
        assert_eq!(
            request.asked_by.as_ref().map(|name| name.as_str()),
            Some("ask")
        );
        assert!(executor.seen().is_empty());
        for (decision, status, runs) in [
            (Decision::deny("ann", Some("no")), Status::Denied, 0),
            (Decision::approve("ann"), Status::Ok, 1),
        ] {
            let mut again = seed("rm", json!({}));
            again
                .resumed
                .answers
                .push(ApprovalAnswer::for_request(request, decision));
            assert_eq!(stack.run(Call::new(again)).await.status(), Some(status));
            assert_eq!(executor.seen().len(), runs);
        }
    }
}

#[tokio::test]
async fn no_layer_uses_a_decision_for_another_layer_or_for_other_arguments() {
    let executor = FakeExecutor::new();
    let stack = Stack::over(executor.clone())
        .layer(Ask)
        .layer(Ask)
        .build()
        .expect("in order");
    let asked = |outcome: &Outcome| match outcome.suspension() {
        Some(Suspension::Decision(request)) => request.clone(),
        other => panic!("not asked: {other:?}"),
    };
    let first = asked(&stack.run(call_with("rm", json!({ "n": 1 }))).await);
    let mut again = seed("rm", json!({ "n": 1 }));
    again.resumed.answers.push(ApprovalAnswer::for_request(
        &first,
        Decision::approve("ann"),
    ));
    let second = asked(&stack.run(Call::new(again.clone())).await);
    assert_eq!(
        second.asked_by.as_ref().map(|name| name.as_str()),
        Some("ask#2")
    );
    again.resumed.answers.push(ApprovalAnswer::for_request(
        &second,
        Decision::approve("bob"),
    ));
    assert!(stack.run(Call::new(again.clone())).await.is_ok());
    let mut other = seed("rm", json!({ "n": 2 }));
    other.resumed = again.resumed;
    asked(&stack.run(Call::new(other)).await);
    assert_eq!(executor.seen().len(), 1);
}

#[tokio::test]
async fn a_denied_call_never_runs_even_if_a_layer_ignores_the_decision() {
    let executor = FakeExecutor::new();
    let stack = Stack::over(executor.clone())
        .layer(pass())
        .build()
        .expect("in order");
    let mut denied = seed("rm", json!({}));
    let request = ApprovalRequest::for_call(&Call::new(denied.clone()));
    denied.resumed.answers.push(ApprovalAnswer::for_request(
        &request,
        Decision::deny("ann", None),
    ));
    assert_eq!(
        stack.run(Call::new(denied)).await.status(),
        Some(Status::Denied)
    );
    assert!(executor.seen().is_empty());
}

/// A deciding layer that requires approval for every call.
fn require(reason: &'static str) -> impl Layer {
    map_call(move |call| call.require_approval(reason, Some("v1".into())))
        .named("require")
        .in_band(Band::Decide)
}

/// A layer that takes every call for approved.
fn approve() -> impl Layer {
    from_fn(async |call: Call, next: Next| next.run_approved(call).await)
        .named("approve")
        .in_band(Band::Decide)
}

fn unmet_reasons(call: &Call) -> Vec<String> {
    call.unmet_requirements()
        .map(|required| required.reason.to_string())
        .collect()
}

#[tokio::test]
async fn a_call_that_needs_approval_never_runs_without_it_and_the_reasons_are_named() {
    let executor = FakeExecutor::new();
    let stack = Stack::over(executor.clone())
        .layer(require("it pays"))
        .layer(require("it is late"))
        .layer(require("it pays"))
        .build()
        .expect("in order");
    for rehearsal in [false, true] {
        let seed = CallSeed {
            rehearsal,
            ..seed("pay", json!({}))
        };
        let outcome = stack.run(Call::new(seed)).await;
        assert_eq!(outcome.status(), Some(Status::Blocked));
        assert_eq!(
            outcome.settled().expect("settled").model_text(),
            "approval is required, and no approval layer asked for it: it pays; it is late"
        );
    }
    assert!(executor.seen().is_empty());
    let met = stack.extend().layer(approve()).build().expect("in order");
    assert!(met.run(call("pay")).await.is_ok());
    assert_eq!(
        unmet_reasons(&executor.seen()[0]),
        [""; 0],
        "an executor that is a stack does not ask again"
    );
}

#[tokio::test]
async fn a_layer_does_not_lose_a_requirement_by_passing_on_an_older_copy() {
    let before: Arc<Mutex<Option<Call>>> = Arc::default();
    let keep = before.clone();
    let seen = Log::default();
    let log = seen.clone();
    let executor = FakeExecutor::new();
    let replay = move |_| before.lock().expect("no panic").clone().expect("kept");
    let stack = Stack::over(executor.clone())
        .layer(map_call(move |call| {
            keep.lock().expect("no panic").replace(call.clone());
            call
        }))
        .layer(require("it pays"))
        .layer(map_call(replay).named("replay").in_band(Band::Decide))
        .layer(
            map_call(move |call| {
                log.lock().expect("no panic").extend(unmet_reasons(&call));
                call
            })
            .named("look")
            .in_band(Band::Decide),
        );
    let outcome = stack.build().expect("in order").run(call("pay")).await;
    assert_eq!(outcome.status(), Some(Status::Blocked));
    assert!(executor.seen().is_empty());
    assert_eq!(*seen.lock().expect("no panic"), ["it pays"]);
}

#[tokio::test]
async fn an_approval_holds_for_its_arguments_and_below_the_layer_that_got_it() {
    let executor = FakeExecutor::new();
    let over = || Stack::over(executor.clone());
    let twice = || {
        from_fn(async |call: Call, next: Next| {
            let first = next.clone().run(call.clone()).await;
            if first.is_ok() {
                next.run(call).await
            } else {
                first
            }
        })
    };
    let repeated = over()
        .layer(require("it pays"))
        .layer(approve())
        .layer(twice().in_band(Band::Repeat));
    assert!(
        repeated
            .build()
            .expect("in order")
            .run(call("pay"))
            .await
            .is_ok()
    );
    assert_eq!(executor.seen().len(), 2);

    let more =
        map_call(|call| call.with_arguments(Arguments::parse(r#"{"n":9}"#).expect("object")));
    // In the shape band no layer has decided, so only the approval knows the arguments.
    let changed = over()
        .layer(require("it pays").in_band(Band::Shape))
        .layer(approve().in_band(Band::Shape))
        .layer(more);
    let outcome = changed
        .build()
        .expect("in order")
        .run(call_with("pay", json!({ "n": 1 })))
        .await;
    assert_eq!(outcome.status(), Some(Status::Blocked));

    // A copy from below the approval, passed on above it.
    let below: Arc<Mutex<Option<Call>>> = Arc::default();
    let keep = below.clone();
    let times = AtomicU32::new(0);
    let replayed = over()
        .layer(require("it pays"))
        .layer(
            from_fn(move |call: Call, next: Next| {
                let below = below.clone();
                async move {
                    next.clone().run(call).await;
                    let approved = below.lock().expect("no panic").clone().expect("kept");
                    next.run(approved).await
                }
            })
            .named("replay")
            .in_band(Band::Decide),
        )
        .layer(
            from_fn(move |call: Call, next: Next| {
                let first = times.fetch_add(1, Ordering::Relaxed) == 0;
                async move {
                    if first {
                        next.run_approved(call).await
                    } else {
                        next.run(call).await
                    }
                }
            })
            .named("approve once")
            .in_band(Band::Decide),
        )
        .layer(
            map_call(move |call| {
                keep.lock().expect("no panic").replace(call.clone());
                call
            })
            .in_band(Band::Repeat),
        );
    let outcome = replayed.build().expect("in order").run(call("pay")).await;
    assert_eq!(outcome.status(), Some(Status::Blocked));
    assert_eq!(executor.seen().len(), 3);
}

#[tokio::test]
async fn an_extension_reaches_the_layers_below_and_the_executor() {
    struct Depth(u32);
    struct Tenant;
    let executor = FakeExecutor::new();
    let deeper = || {
        map_call(|call| {
            let depth = call.extension::<Depth>().map_or(0, |depth| depth.0);
            call.with_extension(Depth(depth + 1)).with_extension(Tenant)
        })
    };
    let outside: Arc<AtomicU32> = Arc::default();
    let count = outside.clone();
    let stack = Stack::over(executor.clone())
        .layer(observe(move |call: &Call, _: &Outcome| {
            count.fetch_add(
                u32::from(call.extension::<Depth>().is_some()),
                Ordering::Relaxed,
            );
        }))
        .layer(deeper())
        .layer(deeper())
        .build()
        .expect("in order");
    stack.run(call("x")).await;
    let seen = executor.seen();
    assert_eq!(seen[0].extension::<Depth>().map(|depth| depth.0), Some(2));
    assert!(seen[0].extension::<Tenant>().is_some() && seen[0].extension::<u32>().is_none());
    assert_eq!(outside.load(Ordering::Relaxed), 0, "not the layers above");
    // A stack further in begins without the extensions of this one.
    let inner = FakeExecutor::new();
    let inside = Stack::over(inner.clone()).build().expect("in order");
    inside.run(seen[0].clone()).await;
    assert!(inner.seen()[0].extension::<Depth>().is_none());
}

#[tokio::test]
async fn a_cancelled_call_does_not_start() {
    let executor = FakeExecutor::new();
    let stack = Stack::over(executor.clone()).build().expect("in order");
    let seed = seed("rm", json!({}));
    seed.cancel.cancel();
    assert_eq!(
        stack.run(Call::new(seed)).await.status(),
        Some(Status::Cancelled)
    );
    assert!(executor.seen().is_empty());
}

#[tokio::test]
async fn an_executor_that_suspends_unannounced_is_an_error() {
    let stack = Stack::over(FakeExecutor::new().then(Outcome::await_result()))
        .build()
        .expect("in order");
    let outcome = stack.run(call("x")).await;
    assert_eq!(outcome.status(), Some(Status::ExecutorError));
    assert_eq!(
        outcome
            .settled()
            .and_then(|s| s.error.as_ref())
            .map(|e| e.category),
        Some(ErrorCategory::Internal)
    );
}

#[tokio::test]
async fn a_stack_can_be_extended_inside_and_bands_are_checked_again() {
    let log = Log::default();
    let session = Stack::over(echo())
        .layer(Trace("session", log.clone()))
        .build()
        .expect("in order");
    let both = session
        .extend()
        .layer(Trace("call", log.clone()))
        .build()
        .expect("in order");
    both.run(call("echo")).await;
    assert_eq!(log.lock().expect("no panic")[..2], ["> session", "> call"]);
    assert!(
        session
            .extend()
            .layer(pass().in_band(Band::Record))
            .build()
            .is_err()
    );
}

#[tokio::test]
async fn a_call_that_a_view_rejected_is_recorded_but_neither_shaped_nor_decided_on() {
    let registry = Registry::new();
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let schema = toolgate_core::Schema::new(schema).expect("valid");
    registry
        .register_host(toolgate_core::ToolSpec::new("count", "Counts.", schema))
        .expect("free");
    let view = toolgate_testkit::plain_view(&registry);
    let recorded = Arc::new(AtomicU32::new(0));
    let others = Arc::new(AtomicU32::new(0));
    let seen = recorded.clone();
    let rest = others.clone();
    let stack = Stack::over(registry)
        .layer(observe(move |_, outcome: &Outcome| {
            assert!(outcome.settled().is_some());
            seen.fetch_add(1, Ordering::Relaxed);
        }))
        .layer(map_call(move |call| {
            rest.fetch_add(1, Ordering::Relaxed);
            call
        }))
        .layer(Ask)
        .build()
        .expect("in order");
    for (tool, arguments, status) in [
        ("cuont", "{}", Status::ToolNotFound),
        ("count", "{", Status::SchemaViolation),
        ("count", "[]", Status::SchemaViolation),
        ("count", r#"{"n":"x"}"#, Status::SchemaViolation),
    ] {
        let mut seed = seed(tool, json!({}));
        seed.admission =
            view.admit_request(&toolgate_core::ToolRequest::from_text("1", tool, arguments));
        assert_eq!(
            stack.run(Call::new(seed)).await.status(),
            Some(status),
            "{tool} {arguments}"
        );
    }
    assert_eq!(recorded.load(Ordering::Relaxed), 4);
    assert_eq!(others.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn skipping_a_deciding_layer_also_fixes_the_arguments() {
    let executor = FakeExecutor::new();
    let secrets =
        Matcher::predicate(|call| call.arguments.get("path") == Some(&json!("/etc/shadow")));
    let guard = from_fn(async |_: Call, _: Next| Outcome::refused(Refusal::Blocked, "secret"))
        .in_band(Band::Decide)
        .on(secrets);
    let swap = map_call(|call| {
        call.with_arguments(Arguments::parse(r#"{"path":"/etc/shadow"}"#).expect("object"))
    });
    let stack = Stack::over(executor.clone())
        .layer(guard)
        .layer(swap.in_band(Band::Bound))
        .build()
        .expect("in order");
    assert_eq!(
        stack
            .run(call_with("read", json!({ "path": "/tmp/ok" })))
            .await
            .status(),
        Some(Status::Blocked)
    );
    assert!(executor.seen().is_empty());
}

#[tokio::test]
async fn a_shaping_layer_may_retry_with_other_arguments_that_are_decided_on_again() {
    let repair = from_fn(async |call: Call, next: Next| {
        let first = next.clone().run(call.clone()).await;
        if first.is_ok() {
            return first;
        }
        next.run(call.with_arguments(Arguments::parse(r#"{"n":2}"#).expect("object")))
            .await
    });
    let picky = from_fn(async |call: Call, next: Next| {
        if call.arguments.get("n") == Some(&json!(2)) {
            next.run(call).await
        } else {
            Outcome::refused(Refusal::Blocked, "only two")
        }
    });
    let stack = Stack::over(echo())
        .layer(repair)
        .layer(picky.named("picky").in_band(Band::Decide))
        .build();
    assert!(
        stack
            .expect("in order")
            .run(call_with("count", json!({ "n": 1 })))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn an_edit_does_not_cover_what_it_replaced() {
    let executor = FakeExecutor::new();
    let stack = Stack::over(executor.clone())
        .layer(Ask)
        .layer(Ask)
        .build()
        .expect("in order");
    let asked = |outcome: &Outcome| match outcome.suspension() {
        Some(Suspension::Decision(request)) => request.clone(),
        other => panic!("not asked: {other:?}"),
    };
    let edit =
        |by, text: &str| Decision::approve_with_edits(by, Arguments::parse(text).expect("object"));
    let mut seed = seed("sh", json!({ "run": "rm" }));
    let senior = asked(&stack.run(Call::new(seed.clone())).await);
    seed.resumed.answers.push(ApprovalAnswer::for_request(
        &senior,
        edit("senior", r#"{"run":"ls"}"#),
    ));
    let junior = asked(&stack.run(Call::new(seed.clone())).await);
    assert_eq!(junior.arguments.get("run"), Some(&json!("ls")));
    seed.resumed.answers.push(ApprovalAnswer::for_request(
        &junior,
        edit("junior", r#"{"run":"rm"}"#),
    ));
    let again = asked(&stack.run(Call::new(seed)).await);
    assert_eq!(
        again.asked_by.as_ref().map(|name| name.as_str()),
        Some("ask"),
        "the senior is asked again"
    );
    assert!(executor.seen().is_empty());
}

#[tokio::test]
async fn a_rehearsed_call_passes_every_layer_and_never_reaches_the_executor() {
    let executor = FakeExecutor::new();
    let layer = from_fn(async |call, next: Next| {
        next.note_reason("nothing speaks against it");
        next.run(call).await
    });
    let stack = Stack::over(executor.clone())
        .layer(layer)
        .build()
        .expect("in order");
    let outcome = stack
        .run(Call::new(CallSeed {
            rehearsal: true,
            ..seed("echo", json!({}))
        }))
        .await;
    let settled = outcome.settled().expect("settled");
    assert_eq!((settled.status, settled.attempts), (Status::DryRun, 0));
    let note = &settled.notes.fields().expect("noted").layers[0];
    assert_eq!(note.reason.as_deref(), Some("nothing speaks against it"));
    assert!(executor.seen().is_empty());
}

/// An executor that starts background work and then hangs, panics or returns.
struct Starts(&'static str, Arc<AtomicUsize>);

impl Executor for Starts {
    async fn execute(&self, call: Call) -> Outcome {
        let stopped = self.1.clone();
        Context::new(call).on_stop(move || {
            stopped.fetch_add(1, Ordering::SeqCst);
            StopConfirmation::Confirmed
        });
        match self.0 {
            "hangs" => std::future::pending().await,
            "panics" => panic!("on purpose"),
            _ => Outcome::ok("done"),
        }
    }
}

#[tokio::test]
async fn background_work_is_stopped_when_the_tool_is_dropped_or_panics_but_not_when_it_returns() {
    for (how, expected) in [("hangs", 1), ("panics", 1), ("returns", 0)] {
        let stopped = Arc::new(AtomicUsize::new(0));
        let stack = Stack::over(Starts(how, stopped.clone()))
            .build()
            .expect("empty");
        let mut run = Box::pin(stack.run(call("start")));
        let _ = futures::poll!(&mut run);
        drop(run);
        assert_eq!(stopped.load(Ordering::SeqCst), expected, "{how}");
    }
}

/// An executor that starts background work and returns when it is cancelled.
struct GivesUp(StopConfirmation, Arc<AtomicUsize>);

impl Executor for GivesUp {
    async fn execute(&self, call: Call) -> Outcome {
        let word = self.0;
        let stopped = self.1.clone();
        let cx = Context::new(call);
        cx.on_stop(move || {
            stopped.fetch_add(1, Ordering::SeqCst);
            word
        });
        cx.cancelled().await;
        Outcome::failed(ToolError::cancelled())
    }
}

#[tokio::test]
async fn work_left_by_a_cancelled_tool_is_stopped_and_its_confirmation_counts() {
    for (word, status) in [
        (StopConfirmation::Confirmed, Status::Cancelled),
        (StopConfirmation::Unconfirmed, Status::OutcomeUnknown),
    ] {
        let stopped = Arc::new(AtomicUsize::new(0));
        let stack = Stack::over(GivesUp(word, stopped.clone()))
            .build()
            .expect("empty");
        let call = call("start");
        let cancel = call.cancel.clone();
        let mut run = Box::pin(stack.run(call));
        assert!(futures::poll!(&mut run).is_pending());
        cancel.cancel();
        assert_eq!(run.await.status(), Some(status));
        assert_eq!(stopped.load(Ordering::SeqCst), 1);
    }
}
