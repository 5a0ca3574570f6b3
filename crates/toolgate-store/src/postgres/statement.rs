//! Writes all rows of a plan with one statement.

use sqlx::{
    Arguments, AssertSqlSafe, Encode, PgConnection, Postgres, Type,
    postgres::{PgArguments, PgHasArrayType},
};
use toolgate_core::{LedgerName, SessionTitle, StoreError, Timestamp};
use uuid::Uuid;

use super::{id::PgUuid, locked_rows::PostgresSessionState, plan::PostgresWritePlan};
use crate::{
    checksum::RowChecksum,
    encoded::{BLOB_PIECE_BYTES, encode_json, to_db},
    session_columns::{cost_sum, encode_cost},
};

/// The number of pieces of a blob that are sent to the server at a time.
const PIECES_PER_QUERY: usize = 16;

/// A statement that grows by one part for each table that is written.
#[derive(Default)]
struct GroupStatement {
    parts: Vec<String>,
    arguments: PgArguments,
    /// The final `SELECT` of the statement: the notifications about inputs, if there are any.
    last: Option<String>,
}

impl GroupStatement {
    /// Binds a column of rows, and returns its placeholder in the statement.
    fn bind_column<T>(&mut self, values: Vec<T>) -> Result<String, sqlx::Error>
    where
        T: for<'q> Encode<'q, Postgres> + Type<Postgres> + PgHasArrayType + Send + 'static,
    {
        self.arguments.add(values).map_err(sqlx::Error::Encode)?;
        Ok(format!("${}", self.arguments.len()))
    }

    fn add_part(&mut self, sql: String) {
        self.parts.push(sql);
    }

    async fn execute(self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.parts.is_empty() {
            return Ok(());
        }
        let named = self
            .parts
            .iter()
            .enumerate()
            .map(|(n, part)| format!("part{n} AS ({part})"));
        // One statement means one round trip to the server. Its parts run in no defined order and
        // do not see each other, so no two of them may write the same row.
        let parts = named.collect::<Vec<_>>().join(", ");
        let last = self.last.unwrap_or_else(|| "SELECT 1".to_owned());
        let sql = AssertSqlSafe(format!("WITH {parts} {last}"));
        sqlx::query_with(sql, self.arguments)
            .execute(connection)
            .await
            .map(drop)
    }
}

/// The mark of a group in the row of its writer.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommitMark {
    pub(super) writer: Uuid,
    pub(super) number: i64,
}

/// Writes the plan and its mark within the open transaction. A plan that changes nothing has no
/// mark.
pub(super) async fn write_plan(
    connection: &mut PgConnection,
    plan: &PostgresWritePlan,
    mark: CommitMark,
) -> Result<(), sqlx::Error> {
    let mut statement = GroupStatement::default();
    add_sessions(&mut statement, plan)?;
    add_events_and_records(&mut statement, plan)?;
    add_posts(&mut statement, plan)?;
    add_turns(&mut statement, plan)?;
    add_approvals(&mut statement, plan)?;
    add_ledger_entries(&mut statement, plan)?;
    let is_empty =
        statement.parts.is_empty() && plan.facts.books.is_unchanged() && plan.blobs.is_empty();
    if is_empty {
        return Ok(());
    }
    add_mark(&mut statement, mark)?;
    statement.execute(connection).await?;
    plan.facts.books.write_changes(connection).await?;
    write_blobs(connection, plan).await
}

fn add_mark(statement: &mut GroupStatement, mark: CommitMark) -> Result<(), sqlx::Error> {
    let writer = statement.bind_column(vec![PgUuid(mark.writer)])?;
    let number = statement.bind_column(vec![mark.number])?;
    statement.add_part(format!(
        "INSERT INTO writers (id, last_group, committed_at)
         SELECT id, last_group, now() FROM UNNEST({writer}::uuid[], {number}::bigint[]) AS mark (id, last_group)
         ON CONFLICT (id) DO UPDATE SET last_group = excluded.last_group, committed_at = excluded.committed_at"
    ));
    Ok(())
}

fn add_sessions(
    statement: &mut GroupStatement,
    plan: &PostgresWritePlan,
) -> Result<(), sqlx::Error> {
    for (ids, is_new) in [(&plan.new_sessions, true), (&plan.changed_sessions, false)] {
        if ids.is_empty() {
            continue;
        }
        let rows: Vec<_> = ids
            .iter()
            .map(|session| plan.session_state(*session))
            .collect();
        let id =
            statement.bind_column(ids.iter().map(|session| PgUuid(session.uuid())).collect())?;
        let revision =
            statement.bind_column(rows.iter().map(|row| to_db(row.revision)).collect())?;
        let created =
            statement.bind_column(rows.iter().map(|row| row.created_at.as_micros()).collect())?;
        let updated =
            statement.bind_column(rows.iter().map(|row| row.updated_at.as_micros()).collect())?;
        let fence = statement.bind_column(rows.iter().map(|row| to_db(row.fence)).collect())?;
        let holder = rows
            .iter()
            .map(|row| row.held.as_ref().map(|(holder, _)| holder.to_string()));
        let holder = statement.bind_column::<Option<String>>(holder.collect())?;
        let until = rows
            .iter()
            .map(|row| row.held.as_ref().map(|(_, until)| until.as_micros()));
        let until = statement.bind_column::<Option<i64>>(until.collect())?;
        let posted = statement.bind_column(rows.iter().map(|row| to_db(row.posted)).collect())?;
        let parent = rows
            .iter()
            .map(|row| row.parent.map(|id| PgUuid(id.uuid())));
        let parent = statement.bind_column::<Option<PgUuid>>(parent.collect())?;
        let [principal, labels, run, run_state, run_at] = bind_last_runs(statement, &rows)?;
        let [title, renamed, directory, is_used] = bind_titles_and_uses(statement, &rows)?;
        let [calls, cost, model, first_tool, provider] = bind_totals(statement, &rows)?;
        let checksum = ids.iter().zip(&rows);
        let checksum = checksum.map(|(session, row)| row.new_checksum(*session));
        let checksum = statement.bind_column::<Option<i64>>(checksum.collect())?;
        let columns =
            "id, revision, created_at, updated_at, fence, holder, lease_until, posted, parent,
                       principal, labels, run, run_state, run_at";
        let from = format!(
            "UNNEST({id}::uuid[], {revision}::bigint[], {created}::bigint[], {updated}::bigint[], {fence}::bigint[],
                    {holder}::text[], {until}::bigint[], {posted}::bigint[], {parent}::uuid[], {principal}::text[],
                    {labels}::text[], {run}::bigint[], {run_state}::text[], {run_at}::bigint[], {title}::text[],
                    {renamed}::text[], {directory}::text[], {is_used}::boolean[], {checksum}::bigint[],
                    {calls}::bigint[], {cost}::bigint[], {model}::text[], {first_tool}::text[], {provider}::text[])
                 AS new ({columns}, title, renamed, directory, is_used, checksum, calls, cost, model, first_tool, provider)"
        );
        let cost = cost_sum("sessions.cost", "new.cost");
        statement.add_part(if is_new {
            // Another process may create the same session at the same time: then this fails, and
            // the group is planned again.
            format!(
                "INSERT INTO sessions ({columns}, title, is_retitled, directory, last_use, checksum, calls, cost,
                     model, first_tool, provider)
                 SELECT {columns}, coalesce(renamed, title), renamed IS NOT NULL, directory,
                     CASE WHEN is_used THEN nextval('session_uses') ELSE 0 END, checksum, calls, cost, model, first_tool,
                     provider
                 FROM {from}"
            )
        } else {
            format!(
                "UPDATE sessions SET revision = new.revision, created_at = new.created_at,
                     updated_at = new.updated_at, fence = new.fence, holder = new.holder,
                     lease_until = new.lease_until, posted = new.posted, parent = new.parent,
                     principal = coalesce(new.principal, sessions.principal),
                     labels = coalesce(new.labels, sessions.labels), run = coalesce(new.run, sessions.run),
                     run_state = coalesce(new.run_state, sessions.run_state),
                     run_at = coalesce(new.run_at, sessions.run_at),
                     title = coalesce(new.renamed, sessions.title, new.title),
                     is_retitled = (sessions.is_retitled OR new.renamed IS NOT NULL),
                     directory = coalesce(sessions.directory, new.directory), checksum = new.checksum,
                     calls = sessions.calls + new.calls, cost = {cost},
                     model = coalesce(new.model, sessions.model),
                     provider = CASE WHEN new.model IS NULL THEN sessions.provider ELSE new.provider END,
                     first_tool = coalesce(sessions.first_tool, new.first_tool),
                     last_use = CASE WHEN new.is_used THEN nextval('session_uses') ELSE sessions.last_use END
                 FROM {from} WHERE sessions.id = new.id"
            )
        });
    }
    Ok(())
}

/// Binds the columns of principals, labels and last runs. A row without a change has nulls there.
fn bind_last_runs(
    statement: &mut GroupStatement,
    rows: &[PostgresSessionState],
) -> Result<[String; 5], sqlx::Error> {
    let updates = || rows.iter().map(|row| row.update.as_ref());
    let runs = || updates().map(|update| update.and_then(|update| update.last_run));
    let principal = updates().map(|update| Some(update?.principal.as_ref()?.to_string()));
    let labels = updates().map(|update| Some(update?.labels.to_string()));
    let run = runs().map(|last| Some(to_db(last?.run)));
    let state = runs().map(|last| Some(last?.state.as_str().to_owned()));
    let at = runs().map(|last| Some(last?.at.as_micros()));
    Ok([
        statement.bind_column::<Option<String>>(principal.collect())?,
        statement.bind_column::<Option<String>>(labels.collect())?,
        statement.bind_column::<Option<i64>>(run.collect())?,
        statement.bind_column::<Option<String>>(state.collect())?,
        statement.bind_column::<Option<i64>>(at.collect())?,
    ])
}

/// Binds the columns of totals: what is added to them.
fn bind_totals(
    statement: &mut GroupStatement,
    rows: &[PostgresSessionState],
) -> Result<[String; 5], sqlx::Error> {
    let totals = || rows.iter().map(|row| &row.totals);
    let calls = totals().map(|totals| to_db(totals.calls));
    let cost = totals().map(|totals| totals.cost.map(encode_cost));
    let model = totals().map(|totals| totals.model.as_deref().map(str::to_owned));
    let provider = totals().map(|totals| totals.provider.as_deref().map(str::to_owned));
    let first_tool = totals().map(|totals| Some(totals.first_tool.as_ref()?.to_string()));
    Ok([
        statement.bind_column::<i64>(calls.collect())?,
        statement.bind_column::<Option<i64>>(cost.collect())?,
        statement.bind_column::<Option<String>>(model.collect())?,
        statement.bind_column::<Option<String>>(first_tool.collect())?,
        statement.bind_column::<Option<String>>(provider.collect())?,
    ])
}

/// Binds the columns of titles, new names, directories and uses. A row without a change has nulls
/// there.
fn bind_titles_and_uses(
    statement: &mut GroupStatement,
    rows: &[PostgresSessionState],
) -> Result<[String; 4], sqlx::Error> {
    let title = rows
        .iter()
        .map(|row| Some(row.update.as_ref()?.title.as_ref()?.to_string()));
    let renamed = rows
        .iter()
        .map(|row| row.renamed.as_ref().map(SessionTitle::to_string));
    let directory = rows
        .iter()
        .map(|row| row.directory.as_deref().map(str::to_owned));
    Ok([
        statement.bind_column::<Option<String>>(title.collect())?,
        statement.bind_column::<Option<String>>(renamed.collect())?,
        statement.bind_column::<Option<String>>(directory.collect())?,
        statement.bind_column(rows.iter().map(|row| row.is_used).collect())?,
    ])
}

fn add_events_and_records(
    statement: &mut GroupStatement,
    plan: &PostgresWritePlan,
) -> Result<(), sqlx::Error> {
    if !plan.events.is_empty() {
        let session = statement.bind_column(
            plan.events
                .iter()
                .map(|(session, ..)| PgUuid(session.uuid()))
                .collect(),
        )?;
        let sequence = statement.bind_column(
            plan.events
                .iter()
                .map(|(_, sequence, ..)| to_db(*sequence))
                .collect(),
        )?;
        let rows = || plan.events.iter();
        let body = statement
            .bind_column::<String>(rows().map(|(_, _, body, _)| body.clone()).collect())?;
        let checksum =
            statement.bind_column(rows().map(|(.., checksum)| checksum.to_db()).collect())?;
        statement.add_part(format!(
            "INSERT INTO events (session, sequence, body, checksum)
             SELECT * FROM UNNEST({session}::uuid[], {sequence}::bigint[], {body}::text[], {checksum}::bigint[])"
        ));
    }
    if !plan.records.is_empty() {
        let key = statement.bind_column::<Vec<u8>>(
            plan.records
                .iter()
                .map(|(key, ..)| key.clone().into_bytes())
                .collect(),
        )?;
        let rows = || plan.records.iter();
        let body =
            statement.bind_column::<String>(rows().map(|(_, body, _)| body.clone()).collect())?;
        let checksum =
            statement.bind_column(rows().map(|(.., checksum)| checksum.to_db()).collect())?;
        statement.add_part(format!(
            "INSERT INTO records (key, body, checksum)
             SELECT * FROM UNNEST({key}::bytea[], {body}::text[], {checksum}::bigint[])"
        ));
    }
    Ok(())
}

fn add_posts(statement: &mut GroupStatement, plan: &PostgresWritePlan) -> Result<(), sqlx::Error> {
    if !plan.posts.is_empty() {
        let session = statement.bind_column(
            plan.posts
                .keys()
                .map(|(session, _)| PgUuid(session.uuid()))
                .collect(),
        )?;
        let number = statement.bind_column(
            plan.posts
                .keys()
                .map(|(_, number)| to_db(*number))
                .collect(),
        )?;
        let body = statement.bind_column::<String>(plan.posts.values().cloned().collect())?;
        let checksum = plan.posts.iter().map(|((session, number), body)| {
            RowChecksum::of_post(*session, to_db(*number), body.as_bytes()).to_db()
        });
        let checksum = statement.bind_column(checksum.collect())?;
        statement.add_part(format!(
            "INSERT INTO posts (session, number, body, checksum)
             SELECT * FROM UNNEST({session}::uuid[], {number}::bigint[], {body}::text[], {checksum}::bigint[])"
        ));
        // The server sends notifications with the commit, so a waiter that wakes finds the input.
        statement.last = Some(format!(
            "SELECT pg_notify('toolgate_posts', session::text || '/' || number::text)
             FROM UNNEST({session}::uuid[], {number}::bigint[]) AS new (session, number)"
        ));
    }
    if !plan.taken.is_empty() {
        let session = statement.bind_column(
            plan.taken
                .keys()
                .map(|session| PgUuid(session.uuid()))
                .collect(),
        )?;
        let number =
            statement.bind_column(plan.taken.values().map(|number| to_db(*number)).collect())?;
        statement.add_part(format!(
            "DELETE FROM posts USING UNNEST({session}::uuid[], {number}::bigint[]) AS taken (session, number)
             WHERE posts.session = taken.session AND posts.number <= taken.number"
        ));
    }
    Ok(())
}

fn add_turns(statement: &mut GroupStatement, plan: &PostgresWritePlan) -> Result<(), sqlx::Error> {
    if !plan.turns.is_empty() {
        let rows = || plan.turns.values();
        let turn = statement.bind_column(rows().map(|row| PgUuid(row.turn.uuid())).collect())?;
        let session =
            statement.bind_column(rows().map(|row| PgUuid(row.session.uuid())).collect())?;
        let opened =
            statement.bind_column(rows().map(|row| row.opened_at.as_micros()).collect())?;
        let settled = rows()
            .map(|row| row.settled_at.map(Timestamp::as_micros))
            .collect();
        let settled = statement.bind_column::<Option<i64>>(settled)?;
        statement.add_part(format!(
            "INSERT INTO turns (turn, session, opened_at, settled_at)
             SELECT * FROM UNNEST({turn}::uuid[], {session}::uuid[], {opened}::bigint[], {settled}::bigint[])
             ON CONFLICT (session, turn) DO UPDATE SET opened_at = excluded.opened_at,
                 settled_at = excluded.settled_at"
        ));
    }
    if !plan.settled_turns.is_empty() {
        let keys = || plan.settled_turns.keys();
        let session =
            statement.bind_column(keys().map(|(session, _)| PgUuid(session.uuid())).collect())?;
        let turn = statement.bind_column(keys().map(|(_, turn)| PgUuid(turn.uuid())).collect())?;
        let at = statement.bind_column(
            plan.settled_turns
                .values()
                .map(|at| at.as_micros())
                .collect(),
        )?;
        statement.add_part(format!(
            "UPDATE turns SET settled_at = settled.at
             FROM UNNEST({session}::uuid[], {turn}::uuid[], {at}::bigint[]) AS settled (session, turn, at)
             WHERE turns.session = settled.session AND turns.turn = settled.turn"
        ));
    }
    Ok(())
}

fn add_approvals(
    statement: &mut GroupStatement,
    plan: &PostgresWritePlan,
) -> Result<(), sqlx::Error> {
    if !plan.approvals.is_empty() {
        let rows = || plan.approvals.values();
        let request = rows()
            .map(|row| encode_json(&*row.request))
            .collect::<Result<Vec<String>, StoreError>>();
        let request = request.map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
        let call = statement.bind_column(
            plan.approvals
                .keys()
                .map(|call| PgUuid(call.uuid()))
                .collect(),
        )?;
        let session =
            statement.bind_column(rows().map(|row| PgUuid(row.session.uuid())).collect())?;
        let turn = statement.bind_column(rows().map(|row| PgUuid(row.turn.uuid())).collect())?;
        let tool = statement.bind_column::<String>(
            rows()
                .map(|row| row.request.tool.as_str().to_owned())
                .collect(),
        )?;
        let asked = statement.bind_column(rows().map(|row| row.asked_at.as_micros()).collect())?;
        let state = statement
            .bind_column::<String>(rows().map(|row| row.state.as_str().to_owned()).collect())?;
        let request = statement.bind_column::<String>(request)?;
        statement.add_part(format!(
            "INSERT INTO approvals (call, session, turn, tool, asked_at, state, request)
             SELECT * FROM UNNEST({call}::uuid[], {session}::uuid[], {turn}::uuid[], {tool}::text[],
                                  {asked}::bigint[], {state}::text[], {request}::text[])
             ON CONFLICT (call) DO UPDATE SET session = excluded.session, turn = excluded.turn, tool = excluded.tool,
                 asked_at = excluded.asked_at, state = excluded.state, request = excluded.request"
        ));
    }
    if !plan.marks.is_empty() {
        let call =
            statement.bind_column(plan.marks.keys().map(|call| PgUuid(call.uuid())).collect())?;
        let state = plan.marks.values().map(|state| state.as_str().to_owned());
        let state = statement.bind_column::<String>(state.collect())?;
        statement.add_part(format!(
            "UPDATE approvals SET state = marked.state
             FROM UNNEST({call}::uuid[], {state}::text[]) AS marked (call, state) WHERE approvals.call = marked.call"
        ));
    }
    Ok(())
}

fn add_ledger_entries(
    statement: &mut GroupStatement,
    plan: &PostgresWritePlan,
) -> Result<(), sqlx::Error> {
    if plan.entries.is_empty() {
        return Ok(());
    }
    let rows = || plan.entries.iter();
    let ledger =
        statement.bind_column::<String>(rows().map(|row| row.ledger.to_string()).collect())?;
    let counter = statement.bind_column(rows().map(|row| to_db(row.counter)).collect())?;
    let previous = statement
        .bind_column::<Vec<u8>>(rows().map(|row| row.previous.as_bytes().to_vec()).collect())?;
    let hash = statement
        .bind_column::<Vec<u8>>(rows().map(|row| row.hash.as_bytes().to_vec()).collect())?;
    let body = statement.bind_column::<String>(rows().map(|row| row.body.to_string()).collect())?;
    statement.add_part(format!(
        "INSERT INTO entries (ledger, counter, previous, hash, body)
         SELECT * FROM UNNEST({ledger}::text[], {counter}::bigint[], {previous}::bytea[], {hash}::bytea[], {body}::text[])"
    ));
    for (names, is_new) in [(&plan.new_ledgers, true), (&plan.changed_ledgers, false)] {
        if names.is_empty() {
            continue;
        }
        let heads = || names.iter().map(|ledger| plan.ledger_head(ledger));
        let name =
            statement.bind_column::<String>(names.iter().map(LedgerName::to_string).collect())?;
        let counter = statement.bind_column(heads().map(|head| to_db(head.counter)).collect())?;
        let hash = statement
            .bind_column::<Vec<u8>>(heads().map(|head| head.hash.as_bytes().to_vec()).collect())?;
        let from = format!("UNNEST({name}::text[], {counter}::bigint[], {hash}::bytea[])");
        statement.add_part(if is_new {
            format!("INSERT INTO ledgers (name, counter, hash) SELECT * FROM {from}")
        } else {
            format!(
                "UPDATE ledgers SET counter = new.counter, hash = new.hash
                 FROM {from} AS new (name, counter, hash) WHERE ledgers.name = new.name"
            )
        });
    }
    Ok(())
}

async fn write_blobs(
    connection: &mut PgConnection,
    plan: &PostgresWritePlan,
) -> Result<(), sqlx::Error> {
    let mut digests: Vec<_> = plan.blobs.keys().collect();
    // In one order everywhere, so that two processes never deadlock.
    digests.sort();
    for digest in digests {
        let bytes = &plan.blobs[digest];
        let kept =
            sqlx::query("INSERT INTO blobs (digest, size) VALUES ($1, $2) ON CONFLICT DO NOTHING")
                .bind(&digest.as_bytes()[..])
                .bind(to_db(bytes.len() as u64))
                .execute(&mut *connection)
                .await?;
        // The insert waits for a concurrent one of the same blob, so the pieces are committed, too.
        if kept.rows_affected() == 0 {
            continue;
        }
        let pieces: Vec<&[u8]> = bytes.chunks(BLOB_PIECE_BYTES as usize).collect();
        for (first, some) in (0_i64..)
            .step_by(PIECES_PER_QUERY)
            .zip(pieces.chunks(PIECES_PER_QUERY))
        {
            let sql = "INSERT INTO blob_pieces (digest, number, bytes)
                       SELECT $1, $2 + place - 1, piece FROM UNNEST($3::bytea[]) WITH ORDINALITY AS t (piece, place)";
            let query = sqlx::query(sql)
                .bind(&digest.as_bytes()[..])
                .bind(first)
                .bind(some);
            query.execute(&mut *connection).await?;
        }
    }
    Ok(())
}
