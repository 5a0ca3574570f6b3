//! Opens the file, checks that it is ours, and migrates it to the newest schema.

use std::{
    cell::Cell,
    error::Error,
    fs::OpenOptions,
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, config::DbConfig, params};

use super::{SqliteOptions, read::SqliteReader, transaction::SqliteWriteTx};
use crate::{
    DatabaseError,
    migrations::{self, AppliedMigration, Migration},
};

/// The application id that marks a file as ours: "tgat".
const APPLICATION_ID: i64 = 0x7467_6174;

/// The number of prepared statements that a connection caches; there are fewer different ones.
const CACHED_STATEMENTS: usize = 128;

/// The memory for pages of a connection that reads, in KiB: enough for the inner pages of the trees of
/// a search index with a million documents. It is only used as far as it is needed.
const READER_CACHE_KIB: i64 = 16 * 1024;

/// The size of the pages of a new file, half of what SQLite takes by itself. A commit writes about
/// fourteen pages and two kilobytes of text, so that most of what is written are bytes that did not
/// change.
const PAGE_BYTES: i64 = 2048;

/// The size of the pages in which [`SqliteOptions::max_pages`] counts, whatever those of the file have.
const COUNTED_PAGE_BYTES: i64 = 4096;

/// The size of the write-ahead log at which its pages are moved into the file. Moving them waits for the
/// disk twice, and writes each page once, however often it was changed.
const LOG_BYTES: i64 = 8 * 1024 * 1024;

/// Opens the connection for writing, and migrates the file if necessary.
pub(super) fn open_writer(
    path: &Path,
    options: &SqliteOptions,
) -> Result<Connection, DatabaseError> {
    ensure_file(path)?;
    let opened = open_connection(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options);
    let mut connection = opened.map_err(|error| database_error(path, error))?;
    // Before the configuration: switching to WAL already writes to the file.
    check_ownership(path, &connection)?;
    configure_connection(&connection, options).map_err(|error| database_error(path, error))?;
    migrate_schema(path, &mut connection)?;
    Ok(connection)
}

/// Opens a connection for reading.
pub(super) fn open_reader(
    path: &Path,
    options: &SqliteOptions,
) -> Result<Connection, DatabaseError> {
    open_connection(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options)
        .and_then(|connection| {
            connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
            Ok(connection)
        })
        .map_err(|error| database_error(path, error))
}

pub(super) fn open_connection(
    path: &Path,
    access: OpenFlags,
    options: &SqliteOptions,
) -> rusqlite::Result<Connection> {
    // No URI and no symlink tricks: the path is a path. Each connection stays on one thread.
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(options.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    // Otherwise a statement is compiled again whenever a value is bound that a partial index could
    // depend on. Conditions of partial indexes are written out, never bound.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Creates the file for its owner alone, if there is none. SQLite gives the files beside it the
/// same mode.
fn ensure_file(path: &Path) -> Result<(), DatabaseError> {
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty());
    if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
        return Err(DatabaseError::NoDirectory {
            directory: directory.to_owned(),
        });
    }
    match create_new_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(DatabaseError::ReadOnly {
            database: database_name(path),
            source: Arc::new(error),
        }),
    }
}

/// Creates a file that only its owner may read, and fails if it exists.
pub(super) fn create_new_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Rejects a file that another program has written, before anything in it is changed.
pub(super) fn check_ownership(path: &Path, connection: &Connection) -> Result<(), DatabaseError> {
    let error = |error| database_error(path, error);
    // All values are read as of one moment: another process may be creating our schema between two
    // queries.
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
            database: database_name(path),
        })
    }
}

fn configure_connection(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    // Only a file that is still empty takes another size.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    // Changing the mode of a new file needs exclusive access, and SQLite's busy timeout does not
    // apply to it.
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
    // Deleted text is overwritten with zeros: what a user erases or forgets must not stay in free
    // pages.
    connection.pragma_update_and_check(None, "secure_delete", true, |row| row.get::<_, i64>(0))?;
    // In WAL mode, only FULL syncs every commit.
    connection.pragma_update(None, "synchronous", "FULL")?;
    let page_bytes: i64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    connection.pragma_update_and_check(
        None,
        "wal_autocheckpoint",
        LOG_BYTES / page_bytes,
        |row| row.get::<_, i64>(0),
    )?;
    if let Some(pages) = options.max_pages {
        let pages = i64::from(pages) * COUNTED_PAGE_BYTES / page_bytes;
        connection
            .pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))?;
    }
    Ok(())
}

/// Applies the missing migrations in one transaction. Two processes that start at the same time run
/// one after the other, and the second finds nothing left to do.
fn migrate_schema(path: &Path, connection: &mut Connection) -> Result<(), DatabaseError> {
    let failed = |error| database_error(path, error);
    if pending_migrations(path, connection)?.is_empty() {
        return Ok(());
    }
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    // Read again under the write lock: another process may have migrated the file in between.
    let steps = pending_migrations(path, &tx)?;
    apply_migrations(&tx, steps).map_err(failed)?;
    // Bodies of events are not always whole in the file, so SQL cannot count them.
    let counting = SqliteWriteTx {
        reader: SqliteReader {
            connection: &tx,
            path,
        },
        synced: Cell::new(true),
    };
    let has_step = |name: &str| steps.iter().any(|step| step.name == name);
    let counted = if has_step("session_totals") {
        counting.count_sessions()
    } else if has_step("model_providers") {
        counting.fill_providers()
    } else {
        Ok(())
    };
    counted.map_err(|error| into_database_error(path, Box::new(error)))?;
    tx.commit().map_err(failed)
}

/// Returns the migrations that the file still needs.
pub(super) fn pending_migrations(
    path: &Path,
    connection: &Connection,
) -> Result<&'static [Migration], DatabaseError> {
    let applied = applied_migrations(connection).map_err(|error| database_error(path, error))?;
    migrations::missing_migrations(migrations::SQLITE, &applied, &database_name(path))
}

/// Checks that no newer program has migrated the file that `reader` has open.
pub(super) fn check_schema_version(reader: &SqliteReader<'_>) -> Result<(), DatabaseError> {
    let version = reader
        .connection
        .prepare_cached("PRAGMA user_version")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)));
    let found: i64 = version.map_err(|error| database_error(reader.path, error))?;
    migrations::check_version(migrations::SQLITE, found, || database_name(reader.path))
}

fn applied_migrations(connection: &Connection) -> rusqlite::Result<Vec<AppliedMigration>> {
    let table =
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'toolgate_schema'";
    if connection.query_row(table, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Vec::new());
    }
    let mut steps =
        connection.prepare("SELECT version, checksum FROM toolgate_schema ORDER BY version")?;
    let rows = steps.query_map([], |row| {
        Ok(AppliedMigration {
            version: row.get(0)?,
            checksum: row.get(1)?,
        })
    })?;
    rows.collect()
}

fn apply_migrations(connection: &Connection, steps: &[Migration]) -> rusqlite::Result<()> {
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
            params![step.version, step.name, step.checksum(), migrations::now_micros()],
        )?;
        connection.pragma_update(None, "user_version", step.version)?;
    }
    // Within the same transaction: a file counts as ours only if its schema is complete.
    connection.pragma_update(None, "application_id", APPLICATION_ID)
}

/// Returns the name of the database in errors.
pub(super) fn database_name(path: &Path) -> String {
    path.display().to_string()
}

/// Converts an SQLite error into one that tells the operator what to fix.
pub(super) fn database_error(path: &Path, error: rusqlite::Error) -> DatabaseError {
    let database = database_name(path);
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

/// Returns the database error behind the error of a store.
pub(super) fn into_database_error(
    path: &Path,
    error: Box<dyn Error + Send + Sync>,
) -> DatabaseError {
    match error.downcast() {
        Ok(error) => *error,
        Err(error) => DatabaseError::Failed {
            database: database_name(path),
            source: error.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(connection: &Connection, sql: &str) -> i64 {
        let found = connection.query_row(sql, [], |row| row.get(0));
        found.expect("is a number")
    }

    /// Opens a file with these pages and a limit of 100, and returns its pages and their limit.
    fn open_with_pages(page_bytes: Option<i64>) -> [i64; 2] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pages.db");
        let options = SqliteOptions {
            max_pages: Some(100),
            ..SqliteOptions::default()
        };
        drop(open_writer(&path, &options).expect("opens"));
        if let Some(page_bytes) = page_bytes {
            let file = Connection::open(&path).expect("opens");
            let sql =
                format!("PRAGMA journal_mode = DELETE; PRAGMA page_size = {page_bytes}; VACUUM");
            file.execute_batch(&sql).expect("has other pages");
        }
        let opened = open_writer(&path, &options).expect("opens again");
        ["PRAGMA page_size", "PRAGMA max_page_count"].map(|sql| number(&opened, sql))
    }

    #[test]
    fn a_file_keeps_the_size_of_its_pages_and_a_new_one_has_small_pages() {
        assert_eq!(open_with_pages(None)[0], 2048);
        assert_eq!(open_with_pages(Some(4096))[0], 4096);
    }

    #[test]
    fn a_limit_of_pages_is_the_same_size_whatever_pages_the_file_has() {
        assert_eq!(open_with_pages(None)[1], 200);
        assert_eq!(open_with_pages(Some(4096))[1], 100);
    }
}
