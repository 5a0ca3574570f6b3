//! A model that fails for a moment is asked again: visibly, within the budget, and without doubling
//! what it said before.

use std::time::Duration;

use futures::StreamExt;
use toolgate::{
    Gate, RunEnd, RunReport, Session,
    budget::{BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit},
    event::SessionEvent,
    gate::ModelOptions,
    model::{Delta, ModelErrorKind, RetryPolicy, ScriptLine, ScriptedModel},
    session::RunUpdate,
};
use toolgate_testkit::TestClock;

fn gate_at(clock: &TestClock) -> Gate {
    let gate = Gate::builder().in_memory().expect("keys");
    gate.clock(clock.clone()).build().expect("builds")
}

/// Runs to the end while the clock moves on. Returns the events of the run and the pieces of
/// replies, in short.
async fn run_through(session: &Session, clock: &TestClock) -> (RunReport, Vec<String>) {
    let mut updates = session.stream("Hello?");
    let mut seen = Vec::new();
    loop {
        let update = tokio::select! {
            biased;
            update = updates.next() => update.expect("ends with a report"),
            () = tokio::task::yield_now() => {
                clock.advance(Duration::from_millis(500));
                continue;
            }
        };
        match update {
            RunUpdate::Event(event) => seen.extend(event.as_session().and_then(short_event)),
            RunUpdate::Piece(piece) => seen.extend(match &piece.delta {
                Delta::Text(text) => Some(format!("text {text}")),
                _ => None,
            }),
            RunUpdate::End(report) => return (report.expect("runs"), seen),
            RunUpdate::Lagged(missed) => panic!("{missed} missed"),
        }
    }
}

fn short_event(event: &SessionEvent) -> Option<String> {
    match event {
        SessionEvent::InferenceStarted { attempt, .. } => Some(format!("attempt {attempt}")),
        SessionEvent::InferenceFailed {
            code, retry_in_ms, ..
        } => Some(format!("{} {retry_in_ms:?}", code.as_str())),
        SessionEvent::ModelRouted(routed) => Some(routed.selected.clone()),
        SessionEvent::InferenceFinished { text, .. } => Some(format!("reply {text:?}")),
        _ => None,
    }
}

#[tokio::test]
async fn a_rate_limited_model_is_asked_again_after_the_wait_that_it_names() {
    let limited = ScriptLine::new().fail(ModelErrorKind::RateLimited, "slow down");
    let model = ScriptedModel::new([
        limited.retry_after(Duration::from_secs(4)),
        ScriptLine::new().say("Hi."),
    ]);
    let clock = TestClock::new();
    let session = gate_at(&clock).session(model).await.expect("opens");
    let (report, seen) = run_through(&session, &clock).await;
    assert_eq!(
        (report.end, report.text.as_str()),
        (RunEnd::Completed, "Hi.")
    );
    let expected = [
        "attempt 1",
        "rate_limited Some(4000)",
        "attempt 2",
        "text Hi.",
        "reply Some(\"Hi.\")",
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_reply_that_broke_off_is_neither_in_the_history_nor_read_by_the_model() {
    let model = ScriptedModel::new([
        ScriptLine::new()
            .say("Once upon ")
            .fail(ModelErrorKind::Connection, "reset"),
        ScriptLine::new().say("The end."),
    ]);
    let clock = TestClock::new();
    let session = gate_at(&clock).session(model).await.expect("opens");
    let (report, seen) = run_through(&session, &clock).await;
    assert_eq!(report.text, "The end.");
    assert_eq!(report.messages.len(), 2, "{:?}", report.messages);
    assert_eq!(seen.last().expect("events"), "reply Some(\"The end.\")");
    let void = seen.iter().position(|seen| seen == "attempt 2");
    let first = seen.iter().position(|seen| seen == "text Once upon ");
    assert!(first < void, "{seen:?}");
}

#[tokio::test]
async fn each_attempt_that_may_be_charged_counts_in_the_budget() {
    let lost = || ScriptLine::new().fail(ModelErrorKind::Timeout, "");
    let model = ScriptedModel::new([lost(), lost(), ScriptLine::new().say("Too late.")]);
    let clock = TestClock::new();
    let gate = gate_at(&clock);
    let two = BudgetRule::new(
        "two requests",
        BudgetScope::Run,
        BudgetPeriod::Total,
        BudgetUnit::Requests,
        2,
    );
    let builder = gate.session_builder(model).expect("opens").budget(two);
    let session = builder.build().await.expect("opens");
    let (report, seen) = run_through(&session, &clock).await;
    assert_eq!(report.end, RunEnd::BudgetExceeded, "{seen:?}");
    let attempts = seen.iter().filter(|seen| seen.starts_with("attempt"));
    assert_eq!(attempts.count(), 2);
}

#[tokio::test]
async fn a_model_is_asked_once_where_retries_are_off() {
    let model = ScriptedModel::new([
        ScriptLine::new().fail(ModelErrorKind::Overloaded, "busy"),
        ScriptLine::new().say("Hi."),
    ]);
    let gate = Gate::in_memory().expect("builds");
    let once = ModelOptions {
        retry: Some(RetryPolicy::never()),
        ..ModelOptions::default()
    };
    let builder = gate.session_builder_with(model, once);
    let session = builder.expect("opens").build().await.expect("opens");
    assert_eq!(
        session.run("Hello?").await.expect("runs").end,
        RunEnd::Failed
    );
}

#[tokio::test]
async fn the_fallback_and_the_weights_of_the_file_choose_the_model() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("written");
    };
    write(
        "busy.toml",
        "[[reply]]\nerror = { kind = 'overloaded', detail = 'busy' }\n",
    );
    write(
        "small.toml",
        "model = 'scripted:small'\n[[reply]]\ntext = 'Small.'\n",
    );
    write(
        "toolgate.toml",
        "[run]\nmodel = 'script:busy.toml'\n[routing]\nfallback = ['small']\n\
         [routing.aliases]\nsmall = 'script:small.toml'\n[routing.weights]\nlight = 'small'\n",
    );
    let gate = Gate::builder().in_memory().expect("keys");
    let gate = gate.config_file(dir.path().join("toolgate.toml"));
    let gate = gate.build().expect("builds");
    let model = gate.default_model().expect("named").to_owned();
    for weight in [None, Some(toolgate::model::TaskComplexity::Light)] {
        let mut builder = gate.session_builder(model.as_str()).expect("opens");
        if let Some(weight) = weight {
            builder = builder.weight(weight);
        }
        let session = builder.build().await.expect("opens");
        let (report, seen) = run_through(&session, &TestClock::new()).await;
        assert_eq!(report.text, "Small.", "{seen:?}");
        let failed = seen.iter().any(|seen| seen == "overloaded Some(0)");
        assert_eq!(failed, weight.is_none(), "{seen:?}");
    }
}

#[test]
fn a_routing_that_names_no_model_is_rejected_with_the_section() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("toolgate.toml");
    std::fs::write(&path, "[routing]\nfallback = ['small']\n").expect("written");
    let gate = Gate::builder().in_memory().expect("keys");
    let error = gate.config_file(&path).build().expect_err("no such alias");
    let text = toolgate::Error::to_string(&error);
    assert!(text.contains("[routing]"), "{text}");
}
