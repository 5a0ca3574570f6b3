//! Opens the store that an address names.

use std::time::Duration;

use toolgate_core::{MemoryStore, StoreHandle};

use crate::DatabaseError;

/// The time for which a store waits by default: for a server that is away, and for a lock that
/// another process holds.
pub(crate) const DEFAULT_PATIENCE: Duration = Duration::from_secs(30);

/// Opens a store by its address: `sqlite:PATH`, a plain path, `postgres://…`, or `memory:`.
///
/// A database that does not exist yet is created, and one with an older schema is migrated.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = toolgate_store::open_store("memory:").await?;
/// assert!(store.ledgers().await?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// # Errors
///
/// Fails with [`DatabaseError::UnknownScheme`] if the scheme is not known, and with the error of the
/// backend otherwise.
pub async fn open_store(address: &str) -> Result<StoreHandle, DatabaseError> {
    open_store_with_patience(address, DEFAULT_PATIENCE).await
}

/// Opens a store like [`open_store`]. Requests wait for at most `patience` while the database is away
/// or locked; a store in memory never waits.
///
/// # Errors
///
/// Fails like [`open_store`].
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    expect(unused_variables, reason = "a store in memory never waits")
)]
pub async fn open_store_with_patience(
    address: &str,
    patience: Duration,
) -> Result<StoreHandle, DatabaseError> {
    let scheme = address
        .split_once(':')
        .map(|(scheme, _)| scheme)
        .filter(|scheme| is_scheme(scheme));
    match scheme {
        Some("memory") => Ok(StoreHandle::new(MemoryStore::new())),
        #[cfg(feature = "postgres")]
        Some("postgres" | "postgresql") => {
            let options = crate::PostgresOptions { patience };
            let store = crate::PostgresStore::connect_with(address, options).await?;
            Ok(StoreHandle::new(store))
        }
        #[cfg(feature = "sqlite")]
        Some("sqlite") => {
            let path = address
                .strip_prefix("sqlite:")
                .expect("the scheme was read from the address");
            let path = path.strip_prefix("//").unwrap_or(path);
            open_sqlite(path, patience)
        }
        #[cfg(feature = "sqlite")]
        None => open_sqlite(address, patience),
        other => Err(DatabaseError::UnknownScheme {
            scheme: other.unwrap_or_default().to_owned(),
        }),
    }
}

#[cfg(feature = "sqlite")]
fn open_sqlite(path: &str, patience: Duration) -> Result<StoreHandle, DatabaseError> {
    let options = crate::SqliteOptions {
        busy_timeout: patience,
        ..crate::SqliteOptions::default()
    };
    Ok(StoreHandle::new(crate::SqliteStore::open_with(
        path, options,
    )?))
}

/// Checks whether the part before the colon can be a scheme. A single letter is a drive, not a
/// scheme.
fn is_scheme(text: &str) -> bool {
    text.len() > 1
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '+')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_scheme_is_rejected_without_repeating_the_address() {
        let error = open_store("mysql://root:secret@host/db")
            .await
            .expect_err("no such kind");
        assert!(matches!(&error, DatabaseError::UnknownScheme { scheme } if scheme == "mysql"));
        assert!(!format!("{error} {error:?}").contains("secret"));
    }

    #[test]
    fn a_program_without_postgresql_says_how_to_build_it() {
        for (scheme, expected) in [("postgresql", "--features postgres"), ("mysql", "memory:")] {
            let scheme = scheme.to_owned();
            let hint = DatabaseError::UnknownScheme { scheme }.hint();
            assert!(hint.is_some_and(|hint| hint.contains(expected)));
        }
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_plain_path_and_a_sqlite_address_name_the_same_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.db");
        let path = path.to_str().expect("a path that is text");
        let key = toolgate_core::RecordKey::Other("k".into());
        let record = toolgate_core::StoreRecord::Json(toolgate_core::Json::from("one"));
        open_store(path)
            .await
            .expect("opens")
            .put_record_once(key.clone(), record.clone())
            .await
            .expect("writes");
        for address in [format!("sqlite:{path}"), format!("sqlite://{path}")] {
            let store = open_store(&address).await.expect("opens");
            assert_eq!(
                store.load_record(&key).await.expect("reads"),
                Some(record.clone()),
                "{address}"
            );
        }
    }
}
