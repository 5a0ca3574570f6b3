//! The errors of opening and using a database, worded for the operator who has to fix them.

use std::{error::Error, path::PathBuf, sync::Arc};

use toolgate_core::{StoreError, UnavailableReason};

/// The cause of a [`DatabaseError`], shared by all callers whose write was in the failed group.
pub type DatabaseCause = Arc<dyn Error + Send + Sync>;

/// The reason why a database could not be opened or did not complete a request.
///
/// Errors of a store carry it as their `source()`. `database` is the path of a file, or the name
/// and host of a PostgreSQL database; never its password.
///
/// ```
/// use toolgate_store::{DatabaseError, SqliteStore};
/// let error = SqliteStore::open("/no/such/directory/toolgate.db").unwrap_err();
/// assert!(matches!(error, DatabaseError::NoDirectory { .. }));
/// assert_eq!(error.hint(), Some("create the directory first, or choose another path"));
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The directory of the file does not exist.
    #[error("there is no directory {}", directory.display())]
    NoDirectory {
        /// The missing directory.
        directory: PathBuf,
    },
    /// The file or its directory is not writable.
    #[error("{database} cannot be written: {source}")]
    ReadOnly {
        /// The name of the database.
        database: String,
        /// The error of the operating system.
        #[source]
        source: DatabaseCause,
    },
    /// The file is not an SQLite database.
    #[error("{database} is not an SQLite database")]
    NotADatabase {
        /// The path of the file.
        database: String,
    },
    /// The database belongs to another program.
    #[error("{database} is a database of another program")]
    NotOurs {
        /// The name of the database.
        database: String,
    },
    /// The database was written by a newer version of this program.
    #[error("{database} has schema version {found}; this program knows versions up to {known}")]
    NewerSchema {
        /// The name of the database.
        database: String,
        /// The schema version of the database.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// A migration of the database has another text than the migration in this program.
    #[error(
        "{database} was created with another text of migration {version} than this program has"
    )]
    ChangedMigration {
        /// The name of the database.
        database: String,
        /// The version of the migration.
        version: i64,
    },
    /// Another process held the lock of the database for too long.
    #[error("{database} is locked by another process: {source}")]
    Locked {
        /// The name of the database.
        database: String,
        /// The error of the database.
        #[source]
        source: DatabaseCause,
    },
    /// There is no space left.
    #[error("there is no space left for {database}: {source}")]
    Full {
        /// The name of the database.
        database: String,
        /// The error of the database.
        #[source]
        source: DatabaseCause,
    },
    /// The content of the database is damaged.
    #[error("{database} is damaged: {source}")]
    Damaged {
        /// The name of the database.
        database: String,
        /// The error of the database.
        #[source]
        source: DatabaseCause,
    },
    /// The address has an unknown scheme.
    #[error("{scheme:?} is not a known kind of store")]
    UnknownScheme {
        /// The scheme of the address.
        scheme: String,
    },
    /// The address of the database is invalid. It is not repeated here, because it may contain a
    /// password.
    #[error("the address of the database is invalid")]
    BadAddress,
    /// The database could not be reached.
    #[error("{database} cannot be reached: {source}")]
    Unreachable {
        /// The name of the database.
        database: String,
        /// The error of the operating system.
        #[source]
        source: DatabaseCause,
    },
    /// The connection was lost during a write; the outcome is unknown.
    #[error(
        "the connection to {database} was lost during a write; whether it was committed is unknown: {source}"
    )]
    Lost {
        /// The name of the database.
        database: String,
        /// The error of the operating system.
        #[source]
        source: DatabaseCause,
    },
    /// The file was deleted or replaced while it was in use.
    #[error("{database} was deleted or replaced while it was in use")]
    Gone {
        /// The path of the file.
        database: String,
    },
    /// A copy would overwrite a file.
    #[error("{} exists already", path.display())]
    Exists {
        /// The path of the existing file.
        path: PathBuf,
    },
    /// A copy was made but failed its check. It was deleted.
    #[error("the copy at {} is not intact: {problem}", path.display())]
    BadCopy {
        /// The path of the copy.
        path: PathBuf,
        /// The first problem that was found.
        problem: String,
    },
    /// The database does not support copying.
    #[error("{database} cannot be copied from here")]
    CopyUnsupported {
        /// The name of the database.
        database: String,
    },
    /// The store was closed.
    #[error("{database} is closed")]
    Closed {
        /// The name of the database.
        database: String,
    },
    /// Another error of the database.
    #[error("{database} did not complete the request: {source}")]
    Failed {
        /// The name of the database.
        database: String,
        /// The error of the database.
        #[source]
        source: DatabaseCause,
    },
}

impl DatabaseError {
    /// Returns what the operator can do about the error, if anything.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoDirectory { .. } => "create the directory first, or choose another path",
            Self::ReadOnly { .. } => {
                "check who owns the file and its directory, and whether they may be written"
            }
            Self::NotADatabase { .. } | Self::NotOurs { .. } => {
                "choose another path; nothing in the file was changed"
            }
            Self::NewerSchema { .. } => {
                "upgrade this program, or open the database with the version that wrote it"
            }
            Self::ChangedMigration { .. } => {
                "use the released version of this program that created the database"
            }
            Self::Locked { .. } => {
                "another process is writing or copying the database; retry when it is done"
            }
            Self::Full { .. } => "free space on the disk; acknowledged writes are kept",
            Self::Damaged { .. } => {
                "run a check, and restore the newest backup if it finds problems"
            }
            // With the feature this address never gets here.
            Self::UnknownScheme { scheme } if scheme.starts_with("postgres") => {
                "this program is built without PostgreSQL; build it with `--features postgres`"
            }
            Self::UnknownScheme { .. } => "use sqlite:PATH, a plain path, postgres://… or memory:",
            Self::BadAddress => "an address reads postgres://user@host/database",
            Self::Unreachable { .. } => "check that the server runs and that the address is right",
            Self::Lost { .. } => {
                "open the session again; it continues with what is in the database"
            }
            Self::Gone { .. } => {
                "put the file back if you can; what was written after it was moved or deleted is lost"
            }
            Self::Exists { .. } => "choose another path; a copy never overwrites a file",
            Self::BadCopy { .. } => "run a check of the original",
            Self::CopyUnsupported { .. } => "use pg_dump",
            Self::Closed { .. } | Self::Failed { .. } => return None,
        })
    }
}

impl DatabaseError {
    /// Returns the reason why the database cannot be used, if it is one that waiting or an operator
    /// can remove.
    pub fn unavailable_reason(&self) -> Option<UnavailableReason> {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } => Some(UnavailableReason::Away),
            Self::Locked { .. } => Some(UnavailableReason::Locked),
            Self::Full { .. } => Some(UnavailableReason::Full),
            Self::Gone { .. } => Some(UnavailableReason::Gone),
            _ => None,
        }
    }
}

impl From<DatabaseError> for StoreError {
    fn from(error: DatabaseError) -> Self {
        if let Some(reason) = error.unavailable_reason() {
            return Self::Unavailable {
                reason,
                source: Box::new(error),
            };
        }
        match error {
            DatabaseError::Damaged { ref database, .. } => Self::Damaged {
                what: database.clone(),
                source: Box::new(error),
            },
            other => Self::Backend(Box::new(other)),
        }
    }
}
