//! Whole loops in the shapes by which other agent loops are measured, as users have them: the
//! default stack with its ledger, approvals in a database, a real clock.
//!
//! A is a run of 200 turns of one call, B a turn of 1000 calls, C a run that suspends at an approval
//! and resumes from the store, D a program that starts, makes one call and ends, E a late turn of a
//! long run beside an early one, F many callers of one store, K a durable turn. Beside them, a long
//! session is opened and a thousand sessions are listed. The model answers at
//! once, each call has other arguments, and the tool returns its argument, so that what is left is
//! the loop.

mod durable;
mod floor_cycle;
mod listing;
mod long;
mod memory;
mod minimum;
mod syncs;

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::{StreamExt, stream::BoxStream};
use toolgate::{
    Annotations, Message, Model, Registry, RunEnd, Session, Stack, ToolError,
    layers::{Config, Resources},
    model::{Delta, MessagePart, ModelError, ModelName, ModelRequest, PartContent, Reply, Role},
    session::{SessionBuilder, Ungated},
    stack::ToolRequest,
    store::{MemoryStore, StoreHandle},
    tool_fn,
};
use toolgate_store::SqliteStore;
use toolgate_testkit::AskFirst;

use crate::{BenchOptions, measure::CostRow, ours::CountingLayer};

/// The parts of the sheet.
pub(crate) const PARTS: [&str; 11] = [
    "turns",
    "fan-out",
    "waiting",
    "approval",
    "durable",
    "records",
    "start",
    "history",
    "opening",
    "listing",
    "instructions",
];

/// The turns of a run of shape A.
const TURNS: usize = 200;
/// The calls of a turn of shape B.
const FAN: usize = 1_000;
/// The layers of a stack of layers that only pass calls on.
const LAYERS: usize = 10;
/// The layers of the default stack that a read enters.
const DEFAULT_LAYERS: usize = 13;

pub(crate) async fn rows(options: &BenchOptions) -> Vec<CostRow> {
    let rounds = options.rounds;
    let mut rows = Vec::new();
    if options.wants("turns") {
        rows.extend(memory::turns(rounds).await);
        rows.extend(memory::allocations().await);
    }
    if options.wants("fan-out") {
        rows.extend(memory::fan_out(rounds).await);
    }
    if options.wants("waiting") {
        rows.push(memory::waiting(rounds.min(7)).await);
    }
    if options.wants("approval") {
        rows.extend(durable::approval(rounds).await);
    }
    if options.wants("durable") {
        rows.extend(durable::turns(rounds).await);
    }
    if options.wants("records") {
        rows.extend(durable::records(rounds).await);
    }
    if options.wants("start") {
        rows.extend(long::start(rounds));
    }
    if options.wants("history") {
        rows.extend(long::history(rounds.min(5)).await);
    }
    if options.wants("opening") {
        rows.extend(long::opening(rounds.min(5)).await);
    }
    if options.wants("listing") {
        rows.extend(listing::rows(rounds).await);
    }
    if options.instructions && options.wants("instructions") {
        rows.extend(memory::instructions());
        rows.extend(syncs::rows());
    }
    rows
}

/// Runs a shape a number of times, for counting instructions, allocations or system calls; returns
/// whether there is one of that name.
pub(crate) async fn count(name: &str, times: usize) -> bool {
    let memory = |stack| async move {
        LoopSetup::new(stack, ToolBehaviour::Reads)
            .run(memory_store(), times, 1, 1)
            .await;
    };
    match name {
        "loop0" => memory(StackKind::Through(0)).await,
        "loop10" => memory(StackKind::Through(LAYERS)).await,
        "loop-default" => memory(StackKind::Default).await,
        "loop-fan" => {
            let setup = LoopSetup::new(StackKind::Through(LAYERS), ToolBehaviour::Reads);
            setup.run(memory_store(), 1, times, times).await;
        }
        "loop-fan-default" => {
            let setup = LoopSetup::new(StackKind::Default, ToolBehaviour::Reads);
            setup.run(memory_store(), 1, times, times).await;
        }
        "loop-least" => {
            memory::least(&crate::floors::BoxedChain::new(LAYERS, None), times).await;
        }
        "minimum" => minimum::run(times, None).await,
        "durable" => durable::count(StackKind::Default, ToolBehaviour::Reads, times).await,
        "durable-write" => durable::count(StackKind::Default, ToolBehaviour::Writes, times).await,
        "durable-minimum" => durable::count_minimum(times).await,
        "cycle" => durable::count_cycles(times).await,
        _ => return false,
    }
    true
}

/// A model that asks for `fan` calls in each of `turns` turns and then says that it is done.
struct PeerScript {
    name: ModelName,
    turns: usize,
    fan: usize,
    next: AtomicUsize,
}

impl PeerScript {
    /// Creates a script that has answered `from` requests already.
    fn new(turns: usize, fan: usize, from: usize) -> Self {
        Self {
            name: ModelName::new("stub", "script"),
            turns,
            fan,
            next: AtomicUsize::new(from),
        }
    }
}

impl Model for PeerScript {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn reply<'a>(&'a self, _: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let message = if turn < self.turns {
            let call = |n| {
                let arguments = format!("{{\"text\":\"t{turn}-{n}\"}}");
                let request = ToolRequest::from_text(&format!("c{turn}_{n}"), "echo", &arguments);
                MessagePart::from(PartContent::Call(request))
            };
            Message::new(Role::Assistant, (0..self.fan).map(call).collect())
        } else {
            Message::assistant("done")
        };
        futures::stream::iter([Ok(Delta::Done(Box::new(Reply::new(message))))]).boxed()
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct TextInput {
    text: String,
}

/// What the tool does beside returning its argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ToolBehaviour {
    /// It says that it only reads.
    Reads,
    /// It may write, so that its start is durable before it runs.
    Writes,
    /// It reads, and sleeps first.
    Sleeps(Duration),
}

fn registry(behaviour: ToolBehaviour) -> Registry {
    let registry = Registry::new();
    let tool = tool_fn(
        "echo",
        "Says it again.",
        move |input: TextInput, _cx| async move {
            if let ToolBehaviour::Sleeps(span) = behaviour {
                tokio::time::sleep(span).await;
            }
            Ok::<_, ToolError>(input.text)
        },
    );
    let registered = if behaviour == ToolBehaviour::Writes {
        registry.register(tool)
    } else {
        registry.register(tool.with_annotations(Annotations::read_only()))
    };
    registered.expect("the name is free");
    registry
}

#[derive(Clone, Copy)]
enum StackKind {
    /// Layers that only pass calls on.
    Through(usize),
    /// What a user has who configures nothing: receipts are sealed into the ledger of the store.
    Default,
    /// Layers that pass calls on, and inside them one that asks before each call.
    Asking(usize),
}

/// Tools and a stack over them: built once by a program, however many sessions it has.
struct LoopSetup {
    registry: Registry,
    stack: Stack,
}

impl LoopSetup {
    fn new(kind: StackKind, behaviour: ToolBehaviour) -> Self {
        let registry = registry(behaviour);
        let through = |count| {
            (0..count).fold(Stack::over(registry.clone()), |stack, _| {
                stack.layer(CountingLayer)
            })
        };
        let stack = match kind {
            StackKind::Through(count) => through(count).build().expect("in order"),
            StackKind::Asking(count) => through(count).layer(AskFirst).build().expect("in order"),
            StackKind::Default => {
                // Approval of a tool that may write is not what is measured here.
                let rules = if behaviour == ToolBehaviour::Writes {
                    "[layers.policy]\nrules = [{ effect = \"allow\", tool = \"echo\" }]"
                } else {
                    ""
                };
                let config = Config::parse(rules).expect("valid");
                let built = config.build(registry.clone(), &Resources::new());
                built.expect("the default stack builds")
            }
        };
        Self { registry, stack }
    }

    fn session(&self, model: PeerScript) -> SessionBuilder<Ungated> {
        Session::ungated(model, self.registry.clone())
            .stack(self.stack.clone())
            .max_iterations(u32::MAX)
            .window_bytes(usize::MAX)
    }

    /// Runs a session of its own to its end.
    async fn run(&self, store: StoreHandle, turns: usize, fan: usize, at_once: usize) {
        let builder = self.session(PeerScript::new(turns, fan, 0));
        let builder =
            builder.dispatcher(move |dispatcher| dispatcher.store(store).max_concurrent(at_once));
        let session = builder.build().await.expect("opens");
        let report = session.run("go").await.expect("runs");
        assert_eq!(report.end, RunEnd::Completed);
        assert_eq!(report.text, "done");
        // Everything that was said: the request, a reply and results for each turn, the answer.
        assert_eq!(report.messages.len(), 2 + 2 * turns);
    }
}

fn memory_store() -> StoreHandle {
    StoreHandle::new(MemoryStore::new())
}

fn sqlite_store(path: &Path) -> StoreHandle {
    StoreHandle::new(SqliteStore::open(path).expect("opens"))
}
