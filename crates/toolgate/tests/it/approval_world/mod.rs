//! Shared parts of the approval tests: tools that log their effects, and a world that can be copied
//! and edited.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test uses its part, and a test has no public items"
)]

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use toolgate::{
    Event, View,
    approval::{
        ApprovalAnswer, ApprovalRequest, ApprovalRequestRef, ApprovalService, KeyKind, Keyring,
        SecretKey,
    },
    event::TurnEvent,
    layers::{Approval, Validate},
    prelude::*,
    session::{DeliverError, Dispatcher, RejectCode, TurnReport, TurnRequest},
    stack::{Suspension, ToolRequest},
    store::{
        ApprovalFilter, EventStore, LogPosition, MailboxItem, MailboxStore, MemoryStore, RecordKey,
        RecordStore, StoreHandle, StoreRecord, WriteBatch,
    },
    tool::Resource,
    value::{CallId, SessionId, ToolName},
};
use toolgate_testkit::{CountingIds, TestClock};

/// A store, a clock, keys and tools. Two worlds with the same steps have the same ids.
#[derive(Clone)]
pub struct ApprovalWorld {
    pub store: MemoryStore,
    pub clock: TestClock,
    pub ring: Keyring,
    pub registry: Registry,
    pub ran: Arc<Mutex<Vec<Value>>>,
    pub session: SessionId,
}

pub use toolgate_testkit::keyring_with;

pub fn secret_key(id: &str, byte: u8) -> SecretKey {
    SecretKey::new(id.parse().expect("a name"), KeyKind::HmacSha256, [byte; 32])
}

impl ApprovalWorld {
    pub fn new() -> Self {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let session = "00000000-0000-0000-0000-0000000000aa"
            .parse()
            .expect("an id");
        let registry = build_tools(&ran, "Pays somebody.");
        Self {
            store: MemoryStore::new(),
            clock: TestClock::new(),
            ring: keyring_with("k1", 1),
            registry,
            ran,
            session,
        }
    }

    /// Returns the same world over another store.
    pub fn with_store(&self, store: MemoryStore) -> Self {
        Self {
            store,
            ..self.clone()
        }
    }

    pub fn handle(&self) -> StoreHandle {
        StoreHandle::new(self.store.clone())
    }

    pub fn view(&self) -> View {
        toolgate_testkit::plain_view(&self.registry)
    }

    pub fn approval_service(&self) -> ApprovalService {
        ApprovalService::new(self.handle())
            .keyring(self.ring.clone())
            .clock(self.clock.clone())
    }

    /// Builds an approval layer that asks about every payment and accepts only signed answers.
    pub fn asking_layer(&self) -> Approval {
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

    /// Opens the session, as a new process would.
    pub async fn open_process(&self, stack: Stack) -> Dispatcher {
        let builder = Dispatcher::builder(stack)
            .session(self.session)
            .store(self.store.clone());
        let builder = builder
            .clock(self.clock.clone())
            .ids(CountingIds::new())
            .keyring(self.ring.clone());
        // The previous process counts as dead, so its lease may be taken over.
        builder.take_over().build().await.expect("builds")
    }

    /// Runs a turn with one payment, up to its approval request.
    pub async fn run_until_asked(&self, stack: Stack) -> (Dispatcher, TurnReport, ApprovalRequest) {
        let process = self.open_process(stack).await;
        let report = run_turn(&process, self.view(), vec![pay_request("1", 5)]).await;
        let question = pending_request(&report, 0);
        (process, report, question)
    }

    pub fn effects(&self) -> Vec<Value> {
        self.ran.lock().expect("whole").clone()
    }

    /// Returns the codes of rejected inputs, in the log and in the mailbox.
    pub async fn rejection_codes(&self) -> Vec<RejectCode> {
        let events = self
            .store
            .events(self.session, 0, usize::MAX)
            .await
            .expect("reads");
        let logged = events.iter().filter_map(rejection_code);
        let posts = self
            .store
            .posts(self.session, 0, usize::MAX)
            .await
            .expect("reads");
        let left = posts.iter().filter_map(|(_, post)| match post {
            MailboxItem::Refused { code, .. } => Some(*code),
            MailboxItem::Answer { .. }
            | MailboxItem::Result { .. }
            | MailboxItem::Interrupt { .. }
            | MailboxItem::Unreadable { .. } => None,
        });
        logged.chain(left).collect()
    }

    /// Copies the store with an edited answer and approval request.
    pub async fn edit_records(
        &self,
        turn: toolgate::value::TurnId,
        call: CallId,
        edit: impl FnOnce(&mut ApprovalAnswer, &mut ApprovalRequest),
    ) -> Self {
        let mut records = Vec::new();
        let copy = MemoryStore::new();
        let read = async |key: RecordKey| {
            self.store
                .load_record(&key)
                .await
                .expect("reads")
                .expect("there")
        };
        let (StoreRecord::Answer(answer), StoreRecord::Question(question)) = (
            read(RecordKey::Answer(call, 0)).await,
            read(RecordKey::Question(call, 0)).await,
        ) else {
            panic!("these are records of other kinds")
        };
        let mut answer = ApprovalAnswer::clone(&answer);
        let mut question = ApprovalRequest::clone(&question);
        edit(&mut answer, &mut question);
        records.push((
            RecordKey::Requests(turn),
            read(RecordKey::Requests(turn)).await,
        ));
        records.push((
            RecordKey::Answer(call, 0),
            StoreRecord::Answer(Arc::new(answer)),
        ));
        records.push((
            RecordKey::Question(call, 0),
            StoreRecord::Question(Arc::new(question)),
        ));
        let events = self
            .store
            .events(self.session, 0, usize::MAX)
            .await
            .expect("reads");
        let batch = WriteBatch {
            events,
            records,
            ..WriteBatch::default()
        };
        copy.append(self.session, LogPosition::unleased(0), batch)
            .await
            .expect("written");
        self.with_store(copy)
    }
}

fn rejection_code(event: &Arc<Event>) -> Option<RejectCode> {
    match event.body() {
        toolgate::event::EventBody::Turn(_, TurnEvent::InputRejected { code, .. }) => Some(*code),
        _ => None,
    }
}

/// `pay`, which costs money, and `look`, which does not.
pub fn build_tools(ran: &Arc<Mutex<Vec<Value>>>, about: &str) -> Registry {
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
        .register(look.with_annotations(Annotations::read_only()))
        .expect("free");
    registry
}

/// Registers a tool that writes a file and declares its path.
pub fn register_write(registry: &Registry, root: &std::path::Path, ran: &Arc<Mutex<Vec<Value>>>) {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Write {
        path: String,
        content: String,
    }
    let root = root.to_owned();
    let seen = ran.clone();
    let write = tool_fn("write_file", "Writes a file.", move |input: Write, _cx| {
        let root = root.clone();
        let seen = seen.clone();
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
        .register(write.with_annotations(annotations))
        .expect("free");
}

pub fn pay_request(id: &str, amount: u32) -> ToolRequest {
    ToolRequest::from_json(id, "pay", json!({ "amount": amount }))
}

pub fn look_request(id: &str) -> ToolRequest {
    ToolRequest::from_json(id, "look", json!({}))
}

pub fn amount_arguments(amount: u32) -> Arguments {
    Arguments::try_from(json!({ "amount": amount })).expect("an object")
}

pub async fn run_turn(process: &Dispatcher, view: View, calls: Vec<ToolRequest>) -> TurnReport {
    let request = TurnRequest::new(view, calls).principal("eve");
    process
        .open_turn(request)
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs")
}

pub async fn resume_turn(process: &Dispatcher, report: &TurnReport, view: View) -> TurnReport {
    process
        .resume(report.turn, view)
        .await
        .expect("resumes")
        .run()
        .await
        .expect("runs")
}

/// Returns the approval request of a pending call.
pub fn pending_request(report: &TurnReport, at: usize) -> ApprovalRequest {
    match &report.results[at].waits_for {
        Some(Suspension::Decision(request)) => request.clone(),
        other => panic!(
            "no approval was requested: {other:?}, {:?}",
            report.results[at].outcome
        ),
    }
}

pub fn call_statuses(report: &TurnReport) -> Vec<Option<Status>> {
    report
        .results
        .iter()
        .map(toolgate::session::CallResult::status)
        .collect()
}

/// Returns the code of a rejected input.
pub fn code_of<T: std::fmt::Debug>(refused: Result<T, DeliverError>) -> RejectCode {
    refused.expect_err("rejected").code().expect("with a code")
}

/// Returns the token of the pending approval request of a call.
pub async fn pending_token(desk: &ApprovalService, call: CallId) -> String {
    let rows = desk
        .list_approvals(ApprovalFilter::for_call(call))
        .await
        .expect("lists");
    desk.request_token(&rows[0])
        .await
        .expect("reads")
        .expect("there are keys")
}

pub fn named_question(request: &ApprovalRequest) -> (ApprovalRequestRef, ToolName) {
    (request.into(), request.tool.clone())
}
