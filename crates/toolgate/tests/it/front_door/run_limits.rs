//! What ends a run before the model is done: deadlines, a lost receipt, a failed call, the cap.

use std::{sync::Arc, time::Duration};

use futures::{future::BoxFuture, stream::BoxStream};
use serde_json::json;
use toolgate::{
    Config, Decision, Gate, RunEnd, RunReport, Session, Status,
    layers::{Receipt, ReceiptSink, SharedReceiptSink, SinkError},
    model::{Delta, FinishReason, ModelError, ModelName, ModelRequest, ScriptLine, ScriptedModel},
    prelude::*,
    session::{RunError, RunOptions, SessionError},
};
use toolgate_testkit::TestClock;

/// Sends a letter.
#[tool(side_effect = "network")]
async fn send() -> String {
    "sent".to_owned()
}

/// Looks something up.
#[tool(side_effect = "none")]
async fn look() -> String {
    "seen".to_owned()
}

/// Waits until it is stopped.
#[tool(side_effect = "none")]
async fn wait(cx: toolgate::tool::Context) -> Result<String, ToolError> {
    cx.cancelled().await;
    Err(ToolError::cancelled())
}

/// A model that never replies.
struct SilentModel(ModelName);

impl Model for SilentModel {
    fn name(&self) -> &ModelName {
        &self.0
    }

    fn reply<'a>(&'a self, _: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        Box::pin(futures::stream::pending())
    }
}

fn configured(text: &str, clock: &TestClock) -> toolgate::GateBuilder {
    let catalog = toolgate::gate::gate_catalog();
    let config = Config::parse_with_catalog("toolgate.toml", text, catalog).expect("valid");
    let gate = Gate::builder().in_memory().expect("keys").config(config);
    gate.clock(clock.clone())
}

/// Runs to the end while the clock moves on.
async fn run_through(
    session: &Session,
    options: RunOptions,
    clock: &TestClock,
) -> Result<RunReport, Arc<SessionError>> {
    let run = session.start_with("Go.", options);
    while !run.is_ended() {
        clock.advance(Duration::from_millis(100));
        tokio::task::yield_now().await;
    }
    run.report().await
}

#[tokio::test]
async fn a_run_ends_at_its_deadline_while_the_model_thinks() {
    let clock = TestClock::new();
    for text in ["[run]\ndeadline = '5s'\n", ""] {
        let gate = configured(text, &clock).build().expect("builds");
        let model: Arc<dyn Model> = Arc::new(SilentModel(ModelName::new("acme", "silent")));
        let session = gate.session(model).await.expect("opens");
        let options = match text {
            "" => RunOptions::new().deadline(Duration::from_secs(5)),
            _ => RunOptions::new(),
        };
        let report = run_through(&session, options, &clock).await.expect("ends");
        assert_eq!(report.end, RunEnd::Deadline);
        assert_eq!(report.end.as_str(), "deadline");
    }
}

#[tokio::test]
async fn a_turn_deadline_cancels_what_runs_and_leaves_approvals_pending() {
    let clock = TestClock::new();
    let gate = configured("[stack]\nturn_deadline = '5s'\n", &clock);
    let gate = gate.tool(send).tool(wait).build().expect("builds");
    let model = ScriptedModel::new([
        ScriptLine::new()
            .call("send", json!({}))
            .call("wait", json!({})),
        ScriptLine::new().say("Done."),
    ]);
    let builder = gate.session_builder(model).expect("opens");
    let session = builder.wait_for_answers().build().await.expect("opens");
    let report = run_through(&session, RunOptions::new(), &clock).await;
    let report = report.expect("ends");
    assert_eq!(report.end, RunEnd::Deadline);
    let [pending] = &report.pending[..] else {
        panic!("{:?}", report.pending);
    };
    assert_eq!(pending.tool.as_str(), "send");
    let [stopped] = &report.settled[..] else {
        panic!("{:?}", report.settled);
    };
    assert_eq!(stopped.status(), Some(Status::Cancelled));
    let request = pending.question.as_deref().expect("waits for a decision");
    let decided = session.decide(request, Decision::approve("ann")).await;
    decided.expect("still pending");
    let report = session.resume().await.expect("resumes");
    assert_eq!(
        (report.end, report.text.as_str()),
        (RunEnd::Completed, "Done.")
    );
}

#[tokio::test]
async fn a_turn_without_pending_calls_ends_whole_at_its_deadline() {
    let clock = TestClock::new();
    let gate = configured("", &clock).tool(wait).build().expect("builds");
    let model = ScriptedModel::new([ScriptLine::new().call("wait", json!({}))]);
    let session = gate.session(model).await.expect("opens");
    let options = RunOptions::new().turn_deadline(Duration::from_secs(5));
    let report = run_through(&session, options, &clock).await.expect("ends");
    assert_eq!(report.end, RunEnd::Deadline);
    assert!(report.pending.is_empty());
    assert_eq!(report.messages.len(), 3, "the call has its result");
}

/// A sink that loses every receipt.
struct LossySink;

impl ReceiptSink for LossySink {
    fn write<'a>(
        &'a self,
        _: &'a Call,
        _: &'a Arc<Receipt>,
    ) -> BoxFuture<'a, Result<Option<String>, SinkError>> {
        Box::pin(std::future::ready(Err(SinkError::new("disk full"))))
    }
}

#[tokio::test]
async fn a_lost_receipt_ends_the_run_as_failed() {
    for sink in ["host", "both"] {
        let text = format!("[layers.receipts]\nsink = '{sink}'\n");
        let dir = tempfile::tempdir().expect("a directory");
        let gate = configured(&text, &TestClock::new())
            .workspace(dir.path())
            .resource(SharedReceiptSink::new(LossySink));
        let gate = gate.tool(look).build().expect("builds");
        let model = ScriptedModel::new([
            ScriptLine::new().call("look", json!({})),
            ScriptLine::new().say("I was asked again."),
        ]);
        let session = gate.session(model).await.expect("opens");
        let report = session.run("Go.").await.expect("ends");
        assert_eq!(report.end, RunEnd::Failed, "{sink}");
        assert!(
            matches!(&report.error, Some(RunError::ReceiptLost { tool, .. }) if tool.as_str() == "look")
        );
        assert_eq!(report.iterations, 1, "the model is not asked again");
        assert_eq!(report.messages.len(), 3, "the effect is recorded");
    }
}

#[tokio::test]
async fn a_reply_that_ended_for_an_unknown_reason_does_not_complete_a_run() {
    let gate = configured("", &TestClock::new());
    let gate = gate.tool(look).build().expect("builds");
    let half = ScriptLine::new()
        .say("Half of an")
        .finish(FinishReason::Other);
    let model = ScriptedModel::new([half, ScriptLine::new().say("The whole answer.")]).in_order();
    let session = gate.session(model).await.expect("opens");
    // Also when the run is resumed: the reply did not get more complete.
    for report in [session.run("Go.").await, session.resume().await] {
        let report = report.expect("ends");
        assert_eq!(report.end, RunEnd::Failed);
        assert!(matches!(report.error, Some(RunError::UnknownFinish)));
        assert_eq!(report.text, "Half of an", "what there is of it is kept");
        assert_eq!(report.iterations, 1, "the model is not asked again");
    }
    let report = session.run("Please continue.").await.expect("ends");
    assert_eq!(report.end, RunEnd::Completed);
    assert_eq!(report.text, "The whole answer.");
}

#[tokio::test]
async fn a_violation_that_is_raised_stops_a_run_where_failures_abort() {
    for (on_failure, end) in [("continue", RunEnd::Completed), ("abort", RunEnd::Failed)] {
        let text = format!(
            "[run]\non_failure = '{on_failure}'\n[layers.scope]\nallowed_tools = ['other']\non_violation = 'raise'\n"
        );
        let gate = configured(&text, &TestClock::new());
        let gate = gate.tool(look).build().expect("builds");
        let model = ScriptedModel::new([
            ScriptLine::new().call("look", json!({})),
            ScriptLine::new().say("Done."),
        ]);
        let session = gate.session(model).await.expect("opens");
        let report = session.run("Go.").await.expect("ends");
        assert_eq!(report.end, end, "{on_failure}: {:?}", report.error);
    }
}

#[tokio::test]
async fn the_file_sets_the_cap_as_an_error_and_the_choice_of_tools() {
    let text = "[run]\nmax_iterations = 1\non_cap = 'fail'\nmax_concurrent_tools = 1\n";
    let gate = configured(text, &TestClock::new());
    let gate = gate.tool(look).build().expect("builds");
    let model = ScriptedModel::new([ScriptLine::new().call("look", json!({}))]);
    let session = gate.session(model).await.expect("opens");
    let error = session.run("Go.").await.expect_err("the cap is an error");
    assert!(matches!(error, SessionError::MaxIterations(_)), "{error}");

    let gate = configured("[run]\ntool_choice = 'none'\n", &TestClock::new());
    let gate = gate.tool(look).build().expect("builds");
    let model = ScriptedModel::new([ScriptLine::new().say("Hi.")]);
    let model = Arc::new(model.store_requests());
    let asked: Arc<dyn Model> = model.clone();
    let session = gate.session(asked).await.expect("opens");
    session.run("Go.").await.expect("ends");
    assert!(model.requests()[0].view.is_empty());
}
