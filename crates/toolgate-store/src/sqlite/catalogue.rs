//! Lists in an SQLite file, derived from the events in the write that appends them.

use std::sync::Arc;

use rusqlite::{Row, params, params_from_iter, types::Value};
use toolgate_core::{
    ApprovalFilter, ApprovalRow, ApprovalState, CallId, CatalogueStore, ErasedSessions, Principal,
    RowChange, SessionFilter, SessionId, SessionRow, SessionTitle, SessionTotals, StoreError,
    Timestamp, ToolName, TurnFilter, TurnId, TurnRow,
};
use uuid::Uuid;

use super::{
    SqliteStore,
    read::{SqliteReader, decode_column, held_columns, time_column, uuid_column},
    transaction::{SqliteWriteTx, session_bytes},
};
use crate::{
    encoded::{
        decode_labels, decode_last_run, encode_json, from_db, hidden_condition, limit_to_db,
        parse_state, session_order, to_db, unfinished_condition,
    },
    session_columns::{
        TotalColumns, UNSETTLED_COLUMNS, agents_condition, cost_sum, decode_origin,
        decode_unsettled, encode_cost,
    },
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
            let agents = agents_condition(filter.without_agents);
            let mut wanted = format!("revision > 0 {hidden} {unfinished} {agents} {open}");
            let mut values = Vec::new();
            for (condition, id) in [(" AND id > ?", filter.after), (" AND id = ?", filter.session)] {
                if let Some(id) = id {
                    wanted.push_str(condition);
                    values.push(Value::from(session_bytes(id).to_vec()));
                }
            }
            if let Some(principal) = &filter.principal {
                wanted.push_str(" AND principal = ?");
                values.push(Value::from(principal.as_str().to_owned()));
            }
            if let Some(directory) = &filter.directory {
                wanted.push_str(" AND directory = ?");
                values.push(Value::from(directory.to_string()));
            }
            if let Some(model) = &filter.model {
                wanted.push_str(" AND (model = ? OR provider || ':' || model = ?)");
                values.push(Value::from(model.to_string()));
                values.push(Value::from(model.to_string()));
            }
            for (name, value) in filter.labels.iter() {
                wanted.push_str(" AND labels ->> ? = ?");
                // Quoted, because a name may contain dots.
                values.push(Value::from(format!("$.\"{name}\"")));
                values.push(Value::from(value.to_owned()));
            }
            let order = session_order(filter.order);
            let limit = limit_to_db(filter.limit);
            // What is joined is looked up for the sessions of the page alone.
            let sql = format!(
                "SELECT {SESSION_COLUMNS}, {UNSETTLED_COLUMNS}, origins.key, origins.body, origins.checksum
                 FROM (SELECT {SESSION_COLUMNS} FROM sessions WHERE {wanted} ORDER BY {order} LIMIT {limit}) AS sessions
                 LEFT JOIN keyed_records AS origins ON origins.key = {ORIGIN_KEY} ORDER BY {order}"
            );
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
        // Of one call there is one row.
        let is_short = filter.call.is_some();
        let read = move |read: &SqliteReader<'_>| {
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
        };
        if is_short {
            return self.run_short_read(read).await;
        }
        self.run_read(read).await
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
            let sql =
                "UPDATE sessions SET title = ?2, is_retitled = 1, is_behind = 1 WHERE id = ?1";
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
        // Another process may have begun to clear the index meanwhile, with the words of the session.
        self.clear_unusable_index().await?;
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
            RowChange::TurnSettled(session, turn, at) => {
                let sql = "UPDATE turns SET settled_at = ?3 WHERE session = ?1 AND turn = ?2";
                let turn = turn.uuid().into_bytes();
                self.execute(sql, params![session_bytes(*session), turn, at.as_micros()])
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
            RowChange::Started(call) => self.mark_approval(*call, ApprovalState::Running),
            RowChange::Settled(call, status) => {
                self.mark_approval(*call, ApprovalState::Settled(*status))
            }
        }
    }

    /// Adds what new events add up to.
    pub(super) fn add_totals(
        &self,
        session: SessionId,
        more: &SessionTotals,
    ) -> Result<(), StoreError> {
        if more.is_empty() {
            return Ok(());
        }
        // An unknown number of calls, which is null, stays unknown.
        let sum = cost_sum("cost", "?3");
        let sql = format!(
            "UPDATE sessions SET calls = calls + ?2, cost = {sum}, model = coalesce(?4, model),
                 provider = CASE WHEN ?4 IS NULL THEN provider ELSE ?6 END, first_tool = coalesce(first_tool, ?5)
             WHERE id = ?1"
        );
        let values = params![
            session_bytes(session),
            to_db(more.calls),
            more.cost.map(encode_cost),
            more.model.as_deref(),
            more.first_tool.as_ref().map(ToolName::as_str),
            more.provider.as_deref()
        ];
        self.execute(&sql, values).map(drop)
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
    labels, run, run_state, run_at, title, directory, last_use, calls, cost, model, first_tool,
    provider";

/// The key of the mark of an imported session, of whichever kind there is.
const ORIGIN_KEY: &str = "(
    SELECT key FROM (
        SELECT substr(hex, 1, 8) || '-' || substr(hex, 9, 4) || '-' || substr(hex, 13, 4) || '-'
            || substr(hex, 17, 4) || '-' || substr(hex, 21) AS id
        FROM (SELECT lower(hex(sessions.id)) AS hex)
    ) AS named, keyed_records
    WHERE key IN ('other/imported/' || named.id || '/origin', 'other/archive/' || named.id || '/mark')
    ORDER BY key DESC LIMIT 1)";

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
    let totals = TotalColumns {
        calls: row.get(16)?,
        cost: row.get(17)?,
        model: row.get_ref(18)?.as_str_or_null()?,
        first_tool: row.get_ref(19)?.as_str_or_null()?,
        provider: row.get_ref(20)?.as_str_or_null()?,
    };
    let totals = totals.decode();
    let counts = [row.get(21)?, row.get(22)?, row.get(23)?];
    let unsettled = decode_unsettled(counts, row.get(24)?);
    let mark = row.get_ref(25)?.as_str_or_null()?;
    let imported = decode_origin(mark, row.get_ref(26)?.as_str_or_null()?, row.get(27)?);
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
            totals,
            unsettled,
            imported,
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
