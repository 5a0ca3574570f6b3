//! Storage for sessions, approvals and receipts: one SQLite file, a PostgreSQL database that many
//! machines share, or memory.
//!
//! All three satisfy the same contract, [`Store`](toolgate_core::Store). Writes are grouped:
//! concurrent writes share one commit, and each caller gets its answer once its write survives the
//! loss of the process.
//!
//! ```
//! use toolgate_core::{Json, StoreRecord, RecordKey, RecordStore};
//! use toolgate_store::SqliteStore;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("toolgate.db");
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let store = SqliteStore::open(&path)?;
//! let key = RecordKey::Other("greeting".into());
//! store.put_record_once(key.clone(), StoreRecord::Json(Json::from("hello"))).await?;
//! assert_eq!(store.load_record(&key).await?, Some(StoreRecord::Json(Json::from("hello"))));
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! * [`open_store`] takes an address such as `sqlite:toolgate.db` and returns a handle to the right kind of store.
//! * [`SqliteStore`] is the default: one file, several processes. `PostgresStore` comes with the feature `postgres`.
//! * [`DatabaseError`] describes a problem with a database, and has a hint for the operator who has to fix it.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod check;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod checksum;
mod commit_hold;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod derived_rows;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod encoded;
mod error;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod memory_rows;
mod migrations;
mod open;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod patience;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod search_shared;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod session_columns;
#[cfg(feature = "sqlite")]
mod shared_beginnings;
#[cfg(feature = "sqlite")]
mod short_text;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod write_answer;

#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use check::IntegrityProblem;
pub use commit_hold::{CommitHold, hold_commits};
pub use error::{DatabaseCause, DatabaseError};
pub use open::{open_store, open_store_with_patience};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteInspection, SqliteOptions, SqliteStore};
pub use toolgate_core::MemoryStore;
