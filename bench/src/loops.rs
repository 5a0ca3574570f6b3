//! The cost of a whole loop: a model that answers at once, turns of calls, sessions that suspend
//! and resume, start-up.
//!
//! The shapes are those by which other loops are measured: A is a run of 200 turns of one call, B a
//! turn of 1000 calls, C a run that suspends at an approval and resumes from the store, D a program
//! that starts, makes one call and ends, E the 1000th turn of a run beside the 10th.

use std::{
    hint::black_box,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::json;
use toolgate::{
    Annotations, Decision, Registry, RunEnd, Session, Stack, ToolError,
    approval::{ApprovalRequest, ApprovalRequestRef},
    layers::{Config, Resources},
    model::{ScriptLine, ScriptedModel},
    session::SessionBuilder,
    store::{MemoryStore, StoreHandle},
    tool_fn,
};
use toolgate_testkit::AskFirst;

use crate::{
    BenchOptions, floors,
    instructions::{not_counted, per_call},
    measure::{BenchClock, Contest, CostGoal, CostRow, cpu_ns, median, of},
    ours,
    used::ResourceUse,
};

/// The parts of the sheet.
pub(crate) const PARTS: [&str; 6] = [
    "turns",
    "fan-out",
    "approval",
    "start",
    "history",
    "instructions",
];

/// Turns of one run.
const TURNS: usize = 200;
const FAN: usize = 1_000;
const CYCLES: usize = 50;

pub(crate) async fn rows(options: &BenchOptions) -> Vec<CostRow> {
    let mut rows = Vec::new();
    if options.wants("turns") {
        rows.extend(turns(options.rounds).await);
    }
    if options.wants("fan-out") {
        rows.push(fan_out(options.rounds).await);
    }
    if options.wants("approval") {
        rows.push(approval(options.rounds).await);
    }
    if options.wants("start") {
        rows.extend(start(options.rounds));
    }
    if options.wants("history") {
        rows.push(history(options.rounds.min(7)).await);
    }
    if options.instructions && options.wants("instructions") {
        rows.extend(instructions());
    }
    rows
}

/// A model that requests one call `turns` times and then says that it is done. Like tools and stack
/// it is built once.
fn asking(turns: usize) -> Arc<ScriptedModel> {
    playing(
        ScriptLine::new()
            .call("echo", floors::arguments())
            .times(turns),
    )
}

/// A model that requests `calls` calls at once and then says that it is done.
fn asking_at_once(calls: usize) -> Arc<ScriptedModel> {
    playing((0..calls).fold(ScriptLine::new(), |line, _| {
        line.call("echo", floors::arguments())
    }))
}

fn playing(line: ScriptLine) -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::new([line, ScriptLine::new().say("done")]).chunk(NonZeroUsize::MAX))
}

/// Tools and a stack over them: built once by a program, however many sessions it has. The cost of
/// building them is part of D.
struct ToolSetup {
    registry: Registry,
    stack: Stack,
}

impl ToolSetup {
    fn new(layers: StackKind) -> Self {
        Self::over(ours::registry(None), layers)
    }

    fn over(registry: Registry, layers: StackKind) -> Self {
        let stack = match layers {
            StackKind::Through(count) => ours::stack(&registry, count),
            StackKind::Default => {
                // Every call is the same and has the same result: the loop guard would stop it,
                // correctly.
                let text = "[layers.receipts]\nsink = 'memory'\n[layers.loop_guard]\nidentical = 1000000\n";
                let config = Config::parse(text).expect("valid");
                config
                    .build(registry.clone(), &Resources::new())
                    .expect("valid")
            }
            StackKind::Asking => Stack::over(registry.clone())
                .layer(AskFirst)
                .build()
                .expect("one layer"),
        };
        Self { registry, stack }
    }

    fn session(&self, model: &Arc<ScriptedModel>) -> SessionBuilder {
        Session::ungated(model.clone(), self.registry.clone()).stack(self.stack.clone())
    }
}

#[derive(Clone, Copy)]
enum StackKind {
    Through(usize),
    Default,
    /// Builds one that asks for approval before every call.
    Asking,
}

/// Runs a number of turns of one call, in a session of its own.
async fn run(made: &ToolSetup, model: &Arc<ScriptedModel>, turns: usize) {
    let session = made
        .session(model)
        .store(MemoryStore::new())
        .max_iterations(u32::MAX);
    let session = session
        .window_bytes(usize::MAX)
        .build()
        .await
        .expect("an empty session can be opened");
    let report = session.run("begin").await.expect("runs");
    assert_eq!(
        (report.end, report.iterations as usize),
        (RunEnd::Completed, turns + 1)
    );
}

/// Runs a shape a number of times, for counting instructions; returns whether there is one of that
/// name.
pub(crate) async fn count(name: &str, times: usize) -> bool {
    match name {
        "loop0" => {
            run(
                &ToolSetup::new(StackKind::Through(0)),
                &asking(times),
                times,
            )
            .await
        }
        "loop10" => {
            run(
                &ToolSetup::new(StackKind::Through(10)),
                &asking(times),
                times,
            )
            .await
        }
        "loop-usual" => run(&ToolSetup::new(StackKind::Default), &asking(times), times).await,
        "loop-least" => least(&floors::BoxedChain::new(10, None), times).await,
        "loop-fan" => {
            let made = ToolSetup::new(StackKind::Through(10));
            let model = asking_at_once(FAN);
            for _ in 0..times {
                fan(&made, &model).await;
            }
        }
        "loop-approval" => {
            let made = ToolSetup::new(StackKind::Asking);
            let model = asking(1);
            for _ in 0..times {
                stop_and_go_on(&made, &model).await;
            }
        }
        _ => return false,
    }
    true
}

/// Runs the smallest possible loop: builds a model's reply, runs its calls, stores every message.
async fn least(chain: &Arc<floors::BoxedChain>, turns: usize) {
    let mut said = vec![json!({ "role": "user", "content": "begin" })];
    for turn in 0..turns {
        let text = floors::arguments().to_string();
        said.push(json!({ "role": "assistant", "call": { "id": turn, "name": "echo", "arguments": text } }));
        assert_eq!(chain.turn(&text, 1, 8).await, 1);
        said.push(json!({ "role": "tool", "id": turn, "content": "hello world" }));
    }
    black_box(said);
}

/// A: 200 turns of one call.
async fn turns(rounds: usize) -> Vec<CostRow> {
    let none = floors::BoxedChain::new(0, None);
    let ten = floors::BoxedChain::new(10, None);
    let model = asking(TURNS);
    let [ours0, ours10, usual] = [
        StackKind::Through(0),
        StackKind::Through(10),
        StackKind::Default,
    ]
    .map(ToolSetup::new);
    let contest = Contest::new(BenchClock::Cpu)
        .add("least0", TURNS, || least(&none, TURNS))
        .add("least10", TURNS, || least(&ten, TURNS))
        .add("ours0", TURNS, || run(&ours0, &model, TURNS))
        .add("ours10", TURNS, || run(&ours10, &model, TURNS))
        .add("usual", TURNS, || run(&usual, &model, TURNS));
    let results = contest.run(rounds).await;
    let us = |name| of(&results, name) / 1e3;
    let row = |name: &str, ours, floor| {
        CostRow::new(
            format!("A: a turn of one call, {name}"),
            us(ours),
            "us",
            Some(us(floor)),
            "hand-written loop",
        )
    };
    vec![
        row("no layers", "ours0", "least0"),
        row("10 layers", "ours10", "least10").aiming(CostGoal::RatioAtMost(4.0)),
        row("the default stack", "usual", "least10").aiming(CostGoal::ValueAtMost(60.0)),
    ]
}

/// B: 1000 calls in one turn.
async fn fan_out(rounds: usize) -> CostRow {
    let chain = floors::BoxedChain::new(10, None);
    let made = ToolSetup::new(StackKind::Through(10));
    let model = asking_at_once(FAN);
    let text = floors::arguments().to_string();
    let contest = Contest::new(BenchClock::Cpu)
        .add("least", FAN, || async {
            assert_eq!(chain.turn(&text, FAN, FAN).await, FAN)
        })
        .add("ours", FAN, || fan(&made, &model));
    let results = contest.run(rounds).await;
    let us = |name| of(&results, name) / 1e3;
    CostRow::new(
        "B: 1000 calls in one turn, a call",
        us("ours"),
        "us",
        Some(us("least")),
        "hand-written turn",
    )
    .aiming(CostGoal::ValueAtMost(5.3))
}

/// A session that makes as many calls in one turn as its model asks for.
async fn fan(made: &ToolSetup, model: &Arc<ScriptedModel>) {
    let session = made
        .session(model)
        .dispatcher(|dispatcher| dispatcher.max_concurrent(FAN));
    let report = session
        .build()
        .await
        .expect("opens")
        .run("all of them")
        .await
        .expect("runs");
    assert_eq!(report.end, RunEnd::Completed);
}

/// Measures C: suspend at an approval, and resume from the store with another session.
async fn approval(rounds: usize) -> CostRow {
    let chain = floors::BoxedChain::new(1, None);
    let made = ToolSetup::new(StackKind::Asking);
    let model = asking(1);
    let contest = Contest::new(BenchClock::Cpu).add("least", CYCLES, || async {
        for _ in 0..CYCLES {
            let state = json!({ "said": ["go"], "call": floors::arguments(), "approved": null })
                .to_string();
            let state: serde_json::Value = serde_json::from_str(&state).expect("reads back");
            assert_eq!(chain.turn(&state["call"].to_string(), 1, 1).await, 1);
        }
    });
    let contest = contest.add("ours", CYCLES, || async {
        for _ in 0..CYCLES {
            stop_and_go_on(&made, &model).await;
        }
    });
    let results = contest.run(rounds).await;
    let us = |name| of(&results, name) / 1e3;
    CostRow::new(
        "C: stop at an approval and resume from the store",
        us("ours"),
        "us",
        Some(us("least")),
        "hand-written, as text",
    )
    // Four times what stopping, writing to a file and resuming costs by hand.
    .aiming(CostGoal::ValueAtMost(84.0))
}

async fn stop_and_go_on(made: &ToolSetup, model: &Arc<ScriptedModel>) {
    let store = StoreHandle::new(MemoryStore::new());
    let open = |session| {
        let store = store.clone();
        made.session(model)
            .dispatcher(move |dispatcher| match session {
                Some(session) => dispatcher.store(store).session(session).take_over(),
                None => dispatcher.store(store),
            })
    };
    let first = open(None).build().await.expect("opens");
    let report = first.run("begin").await.expect("runs");
    assert_eq!(report.end, RunEnd::Suspended);
    drop(first);
    let again = open(Some(report.session)).build().await.expect("opens");
    let question: &ApprovalRequest = report.pending[0].question.as_ref().expect("asks");
    again
        .decide(ApprovalRequestRef::from(question), Decision::approve("ann"))
        .await
        .expect("is accepted");
    assert_eq!(
        again.resume().await.expect("resumes").end,
        RunEnd::Completed
    );
}

/// A program that starts, makes one call and ends.
pub(crate) async fn hello() {
    run(&ToolSetup::new(StackKind::Default), &asking(1), 1).await;
}

/// Measures D: such a program from its start to its end.
fn start(rounds: usize) -> Vec<CostRow> {
    let mut spent = Vec::new();
    let mut least = Vec::new();
    let mut resident = Vec::new();
    for _ in 0..rounds {
        let hello = ResourceUse::by_program("hello");
        spent.push(hello.cpu_ns as f64 / 1e6);
        resident.push(hello.peak_kib as f64 * 1024.0 / 1e6);
        least.push(ResourceUse::by_program("nothing").cpu_ns as f64 / 1e6);
    }
    let spent = median(spent);
    let least = median(least);
    let resident = median(resident);
    vec![
        CostRow::new(
            "D: start, one call, end",
            spent,
            "ms",
            Some(least),
            "a program that does nothing",
        )
        .aiming(CostGoal::ValueAtMost(5.0)),
        CostRow::new("D: the most memory it had", resident, "MB", None, "")
            .aiming(CostGoal::ValueAtMost(15.0)),
    ]
}

/// A and E in instructions, which are the same however busy the machine is.
fn instructions() -> Vec<CostRow> {
    let ten = per_call("loop10", 200, 1_200);
    let least = per_call("loop-least", 200, 1_200);
    let early = per_call("loop-usual", 10, 60);
    let late = per_call("loop-usual", 950, 1_000);
    let (Some(ten), Some(least), Some(early), Some(late)) = (ten, least, early, late) else {
        return not_counted();
    };
    vec![
        CostRow::new(
            "A: a turn of one call, 10 layers: instructions",
            ten,
            "instr",
            Some(least),
            "hand-written loop",
        )
        .aiming(CostGoal::ValueAtMost(75_000.0)),
        CostRow::new(
            "E: turn 1000 of a run: instructions",
            late,
            "instr",
            Some(early),
            "turn 10 of a run",
        )
        .aiming(CostGoal::RatioAtMost(1.05)),
    ]
}

/// Measures E: whether a turn gets more expensive as the run grows.
async fn history(rounds: usize) -> CostRow {
    const LONG: usize = 1_000;
    let mut early = Vec::new();
    let mut late = Vec::new();
    for _ in 0..rounds {
        let stamps: Arc<Mutex<Vec<u64>>> = Arc::default();
        let seen = stamps.clone();
        let registry = Registry::new();
        let tool = tool_fn("echo", "Says it again.", move |_: ours::EchoInput, _cx| {
            seen.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(cpu_ns());
            async { Ok::<_, ToolError>("hello world") }
        });
        registry
            .register(tool.with_annotations(Annotations::read_only()))
            .expect("free");
        let made = ToolSetup::over(registry, StackKind::Default);
        let builder = made
            .session(&asking(LONG))
            .store(MemoryStore::new())
            .max_iterations(u32::MAX);
        let session = builder
            .window_bytes(usize::MAX)
            .build()
            .await
            .expect("opens");
        assert_eq!(
            session.run("begin").await.expect("runs").end,
            RunEnd::Completed
        );
        let stamps = stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let turns: Vec<f64> = stamps
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64 / 1e3)
            .collect();
        early.push(median(turns[5..55].to_vec()));
        late.push(median(turns[LONG - 60..LONG - 1].to_vec()));
    }
    let early = median(early);
    let late = median(late);
    CostRow::new(
        "E: turn 1000 of a run, the default stack",
        late,
        "us",
        Some(early),
        "turn 10 of the same run",
    )
    .aiming(CostGoal::RatioAtMost(1.2))
}
