//! Copies a database while it is in use.

use std::{
    fs::{self, File},
    io,
    path::Path,
    sync::Arc,
};

use rusqlite::{
    Connection, OpenFlags,
    backup::{Backup, StepResult},
};

use super::{SqliteStore, check::check_connection, connect};
use crate::DatabaseError;

impl SqliteStore {
    /// Copies the database to a new file, as of one moment. Other processes can continue to use it
    /// meanwhile.
    ///
    /// A file that exists is never overwritten. The copy is checked as [`check`](Self::check) does
    /// and synced before this returns; one that fails the check is deleted.
    pub fn backup_to(&self, path: impl AsRef<Path>) -> Result<(), DatabaseError> {
        let path = path.as_ref();
        // Not left to SQLite, which would open an existing file, or create one that others may
        // read.
        match connect::create_new_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(DatabaseError::Exists {
                    path: path.to_owned(),
                });
            }
            Err(error) => {
                return Err(DatabaseError::ReadOnly {
                    database: connect::database_name(path),
                    source: Arc::new(error),
                });
            }
        }
        let copied = self
            .copy_database(path)
            .and_then(|()| verify_copy(path))
            .and_then(|()| sync_copy(path));
        if copied.is_err() {
            // An incomplete copy must not be mistaken for a backup.
            let _ = fs::remove_file(path);
        }
        copied
    }

    fn copy_database(&self, path: &Path) -> Result<(), DatabaseError> {
        let from = connect::open_reader(&self.0.path, &self.0.options)?;
        let failed = |error| connect::database_error(path, error);
        let mut to =
            Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
        let backup = Backup::new(&from, &mut to).map_err(failed)?;
        // All pages in one step: the copy sees one moment, and in WAL mode no writer has to wait
        // for it.
        match backup.step(-1).map_err(failed)? {
            StepResult::Done => Ok(()),
            _ => Err(DatabaseError::BadCopy {
                path: path.to_owned(),
                problem: "it was interrupted".into(),
            }),
        }
    }
}

fn verify_copy(path: &Path) -> Result<(), DatabaseError> {
    let failed = |error| connect::database_error(path, error);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    connect::check_ownership(path, &connection)?;
    match check_connection(&connection, path)?.first() {
        Some(problem) => Err(DatabaseError::BadCopy {
            path: path.to_owned(),
            problem: problem.to_string(),
        }),
        None => Ok(()),
    }
}

fn sync_copy(path: &Path) -> Result<(), DatabaseError> {
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let synced = File::open(path).and_then(|file| file.sync_all());
    // Without its directory entry, the copy would be lost with the machine.
    let synced = synced.and_then(|()| File::open(directory)?.sync_all());
    synced.map_err(|error| DatabaseError::Failed {
        database: connect::database_name(path),
        source: Arc::new(error),
    })
}
