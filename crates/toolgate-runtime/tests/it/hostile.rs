//! Runs with models that misbehave, messages at the wrong moment, and stores that fail half-way.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use crate::common::sessions::{
    Odd, SESSION, calling_reply, loop_events, memory_store, open_session, spent_accounts,
    whole_reply,
};
use futures::{StreamExt, stream};
use serde_json::json;
use tokio::sync::Notify;
use toolgate_core::{
    Annotations, Arguments, BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets, Context,
    Delta, IdempotencyKey, LogPosition, MemoryStore, Message, ModelErrorKind, OutputFormat,
    ReconciledAttempt, RecordKey, Registry, Reply, RunEnd, Schema, SessionEvent, SideEffect,
    StoreError, StoreHandle, Tool, ToolError, ToolOutput, ToolRequest, ToolSpec, WriteBatch,
};
use toolgate_runtime::{Agent, RunError, RunOptions, Session};
use toolgate_testkit::{FaultyStore, StoreCall, StoreFault};

#[tokio::test]
async fn a_model_that_panics_instead_of_replying_fails_the_run() {
    let model = Odd::new(|_| panic!("no reply"));
    let session = open_session(Session::ungated(model, Registry::new()), &memory_store()).await;
    let report = session.run("hello").await.expect("the panic is contained");
    assert_eq!(report.end, RunEnd::Failed);
    assert!(
        matches!(report.error, Some(RunError::Model(error)) if error.kind == ModelErrorKind::Malformed)
    );
}

#[tokio::test]
async fn a_reply_without_an_end_can_be_stopped() {
    let model = Odd::new(|_| stream::repeat_with(|| Ok(Delta::Text("and ".to_owned()))).boxed());
    let session = open_session(Session::ungated(model, Registry::new()), &memory_store()).await;
    let stop = async {
        while !session.interrupt() {
            tokio::task::yield_now().await;
        }
    };
    let (report, ()) = tokio::join!(session.run("tell me everything"), stop);
    assert_eq!(report.expect("ends").end, RunEnd::Cancelled);
}

#[tokio::test]
async fn a_message_sent_while_an_answer_is_corrected_is_accepted() {
    let asked = Arc::new(Notify::new());
    let go_on = Arc::new(Notify::new());
    let tell = asked.clone();
    let wait = go_on.clone();
    let model = Odd::new(move |at| {
        let tell = tell.clone();
        let wait = wait.clone();
        match at {
            0 => whole_reply(Message::assistant("not JSON")),
            1 => stream::once(async move {
                tell.notify_one();
                wait.notified().await;
                Ok(Delta::Done(Box::new(Reply::new(Message::assistant("{}")))))
            })
            .boxed(),
            _ => whole_reply(Message::assistant("{}")),
        }
    });
    let schema = Schema::new(json!({ "type": "object" })).expect("a schema");
    let format = OutputFormat {
        name: "answer".to_owned(),
        schema,
    };
    let session = open_session(
        Session::ungated(model, Registry::new()).output(format),
        &memory_store(),
    )
    .await;
    let speak = async {
        asked.notified().await;
        let mut said = Box::pin(session.send_message("by the way"));
        let early = futures::poll!(&mut said);
        go_on.notify_one();
        match early {
            std::task::Poll::Ready(answer) => answer,
            std::task::Poll::Pending => said.await,
        }
    };
    let (report, said) = tokio::join!(session.run("answer in JSON"), speak);
    assert_eq!(said.expect("is accepted"), 4);
    assert_eq!(report.expect("ends").end, RunEnd::Completed);
}

/// A store that counts its writes and rejects appends from one of them on.
fn counting(fails_at: Arc<AtomicU64>) -> (StoreHandle, Arc<AtomicU64>) {
    let writes = Arc::new(AtomicU64::new(0));
    let counted = writes.clone();
    let store = FaultyStore::new(MemoryStore::new(), move |call: StoreCall, write| {
        if call != StoreCall::Append {
            return StoreFault::Pass;
        }
        counted.fetch_max(write, Ordering::SeqCst);
        let full = StoreError::Backend("the disk is full".into());
        if write >= fails_at.load(Ordering::SeqCst) {
            StoreFault::Fail(full)
        } else {
            StoreFault::Pass
        }
    });
    (StoreHandle::new(store), writes)
}

/// Copies the session, its messages and its run to another store, without the last event.
async fn copy_without_last_event(from: &StoreHandle, to: &StoreHandle) {
    let mut events = from.events(SESSION, 0, 1000).await.expect("reads");
    events.pop();
    let mut keys = vec![RecordKey::Run(SESSION, 0)];
    let messages = from.messages(SESSION, u64::MAX, 1000).await.expect("reads");
    keys.extend(
        messages
            .iter()
            .map(|(n, _)| RecordKey::Message(SESSION, *n)),
    );
    let mut records = Vec::new();
    for key in keys {
        let record = from.load_record(&key).await.expect("reads");
        records.push((key, record.expect("is there")));
    }
    let batch = WriteBatch {
        events,
        records,
        ..WriteBatch::default()
    };
    to.append(SESSION, LogPosition::unleased(0), batch)
        .await
        .expect("is written");
}

#[tokio::test]
async fn the_end_of_a_run_is_recorded_on_resume_if_the_process_was_lost_first() {
    let hello = || {
        Session::ungated(
            Odd::saying(vec![Message::assistant("hello")]),
            Registry::new(),
        )
    };
    // A run that is not interrupted is one write. Its log is copied without the last event, as a
    // process leaves it that is lost between the reply and the end.
    let calm = memory_store();
    assert!(open_session(hello(), &calm).await.run("hi").await.is_ok());
    let store = memory_store();
    copy_without_last_event(&calm, &store).await;
    assert!(matches!(
        loop_events(&store).await.last(),
        Some(SessionEvent::InferenceFinished { .. })
    ));
    for _ in 0..2 {
        let session = open_session(hello(), &store).await;
        assert_eq!(session.resume().await.expect("ends").end, RunEnd::Completed);
        let events = loop_events(&store).await;
        let ends = events
            .iter()
            .filter(|event| matches!(event, SessionEvent::RunEnded { .. }))
            .count();
        assert_eq!(ends, 1, "it is recorded once");
    }
}

/// A tool that does not return, and knows by itself whether it took effect.
struct Transfer {
    invoked: Arc<AtomicUsize>,
    happened: bool,
}

impl Tool for Transfer {
    fn spec(&self) -> ToolSpec {
        let mut annotations = Annotations::default().with_side_effect(SideEffect::WorkspaceWrite);
        annotations.reconcile = true;
        let schema = Schema::new(json!({ "type": "object" })).expect("a schema");
        ToolSpec::new("transfer", "Moves money.", schema).with_annotations(annotations)
    }

    async fn invoke(&self, _: Arguments, _: Context) -> Result<ToolOutput, ToolError> {
        self.invoked.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }

    async fn reconcile(&self, _: Arguments, _: IdempotencyKey) -> ReconciledAttempt {
        if self.happened {
            ReconciledAttempt::Happened(ToolOutput::from("it was moved"))
        } else {
            ReconciledAttempt::DidNotHappen
        }
    }
}

#[tokio::test]
async fn reconciliation_asks_the_tool_of_the_run_and_not_the_one_that_it_shadows() {
    let invoked = Arc::new(AtomicUsize::new(0));
    let shadowed = Arc::new(AtomicUsize::new(0));
    let registry = Registry::new();
    let own = Registry::new();
    registry
        .register(Transfer {
            invoked: shadowed.clone(),
            happened: false,
        })
        .expect("free");
    own.register(Transfer {
        invoked: invoked.clone(),
        happened: true,
    })
    .expect("free");
    let model = || {
        Odd::saying(vec![
            calling_reply(&[("transfer", json!({}))]),
            Message::assistant("done"),
        ])
    };
    let store = memory_store();
    let lost = open_session(Session::ungated(model(), registry.clone()), &store).await;
    let options = || RunOptions::new().tools(own.clone());
    let run = lost.start_with("pay", options());
    while invoked.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!run.is_ended());
    let session = open_session(Session::ungated(model(), registry), &store).await;
    let report = session.resume_with(options()).await.expect("ends");
    assert_eq!(
        (report.end, report.text.as_str()),
        (RunEnd::Completed, "done")
    );
    assert_eq!(
        (
            invoked.load(Ordering::SeqCst),
            shadowed.load(Ordering::SeqCst)
        ),
        (1, 0)
    );
}

#[tokio::test]
async fn a_delegating_run_is_charged_for_the_model_requests_of_its_agents() {
    let store = memory_store();
    let rule = |scope, limit| {
        BudgetRule::new(
            "small",
            scope,
            BudgetPeriod::Total,
            BudgetUnit::Requests,
            limit,
        )
    };
    let budgets = Budgets::new([rule(BudgetScope::Run, 3), rule(BudgetScope::Session, 100)]);
    let task = |n: &str| calling_reply(&[("helper", json!({ "task": n }))]);
    let model = Odd::saying(vec![task("one"), task("two"), Message::assistant("done")]);
    let helper = Agent::new(
        "helper",
        "Helps.",
        Odd::saying(vec![Message::assistant("helped")]),
        Registry::new(),
    );
    let session = open_session(
        Session::ungated(model, Registry::new())
            .agent(helper)
            .budgets(budgets),
        &store,
    )
    .await;
    let report = session.run("have it done").await.expect("ends");
    assert_eq!(
        report.end,
        RunEnd::BudgetExceeded,
        "two requests of its own and one of the first agent are all"
    );
    let session = format!("budget/session/{SESSION}/requests/total");
    assert_eq!(
        spent_accounts(&store).await,
        [
            (format!("budget/run/{SESSION}/0/requests/total"), 3, 0),
            (session, 3, 0)
        ]
    );
}

#[tokio::test]
async fn a_sent_request_is_charged_however_much_happened_since() {
    let store = memory_store();
    let rule = BudgetRule::new(
        "b",
        BudgetScope::Global,
        BudgetPeriod::Total,
        BudgetUnit::Requests,
        10,
    );
    let budgeted = || {
        Session::ungated(Odd::new(|_| stream::pending().boxed()), Registry::new())
            .budgets(Budgets::new([rule.clone()]))
    };
    let session = open_session(budgeted(), &store).await;
    drop(session.start("think"));
    wait_for_reservation(&store).await;
    // Other processes use the session meanwhile, with turns that the host asks for.
    for _ in 0..150 {
        let view = toolgate_core::View::without_tools();
        let request = toolgate_runtime::TurnRequest::new(
            view,
            vec![ToolRequest::from_text("c", "nosuch", "{}")],
        );
        session
            .dispatcher()
            .open_turn(request)
            .await
            .expect("opens")
            .run()
            .await
            .expect("runs");
    }
    let session = open_session(budgeted(), &store).await;
    drop(session.start_resumed(RunOptions::new()));
    let account = "budget/global/all/requests/total".to_owned();
    while spent_accounts(&store).await[0] != (account.clone(), 1, 1) {
        tokio::task::yield_now().await;
    }
}

/// Waits until a request is under way.
async fn wait_for_reservation(store: &StoreHandle) {
    while spent_accounts(store)
        .await
        .first()
        .is_none_or(|row| row.2 != 1)
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_threshold_passed_by_a_stopped_request_is_reported() {
    let store = memory_store();
    let rule = BudgetRule::new(
        "b",
        BudgetScope::Global,
        BudgetPeriod::Total,
        BudgetUnit::Requests,
        1,
    );
    let model = Odd::new(|_| stream::pending().boxed());
    let session = open_session(
        Session::ungated(model, Registry::new()).budgets(Budgets::new([rule])),
        &store,
    )
    .await;
    let run = session.start("think");
    wait_for_reservation(&store).await;
    assert_eq!(run.stop().await.expect("ends").end, RunEnd::Cancelled);
    let alerts = |event: &SessionEvent| matches!(event, SessionEvent::BudgetAlert(_));
    assert_eq!(
        loop_events(&store)
            .await
            .iter()
            .filter(|event| alerts(event))
            .count(),
        4
    );
}

#[tokio::test]
async fn no_model_is_asked_if_the_request_cannot_be_recorded() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let model = Odd::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        whole_reply(Message::assistant("hello"))
    });
    let rule = BudgetRule::new(
        "b",
        BudgetScope::Global,
        BudgetPeriod::Total,
        BudgetUnit::Requests,
        5,
    );
    // The message and the request to the model are written after the reservation.
    let fails_at = Arc::new(AtomicU64::new(u64::MAX));
    let (store, writes) = counting(fails_at.clone());
    let session = open_session(
        Session::ungated(model, Registry::new()).budgets(Budgets::new([rule])),
        &store,
    )
    .await;
    assert!(session.run("hi").await.is_ok());
    let before = writes.load(Ordering::SeqCst);
    fails_at.store(before + 2, Ordering::SeqCst);
    assert!(session.run("hi again").await.is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(
        spent_accounts(&store).await,
        [("budget/global/all/requests/total".to_owned(), 1, 0)]
    );
}
