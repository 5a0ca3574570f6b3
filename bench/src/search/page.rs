//! The sheets of search as sections of a page of the reference.

use std::{fmt::Write, io};

use super::{QualityRow, SearchSheet};
use crate::{measure::CostRow, page};

const QUALITY: &str = "## How good it is\n";
const SPEED: &str = "## How fast it is\n";
const POSTGRES: &str = "## How fast it is on PostgreSQL\n";

const QUALITY_HEAD: &str = "
Written by `cargo run --release -p toolgate-bench -- search --only quality --write docs/reference/search.md`. The set is
`bench/search`: messages, calls and results of made-up sessions, and queries with the documents that answer them, most of them
paraphrased. It was committed before any ranking existed. Settings were chosen on the half `tune`, among dozens of them, so its numbers are
optimistic. Nothing was chosen on the half `held`, but its numbers were printed and seen while the ranking still changed. Recall@k is the share of the relevant documents among the first k hits, of those that could be there; MRR is the
mean of 1 / the place of the first relevant one. Both are in points of 100. The semantic model is the local one.

";

const SPEED_HEAD: &str = "
Written by `cargo run --release -p toolgate-bench -- search --only speed --write docs/reference/search.md`. The corpus is
generated: words are as unevenly frequent as in real texts, and each message is an event in the log of a session. Times are
wall time; p95 is what 95 of 100 searches stay below. Goals are judged by wall time, with everything else that the machine did; the
processor time beside it is that of all threads of the search together. The floor of a rare word finds, ranks, cuts a snippet and reads the
row of each document with FTS5 alone ([0107](../decisions/0107-how-search-is-measured.md)). Nothing is written during the searches, and
the system has the file in its memory. The rates and sizes of the index are those of the run that built the corpus, which later runs use
again.

";

const POSTGRES_HEAD: &str = "
Written by `cargo run --release -p toolgate-bench -- search --only postgres --write docs/reference/search.md`, with
`TOOLGATE_TEST_POSTGRES` set to the address of a server. The corpus and the searches are the same; the processor time is that of the
process that searches, without the server.

";

/// Writes what was measured into its sections of a page; everything else of the page stays.
pub(super) fn write(file: &str, sheet: &SearchSheet, messages: usize) -> io::Result<()> {
    let mut text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        other => other?,
    };
    if !sheet.quality.is_empty() {
        text = with_section(&text, QUALITY, &quality_section(&sheet.quality));
    }
    let speed = [
        (SPEED, SPEED_HEAD, &sheet.speed),
        (POSTGRES, POSTGRES_HEAD, &sheet.postgres),
    ];
    for (title, head, rows) in speed {
        if !rows.is_empty() {
            text = with_section(&text, title, &speed_section(title, head, rows, messages));
        }
    }
    std::fs::write(file, text)
}

fn quality_section(rows: &[QualityRow]) -> String {
    let mut section = format!("{QUALITY}{QUALITY_HEAD}");
    section.push_str(
        "| Half | Mode | Queries | Recall@1 | Recall@3 | Recall@10 | MRR | Goal |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            section,
            "| {} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {} |",
            row.half,
            row.mode,
            row.queries,
            row.recall_1,
            row.recall_3,
            row.recall_10,
            row.mrr,
            row.goal
        );
    }
    section
}

fn speed_section(title: &str, head: &str, rows: &[CostRow], messages: usize) -> String {
    let mut section = format!("{title}{head}");
    let _ = writeln!(
        section,
        "Measured with {messages} messages on {}{}\n",
        page::place(),
        machine_load()
    );
    page::goal_table(&mut section, rows);
    section
}

/// Returns how much other work the machine has, and whether this process comes before or after it, where
/// the system says so.
fn machine_load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let Some(load) = load.split_whitespace().nth(1) else {
        return String::new();
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let niceness = match niceness() {
        Some(nice) if nice != 0 => format!(", and the bench ran with the niceness {nice}"),
        Some(_) | None => String::new(),
    };
    format!(" The load of the machine was {load} on {processors} processors{niceness}.")
}

/// Returns the niceness of this process: negative values come before other work.
fn niceness() -> Option<i32> {
    let status = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in brackets may have blanks; the niceness is the 17th value behind it.
    let (_, values) = status.rsplit_once(')')?;
    values.split_whitespace().nth(16)?.parse().ok()
}

/// Replaces a section, or adds it at the end.
fn with_section(page: &str, title: &str, section: &str) -> String {
    let start = page.find(title).unwrap_or(page.len());
    let after = page[start..].get(title.len()..).unwrap_or_default();
    let end = after
        .find("\n## ")
        .map_or(page.len(), |at| start + title.len() + at + 1);
    let parts = [&page[..start], section, &page[end..]];
    let parts = parts.map(str::trim).into_iter();
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("\n\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_the_rest_of_the_page_stays() {
        let page = "# Search\n\nText.\n\n## How good it is\n\nold\n\n## Limits\n\nSome.\n";
        let page = with_section(page, QUALITY, "## How good it is\n\nnew\n");
        assert_eq!(
            page,
            "# Search\n\nText.\n\n## How good it is\n\nnew\n\n## Limits\n\nSome.\n"
        );
        let page = with_section(&page, SPEED, "## How fast it is\n\nfast\n");
        let again = with_section(&page, SPEED, "## How fast it is\n\nfast\n");
        assert_eq!(page, again);
        assert!(
            page.ends_with("Some.\n\n## How fast it is\n\nfast\n"),
            "{page}"
        );
        assert_eq!(with_section("", SPEED, SPEED), SPEED);
    }
}
