//! Reads the address, connects, and brings the database to the newest schema.

use std::{
    io,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use sqlx::{
    ConnectOptions, Connection, Executor, PgConnection, Row,
    error::ErrorKind,
    postgres::{PgConnectOptions, PgPool, PgPoolOptions},
};

use tokio::time::timeout;

use crate::{
    DatabaseError,
    migrations::{self, Applied, Migration},
};

/// Held while the schema is changed, so that of two processes that start at once one waits: "tgat".
const LOCK: i64 = 0x7467_6174;

/// How long the server keeps a transaction open whose process does nothing.
const HALF_WAY: &str = "30s";

/// How long the server may say nothing before it counts as lost.
pub(super) const QUIET: Duration = Duration::from_secs(60);

/// How many connections read at the same time.
const READERS: u32 = 8;

/// Where the database is and how it is called. Its `Debug` shows the name only.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) options: PgConnectOptions,
    /// The name and host, without user and password.
    pub(super) name: String,
}

impl Address {
    pub(super) fn read(url: &str) -> Result<Self, DatabaseError> {
        // The cause is left out: it may repeat the address.
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
        let options = options
            .application_name("toolgate")
            .options([("synchronous_commit", "on")]);
        Ok(Self {
            options: options.disable_statement_logging(),
            name,
        })
    }

    /// Opens a connection. If whoever opened it stops half-way through a transaction, the server ends it after a
    /// while: what it has locked, others wait for.
    pub(super) async fn connect(&self) -> Result<PgConnection, DatabaseError> {
        let options = self
            .options
            .clone()
            .options([("idle_in_transaction_session_timeout", HALF_WAY)]);
        match timeout(QUIET, PgConnection::connect_with(&options)).await {
            Ok(connected) => connected.map_err(|error| self.unreachable(error)),
            Err(_) => Err(self.unreachable(silent())),
        }
    }

    pub(super) fn pool(&self) -> PgPool {
        // A read that meets a lost connection is simply done again, so none is tested before.
        PgPoolOptions::new()
            .max_connections(READERS)
            .test_before_acquire(false)
            .connect_lazy_with(self.options.clone())
    }

    fn unreachable(&self, error: sqlx::Error) -> DatabaseError {
        DatabaseError::Unreachable {
            database: self.name.clone(),
            source: Arc::new(error),
        }
    }

    /// What an error of the server means for whoever uses the database.
    pub(super) fn error(&self, error: sqlx::Error) -> DatabaseError {
        let code = error
            .as_database_error()
            .and_then(|error| error.code())
            .map(|code| code.into_owned());
        let (database, source) = (self.name.clone(), Arc::new(error));
        match code.as_deref() {
            Some("53100") => DatabaseError::Full { database, source },
            Some("55P03" | "57014") => DatabaseError::Locked { database, source },
            Some("XX001" | "XX002") => DatabaseError::Damaged { database, source },
            Some("25006" | "42501") => DatabaseError::ReadOnly { database, source },
            Some(_) => DatabaseError::Failed { database, source },
            None if is_lost(&source) => DatabaseError::Unreachable { database, source },
            None => DatabaseError::Failed { database, source },
        }
    }

    /// Takes the steps that are missing, in one transaction and alone.
    pub(super) async fn migrate(&self, connection: &mut PgConnection) -> Result<(), DatabaseError> {
        let failed = |error| self.error(error);
        let mut tx = connection.begin().await.map_err(failed)?;
        let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK);
        lock.execute(&mut *tx).await.map_err(failed)?;
        let applied = match exists(&mut tx, "toolgate_schema").await.map_err(failed)? {
            true => applied(&mut tx).await.map_err(failed)?,
            false if exists(&mut tx, "sessions").await.map_err(failed)? => {
                return Err(DatabaseError::NotOurs {
                    database: self.name.clone(),
                });
            }
            false => Vec::new(),
        };
        let steps = migrations::missing(migrations::POSTGRES, &applied, &self.name)?;
        apply(&mut tx, steps).await.map_err(failed)?;
        tx.commit().await.map_err(failed)
    }
}

async fn exists(connection: &mut PgConnection, table: &str) -> Result<bool, sqlx::Error> {
    let row = sqlx::query("SELECT to_regclass($1) IS NOT NULL")
        .bind(table)
        .fetch_one(connection)
        .await?;
    row.try_get(0)
}

async fn applied(connection: &mut PgConnection) -> Result<Vec<Applied>, sqlx::Error> {
    let steps = sqlx::query("SELECT version, checksum FROM toolgate_schema ORDER BY version");
    let rows = steps.fetch_all(connection).await?;
    rows.iter()
        .map(|row| {
            Ok(Applied {
                version: row.try_get(0)?,
                checksum: row.try_get(1)?,
            })
        })
        .collect()
}

async fn apply(connection: &mut PgConnection, steps: &[Migration]) -> Result<(), sqlx::Error> {
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
            .bind(now_micros());
        done.execute(&mut *connection).await?;
    }
    Ok(())
}

/// The error for a server that said nothing for too long.
pub(super) fn silent() -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(
        io::ErrorKind::TimedOut,
        "the server did not answer",
    ))
}

/// Whether the connection is gone, so that nothing more can be learned over it.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
        // The server ends the connection: it is shut down, or an administrator did it.
        sqlx::Error::Database(error) => error
            .code()
            .is_some_and(|code| code.starts_with("57P") || code == "25P03" || code == "25P04"),
        _ => false,
    }
}

/// Whether the same group, judged anew, can get another answer: it met another process half-way.
pub(super) fn is_race(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| {
        error.kind() == ErrorKind::UniqueViolation
            || error.code().is_some_and(|code| code.starts_with("40"))
    })
}

fn now_micros() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_database_has_no_password() {
        let address =
            Address::read("postgres://ann:secret@db.example:6432/agents").expect("an address");
        assert_eq!(address.name, "agents at db.example:6432");
    }

    #[tokio::test]
    async fn a_process_that_stops_half_way_does_not_hold_others_up_for_ever() {
        let Ok(url) = std::env::var("TOOLGATE_TEST_POSTGRES") else {
            return;
        };
        let mut connection = Address::read(&url)
            .expect("an address")
            .connect()
            .await
            .expect("connects");
        for (setting, wanted) in [
            ("idle_in_transaction_session_timeout", HALF_WAY),
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
        let error = Address::read("postgres://ann:secret@db:notaport/x")
            .err()
            .expect("no address");
        assert!(!format!("{error} {error:?}").contains("secret"));
    }
}
