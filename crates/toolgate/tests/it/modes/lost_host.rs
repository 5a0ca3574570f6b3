//! A host whose process dies between `Run` and the delivery of the result, on SQLite.

use std::{io::Write as _, path::Path, process::Command};

use serde_json::json;
use toolgate::{
    Outcome, RunEnd,
    model::{Message, ModelName, PartContent, Reply},
    prelude::*,
    session::{HostAction, HostCall, HostedRun, RunOptions, SessionError},
    stack::{ReconciledAttempt, ToolRequest},
    store::SqliteStore,
    tool::ToolSpec,
    value::Schema,
};

/// The environment variable with the directory of the child process.
const CHILD_DIR: &str = "TOOLGATE_TEST_LOST_HOST";

/// Opens the session of a host: `pay` writes, `look` only reads.
async fn open_host(dir: &Path) -> Session {
    let registry = Registry::new();
    let writes = Annotations::default().with_side_effect(SideEffect::Network);
    for (name, annotations) in [("pay", writes), ("look", Annotations::read_only())] {
        let spec = ToolSpec::new(name, format!("Does {name}."), Schema::any_object());
        registry
            .register_host(spec.with_annotations(annotations))
            .expect("free");
    }
    let store = SqliteStore::open(dir.join("toolgate.db")).expect("opens");
    let session = "00000000-0000-0000-0000-0000000000aa";
    let session = session.parse().expect("an id");
    Session::ungated_host(registry)
        .store(store)
        .dispatcher(move |builder| builder.session(session).take_over())
        .build()
        .await
        .expect("builds")
}

fn reply_with_calls() -> Reply {
    let mut message = Message::assistant("");
    for tool in ["pay", "look"] {
        let request = ToolRequest::from_text(tool, tool, r#"{"amount":5}"#);
        message.parts.push(PartContent::Call(request).into());
    }
    Reply::new(message)
}

/// Runs in the child process of the other tests: pays, and dies before it reports that. By itself it
/// does nothing.
#[tokio::test]
async fn lost_host_child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let dir = Path::new(&dir);
    let session = open_host(dir).await;
    let mut hosted = session
        .begin_hosted("pay", RunOptions::new())
        .await
        .expect("begins");
    hosted
        .begin_iteration(&ModelName::new("host", "model"))
        .await
        .expect("begins");
    let actions = hosted
        .submit_reply(reply_with_calls())
        .await
        .expect("is accepted");
    let [HostAction::Run(pay), HostAction::Run(look)] = actions.as_slice() else {
        panic!("both are to be run: {actions:?}")
    };
    assert!(!pay.may_have_run && !look.may_have_run);
    let mut paid = std::fs::File::create(dir.join("paid")).expect("is created");
    writeln!(paid, "{}", pay.idempotency_key).expect("is written");
    std::process::abort();
}

/// Kills a host that has paid, and resumes its run in this process.
async fn resume_after_loss(dir: &Path) -> HostedRun {
    let child = Command::new(std::env::current_exe().expect("a program"))
        .args(["modes::lost_host::lost_host_child", "--exact"])
        .env(CHILD_DIR, dir)
        .output()
        .expect("starts");
    assert!(!child.status.success(), "it died: {child:?}");
    let session = open_host(dir).await;
    session
        .resume_hosted(RunOptions::new())
        .await
        .expect("resumes")
}

fn call_to_reconcile(actions: &[HostAction]) -> &HostCall {
    let [HostAction::Reconcile(pay), HostAction::Run(look)] = actions else {
        panic!("the payment is not handed out again: {actions:?}")
    };
    assert!(pay.may_have_run && look.may_have_run);
    pay
}

#[tokio::test]
async fn a_host_that_died_is_not_told_to_pay_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut hosted = resume_after_loss(dir.path()).await;
    let actions = hosted.call_actions();
    let pay = call_to_reconcile(&actions);
    let paid = std::fs::read_to_string(dir.path().join("paid")).expect("it paid");
    assert_eq!(paid.trim(), pay.idempotency_key.to_string());
    let actions = hosted
        .reconcile(pay.call, ReconciledAttempt::Unknown)
        .await
        .expect("is recorded");
    let [HostAction::Settled(settled), HostAction::Run(look)] = actions.as_slice() else {
        panic!("it is settled: {actions:?}")
    };
    assert_eq!(settled.status(), Some(Status::OutcomeUnknown));
    let look = look.call;
    let again = hosted.reconcile(pay.call, ReconciledAttempt::Unknown).await;
    assert!(matches!(again, Err(SessionError::OutOfOrder(_))));
    hosted
        .deliver_result(look, Outcome::ok("seen"))
        .await
        .expect("is accepted");
    let message = hosted.end_iteration().await.expect("is settled");
    assert_eq!(message.expect("results").parts.len(), 2);
    let report = hosted.suspend().await.expect("ends");
    assert_eq!(report.end, RunEnd::Suspended);
}

#[tokio::test]
async fn a_host_that_knows_what_happened_settles_the_call_or_runs_it() {
    let happened = ReconciledAttempt::Happened(json!({ "paid": 5 }).into());
    let dir = tempfile::tempdir().expect("a directory");
    let mut hosted = resume_after_loss(dir.path()).await;
    let call = call_to_reconcile(&hosted.call_actions()).call;
    let actions = hosted.reconcile(call, happened).await.expect("is accepted");
    assert!(
        matches!(&actions[0], HostAction::Settled(settled) if settled.status() == Some(Status::Ok)),
        "{actions:?}"
    );

    let dir = tempfile::tempdir().expect("a directory");
    let mut hosted = resume_after_loss(dir.path()).await;
    let call = call_to_reconcile(&hosted.call_actions()).call;
    let actions = hosted
        .reconcile(call, ReconciledAttempt::DidNotHappen)
        .await
        .expect("is accepted");
    assert!(
        matches!(&actions[0], HostAction::Run(pay) if !pay.may_have_run),
        "{actions:?}"
    );
}
