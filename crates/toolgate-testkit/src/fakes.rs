//! Calls, executors and stacks for testing a layer.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    Admission, ApprovalRequest, ApproverIdentity, Arguments, Band, BudgetAlert, Call, CallEnv,
    CallId, CallSeed, Executor, FileChange, IdentitySource, KeyKind, Keyring, Layer, LogLevel,
    MemoryStore, Next, NoProbe, Outcome, Probe, Progress, Registry, ResumeState, SecretKey,
    SessionId, Stack, StartPermit, StoreHandle, ToastNotice, ToolRequest, TurnId, TurnInfo,
    Verdict, View,
};
use uuid::Uuid;

use crate::TestClock;

/// Returns the view of every tool of a registry, as a stack without layers shows it.
pub fn plain_view(registry: &Registry) -> View {
    let stack = Stack::over(registry.clone()).build();
    let stack = stack.expect("a stack without layers is in order");
    View::for_stack(registry, &stack).expect("nothing transforms the tools")
}

/// Creates a keyring of one key whose secret repeats `byte`.
pub fn keyring_with(id: &str, byte: u8) -> Keyring {
    let id = id.parse().expect("a valid key id");
    Keyring::new(SecretKey::new(id, KeyKind::HmacSha256, [byte; 32]))
}

/// Creates the identity of an approver whom a program has authenticated.
pub fn authenticated(name: &str) -> ApproverIdentity {
    ApproverIdentity::new(name, IdentitySource::AuthenticatedToken)
}

/// Creates a call to `tool` without arguments.
pub fn call(tool: &str) -> Call {
    call_with(tool, json!({}))
}

/// Creates a call to `tool` with arguments, which have to be an object.
pub fn call_with(tool: &str, arguments: Value) -> Call {
    Call::new(seed(tool, arguments))
}

/// Creates the seed of a call to `tool`, to be changed before the call is made from it.
pub fn seed(tool: &str, arguments: Value) -> CallSeed {
    let arguments =
        Arguments::try_from(arguments).expect("the arguments of a test call are an object");
    let id = |n| Uuid::from_u128(n);
    CallSeed {
        id: CallId::new(id(3)),
        generation: 0,
        provider_call_id: "call_1".into(),
        emit_order: 0,
        turn: Arc::new(TurnInfo::new(SessionId::new(id(1)), TurnId::new(id(2)))),
        admission: Admission {
            tool: tool.into(),
            shown: None,
            arguments,
            refusal: None,
        },
        resumed: ResumeState::default(),
        attempts_before: 0,
        rehearsal: false,
        closing: None,
        cancel: CancellationToken::new(),
        env: CallEnv::detached(),
    }
}

/// Creates the seed of a call to a tool that `view` shows: the call knows the tool's spec and
/// annotations, and what the view rejects is rejected.
pub fn seed_for(view: &View, tool: &str, arguments: Value) -> CallSeed {
    let admission = view.admit_request(&ToolRequest::from_json("call_1", tool, arguments));
    CallSeed {
        admission,
        ..seed(tool, json!({}))
    }
}

/// Creates an environment with the test's clock, a fresh store, and no subscriber.
pub fn env_at(clock: &TestClock) -> CallEnv {
    CallEnv::new(
        Arc::new(clock.clone()),
        StoreHandle::new(MemoryStore::new()),
        Arc::new(NoProbe),
    )
}

/// A probe that keeps what layers report for people.
#[derive(Debug, Default)]
pub struct ReportProbe {
    toasts: Mutex<Vec<ToastNotice>>,
    files: Mutex<Vec<FileChange>>,
    alerts: Mutex<Vec<BudgetAlert>>,
}

impl ReportProbe {
    /// Creates a probe that has seen nothing.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns the call with this probe.
    pub fn attach(self: &Arc<Self>, seed: CallSeed) -> CallSeed {
        CallSeed {
            env: seed.env.with_probe(self.clone()),
            ..seed
        }
    }

    /// Returns the messages so far, oldest first.
    pub fn toasts(&self) -> Vec<ToastNotice> {
        self.toasts.lock().expect("not poisoned").clone()
    }

    /// Returns the budget alerts so far, oldest first.
    pub fn alerts(&self) -> Vec<BudgetAlert> {
        self.alerts.lock().expect("not poisoned").clone()
    }

    /// Returns the changed files so far, oldest first.
    pub fn files(&self) -> Vec<FileChange> {
        self.files.lock().expect("not poisoned").clone()
    }
}

impl Probe for ReportProbe {
    fn before_start(&self, _: &Call, _: bool) -> StartPermit {
        StartPermit::Now(Ok(()))
    }
    fn report_progress(&self, _: &Call, _: Progress) {}
    fn write_log(&self, _: &Call, _: LogLevel, _: &str) {}
    fn report_files(&self, _: &Call, changes: Vec<FileChange>, _: u64) {
        self.files.lock().expect("not poisoned").extend(changes);
    }
    fn show_toast(&self, _: &Call, toast: ToastNotice) {
        self.toasts.lock().expect("not poisoned").push(toast);
    }
    fn report_budget_alerts(&self, _: &Call, alerts: Vec<BudgetAlert>) {
        self.alerts.lock().expect("not poisoned").extend(alerts);
    }
}

/// A layer that asks for approval before every call.
#[derive(Debug, Clone, Copy)]
pub struct AskFirst;

impl Layer for AskFirst {
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

/// Creates an executor that answers every call with its arguments.
pub fn echo() -> EchoExecutor {
    EchoExecutor
}

/// The executor of [`echo`].
#[derive(Debug, Clone, Copy)]
pub struct EchoExecutor;

impl Executor for EchoExecutor {
    async fn execute(&self, call: Call) -> Outcome {
        Outcome::ok(call.arguments.as_json().as_value().clone())
    }
}

/// Builds a stack of one layer over [`echo`].
pub fn echo_under(layer: impl Layer) -> Stack {
    Stack::over(echo())
        .layer(layer)
        .build()
        .expect("a single layer is always in band order")
}

/// An executor that gives prepared answers, in order, and records the calls it receives.
///
/// After the last answer it behaves like [`echo`].
#[derive(Clone, Default)]
pub struct FakeExecutor(Arc<Mutex<FakeScript>>);

#[derive(Default)]
struct FakeScript {
    lines: VecDeque<FakeAnswer>,
    seen: Vec<Call>,
}

enum FakeAnswer {
    Answer(Outcome),
    Ask,
    Panic(&'static str),
    Hang,
}

impl FakeExecutor {
    /// Creates an executor without prepared answers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers the next call with this outcome.
    pub fn then(self, outcome: Outcome) -> Self {
        self.push_answer(FakeAnswer::Answer(outcome))
    }

    /// Asks for approval at the next call.
    pub fn then_ask(self) -> Self {
        self.push_answer(FakeAnswer::Ask)
    }

    /// Panics at the next call.
    pub fn then_panic(self, text: &'static str) -> Self {
        self.push_answer(FakeAnswer::Panic(text))
    }

    /// Never answers the next call.
    pub fn then_hang(self) -> Self {
        self.push_answer(FakeAnswer::Hang)
    }

    /// Returns the calls that arrived, in order.
    pub fn seen(&self) -> Vec<Call> {
        self.with_script(|script| script.seen.clone())
    }

    fn push_answer(self, line: FakeAnswer) -> Self {
        self.with_script(|script| script.lines.push_back(line));
        self
    }

    fn with_script<T>(&self, f: impl FnOnce(&mut FakeScript) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for FakeExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeExecutor")
            .field("seen", &self.seen().len())
            .finish_non_exhaustive()
    }
}

impl Executor for FakeExecutor {
    async fn execute(&self, call: Call) -> Outcome {
        let line = self.with_script(|script| {
            // Recorded before the answer: a call that panics or hangs was seen too.
            script.seen.push(call.clone());
            script.lines.pop_front()
        });
        match line {
            Some(FakeAnswer::Answer(outcome)) => outcome,
            Some(FakeAnswer::Ask) => Outcome::await_decision(ApprovalRequest::for_call(&call)),
            Some(FakeAnswer::Panic(text)) => panic!("{text}"),
            Some(FakeAnswer::Hang) => std::future::pending().await,
            None => Outcome::ok(call.arguments.as_json().as_value().clone()),
        }
    }
}
