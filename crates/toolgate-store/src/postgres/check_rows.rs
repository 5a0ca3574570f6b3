//! Checks the rows beside events, records and chains: each is compared with its checksum, with the
//! log that it follows from, or with the digest that names it.

use std::sync::Arc;

use futures::TryStreamExt;
use sqlx::{PgConnection, Row, postgres::PgRow};
use toolgate_core::{
    ApprovalRow, CallId, Digest, RecordKey, SessionId, Timestamp, TurnId, TurnRow,
};

use super::{
    accounts::{account_row, charge_row},
    id::PgUuid,
    memories::{CHECKED_MEMORIES, check_memory_row},
    read::RowError,
    session_checksum::{CHECKED_SQL, compare_checksum},
};
use crate::{
    IntegrityProblem,
    check::{DOCUMENTS_WITHOUT_SOURCE, damaged_row},
    checksum::RowChecksum,
    derived_rows::{DerivedRows, DerivedSession},
    encoded::{decode_json, parse_state},
    session_columns::TotalColumns,
};

/// Finds rows that differ from their checksums.
pub(super) async fn check_checksums(
    connection: &mut PgConnection,
) -> Result<Vec<IntegrityProblem>, sqlx::Error> {
    let mut problems = check_rows(connection, "sessions", CHECKED_SQL, |row| {
        Ok(compare_checksum(row)?.2)
    })
    .await?;
    let posts = "SELECT session, number, body, checksum FROM posts";
    let found = check_rows(connection, "posts", posts, |row| {
        let session = SessionId::new(row.try_get::<PgUuid, _>(0)?.0);
        let body: &str = row.try_get(2)?;
        let computed = RowChecksum::of_post(session, row.try_get(1)?, body.as_bytes());
        Ok(computed.check(row.try_get(3)?, String::new).is_ok())
    });
    problems.extend(found.await?);
    let accounts = "SELECT key, spent, reserved, checksum FROM accounts";
    let found = check_rows(connection, "accounts", accounts, |row| {
        is_content_intact(account_row(row, 0))
    });
    problems.extend(found.await?);
    let charges = "SELECT id, session, body, checksum FROM charges";
    let found = check_rows(connection, "charges", charges, |row| {
        is_content_intact(charge_row(row, 0))
    });
    problems.extend(found.await?);
    let found = check_rows(connection, "memories", CHECKED_MEMORIES, check_memory_row);
    problems.extend(found.await?);
    Ok(problems)
}

fn is_content_intact<T>(read: Result<T, RowError>) -> Result<bool, sqlx::Error> {
    match read {
        Ok(_) => Ok(true),
        Err(RowError::Content(_)) => Ok(false),
        Err(RowError::Column(error)) => Err(error),
    }
}

/// Compares sessions, turns and approvals with what follows from the events.
pub(super) async fn check_derived_rows(
    connection: &mut PgConnection,
    derived: &mut DerivedRows,
) -> Result<Vec<IntegrityProblem>, sqlx::Error> {
    let sessions = "SELECT id, created_at, updated_at, principal, labels, run, run_state, run_at, calls, cost, model,
                        first_tool, provider FROM sessions";
    let mut problems = check_rows(connection, "sessions", sessions, |row| {
        let session = SessionId::new(row.try_get::<PgUuid, _>(0)?.0);
        Ok(derived.check_session(session, &derived_session(row)?))
    })
    .await?;
    let turns = "SELECT turn, session, opened_at, settled_at FROM turns";
    let found = check_rows(connection, "turns", turns, |row| {
        let settled_at: Option<i64> = row.try_get(3)?;
        Ok(derived.check_turn(&TurnRow {
            turn: TurnId::new(row.try_get::<PgUuid, _>(0)?.0),
            session: SessionId::new(row.try_get::<PgUuid, _>(1)?.0),
            opened_at: Timestamp::from_micros(row.try_get(2)?),
            settled_at: settled_at.map(Timestamp::from_micros),
        }))
    });
    problems.extend(found.await?);
    problems.extend(check_approvals(connection, derived).await?);
    problems.extend(derived.missing_rows());
    Ok(problems)
}

async fn check_approvals(
    connection: &mut PgConnection,
    derived: &mut DerivedRows,
) -> Result<Vec<IntegrityProblem>, sqlx::Error> {
    let sql = "SELECT call, session, turn, tool, asked_at, state, request FROM approvals";
    let rows = sqlx::query(sql).fetch_all(&mut *connection).await?;
    let mut problems = Vec::new();
    for row in &rows {
        let call = CallId::new(row.try_get::<PgUuid, _>(0)?.0);
        let stored = stored_approval(row)?;
        let is_answered = match &stored {
            Some(stored) => has_answer(connection, stored).await?,
            None => false,
        };
        if !derived.check_approval(call, stored.as_ref(), |_| is_answered) {
            problems.push(damaged_row("approvals", call.to_string()));
        }
    }
    Ok(problems)
}

/// Checks whether there is an answer that the driver has not recorded yet.
async fn has_answer(
    connection: &mut PgConnection,
    asked: &ApprovalRow,
) -> Result<bool, sqlx::Error> {
    let request = &asked.request;
    let key = RecordKey::Answer(request.approval_id.call_id(), request.generation).to_string();
    let sql =
        "SELECT 1 FROM records WHERE key = $1 UNION ALL SELECT 1 FROM posts WHERE session = $2";
    let found = sqlx::query(sql)
        .bind(key.as_bytes())
        .bind(PgUuid(asked.session.uuid()));
    Ok(found.fetch_optional(connection).await?.is_some())
}

/// Finds blobs whose content does not have the digest that names them.
pub(super) async fn check_blobs(
    connection: &mut PgConnection,
) -> Result<Vec<IntegrityProblem>, sqlx::Error> {
    let blobs = sqlx::query("SELECT digest, size FROM blobs ORDER BY digest");
    let blobs = blobs.fetch_all(&mut *connection).await?;
    let mut problems = Vec::new();
    for blob in &blobs {
        let digest: &[u8] = blob.try_get(0)?;
        let size: i64 = blob.try_get(1)?;
        let sql = "SELECT number, bytes FROM blob_pieces WHERE digest = $1 ORDER BY number";
        let mut pieces = sqlx::query(sql).bind(digest).fetch(&mut *connection);
        let mut whole = Vec::new();
        let mut is_whole = true;
        for number in 0_i64.. {
            let Some(piece) = pieces.try_next().await? else {
                break;
            };
            is_whole &= piece.try_get::<i64, _>(0)? == number;
            whole.extend_from_slice(piece.try_get(1)?);
        }
        is_whole &= i64::try_from(whole.len()).is_ok_and(|length| length == size);
        if !is_whole || Digest::of_bytes(&whole).as_bytes()[..] != *digest {
            let name = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            problems.push(damaged_row("blobs", name));
        }
    }
    Ok(problems)
}

/// Finds documents of search whose event, or session in the case of a title, is not there. Erasing a
/// session deletes the words of the documents that name it, so those of a document with a wrong name
/// would stay.
pub(super) async fn check_documents(
    connection: &mut PgConnection,
) -> Result<Vec<IntegrityProblem>, sqlx::Error> {
    let table = "search_documents";
    check_rows(connection, table, DOCUMENTS_WITHOUT_SOURCE, |_| Ok(false)).await
}

/// Returns the rows that `is_intact` rejects. The first column names the row.
async fn check_rows(
    connection: &mut PgConnection,
    table: &'static str,
    sql: &'static str,
    mut is_intact: impl FnMut(&PgRow) -> Result<bool, sqlx::Error>,
) -> Result<Vec<IntegrityProblem>, sqlx::Error> {
    let mut problems = Vec::new();
    let mut rows = sqlx::query(sql).fetch(connection);
    while let Some(row) = rows.try_next().await? {
        if !is_intact(&row)? {
            problems.push(damaged_row(table, row_key(&row)));
        }
    }
    Ok(problems)
}

/// Returns the first column as people know it.
fn row_key(row: &PgRow) -> String {
    if let Ok(id) = row.try_get::<PgUuid, _>(0) {
        return id.0.to_string();
    }
    let bytes = row.try_get::<&[u8], _>(0);
    bytes.map_or_else(
        |_| row.try_get::<String, _>(0).unwrap_or_default(),
        |bytes| String::from_utf8_lossy(bytes).into_owned(),
    )
}

fn derived_session(row: &PgRow) -> Result<DerivedSession, sqlx::Error> {
    let labels: Option<String> = row.try_get(4)?;
    let totals = TotalColumns {
        calls: row.try_get(8)?,
        cost: row.try_get(9)?,
        model: row.try_get(10)?,
        first_tool: row.try_get(11)?,
        provider: row.try_get(12)?,
    };
    Ok(DerivedSession {
        created_at: row.try_get(1)?,
        updated_at: row.try_get(2)?,
        principal: row.try_get(3)?,
        labels: labels.filter(|labels| labels != "{}"),
        run: row.try_get(5)?,
        run_state: row.try_get(6)?,
        run_at: row.try_get(7)?,
        totals: totals.decode(),
    })
}

/// Returns an approval, unless it cannot be parsed or its tool is not that of its request.
fn stored_approval(row: &PgRow) -> Result<Option<ApprovalRow>, sqlx::Error> {
    let tool: &str = row.try_get(3)?;
    let state = parse_state(row.try_get(5)?);
    let request = decode_json(row.try_get(6)?, String::new);
    let (Ok(state), Ok(request)) = (state, request) else {
        return Ok(None);
    };
    let stored = ApprovalRow {
        request: Arc::new(request),
        session: SessionId::new(row.try_get::<PgUuid, _>(1)?.0),
        turn: TurnId::new(row.try_get::<PgUuid, _>(2)?.0),
        asked_at: Timestamp::from_micros(row.try_get(4)?),
        state,
    };
    Ok(Some(stored).filter(|stored| stored.request.tool.as_str() == tool))
}
