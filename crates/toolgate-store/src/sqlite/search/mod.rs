//! The search index in an SQLite file: FTS5 over words that were split by the core.

mod clearing;
mod expression;
mod matching;
mod vectors;

use std::sync::Arc;

use rusqlite::{Row, params};
use toolgate_core::{
    EmbedderId, IndexBatch, IndexEntry, SEARCH_INDEX_VERSION, SearchCounts, SearchDocument,
    SearchDocumentId, SearchStore, SessionId, SessionTitle, StaleSession, StoreError, TextMatches,
    TextSearch, VectorMatches, VectorSearch,
};

use self::matching::ShownSessions;
pub(super) use self::vectors::SqliteVectorCache;
use super::{
    SqliteStore,
    bodies::EventBodies,
    read::{SqliteReader, time_column, uuid_column},
    transaction::{SqliteWriteTx, session_bytes},
};
use crate::{
    DatabaseError,
    encoded::{from_db, limit_to_db, to_db},
    search_shared::DocumentPlace,
};

impl SearchStore for SqliteStore {
    async fn stale_sessions(&self, limit: usize) -> Result<Vec<StaleSession>, StoreError> {
        // One read, because every search asks: none if the words were split by another version, which
        // this one does not find, or if the index is being cleared.
        let read_stale = move |read: &SqliteReader<'_>| {
            let is_usable = read.index_state()?.is_usable();
            is_usable.then(|| read.stale_sessions(limit)).transpose()
        };
        if let Some(stale) = self.run_read(read_stale).await? {
            return Ok(stale);
        }
        self.finish_clearing().await?;
        self.run_read(move |read| read.stale_sessions(limit)).await
    }

    async fn index_batch(&self, batch: IndexBatch) -> Result<bool, StoreError> {
        // Not synced: what the loss of a machine takes from the index, it takes with the place up to
        // which the log is indexed.
        self.queue_unsynced_write(move |tx| tx.index_batch(&batch))
            .await
    }

    async fn match_text(&self, search: TextSearch) -> Result<TextMatches, StoreError> {
        self.run_read(move |read| read.match_text(&search)).await
    }

    async fn match_vectors(&self, search: VectorSearch) -> Result<VectorMatches, StoreError> {
        let cache = self.0.vectors.clone();
        self.run_read(move |read| cache.match_vectors(read, &search))
            .await
    }

    async fn load_documents(
        &self,
        ids: Vec<SearchDocumentId>,
    ) -> Result<Vec<(SearchDocumentId, SearchDocument)>, StoreError> {
        self.run_read(move |read| read.load_documents(ids)).await
    }

    async fn unembedded_documents(
        &self,
        embedder: EmbedderId,
        limit: usize,
    ) -> Result<Vec<(SearchDocumentId, SearchDocument)>, StoreError> {
        self.run_read(move |read| {
            let number = read.newest_embedder(&embedder)?.unwrap_or(i64::MAX);
            let sql = format!(
                "SELECT {DOCUMENT_COLUMNS} FROM search_documents WHERE embedded < ?1
                 ORDER BY embedded DESC, id DESC LIMIT ?2"
            );
            let newest = params![number, limit_to_db(limit)];
            let rows = read.query_rows(&sql, newest, |row| document_row(row).map(Ok))?;
            let mut found = Vec::new();
            for row in rows {
                let document = read.load_hit(&row)?;
                found.push((row.id, document.unwrap_or_else(|| row.empty_document())));
            }
            Ok(found)
        })
        .await
    }

    async fn put_vectors(
        &self,
        embedder: EmbedderId,
        vectors: Vec<(SearchDocumentId, Vec<f32>)>,
    ) -> Result<(), StoreError> {
        self.queue_unsynced_write(move |tx| tx.put_vectors(&embedder, &vectors))
            .await
    }

    async fn replaced_embedder(
        &self,
        embedder: EmbedderId,
    ) -> Result<Option<EmbedderId>, StoreError> {
        self.run_read(move |read| {
            let number = read.newest_embedder(&embedder)?.unwrap_or(i64::MAX);
            let name = read.query_row(REPLACED_EMBEDDER_SQL, [number], |row| {
                row.get::<_, String>(0)
            })?;
            Ok(name.as_deref().map(EmbedderId::new))
        })
        .await
    }

    async fn session_directories(&self) -> Result<Vec<Arc<str>>, StoreError> {
        self.run_read(|read| {
            let sql = "SELECT DISTINCT directory FROM sessions WHERE directory IS NOT NULL ORDER BY directory";
            read.query_rows(sql, [], |row| Ok(Ok(row.get(0)?)))
        })
        .await
    }

    async fn search_counts(
        &self,
        embedder: Option<EmbedderId>,
    ) -> Result<SearchCounts, StoreError> {
        self.run_read(move |read| read.search_counts(embedder.as_ref()))
            .await
    }

    async fn clear_index(&self) -> Result<(), StoreError> {
        self.queue_write(|tx| tx.begin_clearing()).await?;
        self.finish_clearing().await
    }
}

const REPLACED_EMBEDDER_SQL: &str = "SELECT name FROM search_embedders
     WHERE number = (SELECT max(embedded) FROM search_documents WHERE embedded < ?1)";

const DOCUMENT_COLUMNS: &str = "id, session, sequence, project, at";

fn document_row(row: &Row<'_>) -> rusqlite::Result<DocumentPlace> {
    Ok(DocumentPlace {
        id: SearchDocumentId::new(row.get(0)?),
        session: SessionId::new(uuid_column(row, 1)?),
        sequence: from_db(row.get(2)?),
        project: row.get(3)?,
        at: time_column(row, 4)?,
    })
}

impl SqliteReader<'_> {
    fn stale_sessions(&self, limit: usize) -> Result<Vec<StaleSession>, StoreError> {
        let sql = "SELECT id, indexed, revision, created_at, updated_at, directory, title, is_retitled FROM sessions
                   WHERE is_behind = 1 ORDER BY id LIMIT ?1";
        self.query_rows(sql, [limit_to_db(limit)], |row| {
            let title = row.get::<_, Option<String>>(6)?;
            Ok(Ok(StaleSession {
                session: SessionId::new(uuid_column(row, 0)?),
                indexed: from_db(row.get(1)?),
                revision: from_db(row.get(2)?),
                created_at: time_column(row, 3)?,
                updated_at: time_column(row, 4)?,
                directory: row.get(5)?,
                title: title.as_deref().and_then(SessionTitle::new),
                is_retitled: row.get(7)?,
            }))
        })
    }

    fn search_counts(&self, embedder: Option<&EmbedderId>) -> Result<SearchCounts, StoreError> {
        let count = |sql: &str, number: i64| {
            let found = self.query_row(sql, [number], |row| row.get::<_, Option<i64>>(0))?;
            Ok::<u64, StoreError>(from_db(found.flatten().unwrap_or(0)))
        };
        let number = match embedder {
            Some(embedder) => self.newest_embedder(embedder)?,
            None => None,
        };
        let stale = "FROM sessions WHERE is_behind = 1 AND 0 = ?1";
        Ok(SearchCounts {
            documents: count("SELECT documents FROM search_state WHERE 0 = ?1", 0)?,
            embedded: match number {
                Some(number) => count(
                    "SELECT count(*) FROM search_documents WHERE embedded = ?1",
                    number,
                )?,
                None => 0,
            },
            stale_sessions: count(&format!("SELECT count(*) {stale}"), 0)?,
            stale_events: count(&format!("SELECT sum(revision - indexed) {stale}"), 0)?,
        })
    }

    fn load_documents(
        &self,
        ids: impl IntoIterator<Item = SearchDocumentId>,
    ) -> Result<Vec<(SearchDocumentId, SearchDocument)>, StoreError> {
        let _snapshot = self.begin_snapshot()?;
        let sql = format!("SELECT {DOCUMENT_COLUMNS} FROM search_documents WHERE id = ?1");
        let keys = ids.into_iter().map(|id| [id.get()]);
        let rows = self.query_each(&sql, keys, document_row)?;
        let mut shown = ShownSessions::default();
        let mut found = Vec::new();
        for row in rows {
            // A session may have been hidden since its documents were ranked.
            if shown.check(self, row.session)? {
                found.extend(self.load_hit(&row)?.map(|document| (row.id, document)));
            }
        }
        Ok(found)
    }

    /// Derives a document that was found. One whose event is damaged is left out: the others are
    /// found all the same.
    fn load_hit(&self, row: &DocumentPlace) -> Result<Option<SearchDocument>, StoreError> {
        match self.load_document(row) {
            Err(StoreError::Damaged { source, .. }) if !source.is::<DatabaseError>() => Ok(None),
            loaded => loaded,
        }
    }

    /// Derives a document from its event, or from the title that is indexed.
    fn load_document(&self, row: &DocumentPlace) -> Result<Option<SearchDocument>, StoreError> {
        if row.sequence == 0 {
            let sql = "SELECT indexed_title FROM sessions WHERE id = ?1";
            let found = self.query_row(sql, [session_bytes(row.session)], |row| {
                row.get::<_, Option<String>>(0)
            })?;
            let title = found.flatten().as_deref().and_then(SessionTitle::new);
            return Ok(title.map(|title| {
                SearchDocument::from_title(row.session, &title, row.project.as_ref(), row.at)
            }));
        }
        let sql = "SELECT body, checksum FROM events WHERE session = ?1 AND sequence = ?2";
        let place = params![session_bytes(row.session), to_db(row.sequence)];
        let found = self.query_row(sql, place, |found| {
            Ok((found.get::<_, String>(0)?, found.get::<_, Option<i64>>(1)?))
        })?;
        let Some((body, checksum)) = found else {
            return Ok(None);
        };
        let mut bodies = EventBodies::new(self, row.session);
        let event = bodies.decode_event(row.sequence, &body, checksum)?;
        Ok(SearchDocument::from_event(&event, row.project.as_ref()))
    }
}

impl SqliteWriteTx<'_> {
    fn index_batch(&self, batch: &IndexBatch) -> Result<bool, StoreError> {
        let sql = "SELECT indexed, revision, created_at, title FROM sessions WHERE id = ?1";
        let found = self.query_row(sql, [session_bytes(batch.session)], |row| {
            Ok((
                from_db(row.get(0)?),
                from_db(row.get(1)?),
                time_column(row, 2)?,
                row.get::<_, Option<String>>(3)?,
            ))
        })?;
        let is_usable = self.index_state()?.is_usable();
        match found {
            Some((indexed, revision, created_at, title))
                if is_usable
                    && indexed == batch.from
                    && revision >= batch.to
                    && created_at == batch.created_at
                    && batch.has_title(title.as_deref()) => {}
            Some(_) | None => return Ok(false),
        }
        if let Some(title) = &batch.title {
            self.replace_title(title)?;
        }
        let mut last = None;
        for entry in &batch.entries {
            // A damaged place in the log must not make every search fail.
            if !self.has_document(batch.session, entry.document.sequence)? {
                last = Some(self.insert_entry(entry, last)?);
            }
        }
        self.execute(
            "UPDATE search_state SET version = ?1 WHERE version != ?1",
            [SEARCH_INDEX_VERSION],
        )?;
        let sql = "UPDATE sessions SET indexed = ?2, is_behind = (revision > ?2 OR is_retitled = 1) WHERE id = ?1";
        self.execute(sql, params![session_bytes(batch.session), to_db(batch.to)])?;
        Ok(true)
    }

    /// Inserts a document with the first free id of its time, after `last` if that has the same
    /// time.
    fn insert_entry(&self, entry: &IndexEntry, last: Option<i64>) -> Result<i64, StoreError> {
        let document = &entry.document;
        let wanted = SearchDocumentId::first_at(document.at);
        let id = self.free_id(last.map_or(wanted, |last| wanted.max(last + 1)))?;
        let sql = "INSERT INTO search_documents (id, session, sequence, project, at, counts) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let place = params![
            id,
            session_bytes(document.session),
            to_db(document.sequence),
            document.project,
            document.at.as_micros(),
            entry.counts.to_bytes()
        ];
        self.execute(sql, place)?;
        let sql = "INSERT INTO search_index (rowid, words, names, facets) VALUES (?1, ?2, ?3, ?4)";
        self.execute(sql, params![id, entry.words, entry.names, entry.facets])?;
        self.count_documents(1, i64::from(entry.counts.length()))?;
        Ok(id)
    }

    fn has_document(&self, session: SessionId, sequence: u64) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM search_documents WHERE session = ?1 AND sequence = ?2";
        let found = params![session_bytes(session), to_db(sequence)];
        Ok(self.query_row(sql, found, |_| Ok(()))?.is_some())
    }

    fn free_id(&self, wanted: i64) -> Result<i64, StoreError> {
        let sql = "SELECT 1 FROM search_documents WHERE id = ?1";
        if self.query_row(sql, [wanted], |_| Ok(()))?.is_none() {
            return Ok(wanted);
        }
        let sql = "SELECT id + 1 FROM search_documents AS taken WHERE id >= ?1
                       AND NOT EXISTS (SELECT 1 FROM search_documents WHERE id = taken.id + 1)
                   ORDER BY id LIMIT 1";
        let free = self.query_row(sql, [wanted], |row| row.get(0))?;
        Ok(free.unwrap_or(wanted))
    }

    fn replace_title(&self, title: &IndexEntry) -> Result<(), StoreError> {
        let session = title.document.session;
        let sql = format!(
            "SELECT {DOCUMENT_COLUMNS} FROM search_documents WHERE session = ?1 AND sequence = 0"
        );
        for row in self.query_rows(&sql, [session_bytes(session)], |row| {
            document_row(row).map(Ok)
        })? {
            self.delete_document(&row)?;
        }
        self.insert_entry(title, None)?;
        let sql = "UPDATE sessions SET indexed_title = ?2, is_retitled = 0, is_behind = (revision > indexed) WHERE id = ?1";
        self.execute(sql, params![session_bytes(session), title.document.text])
            .map(drop)
    }

    /// Deletes the documents of a session. It is called while the events are still there: the index
    /// stores no text, so that the words to delete are derived once more.
    pub(super) fn delete_documents(&self, session: SessionId) -> Result<(), StoreError> {
        while self.delete_some_documents(session, usize::MAX)? {}
        Ok(())
    }

    /// Deletes some documents of a session; returns false if there are none left.
    pub(super) fn delete_some_documents(
        &self,
        session: SessionId,
        most: usize,
    ) -> Result<bool, StoreError> {
        let sql =
            format!("SELECT {DOCUMENT_COLUMNS} FROM search_documents WHERE session = ?1 LIMIT ?2");
        let some = params![session_bytes(session), limit_to_db(most)];
        let rows = self.query_rows(&sql, some, |row| document_row(row).map(Ok))?;
        rows.iter().try_for_each(|row| self.delete_document(row))?;
        if !rows.is_empty() && rows.len() < most {
            // Vectors in the memory of other processes are loaded again.
            self.execute("UPDATE search_state SET erasures = erasures + 1", [])?;
        }
        Ok(!rows.is_empty())
    }

    /// Forgets what is indexed of a session, so that what is missing is indexed again.
    pub(super) fn forget_place(&self, session: SessionId) -> Result<(), StoreError> {
        let sql = "UPDATE sessions SET indexed = 0, is_retitled = (is_retitled OR indexed_title IS NOT NULL),
                       is_behind = (revision > 0 OR is_retitled OR indexed_title IS NOT NULL)
                   WHERE id = ?1";
        self.execute(sql, [session_bytes(session)]).map(drop)
    }

    fn delete_document(&self, row: &DocumentPlace) -> Result<(), StoreError> {
        let id = row.id.get();
        // The words of an index that is being cleared are not in it any more.
        let has_words = self.index_state()?.is_usable();
        if has_words && let Some(document) = self.load_document(row)? {
            let entry = IndexEntry::new(document);
            let sql = "INSERT INTO search_index (search_index, rowid, words, names, facets)
                       VALUES ('delete', ?1, ?2, ?3, ?4)";
            self.execute(sql, params![id, entry.words, entry.names, entry.facets])?;
            self.count_documents(-1, -i64::from(entry.counts.length()))?;
        }
        for sql in [
            "DELETE FROM search_signs WHERE number IN (SELECT number FROM search_vectors WHERE document = ?1)",
            "DELETE FROM search_vectors WHERE document = ?1",
            "DELETE FROM search_documents WHERE id = ?1",
        ] {
            self.execute(sql, [id])?;
        }
        Ok(())
    }

    fn count_documents(&self, documents: i64, words: i64) -> Result<(), StoreError> {
        let sql = "UPDATE search_state SET documents = max(documents + ?1, 0), words = max(words + ?2, 0)";
        self.execute(sql, [documents, words]).map(drop)
    }
}
