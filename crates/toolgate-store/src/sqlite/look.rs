//! A first look at a file: whether it is ours, how old it is, whether it can be written, whether it is sound.

use std::{path::Path, time::Duration};

use rusqlite::{ErrorCode, OpenFlags};

use super::{SqliteOptions, SqliteStore, connect};
use crate::{DatabaseError, Problem, migrations};

/// What a first look at a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Look {
    /// The version of its schema; 0 if nothing was ever kept in it.
    pub version: i64,
    /// The version that this program works with; opening the file brings it there.
    pub newest: i64,
    /// How large it is.
    pub bytes: u64,
    /// Whether another process was writing all the while.
    pub locked: bool,
    /// What is wrong with the file itself; [`SqliteStore::check`] looks at everything that is in it.
    pub problems: Vec<Problem>,
}

impl SqliteStore {
    /// Looks at a file without changing it; nothing if there is none.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("toolgate.db");
    /// use toolgate_store::SqliteStore;
    /// assert_eq!(SqliteStore::look(&path)?, None);
    /// drop(SqliteStore::open(&path)?);
    /// let look = SqliteStore::look(&path)?.expect("it is there now");
    /// assert_eq!((look.version, look.locked), (look.newest, false));
    /// # Ok::<(), toolgate_store::DatabaseError>(())
    /// ```
    pub fn look(path: impl AsRef<Path>) -> Result<Option<Look>, DatabaseError> {
        let path = path.as_ref();
        let Some(bytes) = path.metadata().ok().map(|file| file.len()) else {
            return Ok(None);
        };
        let failed = |error| connect::database_error(path, error);
        let options = SqliteOptions {
            busy_timeout: PATIENCE,
            ..SqliteOptions::default()
        };
        let connection =
            connect::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, &options).map_err(failed)?;
        connect::is_ours(path, &connection)?;
        let pending = connect::pending(path, &connection)?.len() as i64;
        let newest = migrations::SQLITE.last().map_or(0, |step| step.version);
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
        let problem = |message: String| Problem::Database { message };
        let problems = messages
            .into_iter()
            .filter(|message| message != "ok")
            .map(problem)
            .collect();
        Ok(Some(Look {
            version: newest - pending,
            newest,
            bytes,
            locked,
            problems,
        }))
    }
}

/// How long somebody else may write before the file counts as locked.
const PATIENCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn a_look_changes_nothing_and_sees_who_writes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.db");
        drop(SqliteStore::open(&path).expect("opens"));
        let before = std::fs::read(&path).expect("reads");
        let look = SqliteStore::look(&path).expect("ours").expect("there");
        assert!(!look.locked && look.problems.is_empty() && look.version == look.newest);
        let writer = Connection::open(&path).expect("opens");
        writer.execute_batch("BEGIN IMMEDIATE").expect("alone");
        assert!(
            SqliteStore::look(&path)
                .expect("ours")
                .expect("there")
                .locked
        );
        writer.execute_batch("ROLLBACK").expect("ends");
        assert_eq!(std::fs::read(&path).expect("reads"), before);
    }

    #[test]
    fn an_older_file_is_seen_as_such_and_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("v1.db");
        std::fs::write(&path, include_bytes!("../../tests/fixtures/v1.sqlite")).expect("written");
        for _ in 0..2 {
            assert_eq!(
                SqliteStore::look(&path)
                    .expect("ours")
                    .expect("there")
                    .version,
                1
            );
        }
    }

    #[test]
    fn a_file_of_somebody_else_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("text");
        std::fs::write(
            &path,
            "just a text that is long enough to be looked at, twice over and more",
        )
        .expect("written");
        assert!(matches!(
            SqliteStore::look(&path),
            Err(DatabaseError::NotADatabase { .. })
        ));
    }
}
