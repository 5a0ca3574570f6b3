//! Helpers for the runtime's tests: a layer that asks for approval, tools that wait to be released,
//! and a checked transcript.
#![allow(unreachable_pub, reason = "a test has no public items")]

pub mod sessions;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore};
use toolgate_core::{
    Annotations, ApprovalId, ApprovalRequest, ApprovalRequestRef, Band, Call, Digest, Event, Layer,
    Matcher, Next, Outcome, Registry, Resource, Schema, SideEffect, Stack, Status, Suspension,
    ToolError, ToolRequest, ToolSpec, Verdict, View, tool_fn,
};
use toolgate_runtime::{Dispatcher, TurnReport};
use toolgate_testkit::{LifecycleChecker, LifecycleSummary};

/// Asks for approval of calls to tools whose name starts with `ask`.
pub struct Ask;

impl Layer for Ask {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        match next.decision_on(&call).map(|decision| &decision.verdict) {
            Some(Verdict::Approve | Verdict::ApproveWithEdits { .. }) => next.run(call).await,
            Some(Verdict::Deny { reason }) => Outcome::denied(reason.as_deref()),
            None => Outcome::await_decision(
                ApprovalRequest::for_call(&call)
                    .with_reason(format!("it says {}", call.arguments.as_json())),
            ),
        }
    }
    fn band(&self) -> Band {
        Band::Decide
    }
    fn matcher(&self) -> Option<&Matcher> {
        static MATCHER: std::sync::LazyLock<Matcher> =
            std::sync::LazyLock::new(|| Matcher::regex("^ask").expect("valid"));
        Some(&MATCHER)
    }
}

#[derive(Deserialize, Serialize, JsonSchema)]
pub struct Text {
    pub text: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct Write {
    #[allow(dead_code, reason = "read by the conflict key, through the schema")]
    pub path: String,
}

/// Counts what runs, and holds tools until they are released.
#[derive(Clone, Default)]
pub struct Probe {
    pub ran: Arc<AtomicUsize>,
    pub now: Arc<AtomicUsize>,
    pub peak: Arc<AtomicUsize>,
    pub entered: Arc<Notify>,
    pub gate: Arc<Gate>,
}

pub struct Gate(pub Semaphore);

impl Default for Gate {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

impl Probe {
    pub fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }

    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }

    fn enter(&self) {
        self.ran.fetch_add(1, Ordering::SeqCst);
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(now, Ordering::SeqCst);
        self.entered.notify_one();
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// `echo` and `ask_echo` answer at once, `slow` and `slow_write` when released, `boom` panics,
/// `fail` fails, `write` owns a path, `host` runs externally, `stubborn` ignores everything.
pub fn registry(probe: &Probe) -> Registry {
    let registry = Registry::new();
    for name in ["echo", "ask_echo"] {
        let probe = probe.clone();
        let tool = tool_fn(name, "Says it again.", move |input: Text, _cx| {
            let probe = probe.clone();
            async move {
                probe.enter();
                tokio::task::yield_now().await;
                probe.leave();
                Ok::<_, ToolError>(input.text)
            }
        });
        registry.register(tool).expect("free");
    }
    for (name, annotations) in [
        ("slow", Annotations::read_only()),
        (
            "slow_write",
            Annotations::default().with_side_effect(SideEffect::WorkspaceWrite),
        ),
        (
            "idempotent_write",
            Annotations::default().with_idempotent(true),
        ),
    ] {
        let probe = probe.clone();
        let tool = tool_fn(
            name,
            "Waits to be released.",
            move |input: Text, cx: toolgate_core::Context| {
                let probe = probe.clone();
                async move {
                    probe.enter();
                    tokio::select! {
                        permit = probe.gate.0.acquire() => permit.expect("open").forget(),
                        () = cx.cancelled() => {
                            probe.leave();
                            return Err(ToolError::cancelled());
                        }
                    }
                    probe.leave();
                    Ok(input.text)
                }
            },
        );
        registry
            .register(tool.with_annotations(annotations))
            .expect("free");
    }
    for (name, annotations) in [
        ("stubborn", Annotations::read_only()),
        ("stubborn_write", Annotations::default()),
    ] {
        let probe = probe.clone();
        let tool = tool_fn(name, "Ignores everything.", move |_: Text, _cx| {
            let probe = probe.clone();
            async move {
                probe.enter();
                std::future::pending::<Result<(), ToolError>>().await
            }
        });
        registry
            .register(tool.with_annotations(annotations))
            .expect("free");
    }
    let held = probe.clone();
    let write = tool_fn("write", "Writes a file.", move |_: Write, _cx| {
        let probe = held.clone();
        async move {
            probe.enter();
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            probe.leave();
            Ok::<_, ToolError>("written")
        }
    });
    let annotations = Annotations::default()
        .with_side_effect(SideEffect::WorkspaceWrite)
        .with_resource(Resource::path("path"));
    registry
        .register(write.with_annotations(annotations))
        .expect("free");
    let boom = tool_fn(
        "boom",
        "Panics.",
        async |input: Text, _cx| -> Result<(), ToolError> { panic!("{}", input.text) },
    );
    registry.register(boom).expect("free");
    let fail = tool_fn(
        "fail",
        "Fails.",
        async |_: Text, _cx| -> Result<(), ToolError> { Err(ToolError::new("no luck")) },
    );
    registry.register(fail).expect("free");
    registry
        .register_host(ToolSpec::new(
            "host",
            "Runs outside.",
            Schema::for_type::<Text>(),
        ))
        .expect("free");
    registry
}

pub fn stack(registry: &Registry) -> Stack {
    Stack::over(registry.clone())
        .layer(Ask)
        .build()
        .expect("in order")
}

pub fn request(id: &str, tool: &str, text: &str) -> ToolRequest {
    ToolRequest::from_json(id, tool, serde_json::json!({ "text": text }))
}

pub fn view(registry: &Registry) -> View {
    toolgate_testkit::plain_view(registry)
}

/// Returns every event of the session, checked against the rules.
pub async fn transcript(dispatcher: &Dispatcher) -> (Vec<Arc<Event>>, LifecycleSummary) {
    let events = dispatcher
        .store()
        .events(dispatcher.session(), 0, usize::MAX)
        .await
        .expect("reads");
    let summary = LifecycleChecker::check_all(events.iter().map(|event| &**event))
        .expect("the lifecycle holds");
    (events, summary)
}

/// Returns the names of the events about one invocation.
pub fn event_names(events: &[Arc<Event>], call: toolgate_core::CallId) -> Vec<&'static str> {
    let of = |event: &&Arc<Event>| event.as_tool().is_some_and(|(head, _)| head.id == call);
    events.iter().filter(of).map(|event| event.name()).collect()
}

/// Returns the approval request that a suspended call waits for.
pub fn question(result: &toolgate_runtime::CallResult) -> ApprovalRequestRef {
    match &result.waits_for {
        Some(Suspension::Decision(request)) => ApprovalRequestRef::from(request),
        other => panic!("not asked but waiting for {other:?}"),
    }
}

/// Returns an approval request that was never made.
pub fn unknown_question(call: toolgate_core::CallId) -> ApprovalRequestRef {
    ApprovalRequestRef {
        approval_id: ApprovalId::for_call(call),
        generation: 0,
        arguments_digest: Digest::of_bytes(b"made up"),
    }
}

/// Returns a dispatcher over every tool here, and the view of them.
pub async fn dispatcher(probe: &Probe) -> (Dispatcher, toolgate_core::View) {
    let registry = registry(probe);
    let dispatcher = Dispatcher::builder(stack(&registry))
        .build()
        .await
        .expect("builds");
    (dispatcher, view(&registry))
}

/// Returns how each call settled.
pub fn statuses(report: &TurnReport) -> Vec<Option<Status>> {
    report
        .results
        .iter()
        .map(toolgate_runtime::CallResult::status)
        .collect()
}

/// Returns what the model reads.
pub fn texts(report: &TurnReport) -> Vec<String> {
    let text = |result: &toolgate_runtime::CallResult| {
        result.outcome.as_ref().map(|o| o.model_text().into_owned())
    };
    report
        .results
        .iter()
        .map(|result| text(result).unwrap_or_default())
        .collect()
}
