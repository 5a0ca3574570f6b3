//! The cost sheet as a page of the reference.

use std::fmt::Write;

use toolgate::Clock;

use crate::measure::Row;

const HEAD: &str = "\
# What it costs

Written by `cargo run --release -p toolgate-bench -- cost --write docs/reference/cost.md`. Every number stands beside a
floor that was measured in the same interleaved rounds; the ratio of the two is what counts, since machines differ and
are rarely idle. Times are processor time, medians over rounds.

";

/// The whole page.
pub(crate) fn page(rows: &[Row]) -> String {
    let mut page = HEAD.to_owned();
    let _ = writeln!(page, "Measured on {}, {}.\n", machine(), today());
    page.push_str("| What | Value | Floor | Ratio | The floor is |\n|---|---|---|---|---|\n");
    for row in rows {
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
        let (floor, ratio) = (number(row.floor), number(row.ratio));
        let _ = writeln!(page, "| {} | {:.2} {} | {floor} | {ratio} | {} |", row.name, row.value, row.unit, row.note);
    }
    page
}

/// The processor and how many of them this process may use.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).and_then(|rest| rest.split(':').nth(1));
    let model = model.map_or("an unknown processor", str::trim);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{model}, {cores} cores")
}

fn today() -> String {
    toolgate::SystemClock::new().now().to_string().chars().take(10).collect()
}
