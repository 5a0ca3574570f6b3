//! Where sessions, approvals and receipts are kept: one SQLite file, a PostgreSQL that many machines share, or memory.
//!
//! All three keep the same contract, [`Store`](toolgate_core::Store). Writes are grouped: what many callers write at
//! the same time shares one commit, and each caller is answered when its part survives the loss of the process.
//!
//! ```
//! use toolgate_core::{Json, Record, RecordKey, Store};
//! use toolgate_store::SqliteStore;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("toolgate.db");
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let store = SqliteStore::open(&path)?;
//! let key = RecordKey::Other("greeting".into());
//! store.once(key.clone(), Record::Json(Json::from("hello"))).await?;
//! assert_eq!(store.record(&key).await?, Some(Record::Json(Json::from("hello"))));
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! * [`open`] takes an address such as `sqlite:toolgate.db` and gives a handle to the right kind of store.
//! * [`SqliteStore`] is the default: one file, several processes. `PostgresStore` comes with the feature `postgres`.
//! * [`DatabaseError`] says what is wrong with a database, and has a hint for whoever must put it right.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod check;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod encoded;
mod error;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod migrations;
mod open;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use check::Problem;
pub use error::{Cause, DatabaseError};
pub use open::open;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use sqlite::{Look, SqliteOptions, SqliteStore};
pub use toolgate_core::MemoryStore;
