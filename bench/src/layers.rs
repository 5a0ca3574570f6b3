//! The cost of each bundled layer alone, over a tool that does nothing, and of the default stack as
//! a whole.

use std::{cell::Cell, hint::black_box, sync::Arc};

use serde_json::{Value, json};
use toolgate::{
    Annotations, Arguments, Call, Registry, Stack, Tool, ToolError, View,
    layers::{Catalog, Config, Resources, SecretScanner, default_stack},
    stack::{
        AnyLayer, CallEnv, CallSeed, HookAction, Hooks, NoProbe, ResumeState, ToolRequest, TurnInfo,
    },
    store::{MemoryStore, StoreHandle},
    tool::{ToolOutput, ToolSpec},
    value::{CallId, Schema, SessionId, SystemClock, TurnId},
};
use uuid::Uuid;

use crate::{
    floors,
    measure::{BenchClock, Contest, CostRow, of},
};

/// Calls per round.
const CALLS: usize = 500;

/// Options for the layers that do nothing without any.
const OPTIONS: &str = r#"
[layers.receipts]
sink = "memory"
[layers.telemetry]
sink = "noop"
[layers.progress]
long_running_tools = { noop = "at work" }
[layers.scope]
allowed_tools = ["noop"]
[layers.rate_limit]
max_calls = 1_000_000_000_000
[layers.budget]
limit = 1e9
default_cost = 0.001
[layers.dry_run]
except = ["*"]
"#;

/// A tool that returns what it was given, or nothing.
struct EchoTool(&'static str, Schema, bool);

impl Tool for EchoTool {
    fn spec(&self) -> ToolSpec {
        let annotations = if self.0 == "change" {
            Annotations::default()
        } else {
            Annotations::read_only()
        };
        ToolSpec::new(self.0, "Does nothing.", self.1.clone()).with_annotations(annotations)
    }
    async fn invoke(
        &self,
        arguments: Arguments,
        _: toolgate::tool::Context,
    ) -> Result<ToolOutput, ToolError> {
        Ok(if self.2 {
            arguments.as_json().as_value().clone().into()
        } else {
            ToolOutput::default()
        })
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code, reason = "only the schema is of interest")]
struct TenFields {
    text: String,
    path: String,
    limit: u32,
    offset: u32,
    deep: bool,
    mode: CallerMode,
    tags: Vec<String>,
    ratio: f64,
    name: Option<String>,
    n: u64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "only the schema is of interest")]
enum CallerMode {
    Fast,
    Slow,
}

fn registry() -> Registry {
    let registry = Registry::new();
    let tools = [
        EchoTool("noop", Schema::any_object(), false),
        EchoTool("change", Schema::any_object(), false),
        EchoTool("echo", Schema::any_object(), true),
        EchoTool("ten", Schema::for_type::<TenFields>(), false),
    ];
    for tool in tools {
        registry.register(tool).expect("free");
    }
    registry
}

/// Makes calls of one tool. Each has arguments and an id of its own, as a model's calls have.
struct BenchCaller {
    seed: CallSeed,
    arguments: Value,
    made: Cell<u64>,
}

impl BenchCaller {
    fn new(view: &View, tool: &str, arguments: Value) -> Self {
        let admission =
            view.admit_request(&ToolRequest::from_json("call_1", tool, arguments.clone()));
        assert!(admission.refusal.is_none(), "{tool} takes these arguments");
        let id = Uuid::from_u128(1);
        let seed = CallSeed {
            id: CallId::new(id),
            generation: 0,
            provider_call_id: "call_1".into(),
            emit_order: 0,
            turn: Arc::new(TurnInfo::new(SessionId::new(id), TurnId::new(id))),
            admission,
            resumed: ResumeState::default(),
            attempts_before: 0,
            rehearsal: false,
            closing: None,
            cancel: Default::default(),
            env: CallEnv::new(
                Arc::new(SystemClock::new()),
                StoreHandle::new(MemoryStore::new()),
                Arc::new(NoProbe),
            ),
        };
        Self {
            seed,
            arguments,
            made: Cell::new(1),
        }
    }

    fn call(&self) -> Call {
        let n = self.made.get() + 1;
        self.made.set(n);
        let mut seed = self.seed.clone();
        seed.id = CallId::new(Uuid::from_u128(n.into()));
        let mut arguments = self.arguments.clone();
        arguments["n"] = n.into();
        seed.admission.arguments = Arguments::try_from(arguments).expect("an object");
        Call::new(seed)
    }

    async fn through(&self, stack: &Stack) {
        for _ in 0..CALLS {
            let outcome = stack.run(self.call()).await;
            assert!(outcome.is_ok(), "{outcome:?}");
            black_box(outcome);
        }
    }
}

fn small() -> Value {
    json!({ "text": "hello world", "path": "src/main.rs", "reason": "to measure it", "n": 0 })
}

/// A thousand bytes of ordinary text.
fn kilobyte() -> Value {
    let text =
        "The quick brown fox jumps over the lazy dog; path /srv/app/main.rs:42, id 550e8400. "
            .repeat(12);
    json!({ "text": text[..960], "path": "src/main.rs", "n": 0 })
}

fn ten_fields() -> Value {
    json!({
        "text": "hello", "path": "src/main.rs", "limit": 10, "offset": 0, "deep": true, "mode": "fast",
        "tags": ["a", "b"], "ratio": 0.5, "name": "x", "n": 0,
    })
}

/// Builds the bundled layer of this name from its defaults. A layer for hooks gets one.
fn layer(name: &str) -> AnyLayer {
    let mut text = format!("[stack]\norder = ['{name}']\n");
    let section = OPTIONS
        .split("[layers.")
        .find(|part| part.starts_with(&format!("{name}]")));
    text.extend(section.map(|section| format!("[layers.{section}")));
    let hooks = Hooks::new().before("*", |_| async { HookAction::Continue });
    let layers = Config::parse(&text)
        .and_then(|config| default_stack(&config, &Resources::new().with(Arc::new(hooks))));
    layers
        .expect("the options of the sheet are valid")
        .remove(0)
}

fn stack_of(registry: &Registry, layers: impl IntoIterator<Item = AnyLayer>) -> Stack {
    Stack::over(registry.clone())
        .any_layers(layers)
        .build()
        .expect("in order")
}

/// One row per layer.
pub(crate) async fn each(rounds: usize) -> Vec<CostRow> {
    let registry = registry();
    let view = toolgate_testkit::plain_view(&registry);
    let [caller, changing] = ["noop", "change"].map(|tool| BenchCaller::new(&view, tool, small()));
    let empty = stack_of(&registry, []);
    let catalog = Catalog::bundled();
    let names: Vec<_> = catalog.entries().iter().map(|entry| entry.name).collect();
    let stacks: Vec<_> = names
        .iter()
        .map(|name| (*name, stack_of(&registry, [layer(name)])))
        .collect();
    let one = floors::BoxedChain::new(1, None);
    let ten = floors::BoxedChain::new(10, None);
    let plain = floors::plain_call();
    let boxed = |chain: &Arc<floors::BoxedChain>| {
        let chain = chain.clone();
        let plain = plain.clone();
        async move {
            for _ in 0..CALLS {
                black_box(chain.run(black_box(&plain)).await);
            }
        }
    };
    let mut contest = Contest::new(BenchClock::Cpu)
        .add("boxed1", CALLS, || boxed(&one))
        .add("boxed10", CALLS, || boxed(&ten))
        .add("none", CALLS, || caller.through(&empty));
    for (name, stack) in &stacks {
        // The layer that skips tools that only read.
        let caller = if *name == "file_changes" {
            &changing
        } else {
            &caller
        };
        contest = contest.add(name, CALLS, || caller.through(stack));
    }
    let results = contest.run(rounds).await;
    let ns = |name| of(&results, name);
    let floor = (ns("boxed10") - ns("boxed1")) / 9.0;
    let row = |name: &&'static str| {
        CostRow::new(
            format!("layer {name}, alone"),
            ns(name) - ns("none"),
            "ns",
            Some(floor),
            "one boxed layer by hand",
        )
    };
    names.iter().map(row).collect()
}

/// Measures the expensive layers on a kilobyte, and redaction on large text. The default stack is
/// measured with its ledger, in a session: see `shapes`.
pub(crate) async fn whole(rounds: usize) -> Vec<CostRow> {
    let registry = registry();
    let view = toolgate_testkit::plain_view(&registry);
    let kilo = BenchCaller::new(&view, "echo", kilobyte());
    let ten = BenchCaller::new(&view, "ten", ten_fields());
    let empty = stack_of(&registry, []);
    let [receipts, redact, validate] =
        ["receipts", "redact", "validate"].map(|name| stack_of(&registry, [layer(name)]));
    let contest = Contest::new(BenchClock::Cpu)
        .add("kilo", CALLS, || kilo.through(&empty))
        .add("receipts", CALLS, || kilo.through(&receipts))
        .add("redact", CALLS, || kilo.through(&redact))
        .add("ten", CALLS, || ten.through(&empty))
        .add("validate", CALLS, || ten.through(&validate));
    let results = contest.run(rounds).await;
    let us = |name| of(&results, name) / 1e3;
    let [receipts, redact] = ["receipts", "redact"].map(|name| us(name) - us("kilo"));
    let validate = us("validate") - us("ten");
    vec![
        CostRow::new(
            "receipts, 1 KB in and out, no disk",
            receipts,
            "us",
            Some(8.0),
            "the goal",
        ),
        CostRow::new("redact, 1 KB out", redact, "us", Some(15.0), "the goal"),
        CostRow::new("validate, 10 fields", validate, "us", Some(3.0), "the goal"),
        throughput(),
    ]
}

/// Measures the speed of redaction on large text without secrets.
fn throughput() -> CostRow {
    let secrets = SecretScanner::standard();
    let text = include_str!("layers.rs").repeat(2_000);
    let mut spent: Vec<f64> = Vec::new();
    for _ in 0..5 {
        let start = std::time::Instant::now();
        black_box(secrets.redact_str(black_box(&text)));
        spent.push(start.elapsed().as_secs_f64());
    }
    let rate = text.len() as f64 / 1e6 / crate::measure::median(spent);
    CostRow::new(
        format!("redaction of {} MB of source", text.len() / 1_000_000),
        rate,
        "MB/s",
        Some(200.0),
        "the goal (at least)",
    )
}
