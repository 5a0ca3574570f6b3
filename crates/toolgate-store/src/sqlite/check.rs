//! Looks through a whole database for anything that cannot be right.

use std::path::Path;

use rusqlite::Connection;
use toolgate_core::{
    ApprovalRequest, CallId, Digest, Event, LedgerName, Record, RecordKey, SealedEntry, SessionId,
    StoreError,
};

use super::{
    SqliteStore, connect,
    read::{Read, ledger_name, uuid},
};
use crate::{
    DatabaseError, Problem,
    check::ChainCheck,
    encoded::{from_db, from_text},
};

impl SqliteStore {
    /// Looks for damage: in the file itself, in logs, chains and approvals. An empty list means that all is well.
    ///
    /// This reads the whole file, as it is at one moment, and takes time accordingly. Others can go on meanwhile.
    pub fn check(&self) -> Result<Vec<Problem>, DatabaseError> {
        let connection = connect::reader(&self.0.path, &self.0.options)?;
        check(&connection, &self.0.path)
    }
}

pub(super) fn check(connection: &Connection, path: &Path) -> Result<Vec<Problem>, DatabaseError> {
    let failed = |error| connect::database_error(path, error);
    // One transaction, so that everything is seen as of the same moment.
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    let found = everything(&Read {
        connection: &snapshot,
        path,
    });
    found.map_err(|error| match error {
        StoreError::Backend(error) | StoreError::Damaged { source: error, .. } => {
            connect::cause(path, error)
        }
        other => DatabaseError::Failed {
            database: connect::name(path),
            source: std::sync::Arc::new(other),
        },
    })
}

fn everything(read: &Read<'_>) -> Result<Vec<Problem>, StoreError> {
    let mut problems = Vec::new();
    let messages: Vec<String> =
        read.rows("PRAGMA integrity_check(20)", [], |row| Ok(Ok(row.get(0)?)))?;
    problems.extend(
        messages
            .into_iter()
            .filter(|message| message != "ok")
            .map(|message| Problem::Database { message }),
    );
    problems.extend(logs(read)?);
    problems.extend(bodies(read)?);
    problems.extend(chains(read)?);
    problems.extend(questions(read)?);
    Ok(problems)
}

/// Logs whose events are not 1 to the revision of their session.
fn logs(read: &Read<'_>) -> Result<Vec<Problem>, StoreError> {
    let sql = "SELECT id, revision, count(sequence) AS events, coalesce(max(sequence), 0) AS last
               FROM sessions LEFT JOIN events ON events.session = sessions.id
               GROUP BY id HAVING events != revision OR last != revision
               UNION ALL
               SELECT session, 0, count(*), max(sequence) FROM events
               WHERE session NOT IN (SELECT id FROM sessions) GROUP BY session";
    read.rows(sql, [], |row| {
        Ok(Ok(Problem::Log {
            session: SessionId::new(uuid(row, 0)?),
            revision: from_db(row.get(1)?),
            events: from_db(row.get(2)?),
            last: from_db(row.get(3)?),
        }))
    })
}

/// Events and records that cannot be read.
fn bodies(read: &Read<'_>) -> Result<Vec<Problem>, StoreError> {
    let events = read.rows("SELECT session, sequence, body FROM events", [], |row| {
        let (session, sequence) = (SessionId::new(uuid(row, 0)?), from_db(row.get(1)?));
        let what = || format!("event {sequence} of session {session}");
        let event = row
            .get_ref(2)?
            .as_str()
            .ok()
            .and_then(|text| from_text::<Event>(text, what).ok());
        Ok(Ok(event
            .is_none_or(|event| event.sequence() != sequence)
            .then(|| Problem::Unreadable { what: what() })))
    })?;
    let records = read.rows("SELECT key, body FROM records", [], |row| {
        let what = || row.get(0).unwrap_or_else(|_| "a record".to_owned());
        let record = row
            .get_ref(1)?
            .as_str()
            .ok()
            .and_then(|text| from_text::<Record>(text, what).ok());
        Ok(Ok(record
            .is_none()
            .then(|| Problem::Unreadable { what: what() })))
    })?;
    Ok(events.into_iter().chain(records).flatten().collect())
}

/// Chains that are broken or end elsewhere than they should.
fn chains(read: &Read<'_>) -> Result<Vec<Problem>, StoreError> {
    let mut chains = ChainCheck::default();
    let sql = "SELECT ledger, counter, previous, hash, body FROM entries ORDER BY ledger, counter";
    read.rows(sql, [], |row| {
        let digest = |column| row.get(column).map(Digest::from_bytes);
        let (ledger, counter) = (ledger_name(row.get(0)?), from_db(row.get(1)?));
        let (previous, hash, body) = (digest(2)?, digest(3)?, row.get_ref(4)?.as_str()?.into());
        let entry = |ledger: LedgerName| SealedEntry {
            ledger,
            counter,
            previous,
            body,
            hash,
        };
        Ok(ledger.map(|ledger| chains.entry(&entry(ledger))))
    })?;
    Ok(chains.finish(&read.ledgers()?))
}

/// Approvals whose question is missing.
fn questions(read: &Read<'_>) -> Result<Vec<Problem>, StoreError> {
    let approvals = read.rows("SELECT call, request FROM approvals", [], |row| {
        let call = CallId::new(uuid(row, 0)?);
        let request = row.get_ref(1)?.as_str().ok();
        Ok(Ok((
            call,
            request.and_then(|text| from_text::<ApprovalRequest>(text, String::new).ok()),
        )))
    })?;
    let mut problems = Vec::new();
    for (call, request) in approvals {
        let Some(generation) = request.map(|request| request.generation) else {
            problems.push(Problem::Unreadable {
                what: format!("the approval of call {call}"),
            });
            continue;
        };
        let question = RecordKey::Question(call, generation).to_string();
        let there = read.row("SELECT 1 FROM records WHERE key = ?1", [question], |_| {
            Ok(())
        })?;
        problems.extend(
            there
                .is_none()
                .then_some(Problem::Question { call, generation }),
        );
    }
    Ok(problems)
}
