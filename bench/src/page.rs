//! The cost sheets as a page of the reference, in sections that are measured apart.

use std::fmt::Write;

use toolgate::value::Clock;

use crate::measure::CostRow;

const HEAD: &str = "\
# What it costs

Written by `cargo run --profile dist -p toolgate-bench -- cost --write docs/reference/cost.md`. Every number stands beside a
floor that was measured in the same interleaved rounds; the ratio of the two is what counts, since machines differ and
are rarely idle. Times are processor time, medians over rounds.

";

/// The headings of the other sections, in their order.
const DURABLE: &str = "## What being durable costs\n";
const LOOP: &str = "## What a loop costs\n";

const TUI: &str = "## What the program costs\n";

const TUI_HEAD: &str = "
Written by `cargo run --release -p toolgate-bench -- tui --write docs/reference/cost.md`. The frames are those of `toolgate
chat`, drawn on a terminal in memory; what a real terminal does with them is not measured. Their times are wall time, medians
over frames; those of the program are processor time, with everything it starts.

";

const LOOP_HEAD: &str = "
Written by `cargo run --profile dist -p toolgate-bench -- loop --write docs/reference/cost.md`: optimised across crates, as
what is published is, and as the other loops of this kind were built when they were measured. The model answers at once and
the tool returns its argument, so that what is left is the loop: messages, events, journal, stack, results. Everything is
kept in memory. Times are processor time, medians over rounds; instructions are counted where `valgrind` runs.

";

const DURABLE_HEAD: &str = "
Written by `cargo run --release -p toolgate-bench -- store --write docs/reference/cost.md`, with `TOOLGATE_TEST_POSTGRES`
set to the address of a server. Times are wall time unless a row says otherwise, medians over rounds; every floor was
measured in turns with the row beside it, on the same disk.

";

/// Returns the page with a new first section.
pub(crate) fn with_cost(before: &str, rows: &[CostRow]) -> String {
    let mut first = HEAD.to_owned();
    let _ = writeln!(first, "Measured on {}, {}.\n", machine(), today());
    first.push_str("| What | Value | Floor | Ratio | The floor is |\n|---|---|---|---|---|\n");
    rows.iter().for_each(|row| line(&mut first, row, None));
    let [_, durable, whole, tui] = sections(before);
    joined([first, durable, whole, tui])
}

/// Returns the page with a new section on durability.
pub(crate) fn with_store(before: &str, rows: &[CostRow]) -> String {
    let [first, _, whole, tui] = sections(before);
    joined([first, section(DURABLE, DURABLE_HEAD, rows), whole, tui])
}

/// Returns the page with a new section on whole loops.
pub(crate) fn with_loop(before: &str, rows: &[CostRow]) -> String {
    let [first, durable, _, tui] = sections(before);
    joined([first, durable, section(LOOP, LOOP_HEAD, rows), tui])
}

/// Returns the page with a new section on the terminal UI.
pub(crate) fn with_tui(before: &str, rows: &[CostRow]) -> String {
    let [first, durable, whole, _] = sections(before);
    joined([first, durable, whole, section(TUI, TUI_HEAD, rows)])
}

/// The parts of a page, each empty if it is missing.
fn sections(page: &str) -> [String; 4] {
    let at = |start: &str| page.find(start).unwrap_or(page.len());
    let tui = at(TUI);
    let whole = at(LOOP).min(tui);
    let durable = at(DURABLE).min(whole);
    [
        &page[..durable],
        &page[durable..whole],
        &page[whole..tui],
        &page[tui..],
    ]
    .map(str::to_owned)
}

fn joined(sections: [String; 4]) -> String {
    let written = sections
        .iter()
        .map(|section| section.trim_end())
        .filter(|section| !section.is_empty());
    written.collect::<Vec<_>>().join("\n\n") + "\n"
}

fn section(title: &str, head: &str, rows: &[CostRow]) -> String {
    let mut page = format!("{title}{head}");
    let _ = writeln!(page, "Measured on {}\n", place());
    goal_table(&mut page, rows);
    page
}

/// Writes rows as a table with goals.
pub(crate) fn goal_table(page: &mut String, rows: &[CostRow]) {
    page.push_str(
        "| What | Value | Floor | Ratio | The floor is | Goal |\n|---|---|---|---|---|---|\n",
    );
    rows.iter()
        .for_each(|row| line(page, row, Some(row.verdict())));
}

/// Describes the machine and the day of a measurement.
pub(crate) fn place() -> String {
    format!(
        "{}, {}; the machine was shared with other work.",
        machine(),
        today()
    )
}

fn line(page: &mut String, row: &CostRow, goal: Option<String>) {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
    let floor = number(row.floor);
    let ratio = number(row.ratio);
    let goal = goal.map_or_else(String::new, |goal| format!(" {goal} |"));
    let _ = writeln!(
        page,
        "| {} | {:.2} {} | {floor} | {ratio} | {} |{goal}",
        row.name, row.value, row.unit, row.note
    );
}

/// Describes the processor and how many of them this process may use.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .and_then(|rest| rest.split(':').nth(1));
    let model = model.map_or("an unknown processor", str::trim);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{model}, {cores} cores")
}

fn today() -> String {
    toolgate::value::SystemClock::new()
        .now()
        .to_string()
        .chars()
        .take(10)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_section_is_written_without_losing_the_other() {
        let row = |name: &str| [CostRow::new(name, 1.0, "us", None, "")];
        let page = with_loop(
            &with_store(&with_cost("", &row("first")), &row("second")),
            &row("fifth"),
        );
        let page = with_store(&with_cost(&page, &row("third")), &row("fourth"));
        let found =
            ["first", "second", "third", "fourth", "fifth"].map(|name| page.matches(name).count());
        assert_eq!(found, [0, 0, 1, 1, 1], "{page}");
    }
}
