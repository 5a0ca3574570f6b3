//! How fast search is over a large SQLite store, beside FTS5 alone.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

use rusqlite::{Connection, params};
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
    queries::{self, rare_words, time_search},
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
    rows.push(rare_row(&service, &files.raw, rounds).await?);
    let kinds = queries::kinds(&corpus);
    rows.extend(queries::measure_kinds(&service, &kinds, rounds).await?);
    drop(service);
    rows.extend(cold_row(&files.ours, rounds)?);
    rows.extend(turns::rows(rounds).await?);
    Ok(rows)
}

fn service(path: &Path) -> Fallible<SearchService> {
    let store = StoreHandle::new(SqliteStore::open(path)?);
    let service = SearchService::new(store, SystemClock::new());
    Ok(service.with_embedder(Arc::new(LocalEmbedder::new())))
}

/// The databases of the generated corpus.
struct SearchFiles {
    /// The store with its search tables.
    ours: PathBuf,
    /// The same texts in a table of FTS5, and nothing else.
    raw: PathBuf,
    /// Written last, with what building cost, so that a later run can use these files.
    done: PathBuf,
}

/// What it cost to build the index.
#[derive(Serialize, Deserialize)]
struct BuildCosts {
    indexed_per_second: f64,
    embedded_per_second: f64,
    log_bytes: u64,
    words_bytes: u64,
    vectors_bytes: u64,
    raw_bytes: u64,
}

impl BuildCosts {
    fn rows(&self) -> Vec<CostRow> {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let rate = |name: &str, value: f64| CostRow::new(name, value, "messages/s", None, "");
        let size = |name: &str, bytes: u64, floor: Option<u64>, note: &str| {
            CostRow::new(name, megabytes(bytes), "MB", floor.map(megabytes), note)
        };
        let alone = "FTS5 alone, with the texts";
        let kept = "256 dimensions, int8, and one bit each";
        vec![
            rate("indexing words", self.indexed_per_second),
            rate("embedding", self.embedded_per_second),
            size("the log itself", self.log_bytes, None, ""),
            size(
                "the index of words",
                self.words_bytes,
                Some(self.raw_bytes),
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
            raw: file("raw.db"),
            done: file("done"),
        }
    }

    /// Generates and indexes the corpus, unless an earlier run did.
    async fn build(&self, corpus: &mut GeneratedCorpus) -> Fallible<Vec<CostRow>> {
        if self.done.is_file() {
            eprintln!("using {}", self.ours.display());
            corpus.skip_all();
            let costs: BuildCosts = serde_json::from_slice(&std::fs::read(&self.done)?)?;
            return Ok(costs.rows());
        }
        for file in [&self.ours, &self.raw] {
            remove_database(file)?;
        }
        self.write(corpus).await?;
        let costs = self.index().await?;
        std::fs::write(&self.done, serde_json::to_vec(&costs)?)?;
        Ok(costs.rows())
    }

    /// Writes the messages to the store and to the table of FTS5.
    async fn write(&self, corpus: &mut GeneratedCorpus) -> Fallible<()> {
        let store = StoreHandle::new(SqliteStore::open(&self.ours)?);
        let raw = Connection::open(&self.raw)?;
        raw.pragma_update(None, "synchronous", "OFF")?;
        raw.execute_batch("CREATE VIRTUAL TABLE texts USING fts5 (text); BEGIN")?;
        let visit = |line: &super::log::LogLine| {
            let mut insert = raw.prepare_cached("INSERT INTO texts (text) VALUES (?1)")?;
            insert.execute(params![line.text()])?;
            Ok(())
        };
        corpus.write(&store, visit).await?;
        raw.execute_batch("COMMIT; INSERT INTO texts (texts) VALUES ('optimize')")?;
        Ok(())
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
            raw_bytes: used_bytes(&self.raw)?,
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
        spent,
        "ms",
        None,
        note,
    ))
}

/// Compares a rare word with FTS5 alone, which ranks by BM25 and cuts a snippet too.
async fn rare_row(service: &SearchService, raw: &Path, rounds: usize) -> Fallible<CostRow> {
    let raw = Connection::open(raw)?;
    let mut search = raw.prepare(
        "SELECT rowid, rank, snippet(texts, 0, '[', ']', '…', 24) FROM texts WHERE texts MATCH ?1 ORDER BY rank LIMIT 10",
    )?;
    let mut ours = Vec::new();
    let mut floor = Vec::new();
    for round in 0..=rounds {
        for word in rare_words() {
            let spent = time_search(service, &word, SearchMode::Text).await?;
            let start = Instant::now();
            let found: Vec<(i64, f64, String)> = search
                .query_map(params![word], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })?
                .collect::<Result<_, _>>()?;
            let alone = start.elapsed().as_secs_f64() * 1e3;
            assert!(!found.is_empty(), "{word} is in the corpus");
            if round > 0 {
                ours.push(spent * 1e3);
                floor.push(alone * 1e3);
            }
        }
    }
    let note = "FTS5 alone, with rank and snippet";
    let row = CostRow::new(
        "a rare word, median",
        median(ours),
        "us",
        Some(median(floor)),
        note,
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
