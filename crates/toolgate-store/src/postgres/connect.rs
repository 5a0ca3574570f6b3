//! Parses the address, connects, and migrates the database to the newest schema.

use std::{io, str::FromStr, sync::Arc, time::Duration};

use sqlx::{
    ConnectOptions, Connection, Executor, PgConnection, Row,
    error::ErrorKind,
    postgres::{PgConnectOptions, PgPool, PgPoolOptions},
};

use tokio::time::timeout;

use crate::{
    DatabaseError,
    migrations::{self, AppliedMigration, Migration},
    open::DEFAULT_PATIENCE,
};

/// The advisory lock held while the schema is migrated, so that of two processes that start at the
/// same time one waits: "tgat".
const MIGRATION_LOCK: i64 = 0x7467_6174;

/// The time after which the server ends a transaction whose process is idle. A process that was
/// stopped holds its locks for no longer than this.
const IDLE_TRANSACTION_LIMIT: &str = "2s";

/// The time for which a transaction waits for a lock while it holds others.
const LOCK_TIMEOUT: &str = "2s";

/// The time without an answer after which the server counts as lost.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The same time for writes that can be large: blobs, and erasing a session.
pub(super) const LARGE_WRITE_TIMEOUT: Duration = Duration::from_secs(600);

/// The shortest time for which a read waits for a connection, whatever its patience.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// What the planner takes a random page to cost, in sequential ones. The 4 of a server's configuration
/// is that of a spinning disk: with it, a word in one of a hundred documents is not looked up in the
/// index, and a search reads tens of thousands of documents instead of hundreds.
const RANDOM_PAGE_COST: &str = "1.1";

/// The maximum number of connections for reads.
const MAX_READERS: u32 = 8;

/// The address and the name of the database. It has no `Debug`, since the options contain the
/// password.
#[derive(Clone)]
pub(super) struct DatabaseAddress {
    pub(super) options: PgConnectOptions,
    /// The name and host, without user and password.
    pub(super) name: String,
    /// The time for which a request waits for a server that is away.
    pub(super) patience: Duration,
}

impl DatabaseAddress {
    /// Parses a URL.
    pub(super) fn parse(url: &str) -> Result<Self, DatabaseError> {
        // The cause is omitted: it may repeat the address.
        let options = PgConnectOptions::from_str(url).map_err(|_| DatabaseError::BadAddress)?;
        let host = match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        let name = format!(
            "{} at {host}",
            options
                .get_database()
                .unwrap_or_else(|| options.get_username())
        );
        // A server configured with `off` would acknowledge writes that a crash can lose.
        let options = options
            .application_name("toolgate")
            .options([("synchronous_commit", "on")]);
        Ok(Self {
            options: options.disable_statement_logging(),
            name,
            patience: DEFAULT_PATIENCE,
        })
    }

    /// Opens a connection. If its process stops in the middle of a transaction, the server ends the
    /// transaction after a while: other processes wait for its locks.
    pub(super) async fn open_connection(&self) -> Result<PgConnection, DatabaseError> {
        let options = self.options.clone().options([
            (
                "idle_in_transaction_session_timeout",
                IDLE_TRANSACTION_LIMIT,
            ),
            ("lock_timeout", LOCK_TIMEOUT),
        ]);
        match timeout(ANSWER_TIMEOUT, PgConnection::connect_with(&options)).await {
            Ok(connected) => connected.map_err(|error| self.unreachable_error(error)),
            Err(_) => Err(self.unreachable_error(no_answer_error())),
        }
    }

    pub(super) fn open_reader_pool(&self) -> PgPool {
        // A read over a lost connection is simply repeated, so connections are not tested first.
        PgPoolOptions::new()
            .max_connections(MAX_READERS)
            .test_before_acquire(false)
            .acquire_timeout(self.patience.clamp(SHORTEST_WAIT, ANSWER_TIMEOUT))
            .connect_lazy_with(
                self.options
                    .clone()
                    .options([("random_page_cost", RANDOM_PAGE_COST)]),
            )
    }

    /// Returns the error for a write whose commit was not answered.
    pub(super) fn lost_error(&self, error: sqlx::Error) -> DatabaseError {
        DatabaseError::Lost {
            database: self.name.clone(),
            source: Arc::new(error),
        }
    }

    fn unreachable_error(&self, error: sqlx::Error) -> DatabaseError {
        DatabaseError::Unreachable {
            database: self.name.clone(),
            source: Arc::new(error),
        }
    }

    /// Converts an error of the server into one that tells the operator what to fix.
    pub(super) fn database_error(&self, error: sqlx::Error) -> DatabaseError {
        let code = error
            .as_database_error()
            .and_then(|error| error.code())
            .map(|code| code.into_owned());
        let database = self.name.clone();
        let source = Arc::new(error);
        match code.as_deref() {
            Some("53100") => DatabaseError::Full { database, source },
            Some("55P03" | "57014") => DatabaseError::Locked { database, source },
            Some("XX001" | "XX002") => DatabaseError::Damaged { database, source },
            Some("25006" | "42501") => DatabaseError::ReadOnly { database, source },
            _ if is_connection_lost(&source) => DatabaseError::Unreachable { database, source },
            _ => DatabaseError::Failed { database, source },
        }
    }

    /// Applies the missing migrations in one transaction, under a lock.
    pub(super) async fn migrate_schema(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(), DatabaseError> {
        let failed = |error| self.database_error(error);
        let mut tx = connection.begin().await.map_err(failed)?;
        // Another process may migrate a large database; it holds no other lock meanwhile.
        let wait = tx.execute("SET LOCAL lock_timeout = 0");
        wait.await.map_err(failed)?;
        let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(MIGRATION_LOCK);
        lock.execute(&mut *tx).await.map_err(failed)?;
        let applied = if table_exists(&mut tx, "toolgate_schema")
            .await
            .map_err(failed)?
        {
            applied_migrations(&mut tx).await.map_err(failed)?
        // Tables of this name without our schema table belong to another program.
        } else if table_exists(&mut tx, "sessions").await.map_err(failed)? {
            return Err(DatabaseError::NotOurs {
                database: self.name.clone(),
            });
        } else {
            Vec::new()
        };
        let steps = migrations::missing_migrations(migrations::POSTGRES, &applied, &self.name)?;
        apply_migrations(&mut tx, steps).await.map_err(failed)?;
        tx.commit().await.map_err(failed)
    }
}

async fn table_exists(connection: &mut PgConnection, table: &str) -> Result<bool, sqlx::Error> {
    let row = sqlx::query("SELECT to_regclass($1) IS NOT NULL")
        .bind(table)
        .fetch_one(connection)
        .await?;
    row.try_get(0)
}

async fn applied_migrations(
    connection: &mut PgConnection,
) -> Result<Vec<AppliedMigration>, sqlx::Error> {
    let steps = sqlx::query("SELECT version, checksum FROM toolgate_schema ORDER BY version");
    let rows = steps.fetch_all(connection).await?;
    rows.iter()
        .map(|row| {
            Ok(AppliedMigration {
                version: row.try_get(0)?,
                checksum: row.try_get(1)?,
            })
        })
        .collect()
}

async fn apply_migrations(
    connection: &mut PgConnection,
    steps: &[Migration],
) -> Result<(), sqlx::Error> {
    for step in steps {
        let table = "CREATE TABLE IF NOT EXISTS toolgate_schema (
                         version bigint NOT NULL PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
                         applied_at bigint NOT NULL
                     )";
        connection.execute(table).await?;
        connection.execute(sqlx::raw_sql(step.sql)).await?;
        let done = "INSERT INTO toolgate_schema (version, name, checksum, applied_at) VALUES ($1, $2, $3, $4)";
        let done = sqlx::query(done)
            .bind(step.version)
            .bind(step.name)
            .bind(step.checksum())
            .bind(migrations::now_micros());
        done.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Returns the error for a server that did not answer in time.
pub(super) fn no_answer_error() -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(
        io::ErrorKind::TimedOut,
        "the server did not answer",
    ))
}

/// Checks whether the connection is lost, so that nothing more can be learned over it.
pub(super) fn is_connection_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::PoolTimedOut => true,
        // The server ended the connection or accepts none: it starts, is shut down, has too many
        // connections, or an administrator did it.
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            code.starts_with("57P")
                || code.starts_with("08")
                || matches!(&*code, "25P03" | "25P04" | "53300")
        }),
        _ => false,
    }
}

/// Checks whether a transaction waited too long for a lock of another process.
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(|error| error.code())
        .is_some_and(|code| code == "55P03")
}

/// Checks whether the same group, planned again, can succeed: it conflicted with another process.
pub(super) fn is_conflict(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| {
        // Another process inserted a row after we had read, or (class 40) the server ended our
        // transaction in favour of another one.
        error.kind() == ErrorKind::UniqueViolation
            || error.code().is_some_and(|code| code.starts_with("40"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_database_has_no_password() {
        let address = DatabaseAddress::parse("postgres://ann:secret@db.example:6432/agents")
            .expect("an address");
        assert_eq!(address.name, "agents at db.example:6432");
    }

    #[tokio::test]
    async fn a_process_that_stops_in_a_transaction_does_not_block_others_forever() {
        let Ok(url) = std::env::var("TOOLGATE_TEST_POSTGRES") else {
            return;
        };
        let mut connection = DatabaseAddress::parse(&url)
            .expect("an address")
            .open_connection()
            .await
            .expect("connects");
        for (setting, wanted) in [
            (
                "idle_in_transaction_session_timeout",
                IDLE_TRANSACTION_LIMIT,
            ),
            ("lock_timeout", LOCK_TIMEOUT),
            ("synchronous_commit", "on"),
        ] {
            let row = sqlx::query("SELECT current_setting($1)")
                .bind(setting)
                .fetch_one(&mut connection)
                .await;
            assert_eq!(
                row.and_then(|row| row.try_get::<String, _>(0))
                    .expect("reads"),
                wanted,
                "{setting}"
            );
        }
    }

    #[test]
    fn a_bad_address_is_not_repeated() {
        let error = DatabaseAddress::parse("postgres://ann:secret@db:notaport/x")
            .err()
            .expect("no address");
        assert!(!format!("{error} {error:?}").contains("secret"));
    }
}
