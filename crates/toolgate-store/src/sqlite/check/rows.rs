//! Checks the rows beside events, records and chains: each is compared with its checksum, with the
//! log that it follows from, or with the digest that names it.

use std::sync::Arc;

use rusqlite::{Row, params, types::ValueRef};
use toolgate_core::{
    ApprovalRow, CallId, Digest, RecordKey, SessionId, StoreError, Timestamp, TurnId, TurnRow,
};
use uuid::Uuid;

use super::super::{
    accounts::{account_row, charge_row},
    memories::{CHECKED_MEMORIES, check_memory_row},
    read::SqliteReader,
    record_keys::stored_key,
    session_checksum::computed_checksum,
    transaction::session_bytes,
};
use crate::{
    IntegrityProblem,
    check::{DOCUMENTS_WITHOUT_SOURCE, damaged_row},
    checksum::RowChecksum,
    derived_rows::{DerivedRows, DerivedSession},
    encoded::{decode_json, parse_state},
    session_columns::TotalColumns,
};

type Problems = Result<Vec<IntegrityProblem>, StoreError>;

impl SqliteReader<'_> {
    /// Finds rows that differ from their checksums.
    pub(super) fn check_checksums(&self) -> Problems {
        let sessions = "SELECT id, fence, holder, posted, hidden_at, parent, directory, checksum FROM sessions";
        let mut problems = self.check_rows("sessions", sessions, |row| {
            let session = session_column(row, 0)?;
            let computed = computed_checksum(session, row)?;
            Ok(computed.check(row.get(7)?, String::new).is_ok())
        })?;
        let posts = "SELECT session, number, body, checksum FROM posts";
        problems.extend(self.check_rows("posts", posts, |row| {
            let body = row.get_ref(2)?.as_bytes()?;
            let computed = RowChecksum::of_post(session_column(row, 0)?, row.get(1)?, body);
            Ok(computed.check(row.get(3)?, String::new).is_ok())
        })?);
        let accounts = "SELECT key, spent, reserved, checksum FROM accounts";
        problems
            .extend(self.check_rows("accounts", accounts, |row| Ok(account_row(row)?.is_ok()))?);
        let charges = "SELECT id, session, body, checksum FROM charges";
        problems.extend(self.check_rows("charges", charges, |row| Ok(charge_row(row)?.is_ok()))?);
        problems.extend(self.check_rows("memories", CHECKED_MEMORIES, check_memory_row)?);
        Ok(problems)
    }

    /// Finds blobs whose content does not have the digest that names them.
    pub(super) fn check_blobs(&self) -> Problems {
        let blobs = "SELECT digest, size FROM blobs";
        let mut problems = self.check_rows("blobs", blobs, |row| {
            let digest = row.get_ref(0)?.as_blob()?;
            let size: i64 = row.get(1)?;
            let pieces = "SELECT number, bytes FROM blob_pieces WHERE digest = ?1 ORDER BY number";
            let mut whole = Vec::new();
            let mut is_whole = true;
            let mut pieces = self.connection.prepare_cached(pieces)?;
            let mut pieces = pieces.query([digest])?;
            for number in 0_i64.. {
                let Some(piece) = pieces.next()? else { break };
                is_whole &= piece.get::<_, i64>(0)? == number;
                whole.extend_from_slice(piece.get_ref(1)?.as_blob()?);
            }
            is_whole &= i64::try_from(whole.len()).is_ok_and(|length| length == size);
            Ok(is_whole && Digest::of_bytes(&whole).as_bytes()[..] == *digest)
        })?;
        let lost = "SELECT id FROM blob_pieces WHERE digest NOT IN (SELECT digest FROM blobs)";
        problems.extend(self.check_rows("blob_pieces", lost, |_| Ok(false))?);
        Ok(problems)
    }

    /// Finds documents of search whose event, or session in the case of a title, is not there.
    /// Erasing a session deletes the words of the documents that name it, so those of a document with
    /// a wrong name would stay.
    pub(super) fn check_documents(&self) -> Problems {
        self.check_rows("search_documents", DOCUMENTS_WITHOUT_SOURCE, |_| Ok(false))
    }

    /// Compares sessions, turns and approvals with what follows from the events.
    pub(super) fn check_derived_rows(&self, derived: &mut DerivedRows) -> Problems {
        let sessions = "SELECT id, created_at, updated_at, principal, labels, run, run_state, run_at, calls, cost,
                            model, first_tool, provider FROM sessions";
        let mut problems = self.check_rows("sessions", sessions, |row| {
            let stored = derived_session(row)?;
            Ok(derived.check_session(session_column(row, 0)?, &stored))
        })?;
        let turns = "SELECT turn, session, opened_at, settled_at FROM turns";
        problems.extend(self.check_rows("turns", turns, |row| {
            let settled_at: Option<i64> = row.get(3)?;
            let stored = TurnRow {
                turn: TurnId::new(uuid_value(row, 0)?),
                session: session_column(row, 1)?,
                opened_at: Timestamp::from_micros(row.get(2)?),
                settled_at: settled_at.map(Timestamp::from_micros),
            };
            Ok(derived.check_turn(&stored))
        })?);
        let approvals = "SELECT call, session, turn, tool, asked_at, state, request FROM approvals";
        problems.extend(self.check_rows("approvals", approvals, |row| {
            let call = CallId::new(uuid_value(row, 0)?);
            let stored = stored_approval(row)?;
            let is_answered = |asked: &ApprovalRow| self.has_answer(asked);
            Ok(derived.check_approval(call, stored.as_ref(), is_answered))
        })?);
        problems.extend(derived.missing_rows());
        Ok(problems)
    }

    /// Checks whether there is an answer that the driver has not recorded yet.
    fn has_answer(&self, asked: &ApprovalRow) -> bool {
        let request = &asked.request;
        let key = RecordKey::Answer(request.approval_id.call_id(), request.generation);
        let sql = "SELECT 1 FROM keyed_records WHERE key = ?1
                   UNION ALL SELECT 1 FROM posts WHERE session = ?2 LIMIT 1";
        let name = key.to_string();
        let wanted = params![stored_key(&name), session_bytes(asked.session)];
        let found = self.query_row(sql, wanted, |_| Ok(()));
        found.is_ok_and(|found| found.is_some())
    }

    /// Returns the rows that `is_intact` rejects, or that cannot be read. The first column names the
    /// row.
    fn check_rows(
        &self,
        table: &'static str,
        sql: &str,
        mut is_intact: impl FnMut(&Row<'_>) -> rusqlite::Result<bool>,
    ) -> Problems {
        let checked = self.query_rows(sql, [], |row| {
            let is_intact = is_intact(row).unwrap_or(false);
            Ok(Ok((!is_intact).then(|| damaged_row(table, row_key(row)))))
        })?;
        Ok(checked.into_iter().flatten().collect())
    }
}

/// Returns the first column as people know it.
fn row_key(row: &Row<'_>) -> String {
    match row.get_ref(0) {
        Ok(ValueRef::Blob(id)) => Uuid::from_slice(id).map_or_else(
            |_| id.iter().map(|byte| format!("{byte:02x}")).collect(),
            |id| id.to_string(),
        ),
        Ok(ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
        Ok(ValueRef::Integer(number)) => number.to_string(),
        Ok(ValueRef::Real(_) | ValueRef::Null) | Err(_) => "?".to_owned(),
    }
}

fn uuid_value(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    row.get(column).map(Uuid::from_bytes)
}

fn session_column(row: &Row<'_>, column: usize) -> rusqlite::Result<SessionId> {
    uuid_value(row, column).map(SessionId::new)
}

fn derived_session(row: &Row<'_>) -> rusqlite::Result<DerivedSession> {
    let labels: Option<String> = row.get(4)?;
    let totals = TotalColumns {
        calls: row.get(8)?,
        cost: row.get(9)?,
        model: row.get_ref(10)?.as_str_or_null()?,
        first_tool: row.get_ref(11)?.as_str_or_null()?,
        provider: row.get_ref(12)?.as_str_or_null()?,
    };
    Ok(DerivedSession {
        created_at: row.get(1)?,
        updated_at: row.get(2)?,
        principal: row.get(3)?,
        labels: labels.filter(|labels| labels != "{}"),
        run: row.get(5)?,
        run_state: row.get(6)?,
        run_at: row.get(7)?,
        totals: totals.decode(),
    })
}

/// Returns an approval, unless it cannot be parsed or its tool is not that of its request.
fn stored_approval(row: &Row<'_>) -> rusqlite::Result<Option<ApprovalRow>> {
    let tool: String = row.get(3)?;
    let state = parse_state(row.get_ref(5)?.as_str()?);
    let request = decode_json(row.get_ref(6)?.as_str()?, String::new);
    let (Ok(state), Ok(request)) = (state, request) else {
        return Ok(None);
    };
    let stored = ApprovalRow {
        request: Arc::new(request),
        session: session_column(row, 1)?,
        turn: TurnId::new(uuid_value(row, 2)?),
        asked_at: Timestamp::from_micros(row.get(4)?),
        state,
    };
    Ok(Some(stored).filter(|stored| stored.request.tool.as_str() == tool))
}
