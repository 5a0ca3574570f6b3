//! Hides and erases sessions, in a transaction of its own: what belongs to a session is known only when it is read.

use futures::TryStreamExt;
use sqlx::{Connection, Executor, PgConnection, Row};
use tokio::time::timeout;
use toolgate_core::{
    Charge, Erased, Event, Movement, SessionId, StoreError, Timestamp, TraceNames, Traces,
};

use super::{
    accounts::{Books, about},
    connect::{QUIET, is_race, silent},
    facts::Wants,
    id::Id,
    read::{Bad, Reads, body},
};
use crate::{
    DatabaseError,
    encoded::{end_of, from_db, from_text},
};

/// How often it is tried anew because other processes came in between.
const TRIES: usize = 20;

/// What is done to a session and those of its agents.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Hide(Option<Timestamp>),
    Erase { now: Timestamp },
}

impl Reads {
    pub(super) async fn change(
        &self,
        session: SessionId,
        change: Change,
    ) -> Result<Erased, StoreError> {
        let mut connection = self.address.connect().await?;
        let mut tries = 0;
        let erased = loop {
            tries += 1;
            // Large sessions take their time.
            let tried = timeout(10 * QUIET, attempt(&mut connection, session, change)).await;
            match tried.unwrap_or_else(|_| Err(silent().into())) {
                Ok(erased) => break erased,
                Err(Bad::Column(error)) if is_race(&error) && tries < TRIES => {}
                Err(bad) => return Err(self.refused(bad)),
            }
            connection
                .execute("ROLLBACK")
                .await
                .map_err(|error| self.refused(error.into()))?;
        };
        // The server may have committed and only its answer was lost.
        let lost = |error: sqlx::Error| {
            let (database, source) = (self.address.name.clone(), std::sync::Arc::new(error));
            DatabaseError::Lost { database, source }
        };
        connection.execute("COMMIT").await.map_err(lost)?;
        let _ = connection.close().await;
        Ok(erased)
    }

    fn refused(&self, bad: Bad) -> StoreError {
        match bad {
            Bad::Column(error) => self.address.error(error).into(),
            Bad::Content(error) => error,
        }
    }
}

/// Does it within a transaction that is left open.
async fn attempt(
    connection: &mut PgConnection,
    session: SessionId,
    change: Change,
) -> Result<Erased, Bad> {
    connection.execute("BEGIN").await?;
    let mut traces = Traces::of(session);
    let locked = loop {
        // Whoever writes to a session locks it first, so what is read of locked ones stays true.
        let locked = lock(connection, &traces).await?;
        let found = read(connection, session).await?;
        let is_all = found.sessions() == traces.sessions();
        traces = found;
        if is_all {
            break locked;
        }
    };
    match change {
        Change::Hide(at) => {
            let sql = "UPDATE sessions SET hidden_at = $2 WHERE id = ANY($1)";
            let asked = sqlx::query(sql)
                .bind(ids(&traces))
                .bind(at.map(Timestamp::as_micros));
            asked.execute(connection).await?;
            Ok(Erased::default())
        }
        Change::Erase { now } => {
            locked.iter().try_for_each(|row| row.check_free(now))?;
            let booked = book_open(connection, &traces).await?;
            clear(connection, &traces).await?;
            forget(connection, &traces.names()).await?;
            let had_events = locked.iter().filter(|row| row.revision > 0);
            Ok(Erased {
                sessions: had_events.map(|row| row.session).collect(),
                booked,
            })
        }
    }
}

/// The session and those of its agents.
async fn read(connection: &mut PgConnection, session: SessionId) -> Result<Traces, Bad> {
    let mut traces = Traces::of(session);
    let mut unread = vec![Id(session.uuid())];
    while !unread.is_empty() {
        let sql = "SELECT session, sequence, body FROM events WHERE session = ANY($1)";
        let mut events = sqlx::query(sql).bind(unread).fetch(&mut *connection);
        while let Some(row) = events.try_next().await? {
            let (session, sequence) = (row.try_get::<Id, _>(0)?.0, row.try_get::<i64, _>(1)?);
            let event: Event = from_text(row.try_get(2)?, || {
                format!("event {sequence} of session {session}")
            })?;
            traces.take_in(&event);
        }
        drop(events);
        let agents: Vec<Id> = traces.agents().map(|agent| Id(agent.uuid())).collect();
        let known = sqlx::query("SELECT id FROM sessions WHERE id = ANY($1)").bind(agents);
        let known = known.fetch_all(&mut *connection).await?;
        unread = known
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()?;
        traces.add(unread.iter().map(|id| SessionId::new(id.0)));
    }
    Ok(traces)
}

/// How a session stands that nobody else can change now.
struct Locked {
    session: SessionId,
    revision: u64,
    fence: u64,
    held: Option<(String, Timestamp)>,
}

impl Locked {
    /// Says who drives the session at the time `now`, if somebody does.
    fn check_free(&self, now: Timestamp) -> Result<(), StoreError> {
        match &self.held {
            Some((holder, until)) if *until > now => {
                let (session, holder, fence) = (self.session, holder.as_str().into(), self.fence);
                Err(StoreError::Held {
                    session,
                    holder,
                    until: *until,
                    fence,
                })
            }
            _ => Ok(()),
        }
    }
}

/// Locks the sessions in the order of their ids, as everybody does.
async fn lock(connection: &mut PgConnection, traces: &Traces) -> Result<Vec<Locked>, Bad> {
    let sql = "SELECT id, revision, fence, holder, lease_until FROM sessions WHERE id = ANY($1) ORDER BY id FOR UPDATE";
    let rows = sqlx::query(sql)
        .bind(ids(traces))
        .fetch_all(connection)
        .await?;
    let locked = rows.iter().map(|row| {
        let (holder, until): (Option<String>, Option<i64>) = (row.try_get(3)?, row.try_get(4)?);
        Ok(Locked {
            session: SessionId::new(row.try_get::<Id, _>(0)?.0),
            revision: from_db(row.try_get(1)?),
            fence: from_db(row.try_get(2)?),
            held: holder.zip(until.map(Timestamp::from_micros)),
        })
    });
    locked.collect()
}

/// Books what is still set aside for the sessions.
async fn book_open(connection: &mut PgConnection, traces: &Traces) -> Result<Vec<Movement>, Bad> {
    let sql = "SELECT id, body FROM charges WHERE session = ANY($1) ORDER BY id";
    let rows = sqlx::query(sql)
        .bind(ids(traces))
        .fetch_all(&mut *connection)
        .await?;
    let what = |row: &sqlx::postgres::PgRow| format!("the charge {}", row.get::<String, _>(0));
    let open = rows
        .iter()
        .map(|row| body(row, 1, || what(row)))
        .collect::<Result<Vec<Charge>, Bad>>()?;
    let mut wants = Wants::default();
    open.iter().for_each(|charge| about(charge)(&mut wants));
    let mut books = Books::read(connection, &wants).await?;
    let moved = open
        .iter()
        .flat_map(|charge| books.close(charge, |rows| charge.settle_in(rows, &[])));
    let moved = moved.collect();
    books.write(connection).await?;
    Ok(moved)
}

/// Removes everything of the sessions but their fences, which end all leases so far.
async fn clear(connection: &mut PgConnection, traces: &Traces) -> Result<(), sqlx::Error> {
    for sql in [
        "DELETE FROM events WHERE session = ANY($1)",
        "DELETE FROM posts WHERE session = ANY($1)",
        "DELETE FROM turns WHERE session = ANY($1)",
        "DELETE FROM approvals WHERE session = ANY($1)",
        "UPDATE sessions SET revision = 0, created_at = 0, updated_at = 0, holder = NULL, lease_until = NULL,
             hidden_at = NULL, fence = CASE WHEN revision > 0 OR fence > 0 THEN fence + 1 ELSE 0 END
         WHERE id = ANY($1)",
    ] {
        sqlx::query(sql).bind(ids(traces)).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn forget(connection: &mut PgConnection, names: &TraceNames) -> Result<(), sqlx::Error> {
    let bytes = |name: &String| name.as_bytes().to_vec();
    let whole: Vec<Vec<u8>> = names.whole.iter().map(bytes).collect();
    sqlx::query("DELETE FROM records WHERE key = ANY($1)")
        .bind(whole)
        .execute(&mut *connection)
        .await?;
    let starts: Vec<Vec<u8>> = names.starts.iter().map(bytes).collect();
    let ends: Vec<Vec<u8>> = names
        .starts
        .iter()
        .map(|start| end_of(start).into_bytes())
        .collect();
    let sql = "DELETE FROM records USING UNNEST($1::bytea[], $2::bytea[]) AS gone (start, behind)
               WHERE key >= gone.start AND key < gone.behind";
    sqlx::query(sql)
        .bind(starts)
        .bind(ends)
        .execute(connection)
        .await
        .map(drop)
}

fn ids(traces: &Traces) -> Vec<Id> {
    traces
        .sessions()
        .iter()
        .map(|session| Id(session.uuid()))
        .collect()
}
