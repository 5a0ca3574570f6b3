//! The suite that every store passes, on the stores of this crate.

use toolgate_store::{MemoryStore, SqliteStore};
use toolgate_testkit::{CountingIds, conformance};

mod support;

#[tokio::test]
async fn the_memory_store_keeps_the_contract() {
    conformance::store(MemoryStore::new(), &CountingIds::new())
        .await
        .assert();
}

#[tokio::test]
async fn the_sqlite_store_keeps_the_contract() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path().join("toolgate.db")).expect("opens");
    conformance::store(store.clone(), &CountingIds::new())
        .await
        .assert();
    assert_eq!(store.check().expect("checks"), []);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn the_postgres_store_keeps_the_contract() {
    let Some(database) = support::TestDatabase::create().await else {
        return;
    };
    let store = toolgate_store::PostgresStore::connect(&database.url())
        .await
        .expect("connects");
    conformance::store(store.clone(), &CountingIds::new())
        .await
        .assert();
    assert_eq!(store.check().await.expect("checks"), []);
    database.drop().await;
}
