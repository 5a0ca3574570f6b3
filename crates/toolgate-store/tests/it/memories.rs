//! Forgotten memories leave no byte in the files of a database, and damaged ones are found.

use std::{fs, path::Path};

use toolgate_core::{
    EmbedderId, MemoryChange, MemoryDraft, MemoryFilter, MemoryId, MemoryKind, MemoryOrigin,
    MemoryRecord, MemorySource, MemoryText, MemoryVector, PutMemory, RecallScope, StoreHandle,
    TextRemains, Timestamp,
};
use toolgate_store::SqliteStore;
use uuid::Uuid;

/// A sentence that is in no other test and no part of the schema.
const PLANTED: &str = "The heron of Kvikkjokk wears seven violet boots";

fn draft(number: u128, text: &str) -> MemoryDraft {
    let record = MemoryRecord::new(
        MemoryId::new(Uuid::from_u128(number)),
        MemoryKind::Fact,
        MemoryText::new(text).expect("a valid text"),
        RecallScope::User,
        MemorySource::new(MemoryOrigin::User),
        Timestamp::EPOCH,
    );
    MemoryDraft {
        record,
        vector: Some(vector(number)),
        near: None,
    }
}

/// Returns a vector whose bytes are found again: the number in every value.
fn vector(number: u128) -> MemoryVector {
    MemoryVector {
        embedder: EmbedderId::new("test"),
        values: vec![f32::from_bits(0x3e80_0000 + number as u32); 64],
    }
}

async fn put(store: &StoreHandle, number: u128, text: &str) {
    let stored = store.put_memory(draft(number, text)).await.expect("stores");
    assert!(matches!(stored, PutMemory::Stored(_)), "{stored:?}");
}

/// Stores a memory with a value in every column.
pub(crate) async fn fill_memories(store: &StoreHandle) {
    let mut draft = draft(1, "every column has a value");
    draft.record.owner = Some("ann".into());
    draft.record.source.session = Some(crate::support::session(1));
    draft.record.expires_at = Some(Timestamp::from_micros(77));
    store.put_memory(draft).await.expect("stores");
}

/// Counts where the bytes are in the database and in the files beside it.
fn count_bytes(path: &Path, needle: &[u8]) -> usize {
    let directory = path.parent().expect("a directory");
    let files = fs::read_dir(directory).expect("lists");
    let files = files.map(|file| file.expect("an entry").path());
    files
        .map(|file| {
            let bytes = fs::read(file).expect("reads");
            bytes
                .windows(needle.len())
                .filter(|at| *at == needle)
                .count()
        })
        .sum()
}

/// Fills pages around the planted sentences, so that rows move between pages.
async fn fill(store: &StoreHandle, first: u128) {
    for number in first..first + 120 {
        let filler = format!(
            "filler number {number} {}",
            "words ".repeat(number as usize % 90)
        );
        put(store, number, &filler).await;
    }
}

#[tokio::test]
async fn a_forgotten_memory_is_in_no_byte_of_the_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    fill(&store, 1_000).await;
    put(&store, 1, PLANTED).await;
    put(
        &store,
        2,
        &format!("{PLANTED}, and {}", "more ".repeat(500)),
    )
    .await;
    fill(&store, 2_000).await;
    store
        .mark_recalled(vec![draft(1, "x").record.id], Timestamp::EPOCH)
        .await
        .expect("marks");
    let needle = vector(1).to_bytes();
    assert!(
        count_bytes(&path, PLANTED.as_bytes()) > 1,
        "the test looks at the wrong place"
    );
    assert!(
        count_bytes(&path, &needle) > 0,
        "the test looks at the wrong place"
    );
    let filter = MemoryFilter {
        ids: [1, 2].map(|number| draft(number, "x").record.id).to_vec(),
        ..MemoryFilter::of_owner(None)
    };
    let forgotten = store.forget_memories(filter).await.expect("forgets");
    assert_eq!(
        (forgotten.ids.len(), forgotten.remains),
        (2, TextRemains::Nothing)
    );
    assert_eq!(count_bytes(&path, PLANTED.as_bytes()), 0);
    assert_eq!(count_bytes(&path, &needle), 0);
    // The other memories are whole.
    let left = store
        .memories(MemoryFilter::of_owner(None))
        .await
        .expect("lists");
    assert_eq!(left.len(), 240);
}

#[tokio::test]
async fn the_old_text_of_an_edited_memory_is_in_no_byte_of_the_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
    fill(&store, 1_000).await;
    put(&store, 1, PLANTED).await;
    fill(&store, 2_000).await;
    let change = MemoryChange {
        content: Some(MemoryText::new("Nothing about birds").expect("a valid text")),
        ..MemoryChange::default()
    };
    let id = draft(1, "x").record.id;
    store.change_memory(id, change).await.expect("changes");
    assert_eq!(count_bytes(&path, PLANTED.as_bytes()), 0);
    assert_eq!(count_bytes(&path, &vector(1).to_bytes()), 0);
}

#[tokio::test]
async fn a_memory_that_is_read_elsewhere_while_it_is_forgotten_may_remain_until_a_checkpoint() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let options = toolgate_store::SqliteOptions {
        busy_timeout: std::time::Duration::from_millis(200),
        ..toolgate_store::SqliteOptions::default()
    };
    let store = StoreHandle::new(SqliteStore::open_with(&path, options).expect("opens"));
    put(&store, 1, PLANTED).await;
    let reader = rusqlite::Connection::open(&path).expect("opens");
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM memories")
        .expect("reads");
    let filter = MemoryFilter::of_owner(None);
    let forgotten = store
        .forget_memories(filter.clone())
        .await
        .expect("forgets");
    assert_eq!(forgotten.remains, TextRemains::UntilCheckpoint);
    assert_eq!(store.memories(filter).await.expect("lists"), []);
    drop(reader);
}

#[tokio::test]
async fn a_damaged_memory_is_found_and_not_used() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("toolgate.db");
    let store = SqliteStore::open(&path).expect("opens");
    let handle = StoreHandle::new(store.clone());
    put(&handle, 1, PLANTED).await;
    let other = rusqlite::Connection::open(&path).expect("opens");
    let sql = "UPDATE memories SET body = replace(body, 'heron', 'stork')";
    assert_eq!(other.execute(sql, []).expect("changes"), 1);
    let listed = handle.memories(MemoryFilter::of_owner(None)).await;
    let error = listed.expect_err("is damaged").to_string();
    assert!(error.contains("the table memories"), "{error}");
    assert_eq!(store.check().expect("checks").len(), 1);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_server_says_that_forgotten_text_remains_until_a_vacuum() {
    let Some(database) = crate::support::TestDatabase::create().await else {
        return;
    };
    let store = toolgate_store::PostgresStore::connect(&database.url()).await;
    let handle = StoreHandle::new(store.expect("connects"));
    put(&handle, 1, PLANTED).await;
    let filter = MemoryFilter::of_owner(None);
    let forgotten = handle
        .forget_memories(filter.clone())
        .await
        .expect("forgets");
    assert_eq!(forgotten.remains, TextRemains::UntilVacuum);
    assert_eq!(handle.memories(filter).await.expect("lists"), []);
    drop(handle);
    database.drop().await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn many_processes_that_store_the_same_memory_store_it_once() {
    let Some(database) = crate::support::TestDatabase::create().await else {
        return;
    };
    let mut stores = Vec::new();
    for _ in 0..4 {
        let store = toolgate_store::PostgresStore::connect(&database.url()).await;
        stores.push(StoreHandle::new(store.expect("connects")));
    }
    // Texts that differ, and not by a number: that would make them other memories.
    let near = |number: u128| MemoryDraft {
        near: Some(0.9),
        vector: Some(vector(1)),
        ..draft(
            number,
            &format!("near text {}", "x".repeat(number as usize)),
        )
    };
    let puts = (1..=16_u128).map(|number| stores[number as usize % 4].put_memory(near(number)));
    let puts = futures::future::join_all(puts).await;
    let stored = puts
        .into_iter()
        .filter(|put| matches!(put.as_ref().expect("answers"), PutMemory::Stored(_)));
    assert_eq!(stored.count(), 1);
    drop(stores);
    database.drop().await;
}
