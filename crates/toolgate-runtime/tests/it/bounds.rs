//! Limits of a run: refunded iterations, calls of one reply, strategies that hang, budgets that
//! could not be charged.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::common::sessions::{
    Odd, SESSION, calling_reply, loop_events, memory_store, open_session, spent_accounts,
    whole_reply,
};
use futures::{FutureExt, future::BoxFuture};
use serde_json::json;
use toolgate_core::{
    BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets, Call, Layer, LayerName,
    MemoryStore, Message, ModelName, Next, Outcome, PartContent, RecordKey, Registry, Role, RunEnd,
    SessionEvent, Status, StoreError, StoreHandle, StoreRecord, ToolError, ToolSpec, Transform,
    tool_fn,
};
use toolgate_runtime::{
    HostStep, RequestContext, RunOptions, Session, SessionError, Strategy, StrategyAction,
    StrategyError, TurnContext,
};
use toolgate_testkit::{FaultyStore, StoreCall, StoreFault};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Returns a registry with a tool that counts how often it ran.
fn counted() -> (Registry, Arc<AtomicUsize>) {
    let registry = Registry::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let tool = tool_fn("count", "Counts.", move |_: Nothing, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, ToolError>("counted") }
    });
    registry.register(tool).expect("free");
    (registry, ran)
}

/// Returns a model that asks for a call again and again.
fn restless() -> Odd {
    Odd::new(|_| whole_reply(calling_reply(&[("count", json!({}))])))
}

struct Generous;

impl Strategy for Generous {
    fn turn_settled<'a>(
        &'a self,
        _: &'a mut TurnContext<'_>,
    ) -> BoxFuture<'a, Result<StrategyAction, StrategyError>> {
        async { Ok(StrategyAction::Refund) }.boxed()
    }
}

#[tokio::test]
async fn a_strategy_that_refunds_every_iteration_at_most_doubles_them() {
    let (registry, ran) = counted();
    let builder = Session::ungated(restless(), registry)
        .strategy(Generous)
        .max_iterations(3);
    let store = memory_store();
    let report = open_session(builder, &store)
        .await
        .run("go on")
        .await
        .expect("ends");
    assert_eq!(
        (report.end, ran.load(Ordering::SeqCst)),
        (RunEnd::MaxIterations, 6)
    );
    // A resumed run refunds nothing anew.
    let (registry, ran) = counted();
    let builder = Session::ungated(restless(), registry)
        .strategy(Generous)
        .max_iterations(3);
    let report = open_session(builder, &store)
        .await
        .resume()
        .await
        .expect("ends");
    assert_eq!(
        (report.end, ran.load(Ordering::SeqCst)),
        (RunEnd::MaxIterations, 0)
    );
}

#[tokio::test]
async fn calls_of_one_reply_are_limited_and_every_call_has_a_result() {
    let (registry, ran) = counted();
    let call = ("count", json!({}));
    let model = Odd::saying(vec![
        calling_reply(&vec![call; 5]),
        Message::assistant("done"),
    ]);
    let session = open_session(
        Session::ungated(model, registry).max_calls(3),
        &memory_store(),
    )
    .await;
    let report = session.run("count").await.expect("ends");
    assert_eq!(
        (report.end, ran.load(Ordering::SeqCst)),
        (RunEnd::Completed, 3)
    );
    let answers = report
        .messages
        .iter()
        .find(|message| message.role == Role::Tool)
        .expect("answered");
    let told = answers.parts.iter().filter_map(|part| match &part.content {
        PartContent::Result(answer) => Some((
            answer.call_id.as_str(),
            answer.text.contains("only the first 3 calls"),
        )),
        _ => None,
    });
    let expected = [
        ("c0", false),
        ("c1", false),
        ("c2", false),
        ("c3", true),
        ("c4", true),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_call_beyond_the_limit_is_recorded_as_rate_limited() {
    let (registry, _) = counted();
    let model = Odd::saying(vec![
        calling_reply(&vec![("count", json!({})); 2]),
        Message::assistant("done"),
    ]);
    let store = memory_store();
    open_session(Session::ungated(model, registry).max_calls(1), &store)
        .await
        .run("count")
        .await
        .expect("ends");
    let events = store.events(SESSION, 0, 1000).await.expect("reads");
    let second = events
        .iter()
        .filter_map(|event| event.as_tool())
        .find(|(call, _)| call.emit_order == 1);
    let outcome = store
        .load_record(&RecordKey::Outcome(second.expect("requested").0.id))
        .await
        .expect("reads");
    assert!(
        matches!(outcome, Some(StoreRecord::Outcome(settled)) if settled.status == Status::RateLimited)
    );
}

/// Hangs where it is told to, for ever.
struct Hangs {
    prepare: bool,
    entered: Arc<AtomicBool>,
}

impl Strategy for Hangs {
    fn prepare_request<'a>(
        &'a self,
        _: &'a mut RequestContext<'_>,
    ) -> BoxFuture<'a, Result<(), StrategyError>> {
        if !self.prepare {
            return async { Ok(()) }.boxed();
        }
        self.entered.store(true, Ordering::SeqCst);
        std::future::pending().boxed()
    }

    fn turn_settled<'a>(
        &'a self,
        _: &'a mut TurnContext<'_>,
    ) -> BoxFuture<'a, Result<StrategyAction, StrategyError>> {
        self.entered.store(true, Ordering::SeqCst);
        std::future::pending().boxed()
    }
}

/// Runs until a strategy hangs, and stops the run.
async fn stopped(prepare: bool) -> (RunEnd, usize, Vec<SessionEvent>) {
    let (registry, ran) = counted();
    let store = memory_store();
    let entered = Arc::new(AtomicBool::new(false));
    let strategy = Hangs {
        prepare,
        entered: entered.clone(),
    };
    let session = open_session(
        Session::ungated(restless(), registry).strategy(strategy),
        &store,
    )
    .await;
    let stop = async {
        while !entered.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        assert!(session.interrupt());
    };
    let (report, ()) = tokio::join!(session.run("go on"), stop);
    (
        report.expect("ends").end,
        ran.load(Ordering::SeqCst),
        loop_events(&store).await,
    )
}

#[tokio::test]
async fn a_strategy_that_hangs_before_the_model_is_asked_can_be_interrupted() {
    let (end, ran, events) = stopped(true).await;
    assert_eq!((end, ran), (RunEnd::Cancelled, 0));
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, SessionEvent::InferenceStarted { .. })),
        "no model was asked"
    );
}

#[tokio::test]
async fn a_strategy_that_hangs_after_the_calls_can_be_interrupted_and_their_results_are_kept() {
    let (end, ran, events) = stopped(false).await;
    assert_eq!((end, ran), (RunEnd::Cancelled, 1));
    assert!(matches!(
        events.last(),
        Some(SessionEvent::RunEnded {
            end: RunEnd::Cancelled,
            iterations: 1,
            ..
        })
    ));
}

#[tokio::test]
async fn a_host_whose_strategy_was_interrupted_gets_an_error_and_can_cancel() {
    let store = memory_store();
    let entered = Arc::new(AtomicBool::new(false));
    let strategy = Hangs {
        prepare: true,
        entered,
    };
    let session = open_session(
        Session::ungated_host(Registry::new()).strategy(strategy),
        &store,
    )
    .await;
    let mut hosted = session
        .begin_hosted("go on", RunOptions::new())
        .await
        .expect("begins");
    assert!(session.interrupt());
    let asked = hosted
        .begin_iteration(&ModelName::new("host", "m"))
        .await
        .map(drop);
    assert!(
        matches!(asked, Err(SessionError::OutOfOrder(_))),
        "{asked:?}"
    );
    assert_eq!(hosted.next_step(), HostStep::Cancel);
    assert_eq!(hosted.cancel().await.expect("ends").end, RunEnd::Cancelled);
}

/// Shows a tool under another name, which is not allowed.
struct Renames;

impl Layer for Renames {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        next.run(call).await
    }

    fn transform(&self) -> Option<Arc<dyn Transform>> {
        Some(Arc::new(Self))
    }
}

impl Transform for Renames {
    fn name(&self) -> LayerName {
        "renames".into()
    }

    fn transform(&self, mut spec: ToolSpec) -> Option<ToolSpec> {
        spec.name = "other".into();
        Some(spec)
    }
}

#[tokio::test]
async fn a_run_that_failed_on_its_options_cannot_be_interrupted() {
    let (registry, _) = counted();
    let session = open_session(Session::ungated(restless(), registry), &memory_store()).await;
    let failed = session
        .run_with("go on", RunOptions::new().layer(Renames))
        .await;
    assert!(
        matches!(failed, Err(SessionError::Options(_))),
        "{failed:?}"
    );
    assert!(!session.interrupt());
}

/// A store that fails the calls of one kind while it is told to.
fn failing(kind: StoreCall) -> (StoreHandle, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let told = fails.clone();
    let store = FaultyStore::new(MemoryStore::new(), move |call: StoreCall, _| {
        let fault = call == kind && told.load(Ordering::SeqCst);
        if fault {
            StoreFault::Fail(StoreError::Backend("the disk is full".into()))
        } else {
            StoreFault::Pass
        }
    });
    (StoreHandle::new(store), fails)
}

fn requests(limit: u64) -> Budgets {
    Budgets::new([BudgetRule::new(
        "b",
        BudgetScope::Global,
        BudgetPeriod::Total,
        BudgetUnit::Requests,
        limit,
    )])
}

#[tokio::test]
async fn a_host_must_not_ask_a_model_if_the_request_cannot_be_recorded() {
    let (store, fails) = failing(StoreCall::Append);
    let session = open_session(
        Session::ungated_host(Registry::new()).budgets(requests(5)),
        &store,
    )
    .await;
    let mut hosted = session
        .begin_hosted("go on", RunOptions::new())
        .await
        .expect("begins");
    fails.store(true, Ordering::SeqCst);
    let asked = hosted
        .begin_iteration(&ModelName::new("host", "m"))
        .await
        .map(drop);
    assert!(matches!(asked, Err(SessionError::Dispatch(_))), "{asked:?}");
    assert_eq!(
        spent_accounts(&store).await,
        [("budget/global/all/requests/total".to_owned(), 0, 0)],
        "nothing stays reserved"
    );
}

#[tokio::test]
async fn what_could_not_be_charged_is_charged_when_the_session_is_resumed() {
    let (store, fails) = failing(StoreCall::SettleCharge);
    let hello = || {
        Session::ungated(
            Odd::saying(vec![Message::assistant("hello")]),
            Registry::new(),
        )
        .budgets(requests(5))
    };
    let session = open_session(hello(), &store).await;
    fails.store(true, Ordering::SeqCst);
    assert_eq!(
        session
            .run("hi")
            .await
            .expect("the reply counts all the same")
            .end,
        RunEnd::Completed
    );
    let account = "budget/global/all/requests/total".to_owned();
    assert_eq!(
        spent_accounts(&store).await,
        [(account.clone(), 0, 1)],
        "it stays reserved, which allows less and never more"
    );
    fails.store(false, Ordering::SeqCst);
    for _ in 0..2 {
        open_session(hello(), &store)
            .await
            .resume()
            .await
            .expect("ends");
        assert_eq!(
            spent_accounts(&store).await,
            [(account.clone(), 1, 0)],
            "booked once"
        );
    }
}
