//! Lists in a PostgreSQL database, derived from the events in the write that appends them.

use std::sync::Arc;

use sqlx::{
    Arguments, AssertSqlSafe, Row,
    error::BoxDynError,
    postgres::{PgArguments, PgRow},
};
use toolgate_core::{
    ApprovalFilter, ApprovalRow, ApprovalState, CallId, CatalogueStore, ErasedSessions, Principal,
    RowChange, SessionFilter, SessionId, SessionRow, SessionTitle, StoreError, Timestamp,
    TurnFilter, TurnId, TurnRow,
};

use super::{
    PostgresStore,
    erase::SessionChange,
    id::PgUuid,
    plan::PostgresWritePlan,
    read::{PgQuery, RowError, decode_column, held_columns, time_column, uuid_column},
};
use crate::{
    encoded::{
        decode_labels, decode_last_run, from_db, hidden_condition, limit_to_db, parse_state,
        session_order, unfinished_condition,
    },
    session_columns::{
        TotalColumns, UNSETTLED_COLUMNS, agents_condition, decode_origin, decode_unsettled,
    },
};

impl CatalogueStore for PostgresStore {
    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        let ask = || sessions_query(&filter).expect("ids, names and numbers can be encoded");
        self.reads.query_rows(ask, session_row).await
    }

    async fn turns(&self, filter: TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        let open = if filter.open {
            "AND settled_at IS NULL"
        } else {
            ""
        };
        let sql = format!(
            "SELECT turn, session, opened_at, settled_at FROM turns
             WHERE session = $1 AND ($2::uuid IS NULL OR turn > $2) {open} ORDER BY turn LIMIT $3"
        );
        let session = PgUuid(filter.session.uuid());
        let after = filter.after.map(|after| PgUuid(after.uuid()));
        let ask = || {
            sqlx::query(AssertSqlSafe(sql.clone()))
                .bind(session)
                .bind(after)
                .bind(limit_to_db(filter.limit))
        };
        self.reads
            .query_rows(ask, |row| {
                Ok(TurnRow {
                    turn: TurnId::new(uuid_column(row, 0)?),
                    session: SessionId::new(uuid_column(row, 1)?),
                    opened_at: time_column(row, 2)?,
                    settled_at: row
                        .try_get::<Option<i64>, _>(3)?
                        .map(Timestamp::from_micros),
                })
            })
            .await
    }

    async fn approvals(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRow>, StoreError> {
        let ask = || approvals_query(&filter).expect("ids, names and numbers can be encoded");
        self.reads
            .query_rows(ask, |row| {
                let call = uuid_column(row, 0)?;
                Ok(ApprovalRow {
                    session: SessionId::new(uuid_column(row, 1)?),
                    turn: TurnId::new(uuid_column(row, 2)?),
                    asked_at: time_column(row, 3)?,
                    state: parse_state(row.try_get(4)?)?,
                    request: Arc::new(decode_column(row, 5, || {
                        format!("the approval of call {call}")
                    })?),
                })
            })
            .await
    }

    async fn hide_session(
        &self,
        session: SessionId,
        at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        self.reads
            .change_sessions(session, SessionChange::Hide(at))
            .await
            .map(drop)
    }

    async fn rename_session(
        &self,
        session: SessionId,
        title: SessionTitle,
    ) -> Result<(), StoreError> {
        self.queue_write(
            move |wants| wants.add_session(session),
            move |plan| {
                // A session that does not exist is not created.
                if plan.facts.sessions.contains_key(&session) {
                    plan.change_session(session).renamed = Some(title.clone());
                }
                Ok(())
            },
        )
        .await
    }

    async fn erase_session(
        &self,
        session: SessionId,
        _: Timestamp,
    ) -> Result<ErasedSessions, StoreError> {
        self.reads
            .change_sessions(session, SessionChange::Erase)
            .await
    }
}

impl PostgresWritePlan {
    pub(super) fn apply_change(&mut self, change: RowChange) {
        match change {
            RowChange::TurnOpened(row) => {
                // The statement writes each turn once, so a later change replaces an earlier one.
                let key = (row.session, row.turn);
                self.settled_turns.remove(&key);
                self.turns.insert(key, row);
            }
            RowChange::TurnSettled(session, turn, at) => match self.turns.get_mut(&(session, turn))
            {
                Some(row) => row.settled_at = Some(at),
                None => drop(self.settled_turns.insert((session, turn), at)),
            },
            RowChange::Asked(row) => {
                let call = row.request.approval_id.call_id();
                // The statement must not write one row twice, and the new request is pending,
                // whatever became of the old one.
                self.marks.remove(&call);
                self.approvals.insert(call, *row);
            }
            RowChange::Answered(call) => self.mark_approval(call, ApprovalState::Answered),
            RowChange::Started(call) => self.mark_approval(call, ApprovalState::Running),
            RowChange::Settled(call, status) => {
                self.mark_approval(call, ApprovalState::Settled(status))
            }
        }
    }

    pub(super) fn mark_approval(&mut self, call: CallId, state: ApprovalState) {
        match self.approvals.get_mut(&call) {
            Some(row) => row.state = state,
            None => drop(self.marks.insert(call, state)),
        }
    }
}

fn sessions_query(filter: &SessionFilter) -> Result<PgQuery<'static>, BoxDynError> {
    let hidden = hidden_condition(filter.hidden);
    let unfinished = unfinished_condition(filter.unfinished);
    let agents = agents_condition(filter.without_agents);
    let mut wanted = format!("revision > 0 {hidden} {unfinished} {agents}");
    if filter.with_open_turns {
        wanted.push_str(
            " AND EXISTS (SELECT 1 FROM turns WHERE session = sessions.id AND settled_at IS NULL)",
        );
    }
    let mut arguments = PgArguments::default();
    for (condition, id) in [(" AND id >", filter.after), (" AND id =", filter.session)] {
        if let Some(id) = id {
            arguments.add(PgUuid(id.uuid()))?;
            wanted.push_str(&format!("{condition} ${}", arguments.len()));
        }
    }
    if let Some(principal) = &filter.principal {
        arguments.add(principal.as_str())?;
        wanted.push_str(&format!(" AND principal = ${}", arguments.len()));
    }
    if let Some(directory) = &filter.directory {
        arguments.add(&**directory)?;
        wanted.push_str(&format!(" AND directory = ${}", arguments.len()));
    }
    if let Some(model) = &filter.model {
        arguments.add(&**model)?;
        let last = arguments.len();
        wanted.push_str(&format!(
            " AND (model = ${last} OR provider || ':' || model = ${last})"
        ));
    }
    for (name, value) in filter.labels.iter() {
        arguments.add(name)?;
        arguments.add(value)?;
        let last = arguments.len();
        wanted.push_str(&format!(" AND labels::json ->> ${} = ${last}", last - 1));
    }
    arguments.add(limit_to_db(filter.limit))?;
    let order = session_order(filter.order);
    let limit = arguments.len();
    // What is joined is looked up for the sessions of the page alone.
    let sql = format!(
        "SELECT {SESSION_COLUMNS}, {UNSETTLED_COLUMNS}, origins.name, origins.body, origins.checksum
         FROM (SELECT {SESSION_COLUMNS} FROM sessions WHERE {wanted} ORDER BY {order} LIMIT ${limit}) AS sessions
         LEFT JOIN LATERAL (
             SELECT convert_from(key, 'UTF8') AS name, body, records.checksum FROM records
             WHERE key IN (convert_to('other/imported/' || sessions.id::text || '/origin', 'UTF8'),
                           convert_to('other/archive/' || sessions.id::text || '/mark', 'UTF8'))
             ORDER BY key DESC LIMIT 1
         ) AS origins ON true
         ORDER BY {order}"
    );
    Ok(sqlx::query_with(AssertSqlSafe(sql), arguments))
}

/// The columns that [`session_row`] reads first.
const SESSION_COLUMNS: &str =
    "id, revision, created_at, updated_at, holder, lease_until, hidden_at, parent, principal, labels, run,
    run_state, run_at, title, directory, last_use, calls, cost, model, first_tool, provider";

fn session_row(row: &PgRow) -> Result<SessionRow, RowError> {
    let totals = TotalColumns {
        calls: row.try_get(16)?,
        cost: row.try_get(17)?,
        model: row.try_get(18)?,
        first_tool: row.try_get(19)?,
        provider: row.try_get(20)?,
    };
    let counts = [row.try_get(21)?, row.try_get(22)?, row.try_get(23)?];
    Ok(SessionRow {
        totals: totals.decode(),
        unsettled: decode_unsettled(counts, row.try_get(24)?),
        imported: decode_origin(row.try_get(25)?, row.try_get(26)?, row.try_get(27)?),
        session: SessionId::new(uuid_column(row, 0)?),
        revision: from_db(row.try_get(1)?),
        created_at: time_column(row, 2)?,
        updated_at: time_column(row, 3)?,
        held: held_columns(row, 4)?,
        hidden_at: row
            .try_get::<Option<i64>, _>(6)?
            .map(Timestamp::from_micros),
        parent: row
            .try_get::<Option<PgUuid>, _>(7)?
            .map(|id| SessionId::new(id.0)),
        principal: row.try_get::<Option<&str>, _>(8)?.map(Principal::from),
        labels: decode_labels(row.try_get(9)?)?,
        last_run: decode_last_run(row.try_get(10)?, row.try_get(11)?, row.try_get(12)?)?,
        title: row
            .try_get::<Option<&str>, _>(13)?
            .and_then(SessionTitle::new),
        directory: row.try_get::<Option<&str>, _>(14)?.map(Arc::from),
        last_use: from_db(row.try_get(15)?),
    })
}

fn approvals_query(filter: &ApprovalFilter) -> Result<PgQuery<'static>, BoxDynError> {
    let mut sql = String::from(
        "SELECT call, session, turn, asked_at, state, request FROM approvals WHERE true",
    );
    let mut arguments = PgArguments::default();
    let ids = [
        (" AND call =", filter.call.map(CallId::uuid)),
        (" AND session =", filter.session.map(SessionId::uuid)),
        (
            " AND call >",
            filter.after.map(|after| after.call_id().uuid()),
        ),
    ];
    for (condition, id) in ids {
        if let Some(id) = id {
            arguments.add(PgUuid(id))?;
            sql.push_str(&format!("{condition} ${}", arguments.len()));
        }
    }
    if let Some(tool) = &filter.tool {
        arguments.add(tool.as_str())?;
        sql.push_str(&format!(" AND tool = ${}", arguments.len()));
    }
    if filter.pending {
        sql.push_str(" AND state = 'pending'");
    }
    arguments.add(limit_to_db(filter.limit))?;
    sql.push_str(&format!(" ORDER BY call LIMIT ${}", arguments.len()));
    Ok(sqlx::query_with(AssertSqlSafe(sql), arguments))
}
