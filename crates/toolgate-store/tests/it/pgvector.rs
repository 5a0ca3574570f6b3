//! Vectors that the server compares: the hits are those of a scan, and nothing outlives an erasure.

use std::{collections::BTreeMap, sync::Arc};

use toolgate_core::{
    EmbedderId, Event, LogPosition, MatchTerm, SearchDocumentId, SearchFacet, SearchRequirement,
    SearchService, SessionEvent, SessionId, StoreHandle, Timestamp, TurnInfo, VectorQuery,
    VectorSearch, WriteBatch, split_words,
};
use toolgate_store::{MemoryStore, PostgresStore};
use toolgate_testkit::TestClock;

use crate::support::{TestDatabase, session, turn_id};

const NOW: Timestamp = Timestamp::from_micros(86_400 * 1_000_000);
const COPIES: &str = "SELECT count(*) FROM search_pgvectors";

/// Numbers that are the same in every run.
struct SeededNumbers(u64);

impl SeededNumbers {
    /// Returns a number from -1 to 1.
    fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32 / (1_u64 << 23) as f32) - 1.0
    }

    fn vector(&mut self, dimensions: usize) -> Vec<f32> {
        let vector: Vec<f32> = (0..dimensions).map(|_| self.next()).collect();
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        vector.iter().map(|value| value / length).collect()
    }
}

/// The place of a document, which is the same in every store.
type DocumentPlace = (SessionId, u64);

async fn connect(database: &TestDatabase) -> StoreHandle {
    let store = PostgresStore::connect(&database.url()).await;
    StoreHandle::new(store.expect("connects"))
}

/// Writes and indexes messages: every third one is about a walrus.
async fn say(store: &StoreHandle, session: SessionId, count: u64) {
    let info = Arc::new(TurnInfo::new(session, turn_id(1)));
    let events = (1..=count).map(|n| {
        let animal = if n % 3 == 0 { "walrus" } else { "otter" };
        let event = SessionEvent::UserMessage {
            message: n,
            text: Some(format!("{animal} {n}")),
            text_bytes: None,
            steering: false,
        };
        let at = Timestamp::from_micros(i64::try_from(n).expect("few") * 1_000_000);
        Arc::new(Event::for_run(n, at, Arc::clone(&info), event).expect("a valid event"))
    });
    let batch = WriteBatch {
        events: events.collect(),
        ..WriteBatch::default()
    };
    let appended = store.append(session, LogPosition::unleased(0), batch).await;
    appended.expect("appends");
    let service = SearchService::new(store.clone(), TestClock::at(NOW));
    let progress = service.catch_up(1_000_000).await.expect("indexes");
    assert!(progress.is_complete);
}

/// Returns where each document is.
async fn list_places(store: &StoreHandle) -> BTreeMap<SearchDocumentId, DocumentPlace> {
    let unknown = EmbedderId::new("unknown");
    let documents = store.unembedded_documents(unknown, 1_000_000).await;
    let documents = documents.expect("reads").into_iter();
    documents
        .map(|(id, document)| (id, (document.session, document.sequence)))
        .collect()
}

/// Embeds documents, at most so many. Every tenth vector is one that others have, too.
async fn embed(
    store: &StoreHandle,
    embedder: &EmbedderId,
    dimensions: usize,
    seed: u64,
    most: usize,
) {
    let documents = store.unembedded_documents(embedder.clone(), most).await;
    let documents = documents.expect("reads").into_iter();
    let vectors = documents.map(|(id, document)| {
        let place = document.session.uuid().as_u128() as u64 ^ (document.sequence << 32);
        let is_shared = document.sequence % 10 == 0;
        let number = if is_shared { 0 } else { place };
        (id, SeededNumbers(seed ^ number).vector(dimensions))
    });
    let vectors: Vec<(SearchDocumentId, Vec<f32>)> = vectors.collect();
    for batch in vectors.chunks(256) {
        let put = store.put_vectors(embedder.clone(), batch.to_vec()).await;
        put.expect("writes");
    }
}

fn search(
    embedder: &EmbedderId,
    vector: &[f32],
    required: SearchRequirement,
    limit: usize,
) -> VectorSearch {
    VectorSearch {
        embedder: embedder.clone(),
        dimensions: vector.len(),
        query: VectorQuery::new(vector),
        required,
        most_allowed: 20_000,
        limit,
    }
}

/// Returns the places of the hits with their scores.
async fn find(
    store: &StoreHandle,
    places: &BTreeMap<SearchDocumentId, DocumentPlace>,
    search: &VectorSearch,
) -> Vec<(DocumentPlace, f32)> {
    let found = store.match_vectors(search.clone()).await.expect("searches");
    let ranking = found.ranking.into_iter();
    ranking.map(|hit| (places[&hit.id], hit.score)).collect()
}

/// Returns what hits have to fulfil: nothing, and filters.
fn requirements() -> Vec<SearchRequirement> {
    let walrus = MatchTerm::from_words(&split_words("walrus"), false);
    let walrus = vec![walrus.expect("a word")];
    let none = SearchRequirement::default;
    vec![
        none(),
        SearchRequirement {
            phrases: walrus.clone(),
            ..none()
        },
        SearchRequirement {
            excluded: walrus,
            ..none()
        },
        SearchRequirement {
            facets: vec![vec![SearchFacet::session(session(2))]],
            ..none()
        },
        SearchRequirement {
            after: Some(Timestamp::from_micros(50_000_000)),
            before: Some(Timestamp::from_micros(60_000_000)),
            ..none()
        },
        SearchRequirement {
            facets: vec![vec![SearchFacet::tool("none")]],
            ..none()
        },
    ]
}

#[tokio::test]
async fn the_server_finds_what_a_scan_finds() {
    let Some(database) = TestDatabase::create_with_pgvector().await else {
        return;
    };
    let server = connect(&database).await;
    let memory = StoreHandle::new(MemoryStore::new());
    for store in [&server, &memory] {
        say(store, session(1), 150).await;
        say(store, session(2), 90).await;
    }
    let in_server = list_places(&server).await;
    let in_memory = list_places(&memory).await;
    // Each embedder replaces the vectors of the one before, first some and then all.
    for (seed, dimensions) in [(1, 256), (2, 256), (3, 7), (4, 64), (5, 1_024)] {
        let embedder = EmbedderId::new(&format!("seed {seed}"));
        let mut numbers = SeededNumbers(seed + 100);
        // Many documents have the vector of the first two queries.
        let mut queries = vec![SeededNumbers(seed).vector(dimensions); 2];
        queries.extend((0..3).map(|_| numbers.vector(dimensions)));
        for most in [100, 1_000] {
            embed(&server, &embedder, dimensions, seed, most).await;
            embed(&memory, &embedder, dimensions, seed, most).await;
            for required in requirements() {
                for (query, limit) in queries.iter().zip([1, 3, 1, 5, 25]) {
                    let search = search(&embedder, query, required.clone(), limit);
                    let found = find(&server, &in_server, &search).await;
                    let wanted = find(&memory, &in_memory, &search).await;
                    assert_eq!(found, wanted, "{most} {limit} {required:?}");
                }
            }
        }
        assert_eq!(database.count(COPIES).await, 240);
        // The server is asked: what its table lacks is not found.
        let search = search(&embedder, &queries[2], SearchRequirement::default(), 1);
        let all = find(&server, &in_server, &search).await;
        let mut places = in_server.iter();
        let (gone, _) = places
            .find(|(_, place)| **place == all[0].0)
            .expect("is known");
        let lost = format!(
            "DELETE FROM search_pgvectors WHERE document = {}",
            gone.get()
        );
        database.run(&lost).await;
        assert_ne!(find(&server, &in_server, &search).await, all);
    }
    database.drop().await;
}

#[tokio::test]
async fn nothing_of_an_erased_session_is_left_in_the_vectors_of_the_server() {
    let Some(database) = TestDatabase::create_with_pgvector().await else {
        return;
    };
    let store = connect(&database).await;
    say(&store, session(1), 30).await;
    say(&store, session(2), 20).await;
    embed(&store, &EmbedderId::new("test"), 64, 1, 10_000).await;
    assert_eq!(database.count(COPIES).await, 50);
    store.erase_session(session(1), NOW).await.expect("erases");
    assert_eq!(database.count(COPIES).await, 20);
    let orphans = "SELECT count(*) FROM search_pgvectors
                   WHERE document NOT IN (SELECT id FROM search_documents)";
    assert_eq!(database.count(orphans).await, 0);
    store.clear_index().await.expect("clears");
    assert_eq!(database.count(COPIES).await, 0);
    database.drop().await;
}

#[tokio::test]
async fn a_search_works_while_vectors_are_copied_to_the_server() {
    let Some(database) = TestDatabase::create_with_pgvector().await else {
        return;
    };
    let embedder = EmbedderId::new("test");
    let store = connect(&database).await;
    say(&store, session(1), 4_100).await;
    embed(&store, &embedder, 16, 1, 10_000).await;
    let places = list_places(&store).await;
    let query = SeededNumbers(9).vector(16);
    let search = search(&embedder, &query, SearchRequirement::default(), 25);
    let wanted = find(&store, &places, &search).await;
    // As if the vectors were older than the extension.
    database.run("DROP TABLE search_pgvectors").await;
    assert_eq!(find(&store, &places, &search).await, wanted);
    let one = connect(&database).await;
    for copied in [2_000, 4_000, 4_100] {
        assert_eq!(find(&one, &places, &search).await, wanted);
        assert_eq!(database.count(COPIES).await, copied);
    }
    database.drop().await;
}

#[tokio::test]
async fn a_database_works_after_the_extension_was_dropped() {
    let Some(database) = TestDatabase::create_with_pgvector().await else {
        return;
    };
    let embedder = EmbedderId::new("test");
    let store = connect(&database).await;
    say(&store, session(1), 40).await;
    embed(&store, &embedder, 64, 1, 10_000).await;
    let places = list_places(&store).await;
    let query = SeededNumbers(9).vector(64);
    let search = search(&embedder, &query, SearchRequirement::default(), 25);
    let wanted = find(&store, &places, &search).await;
    assert_eq!(wanted.len(), 25);
    database.run("DROP EXTENSION vector CASCADE").await;
    assert_eq!(find(&store, &places, &search).await, wanted);
    // Vectors are still written: the same ones by another embedder.
    let embedder = EmbedderId::new("other");
    embed(&store, &embedder, 64, 1, 10_000).await;
    let search = self::search(&embedder, &query, SearchRequirement::default(), 25);
    assert_eq!(find(&store, &places, &search).await, wanted);
    // Two processes create it again at the same time.
    let (one, two) = (connect(&database).await, connect(&database).await);
    let (in_one, in_two) = tokio::join!(find(&one, &places, &search), find(&two, &places, &search));
    assert_eq!((&in_one, &in_two), (&wanted, &wanted));
    assert_eq!(database.count(COPIES).await, 40);
    database.drop().await;
}

#[tokio::test]
async fn a_role_that_may_not_use_the_vectors_of_the_server_searches_by_a_scan() {
    let Some(database) = TestDatabase::create_with_pgvector().await else {
        return;
    };
    let embedder = EmbedderId::new("test");
    let store = connect(&database).await;
    say(&store, session(1), 40).await;
    embed(&store, &embedder, 64, 1, 10_000).await;
    let places = list_places(&store).await;
    let query = SeededNumbers(9).vector(64);
    let search = search(&embedder, &query, SearchRequirement::default(), 25);
    let wanted = find(&store, &places, &search).await;
    let role = format!("plain_{}", std::process::id());
    let grants = format!(
        "CREATE ROLE {role} LOGIN;
         GRANT ALL ON ALL TABLES IN SCHEMA public TO {role};
         GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role};
         REVOKE ALL ON search_pgvectors FROM {role}"
    );
    database.run(&grants).await;
    let url = database.url().replacen("toolgate@", &format!("{role}@"), 1);
    let plain = StoreHandle::new(PostgresStore::connect(&url).await.expect("connects"));
    assert_eq!(find(&plain, &places, &search).await, wanted);
    database.run(&format!("DROP OWNED BY {role}")).await;
    database.on_server(&format!("DROP ROLE {role}")).await;
    database.drop().await;
}
