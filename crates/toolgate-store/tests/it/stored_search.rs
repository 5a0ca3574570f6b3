//! What databases of every version have for search, and their memories.

use std::sync::Arc;

use toolgate_core::{
    Digest, EmbedderId, Event, LogPosition, MemoryDraft, MemoryFilter, MemoryId, MemoryKind,
    MemoryOrigin, MemoryOwner, MemoryRecord, MemorySource, MemoryText, MemoryVector, PutMemory,
    RecallScope, SearchMode, SearchRequest, SearchService, SessionEvent, SessionId, SessionTitle,
    StoreHandle, Timestamp, TurnInfo, WriteBatch,
};
use toolgate_testkit::{TestClock, WordEmbedder};
use uuid::Uuid;

use crate::support::{call_id, session, turn_id};

/// The embedder of the vectors in the fixtures.
const EMBEDDER: &str = "test";

fn service(store: &StoreHandle) -> SearchService {
    let now = Timestamp::from_micros(1_700_000_900_000_000);
    SearchService::new(store.clone(), TestClock::at(now))
        .with_embedder(Arc::new(WordEmbedder::new(EMBEDDER)))
}

/// Appends a message of the user to a session.
async fn say(store: &StoreHandle, session: SessionId, text: &str) {
    let revision = store.revision(session).await.expect("reads");
    let event = SessionEvent::UserMessage {
        message: revision,
        text: Some(text.into()),
        text_bytes: None,
        steering: false,
    };
    let info = Arc::new(TurnInfo::new(session, turn_id(20)));
    let at = Timestamp::from_micros(1_700_000_800_000_000);
    let event = Event::for_run(revision + 1, at, info, event).expect("a valid event");
    let batch = WriteBatch {
        events: vec![Arc::new(event)],
        ..WriteBatch::default()
    };
    let position = LogPosition::unleased(revision);
    store
        .append(session, position, batch)
        .await
        .expect("appends");
}

/// Adds what the fixtures of version 13 have more than those of version 7: documents in the index
/// with their vectors, and memories with theirs. It never changes, because the fixtures never do.
pub(crate) async fn fill_search_and_memories(store: &StoreHandle) {
    say(store, session(5), "the certificate of the shop expired").await;
    let title = SessionTitle::new("a walrus").expect("a title");
    store
        .rename_session(session(5), title)
        .await
        .expect("renames");
    let done = service(store).catch_up(1_000).await.expect("indexes");
    assert!(done.is_complete, "{done:?}");
    let scopes = [
        RecallScope::User,
        RecallScope::Project("/home/ann/work".into()),
        RecallScope::Session(session(5)),
    ];
    for (number, scope) in (1..).zip(scopes) {
        let stored = store.put_memory(memory(number, scope)).await;
        let stored = stored.expect("stores");
        assert!(matches!(stored, PutMemory::Stored(_)), "{stored:?}");
    }
    let used = vec![MemoryId::new(Uuid::from_u128(2))];
    let at = Timestamp::from_micros(1_700_000_850_000_000);
    store.mark_recalled(used, at).await.expect("notes");
}

/// Returns a memory with a value in every column.
fn memory(number: u128, scope: RecallScope) -> MemoryDraft {
    let source = MemorySource {
        session: Some(session(5)),
        run: Some(0),
        turn: Some(turn_id(20)),
        call: Some(call_id(20)),
        pattern: Some("command-worked".to_owned()),
        ..MemorySource::new(MemoryOrigin::Pattern)
    };
    let mut record = MemoryRecord::new(
        MemoryId::new(Uuid::from_u128(number)),
        MemoryKind::Command,
        MemoryText::new(&format!("memory number {number}")).expect("a text"),
        scope,
        source,
        Timestamp::from_micros(1_700_000_800_000_000),
    );
    record.owner = Some("ann".into());
    record.expires_at = Some(Timestamp::from_micros(1_900_000_000_000_000));
    let vector = MemoryVector {
        embedder: EmbedderId::new(EMBEDDER),
        values: vec![0.25 * number as f32; 16],
    };
    MemoryDraft {
        record,
        vector: Some(vector),
        near: None,
    }
}

/// Returns what is indexed, the memories with their vectors, and the hits of searches, as text.
pub(crate) async fn search_and_memories(store: &StoreHandle) -> String {
    // First, because a search indexes what is not indexed yet, and builds an index of another
    // version again.
    let counts = store.search_counts(Some(EmbedderId::new(EMBEDDER))).await;
    let counts = counts.expect("counts");
    let service = service(store);
    let filter = MemoryFilter {
        owner: MemoryOwner::Any,
        embedder: Some(EmbedderId::new(EMBEDDER)),
        ..MemoryFilter::of_owner(None)
    };
    let memories = store.memories(filter).await.expect("lists");
    let mut hits = Vec::new();
    for mode in [SearchMode::Text, SearchMode::Semantic] {
        for query in ["certificate shop", "walrus", "bug"] {
            hits.push((mode, query, find(&service, query, mode).await));
        }
    }
    let vectors: Vec<_> = memories.iter().map(vector_digest).collect();
    format!("{:#?}", (counts, memories, vectors, hits))
}

/// Returns a digest of the exact values of a vector: a text of them could be rounded.
fn vector_digest(memory: &toolgate_core::StoredMemory) -> Option<Digest> {
    let values = memory.vector.as_ref()?.values.iter();
    let bytes: Vec<u8> = values.flat_map(|value| value.to_le_bytes()).collect();
    Some(Digest::of_bytes(&bytes))
}

/// Returns the session, the number and the text of each hit.
async fn find(
    service: &SearchService,
    query: &str,
    mode: SearchMode,
) -> Vec<(SessionId, u64, String)> {
    let request = SearchRequest::new(query).mode(mode).limit(100);
    let answer = service.search(&request).await.expect("searches");
    let hits = answer.hits.into_iter();
    hits.map(|hit| (hit.session, hit.sequence, hit.snippet.text))
        .collect()
}

/// Checks that a search in a database that was migrated finds what an older version stored, and what
/// is said from now on.
pub(crate) async fn check_search(store: &StoreHandle, version: u32) {
    let service = service(store);
    let found = async |query| find(&service, query, SearchMode::Text).await.len();
    if version >= 7 {
        let unhidden = store.hide_session(session(4), None).await;
        unhidden.expect("unhides");
        assert_eq!(found("bug").await, 2, "the message and the title");
    }
    if version >= 13 {
        assert_eq!(found("certificate").await, 1);
    }
    say(store, session(21), "a heron in violet boots").await;
    assert_eq!(found("heron").await, 1);
}
