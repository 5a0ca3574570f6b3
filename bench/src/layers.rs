//! What each bundled layer costs alone, over a tool that does nothing, and what the default stack costs as a whole.

use std::{cell::Cell, hint::black_box, sync::Arc};

use serde_json::{Value, json};
use toolgate::{
    Annotations, AnyLayer, Arguments, Call, CallId, CallSeed, Env, HookAction, Hooks, MemoryStore,
    Registry, Resumed, Schema, SessionId, Stack, StoreHandle, SystemClock, Tool, ToolError,
    ToolOutput, ToolRequest, ToolSpec, TurnId, TurnInfo, Unwatched, View,
    layers::{Catalog, Config, Parts, Secrets},
};
use uuid::Uuid;

use crate::{
    floors,
    measure::{Contest, Row, Watch, of},
};

/// Calls per round.
const CALLS: usize = 500;

/// Options for the layers that say nothing without any.
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
struct Echo(&'static str, Schema, bool);

impl Tool for Echo {
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
        _: toolgate::Context,
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
    mode: Mode,
    tags: Vec<String>,
    ratio: f64,
    name: Option<String>,
    n: u64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "only the schema is of interest")]
enum Mode {
    Fast,
    Slow,
}

fn registry() -> Registry {
    let registry = Registry::new();
    let tools = [
        Echo("noop", Schema::any_object(), false),
        Echo("change", Schema::any_object(), false),
        Echo("echo", Schema::any_object(), true),
        Echo("ten", Schema::of::<TenFields>(), false),
    ];
    for tool in tools {
        registry.register(tool).expect("free");
    }
    registry
}

/// Makes calls of one tool. Each has arguments and an id of its own, as a model's calls have.
struct Caller {
    seed: CallSeed,
    arguments: Value,
    made: Cell<u64>,
}

impl Caller {
    fn new(view: &View, tool: &str, arguments: Value) -> Self {
        let admission = view.admit(&ToolRequest::json("call_1", tool, arguments.clone()));
        assert!(admission.refusal.is_none(), "{tool} takes these arguments");
        let id = Uuid::from_u128(1);
        let seed = CallSeed {
            id: CallId::new(id),
            generation: 0,
            provider_call_id: "call_1".into(),
            emit_order: 0,
            turn: Arc::new(TurnInfo::new(SessionId::new(id), TurnId::new(id))),
            admission,
            resumed: Resumed::default(),
            attempts_before: 0,
            rehearsal: false,
            closing: None,
            cancel: Default::default(),
            env: Env::new(
                Arc::new(SystemClock::new()),
                StoreHandle::new(MemoryStore::new()),
                Arc::new(Unwatched),
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

/// The bundled layer of this name, made from its defaults. If it is for hooks, there is one.
fn layer(name: &str) -> AnyLayer {
    let mut text = format!("[stack]\norder = ['{name}']\n");
    let section = OPTIONS
        .split("[layers.")
        .find(|part| part.starts_with(&format!("{name}]")));
    text.extend(section.map(|section| format!("[layers.{section}")));
    let hooks = Hooks::new().before("*", |_| async { HookAction::Continue });
    let layers =
        Config::parse(&text).and_then(|config| config.layers(&Parts::new().with(Arc::new(hooks))));
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
pub(crate) async fn each(rounds: usize) -> Vec<Row> {
    let registry = registry();
    let view = View::of(&registry);
    let [caller, changing] = ["noop", "change"].map(|tool| Caller::new(&view, tool, small()));
    let empty = stack_of(&registry, []);
    let catalog = Catalog::bundled();
    let names: Vec<_> = catalog.entries().iter().map(|entry| entry.name).collect();
    let stacks: Vec<_> = names
        .iter()
        .map(|name| (*name, stack_of(&registry, [layer(name)])))
        .collect();
    let (one, ten, plain) = (
        floors::Chain::new(1, None),
        floors::Chain::new(10, None),
        floors::plain_call(),
    );
    let boxed = |chain: &Arc<floors::Chain>| {
        let (chain, plain) = (chain.clone(), plain.clone());
        async move {
            for _ in 0..CALLS {
                black_box(chain.run(black_box(&plain)).await);
            }
        }
    };
    let mut contest = Contest::new(Watch::Cpu)
        .add("boxed1", CALLS, || boxed(&one))
        .add("boxed10", CALLS, || boxed(&ten))
        .add("none", CALLS, || caller.through(&empty));
    for (name, stack) in &stacks {
        // The one that has nothing to do with tools that only read.
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
        Row::new(
            format!("layer {name}, alone"),
            ns(name) - ns("none"),
            "ns",
            Some(floor),
            "one boxed layer by hand",
        )
    };
    names.iter().map(row).collect()
}

/// The default stack without a file, and a caller whose calls it lets through.
fn usual() -> (Stack, Caller) {
    let registry = registry();
    let layers = Config::default().layers(&Parts::new()).expect("valid");
    let caller = Caller::new(&View::of(&registry), "noop", small());
    (stack_of(&registry, layers), caller)
}

/// So many small calls through the default stack, for being counted.
pub(crate) async fn count_usual(times: usize) {
    let (stack, caller) = usual();
    for _ in 0..times {
        black_box(stack.run(caller.call()).await);
    }
}

/// What the dear ones cost on a kilobyte, what redaction makes of large text, and the default stack.
pub(crate) async fn whole(rounds: usize) -> Vec<Row> {
    let registry = registry();
    let view = View::of(&registry);
    let (kilo, ten) = (
        Caller::new(&view, "echo", kilobyte()),
        Caller::new(&view, "ten", ten_fields()),
    );
    let noop = Caller::new(&view, "noop", small());
    let config = Config::parse("[layers.receipts]\nsink = 'memory'\n").expect("valid");
    let layers = config.layers(&Parts::new()).expect("valid");
    let count = layers.len();
    let (empty, usual) = (stack_of(&registry, []), stack_of(&registry, layers));
    let [receipts, redact, validate] =
        ["receipts", "redact", "validate"].map(|name| stack_of(&registry, [layer(name)]));
    let (chain, plain) = (floors::Chain::new(count, None), floors::plain_call());
    let contest = Contest::new(Watch::Cpu)
        .add("chain", CALLS, || async {
            for _ in 0..CALLS {
                black_box(chain.run(black_box(&plain)).await);
            }
        })
        .add("kilo", CALLS, || kilo.through(&empty))
        .add("receipts", CALLS, || kilo.through(&receipts))
        .add("redact", CALLS, || kilo.through(&redact))
        .add("ten", CALLS, || ten.through(&empty))
        .add("validate", CALLS, || ten.through(&validate))
        .add("noop", CALLS, || noop.through(&empty))
        .add("usual", CALLS, || noop.through(&usual))
        .add("usual kilo", CALLS, || kilo.through(&usual));
    let results = contest.run(rounds).await;
    let us = |name| of(&results, name) / 1e3;
    let [receipts, redact] = ["receipts", "redact"].map(|name| us(name) - us("kilo"));
    let validate = us("validate") - us("ten");
    // The goal of the design: five times a hand-written chain, and what the three dear layers cost.
    let goal = 5.0 * us("chain") + receipts + redact + validate;
    let mut rows = vec![
        Row::new(
            "receipts, 1 KB in and out, no disk",
            receipts,
            "us",
            Some(8.0),
            "the goal",
        ),
        Row::new("redact, 1 KB out", redact, "us", Some(15.0), "the goal"),
        Row::new("validate, 10 fields", validate, "us", Some(3.0), "the goal"),
        Row::new(
            format!("default stack, {count} layers, small call"),
            us("usual") - us("noop"),
            "us",
            Some(us("chain")),
            "hand-written chain of as many layers",
        ),
        Row::new(
            format!("default stack, {count} layers, 1 KB in and out"),
            us("usual kilo") - us("kilo"),
            "us",
            Some(goal),
            "5 hand-written chains and the three above",
        ),
    ];
    rows.push(throughput());
    rows
}

/// How fast redaction is on large text in which nothing is secret.
fn throughput() -> Row {
    let secrets = Secrets::standard();
    let text = include_str!("layers.rs").repeat(2_000);
    let mut spent: Vec<f64> = Vec::new();
    for _ in 0..5 {
        let start = std::time::Instant::now();
        black_box(secrets.text(black_box(&text)));
        spent.push(start.elapsed().as_secs_f64());
    }
    let rate = text.len() as f64 / 1e6 / crate::measure::median(spent);
    Row::new(
        format!("redaction of {} MB of source", text.len() / 1_000_000),
        rate,
        "MB/s",
        Some(200.0),
        "the goal (at least)",
    )
}
