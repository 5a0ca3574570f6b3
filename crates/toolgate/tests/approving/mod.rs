//! What the tests of approvals share: tools that write down what they did, and a world that can be copied and edited.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test uses its part, and a test has no public items"
)]

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use toolgate::{
    Answer, ApprovalFilter, ApprovalRequest, Approvals, Batch, CallId, Event, KeyKind, Keyring,
    Position, Post, PostError, Question, Record, RecordKey, Resource, SecretKey, SessionId, Store,
    StoreHandle, ToolName, TurnEvent,
    layers::{Approval, Validate},
    prelude::*,
};
use toolgate_testkit::{CountingIds, TestClock};

/// A store, a clock, keys and tools. Two of them that do the same have the same ids.
#[derive(Clone)]
pub struct World {
    pub store: MemoryStore,
    pub clock: TestClock,
    pub ring: Keyring,
    pub registry: Registry,
    pub ran: Arc<Mutex<Vec<Value>>>,
    pub session: SessionId,
}

pub fn ring(id: &str, byte: u8) -> Keyring {
    Keyring::new(key(id, byte))
}

pub fn key(id: &str, byte: u8) -> SecretKey {
    SecretKey::new(id.parse().expect("a name"), KeyKind::HmacSha256, [byte; 32])
}

impl World {
    pub fn new() -> Self {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let session = "00000000-0000-0000-0000-0000000000aa"
            .parse()
            .expect("an id");
        let registry = tools(&ran, "Pays somebody.");
        Self {
            store: MemoryStore::new(),
            clock: TestClock::new(),
            ring: ring("k1", 1),
            registry,
            ran,
            session,
        }
    }

    /// The same world with other records in its store.
    pub fn over(&self, store: MemoryStore) -> Self {
        Self {
            store,
            ..self.clone()
        }
    }

    pub fn handle(&self) -> StoreHandle {
        StoreHandle::new(self.store.clone())
    }

    pub fn view(&self) -> View {
        View::of(&self.registry)
    }

    pub fn desk(&self) -> Approvals {
        Approvals::new(self.handle())
            .keyring(self.ring.clone())
            .clock(self.clock.clone())
    }

    /// Asks about everything that pays, and takes only what was signed.
    pub fn asking(&self) -> Approval {
        let pays = |call: &Call| (call.tool == "pay").then(|| "it costs money".to_owned());
        Approval::when(pays).keyring(self.ring.clone())
    }

    pub fn stack(&self, approval: Approval) -> Stack {
        Stack::over(self.registry.clone())
            .layer(Validate::new())
            .layer(approval)
            .build()
            .expect("in order")
    }

    /// A process that drives the session.
    pub async fn process(&self, stack: Stack) -> Dispatcher {
        let builder = Dispatcher::builder(stack)
            .session(self.session)
            .store(self.store.clone());
        let builder = builder
            .clock(self.clock.clone())
            .ids(CountingIds::new())
            .keyring(self.ring.clone());
        // The process before it is taken to be lost.
        builder.take_over().build().await.expect("builds")
    }

    /// A turn with one payment, up to the question about it.
    pub async fn asked(&self, stack: Stack) -> (Dispatcher, TurnReport, ApprovalRequest) {
        let process = self.process(stack).await;
        let report = run(&process, self.view(), vec![pay("1", 5)]).await;
        let question = question(&report, 0);
        (process, report, question)
    }

    pub fn ran(&self) -> Vec<Value> {
        self.ran.lock().expect("whole").clone()
    }

    /// The codes of what was refused: in the log, and left for it.
    pub async fn refusals(&self) -> Vec<PostCode> {
        let events = self
            .store
            .events(self.session, 0, usize::MAX)
            .await
            .expect("reads");
        let logged = events.iter().filter_map(refused);
        let posts = self
            .store
            .posts(self.session, 0, usize::MAX)
            .await
            .expect("reads");
        let left = posts.iter().filter_map(|(_, post)| match post {
            Post::Refused { code, .. } => Some(*code),
            Post::Answer { .. } | Post::Result { .. } | Post::Interrupt { .. } => None,
        });
        logged.chain(left).collect()
    }

    /// A copy of the store in which somebody has edited the answer and the question.
    pub async fn edited(
        &self,
        turn: toolgate::TurnId,
        call: CallId,
        edit: impl FnOnce(&mut Answer, &mut ApprovalRequest),
    ) -> Self {
        let (mut records, copy) = (Vec::new(), MemoryStore::new());
        let read = async |key: RecordKey| {
            self.store
                .record(&key)
                .await
                .expect("reads")
                .expect("there")
        };
        let (Record::Answer(answer), Record::Question(question)) = (
            read(RecordKey::Answer(call, 0)).await,
            read(RecordKey::Question(call, 0)).await,
        ) else {
            panic!("these are records of other kinds")
        };
        let (mut answer, mut question) =
            (Answer::clone(&answer), ApprovalRequest::clone(&question));
        edit(&mut answer, &mut question);
        records.push((
            RecordKey::Requests(turn),
            read(RecordKey::Requests(turn)).await,
        ));
        records.push((RecordKey::Answer(call, 0), Record::Answer(Arc::new(answer))));
        records.push((
            RecordKey::Question(call, 0),
            Record::Question(Arc::new(question)),
        ));
        let events = self
            .store
            .events(self.session, 0, usize::MAX)
            .await
            .expect("reads");
        let batch = Batch {
            events,
            records,
            ..Batch::default()
        };
        copy.append(self.session, Position::unleased(0), batch)
            .await
            .expect("written");
        self.over(copy)
    }
}

fn refused(event: &Arc<Event>) -> Option<PostCode> {
    match event.body() {
        toolgate::EventBody::Turn(_, TurnEvent::PostRefused { code, .. }) => Some(*code),
        _ => None,
    }
}

/// `pay`, which costs money, and `look`, which does not.
pub fn tools(ran: &Arc<Mutex<Vec<Value>>>, about: &str) -> Registry {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Pay {
        amount: u32,
    }
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Look {}
    let registry = Registry::new();
    let seen = ran.clone();
    let pay = tool_fn("pay", about, move |input: Pay, _cx| {
        let seen = seen.clone();
        async move {
            seen.lock()
                .expect("whole")
                .push(json!({ "pay": input.amount }));
            Ok::<_, ToolError>(format!("paid {}", input.amount))
        }
    });
    registry.register(pay).expect("free");
    let seen = ran.clone();
    let look = tool_fn("look", "Looks.", move |_: Look, _cx| {
        let seen = seen.clone();
        async move {
            seen.lock().expect("whole").push(json!("look"));
            Ok::<_, ToolError>("seen")
        }
    });
    registry
        .register(look.annotated(Annotations::read_only()))
        .expect("free");
    registry
}

/// A file that a tool writes, with what it says about its path.
pub fn register_write(registry: &Registry, root: &std::path::Path, ran: &Arc<Mutex<Vec<Value>>>) {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Write {
        path: String,
        content: String,
    }
    let (root, seen) = (root.to_owned(), ran.clone());
    let write = tool_fn("write_file", "Writes a file.", move |input: Write, _cx| {
        let (root, seen) = (root.clone(), seen.clone());
        async move {
            seen.lock()
                .expect("whole")
                .push(json!({ "write": input.path }));
            std::fs::write(root.join(&input.path), input.content)
                .map_err(|_| ToolError::new("not written"))?;
            Ok::<_, ToolError>("written")
        }
    });
    let annotations = Annotations::default().with_resource(Resource::path("path"));
    registry
        .register(write.annotated(annotations))
        .expect("free");
}

pub fn pay(id: &str, amount: u32) -> ToolRequest {
    ToolRequest::json(id, "pay", json!({ "amount": amount }))
}

pub fn look(id: &str) -> ToolRequest {
    ToolRequest::json(id, "look", json!({}))
}

pub fn amount(amount: u32) -> Arguments {
    Arguments::try_from(json!({ "amount": amount })).expect("an object")
}

pub async fn run(process: &Dispatcher, view: View, calls: Vec<ToolRequest>) -> TurnReport {
    let request = TurnRequest::new(view, calls).principal("eve");
    process
        .open(request)
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs")
}

pub async fn resume(process: &Dispatcher, report: &TurnReport, view: View) -> TurnReport {
    process
        .resume(report.turn, view)
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs")
}

/// The question that a call waits with.
pub fn question(report: &TurnReport, at: usize) -> ApprovalRequest {
    match &report.results[at].waits_for {
        Some(Suspension::Decision(request)) => request.clone(),
        other => panic!(
            "nobody was asked: {other:?}, {:?}",
            report.results[at].outcome
        ),
    }
}

pub fn statuses(report: &TurnReport) -> Vec<Option<Status>> {
    report
        .results
        .iter()
        .map(toolgate::CallResult::status)
        .collect()
}

/// The code with which something was refused.
pub fn code<T: std::fmt::Debug>(refused: Result<T, PostError>) -> PostCode {
    refused.expect_err("refused").code().expect("with a code")
}

/// The token that went out with the open question about a call.
pub async fn token(desk: &Approvals, call: CallId) -> String {
    let rows = desk.pending(ApprovalFilter::of(call)).await.expect("lists");
    desk.token(&rows[0])
        .await
        .expect("reads")
        .expect("there are keys")
}

pub fn named(request: &ApprovalRequest) -> (Question, ToolName) {
    (request.into(), request.tool.clone())
}
