//! Counts instructions with callgrind: the same binary gives the same number however busy the machine is.

use std::{hint::black_box, process::Command};

use crate::{floors, measure::CostRow, ours};

/// Runs a contender a number of times, for counting instructions.
pub(crate) async fn contender(name: &str, times: usize) -> Result<(), String> {
    let text = |turn| move |_| floors::arguments_of(turn).to_string();
    match name {
        "least" => {
            let chain = floors::BoxedChain::new(10, None);
            for turn in 0..times {
                black_box(chain.turn(text(turn), 1, 8).await);
            }
        }
        "ours" => {
            let gate = ours::TurnGate::new(10, 8, None).await;
            for turn in 0..times {
                black_box(gate.turn(text(turn), 1).await);
            }
        }
        other if crate::shapes::count(other, times).await => {}
        other => return Err(format!("there is no contender named {other}")),
    }
    Ok(())
}

/// Counts the instructions of one dispatched call, or returns a line that says why they cannot be
/// counted.
pub(crate) fn rows() -> Vec<CostRow> {
    let count = |name, from| per_call(name, from, from + 1_000);
    let counts = (
        count("ours", 200),
        count("least", 200),
        count("ours", 1_200),
    );
    let (Some(ours), Some(least), Some(later)) = counts else {
        return not_counted();
    };
    let name = "full dispatch, 10 layers: instructions";
    vec![
        CostRow::new(
            name,
            ours,
            "instr",
            Some(least),
            "hand-written, the least work",
        ),
        CostRow::new(
            "the same after 1200 turns",
            later,
            "instr",
            Some(ours),
            "turns 200 to 1200",
        ),
    ]
}

/// Reports that instructions cannot be counted, and returns no rows.
pub(crate) fn not_counted() -> Vec<CostRow> {
    eprintln!("instructions are not counted: valgrind is not installed or does not run here");
    Vec::new()
}

/// The difference of two runs, so that start-up cancels out.
pub(crate) fn per_call(name: &str, few: usize, many: usize) -> Option<f64> {
    let few_count = count(name, few)?;
    let many_count = count(name, many)?;
    Some((many_count - few_count) / (many - few) as f64)
}

fn count(name: &str, times: usize) -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let valgrind = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let output = Command::new("valgrind")
        .args(valgrind)
        .arg(program)
        .args(["count", name, &times.to_string()])
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, rest) = text.split_once("Collected : ")?;
    rest.split_whitespace().next()?.parse().ok()
}
