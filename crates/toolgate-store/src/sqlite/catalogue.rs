//! Lists in an SQLite file, derived from the events in the write that appends them.

use std::sync::Arc;

use rusqlite::{Row, params, params_from_iter, types::Value};
use toolgate_core::{
    ApprovalFilter, ApprovalRow, ApprovalState, CallId, CatalogueStore, ErasedSessions, Principal,
    RowChange, SessionFilter, SessionId, SessionRow, SessionTitle, StoreError, Timestamp,
    TurnFilter, TurnId, TurnRow,
};
use uuid::Uuid;

use super::{
    SqliteStore,
    read::{decode_column, held_columns, time_column, uuid_column},
    transaction::{SqliteWriteTx, session_bytes},
};
use crate::encoded::{
    decode_labels, decode_last_run, encode_json, from_db, hidden_condition, limit_to_db,
    parse_state, session_order, unfinished_condition,
};

impl CatalogueStore for SqliteStore {
    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        self.run_read(move |read| {
            let open = if filter.with_open_turns {
                "AND EXISTS (SELECT 1 FROM turns WHERE session = sessions.id AND settled_at IS NULL)"
            } else {
                ""
            };
            let hidden = hidden_condition(filter.hidden);
            let unfinished = unfinished_condition(filter.unfinished);
            let mut sql = format!(
                "SELECT {SESSION_COLUMNS} FROM sessions
                 WHERE id > ? AND id >= ? AND id <= ? AND revision > 0 {hidden} {unfinished} {open}"
            );
            // An empty blob sorts before every id.
            let after = filter
                .after
                .map_or(Vec::new(), |after| session_bytes(after).to_vec());
            let (first, last) = filter.session.map_or(([0; 16], [255; 16]), |only| {
                (session_bytes(only), session_bytes(only))
            });
            let mut values = vec![
                Value::from(after),
                Value::from(first.to_vec()),
                Value::from(last.to_vec()),
            ];
            if let Some(principal) = &filter.principal {
                sql.push_str(" AND principal = ?");
                values.push(Value::from(principal.as_str().to_owned()));
            }
            if let Some(directory) = &filter.directory {
                sql.push_str(" AND directory = ?");
                values.push(Value::from(directory.to_string()));
            }
            for (name, value) in filter.labels.iter() {
                sql.push_str(" AND labels ->> ? = ?");
                // Quoted, because a name may contain dots.
                values.push(Value::from(format!("$.\"{name}\"")));
                values.push(Value::from(value.to_owned()));
            }
            let order = session_order(filter.order);
            let limit = limit_to_db(filter.limit);
            sql.push_str(&format!(" ORDER BY {order} LIMIT {limit}"));
            read.query_rows(&sql, params_from_iter(values), session_row)
        })
        .await
    }

    async fn turns(&self, filter: TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        self.run_read(move |read| {
            let open = if filter.open {
                "AND settled_at IS NULL"
            } else {
                ""
            };
            let sql = format!(
                "SELECT turn, session, opened_at, settled_at FROM turns
                 WHERE session = ?1 AND turn > ?2 {open} ORDER BY turn LIMIT ?3"
            );
            let after = filter
                .after
                .map_or(Vec::new(), |after| after.uuid().into_bytes().to_vec());
            read.query_rows(
                &sql,
                params![
                    session_bytes(filter.session),
                    after,
                    limit_to_db(filter.limit)
                ],
                |row| {
                    Ok(Ok(TurnRow {
                        turn: TurnId::new(uuid_column(row, 0)?),
                        session: SessionId::new(uuid_column(row, 1)?),
                        opened_at: time_column(row, 2)?,
                        settled_at: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_micros),
                    }))
                },
            )
        })
        .await
    }

    async fn approvals(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRow>, StoreError> {
        self.run_read(move |read| {
            let mut wanted = String::from(
                "SELECT call, session, turn, asked_at, state, request FROM approvals WHERE 1",
            );
            let blob = |id: uuid::Uuid| Value::from(id.into_bytes().to_vec());
            let conditions = [
                filter.call.map(|call| (" AND call = ?", blob(call.uuid()))),
                filter
                    .session
                    .map(|session| (" AND session = ?", blob(session.uuid()))),
                filter
                    .tool
                    .as_ref()
                    .map(|tool| (" AND tool = ?", Value::from(tool.as_str().to_owned()))),
                filter
                    .after
                    .map(|after| (" AND call > ?", blob(after.call_id().uuid()))),
            ];
            let (conditions, values): (Vec<&str>, Vec<Value>) =
                conditions.into_iter().flatten().unzip();
            wanted.extend(conditions);
            if filter.pending {
                wanted.push_str(" AND state = 'pending'");
            }
            wanted.push_str(&format!(
                " ORDER BY call LIMIT {}",
                limit_to_db(filter.limit)
            ));
            read.query_rows(&wanted, params_from_iter(values), approval_row)
        })
        .await
    }

    async fn hide_session(
        &self,
        session: SessionId,
        at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        self.queue_write(move |tx| tx.hide_session(session, at))
            .await
    }

    async fn rename_session(
        &self,
        session: SessionId,
        title: SessionTitle,
    ) -> Result<(), StoreError> {
        self.queue_write(move |tx| {
            let sql = "UPDATE sessions SET title = ?2, is_retitled = 1 WHERE id = ?1";
            tx.execute(sql, params![session_bytes(session), title.as_str()])
                .map(drop)
        })
        .await
    }

    async fn erase_session(
        &self,
        session: SessionId,
        now: Timestamp,
    ) -> Result<ErasedSessions, StoreError> {
        self.unindex_session(session, now).await?;
        let erased = self
            .queue_write(move |tx| tx.erase_session(session, now))
            .await?;
        // The session is erased in any case; the next checkpoint empties the log.
        let _ = self.truncate_wal().await;
        Ok(erased)
    }
}

impl SqliteWriteTx<'_> {
    pub(super) fn apply_change(&self, change: &RowChange) -> Result<(), StoreError> {
        match change {
            RowChange::TurnOpened(row) => {
                let sql = "INSERT OR REPLACE INTO turns (turn, session, opened_at, settled_at) VALUES (?1, ?2, ?3, ?4)";
                let turn = row.turn.uuid().into_bytes();
                let settled = row.settled_at.map(Timestamp::as_micros);
                self.execute(
                    sql,
                    params![
                        turn,
                        session_bytes(row.session),
                        row.opened_at.as_micros(),
                        settled
                    ],
                )
                .map(drop)
            }
            RowChange::TurnSettled(turn, at) => {
                let sql = "UPDATE turns SET settled_at = ?2 WHERE turn = ?1";
                self.execute(sql, params![turn.uuid().as_bytes(), at.as_micros()])
                    .map(drop)
            }
            RowChange::Asked(row) => {
                let sql = "INSERT OR REPLACE INTO approvals (call, session, turn, tool, asked_at, state, request)
                           VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
                let call = row.request.approval_id.call_id().uuid().into_bytes();
                let turn = row.turn.uuid().into_bytes();
                let tool = row.request.tool.as_str();
                let asked = row.asked_at.as_micros();
                let state = row.state.as_str();
                let request = encode_json(&*row.request)?;
                self.execute(
                    sql,
                    params![
                        call,
                        session_bytes(row.session),
                        turn,
                        tool,
                        asked,
                        state,
                        request
                    ],
                )
                .map(drop)
            }
            RowChange::Answered(call) => self.mark_approval(*call, ApprovalState::Answered),
            RowChange::Settled(call, status) => {
                self.mark_approval(*call, ApprovalState::Settled(*status))
            }
        }
    }

    pub(super) fn mark_approval(
        &self,
        call: CallId,
        state: ApprovalState,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE approvals SET state = ?2 WHERE call = ?1";
        self.execute(sql, params![call.uuid().as_bytes(), state.as_str()])
            .map(drop)
    }
}

/// The columns that [`session_row`] reads.
const SESSION_COLUMNS: &str =
    "id, revision, created_at, updated_at, holder, lease_until, hidden_at, parent, principal,
    labels, run, run_state, run_at, title, directory, last_use";

fn session_row(row: &Row<'_>) -> rusqlite::Result<Result<SessionRow, StoreError>> {
    let session = SessionId::new(uuid_column(row, 0)?);
    let revision = from_db(row.get(1)?);
    let created_at = time_column(row, 2)?;
    let updated_at = time_column(row, 3)?;
    let held = held_columns(row, 4)?;
    let hidden_at = row.get::<_, Option<i64>>(6)?.map(Timestamp::from_micros);
    let parent = row.get::<_, Option<[u8; 16]>>(7)?;
    let principal = row.get_ref(8)?.as_str_or_null()?.map(Principal::from);
    let labels = decode_labels(row.get_ref(9)?.as_str_or_null()?);
    let state = row.get_ref(11)?.as_str_or_null()?;
    let last_run = decode_last_run(row.get(10)?, state, row.get(12)?);
    let title = row
        .get_ref(13)?
        .as_str_or_null()?
        .and_then(SessionTitle::new);
    let directory = row.get_ref(14)?.as_str_or_null()?.map(Arc::from);
    let last_use = from_db(row.get(15)?);
    Ok(labels.and_then(|labels| {
        Ok(SessionRow {
            session,
            revision,
            created_at,
            updated_at,
            held,
            hidden_at,
            parent: parent.map(|id| SessionId::new(Uuid::from_bytes(id))),
            principal,
            labels,
            last_run: last_run?,
            title,
            directory,
            last_use,
        })
    }))
}

fn approval_row(row: &Row<'_>) -> rusqlite::Result<Result<ApprovalRow, StoreError>> {
    let call = uuid_column(row, 0)?;
    let session = SessionId::new(uuid_column(row, 1)?);
    let turn = TurnId::new(uuid_column(row, 2)?);
    let asked_at = time_column(row, 3)?;
    let state = parse_state(row.get_ref(4)?.as_str()?);
    let request = decode_column(row, 5, || format!("the approval of call {call}"))?;
    Ok(state.and_then(|state| {
        Ok(ApprovalRow {
            request: Arc::new(request?),
            session,
            turn,
            asked_at,
            state,
        })
    }))
}
