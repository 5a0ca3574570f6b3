//! What a whole loop costs: a model that answers at once, turns of calls, sessions that stop and go on, start-up.
//!
//! The shapes are those by which other loops are measured: A is a run of 200 turns of one call, B a turn of 1000 calls,
//! C a run that stops at an approval and goes on from the store, D a program that starts, makes one call and ends, E the
//! 1000th turn of a run beside the 10th.

use std::{
    hint::black_box,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::json;
use toolgate::{
    Annotations, ApprovalRequest, Decision, MemoryStore, Question, Registry, RunEnd, Session,
    SessionBuilder, Stack, StoreHandle, ToolError,
    layers::{Config, Parts},
    models::{Line, Scripted},
    tool_fn,
};
use toolgate_testkit::AskFirst;

use crate::{
    Options, floors,
    instructions::{not_counted, per_call},
    measure::{Contest, Goal, Row, Watch, cpu_ns, median, of},
    ours,
    used::Used,
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

pub(crate) async fn rows(options: &Options) -> Vec<Row> {
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

/// A model that asks for one call `turns` times and then says that it is done. Like tools and stack it is made once.
fn asking(turns: usize) -> Arc<Scripted> {
    playing(Line::new().call("echo", floors::arguments()).times(turns))
}

/// A model that asks for `calls` calls at once and then says that it is done.
fn asking_at_once(calls: usize) -> Arc<Scripted> {
    playing((0..calls).fold(Line::new(), |line, _| {
        line.call("echo", floors::arguments())
    }))
}

fn playing(line: Line) -> Arc<Scripted> {
    Arc::new(Scripted::new([line, Line::new().say("done")]).chunk(NonZeroUsize::MAX))
}

/// Tools and a stack over them: made once by a program, whatever sessions it has. What making them costs is part of D.
struct Made {
    registry: Registry,
    stack: Stack,
}

impl Made {
    fn new(layers: Layers) -> Self {
        Self::over(ours::registry(None), layers)
    }

    fn over(registry: Registry, layers: Layers) -> Self {
        let stack = match layers {
            Layers::Through(count) => ours::stack(&registry, count),
            Layers::Default => {
                // Every call is the same and comes to the same: the guard would rightly stop that.
                let text = "[layers.receipts]\nsink = 'memory'\n[layers.loop_guard]\nidentical = 1000000\n";
                let config = Config::parse(text).expect("valid");
                config
                    .build(registry.clone(), &Parts::new())
                    .expect("valid")
            }
            Layers::Asking => Stack::over(registry.clone())
                .layer(AskFirst)
                .build()
                .expect("one layer"),
        };
        Self { registry, stack }
    }

    fn session(&self, model: &Arc<Scripted>) -> SessionBuilder {
        Session::builder(model.clone(), self.registry.clone()).stack(self.stack.clone())
    }
}

#[derive(Clone, Copy)]
enum Layers {
    Through(usize),
    Default,
    /// One that asks before every call.
    Asking,
}

/// A run of so many turns of one call, in a session of its own.
async fn run(made: &Made, model: &Arc<Scripted>, turns: usize) {
    let session = made
        .session(model)
        .store(MemoryStore::new())
        .max_iterations(u32::MAX);
    let session = session
        .window_bytes(usize::MAX)
        .build()
        .await
        .expect("an empty session can be opened");
    let report = session.run("go on").await.expect("runs");
    assert_eq!(
        (report.end, report.iterations as usize),
        (RunEnd::Completed, turns + 1)
    );
}

/// Runs a shape so many times, for being counted; says whether there is one of that name.
pub(crate) async fn count(name: &str, times: usize) -> bool {
    match name {
        "loop0" => run(&Made::new(Layers::Through(0)), &asking(times), times).await,
        "loop10" => run(&Made::new(Layers::Through(10)), &asking(times), times).await,
        "loop-usual" => run(&Made::new(Layers::Default), &asking(times), times).await,
        "loop-least" => least(&floors::Chain::new(10, None), times).await,
        "loop-fan" => {
            let (made, model) = (Made::new(Layers::Through(10)), asking_at_once(FAN));
            for _ in 0..times {
                fan(&made, &model).await;
            }
        }
        "loop-approval" => {
            let (made, model) = (Made::new(Layers::Asking), asking(1));
            for _ in 0..times {
                stop_and_go_on(&made, &model).await;
            }
        }
        _ => return false,
    }
    true
}

/// The least that could be called a loop: a model's reply made, its calls run, everything that was said kept.
async fn least(chain: &Arc<floors::Chain>, turns: usize) {
    let mut said = vec![json!({ "role": "user", "content": "go on" })];
    for turn in 0..turns {
        let text = floors::arguments().to_string();
        said.push(json!({ "role": "assistant", "call": { "id": turn, "name": "echo", "arguments": text } }));
        assert_eq!(chain.turn(&text, 1, 8).await, 1);
        said.push(json!({ "role": "tool", "id": turn, "content": "hello world" }));
    }
    black_box(said);
}

/// A: 200 turns of one call.
async fn turns(rounds: usize) -> Vec<Row> {
    let (none, ten) = (floors::Chain::new(0, None), floors::Chain::new(10, None));
    let model = asking(TURNS);
    let [ours0, ours10, usual] =
        [Layers::Through(0), Layers::Through(10), Layers::Default].map(Made::new);
    let contest = Contest::new(Watch::Cpu)
        .add("least0", TURNS, || least(&none, TURNS))
        .add("least10", TURNS, || least(&ten, TURNS))
        .add("ours0", TURNS, || run(&ours0, &model, TURNS))
        .add("ours10", TURNS, || run(&ours10, &model, TURNS))
        .add("usual", TURNS, || run(&usual, &model, TURNS));
    let results = contest.run(rounds).await;
    let us = |name| of(&results, name) / 1e3;
    let row = |name: &str, ours, floor| {
        Row::new(
            format!("A: a turn of one call, {name}"),
            us(ours),
            "us",
            Some(us(floor)),
            "hand-written loop",
        )
    };
    vec![
        row("no layers", "ours0", "least0"),
        row("10 layers", "ours10", "least10").aiming(Goal::RatioAtMost(4.0)),
        row("the default stack", "usual", "least10").aiming(Goal::ValueAtMost(60.0)),
    ]
}

/// B: 1000 calls in one turn.
async fn fan_out(rounds: usize) -> Row {
    let (chain, made) = (floors::Chain::new(10, None), Made::new(Layers::Through(10)));
    let model = asking_at_once(FAN);
    let text = floors::arguments().to_string();
    let contest = Contest::new(Watch::Cpu)
        .add("least", FAN, || async {
            assert_eq!(chain.turn(&text, FAN, FAN).await, FAN)
        })
        .add("ours", FAN, || fan(&made, &model));
    let results = contest.run(rounds).await;
    let us = |name| of(&results, name) / 1e3;
    Row::new(
        "B: 1000 calls in one turn, a call",
        us("ours"),
        "us",
        Some(us("least")),
        "hand-written turn",
    )
    .aiming(Goal::ValueAtMost(5.3))
}

/// A session that makes as many calls in one turn as its model asks for.
async fn fan(made: &Made, model: &Arc<Scripted>) {
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

/// C: stop at an approval, and go on from the store with another session.
async fn approval(rounds: usize) -> Row {
    let (chain, made, model) = (
        floors::Chain::new(1, None),
        Made::new(Layers::Asking),
        asking(1),
    );
    let contest = Contest::new(Watch::Cpu).add("least", CYCLES, || async {
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
    Row::new(
        "C: stop at an approval and go on from the store",
        us("ours"),
        "us",
        Some(us("least")),
        "hand-written, as text",
    )
    // Four times what stopping, writing to a file and going on costs by hand.
    .aiming(Goal::ValueAtMost(84.0))
}

async fn stop_and_go_on(made: &Made, model: &Arc<Scripted>) {
    let store = StoreHandle::new(MemoryStore::new());
    let open = |session| {
        let store = store.clone();
        made.session(model)
            .dispatcher(move |dispatcher| match session {
                Some(session) => dispatcher.store_handle(store).session(session).take_over(),
                None => dispatcher.store_handle(store),
            })
    };
    let first = open(None).build().await.expect("opens");
    let report = first.run("go on").await.expect("runs");
    assert_eq!(report.end, RunEnd::Suspended);
    drop(first);
    let again = open(Some(report.session)).build().await.expect("opens");
    let question: &ApprovalRequest = report.pending[0].question.as_ref().expect("asks");
    again
        .decide(Question::from(question), Decision::approve("ann"))
        .await
        .expect("is taken");
    assert_eq!(
        again.resume().await.expect("goes on").end,
        RunEnd::Completed
    );
}

/// A program that starts, makes one call and ends.
pub(crate) async fn hello() {
    run(&Made::new(Layers::Default), &asking(1), 1).await;
}

/// D: what such a program costs from its start to its end.
fn start(rounds: usize) -> Vec<Row> {
    let (mut spent, mut least, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let hello = Used::by_program("hello");
        spent.push(hello.cpu_ns as f64 / 1e6);
        resident.push(hello.peak_kib as f64 * 1024.0 / 1e6);
        least.push(Used::by_program("nothing").cpu_ns as f64 / 1e6);
    }
    let (spent, least, resident) = (median(spent), median(least), median(resident));
    vec![
        Row::new(
            "D: start, one call, end",
            spent,
            "ms",
            Some(least),
            "a program that does nothing",
        )
        .aiming(Goal::ValueAtMost(5.0)),
        Row::new("D: the most memory it had", resident, "MB", None, "")
            .aiming(Goal::ValueAtMost(15.0)),
    ]
}

/// A and E in instructions, which are the same however busy the machine is.
fn instructions() -> Vec<Row> {
    let ten = per_call("loop10", 200, 1_200);
    let least = per_call("loop-least", 200, 1_200);
    let (early, late) = (
        per_call("loop-usual", 10, 60),
        per_call("loop-usual", 950, 1_000),
    );
    let (Some(ten), Some(least), Some(early), Some(late)) = (ten, least, early, late) else {
        return not_counted();
    };
    vec![
        Row::new(
            "A: a turn of one call, 10 layers: instructions",
            ten,
            "instr",
            Some(least),
            "hand-written loop",
        )
        .aiming(Goal::ValueAtMost(75_000.0)),
        Row::new(
            "E: turn 1000 of a run: instructions",
            late,
            "instr",
            Some(early),
            "turn 10 of a run",
        )
        .aiming(Goal::RatioAtMost(1.05)),
    ]
}

/// E: whether a turn gets dearer as the run grows.
async fn history(rounds: usize) -> Row {
    const LONG: usize = 1_000;
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let stamps: Arc<Mutex<Vec<u64>>> = Arc::default();
        let seen = stamps.clone();
        let registry = Registry::new();
        let tool = tool_fn("echo", "Says it again.", move |_: ours::Echo, _cx| {
            seen.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(cpu_ns());
            async { Ok::<_, ToolError>("hello world") }
        });
        registry
            .register(tool.annotated(Annotations::read_only()))
            .expect("free");
        let made = Made::over(registry, Layers::Default);
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
            session.run("go on").await.expect("runs").end,
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
    let (early, late) = (median(early), median(late));
    Row::new(
        "E: turn 1000 of a run, the default stack",
        late,
        "us",
        Some(early),
        "turn 10 of the same run",
    )
    .aiming(Goal::RatioAtMost(1.2))
}
