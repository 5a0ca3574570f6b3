//! Reads and locks what a group of writes depends on, in one query.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use sqlx::{PgConnection, Row};
use toolgate_core::{
    Digest, LedgerDraft, LedgerHead, LedgerName, SessionId, SessionTitle, SessionTotals,
    StoreError, Timestamp,
};

use super::{accounts::LockedAccounts, id::PgUuid};
use crate::{
    checksum::{CheckedColumns, RowChecksum, row_name},
    encoded::{EncodedRecord, EncodedSessionUpdate, from_db, to_db},
};

/// The rows that the writes of a group depend on.
#[derive(Default)]
pub(super) struct RowSelection {
    sessions: BTreeSet<SessionId>,
    records: BTreeSet<String>,
    ledgers: BTreeSet<LedgerName>,
    /// The names of accounts, and those of charges.
    pub(super) accounts: BTreeSet<String>,
    pub(super) charges: BTreeSet<String>,
}

impl RowSelection {
    pub(super) fn add_session(&mut self, session: SessionId) {
        self.sessions.insert(session);
    }

    pub(super) fn add_record(&mut self, name: &str) {
        self.records.insert(name.to_owned());
    }

    pub(super) fn add_records(&mut self, records: &[EncodedRecord]) {
        self.records
            .extend(records.iter().map(|record| record.name.clone()));
    }

    pub(super) fn add_ledgers(&mut self, drafts: &[LedgerDraft]) {
        self.ledgers
            .extend(drafts.iter().map(|draft| draft.ledger.clone()));
    }
}

/// The state of these rows in the database. All but records are locked, so that it does not change.
#[derive(Default)]
pub(super) struct LockedRows {
    /// The time of the server when the transaction began; 0 if no session was read.
    pub(super) now: Timestamp,
    pub(super) sessions: HashMap<SessionId, PostgresSessionState>,
    /// The bodies and checksums of records.
    pub(super) records: HashMap<String, (String, Option<i64>)>,
    pub(super) ledgers: BTreeMap<LedgerName, LedgerHead>,
    pub(super) books: LockedAccounts,
}

/// The state of one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PostgresSessionState {
    pub(super) revision: u64,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) fence: u64,
    pub(super) held: Option<(Arc<str>, Timestamp)>,
    pub(super) posted: u64,
    pub(super) parent: Option<SessionId>,
    /// The changed columns; it is not read, because no write depends on them.
    pub(super) update: Option<EncodedSessionUpdate>,
    /// More of them: the directory of a new lease, the title that the session is given, and true if
    /// its use gets a number.
    pub(super) directory: Option<Arc<str>>,
    pub(super) renamed: Option<SessionTitle>,
    pub(super) is_used: bool,
    /// What the events of the group add to the totals of the session.
    pub(super) totals: SessionTotals,
    /// What is stored and not changed by a group, for the checksum.
    stored_directory: Option<String>,
    hidden_at: Option<i64>,
    stored_checksum: Option<i64>,
    is_damaged: bool,
}

impl PostgresSessionState {
    /// Fails if the row differed from its checksum when it was read.
    pub(super) fn check(&self, session: SessionId) -> Result<(), StoreError> {
        if !self.is_damaged {
            return Ok(());
        }
        Err(StoreError::Damaged {
            what: row_name("sessions", session),
            source: "its checksum does not match".into(),
        })
    }

    /// Returns the checksum to store. That of a damaged row stays as it is, so that the damage is
    /// still found.
    pub(super) fn new_checksum(&self, session: SessionId) -> Option<i64> {
        if self.is_damaged {
            return self.stored_checksum;
        }
        Some(self.computed_checksum(session).to_db())
    }

    fn computed_checksum(&self, session: SessionId) -> RowChecksum {
        let directory = self
            .stored_directory
            .as_deref()
            .or(self.directory.as_deref());
        let columns = CheckedColumns {
            fence: to_db(self.fence),
            holder: self.held.as_ref().map(|(holder, _)| holder.as_bytes()),
            posted: to_db(self.posted),
            hidden_at: self.hidden_at,
            parent: self.parent,
            directory: directory.map(str::as_bytes),
        };
        RowChecksum::of_session(session, &columns)
    }

    /// Adds changed columns to those of earlier writes of the group.
    pub(super) fn change_last_run(&mut self, mut update: EncodedSessionUpdate) {
        if let Some(before) = self.update.take() {
            update.principal = update.principal.or(before.principal);
            update.last_run = update.last_run.or(before.last_run);
            update.title = before.title.or(update.title);
        }
        self.update = Some(update);
    }
}

// Locks are taken in the order of ids and names, sessions first, so that two processes never
// deadlock.
const LOCK_ROWS_SQL: &str = "
    WITH locked_sessions AS MATERIALIZED (
        SELECT id, revision, created_at, updated_at, fence, holder, lease_until, posted, parent, hidden_at, directory,
               checksum FROM sessions
        WHERE id = ANY($1) ORDER BY id FOR UPDATE
    ), locked_ledgers AS MATERIALIZED (
        SELECT name, counter, hash FROM ledgers WHERE name = ANY($2) ORDER BY name FOR UPDATE
    )
    SELECT 1 AS kind, id, revision AS a, created_at AS b, updated_at AS c, fence AS d, posted AS e, lease_until AS f,
           holder AS text, NULL::bytea AS bytes, parent, hidden_at AS g, directory, checksum FROM locked_sessions
    UNION ALL
    SELECT 2, NULL, counter, NULL, NULL, NULL, NULL, NULL, name, hash, NULL, NULL, NULL, NULL FROM locked_ledgers
    UNION ALL
    SELECT 4, NULL, (extract(epoch FROM now()) * 1000000)::bigint, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
           NULL, NULL
    UNION ALL
    SELECT 3, NULL, checksum, NULL, NULL, NULL, NULL, NULL, body, key, NULL, NULL, NULL, NULL FROM records
    WHERE key = ANY($3)";

impl LockedRows {
    pub(super) async fn lock_rows(
        connection: &mut PgConnection,
        wants: &RowSelection,
    ) -> Result<Self, sqlx::Error> {
        let sessions: Vec<PgUuid> = wants
            .sessions
            .iter()
            .map(|session| PgUuid(session.uuid()))
            .collect();
        let ledgers: Vec<&str> = wants.ledgers.iter().map(LedgerName::as_str).collect();
        // Records are not locked: if another process inserts the same one, the unique key fails the
        // group, which is then planned again.
        let records: Vec<&[u8]> = wants.records.iter().map(String::as_bytes).collect();
        let mut facts = Self::default();
        if sessions.is_empty() && ledgers.is_empty() && records.is_empty() {
            facts.books = LockedAccounts::lock_accounts(connection, wants).await?;
            return Ok(facts);
        }
        let asked = sqlx::query(LOCK_ROWS_SQL)
            .bind(sessions)
            .bind(ledgers)
            .bind(records);
        let rows = asked.fetch_all(&mut *connection).await?;
        for row in &rows {
            match row.try_get::<i32, _>("kind")? {
                1 => facts.add_session(row)?,
                2 => facts.add_ledger(row)?,
                4 => facts.now = Timestamp::from_micros(row.try_get("a")?),
                _ => {
                    let key = String::from_utf8_lossy(row.try_get("bytes")?).into_owned();
                    let body = row.try_get("text")?;
                    facts.records.insert(key, (body, row.try_get("a")?));
                }
            }
        }
        // Every writer locks these last, so that there is no deadlock here either.
        facts.books = LockedAccounts::lock_accounts(connection, wants).await?;
        Ok(facts)
    }

    fn add_session(&mut self, row: &sqlx::postgres::PgRow) -> Result<(), sqlx::Error> {
        let time = |column| row.try_get(column).map(Timestamp::from_micros);
        let holder: Option<String> = row.try_get("text")?;
        let until: Option<i64> = row.try_get("f")?;
        let mut standing = PostgresSessionState {
            revision: from_db(row.try_get("a")?),
            created_at: time("b")?,
            updated_at: time("c")?,
            fence: from_db(row.try_get("d")?),
            posted: from_db(row.try_get("e")?),
            parent: row
                .try_get::<Option<PgUuid>, _>("parent")?
                .map(|id| SessionId::new(id.0)),
            held: holder.map(Arc::from).zip(until.map(Timestamp::from_micros)),
            stored_directory: row.try_get("directory")?,
            hidden_at: row.try_get("g")?,
            stored_checksum: row.try_get("checksum")?,
            ..PostgresSessionState::default()
        };
        let session = SessionId::new(row.try_get::<PgUuid, _>("id")?.0);
        let computed = standing.computed_checksum(session);
        let checked = computed.check(standing.stored_checksum, String::new);
        standing.is_damaged = checked.is_err();
        self.sessions.insert(session, standing);
        Ok(())
    }

    fn add_ledger(&mut self, row: &sqlx::postgres::PgRow) -> Result<(), sqlx::Error> {
        let name: String = row.try_get("text")?;
        let ledger =
            LedgerName::try_from(name).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        let hash = parse_digest(row.try_get("bytes")?)?;
        let head = LedgerHead {
            ledger: ledger.clone(),
            counter: from_db(row.try_get("a")?),
            hash,
        };
        self.ledgers.insert(ledger, head);
        Ok(())
    }
}

/// Parses a digest that is stored as bytes.
pub(super) fn parse_digest(bytes: &[u8]) -> Result<Digest, sqlx::Error> {
    bytes
        .try_into()
        .map(Digest::from_bytes)
        .map_err(|error| sqlx::Error::Decode(Box::new(error)))
}
