//! What can be wrong with a database, in words for whoever has to put it right.

use std::{error::Error, path::PathBuf, sync::Arc};

use toolgate_core::StoreError;

/// The cause of a [`DatabaseError`], shared by everybody whose write it was.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// Why a database could not be opened or did not do what was asked.
///
/// Errors of a store carry it as their `source()`. `database` is the path of a file, or the name and host of a
/// PostgreSQL database; never its password.
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
        /// Which directory.
        directory: PathBuf,
    },
    /// The file or its directory may not be written.
    #[error("{database} cannot be written")]
    ReadOnly {
        /// Which database.
        database: String,
        /// What the system said.
        #[source]
        source: Cause,
    },
    /// The file is something else.
    #[error("{database} is not an SQLite database")]
    NotADatabase {
        /// Which file.
        database: String,
    },
    /// The database belongs to another program.
    #[error("{database} is a database of another program")]
    NotOurs {
        /// Which database.
        database: String,
    },
    /// The database was written by a newer version of this program.
    #[error("{database} has schema version {found}; this program knows versions up to {known}")]
    Newer {
        /// Which database.
        database: String,
        /// Its version.
        found: i64,
        /// The newest version that is known here.
        known: i64,
    },
    /// The database was made by another text of a migration than the one in this program.
    #[error("{database} was made by another migration {version} than the one of this program")]
    Changed {
        /// Which database.
        database: String,
        /// Which step.
        version: i64,
    },
    /// Somebody else held the database for too long.
    #[error("{database} is locked by another process")]
    Locked {
        /// Which database.
        database: String,
        /// What the database said.
        #[source]
        source: Cause,
    },
    /// There is no room left.
    #[error("there is no room left for {database}")]
    Full {
        /// Which database.
        database: String,
        /// What the database said.
        #[source]
        source: Cause,
    },
    /// The content of the database is damaged.
    #[error("{database} is damaged")]
    Damaged {
        /// Which database.
        database: String,
        /// What the database said.
        #[source]
        source: Cause,
    },
    /// The address names no kind of store.
    #[error("{scheme:?} names no kind of store")]
    Unknown {
        /// What the address starts with.
        scheme: String,
    },
    /// The address of the database cannot be read. It is not repeated here, because it may hold a password.
    #[error("the address of the database cannot be read")]
    BadAddress,
    /// The database could not be reached.
    #[error("{database} cannot be reached")]
    Unreachable {
        /// Which database.
        database: String,
        /// What the system said.
        #[source]
        source: Cause,
    },
    /// The connection was lost while writing; whether it was written is not known.
    #[error(
        "the connection to {database} was lost while writing; what was being written may be there or not"
    )]
    Lost {
        /// Which database.
        database: String,
        /// What the system said.
        #[source]
        source: Cause,
    },
    /// A copy would overwrite a file.
    #[error("{} exists already", path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// A copy was made but is not whole. It was removed.
    #[error("the copy at {} is not whole: {problem}", path.display())]
    BadCopy {
        /// Which file.
        path: PathBuf,
        /// The first thing that is wrong with it.
        problem: String,
    },
    /// The database cannot do this.
    #[error("{database} cannot be copied from here")]
    NoCopies {
        /// Which database.
        database: String,
    },
    /// The store was closed.
    #[error("{database} is closed")]
    Closed {
        /// Which database.
        database: String,
    },
    /// Something else went wrong.
    #[error("{database} did not do what was asked")]
    Failed {
        /// Which database.
        database: String,
        /// What the database said.
        #[source]
        source: Cause,
    },
}

impl DatabaseError {
    /// What can be done about it, if there is something.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoDirectory { .. } => "create the directory first, or choose another path",
            Self::ReadOnly { .. } => {
                "check who owns the file and its directory, and whether they may be written"
            }
            Self::NotADatabase { .. } | Self::NotOurs { .. } => {
                "choose another path; nothing in the file was changed"
            }
            Self::Newer { .. } => {
                "upgrade this program, or open the database with the version that wrote it"
            }
            Self::Changed { .. } => {
                "use the released version of this program that made the database"
            }
            Self::Locked { .. } => {
                "another process writes or copies the database; try again when it is done"
            }
            Self::Full { .. } => "make room on the disk; what was acknowledged is kept",
            Self::Damaged { .. } => {
                "run a check, and restore the newest backup if it finds problems"
            }
            Self::Unknown { .. } => "use sqlite:PATH, a plain path, postgres://… or memory:",
            Self::BadAddress => "an address reads postgres://user@host/database",
            Self::Unreachable { .. } => "check that the server runs and that the address is right",
            Self::Lost { .. } => {
                "open the session again; it continues with what is in the database"
            }
            Self::Exists { .. } => "choose another path; a copy never overwrites a file",
            Self::BadCopy { .. } => "run a check of the original",
            Self::NoCopies { .. } => "use pg_dump",
            Self::Closed { .. } | Self::Failed { .. } => return None,
        })
    }
}

impl From<DatabaseError> for StoreError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Damaged { ref database, .. } => Self::Damaged {
                what: database.clone(),
                source: Box::new(error),
            },
            other => Self::Backend(Box::new(other)),
        }
    }
}
