//! Inspects a file without changing it: is it ours, how old is it, can it be written, is it sound.

use std::{path::Path, time::Duration};

use rusqlite::{ErrorCode, OpenFlags};

use super::{SqliteOptions, SqliteStore, connect};
use crate::{DatabaseError, IntegrityProblem, migrations};

/// The result of inspecting a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteInspection {
    /// The version of its schema; 0 if nothing was ever stored in it.
    pub version: i64,
    /// The version that this program works with; opening the file migrates it to this version.
    pub newest: i64,
    /// The size of the file.
    pub bytes: u64,
    /// True if another process held the write lock during the whole inspection.
    pub locked: bool,
    /// Problems of the file itself; [`SqliteStore::check`] also checks its content.
    pub problems: Vec<IntegrityProblem>,
}

impl SqliteStore {
    /// Inspects a file without changing it; `None` if there is none.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("toolgate.db");
    /// use toolgate_store::SqliteStore;
    /// assert_eq!(SqliteStore::inspect(&path)?, None);
    /// drop(SqliteStore::open(&path)?);
    /// let look = SqliteStore::inspect(&path)?.expect("it exists now");
    /// assert_eq!((look.version, look.locked), (look.newest, false));
    /// # Ok::<(), toolgate_store::DatabaseError>(())
    /// ```
    pub fn inspect(path: impl AsRef<Path>) -> Result<Option<SqliteInspection>, DatabaseError> {
        let path = path.as_ref();
        let Some(bytes) = path.metadata().ok().map(|file| file.len()) else {
            return Ok(None);
        };
        let failed = |error| connect::database_error(path, error);
        let options = SqliteOptions {
            busy_timeout: LOCK_TIMEOUT,
            ..SqliteOptions::default()
        };
        // Not read-only: such a connection could not try the write lock below.
        let connection =
            connect::open_connection(path, OpenFlags::SQLITE_OPEN_READ_WRITE, &options)
                .map_err(failed)?;
        connect::check_ownership(path, &connection)?;
        let pending = connect::pending_migrations(path, &connection)?.len();
        // Not counted: the numbers of versions may have gaps.
        let applied = &migrations::SQLITE[..migrations::SQLITE.len() - pending];
        let newest = migrations::SQLITE.last().map_or(0, |step| step.version);
        // Takes the write lock and releases it at once: nothing is written.
        let locked = match connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK") {
            Ok(()) => false,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => true,
            Err(error) => return Err(failed(error)),
        };
        let mut quick = connection
            .prepare("PRAGMA quick_check(5)")
            .map_err(failed)?;
        let messages = quick
            .query_map([], |row| row.get::<_, String>(0))
            .map_err(failed)?;
        let messages: Vec<String> = messages.collect::<Result<_, _>>().map_err(failed)?;
        let problem = |message: String| IntegrityProblem::Database { message };
        let problems = messages
            .into_iter()
            .filter(|message| message != "ok")
            .map(problem)
            .collect();
        Ok(Some(SqliteInspection {
            version: applied.last().map_or(0, |step| step.version),
            newest,
            bytes,
            locked,
            problems,
        }))
    }
}

/// The time for which another process may hold the write lock before the file counts as locked.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn an_inspection_changes_nothing_and_detects_a_writer() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.db");
        drop(SqliteStore::open(&path).expect("opens"));
        let before = std::fs::read(&path).expect("reads");
        let look = SqliteStore::inspect(&path).expect("ours").expect("there");
        assert!(!look.locked && look.problems.is_empty() && look.version == look.newest);
        let writer = Connection::open(&path).expect("opens");
        writer.execute_batch("BEGIN IMMEDIATE").expect("alone");
        assert!(
            SqliteStore::inspect(&path)
                .expect("ours")
                .expect("there")
                .locked
        );
        writer.execute_batch("ROLLBACK").expect("ends");
        assert_eq!(std::fs::read(&path).expect("reads"), before);
    }

    #[test]
    fn an_older_file_is_recognized_and_not_changed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("v1.db");
        std::fs::write(&path, include_bytes!("../../tests/fixtures/v1.sqlite")).expect("written");
        for _ in 0..2 {
            assert_eq!(
                SqliteStore::inspect(&path)
                    .expect("ours")
                    .expect("there")
                    .version,
                1
            );
        }
    }

    #[test]
    fn a_file_of_another_program_is_rejected() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("text");
        std::fs::write(
            &path,
            "just a text that is long enough to be looked at, twice over and more",
        )
        .expect("written");
        assert!(matches!(
            SqliteStore::inspect(&path),
            Err(DatabaseError::NotADatabase { .. })
        ));
    }
}
