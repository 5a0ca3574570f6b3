//! Looks through a whole database for anything that cannot be right.

use futures::TryStreamExt;
use sqlx::{Connection, Executor, PgConnection, Row};
use toolgate_core::{
    ApprovalRequest, CallId, Event, LedgerHead, LedgerName, Record, RecordKey, SealedEntry,
    SessionId,
};

use super::{PostgresStore, facts::digest, id::Id};
use crate::{
    DatabaseError, Problem,
    check::ChainCheck,
    encoded::{from_db, from_text},
};

impl PostgresStore {
    /// Looks for damage in logs, chains and approvals. An empty list means that all is well.
    ///
    /// This reads the whole database, as it is at one moment, and takes time accordingly. Others can go on meanwhile.
    pub async fn check(&self) -> Result<Vec<Problem>, DatabaseError> {
        let address = &self.reads.address;
        let mut connection = address.connect().await?;
        let found = everything(&mut connection).await;
        let _ = connection.close().await;
        found.map_err(|error| address.error(error))
    }
}

async fn everything(connection: &mut PgConnection) -> Result<Vec<Problem>, sqlx::Error> {
    // One transaction, so that everything is seen as of the same moment.
    connection
        .execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await?;
    let mut problems = logs(connection).await?;
    problems.extend(bodies(connection).await?);
    problems.extend(chains(connection).await?);
    problems.extend(questions(connection).await?);
    Ok(problems)
}

/// Logs whose events are not 1 to the revision of their session.
async fn logs(connection: &mut PgConnection) -> Result<Vec<Problem>, sqlx::Error> {
    let sql = "SELECT id, revision, count(sequence), coalesce(max(sequence), 0)
               FROM sessions LEFT JOIN events ON events.session = sessions.id
               GROUP BY id HAVING count(sequence) != revision OR coalesce(max(sequence), 0) != revision
               UNION ALL
               SELECT session, 0, count(*), max(sequence) FROM events
               WHERE session NOT IN (SELECT id FROM sessions) GROUP BY session";
    let rows = sqlx::query(sql).fetch_all(connection).await?;
    let log = |row: &sqlx::postgres::PgRow| {
        Ok(Problem::Log {
            session: SessionId::new(row.try_get::<Id, _>(0)?.0),
            revision: from_db(row.try_get(1)?),
            events: from_db(row.try_get(2)?),
            last: from_db(row.try_get(3)?),
        })
    };
    rows.iter().map(log).collect()
}

/// Events and records that cannot be read.
async fn bodies(connection: &mut PgConnection) -> Result<Vec<Problem>, sqlx::Error> {
    let mut problems = Vec::new();
    let mut events =
        sqlx::query("SELECT session, sequence, body FROM events").fetch(&mut *connection);
    while let Some(row) = events.try_next().await? {
        let (session, sequence) = (row.try_get::<Id, _>(0)?.0, from_db(row.try_get(1)?));
        let what = || format!("event {sequence} of session {session}");
        if from_text::<Event>(row.try_get(2)?, what).is_ok_and(|event| event.sequence() == sequence)
        {
            continue;
        }
        problems.push(Problem::Unreadable { what: what() });
    }
    drop(events);
    let mut records = sqlx::query("SELECT key, body FROM records").fetch(connection);
    while let Some(row) = records.try_next().await? {
        let what = String::from_utf8_lossy(row.try_get(0)?).into_owned();
        if from_text::<Record>(row.try_get(1)?, || what.clone()).is_err() {
            problems.push(Problem::Unreadable { what });
        }
    }
    Ok(problems)
}

/// Chains that are broken or end elsewhere than they should.
async fn chains(connection: &mut PgConnection) -> Result<Vec<Problem>, sqlx::Error> {
    let name = |name: String| {
        LedgerName::try_from(name).map_err(|error| sqlx::Error::Decode(Box::new(error)))
    };
    let mut check = ChainCheck::default();
    let sql = "SELECT ledger, counter, previous, hash, body FROM entries ORDER BY ledger, counter";
    let mut entries = sqlx::query(sql).fetch(&mut *connection);
    while let Some(row) = entries.try_next().await? {
        let (ledger, counter) = (name(row.try_get(0)?)?, from_db(row.try_get(1)?));
        let (previous, hash) = (digest(row.try_get(2)?)?, digest(row.try_get(3)?)?);
        let body = row.try_get::<&str, _>(4)?.into();
        check.entry(&SealedEntry {
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
        let (ledger, counter) = (name(row.try_get(0)?)?, from_db(row.try_get(1)?));
        Ok::<_, sqlx::Error>(LedgerHead {
            ledger,
            counter,
            hash: digest(row.try_get(2)?)?,
        })
    };
    Ok(check.finish(&rows.iter().map(head).collect::<Result<Vec<_>, _>>()?))
}

/// Approvals whose question is missing.
async fn questions(connection: &mut PgConnection) -> Result<Vec<Problem>, sqlx::Error> {
    let rows = sqlx::query("SELECT call, request FROM approvals ORDER BY call")
        .fetch_all(&mut *connection)
        .await?;
    let mut problems = Vec::new();
    for row in &rows {
        let call = CallId::new(row.try_get::<Id, _>(0)?.0);
        let Ok(request) = from_text::<ApprovalRequest>(row.try_get(1)?, String::new) else {
            problems.push(Problem::Unreadable {
                what: format!("the approval of call {call}"),
            });
            continue;
        };
        let (generation, key) = (
            request.generation,
            RecordKey::Question(call, request.generation).to_string(),
        );
        let there = sqlx::query("SELECT 1 FROM records WHERE key = $1").bind(key.as_bytes());
        if there.fetch_optional(&mut *connection).await?.is_none() {
            problems.push(Problem::Question { call, generation });
        }
    }
    Ok(problems)
}
