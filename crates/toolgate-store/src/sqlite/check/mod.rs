//! Checks a whole database for inconsistencies.

mod rows;

use std::path::Path;

use rusqlite::{Connection, types::Value};
use toolgate_core::{
    ApprovalRequest, CallId, Digest, LedgerName, RecordKey, SealedEntry, SessionId, StoreError,
};

use super::{
    SqliteStore,
    bodies::{EventBodies, RecordBodies},
    connect,
    ledgers::entry_body,
    read::{SqliteReader, parse_ledger_name, uuid_column},
    record_keys::{record_name, stored_key},
};
use crate::{
    DatabaseError, IntegrityProblem,
    check::ChainCheck,
    derived_rows::DerivedRows,
    encoded::{decode_json, from_db},
};

impl SqliteStore {
    /// Checks for damage: in the file itself, in logs, chains and approvals. An empty list means
    /// that nothing was found.
    ///
    /// This reads the whole file, as of one moment, and takes time accordingly. Other processes can
    /// continue meanwhile.
    pub fn check(&self) -> Result<Vec<IntegrityProblem>, DatabaseError> {
        let connection = connect::open_reader(&self.0.path, &self.0.options)?;
        check_connection(&connection, &self.0.path)
    }
}

pub(super) fn check_connection(
    connection: &Connection,
    path: &Path,
) -> Result<Vec<IntegrityProblem>, DatabaseError> {
    let failed = |error| connect::database_error(path, error);
    // One transaction, so that everything is seen as of the same moment.
    let snapshot = connection.unchecked_transaction().map_err(failed)?;
    let found = find_problems(&SqliteReader {
        connection: &snapshot,
        path,
    });
    found.map_err(|error| match error {
        StoreError::Backend(error) | StoreError::Damaged { source: error, .. } => {
            connect::into_database_error(path, error)
        }
        other => DatabaseError::Failed {
            database: connect::database_name(path),
            source: std::sync::Arc::new(other),
        },
    })
}

fn find_problems(read: &SqliteReader<'_>) -> Result<Vec<IntegrityProblem>, StoreError> {
    let mut problems = Vec::new();
    let messages: Vec<String> =
        read.query_rows("PRAGMA integrity_check(20)", [], |row| Ok(Ok(row.get(0)?)))?;
    problems.extend(
        messages
            .into_iter()
            .filter(|message| message != "ok")
            .map(|message| IntegrityProblem::Database { message }),
    );
    problems.extend(check_logs(read)?);
    let mut derived = DerivedRows::default();
    problems.extend(check_events(read, &mut derived)?);
    problems.extend(check_records(read)?);
    problems.extend(check_chains(read)?);
    problems.extend(check_requests(read)?);
    problems.extend(read.check_checksums()?);
    problems.extend(read.check_derived_rows(&mut derived)?);
    problems.extend(read.check_blobs()?);
    problems.extend(read.check_documents()?);
    Ok(problems)
}

/// Finds logs whose events are not 1 to the revision of their session.
fn check_logs(read: &SqliteReader<'_>) -> Result<Vec<IntegrityProblem>, StoreError> {
    let sql = "SELECT id, revision, count(sequence) AS events, coalesce(max(sequence), 0) AS last
               FROM sessions LEFT JOIN events ON events.session = sessions.id
               GROUP BY id HAVING events != revision OR last != revision
               UNION ALL
               SELECT session, 0, count(*), max(sequence) FROM events
               WHERE session NOT IN (SELECT id FROM sessions) GROUP BY session";
    read.query_rows(sql, [], |row| {
        Ok(Ok(IntegrityProblem::Log {
            session: SessionId::new(uuid_column(row, 0)?),
            revision: from_db(row.get(1)?),
            events: from_db(row.get(2)?),
            last: from_db(row.get(3)?),
        }))
    })
}

/// Finds events that are damaged or cannot be parsed. The others are collected in `derived`.
fn check_events(
    read: &SqliteReader<'_>,
    derived: &mut DerivedRows,
) -> Result<Vec<IntegrityProblem>, StoreError> {
    let mut bodies: Option<(SessionId, EventBodies<'_>)> = None;
    let events = read.query_rows(
        "SELECT session, sequence, body, checksum FROM events ORDER BY session, sequence",
        [],
        |row| {
            let session = SessionId::new(uuid_column(row, 0)?);
            let sequence = from_db(row.get(1)?);
            let what = || format!("event {sequence} of session {session}");
            let checksum = row.get(3)?;
            let of_session = match bodies.take().filter(|(of, _)| *of == session) {
                Some((_, of_session)) => of_session,
                None => EventBodies::new(read, session),
            };
            let (_, of_session) = bodies.insert((session, of_session));
            let event = row
                .get_ref(2)?
                .as_str()
                .ok()
                .and_then(|text| of_session.decode_event(sequence, text, checksum).ok())
                .filter(|event| event.sequence() == sequence);
            Ok(Ok(match event {
                Some(event) => {
                    derived.add_event(session, event);
                    None
                }
                None => {
                    derived.skip_session(session);
                    Some(IntegrityProblem::Unreadable { what: what() })
                }
            }))
        },
    )?;
    Ok(events.into_iter().flatten().collect())
}

/// Finds records that are damaged or cannot be parsed.
fn check_records(read: &SqliteReader<'_>) -> Result<Vec<IntegrityProblem>, StoreError> {
    let mut bodies = RecordBodies::new(read);
    let records = read.query_rows("SELECT key, body, checksum FROM keyed_records", [], |row| {
        let key: Value = row.get(0)?;
        let name = record_name(row.get_ref(0)?);
        let what = || name.clone().unwrap_or_else(|| "a record".to_owned());
        let checksum = row.get(2)?;
        // A record is found under one form of its key only.
        let is_found = name.as_ref().is_some_and(|name| stored_key(name) == key);
        let body = row.get_ref(1)?.as_str().ok().filter(|_| is_found);
        let record = body.and_then(|text| bodies.decode_record(&what(), text, checksum).ok());
        Ok(Ok(record
            .is_none()
            .then(|| IntegrityProblem::Unreadable { what: what() })))
    })?;
    Ok(records.into_iter().flatten().collect())
}

/// Finds chains that are broken or end elsewhere than they should.
fn check_chains(read: &SqliteReader<'_>) -> Result<Vec<IntegrityProblem>, StoreError> {
    let mut chains = ChainCheck::default();
    let sql = "SELECT ledger, counter, previous, hash, body FROM entries ORDER BY ledger, counter";
    read.query_rows(sql, [], |row| {
        let digest = |column| row.get(column).map(Digest::from_bytes);
        let ledger = parse_ledger_name(row.get(0)?);
        let counter = from_db(row.get(1)?);
        let previous = digest(2)?;
        let hash = digest(3)?;
        let body = entry_body(row.get_ref(4)?.as_str()?);
        let entry = |ledger: LedgerName| SealedEntry {
            ledger,
            counter,
            previous,
            body,
            hash,
        };
        Ok(ledger.map(|ledger| chains.add_entry(&entry(ledger))))
    })?;
    Ok(chains.finish(&read.read_ledgers()?))
}

/// Finds approvals whose approval request is missing.
fn check_requests(read: &SqliteReader<'_>) -> Result<Vec<IntegrityProblem>, StoreError> {
    let approvals = read.query_rows("SELECT call, request FROM approvals", [], |row| {
        let call = CallId::new(uuid_column(row, 0)?);
        let request = row.get_ref(1)?.as_str().ok();
        Ok(Ok((
            call,
            request.and_then(|text| decode_json::<ApprovalRequest>(text, String::new).ok()),
        )))
    })?;
    let mut problems = Vec::new();
    for (call, request) in approvals {
        let Some(generation) = request.map(|request| request.generation) else {
            problems.push(IntegrityProblem::Unreadable {
                what: format!("the approval of call {call}"),
            });
            continue;
        };
        let question = RecordKey::Question(call, generation).to_string();
        let sql = "SELECT 1 FROM keyed_records WHERE key = ?1";
        let there = read.query_row(sql, [stored_key(&question)], |_| Ok(()))?;
        problems.extend(
            there
                .is_none()
                .then_some(IntegrityProblem::MissingRequest { call, generation }),
        );
    }
    Ok(problems)
}
