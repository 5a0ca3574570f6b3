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
async fn check_database(database: &crate::support::TestDatabase) {
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
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn the_postgres_store_satisfies_the_contract() {
    let Some(database) = crate::support::TestDatabase::create().await else {
        return;
    };
    check_database(&database).await;
    database.drop().await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn the_postgres_store_satisfies_the_contract_where_the_server_compares_vectors() {
    let Some(database) = crate::support::TestDatabase::create_with_pgvector().await else {
        return;
    };
    check_database(&database).await;
    let missing = "SELECT count(*) FROM search_vectors FULL JOIN search_pgvectors USING (number)
                   WHERE search_vectors.embedder IS DISTINCT FROM search_pgvectors.embedder";
    assert_eq!(database.count(missing).await, 0);
    assert_ne!(
        database
            .count("SELECT count(*) FROM search_pgvectors")
            .await,
        0
    );
    database.drop().await;
}
