//! Checks a whole database for inconsistencies.

use futures::TryStreamExt;
use sqlx::{Connection, Executor, PgConnection, Row};
use toolgate_core::{
    ApprovalRequest, CallId, LedgerHead, LedgerName, RecordKey, SealedEntry, SessionId,
};

use super::{
    PostgresStore,
    check_rows::{check_blobs, check_checksums, check_derived_rows, check_documents},
    id::PgUuid,
    locked_rows::parse_digest,
};
use crate::{
    DatabaseError, IntegrityProblem,
    check::ChainCheck,
    derived_rows::DerivedRows,
    encoded::{decode_event, decode_json, decode_record, from_db},
};

impl PostgresStore {
    /// Checks for damage in logs, chains and approvals. An empty list means that nothing was found.
    ///
    /// This reads the whole database, as of one moment, and takes time accordingly. Other processes
    /// can continue meanwhile.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be reached or read. Damage is not an error but part of the
    /// list.
    pub async fn check(&self) -> Result<Vec<IntegrityProblem>, DatabaseError> {
        let address = &self.reads.address;
        let mut connection = address.open_connection().await?;
        let found = find_problems(&mut connection).await;
        let _ = connection.close().await;
        found.map_err(|error| address.database_error(error))
    }
}

async fn find_problems(
    connection: &mut PgConnection,
) -> Result<Vec<IntegrityProblem>, sqlx::Error> {
    // One transaction, so that everything is seen as of the same moment.
    connection
        .execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let mut problems = check_logs(connection).await?;
    let mut derived = DerivedRows::default();
    problems.extend(check_events(connection, &mut derived).await?);
    problems.extend(check_records(connection).await?);
    problems.extend(check_chains(connection).await?);
    problems.extend(check_requests(connection).await?);
    problems.extend(check_checksums(connection).await?);
    problems.extend(check_derived_rows(connection, &mut derived).await?);
    problems.extend(check_blobs(connection).await?);
    problems.extend(check_documents(connection).await?);
    Ok(problems)
}

/// Finds logs whose events are not 1 to the revision of their session.
async fn check_logs(connection: &mut PgConnection) -> Result<Vec<IntegrityProblem>, sqlx::Error> {
    let sql = "SELECT id, revision, count(sequence), coalesce(max(sequence), 0)
               FROM sessions LEFT JOIN events ON events.session = sessions.id
               GROUP BY id HAVING count(sequence) != revision OR coalesce(max(sequence), 0) != revision
               UNION ALL
               SELECT session, 0, count(*), max(sequence) FROM events
               WHERE session NOT IN (SELECT id FROM sessions) GROUP BY session";
    let rows = sqlx::query(sql).fetch_all(connection).await?;
    let log = |row: &sqlx::postgres::PgRow| {
        Ok(IntegrityProblem::Log {
            session: SessionId::new(row.try_get::<PgUuid, _>(0)?.0),
            revision: from_db(row.try_get(1)?),
            events: from_db(row.try_get(2)?),
            last: from_db(row.try_get(3)?),
        })
    };
    rows.iter().map(log).collect()
}

/// Finds events that are damaged or cannot be parsed. The others are collected in `derived`.
async fn check_events(
    connection: &mut PgConnection,
    derived: &mut DerivedRows,
) -> Result<Vec<IntegrityProblem>, sqlx::Error> {
    let mut problems = Vec::new();
    let sql = "SELECT session, sequence, body, checksum FROM events ORDER BY session, sequence";
    let mut events = sqlx::query(sql).fetch(&mut *connection);
    while let Some(row) = events.try_next().await? {
        let session = SessionId::new(row.try_get::<PgUuid, _>(0)?.0);
        let sequence = from_db(row.try_get(1)?);
        let what = || format!("event {sequence} of session {session}");
        let event = decode_event(session, sequence, row.try_get(2)?, row.try_get(3)?);
        match event.ok().filter(|event| event.sequence() == sequence) {
            Some(event) => derived.add_event(session, event),
            None => {
                derived.skip_session(session);
                problems.push(IntegrityProblem::Unreadable { what: what() });
            }
        }
    }
    Ok(problems)
}

/// Finds records that are damaged or cannot be parsed.
async fn check_records(
    connection: &mut PgConnection,
) -> Result<Vec<IntegrityProblem>, sqlx::Error> {
    let mut problems = Vec::new();
    let mut records = sqlx::query("SELECT key, body, checksum FROM records").fetch(connection);
    while let Some(row) = records.try_next().await? {
        let what = String::from_utf8_lossy(row.try_get(0)?).into_owned();
        if decode_record(&what, row.try_get(1)?, row.try_get(2)?).is_err() {
            problems.push(IntegrityProblem::Unreadable { what });
        }
    }
    Ok(problems)
}

/// Finds chains that are broken or end elsewhere than they should.
async fn check_chains(connection: &mut PgConnection) -> Result<Vec<IntegrityProblem>, sqlx::Error> {
    let name = |name: String| {
        LedgerName::try_from(name).map_err(|error| sqlx::Error::Decode(Box::new(error)))
    };
    let mut check = ChainCheck::default();
    let sql = "SELECT ledger, counter, previous, hash, body FROM entries ORDER BY ledger, counter";
    let mut entries = sqlx::query(sql).fetch(&mut *connection);
    while let Some(row) = entries.try_next().await? {
        let ledger = name(row.try_get(0)?)?;
        let counter = from_db(row.try_get(1)?);
        let previous = parse_digest(row.try_get(2)?)?;
        let hash = parse_digest(row.try_get(3)?)?;
        let body = row.try_get::<&str, _>(4)?.into();
        check.add_entry(&SealedEntry {
            ledger,
            counter,
            previous,
            body,
            hash,
        });
    }
    drop(entries);
    let rows = sqlx::query("SELECT name, counter, hash FROM ledgers")
        .fetch_all(connection)
        .await?;
    let head = |row: &sqlx::postgres::PgRow| {
        let ledger = name(row.try_get(0)?)?;
        let counter = from_db(row.try_get(1)?);
        Ok::<_, sqlx::Error>(LedgerHead {
            ledger,
            counter,
            hash: parse_digest(row.try_get(2)?)?,
        })
    };
    Ok(check.finish(&rows.iter().map(head).collect::<Result<Vec<_>, _>>()?))
}

/// Finds approvals whose approval request is missing.
async fn check_requests(
    connection: &mut PgConnection,
) -> Result<Vec<IntegrityProblem>, sqlx::Error> {
    let rows = sqlx::query("SELECT call, request FROM approvals ORDER BY call")
        .fetch_all(&mut *connection)
        .await?;
    let mut problems = Vec::new();
    for row in &rows {
        let call = CallId::new(row.try_get::<PgUuid, _>(0)?.0);
        let Ok(request) = decode_json::<ApprovalRequest>(row.try_get(1)?, String::new) else {
            problems.push(IntegrityProblem::Unreadable {
                what: format!("the approval of call {call}"),
            });
            continue;
        };
        let generation = request.generation;
        let key = RecordKey::Question(call, generation).to_string();
        let there = sqlx::query("SELECT 1 FROM records WHERE key = $1").bind(key.as_bytes());
        if there.fetch_optional(&mut *connection).await?.is_none() {
            problems.push(IntegrityProblem::MissingRequest { call, generation });
        }
    }
    Ok(problems)
}
