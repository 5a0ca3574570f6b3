//! Hides and erases sessions, in a transaction of its own: only reading a session shows what
//! belongs to it.

use std::sync::Arc;

use futures::TryStreamExt;
use sqlx::{Connection, Executor, PgConnection, Row};
use tokio::time::timeout;
use toolgate_core::{
    AccountMovement, Charge, ErasedSessions, ErasureNames, ErasureScope, Event, Lease, SessionId,
    StoreError, Timestamp,
};

use super::{
    accounts::{LockedAccounts, charge_row, charge_rows},
    connect::{LARGE_WRITE_TIMEOUT, is_conflict, is_locked, no_answer_error},
    id::PgUuid,
    locked_rows::RowSelection,
    read::{PostgresReader, RowError, held_columns},
    session_checksum::{intact_sessions, update_checksums},
    writer::with_timeout,
};
use crate::encoded::{decode_json, from_db, prefix_end};

/// The maximum number of attempts when other processes interfere.
const MAX_ATTEMPTS: usize = 20;

/// A change of a session and the sessions of its agents.
#[derive(Debug, Clone, Copy)]
pub(super) enum SessionChange {
    Hide(Option<Timestamp>),
    Erase,
}

impl PostgresReader {
    pub(super) async fn change_sessions(
        &self,
        session: SessionId,
        change: SessionChange,
    ) -> Result<ErasedSessions, StoreError> {
        let mut connection = self.address.open_connection().await?;
        let mut tries = 0;
        let erased = loop {
            tries += 1;
            // Large sessions need more time.
            let tried = timeout(
                LARGE_WRITE_TIMEOUT,
                attempt_change(&mut connection, session, change),
            )
            .await;
            match tried.unwrap_or_else(|_| Err(no_answer_error().into())) {
                Ok(erased) => break erased,
                Err(RowError::Column(error))
                    if (is_conflict(&error) || is_locked(&error)) && tries < MAX_ATTEMPTS => {}
                // The connection is dropped, which makes the server roll back.
                Err(bad) => return Err(self.to_store_error(bad)),
            }
            with_timeout(connection.execute("ROLLBACK"))
                .await
                .map_err(|error| self.to_store_error(error.into()))?;
        };
        // The server may have committed and only its answer was lost.
        with_timeout(connection.execute("COMMIT"))
            .await
            .map_err(|error| self.address.lost_error(error))?;
        let _ = connection.close().await;
        Ok(erased)
    }

    pub(super) fn to_store_error(&self, bad: RowError) -> StoreError {
        match bad {
            RowError::Column(error) => self.address.database_error(error).into(),
            RowError::Content(error) => error,
        }
    }
}

/// Performs the change within a transaction that is left open.
async fn attempt_change(
    connection: &mut PgConnection,
    session: SessionId,
    change: SessionChange,
) -> Result<ErasedSessions, RowError> {
    connection.execute("BEGIN").await?;
    let mut traces = ErasureScope::for_session(session);
    let locked = loop {
        // Every writer locks a session first, so what is read of locked sessions stays true.
        // Reading may reveal further agents; then these are locked, too, and everything is read
        // again.
        let locked = lock_sessions(connection, &traces).await?;
        let found = collect_traces(connection, session).await?;
        let is_all = found.sessions() == traces.sessions();
        traces = found;
        if is_all {
            break locked;
        }
    };
    match change {
        SessionChange::Hide(at) => {
            // The checksum of a damaged session stays as it is, so that the damage is still found.
            let intact = intact_sessions(connection, session_ids(&traces)).await?;
            let sql = "UPDATE sessions SET hidden_at = $2 WHERE id = ANY($1)";
            let asked = sqlx::query(sql)
                .bind(session_ids(&traces))
                .bind(at.map(Timestamp::as_micros));
            asked.execute(&mut *connection).await?;
            update_checksums(connection, intact).await?;
            Ok(ErasedSessions::default())
        }
        SessionChange::Erase => {
            let now = sqlx::query("SELECT (extract(epoch FROM now()) * 1000000)::bigint");
            let now = now.fetch_one(&mut *connection).await?;
            let now = Timestamp::from_micros(now.try_get(0)?);
            for row in &locked {
                Lease::check_free(row.session, row.held.as_ref(), row.fence, now)?;
            }
            let booked = settle_open_charges(connection, &traces).await?;
            clear_sessions(connection, &traces).await?;
            delete_records(connection, &traces.record_names()).await?;
            let had_events = locked.iter().filter(|row| row.revision > 0);
            Ok(ErasedSessions {
                sessions: had_events.map(|row| row.session).collect(),
                booked,
            })
        }
    }
}

/// Collects the session and the sessions of its agents.
async fn collect_traces(
    connection: &mut PgConnection,
    session: SessionId,
) -> Result<ErasureScope, RowError> {
    let mut traces = ErasureScope::for_session(session);
    let mut unread = vec![PgUuid(session.uuid())];
    while !unread.is_empty() {
        let sql = "SELECT session, sequence, body FROM events WHERE session = ANY($1)";
        let mut events = sqlx::query(sql).bind(unread).fetch(&mut *connection);
        while let Some(row) = events.try_next().await? {
            let session = row.try_get::<PgUuid, _>(0)?.0;
            let sequence = row.try_get::<i64, _>(1)?;
            let event: Event = decode_json(row.try_get(2)?, || {
                format!("event {sequence} of session {session}")
            })?;
            traces.add_event(&event);
        }
        drop(events);
        let agents: Vec<PgUuid> = traces
            .agent_sessions()
            .map(|agent| PgUuid(agent.uuid()))
            .collect();
        let known = sqlx::query("SELECT id FROM sessions WHERE id = ANY($1)").bind(agents);
        let known = known.fetch_all(&mut *connection).await?;
        unread = known
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()?;
        traces.add_sessions(unread.iter().map(|id| SessionId::new(id.0)));
    }
    Ok(traces)
}

/// The state of a session that is locked against changes by others.
struct LockedSession {
    session: SessionId,
    revision: u64,
    fence: u64,
    held: Option<(Arc<str>, Timestamp)>,
}

/// Locks the sessions in the order of their ids, as every writer does, so that there is no
/// deadlock.
async fn lock_sessions(
    connection: &mut PgConnection,
    traces: &ErasureScope,
) -> Result<Vec<LockedSession>, RowError> {
    let sql = "SELECT id, revision, fence, holder, lease_until FROM sessions WHERE id = ANY($1) ORDER BY id FOR UPDATE";
    let rows = sqlx::query(sql)
        .bind(session_ids(traces))
        .fetch_all(connection)
        .await?;
    let locked = rows.iter().map(|row| {
        Ok(LockedSession {
            session: SessionId::new(row.try_get::<PgUuid, _>(0)?.0),
            revision: from_db(row.try_get(1)?),
            fence: from_db(row.try_get(2)?),
            held: held_columns(row, 3)?,
        })
    });
    locked.collect()
}

/// Settles the charges that are still open for the sessions.
async fn settle_open_charges(
    connection: &mut PgConnection,
    traces: &ErasureScope,
) -> Result<Vec<AccountMovement>, RowError> {
    let sql = "SELECT id, session, body, checksum FROM charges WHERE session = ANY($1) ORDER BY id";
    let rows = sqlx::query(sql)
        .bind(session_ids(traces))
        .fetch_all(&mut *connection)
        .await?;
    let open = rows
        .iter()
        .map(|row| charge_row(row, 0))
        .collect::<Result<Vec<Charge>, RowError>>()?;
    let mut wants = RowSelection::default();
    open.iter()
        .for_each(|charge| charge_rows(charge)(&mut wants));
    let mut books = LockedAccounts::lock_accounts(connection, &wants).await?;
    let mut moved = Vec::new();
    for charge in &open {
        moved.extend(books.close_charge(charge, |rows| charge.settle_in(rows, &[]))?);
    }
    books.write_changes(connection).await?;
    Ok(moved)
}

/// Deletes everything of the sessions but their fences, which invalidate all leases so far.
async fn clear_sessions(
    connection: &mut PgConnection,
    traces: &ErasureScope,
) -> Result<(), sqlx::Error> {
    for sql in [
        // Vectors that another process is writing for these documents are visible afterwards.
        "SELECT 1 FROM search_documents WHERE session = ANY($1) FOR UPDATE",
        "DELETE FROM search_signs WHERE document IN (SELECT id FROM search_documents WHERE session = ANY($1))",
        "DELETE FROM search_vectors WHERE document IN (SELECT id FROM search_documents WHERE session = ANY($1))",
        // The counts of a document begin with its number of words.
        "WITH gone AS (DELETE FROM search_documents WHERE session = ANY($1)
             RETURNING get_byte(counts, 0) + get_byte(counts, 1) * 256 AS words)
         UPDATE search_state SET documents = documents - (SELECT count(*) FROM gone),
             words = words - (SELECT sum(words) FROM gone), erasures = erasures + 1
         WHERE EXISTS (SELECT 1 FROM gone)",
        "DELETE FROM events WHERE session = ANY($1)",
        "DELETE FROM posts WHERE session = ANY($1)",
        "DELETE FROM turns WHERE session = ANY($1)",
        "DELETE FROM approvals WHERE session = ANY($1)",
        "UPDATE sessions SET revision = 0, created_at = 0, updated_at = 0, holder = NULL, lease_until = NULL,
             hidden_at = NULL, parent = NULL, principal = NULL, labels = NULL, run = NULL, run_state = NULL,
             run_at = NULL, title = NULL, directory = NULL, indexed = 0, indexed_title = NULL, is_retitled = false,
             calls = 0, cost = NULL, model = NULL, provider = NULL, first_tool = NULL,
             fence = CASE WHEN revision > 0 OR fence > 0 THEN fence + 1 ELSE 0 END
         WHERE id = ANY($1)",
    ] {
        sqlx::query(sql).bind(session_ids(traces)).execute(&mut *connection).await?;
    }
    update_checksums(connection, session_ids(traces)).await
}

async fn delete_records(
    connection: &mut PgConnection,
    names: &ErasureNames,
) -> Result<(), sqlx::Error> {
    let bytes = |name: &String| name.as_bytes().to_vec();
    let whole: Vec<Vec<u8>> = names.whole.iter().map(bytes).collect();
    sqlx::query("DELETE FROM records WHERE key = ANY($1)")
        .bind(whole)
        .execute(&mut *connection)
        .await?;
    let starts: Vec<Vec<u8>> = names.starts.iter().map(bytes).collect();
    let ends: Vec<Vec<u8>> = names
        .starts
        .iter()
        .map(|start| prefix_end(start).into_bytes())
        .collect();
    let sql = "DELETE FROM records USING UNNEST($1::bytea[], $2::bytea[]) AS gone (start, behind)
               WHERE key >= gone.start AND key < gone.behind";
    sqlx::query(sql)
        .bind(starts)
        .bind(ends)
        .execute(connection)
        .await
        .map(drop)
}

fn session_ids(traces: &ErasureScope) -> Vec<PgUuid> {
    traces
        .sessions()
        .iter()
        .map(|session| PgUuid(session.uuid()))
        .collect()
}
