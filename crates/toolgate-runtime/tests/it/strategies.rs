//! Skills and the recursive strategy in whole runs of a session, also across the loss of a process.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::common::sessions::{calling_reply, loop_events, memory_store, open_session};
use futures::{FutureExt, StreamExt, stream, stream::BoxStream};
use serde_json::json;
use toolgate_core::{
    BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets, Delta, Json, Message, Model,
    ModelError, ModelName, ModelRequest, RedactionError, Redactor, Registry, Reply, Role, RunEnd,
    SessionEvent, ToolError, Usage, tool_fn,
};
use toolgate_runtime::{RecursiveStrategy, Session, SessionBuilder, Skill, Skills};

/// Says the prepared lines, one for each request in the conversation.
#[derive(Clone)]
struct Script {
    name: ModelName,
    lines: Arc<Vec<Message>>,
    asked: Arc<Mutex<Vec<ModelRequest>>>,
}

impl Script {
    fn new(lines: Vec<Message>) -> Self {
        Self {
            name: ModelName::new("test", "script"),
            lines: Arc::new(lines),
            asked: Arc::default(),
        }
    }

    fn asked(&self) -> usize {
        self.asked.lock().expect("whole").len()
    }
}

impl Model for Script {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        self.asked.lock().expect("whole").push(request.clone());
        let at = request
            .messages
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count();
        let mut reply = Reply::new(
            self.lines
                .get(at)
                .cloned()
                .unwrap_or_else(|| Message::assistant("the end")),
        );
        reply.usage = Some(Usage {
            input: 5,
            ..Usage::default()
        });
        stream::once(async { Ok(Delta::Done(Box::new(reply))) }).boxed()
    }
}

/// Answers questions about pieces, until it does not answer any more.
#[derive(Clone)]
struct Reader {
    name: ModelName,
    asked: Arc<AtomicUsize>,
    answers: usize,
}

impl Reader {
    fn answering(answers: usize) -> Self {
        Self {
            name: ModelName::new("test", "reader"),
            asked: Arc::default(),
            answers,
        }
    }
}

impl Model for Reader {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        if self.asked.fetch_add(1, Ordering::SeqCst) >= self.answers {
            return stream::pending().boxed();
        }
        let question = request.messages[0]
            .text()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        let mut reply = Reply::new(Message::assistant(format!("read: {question}")));
        reply.usage = Some(Usage {
            input: 100,
            ..Usage::default()
        });
        stream::once(async { Ok(Delta::Done(Box::new(reply))) }).boxed()
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[tokio::test]
async fn loading_a_skill_does_not_cost_an_iteration() {
    let dir = tempfile::tempdir().expect("a place");
    fs::create_dir(dir.path().join("pdf")).expect("made");
    let text = "---\nname: pdf\ndescription: Reads PDF files.\nallowed-tools: read_pdf\n---\nCall read_pdf.\n";
    fs::write(dir.path().join("pdf").join(Skill::FILE), text).expect("written");
    let skills = Skills::discover([dir.path()])
        .skills
        .hold_back(["read_pdf"]);
    let registry = Registry::new();
    skills.install(&registry).expect("free");
    let read = tool_fn("read_pdf", "Reads.", async |_: Nothing, _| {
        Ok::<_, ToolError>("forty-two pages")
    });
    registry.register(read).expect("free");
    let script = Script::new(vec![
        calling_reply(&[("load_skill", json!({ "name": "pdf" }))]),
        calling_reply(&[("read_pdf", json!({}))]),
        Message::assistant("It has 42 pages."),
    ]);
    let store = memory_store();
    let builder = Session::ungated(script.clone(), registry)
        .strategy(skills)
        .max_iterations(2);
    let report = open_session(builder, &store)
        .await
        .run("How long is it?")
        .await
        .expect("runs");
    assert_eq!(
        (report.end, report.text.as_str()),
        (RunEnd::Completed, "It has 42 pages.")
    );
    let shown: Vec<usize> = script
        .asked
        .lock()
        .expect("whole")
        .iter()
        .map(|request| request.view.len())
        .collect();
    assert_eq!(
        shown,
        [2, 3, 3],
        "the tool is shown from the iteration after the load on"
    );
    let loaded = SessionEvent::SkillLoaded {
        skill: "pdf".into(),
        refunded: true,
    };
    assert!(loop_events(&store).await.contains(&loaded));
}

fn haystack() -> String {
    (0..200)
        .map(|n| {
            if n == 120 {
                "the key is 4711\n".to_owned()
            } else {
                format!("line {n}\n")
            }
        })
        .collect()
}

fn coordinator() -> Script {
    let queries: Vec<_> = (0..4)
        .map(|n| json!({ "question": format!("Q{n}"), "start": n * 100, "end": n * 100 + 99 }))
        .collect();
    Script::new(vec![
        calling_reply(&[
            ("search", json!({ "query": "key" })),
            ("note", json!({ "text": "hunter2 is near line 121" })),
        ]),
        calling_reply(&[("delegate_batch", json!({ "queries": queries }))]),
        calling_reply(&[("set_answer", json!({ "answer": "4711" }))]),
    ])
}

fn recursive(script: &Script, reader: &Reader) -> SessionBuilder {
    let recursive = RecursiveStrategy::builder(haystack(), reader.clone())
        .at_a_time(1)
        .max_iterations(4)
        .build();
    let registry = Registry::new();
    recursive.install(&registry).expect("free");
    Session::ungated(script.clone(), registry).strategy(recursive)
}

struct Censor;
impl Redactor for Censor {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        let text = value.to_string().replace("hunter2", "***");
        Json::new(serde_json::from_str(&text).map_err(|_| RedactionError)?)
            .map_err(|_| RedactionError)
    }
    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        Ok(text.replace("hunter2", "***"))
    }
}

#[tokio::test]
async fn a_recursive_run_reports_each_iteration_and_ends_with_the_answer() {
    let script = coordinator();
    let reader = Reader::answering(9);
    let store = memory_store();
    let builder = recursive(&script, &reader).dispatcher(|dispatcher| dispatcher.redactor(Censor));
    let report = open_session(builder, &store)
        .await
        .run("What is the key?")
        .await
        .expect("runs");
    assert_eq!(
        (report.end, report.text.as_str(), script.asked()),
        (RunEnd::Completed, "4711", 3)
    );
    let events = loop_events(&store).await;
    let steps: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            SessionEvent::RecursiveIteration {
                iteration,
                max,
                ready,
                tokens,
                summary,
                scratchpad,
                budget,
            } => Some((
                *iteration,
                *max,
                *ready,
                *tokens,
                summary.as_str(),
                scratchpad.as_str(),
                *budget,
            )),
            _ => None,
        })
        .collect();
    let noted = "*** is near line 121";
    let expected = [
        (1, 4, false, 5, "search, note", noted, 25),
        (2, 4, false, 410, "delegate_batch", noted, 50),
        (3, 4, true, 415, "set_answer", noted, 75),
    ];
    assert_eq!(steps, expected);
    let warned = events
        .iter()
        .filter(|event| matches!(event, SessionEvent::BudgetAlert(alert) if alert.percent == 75))
        .count();
    assert_eq!(warned, 1);
}

#[tokio::test]
async fn an_answer_that_was_given_is_found_on_resume() {
    let script = coordinator();
    let reader = Reader::answering(9);
    let store = memory_store();
    open_session(recursive(&script, &reader), &store)
        .await
        .run("What is the key?")
        .await
        .expect("runs");
    let again = open_session(recursive(&script, &reader), &store).await;
    let report = again.resume().await.expect("resumes");
    assert_eq!(
        (report.end, report.text.as_str(), script.asked()),
        (RunEnd::Completed, "4711", 3)
    );
    again.run("Thanks").await.expect("runs");
    let said = script
        .asked
        .lock()
        .expect("whole")
        .last()
        .expect("asked")
        .messages
        .clone();
    let roles: Vec<Role> = said
        .iter()
        .rev()
        .take(3)
        .map(|message| message.role)
        .collect();
    assert_eq!(
        roles,
        [Role::User, Role::Assistant, Role::Tool],
        "the model reads what was answered"
    );
}

#[tokio::test]
async fn a_lost_recursive_run_resumes_elsewhere_and_repeats_no_question() {
    let store = memory_store();
    let script = coordinator();
    let reader = Reader::answering(2);
    let lost = open_session(recursive(&script, &reader), &store).await;
    let mut running = Box::pin(lost.run("What is the key?"));
    while reader.asked.load(Ordering::SeqCst) < 3 {
        assert!(
            (&mut running).now_or_never().is_none(),
            "the third question is never answered"
        );
        tokio::task::yield_now().await;
    }
    drop(running);
    drop(lost);
    let again = coordinator();
    let other = Reader::answering(9);
    let report = open_session(recursive(&again, &other), &store)
        .await
        .resume()
        .await
        .expect("resumes");
    assert_eq!(
        (report.end, report.text.as_str()),
        (RunEnd::Completed, "4711")
    );
    assert_eq!(
        other.asked.load(Ordering::SeqCst),
        2,
        "two of the four questions were answered before"
    );
    assert_eq!(
        (script.asked(), again.asked()),
        (2, 1),
        "no reply was asked for twice"
    );
    let last = loop_events(&store)
        .await
        .into_iter()
        .rev()
        .find_map(|event| match event {
            SessionEvent::RecursiveIteration { tokens, ready, .. } => Some((tokens, ready)),
            _ => None,
        });
    assert_eq!(last, Some((415, true)), "the earlier usage counts");
}

fn requests(limit: u64) -> Budgets {
    Budgets::new([BudgetRule::new(
        "trial",
        BudgetScope::Session,
        BudgetPeriod::Total,
        BudgetUnit::Requests,
        limit,
    )])
}

#[tokio::test]
async fn the_session_is_charged_for_the_models_its_coordinator_asks() {
    let script = coordinator();
    let reader = Reader::answering(9);
    let store = memory_store();
    let session = open_session(recursive(&script, &reader).budgets(requests(5)), &store).await;
    let report = session.run("What is the key?").await.expect("runs");
    assert_eq!(
        report.end,
        RunEnd::BudgetExceeded,
        "nothing is left for the coordinator's third question"
    );
    assert_eq!(
        (script.asked(), reader.asked.load(Ordering::SeqCst)),
        (2, 3)
    );
}

#[tokio::test]
async fn requests_of_a_lost_process_are_charged_when_the_session_is_resumed() {
    let store = memory_store();
    let script = coordinator();
    let reader = Reader::answering(2);
    let lost = open_session(recursive(&script, &reader).budgets(requests(50)), &store).await;
    let mut running = Box::pin(lost.run("What is the key?"));
    while reader.asked.load(Ordering::SeqCst) < 3 {
        assert!(
            (&mut running).now_or_never().is_none(),
            "the third question is never answered"
        );
        tokio::task::yield_now().await;
    }
    drop(running);
    drop(lost);
    let other = Reader::answering(9);
    let session = open_session(
        recursive(&coordinator(), &other).budgets(requests(50)),
        &store,
    )
    .await;
    session.resume().await.expect("resumes");
    let accounts = store.accounts("", None, 10).await.expect("reads");
    let spent: Vec<_> = accounts
        .iter()
        .map(|account| (account.spent, account.reserved))
        .collect();
    assert_eq!(
        spent,
        [(8, 0)],
        "three of the coordinator, four answers, and the question that was lost"
    );
}

#[tokio::test]
async fn a_run_that_finds_no_answer_ends_with_an_incomplete_answer() {
    let search = || calling_reply(&[("search", json!({ "query": "key" }))]);
    let script = Script::new((0..9).map(|_| search()).collect());
    let store = memory_store();
    let session = open_session(recursive(&script, &Reader::answering(0)), &store).await;
    let report = session.run("What is the key?").await.expect("runs");
    let text = "This answer is incomplete: the limit of iterations of this run is reached. There are no findings.";
    assert_eq!(
        (report.end, report.text.as_str(), script.asked()),
        (RunEnd::Completed, text, 4)
    );
}
