//! The shared store suite, on the stores of this crate.

use toolgate_store::{MemoryStore, SqliteStore};
use toolgate_testkit::{CountingIds, conformance};

#[tokio::test]
async fn the_memory_store_satisfies_the_contract() {
    conformance::check_store(MemoryStore::new(), &CountingIds::new())
        .await
        .assert_all();
    conformance::check_archive(MemoryStore::new(), &CountingIds::new())
        .await
        .assert_all();
}

#[tokio::test]
async fn the_sqlite_store_satisfies_the_contract() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path().join("toolgate.db")).expect("opens");
    conformance::check_store(store.clone(), &CountingIds::new())
        .await
        .assert_all();
    conformance::check_archive(store.clone(), &CountingIds::after(1_000_000))
        .await
        .assert_all();
    assert_eq!(store.check().expect("checks"), []);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn the_postgres_store_satisfies_the_contract() {
    let Some(database) = crate::support::TestDatabase::create().await else {
        return;
    };
    let store = toolgate_store::PostgresStore::connect(&database.url())
        .await
        .expect("connects");
    conformance::check_store(store.clone(), &CountingIds::new())
        .await
        .assert_all();
    conformance::check_archive(store.clone(), &CountingIds::after(1_000_000))
        .await
        .assert_all();
    assert_eq!(store.check().await.expect("checks"), []);
    database.drop().await;
}
