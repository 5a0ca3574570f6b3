//! Shapes in memory: turns of one call, many calls in a turn, calls that wait.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::{FAN, LAYERS, LoopSetup, StackKind, TURNS, ToolBehaviour, memory_store, minimum};
use crate::{
    allocations::count_allocations,
    floors::BoxedChain,
    instructions::{not_counted, per_call},
    measure::{BenchClock, Contest, CostGoal, CostRow, of},
};

/// Runs the smallest possible loop: builds a model's reply, runs its call, stores every message.
pub(super) async fn least(chain: &Arc<BoxedChain>, turns: usize) {
    let mut said = vec![json!({ "role": "user", "content": "go" })];
    for turn in 0..turns {
        let text = format!("{{\"text\":\"t{turn}-0\"}}");
        assert_eq!(chain.turn(|_| text.clone(), 1, 8).await, 1);
        said.push(json!({ "role": "assistant", "call": { "id": turn, "arguments": text } }));
        said.push(json!({ "role": "tool", "id": turn, "content": "t" }));
    }
    assert_eq!(said.len(), 1 + 2 * turns);
}

/// Returns the arguments of a call of the first turn: each call has others, as in the script.
fn argument_text(call: usize) -> String {
    format!("{{\"text\":\"t0-{call}\"}}")
}

/// A: 200 turns of one call.
pub(super) async fn turns(rounds: usize) -> Vec<CostRow> {
    let chain = BoxedChain::new(LAYERS, None);
    let [none, ten, default] = [
        StackKind::Through(0),
        StackKind::Through(LAYERS),
        StackKind::Default,
    ]
    .map(|kind| LoopSetup::new(kind, ToolBehaviour::Reads));
    let contest = Contest::new(BenchClock::Cpu)
        .add("least", TURNS, || least(&chain, TURNS))
        .add("minimum", TURNS, || minimum::run(TURNS, None))
        .add("none", TURNS, || none.run(memory_store(), TURNS, 1, 1))
        .add("ten", TURNS, || ten.run(memory_store(), TURNS, 1, 1))
        .add("default", TURNS, || {
            default.run(memory_store(), TURNS, 1, 1)
        });
    let results = contest.run(rounds).await;
    let us = |name| of(&results, name) / 1e3;
    let row = |name: &str, ours, floor, note| {
        let name = format!("A: a turn of one call, {name}");
        CostRow::new(name, us(ours), "us", Some(us(floor)), note)
    };
    let least = "hand-written loop, the least work";
    let minimum = "hand-written: governed, journaled, receipted";
    vec![
        row("no layers", "none", "least", least),
        row("10 layers", "ten", "least", least).aiming(CostGoal::RatioAtMost(4.0)),
        row("the default stack", "default", "minimum", minimum).aiming(CostGoal::RatioAtMost(2.2)),
        row("the default stack", "default", "least", least),
    ]
}

/// A in allocations: the difference of two lengths, so that opening and ending cancel out.
pub(super) async fn allocations() -> Vec<CostRow> {
    const FEW: usize = 100;
    let each = |few: u64, many: u64| (many - few) as f64 / (TURNS - FEW) as f64;
    let few = count_allocations(minimum::run(FEW, None)).await;
    let minimum = each(few, count_allocations(minimum::run(TURNS, None)).await);
    let mut rows = Vec::new();
    for (name, kind) in [
        ("10 layers", StackKind::Through(LAYERS)),
        ("the default stack", StackKind::Default),
    ] {
        let setup = LoopSetup::new(kind, ToolBehaviour::Reads);
        let run = async |turns| count_allocations(setup.run(memory_store(), turns, 1, 1)).await;
        let few = run(FEW).await;
        rows.push(CostRow::new(
            format!("A: a turn of one call, {name}: allocations"),
            each(few, run(TURNS).await),
            "allocations",
            Some(minimum),
            "hand-written: governed, journaled, receipted",
        ));
    }
    if let Some(default) = rows.pop() {
        rows.push(default.aiming(CostGoal::ValueAtMost(100.0)));
    }
    rows
}

/// B1: 1000 calls in one turn.
pub(super) async fn fan_out(rounds: usize) -> Vec<CostRow> {
    let chain = BoxedChain::new(LAYERS, None);
    let ten = LoopSetup::new(StackKind::Through(LAYERS), ToolBehaviour::Reads);
    let default = LoopSetup::new(StackKind::Default, ToolBehaviour::Reads);
    let contest = Contest::new(BenchClock::Cpu)
        .add("least", FAN, || async {
            assert_eq!(chain.turn(argument_text, FAN, FAN).await, FAN);
        })
        .add("ten", FAN, || ten.run(memory_store(), 1, FAN, FAN))
        .add("default", FAN, || default.run(memory_store(), 1, FAN, FAN));
    let results = contest.run(rounds).await;
    let us = |name| of(&results, name) / 1e3;
    let row = |name: &str, ours, goal| {
        let name = format!("B1: 1000 calls in one turn, a call, {name}");
        let floor = Some(us("least"));
        CostRow::new(
            name,
            us(ours),
            "us",
            floor,
            "hand-written turn, the least work",
        )
        .aiming(CostGoal::ValueAtMost(goal))
    };
    vec![
        row("10 layers", "ten", 4.0),
        row("the default stack", "default", 12.0),
    ]
}

/// B2: 1000 tools that sleep 10 ms, 100 at a time.
pub(super) async fn waiting(rounds: usize) -> CostRow {
    const AT_ONCE: usize = 100;
    let nap = Duration::from_millis(10);
    let chain = BoxedChain::new(LAYERS, Some(nap));
    let ten = LoopSetup::new(StackKind::Through(LAYERS), ToolBehaviour::Sleeps(nap));
    let contest = Contest::new(BenchClock::Wall)
        .add("least", 1, || async {
            assert_eq!(chain.turn(argument_text, FAN, AT_ONCE).await, FAN);
        })
        .add("ten", 1, || ten.run(memory_store(), 1, FAN, AT_ONCE));
    let results = contest.run(rounds).await;
    let ms = |name| of(&results, name) / 1e6;
    CostRow::new(
        "B2: 1000 tools of 10 ms, 100 at a time",
        ms("ten"),
        "ms",
        Some(ms("least")),
        "hand-written turn (100 ms would be ideal)",
    )
    .aiming(CostGoal::RatioAtMost(1.05))
}

/// A, B and E in instructions, which are the same however busy the machine is.
pub(super) fn instructions() -> Vec<CostRow> {
    let names = [
        (
            "loop10",
            "loop-least",
            "A: a turn of one call, 10 layers",
            Some(60_000.0),
        ),
        (
            "loop-default",
            "minimum",
            "A: a turn of one call, the default stack",
            Some(200_000.0),
        ),
        (
            "loop-fan",
            "loop-least",
            "B1: a call of many in one turn, 10 layers",
            None,
        ),
        (
            "loop-fan-default",
            "minimum",
            "B1: a call of many in one turn, the default stack",
            None,
        ),
    ];
    let mut rows = Vec::new();
    for (ours, floor, name, goal) in names {
        let (Some(ours), Some(floor)) = (per_call(ours, 200, 700), per_call(floor, 200, 700))
        else {
            return not_counted();
        };
        let name = format!("{name}: instructions");
        let row = CostRow::new(name, ours, "instr", Some(floor), "hand-written");
        rows.push(match goal {
            Some(most) => row.aiming(CostGoal::ValueAtMost(most)),
            None => row,
        });
    }
    rows
}
