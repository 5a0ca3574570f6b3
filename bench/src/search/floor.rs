//! The floor for a rare word: FTS5 alone, doing the same job.
//!
//! It finds and ranks the documents, cuts a snippet of each, and reads the row that says where it comes from. Its texts are
//! written in transactions of as many messages as the index of a store, and neither of the two is optimised afterwards.

use std::{path::Path, time::Instant};

use rusqlite::{Connection, params};

use super::{Fallible, corpus::GeneratedCorpus, log::LogLine, queries::SearchTime};
use crate::measure::cpu_ns;

/// The number of messages of a transaction, as in the index of a store.
const MESSAGES_PER_WRITE: usize = 128;

const TABLES: &str = "
    CREATE VIRTUAL TABLE texts USING fts5 (text);
    CREATE TABLE documents (
        id INTEGER PRIMARY KEY, session BLOB NOT NULL, sequence INTEGER NOT NULL, kind TEXT NOT NULL, tool TEXT,
        at INTEGER NOT NULL
    );";

const SEARCH: &str = "
    SELECT texts.rowid, rank, snippet(texts, 0, '[', ']', '…', 24), session, sequence, kind, tool, at
    FROM texts JOIN documents ON documents.id = texts.rowid
    WHERE texts MATCH ?1 ORDER BY rank LIMIT 10";

/// A database with a table of FTS5 and the rows of its documents.
pub(super) struct FloorTable(Connection);

impl FloorTable {
    /// Opens a file, with as much memory for its pages as a store has.
    pub(super) fn open(file: &Path) -> Fallible<Self> {
        let connection = Connection::open(file)?;
        connection.pragma_update(None, "cache_size", -16 * 1024)?;
        Ok(Self(connection))
    }

    /// Writes all messages of a corpus to a new file.
    pub(super) fn build(file: &Path, corpus: &mut GeneratedCorpus) -> Fallible<()> {
        let connection = Connection::open(file)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.execute_batch(TABLES)?;
        let mut number = 0;
        connection.execute_batch("BEGIN")?;
        corpus.visit_all(|line| {
            number += 1;
            insert(&connection, number, line)?;
            if number.is_multiple_of(MESSAGES_PER_WRITE) {
                connection.execute_batch("COMMIT; BEGIN")?;
            }
            Ok(())
        })?;
        connection.execute_batch("COMMIT")?;
        Ok(())
    }

    /// Returns the time of a search. Fails if it finds nothing.
    pub(super) fn time_search(&self, word: &str) -> Fallible<SearchTime> {
        let mut search = self.0.prepare_cached(SEARCH)?;
        let processor = cpu_ns();
        let start = Instant::now();
        let mut rows = search.query(params![word])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let ranked: (i64, f64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let place: ([u8; 16], i64, String) = (row.get(3)?, row.get(4)?, row.get(5)?);
            let more: (Option<String>, i64) = (row.get(6)?, row.get(7)?);
            found.push((ranked, place, more));
        }
        let time = SearchTime::since(start, processor);
        if found.is_empty() {
            return Err(format!("{word} is not in the corpus").into());
        }
        std::hint::black_box(found);
        Ok(time)
    }
}

fn insert(connection: &Connection, number: usize, line: &LogLine) -> Fallible<()> {
    let text = line.text();
    let number = i64::try_from(number)?;
    connection
        .prepare_cached("INSERT INTO texts (rowid, text) VALUES (?1, ?2)")?
        .execute(params![number, text])?;
    let (kind, tool) = match line {
        LogLine::User { .. } => ("user", None),
        LogLine::Assistant { .. } => ("assistant", None),
        LogLine::Call { tool, .. } => ("call", Some(tool)),
        LogLine::Succeeded { tool, .. } | LogLine::Failed { tool, .. } => ("result", Some(tool)),
    };
    let session = (number / 500).unsigned_abs().to_le_bytes();
    let session: Vec<u8> = session.into_iter().chain([0; 8]).collect();
    connection
        .prepare_cached("INSERT INTO documents (id, session, sequence, kind, tool, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![number, session, number % 500, kind, tool, number * 7_000_000])?;
    Ok(())
}
