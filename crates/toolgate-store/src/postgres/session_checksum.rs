//! The checksums of sessions in a PostgreSQL database, where they are changed row by row. Groups of
//! writes compute them in `locked_rows`.

use sqlx::{PgConnection, Row, postgres::PgRow};
use toolgate_core::SessionId;

use super::id::PgUuid;
use crate::checksum::{CheckedColumns, RowChecksum};

/// The columns that [`compare_checksum`] reads.
pub(super) const CHECKED_SQL: &str =
    "SELECT id, fence, holder, posted, hidden_at, parent, directory, checksum FROM sessions";

/// Returns the session of a row and its checksum, and whether it is the stored one.
pub(super) fn compare_checksum(row: &PgRow) -> Result<(SessionId, RowChecksum, bool), sqlx::Error> {
    let session = SessionId::new(row.try_get::<PgUuid, _>("id")?.0);
    let parent = row.try_get::<Option<PgUuid>, _>("parent")?;
    let holder: Option<&str> = row.try_get("holder")?;
    let directory: Option<&str> = row.try_get("directory")?;
    let columns = CheckedColumns {
        fence: row.try_get("fence")?,
        holder: holder.map(str::as_bytes),
        posted: row.try_get("posted")?,
        hidden_at: row.try_get("hidden_at")?,
        parent: parent.map(|id| SessionId::new(id.0)),
        directory: directory.map(str::as_bytes),
    };
    let computed = RowChecksum::of_session(session, &columns);
    let is_intact = computed
        .check(row.try_get("checksum")?, String::new)
        .is_ok();
    Ok((session, computed, is_intact))
}

/// Returns those of the sessions that agree with their checksums.
pub(super) async fn intact_sessions(
    connection: &mut PgConnection,
    sessions: Vec<PgUuid>,
) -> Result<Vec<PgUuid>, sqlx::Error> {
    let mut intact = Vec::new();
    for row in &select_sessions(connection, sessions).await? {
        let (session, _, is_intact) = compare_checksum(row)?;
        intact.extend(is_intact.then_some(PgUuid(session.uuid())));
    }
    Ok(intact)
}

/// Stores the checksums of sessions as they are now.
pub(super) async fn update_checksums(
    connection: &mut PgConnection,
    sessions: Vec<PgUuid>,
) -> Result<(), sqlx::Error> {
    let mut ids = Vec::new();
    let mut checksums = Vec::new();
    for row in &select_sessions(connection, sessions).await? {
        let (session, computed, _) = compare_checksum(row)?;
        ids.push(PgUuid(session.uuid()));
        checksums.push(computed.to_db());
    }
    let sql = "UPDATE sessions SET checksum = new.checksum
               FROM UNNEST($1::uuid[], $2::bigint[]) AS new (id, checksum) WHERE sessions.id = new.id";
    sqlx::query(sql)
        .bind(ids)
        .bind(checksums)
        .execute(connection)
        .await
        .map(drop)
}

async fn select_sessions(
    connection: &mut PgConnection,
    sessions: Vec<PgUuid>,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let sql =
        "SELECT id, fence, holder, posted, hidden_at, parent, directory, checksum FROM sessions
               WHERE id = ANY($1)";
    sqlx::query(sql).bind(sessions).fetch_all(connection).await
}
