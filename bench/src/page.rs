//! The cost sheets as a page of the reference, in sections that are measured apart.

use std::fmt::Write;

use toolgate::value::Clock;

use crate::measure::CostRow;

const HEAD: &str = "\
# What it costs

Every number stands beside a floor that was measured in the same interleaved rounds; the ratio of the two is what counts,
since machines differ and are rarely idle. *Met* and *missed* compare a row with its goal.

The first table is about parts: stacks, layers, and calls through a dispatcher. **Its rows have no session and no model.**
What a user has, a session with the default stack and its ledger, is in [What a loop costs](#what-a-loop-costs).

Written by `cargo run --release -p toolgate-bench -- cost --write docs/reference/cost.md`. Times are processor time, medians
over rounds.

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
Written by `cargo run --release -p toolgate-bench -- loop --write docs/reference/cost.md`. These are whole runs of a session.
The model answers at once, each call has other arguments and the tool returns its argument, so that what is left is the loop:
messages, events, journal, stack, results. The default stack is the default: receipts are sealed into the ledger of the
store, and the clock is the system's. A, B and E are in memory; C, F, K, opening and listing are on an SQLite file that syncs
each commit. A, E, and the rows that say so are processor time; B2, C, F, K, opening and listing are wall time; all are medians
over rounds. Instructions are counted where `valgrind` runs, syncs and written bytes where `strace` does.

Floors are written by hand, with nothing in them to make them slower: *the least work* is a loop without decisions and
records; *governed, journaled, receipted* also checks the schema, notes one decision per layer, digests, and chains a receipt.

";

const LOOP_END: &str = "
### Beside other loops

Other agent frameworks in the same shapes, measured on 2026-11-17 on this kind of machine with a harness and a script of
their own, the system allocator, in six interleaved rounds with Toolgate as it was then (11.8 us for A with ten layers, 36.9
with the default stack). They are quoted, not measured again with the table above; compare magnitudes, not digits.

| Shape | Best other | Others |
|---|---|---|
| A: a turn of one call, ten layers, us | swiftide 95 | AI SDK 236, rig 564, LangChain 5,363 (with its own middlewares 6,927) |
| B1: one of 1000 calls in a turn, us | swiftide 3.13, which governs nothing | AI SDK 44, rig 68, LangChain 1,081 |
| B2: 1000 tools of 10 ms, 100 at a time, ms | swiftide 116.7 | rig 134, AI SDK 137, LangChain 1,144 |
| C: suspend, decide and resume, us | LangGraph on SQLite 13,620 | plain files without sync: swiftide 70, rig 164, AI SDK 629 |
| D: start, ms and MB | swiftide 1.3 and 4.2 | rig 5.2 and 8, AI SDK 190 and 82, LangChain 923 and 73 |
| E: turn 1000 beside turn 10 | AI SDK 3.6 to 5.5 | LangChain 5.7, swiftide 59, rig 84 |
| K: a durable turn, us | LangGraph 8,295 | |
";

const DURABLE_HEAD: &str = "
Written by `cargo run --release -p toolgate-bench -- store --write docs/reference/cost.md`, with `TOOLGATE_TEST_POSTGRES`
set to the address of a server. These rows are turns of a dispatcher, without a session and a model. Times are wall time,
medians over rounds; every floor was measured in turns with the row beside it, on the same disk.

";

/// Returns the page with a new first section.
pub(crate) fn with_cost(before: &str, rows: &[CostRow]) -> String {
    let mut first = HEAD.to_owned();
    let _ = writeln!(first, "Measured on {}\n", place());
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
    let whole = section(LOOP, LOOP_HEAD, rows) + LOOP_END;
    joined([first, durable, whole, tui])
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
        "{}, {}, profile `{}`; the machine was shared with other work (load average {}).",
        machine(),
        today(),
        profile(),
        load_average()
    )
}

/// Returns the profile that the program was built with: the directory that cargo put it in.
fn profile() -> String {
    let program = std::env::current_exe().ok();
    let directory = program.as_deref().and_then(|program| program.parent());
    let name = directory.and_then(|directory| directory.file_name());
    name.map_or_else(
        || "unknown".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// Returns the load averages of the last minutes.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let numbers: Vec<_> = text.split_whitespace().take(3).collect();
    if numbers.is_empty() {
        "unknown".to_owned()
    } else {
        numbers.join(", ")
    }
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
            &with_store(&with_cost("", &row("row-a")), &row("row-b")),
            &row("row-e"),
        );
        let page = with_store(&with_cost(&page, &row("row-c")), &row("row-d"));
        let found =
            ["row-a", "row-b", "row-c", "row-d", "row-e"].map(|name| page.matches(name).count());
        assert_eq!(found, [0, 0, 1, 1, 1], "{page}");
    }
}
