//! Deletes the index in small transactions, so that others can write meanwhile.
//!
//! First the words are set aside, which is short whatever their number, and the index is marked as
//! being cleared. Then rows are deleted piece by piece, by any process that wants to index. Until
//! nothing is left, nothing is indexed: so no old document is taken for a new one, and a process that
//! ends in the middle leaves work and not damage.

use std::time::Instant;

use toolgate_core::{SEARCH_INDEX_VERSION, StoreError};

use crate::sqlite::{SqliteStore, read::SqliteReader, transaction::SqliteWriteTx};

/// The version of an index that is being cleared.
const CLEARING: i64 = -1;

/// What an index holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sqlite) enum IndexState {
    /// Nothing.
    Empty,
    /// Documents of this version.
    Current,
    /// Documents of another version.
    Outdated,
    /// What is left of documents that are being deleted.
    Clearing,
}

impl IndexState {
    pub(super) fn from_column(version: i64) -> Self {
        match version {
            0 => Self::Empty,
            CLEARING => Self::Clearing,
            version if version == i64::from(SEARCH_INDEX_VERSION) => Self::Current,
            _ => Self::Outdated,
        }
    }

    /// Checks whether documents can be added, and be deleted word by word.
    pub(in crate::sqlite) fn is_usable(self) -> bool {
        matches!(self, Self::Empty | Self::Current)
    }
}

/// The statements that set the words aside. FTS5 reads the first records of its tables when it is
/// dropped, so these stay; the others are deleted later, as rows of ordinary tables.
const SET_WORDS_ASIDE: [&str; 9] = [
    // FTS5 writes what it has in memory, and renames its tables.
    "ALTER TABLE search_index RENAME TO search_outdated",
    "ALTER TABLE search_outdated_data RENAME TO search_outdated_words",
    "ALTER TABLE search_outdated_idx RENAME TO search_outdated_terms",
    "CREATE TABLE search_outdated_data (id INTEGER PRIMARY KEY, block BLOB)",
    "INSERT INTO search_outdated_data SELECT id, block FROM search_outdated_words WHERE id <= 10",
    "CREATE TABLE search_outdated_idx (segid, term, pgno, PRIMARY KEY (segid, term)) WITHOUT ROWID",
    "DROP TABLE search_outdated",
    // As in the migration that has created it.
    "CREATE VIRTUAL TABLE search_index USING fts5 (words, names, facets, content = '', columnsize = 0, tokenize = 'ascii')",
    "INSERT INTO search_index (search_index, rank) VALUES ('secure-delete', 1)",
];

/// The statements that each delete some of what is left, or say that it has to be indexed again. A row
/// of words has about 4 kB.
const CLEAR_SOME: [&str; 6] = [
    "DELETE FROM search_outdated_words WHERE id IN (SELECT id FROM search_outdated_words LIMIT 64)",
    "DELETE FROM search_outdated_terms
     WHERE (segid, term) IN (SELECT segid, term FROM search_outdated_terms LIMIT 256)",
    "DELETE FROM search_signs WHERE number IN (SELECT number FROM search_signs LIMIT 256)",
    "DELETE FROM search_vectors WHERE number IN (SELECT number FROM search_vectors LIMIT 256)",
    "DELETE FROM search_documents WHERE id IN (SELECT id FROM search_documents LIMIT 256)",
    // The last one, because it looks at all sessions.
    "UPDATE sessions SET indexed = 0, is_retitled = (is_retitled OR indexed_title IS NOT NULL), indexed_title = NULL,
         is_behind = 1
     WHERE id IN (SELECT id FROM sessions WHERE indexed > 0 OR indexed_title IS NOT NULL LIMIT 256)",
];

impl SqliteStore {
    /// Deletes what is left of an index that is being cleared, or that another version has made. Other
    /// processes can do the same at the same time.
    pub(in crate::sqlite) async fn finish_clearing(&self) -> Result<(), StoreError> {
        let clear_some = |tx: &SqliteWriteTx<'_>| match tx.index_state()? {
            IndexState::Empty | IndexState::Current => Ok(false),
            IndexState::Outdated => tx.begin_clearing().map(|()| true),
            IndexState::Clearing => tx.clear_some(),
        };
        loop {
            let began = Instant::now();
            if !self.queue_unsynced_write(clear_some).await? {
                return Ok(());
            }
            // Another process that waits for the lock tries again after longer and longer delays, so it
            // has to be free as often as it is held. A read thread waits: a runtime may have no timer.
            let pause = began.elapsed();
            self.run_read(move |_| {
                std::thread::sleep(pause);
                Ok(())
            })
            .await?;
        }
    }

    /// Deletes the index unless it can be used.
    pub(in crate::sqlite) async fn clear_unusable_index(&self) -> Result<(), StoreError> {
        let state = self.run_read(|read| read.index_state()).await?;
        if state.is_usable() {
            return Ok(());
        }
        self.finish_clearing().await
    }
}

impl SqliteReader<'_> {
    pub(in crate::sqlite) fn index_state(&self) -> Result<IndexState, StoreError> {
        let found = self.query_row("SELECT version FROM search_state", [], |row| row.get(0))?;
        Ok(IndexState::from_column(found.unwrap_or(0)))
    }
}

impl SqliteWriteTx<'_> {
    /// Marks the index as being cleared, and sets its words aside.
    pub(super) fn begin_clearing(&self) -> Result<(), StoreError> {
        if self.index_state()? == IndexState::Clearing {
            return Ok(());
        }
        for sql in SET_WORDS_ASIDE {
            self.execute(sql, [])?;
        }
        let sql = "UPDATE search_state SET version = ?1, documents = 0, words = 0, erasures = erasures + 1";
        self.execute(sql, [CLEARING]).map(drop)
    }

    /// Deletes some rows; returns false once nothing is left, and then documents can be added.
    fn clear_some(&self) -> Result<bool, StoreError> {
        for sql in CLEAR_SOME {
            if self.execute(sql, [])? > 0 {
                return Ok(true);
            }
        }
        for table in ["search_outdated_words", "search_outdated_terms"] {
            self.execute(&format!("DROP TABLE {table}"), [])?;
        }
        // Vectors in the memory of other processes are loaded again.
        let sql = "UPDATE search_state SET version = 0, documents = 0, words = 0, erasures = erasures + 1";
        self.execute(sql, [])?;
        Ok(false)
    }
}
