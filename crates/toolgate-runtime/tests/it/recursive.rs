//! A run with the recursive strategy: how documents are read, how often models are asked, and how
//! it ends.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream, stream::BoxStream};
use serde_json::{Value, json};
use toolgate_core::{
    BillingService, BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets, ChargeFilter,
    Delta, EventBody, MemoryStore, Message, MessagePart, Model, ModelError, ModelErrorKind,
    ModelName, ModelRequest, PartContent, Payer, Registry, Reply, Role, SessionEvent, SessionId,
    Stack, Status, StoreHandle, TaskComplexity, ToolAnswer, ToolEvent, ToolRequest, Usage,
};
use toolgate_runtime::{
    Dispatcher, Documents, ModelBilling, RecursiveBuilder, RecursiveStrategy, RequestContext,
    Strategy, StrategyAction, TurnContext, TurnReport, TurnRequest,
};
use toolgate_testkit::TestClock;
use uuid::Uuid;

const SESSION: SessionId = SessionId::new(Uuid::from_u128(9));

/// A model that is asked about pieces: says how many it has read, or what a test prepared for it.
#[derive(Clone)]
struct Reader {
    name: ModelName,
    asked: Arc<Mutex<Vec<ModelRequest>>>,
    failures: Arc<Mutex<VecDeque<Option<ModelErrorKind>>>>,
    hangs: Arc<AtomicUsize>,
    side_by_side: Arc<(AtomicUsize, AtomicUsize)>,
    usage: Option<u64>,
}

impl Reader {
    fn new(name: &str) -> Self {
        Self {
            name: ModelName::new("test", name),
            asked: Arc::default(),
            failures: Arc::default(),
            hangs: Arc::new(AtomicUsize::new(usize::MAX)),
            side_by_side: Arc::default(),
            usage: Some(10),
        }
    }

    fn asked(&self) -> usize {
        self.asked.lock().expect("whole").len()
    }

    fn failing(self, kinds: impl IntoIterator<Item = Option<ModelErrorKind>>) -> Self {
        *self.failures.lock().expect("whole") = kinds.into_iter().collect();
        self
    }

    /// Does not answer from this question on.
    fn hang_from(&self, question: usize) {
        self.hangs.store(question, Ordering::SeqCst);
    }
}

impl Model for Reader {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let number = {
            let mut asked = self.asked.lock().expect("whole");
            asked.push(request.clone());
            asked.len()
        };
        if number > self.hangs.load(Ordering::SeqCst) {
            return stream::pending().boxed();
        }
        if let Some(Some(kind)) = self.failures.lock().expect("whole").pop_front() {
            let error = ModelError::new(kind, self.name.clone(), "key sk-hunter2 refused");
            return stream::once(async { Err(error) }).boxed();
        }
        let question = request.messages[0]
            .text()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        let mut reply = Reply::new(Message::assistant(format!(
            "{} says: {question}",
            self.name.model
        )));
        reply.usage = self.usage.map(|input| Usage {
            input,
            ..Usage::default()
        });
        let (running, peak) = &*self.side_by_side;
        let slowly = async move {
            peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(Delta::Done(Box::new(reply)))
        };
        stream::iter([Ok(Delta::Text("…".into()))])
            .chain(stream::once(slowly))
            .boxed()
    }
}

/// A session that is driven by hand, iteration by iteration.
struct Rounds {
    recursive: RecursiveStrategy,
    registry: Registry,
    store: StoreHandle,
    clock: TestClock,
    run: u64,
    iteration: u32,
    usage: u64,
    budgets: Budgets,
}

impl Rounds {
    fn new(builder: RecursiveBuilder) -> Self {
        Self::over(builder, StoreHandle::new(MemoryStore::new()))
    }

    fn over(builder: RecursiveBuilder, store: StoreHandle) -> Self {
        let recursive = builder.build();
        let registry = Registry::new();
        recursive.install(&registry).expect("free");
        Self {
            recursive,
            registry,
            store,
            clock: TestClock::new(),
            run: 0,
            iteration: 0,
            usage: 0,
            budgets: Budgets::default(),
        }
    }

    async fn prepare(&self, request: &mut ModelRequest) {
        use toolgate_core::Clock;
        let mut events = Vec::new();
        let mut layers = Vec::new();
        let payer = Payer {
            session: Some(SESSION),
            ..Payer::default()
        };
        let service = BillingService::new(self.store.clone(), self.budgets.clone()).paid_by(payer);
        let mut round = RequestContext {
            iteration: self.iteration,
            session: SESSION,
            run: self.run,
            store: &self.store,
            now: self.clock.now(),
            spending: &ModelBilling::new(service, Arc::new(self.clock.clone())),
            request,
            events: &mut events,
            layers: &mut layers,
        };
        self.recursive
            .prepare_request(&mut round)
            .await
            .expect("prepares");
    }

    async fn dispatcher(&self) -> Dispatcher {
        let stack = Stack::over(self.registry.clone())
            .build()
            .expect("in order");
        let builder = Dispatcher::builder(stack)
            .session(SESSION)
            .store(self.store.clone());
        builder
            .clock(self.clock.clone())
            .take_over()
            .build()
            .await
            .expect("free")
    }

    fn turn(&self, calls: Vec<ToolRequest>) -> TurnRequest {
        TurnRequest::new(toolgate_testkit::plain_view(&self.registry), calls)
            .iteration(self.iteration)
    }

    async fn calls(&self, calls: Vec<ToolRequest>) -> TurnReport {
        self.prepare(&mut ModelRequest::default()).await;
        let turn = self.turn(calls);
        self.dispatcher()
            .await
            .open_turn(turn)
            .await
            .expect("opens")
            .run()
            .await
            .expect("runs")
    }

    async fn settled(&self, report: &TurnReport) -> (StrategyAction, Vec<SessionEvent>) {
        use toolgate_core::Clock;
        let mut events = Vec::new();
        let mut turned = TurnContext {
            iteration: self.iteration,
            session: SESSION,
            run: self.run,
            store: &self.store,
            now: self.clock.now(),
            report,
            usage: Usage {
                input: self.usage,
                ..Usage::default()
            },
            events: &mut events,
        };
        let onward = self
            .recursive
            .turn_settled(&mut turned)
            .await
            .expect("settles");
        (onward, events)
    }

    async fn round(
        &mut self,
        calls: Vec<ToolRequest>,
    ) -> (Vec<String>, StrategyAction, Vec<SessionEvent>) {
        let report = self.calls(calls).await;
        let (onward, events) = self.settled(&report).await;
        self.iteration += 1;
        (texts(&report), onward, events)
    }

    async fn one(&self, tool: &str, arguments: Value) -> String {
        texts(&self.calls(vec![call(tool, arguments)]).await).remove(0)
    }
}

fn texts(report: &TurnReport) -> Vec<String> {
    report
        .results
        .iter()
        .map(|result| result.model_text().unwrap_or_default().into_owned())
        .collect()
}

fn call(tool: &str, arguments: Value) -> ToolRequest {
    ToolRequest::from_json("c", tool, arguments)
}

fn answered(tool: &str, text: &str) -> Arc<Message> {
    let call_id = "c".to_owned();
    let tool = tool.to_owned();
    let text = text.to_owned();
    let answer = ToolAnswer {
        call_id,
        tool,
        text,
        is_error: false,
        media: Vec::new(),
    };
    Arc::new(Message::new(
        Role::Tool,
        vec![MessagePart::from(PartContent::Result(answer))],
    ))
}

fn answer(text: &str) -> ToolRequest {
    call("set_answer", json!({ "answer": text }))
}

/// Numbered lines, with one that is different.
fn haystack() -> String {
    let lines = (1..=1000).map(|n| {
        if n == 700 {
            "der Schlüssel ist 4711\n".to_owned()
        } else {
            format!("line {n}\n")
        }
    });
    lines.collect()
}

fn alerts(events: &[SessionEvent]) -> Vec<(String, u8)> {
    let alert = |event: &SessionEvent| match event {
        SessionEvent::BudgetAlert(alert) => Some((alert.budget.clone(), alert.percent)),
        _ => None,
    };
    events.iter().filter_map(alert).collect()
}

#[tokio::test]
async fn the_coordinator_gets_instructions_and_never_the_documents() {
    let rounds =
        Rounds::new(RecursiveStrategy::builder(haystack(), Reader::new("r")).max_iterations(7));
    let mut request = ModelRequest {
        instructions: Some("Be brief.".into()),
        ..ModelRequest::default()
    };
    rounds.prepare(&mut request).await;
    let text = request.instructions.clone().expect("told");
    assert!(
        text.starts_with("Be brief.\n\n# Working over a large context"),
        "{text}"
    );
    assert!(
        text.contains("\n- context: ") && text.contains("at most 7 iterations"),
        "{text}"
    );
    assert!(!text.contains("4711"), "{text}");
    let mut again = ModelRequest {
        instructions: Some("Be brief.".into()),
        ..ModelRequest::default()
    };
    rounds.prepare(&mut again).await;
    assert_eq!(
        again.instructions, request.instructions,
        "what a provider caches stays the same"
    );
}

#[tokio::test]
async fn peek_shows_size_head_and_tail_or_a_list_of_documents() {
    let rounds = Rounds::new(RecursiveStrategy::builder(haystack(), Reader::new("r")));
    let text = rounds.one("peek", json!({})).await;
    assert!(
        text.starts_with("context: 8908 bytes, 1000 lines\n\nline 1\nline 2\n"),
        "{text}"
    );
    assert!(
        text.ends_with("line 1000\n") && text.contains("[… 6908 bytes …]"),
        "{text}"
    );
    let documents = Documents::from("ab").with_text("b.txt", "").expect("free");
    let rounds = Rounds::new(RecursiveStrategy::builder(documents, Reader::new("r")));
    assert_eq!(
        rounds.one("peek", json!({})).await,
        "2 documents, 2 bytes:\n- context: 2 bytes, 1 lines\n- b.txt: 0 bytes, 0 lines"
    );
    assert_eq!(
        rounds.one("peek", json!({ "document": "context" })).await,
        "context: 2 bytes, 1 lines\n\nab"
    );
    assert!(
        rounds
            .one("peek", json!({ "document": "c" }))
            .await
            .contains("There are: context, b.txt.")
    );
}

#[tokio::test]
async fn search_finds_words_and_patterns_with_positions_and_a_limit() {
    let rounds = Rounds::new(RecursiveStrategy::builder(haystack(), Reader::new("r")));
    let found = rounds
        .one(
            "search",
            json!({ "query": "schlüssel", "ignore_case": true }),
        )
        .await;
    assert!(
        found.starts_with("context, byte 6187, line 700: …"),
        "{found}"
    );
    assert!(
        found.contains("der Schlüssel ist 4711 line 701") && found.ends_with("\nThat is all."),
        "{found}"
    );
    let many = rounds
        .one(
            "search",
            json!({ "query": "^line \\d+0$", "regex": true, "limit": 3 }),
        )
        .await;
    assert_eq!(many.lines().count(), 4, "{many}");
    let next = many
        .lines()
        .last()
        .and_then(|line| line.rsplit(' ').next())
        .and_then(|n| n.strip_suffix('.'));
    let next: usize = next
        .and_then(|n| n.parse().ok())
        .expect("says where to continue");
    let more = rounds
        .one(
            "search",
            json!({ "query": "^line \\d+0$", "regex": true, "from": next, "limit": 1 }),
        )
        .await;
    assert!(
        more.starts_with(&format!("context, byte {next}, line 40: ")),
        "{more}"
    );
    assert_eq!(
        rounds.one("search", json!({ "query": "line 1.0" })).await,
        "Nothing was found.",
        "words, not a pattern"
    );
    for bad in ["(", "((a{999}){999}){999}", ""] {
        let refused = rounds
            .one("search", json!({ "query": bad, "regex": true }))
            .await;
        assert!(refused.starts_with("The "), "{bad}: {refused}");
    }
}

#[tokio::test]
async fn slice_reads_by_bytes_or_lines_and_cuts_no_character() {
    let rounds =
        Rounds::new(RecursiveStrategy::builder(haystack(), Reader::new("r")).slice_bytes(64));
    let text = rounds
        .one("slice", json!({ "first_line": 700, "last_line": 700 }))
        .await;
    assert_eq!(
        text,
        "context, bytes 6183..6207, lines 700..700:\n\nder Schlüssel ist 4711\n"
    );
    let inside = rounds
        .one("slice", json!({ "start": 6187, "end": 6192 }))
        .await;
    assert!(
        inside.ends_with("\n\nSchl"),
        "half of a character is left out: {inside}"
    );
    let cut = rounds.one("slice", json!({})).await;
    assert!(
        cut.ends_with("[Truncated; continue with `start` 64.]"),
        "{cut}"
    );
    for bad in [
        json!({ "start": 9, "end": 9 }),
        json!({ "start": 99999 }),
        json!({ "start": 1, "first_line": 1 }),
    ] {
        let refused = rounds.one("slice", bad.clone()).await;
        assert!(
            refused.starts_with("There is nothing there") || refused.starts_with("Give `start`"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn a_question_goes_to_the_model_of_its_weight_with_the_piece_and_nothing_else() {
    let light = Reader::new("light");
    let heavy = Reader::new("heavy");
    let builder = RecursiveStrategy::builder(haystack(), light.clone())
        .model(TaskComplexity::Heavy, heavy.clone());
    let rounds = Rounds::new(builder);
    let piece = json!({ "question": "Which key?", "first_line": 699, "last_line": 701 });
    assert_eq!(
        rounds.one("delegate", piece).await,
        "light says: Which key?"
    );
    let hard = json!({ "question": "Why?", "start": 0, "end": 10, "weight": "heavy" });
    assert_eq!(rounds.one("delegate", hard).await, "heavy says: Why?");
    let asked = light.asked.lock().expect("whole")[0].clone();
    let text = asked.messages[0].text();
    assert!(
        text.ends_with("line 699\nder Schlüssel ist 4711\nline 701\n"),
        "{text}"
    );
    assert_eq!(
        (asked.view.len(), asked.weight),
        (0, Some(TaskComplexity::Light))
    );
    assert_eq!(heavy.asked(), 1);
}

#[tokio::test]
async fn a_piece_that_is_too_large_is_rejected_before_a_model_is_asked() {
    let reader = Reader::new("r");
    let rounds =
        Rounds::new(RecursiveStrategy::builder(haystack(), reader.clone()).delegate_bytes(100));
    let refused = rounds.one("delegate", json!({ "question": "?" })).await;
    assert!(
        refused.starts_with("The piece has 8908 bytes; 100 are allowed."),
        "{refused}"
    );
    assert_eq!(reader.asked(), 0);
}

#[tokio::test]
async fn a_batch_is_answered_concurrently_in_order_and_each_fails_alone() {
    let reader = Reader::new("r").failing([None, Some(ModelErrorKind::Auth)]);
    let rounds = Rounds::new(RecursiveStrategy::builder(haystack(), reader.clone()).at_a_time(2));
    let ask = |n: u32| json!({ "question": format!("Q{n}"), "start": n, "end": 50 });
    let mut queries: Vec<Value> = (0..6).map(ask).collect();
    queries.push(json!({ "question": "Q6", "document": "other" }));
    queries.push(ask(0));
    let text = rounds
        .one("delegate_batch", json!({ "queries": queries }))
        .await;
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines[0], "[1] r says: Q0");
    assert_eq!(
        lines[1],
        "[2] (no answer) The question was not answered: the key was not accepted."
    );
    assert_eq!(lines[5], "[6] r says: Q5");
    assert!(
        lines[6].starts_with("[7] (no answer) There is no document named \"other\"."),
        "{text}"
    );
    assert_eq!(
        lines[7], "[8] r says: Q0",
        "the same question is asked once"
    );
    assert_eq!(reader.asked(), 6);
    assert_eq!(reader.side_by_side.1.load(Ordering::SeqCst), 2);
    assert!(
        !text.contains("hunter2"),
        "the provider's text is for the operator"
    );
}

#[tokio::test]
async fn the_progress_of_a_batch_is_reported() {
    let rounds = Rounds::new(RecursiveStrategy::builder(haystack(), Reader::new("r")));
    rounds.prepare(&mut ModelRequest::default()).await;
    let dispatcher = rounds.dispatcher().await;
    let queries: Vec<Value> = (0..3)
        .map(|n| json!({ "question": "Q", "start": n, "end": 50 }))
        .collect();
    let turn = rounds.turn(vec![call("delegate_batch", json!({ "queries": queries }))]);
    dispatcher
        .open_turn(turn)
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    let events = rounds.store.events(SESSION, 0, 100).await.expect("reads");
    let seen: Vec<_> = events
        .iter()
        .filter_map(|event| match event.body() {
            EventBody::Tool(_, ToolEvent::ToolExecutionProgress { progress }) => progress.current,
            _ => None,
        })
        .collect();
    assert_eq!(seen, [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_question_that_was_answered_is_not_asked_again_in_the_run() {
    let reader = Reader::new("r");
    let mut rounds = Rounds::new(RecursiveStrategy::builder(haystack(), reader.clone()));
    let ask = || json!({ "question": "Q", "start": 0, "end": 50 });
    assert_eq!(
        rounds.one("delegate", ask()).await,
        rounds.one("delegate", ask()).await
    );
    assert_eq!(reader.asked(), 1);
    rounds
        .one(
            "delegate",
            json!({ "question": "Q", "start": 0, "end": 51 }),
        )
        .await;
    assert_eq!(reader.asked(), 2, "about another piece");
    rounds.run = 4;
    rounds.one("delegate", ask()).await;
    assert_eq!(reader.asked(), 3, "in another run");
}

#[tokio::test]
async fn a_failed_question_can_be_asked_again() {
    let reader = Reader::new("r").failing([Some(ModelErrorKind::Overloaded)]);
    let rounds =
        Rounds::new(RecursiveStrategy::builder(haystack(), reader.clone()).max_tokens(2000));
    let ask = || json!({ "question": "Q", "start": 0, "end": 50 });
    assert_eq!(
        rounds.one("delegate", ask()).await,
        "The question was not answered: the provider is overloaded."
    );
    assert_eq!(
        rounds.one("delegate", ask()).await,
        "r says: Q",
        "the reservation of the first is released"
    );
}

#[tokio::test]
async fn the_answer_ends_the_run_and_one_that_is_not_ready_does_not() {
    let mut rounds = Rounds::new(RecursiveStrategy::builder(haystack(), Reader::new("r")));
    let early = call(
        "set_answer",
        json!({ "answer": "perhaps 1", "ready": false }),
    );
    let (texts, onward, _) = rounds
        .round(vec![call("note", json!({ "text": "saw it" })), early])
        .await;
    assert_eq!(
        (texts, onward),
        (
            vec![
                "Note 1 is kept.".into(),
                "Stored as the best answer so far.".into()
            ],
            StrategyAction::Continue
        )
    );
    rounds.usage = 40;
    let (_, onward, events) = rounds
        .round(vec![
            call("peek", json!({})),
            call("peek", json!({})),
            answer("4711"),
        ])
        .await;
    assert_eq!(onward, StrategyAction::Finish("4711".into()));
    let iteration = SessionEvent::RecursiveIteration {
        iteration: 2,
        max: 20,
        ready: true,
        tokens: 40,
        summary: "peek ×2, set_answer".into(),
        scratchpad: "saw it".into(),
        budget: 10,
    };
    assert_eq!(events, [iteration]);
}

#[tokio::test]
async fn the_last_of_several_answers_counts() {
    let mut rounds = Rounds::new(RecursiveStrategy::builder(haystack(), Reader::new("r")));
    let (_, onward, _) = rounds.round(vec![answer("a"), answer("b")]).await;
    assert_eq!(onward, StrategyAction::Finish("b".into()));
}

#[tokio::test]
async fn at_75_and_90_percent_the_coordinator_and_the_bus_are_notified_once() {
    let mut rounds =
        Rounds::new(RecursiveStrategy::builder(haystack(), Reader::new("r")).max_iterations(20));
    let mut told = Vec::new();
    let mut said = Vec::new();
    for round in 1..=20 {
        let (texts, onward, events) = rounds
            .round(vec![
                call("peek", json!({})),
                call("note", json!({ "text": "x" })),
            ])
            .await;
        told.extend(
            texts
                .iter()
                .filter(|text| text.contains("[Used so far: "))
                .map(|_| round),
        );
        said.extend(
            alerts(&events)
                .into_iter()
                .map(|(budget, percent)| (round, budget, percent)),
        );
        assert_eq!(
            matches!(onward, StrategyAction::Finish(_)),
            round == 20,
            "{round}"
        );
    }
    assert_eq!(told, [15, 18]);
    let rounds = |at: u32, percent: u8| (at, "recursive iterations".to_owned(), percent);
    assert_eq!(said, [rounds(15, 75), rounds(18, 90), rounds(20, 100)]);
}

#[tokio::test]
async fn a_jump_reports_every_threshold_it_passes() {
    let mut rounds =
        Rounds::new(RecursiveStrategy::builder(haystack(), Reader::new("r")).max_tokens(1000));
    rounds.usage = 950;
    let (_, onward, events) = rounds.round(vec![call("peek", json!({}))]).await;
    assert_eq!(
        alerts(&events),
        [
            ("recursive tokens".to_owned(), 75),
            ("recursive tokens".to_owned(), 90)
        ]
    );
    assert_eq!(onward, StrategyAction::Continue);
    let (texts, ..) = rounds.round(vec![call("peek", json!({}))]).await;
    assert!(texts[0].ends_with(
        "[Used so far: 95 % of the tokens (950 of 1000). Finish soon and call set_answer with what you know.]"
    ));
}

#[tokio::test]
async fn when_a_limit_is_reached_the_best_answer_is_returned_and_marked() {
    let finish = async |calls: Vec<ToolRequest>| {
        let mut rounds =
            Rounds::new(RecursiveStrategy::builder(haystack(), Reader::new("r")).max_tokens(1000));
        rounds.usage = 1000;
        rounds.round(calls).await.1
    };
    let best = call(
        "set_answer",
        json!({ "answer": "perhaps 1", "ready": false }),
    );
    let marked = "This answer is incomplete: the limit of tokens of this run is reached.";
    assert_eq!(
        finish(vec![best]).await,
        StrategyAction::Finish(format!("{marked}\n\nperhaps 1"))
    );
    let note = call("note", json!({ "text": "saw it" }));
    assert_eq!(
        finish(vec![note]).await,
        StrategyAction::Finish(format!("{marked} Notes so far:\n\nsaw it"))
    );
    assert_eq!(
        finish(vec![]).await,
        StrategyAction::Finish(format!("{marked} There are no findings."))
    );
    assert_eq!(
        finish(vec![answer("4711")]).await,
        StrategyAction::Finish("4711".into()),
        "an existing answer is complete"
    );
}

#[tokio::test]
async fn questions_that_do_not_fit_the_tokens_are_not_asked_however_many_come_at_once() {
    let mut reader = Reader::new("r");
    reader.usage = None;
    let builder = RecursiveStrategy::builder(haystack(), reader.clone())
        .answer_tokens(100)
        .max_tokens(1000)
        .at_a_time(64);
    let rounds = Rounds::new(builder);
    let queries: Vec<Value> = (0..50)
        .map(|n| json!({ "question": "Q", "start": n, "end": n + 50 }))
        .collect();
    let text = rounds
        .one("delegate_batch", json!({ "queries": queries }))
        .await;
    let refused = text.matches("tokens are left, too few for this").count();
    assert_eq!((reader.asked(), refused), (4, 46), "{text}");
}

#[tokio::test]
async fn when_the_time_limit_is_reached_the_run_ends_without_waiting() {
    let reader = Reader::new("r");
    reader.hang_from(0);
    let mut rounds = Rounds::new(
        RecursiveStrategy::builder(haystack(), reader).max_time(Duration::from_secs(60)),
    );
    rounds.prepare(&mut ModelRequest::default()).await;
    let clock = rounds.clock.clone();
    let turn = rounds.turn(vec![call(
        "delegate",
        json!({ "question": "Q", "start": 0, "end": 9 }),
    )]);
    let running = rounds
        .dispatcher()
        .await
        .open_turn(turn)
        .await
        .expect("opens");
    let (report, ()) = tokio::join!(running.run(), async {
        while clock.sleeper_count() < 2 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(61));
    });
    let report = report.expect("runs");
    assert_eq!(texts(&report), ["The time limit of this run is reached."]);
    let (onward, _) = rounds.settled(&report).await;
    assert!(
        matches!(onward, StrategyAction::Finish(text) if text.contains("the limit of time of this run"))
    );
    rounds.iteration += 1;
}

#[tokio::test]
async fn a_run_that_was_lost_in_a_batch_repeats_no_question_that_was_answered() {
    let store = StoreHandle::new(MemoryStore::new());
    let queries: Vec<Value> = (0..6)
        .map(|n| json!({ "question": format!("Q{n}"), "start": n, "end": 50 }))
        .collect();
    let batch = call("delegate_batch", json!({ "queries": queries }));
    let reader = Reader::new("r");
    reader.hang_from(3);
    let turn = {
        let lost = Rounds::over(
            RecursiveStrategy::builder(haystack(), reader.clone()).at_a_time(1),
            store.clone(),
        );
        lost.calls(vec![call("note", json!({ "text": "before" }))])
            .await;
        let dispatcher = lost.dispatcher().await;
        let run = dispatcher
            .open_turn(lost.turn(vec![batch]))
            .await
            .expect("opens");
        let turn = run.handle().turn();
        let running = run.run();
        tokio::pin!(running);
        while reader.asked() < 4 {
            tokio::select! {
                biased;
                _ = &mut running => panic!("it hangs"),
                () = tokio::task::yield_now() => {}
            }
        }
        turn
    };
    let other = Reader::new("r");
    let again = Rounds::over(
        RecursiveStrategy::builder(haystack(), other.clone()).at_a_time(1),
        store,
    );
    // As a session does before it resumes a turn.
    again.prepare(&mut ModelRequest::default()).await;
    let run = again
        .dispatcher()
        .await
        .resume(turn, toolgate_testkit::plain_view(&again.registry))
        .await
        .expect("resumes");
    let report = run.run().await.expect("runs");
    assert_eq!(report.results[0].status(), Some(Status::Ok));
    let lines: Vec<String> = texts(&report)[0]
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    let expected: Vec<String> = (0..6)
        .map(|n| format!("[{}] r says: Q{n}", n + 1))
        .collect();
    assert_eq!(lines, expected);
    assert_eq!(other.asked(), 3, "three were answered before");
    let (_, events) = again.settled(&report).await;
    let Some(SessionEvent::RecursiveIteration {
        tokens, scratchpad, ..
    }) = events.last()
    else {
        panic!("{events:?}")
    };
    assert_eq!(
        (*tokens, scratchpad.as_str()),
        (60, "before"),
        "the usage and notes of the lost process count here"
    );
}

#[tokio::test]
async fn questions_are_charged_to_the_session_and_not_asked_when_its_budget_is_spent() {
    let store = StoreHandle::new(MemoryStore::new());
    let rule = BudgetRule::new(
        "trial",
        BudgetScope::Session,
        BudgetPeriod::Total,
        BudgetUnit::Requests,
        2,
    );
    let reader = Reader::new("r").failing([Some(ModelErrorKind::RateLimited)]);
    let builder = RecursiveStrategy::builder(haystack(), reader.clone()).at_a_time(1);
    let mut rounds = Rounds {
        budgets: Budgets::new([rule]),
        ..Rounds::over(builder, store.clone())
    };
    let queries: Vec<Value> = (0..5)
        .map(|n| json!({ "question": format!("Q{n}"), "start": n, "end": 50 }))
        .collect();
    let (texts, _, events) = rounds
        .round(vec![call("delegate_batch", json!({ "queries": queries }))])
        .await;
    let lines: Vec<&str> = texts[0].lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(
        lines[0], "[1] (no answer) The question was not answered: too many requests.",
        "rejected, so not charged"
    );
    assert_eq!(lines[1..3], ["[2] r says: Q1", "[3] r says: Q2"]);
    assert!(
        lines[3..]
            .iter()
            .all(|line| line.contains("The question was not asked: the budget does not allow it."))
    );
    assert_eq!(reader.asked(), 3);
    let told = alerts(&events)
        .into_iter()
        .filter(|(budget, _)| budget.starts_with("trial"));
    assert_eq!(
        told.map(|(_, percent)| percent).collect::<Vec<_>>(),
        [50, 75, 90, 100],
        "each threshold is reported once"
    );
    assert!(
        store
            .charges(ChargeFilter::default())
            .await
            .expect("reads")
            .is_empty(),
        "nothing stays reserved"
    );
}

#[tokio::test]
async fn without_the_strategy_its_tools_say_so() {
    let rounds = Rounds::new(RecursiveStrategy::builder("text", Reader::new("r")));
    let turn = rounds.turn(vec![call("peek", json!({}))]);
    let report = rounds
        .dispatcher()
        .await
        .open_turn(turn)
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!(
        texts(&report),
        ["This tool works only in a session that uses the recursive strategy."]
    );
}

#[tokio::test]
async fn notes_are_bounded_and_repeated_when_the_conversation_is_compacted() {
    let rounds = Rounds::new(RecursiveStrategy::builder("text", Reader::new("r")));
    let kept = rounds
        .one("note", json!({ "text": "the key is near" }))
        .await;
    assert!(
        rounds
            .one("note", json!({ "text": "x".repeat(32 * 1024) }))
            .await
            .starts_with("A note must not be empty")
    );
    assert!(
        rounds
            .one("note", json!({ "text": " " }))
            .await
            .starts_with("A note must not be empty")
    );
    let mut request = ModelRequest {
        messages: vec![answered("note", &kept)],
        ..ModelRequest::default()
    };
    rounds.prepare(&mut request).await;
    assert!(
        !request
            .instructions
            .expect("told")
            .contains("the key is near"),
        "it is in the conversation"
    );
    let mut request = ModelRequest {
        messages: vec![answered("note", "Note 2 is kept.")],
        ..ModelRequest::default()
    };
    rounds.prepare(&mut request).await;
    assert!(
        request
            .instructions
            .expect("told")
            .ends_with("Your notes so far:\nthe key is near")
    );
}
