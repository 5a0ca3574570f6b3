//! How fast search is over a large SQLite store, beside FTS5 alone.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use toolgate::{
    model::LocalEmbedder,
    search::{SearchMode, SearchService},
    store::StoreHandle,
    value::SystemClock,
};
use toolgate_store::SqliteStore;

use super::{
    CorpusOptions, Fallible,
    corpus::GeneratedCorpus,
    erasing,
    floor::FloorTable,
    queries::{self, SearchTime, rare_words, time_search},
    turns,
};
use crate::measure::{CostGoal, CostRow, median};

/// A rare word may cost so much more than in FTS5 alone.
const RARE_GOAL: f64 = 1.3;

/// Measures everything on SQLite.
pub(super) async fn rows(rounds: usize, options: &CorpusOptions) -> Fallible<Vec<CostRow>> {
    let temporary = TempDir::new()?;
    let directory = options.directory.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(directory)?;
    let files = SearchFiles::new(directory, options.messages);
    let mut corpus = GeneratedCorpus::new(options.messages)?;
    let mut rows = files.build(&mut corpus).await?;
    let service = service(&files.ours)?;
    rows.push(first_search(&service).await?);
    rows.push(rare_row(&service, &files.floor, rounds).await?);
    let kinds = queries::kinds(&corpus);
    rows.extend(queries::measure_kinds(&service, &kinds, rounds).await?);
    drop(service);
    rows.extend(cold_row(&files.ours, rounds)?);
    rows.push(erasing::row(&files.ours, rounds).await?);
    rows.extend(turns::rows(rounds).await?);
    Ok(rows)
}

pub(super) fn service(path: &Path) -> Fallible<SearchService> {
    let store = StoreHandle::new(SqliteStore::open(path)?);
    let service = SearchService::new(store, SystemClock::new());
    Ok(service.with_embedder(Arc::new(LocalEmbedder::new())))
}

/// The databases of the generated corpus.
struct SearchFiles {
    /// The store with its search tables.
    ours: PathBuf,
    /// Written when it is indexed, with what that cost, so that a later run can use the file.
    done: PathBuf,
    /// The same texts in a table of FTS5.
    floor: PathBuf,
}

/// What it cost to build the index.
#[derive(Serialize, Deserialize)]
struct BuildCosts {
    indexed_per_second: f64,
    embedded_per_second: f64,
    log_bytes: u64,
    words_bytes: u64,
    vectors_bytes: u64,
}

impl BuildCosts {
    fn rows(&self, floor_bytes: u64) -> Vec<CostRow> {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let rate = |name: &str, value: f64| CostRow::new(name, value, "messages/s", None, "");
        let size = |name: &str, bytes: u64, floor: Option<u64>, note: &str| {
            CostRow::new(name, megabytes(bytes), "MB", floor.map(megabytes), note)
        };
        let alone = "FTS5 alone, with the texts and rows";
        let kept = "256 dimensions, int8, and one bit each";
        vec![
            rate("indexing words", self.indexed_per_second),
            rate("embedding", self.embedded_per_second),
            size("the log itself", self.log_bytes, None, ""),
            size(
                "the index of words",
                self.words_bytes,
                Some(floor_bytes),
                alone,
            ),
            size("the vectors", self.vectors_bytes, None, kept),
        ]
    }
}

impl SearchFiles {
    fn new(directory: &Path, messages: usize) -> Self {
        let file = |name: &str| directory.join(format!("search-{messages}-{name}"));
        Self {
            ours: file("ours.db"),
            done: file("done"),
            floor: file("floor.db"),
        }
    }

    /// Generates and indexes the corpus, unless an earlier run did.
    async fn build(&self, corpus: &mut GeneratedCorpus) -> Fallible<Vec<CostRow>> {
        let costs: BuildCosts = if self.done.is_file() {
            eprintln!("using {}", self.ours.display());
            serde_json::from_slice(&std::fs::read(&self.done)?)?
        } else {
            remove_database(&self.ours)?;
            let store = StoreHandle::new(SqliteStore::open(&self.ours)?);
            let mut messages = corpus.clone();
            messages.write(&store).await?;
            drop(store);
            let costs = self.index().await?;
            std::fs::write(&self.done, serde_json::to_vec(&costs)?)?;
            costs
        };
        if self.floor.is_file() {
            corpus.visit_all(|_| Ok(()))?;
        } else {
            // Under its own name only when it is complete.
            let part = self.floor.with_extension("part");
            remove_database(&part)?;
            FloorTable::build(&part, corpus)?;
            std::fs::rename(&part, &self.floor)?;
        }
        Ok(costs.rows(used_bytes(&self.floor)?))
    }

    /// Fills the index, and measures how long that takes and how large it is.
    async fn index(&self) -> Fallible<BuildCosts> {
        let log_bytes = used_bytes(&self.ours)?;
        let store = StoreHandle::new(SqliteStore::open(&self.ours)?);
        let words = SearchService::new(store, SystemClock::new());
        let start = Instant::now();
        let events = words.continue_index(report).await?.events as f64;
        let indexed_per_second = events / start.elapsed().as_secs_f64();
        let with_words = used_bytes(&self.ours)?;
        let embedding = service(&self.ours)?;
        let start = Instant::now();
        let embedded = embedding.continue_index(report).await?.embedded as f64;
        let embedded_per_second = embedded / start.elapsed().as_secs_f64();
        let with_vectors = used_bytes(&self.ours)?;
        Ok(BuildCosts {
            indexed_per_second,
            embedded_per_second,
            log_bytes,
            words_bytes: with_words.saturating_sub(log_bytes),
            vectors_bytes: with_vectors.saturating_sub(with_words),
        })
    }
}

fn report(progress: toolgate::search::SearchProgress) {
    let events = progress.events;
    let embedded = progress.embedded;
    if (events + embedded) % 100_000 < 64 && events + embedded >= 64 {
        eprintln!("  {events} events are indexed, {embedded} documents embedded");
    }
}

fn remove_database(file: &Path) -> std::io::Result<()> {
    for ending in ["", "-wal", "-shm"] {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        match std::fs::remove_file(name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Returns the bytes of the pages that a database uses.
fn used_bytes(file: &Path) -> rusqlite::Result<u64> {
    let connection = Connection::open(file)?;
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = number("page_count")? - number("freelist_count")?;
    Ok((pages * number("page_size")?).unsigned_abs())
}

/// Measures the first hybrid search of a process, which loads the model and the vectors.
async fn first_search(service: &SearchService) -> Fallible<CostRow> {
    let spent = time_search(service, "database migration failed", SearchMode::Hybrid).await?;
    let note = "loads the model and the vectors";
    Ok(CostRow::new(
        "the first hybrid search of an open process",
        spent.wall,
        "ms",
        None,
        note,
    ))
}

/// Compares a rare word with FTS5 alone, which does the same job.
async fn rare_row(service: &SearchService, floor: &Path, rounds: usize) -> Fallible<CostRow> {
    let table = FloorTable::open(floor)?;
    let mut ours = Vec::new();
    let mut floor = Vec::new();
    for round in 0..=rounds {
        for word in rare_words() {
            let spent = time_search(service, &word, SearchMode::Text).await?;
            let alone = table.time_search(&word)?;
            if round > 0 {
                ours.push(spent);
                floor.push(alone);
            }
        }
    }
    let micros = |times: &[SearchTime], part: fn(&SearchTime) -> f64| {
        median(times.iter().map(|time| part(time) * 1e3).collect())
    };
    let processor = |times: &[SearchTime]| micros(times, |time| time.processor);
    let note = format!(
        "FTS5 alone, with rank, snippet and row; processor time {:.0} and {:.0} us",
        processor(&ours),
        processor(&floor)
    );
    let wall = |times: &[SearchTime]| micros(times, |time| time.wall);
    let row = CostRow::new(
        "a rare word, median",
        wall(&ours),
        "us",
        Some(wall(&floor)),
        &note,
    );
    Ok(row.aiming(CostGoal::RatioAtMost(RARE_GOAL)))
}

/// Measures `toolgate search` as a process of its own, if the program is built.
fn cold_row(database: &Path, rounds: usize) -> Fallible<Vec<CostRow>> {
    let here = std::env::current_exe()?;
    let program = here.with_file_name("toolgate");
    if !program.is_file() {
        eprintln!("there is no program `toolgate` beside this one: a cold search is left out");
        eprintln!("hint: cargo build --release -p toolgate-cli -p toolgate-bench");
        return Ok(Vec::new());
    }
    let home = TempDir::new()?;
    let mut rows = Vec::new();
    for mode in ["text", "hybrid"] {
        let mut times = Vec::new();
        for _ in 0..rounds.min(7) {
            let start = Instant::now();
            let ended = Command::new(&program)
                .args([
                    "search",
                    "database migration failed",
                    "--json",
                    "--mode",
                    mode,
                ])
                .arg("--db")
                .arg(database)
                .env("TOOLGATE_HOME", home.path())
                .current_dir(home.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status()?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            if !ended.success() {
                return Err(format!("toolgate search --mode {mode} ended with {ended}").into());
            }
        }
        let name = format!("cold `toolgate search --mode {mode}`");
        let note = "a process of its own, from its start to its end";
        rows.push(CostRow::new(name, median(times), "ms", None, note));
    }
    Ok(rows)
}
