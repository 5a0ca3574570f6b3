//! The search index in a PostgreSQL database: `tsvector` over words that were split by the core.

mod expression;
mod indexing;
mod matching;
mod pgvector;
mod vectors;

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Row, postgres::PgRow};
use toolgate_core::{
    EmbedderId, IndexBatch, SEARCH_INDEX_VERSION, SearchCounts, SearchDocument, SearchDocumentId,
    SearchStore, SessionId, SessionTitle, StaleSession, StoreError, TextMatches, TextSearch,
    VectorMatches, VectorSearch,
};

pub(super) use self::vectors::PostgresVectorCache;
use super::{
    PostgresStore,
    id::PgUuid,
    read::{PostgresReader, RowError, time_column, uuid_column},
};
use crate::{
    encoded::{decode_event, from_db, limit_to_db},
    search_shared::DocumentPlace,
};

impl SearchStore for PostgresStore {
    async fn stale_sessions(&self, limit: usize) -> Result<Vec<StaleSession>, StoreError> {
        let ask = || sqlx::query("SELECT version FROM search_state");
        let version = self
            .reads
            .query_row(ask, |row| Ok(row.try_get::<i64, _>(0)?))
            .await?;
        // Words that another version has split are not found by this one.
        if version.is_some_and(|known| known != 0 && known != i64::from(SEARCH_INDEX_VERSION)) {
            self.clear_index().await?;
        }
        let sql = "SELECT id, indexed, revision, created_at, updated_at, directory, title, is_retitled FROM sessions
                   WHERE revision > indexed OR is_retitled ORDER BY id LIMIT $1";
        let ask = || sqlx::query(sql).bind(limit_to_db(limit));
        self.reads.query_rows(ask, stale_row).await
    }

    async fn index_batch(&self, batch: IndexBatch) -> Result<bool, StoreError> {
        self.reads.index_batch(&batch).await
    }

    async fn match_text(&self, search: TextSearch) -> Result<TextMatches, StoreError> {
        self.reads.match_text(&search).await
    }

    async fn match_vectors(&self, search: VectorSearch) -> Result<VectorMatches, StoreError> {
        self.vectors.match_vectors(&self.reads, &search).await
    }

    async fn load_documents(
        &self,
        ids: Vec<SearchDocumentId>,
    ) -> Result<Vec<(SearchDocumentId, SearchDocument)>, StoreError> {
        let numbers: Vec<i64> = ids.iter().map(|id| id.get()).collect();
        // A session may have been hidden since its documents were ranked.
        let sql = format!(
            "{DOCUMENT_SQL} WHERE search_documents.id = ANY($1) AND sessions.hidden_at IS NULL"
        );
        let ask = || sqlx::query(AssertSqlSafe(sql.clone())).bind(numbers.clone());
        let found = self.reads.query_rows(ask, document_row).await?;
        let found = found.into_iter();
        Ok(found
            .filter_map(|(place, document)| Some((place.id, document?)))
            .collect())
    }

    async fn unembedded_documents(
        &self,
        embedder: EmbedderId,
        limit: usize,
    ) -> Result<Vec<(SearchDocumentId, SearchDocument)>, StoreError> {
        let number = self
            .reads
            .newest_embedder(&embedder)
            .await?
            .unwrap_or(i64::MAX);
        let sql = format!(
            "{DOCUMENT_SQL} WHERE search_documents.embedded < $1
             ORDER BY search_documents.embedded DESC, search_documents.id DESC LIMIT $2"
        );
        let ask = || {
            sqlx::query(AssertSqlSafe(sql.clone()))
                .bind(number)
                .bind(limit_to_db(limit))
        };
        let found = self.reads.query_rows(ask, document_row).await?;
        let found = found.into_iter().map(|(place, document)| {
            let document = document.unwrap_or_else(|| place.empty_document());
            (place.id, document)
        });
        Ok(found.collect())
    }

    async fn put_vectors(
        &self,
        embedder: EmbedderId,
        vectors: Vec<(SearchDocumentId, Vec<f32>)>,
    ) -> Result<(), StoreError> {
        let is_copied = self.vectors.is_copied(&self.reads).await;
        self.reads.put_vectors(&embedder, &vectors, is_copied).await
    }

    async fn replaced_embedder(
        &self,
        embedder: EmbedderId,
    ) -> Result<Option<EmbedderId>, StoreError> {
        let number = self.reads.newest_embedder(&embedder).await?;
        let number = number.unwrap_or(i64::MAX);
        let sql = "SELECT name FROM search_embedders
                   WHERE number = (SELECT max(embedded) FROM search_documents WHERE embedded < $1)";
        let ask = || sqlx::query(sql).bind(number);
        self.reads
            .query_row(ask, |row| Ok(EmbedderId::new(row.try_get::<&str, _>(0)?)))
            .await
    }

    async fn session_directories(&self) -> Result<Vec<Arc<str>>, StoreError> {
        let sql = "SELECT DISTINCT directory FROM sessions WHERE directory IS NOT NULL ORDER BY directory";
        let ask = || sqlx::query(sql);
        self.reads
            .query_rows(ask, |row| Ok(Arc::from(row.try_get::<&str, _>(0)?)))
            .await
    }

    async fn search_counts(
        &self,
        embedder: Option<EmbedderId>,
    ) -> Result<SearchCounts, StoreError> {
        let number = match &embedder {
            Some(embedder) => self.reads.newest_embedder(embedder).await?,
            None => None,
        };
        let sql = "SELECT (SELECT documents FROM search_state),
                       (SELECT count(*) FROM search_documents WHERE embedded = $1),
                       count(*), coalesce(sum(revision - indexed), 0)::bigint
                   FROM sessions WHERE revision > indexed OR is_retitled";
        let ask = || sqlx::query(sql).bind(number);
        let found = self.reads.query_row(ask, |row| {
            Ok(SearchCounts {
                documents: from_db(row.try_get(0)?),
                embedded: from_db(row.try_get(1)?),
                stale_sessions: from_db(row.try_get(2)?),
                stale_events: from_db(row.try_get(3)?),
            })
        });
        Ok(found.await?.unwrap_or_default())
    }

    async fn clear_index(&self) -> Result<(), StoreError> {
        self.reads.clear_index().await
    }
}

/// The columns that a document is derived from.
const DOCUMENT_SQL: &str =
    "SELECT search_documents.id, search_documents.session, search_documents.sequence, search_documents.project,
            search_documents.at, events.body, events.checksum, sessions.indexed_title
     FROM search_documents JOIN sessions ON sessions.id = search_documents.session
         LEFT JOIN events ON events.session = search_documents.session AND events.sequence = search_documents.sequence";

/// Derives a document from its event, or from the title that is indexed. One whose event is missing or
/// damaged has no text: the others are found all the same.
fn document_row(row: &PgRow) -> Result<(DocumentPlace, Option<SearchDocument>), RowError> {
    let place = DocumentPlace {
        id: SearchDocumentId::new(row.try_get(0)?),
        session: SessionId::new(row.try_get::<PgUuid, _>(1)?.0),
        sequence: from_db(row.try_get(2)?),
        project: row.try_get::<Option<&str>, _>(3)?.map(Arc::from),
        at: time_column(row, 4)?,
    };
    let project = place.project.as_ref();
    let body = row.try_get::<Option<&str>, _>(5)?;
    let title = row.try_get::<Option<&str>, _>(7)?;
    let document = match (body, title.and_then(SessionTitle::new)) {
        (Some(body), _) => {
            match decode_event(place.session, place.sequence, body, row.try_get(6)?) {
                Ok(event) => SearchDocument::from_event(&event, project),
                Err(StoreError::Damaged { .. }) => None,
                Err(error) => return Err(error.into()),
            }
        }
        (None, Some(title)) if place.sequence == 0 => Some(SearchDocument::from_title(
            place.session,
            &title,
            project,
            place.at,
        )),
        (None, _) => None,
    };
    Ok((place, document))
}

fn stale_row(row: &PgRow) -> Result<StaleSession, RowError> {
    Ok(StaleSession {
        session: SessionId::new(uuid_column(row, 0)?),
        indexed: from_db(row.try_get(1)?),
        revision: from_db(row.try_get(2)?),
        created_at: time_column(row, 3)?,
        updated_at: time_column(row, 4)?,
        directory: row.try_get::<Option<&str>, _>(5)?.map(Arc::from),
        title: row
            .try_get::<Option<&str>, _>(6)?
            .and_then(SessionTitle::new),
        is_retitled: row.try_get(7)?,
    })
}

impl PostgresReader {
    /// Returns the number of an embedder, if it is the newest one. The vectors of others are
    /// replaced.
    async fn newest_embedder(&self, embedder: &EmbedderId) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT number FROM search_embedders
                   WHERE name = $1 AND number = (SELECT max(number) FROM search_embedders)";
        let ask = || sqlx::query(sql).bind(embedder.as_str().to_owned());
        self.query_row(ask, |row| Ok(row.try_get(0)?)).await
    }
}
