//! Opens the file, makes sure that it is ours, and brings it to the newest schema.

use std::{
    error::Error,
    fs::OpenOptions,
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, params};

use super::SqliteOptions;
use crate::{
    DatabaseError,
    migrations::{self, Applied, Migration},
};

/// Marks a file as ours: "tgat".
const APPLICATION_ID: i64 = 0x7467_6174;

/// How many prepared statements a connection keeps; there are fewer different ones.
const STATEMENTS: usize = 96;

/// Opens the connection that writes, and migrates the file if it has to be.
pub(super) fn writer(path: &Path, options: &SqliteOptions) -> Result<Connection, DatabaseError> {
    create_file(path)?;
    let opened = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options);
    let mut connection = opened.map_err(|error| database_error(path, error))?;
    is_ours(path, &connection)?;
    set_up(&connection, options).map_err(|error| database_error(path, error))?;
    migrate(path, &mut connection)?;
    Ok(connection)
}

/// Opens a connection that only reads.
pub(super) fn reader(path: &Path, options: &SqliteOptions) -> Result<Connection, DatabaseError> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options)
        .map_err(|error| database_error(path, error))
}

pub(super) fn connect(
    path: &Path,
    access: OpenFlags,
    options: &SqliteOptions,
) -> rusqlite::Result<Connection> {
    // No URI and no symlink tricks: the path is a path. Each connection stays on one thread.
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(options.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Creates the file for its owner alone, if there is none. SQLite gives the files beside it the same mode.
fn create_file(path: &Path) -> Result<(), DatabaseError> {
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty());
    if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
        return Err(DatabaseError::NoDirectory {
            directory: directory.to_owned(),
        });
    }
    match new_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(DatabaseError::ReadOnly {
            database: name(path),
            source: Arc::new(error),
        }),
    }
}

/// Creates a file that only its owner may read, and fails if there is one.
pub(super) fn new_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Refuses a file that another program has written, before anything in it is changed.
pub(super) fn is_ours(path: &Path, connection: &Connection) -> Result<(), DatabaseError> {
    let error = |error| database_error(path, error);
    // All of it is read at one moment: somebody else may be making the file ours between one question and the next.
    let moment = connection.unchecked_transaction().map_err(error)?;
    let number = |sql| moment.query_row(sql, [], |row| row.get::<_, i64>(0));
    let id = number("PRAGMA application_id").map_err(error)?;
    if id == APPLICATION_ID {
        return Ok(());
    }
    let empty = id == 0
        && number("PRAGMA user_version").map_err(error)? == 0
        && number("SELECT count(*) FROM sqlite_master").map_err(error)? == 0;
    if empty {
        Ok(())
    } else {
        Err(DatabaseError::NotOurs {
            database: name(path),
        })
    }
}

fn set_up(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    // Changing the mode of a new file needs it alone and does not wait by itself.
    let patience = Instant::now() + options.busy_timeout;
    loop {
        match connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))
        {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < patience =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => break other.map(drop)?,
        }
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    if let Some(pages) = options.max_pages {
        connection
            .pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))?;
    }
    Ok(())
}

/// Takes the steps that are missing, in one transaction. Two processes that start at once take them one after the
/// other, and the second finds nothing left to do.
fn migrate(path: &Path, connection: &mut Connection) -> Result<(), DatabaseError> {
    let failed = |error| database_error(path, error);
    if pending(path, connection)?.is_empty() {
        return Ok(());
    }
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    let steps = pending(path, &tx)?;
    apply(&tx, steps).map_err(failed)?;
    tx.commit().map_err(failed)
}

/// The steps that the file has not gone through yet.
pub(super) fn pending(
    path: &Path,
    connection: &Connection,
) -> Result<&'static [Migration], DatabaseError> {
    let applied = applied(connection).map_err(|error| database_error(path, error))?;
    migrations::missing(migrations::SQLITE, &applied, &name(path))
}

fn applied(connection: &Connection) -> rusqlite::Result<Vec<Applied>> {
    let table =
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'toolgate_schema'";
    if connection.query_row(table, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Vec::new());
    }
    let mut steps =
        connection.prepare("SELECT version, checksum FROM toolgate_schema ORDER BY version")?;
    let rows = steps.query_map([], |row| {
        Ok(Applied {
            version: row.get(0)?,
            checksum: row.get(1)?,
        })
    })?;
    rows.collect()
}

fn apply(connection: &Connection, steps: &[Migration]) -> rusqlite::Result<()> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS toolgate_schema (
             version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
             applied_at INTEGER NOT NULL
         )",
    )?;
    for step in steps {
        connection.execute_batch(step.sql)?;
        connection.execute(
            "INSERT INTO toolgate_schema (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)",
            params![step.version, step.name, step.checksum(), now_micros()],
        )?;
        connection.pragma_update(None, "user_version", step.version)?;
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID)
}

fn now_micros() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// How the database is called in errors.
pub(super) fn name(path: &Path) -> String {
    path.display().to_string()
}

/// What an error of SQLite means for whoever uses the file.
pub(super) fn database_error(path: &Path, error: rusqlite::Error) -> DatabaseError {
    let database = name(path);
    let code = error.sqlite_error_code();
    let source = Arc::new(error);
    match code {
        Some(ErrorCode::NotADatabase) => DatabaseError::NotADatabase { database },
        Some(ErrorCode::DatabaseCorrupt) => DatabaseError::Damaged { database, source },
        Some(ErrorCode::DiskFull) => DatabaseError::Full { database, source },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            DatabaseError::Locked { database, source }
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            DatabaseError::ReadOnly { database, source }
        }
        _ => DatabaseError::Failed { database, source },
    }
}

/// What is behind an error that a store would give.
pub(super) fn cause(path: &Path, error: Box<dyn Error + Send + Sync>) -> DatabaseError {
    match error.downcast() {
        Ok(error) => *error,
        Err(error) => DatabaseError::Failed {
            database: name(path),
            source: error.into(),
        },
    }
}
