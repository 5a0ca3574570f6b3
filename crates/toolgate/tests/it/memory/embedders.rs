//! Memories with an embedder: near duplicates, and vectors of one embedder only.

use super::*;

fn gate_with_embedder(store: &StoreHandle, id: &str) -> Gate {
    Gate::builder()
        .store(store.clone())
        .keyring(toolgate_testkit::keyring_with("k", 1))
        .embedder(LetterEmbedder::new(id))
        .build()
        .expect("opens")
}

#[tokio::test]
async fn with_an_embedder_near_duplicates_are_one_memory_and_meaning_counts() {
    let store = new_store();
    let gate = gate_with_embedder(&store, "letters-1");
    let first = add(&gate, "listen silent").await;
    let new = NewMemory::new("inlets tinsel", RecallScope::User);
    let near = gate.memory().add(new).await;
    match near.expect("stores") {
        PutMemory::Duplicate(found) => assert_eq!(found.id, first.id),
        PutMemory::Stored(record) => panic!("{record:?}"),
    }
    add(&gate, "zzz qqq").await;
    let found = gate
        .memory()
        .search("tinsel enlist", &RecallOptions::default())
        .await;
    let found: Vec<_> = { found.expect("searches") }
        .into_iter()
        .map(|ranked| ranked.record.id)
        .collect();
    assert_eq!(found, [first.id]);
}

#[tokio::test]
async fn another_embedder_makes_the_vectors_again_and_never_mixes_them() {
    let store = new_store();
    let first = gate_with_embedder(&store, "letters-1");
    let record = add(&first, "listen silent").await;
    let second = gate_with_embedder(&store, "letters-2");
    let vectors = async |id: &str| {
        let filter = MemoryFilter {
            embedder: Some(EmbedderId::new(id)),
            ..second.memory().filter()
        };
        let found = store.memories(filter).await.expect("lists");
        found
            .into_iter()
            .filter(|stored| stored.vector.is_some())
            .count()
    };
    assert_eq!(
        (vectors("letters-1").await, vectors("letters-2").await),
        (1, 0)
    );
    let found = second
        .memory()
        .search("tinsel enlist", &RecallOptions::default())
        .await;
    assert_eq!(found.expect("searches")[0].record.id, record.id);
    assert_eq!(
        (vectors("letters-1").await, vectors("letters-2").await),
        (0, 1)
    );
}
