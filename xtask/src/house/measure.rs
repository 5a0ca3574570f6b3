//! The numbers of the mirror.

use std::{collections::BTreeMap, path::Path};

use regex::Regex;

use super::source::{Named, Source};

/// One number and the one to aim for.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) here: String,
    pub(crate) aim: &'static str,
}

/// Names that a trait or a convention gives, and that say nothing about the writer.
const CONVENTIONAL: [&str; 14] = [
    "new", "fmt", "from", "into", "next", "drop", "clone", "eq", "cmp", "hash", "default", "main",
    "handle", "call",
];

const PEOPLE: &str = r"\b(somebody|nobody|whoever|anybody|everybody|whomever)\b";
const QUESTION: &str =
    r"^(What|Who|Whom|Whose|Which|Whether|How|Where|When|Why|Whoever|Whatever)\b";
const TUPLE_LET: &str = r"^\s*let \((?:mut )?\w+(?:, (?:mut )?\w+)+,?\)\s*=\s*\(";
const BOOL_ARM: &str = r"^\s*(true|false) =>";

/// Measures the sources.
pub(crate) fn rows(sources: &[Source]) -> Vec<Row> {
    let mut rows = sizes(sources);
    rows.extend(names(sources));
    rows.extend(words(sources));
    rows
}

fn sizes(sources: &[Source]) -> Vec<Row> {
    let mut folders: BTreeMap<&Path, usize> = BTreeMap::new();
    for source in sources {
        *folders
            .entry(source.path.parent().unwrap_or(&source.path))
            .or_default() += 1;
    }
    let per_folder: Vec<usize> = folders.into_values().collect();
    let lines: Vec<usize> = sources.iter().map(|source| source.lines.len()).collect();
    let functions: Vec<usize> = functions(sources).map(|named| named.length).collect();
    vec![
        Row {
            name: "source files without tests; lines",
            here: format!("{}; {}", sources.len(), lines.iter().sum::<usize>()),
            aim: "",
        },
        Row {
            name: "files per folder: p90 · largest",
            here: format!(
                "{} · {}",
                quantile(&per_folder, 90),
                quantile(&per_folder, 100)
            ),
            aim: "12 · 20",
        },
        Row {
            name: "lines per file: median · p95",
            here: format!("{} · {}", quantile(&lines, 50), quantile(&lines, 95)),
            aim: "150 · 450",
        },
        Row {
            name: "lines per function: p95 · longest",
            here: format!(
                "{} · {}",
                quantile(&functions, 95),
                quantile(&functions, 100)
            ),
            aim: "35 · 80",
        },
    ]
}

fn names(sources: &[Source]) -> Vec<Row> {
    let types: Vec<&Named> = sources.iter().flat_map(|source| &source.types).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for named in &types {
        *counts.entry(&named.name).or_default() += 1;
    }
    let shared = types.iter().filter(|named| counts[named.name.as_str()] > 1);
    let functions: Vec<&Named> = functions(sources)
        .filter(|named| !CONVENTIONAL.contains(&named.name.as_str()))
        .collect();
    let one_word = |named: &&&Named| word_count(&named.name) == 1;
    vec![
        Row {
            name: "types with one-word names, %",
            here: percent(types.iter().filter(one_word).count(), types.len()),
            aim: "42",
        },
        Row {
            name: "types that share their name, %",
            here: percent(shared.count(), types.len()),
            aim: "12",
        },
        Row {
            name: "functions with one-word names, %",
            here: percent(functions.iter().filter(one_word).count(), functions.len()),
            aim: "48",
        },
    ]
}

fn words(sources: &[Source]) -> Vec<Row> {
    let lines: Vec<&str> = sources
        .iter()
        .flat_map(|source| source.lines.iter().map(String::as_str))
        .collect();
    let comments = lines
        .iter()
        .filter(|line| line.trim_start().starts_with("//") && !is_doc(line))
        .count();
    let summaries: Vec<&str> = lines
        .windows(2)
        .filter(|pair| !is_doc(pair[0]) && is_doc(pair[1]))
        .map(|pair| pair[1].trim_start()[3..].trim())
        .collect();
    let question = expression(QUESTION);
    let questions = summaries.iter().filter(|text| question.is_match(text));
    let count = |pattern: &str| {
        let pattern = expression(pattern);
        lines
            .iter()
            .filter(|line| pattern.is_match(&line.to_lowercase()))
            .count()
    };
    vec![
        Row {
            name: "comment lines that are not rustdoc, %",
            here: percent(comments, lines.len()),
            aim: "2",
        },
        Row {
            name: "doc summaries that begin with a question word, %",
            here: percent(questions.count(), summaries.len()),
            aim: "5",
        },
        Row {
            name: "somebody, nobody, whoever …: lines",
            here: count(PEOPLE).to_string(),
            aim: "20",
        },
        Row {
            name: "let (a, b) = (x, y): lines",
            here: count(TUPLE_LET).to_string(),
            aim: "20",
        },
        Row {
            name: "arms `true =>` or `false =>`: lines",
            here: count(BOOL_ARM).to_string(),
            aim: "20",
        },
    ]
}

fn functions(sources: &[Source]) -> impl Iterator<Item = &Named> {
    sources.iter().flat_map(|source| &source.functions)
}

fn is_doc(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("///") || line.starts_with("//!")
}

/// Counts the words of a name in camel or snake case.
fn word_count(name: &str) -> usize {
    let capitals = name.chars().filter(char::is_ascii_uppercase).count();
    let underscored = name.split('_').filter(|part| !part.is_empty()).count();
    capitals.max(underscored)
}

fn expression(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant expression is valid")
}

fn percent(part: usize, whole: usize) -> String {
    format!("{:.1}", 100.0 * part as f64 / whole.max(1) as f64)
}

fn quantile(values: &[usize], percent: usize) -> usize {
    let mut values = values.to_vec();
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    values
        .get((values.len() * percent / 100).min(last))
        .copied()
        .unwrap_or(0)
}
