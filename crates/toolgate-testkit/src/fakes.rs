//! Calls, executors and stacks for trying out a layer.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    Admission, ApprovalRequest, Arguments, Band, Call, CallId, CallSeed, Env, Executor, Layer,
    MemoryStore, Next, Outcome, Resumed, SessionId, Stack, StoreHandle, ToolRequest, TurnId,
    TurnInfo, Unwatched, Verdict, View,
};
use uuid::Uuid;

use crate::TestClock;

/// A call to `tool` without arguments.
pub fn call(tool: &str) -> Call {
    call_with(tool, json!({}))
}

/// A call to `tool` with arguments, which have to be an object.
pub fn call_with(tool: &str, arguments: Value) -> Call {
    Call::new(seed(tool, arguments))
}

/// Everything a call to `tool` is made from, for changing before it is made.
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
        resumed: Resumed::default(),
        attempts_before: 0,
        rehearsal: false,
        closing: None,
        cancel: CancellationToken::new(),
        env: Env::detached(),
    }
}

/// Everything a call of a tool that `view` shows is made from: the call knows the tool's spec and annotations, and
/// what the view refuses is refused.
pub fn seed_for(view: &View, tool: &str, arguments: Value) -> CallSeed {
    let admission = view.admit(&ToolRequest::json("call_1", tool, arguments));
    CallSeed {
        admission,
        ..seed(tool, json!({}))
    }
}

/// Surroundings with a clock that the test moves, a fresh store, and nobody listening.
pub fn env_at(clock: &TestClock) -> Env {
    Env::new(
        Arc::new(clock.clone()),
        StoreHandle::new(MemoryStore::new()),
        Arc::new(Unwatched),
    )
}

/// A layer that asks somebody before every call.
#[derive(Debug, Clone, Copy)]
pub struct AskFirst;

impl Layer for AskFirst {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        match next.decision(&call).map(|decision| &decision.verdict) {
            Some(Verdict::Approve | Verdict::ApproveWithEdits { .. }) => next.run(call).await,
            Some(Verdict::Deny { reason }) => Outcome::denied(reason.as_deref()),
            None => Outcome::ask(ApprovalRequest::about(&call)),
        }
    }

    fn band(&self) -> Band {
        Band::Decide
    }
}

/// An executor that answers every call with its arguments.
pub fn echo() -> Echo {
    Echo
}

/// See [`echo`].
#[derive(Debug, Clone, Copy)]
pub struct Echo;

impl Executor for Echo {
    async fn execute(&self, call: Call) -> Outcome {
        Outcome::ok(call.arguments.as_json().as_value().clone())
    }
}

/// A stack of one layer over [`echo`].
pub fn echo_under(layer: impl Layer) -> Stack {
    Stack::over(echo())
        .layer(layer)
        .build()
        .expect("one layer is always in order")
}

/// An executor that gives the answers a test wrote down, in order, and remembers what it was asked.
///
/// When the script is over it answers like [`echo`].
#[derive(Clone, Default)]
pub struct Scripted(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    lines: VecDeque<Line>,
    seen: Vec<Call>,
}

enum Line {
    Answer(Outcome),
    Ask,
    Panic(&'static str),
    Hang,
}

impl Scripted {
    /// An empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// Next, answer this.
    pub fn then(self, outcome: Outcome) -> Self {
        self.line(Line::Answer(outcome))
    }

    /// Next, ask for a decision.
    pub fn then_ask(self) -> Self {
        self.line(Line::Ask)
    }

    /// Next, panic.
    pub fn then_panic(self, text: &'static str) -> Self {
        self.line(Line::Panic(text))
    }

    /// Next, never answer.
    pub fn then_hang(self) -> Self {
        self.line(Line::Hang)
    }

    /// The calls that arrived, in order.
    pub fn seen(&self) -> Vec<Call> {
        self.script(|script| script.seen.clone())
    }

    fn line(self, line: Line) -> Self {
        self.script(|script| script.lines.push_back(line));
        self
    }

    fn script<T>(&self, f: impl FnOnce(&mut Script) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripted")
            .field("seen", &self.seen().len())
            .finish_non_exhaustive()
    }
}

impl Executor for Scripted {
    async fn execute(&self, call: Call) -> Outcome {
        let line = self.script(|script| {
            script.seen.push(call.clone());
            script.lines.pop_front()
        });
        match line {
            Some(Line::Answer(outcome)) => outcome,
            Some(Line::Ask) => Outcome::ask(ApprovalRequest::about(&call)),
            Some(Line::Panic(text)) => panic!("{text}"),
            Some(Line::Hang) => std::future::pending().await,
            None => Outcome::ok(call.arguments.as_json().as_value().clone()),
        }
    }
}
