//! The store rules for memories: stored once, found by scope, changed and forgotten.

use toolgate_core::{
    ChangedMemory, EmbedderId, ExpiryFilter, IdSource, MemoryChange, MemoryDraft, MemoryFilter,
    MemoryId, MemoryKind, MemoryOrigin, MemoryOwner, MemoryRecord, MemorySource, MemoryText,
    MemoryVector, Principal, PutMemory, RecallScope, SessionId, StoreHandle, StoredMemory,
    TextRemains, Timestamp,
};

use super::{StoreRule, ensure, error_text};

pub(super) const RULES: [(&str, StoreRule); 10] = [
    ("a_memory_is_stored_whole", |s, i| {
        Box::pin(stores_whole(s, i))
    }),
    (
        "the_same_memory_twice_is_one_record_and_stays_the_longer_time",
        |s, i| Box::pin(stores_once(s, i)),
    ),
    (
        "the_same_text_is_another_memory_in_another_scope_or_of_another_owner",
        |s, i| Box::pin(keeps_scopes_apart(s, i)),
    ),
    (
        "a_near_text_is_the_same_memory_only_by_vectors_of_one_embedder",
        |s, i| Box::pin(finds_near_texts(s, i)),
    ),
    (
        "a_near_text_with_another_negation_number_or_order_is_another_memory",
        |s, i| Box::pin(keeps_opposites(s, i)),
    ),
    (
        "memories_are_listed_by_scope_in_pages_newest_first",
        |s, i| Box::pin(lists_pages(s, i)),
    ),
    ("an_expired_memory_is_found_only_on_request", |s, i| {
        Box::pin(filters_expired(s, i))
    }),
    (
        "a_changed_memory_loses_its_vector_and_cannot_become_another_one",
        |s, i| Box::pin(changes(s, i)),
    ),
    ("uses_are_counted", |s, i| Box::pin(counts_uses(s, i))),
    (
        "a_forgotten_memory_is_gone_and_others_and_those_of_erased_sessions_stay",
        |s, i| Box::pin(forgets(s, i)),
    ),
];

/// An owner that no other rule uses, with the drafts of its memories.
struct MemoryScript<'a> {
    store: &'a StoreHandle,
    ids: &'a dyn IdSource,
    owner: Principal,
}

impl<'a> MemoryScript<'a> {
    fn new(store: &'a StoreHandle, ids: &'a dyn IdSource) -> Self {
        let owner = Principal::from(ids.next_uuid().to_string());
        Self { store, ids, owner }
    }

    fn draft(&self, text: &str, scope: RecallScope) -> MemoryDraft {
        let content = MemoryText::new(text).expect("a valid text");
        let source = MemorySource::new(MemoryOrigin::User);
        let at = Timestamp::from_micros(1_000_000);
        let id = MemoryId::from_source(self.ids);
        let mut record = MemoryRecord::new(id, MemoryKind::Note, content, scope, source, at);
        record.owner = Some(self.owner.clone());
        MemoryDraft {
            record,
            vector: None,
            near: None,
        }
    }

    fn near_draft(&self, text: &str, embedder: &str, values: [f32; 2]) -> MemoryDraft {
        MemoryDraft {
            vector: Some(vector(embedder, values)),
            near: Some(0.9),
            ..self.draft(text, RecallScope::User)
        }
    }

    async fn put(&self, draft: MemoryDraft) -> Result<PutMemory, String> {
        self.store.put_memory(draft).await.map_err(error_text)
    }

    async fn add(&self, text: &str, scope: RecallScope) -> Result<MemoryRecord, String> {
        match self.put(self.draft(text, scope)).await? {
            PutMemory::Stored(record) => Ok(record),
            PutMemory::Duplicate(record) => Err(format!("{text:?} is a duplicate of {record:?}")),
        }
    }

    fn filter(&self) -> MemoryFilter {
        MemoryFilter::of_owner(Some(self.owner.clone()))
    }

    async fn list(&self, filter: MemoryFilter) -> Result<Vec<StoredMemory>, String> {
        self.store.memories(filter).await.map_err(error_text)
    }

    async fn records(&self, filter: MemoryFilter) -> Result<Vec<MemoryRecord>, String> {
        let found = self.list(filter).await?;
        Ok(found.into_iter().map(|stored| stored.record).collect())
    }
}

fn vector(embedder: &str, values: [f32; 2]) -> MemoryVector {
    MemoryVector::new(EmbedderId::new(embedder), values.to_vec())
}

fn project(directory: &str) -> RecallScope {
    RecallScope::Project(directory.into())
}

async fn stores_whole(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let script = MemoryScript::new(store, ids);
    let texts = [
        "Größe 🦀 \"quoted\"\nsecond line",
        "'; DROP TABLE memories; --",
    ];
    for (number, text) in texts.into_iter().enumerate() {
        let mut draft = script.draft(text, project("/a 'b'/ü"));
        let session = SessionId::from_source(ids);
        draft.record.source.session = Some(session);
        draft.record.source.run = Some(4);
        draft.record.source.pattern = Some("preference".into());
        draft.record.expires_at = Some(Timestamp::from_micros(9_000_000));
        draft.record.uses = 3;
        let put = script.put(draft.clone()).await?;
        ensure(
            put == PutMemory::Stored(draft.record.clone()),
            "the stored memory is another one",
        )?;
        let found = script.records(script.filter()).await?;
        ensure(
            found.len() == number + 1 && found.contains(&draft.record),
            "the memory is not read as it was stored",
        )?;
        let of_session = script.records(MemoryFilter::of_session(session)).await?;
        ensure(
            of_session == [draft.record],
            "a memory is not found by its session",
        )?;
    }
    Ok(())
}

async fn stores_once(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let script = MemoryScript::new(store, ids);
    let mut first = script.draft("I prefer tabs.", RecallScope::User);
    first.record.expires_at = Some(Timestamp::from_micros(5_000_000));
    script.put(first.clone()).await?;
    let later = Some(Timestamp::from_micros(7_000_000));
    for (expires_at, wanted) in [
        (later, later),
        (Some(Timestamp::EPOCH), later),
        (None, None),
    ] {
        let mut again = script.draft("i prefer   TABS", RecallScope::User);
        again.record.expires_at = expires_at;
        let PutMemory::Duplicate(found) = script.put(again).await? else {
            return Err("the same text was stored twice".to_owned());
        };
        ensure(
            found.id == first.record.id && found.expires_at == wanted,
            "the first record does not stay, or expires too early",
        )?;
    }
    let all = script.list(script.filter()).await?;
    ensure(all.len() == 1, "there is more than one record")
}

async fn keeps_scopes_apart(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let script = MemoryScript::new(store, ids);
    let stranger = MemoryScript::new(store, ids);
    let session = RecallScope::Session(SessionId::from_source(ids));
    for scope in [RecallScope::User, project("/a"), project("/a/b"), session] {
        script.add("we use make", scope).await?;
    }
    stranger.add("we use make", RecallScope::User).await?;
    let mut unowned = stranger.draft("we use make", project(&script.owner.to_string()));
    unowned.record.owner = None;
    stranger.put(unowned).await?;
    ensure(
        script.list(script.filter()).await?.len() == 4,
        "a scope is mixed up with another one",
    )?;
    let mut only = script.filter();
    only.scopes = vec![project("/a")];
    ensure(
        script.list(only).await?.len() == 1,
        "a list has memories of another scope",
    )?;
    let mut both = script.filter();
    both.scopes = vec![project("/a"), RecallScope::User];
    ensure(
        script.list(both).await?.len() == 2,
        "a list of two scopes has not the memories of both",
    )
}

async fn finds_near_texts(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let script = MemoryScript::new(store, ids);
    let first = script.near_draft("use tabs", "one", [1.0, 0.0]);
    script.put(first.clone()).await?;
    let near = script.near_draft("I always use tabs", "one", [0.99, 0.05]);
    match script.put(near.clone()).await? {
        PutMemory::Duplicate(found) if found.id == first.record.id => {}
        other => return Err(format!("a near text was not found: {other:?}")),
    }
    let far = script.near_draft("deploy on fridays", "one", [0.0, 1.0]);
    let other_embedder = script.near_draft("tabs for everyone", "two", [1.0, 0.0]);
    let without_threshold = MemoryDraft {
        near: None,
        ..script.near_draft("tabs as always", "one", [1.0, 0.0])
    };
    for draft in [far, other_embedder, without_threshold] {
        let text = draft.record.content.to_string();
        ensure(
            matches!(script.put(draft).await?, PutMemory::Stored(_)),
            format!("{text:?} counts as the same memory"),
        )?;
    }
    let mut with_vectors = script.filter();
    with_vectors.embedder = Some(EmbedderId::new("two"));
    let found = script.list(with_vectors).await?;
    let vectors = found.iter().filter_map(|stored| stored.vector.as_ref());
    let vectors: Vec<_> = vectors.collect();
    ensure(
        vectors == [&vector("two", [1.0, 0.0])],
        "vectors of another embedder are returned",
    )
}

async fn keeps_opposites(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let script = MemoryScript::new(store, ids);
    let texts = [
        ("we deploy on Fridays", [1.0, 0.0]),
        ("we do not deploy on Fridays", [1.0, 0.0]),
        ("the port is 8080", [1.0, 0.0]),
        ("the port is 8081", [1.0, 0.0]),
        ("tabs over spaces", [0.0, 1.0]),
        ("spaces over tabs", [0.0, 1.0]),
    ];
    for (text, values) in texts {
        let draft = script.near_draft(text, "one", values);
        ensure(
            matches!(script.put(draft).await?, PutMemory::Stored(_)),
            format!("{text:?} counts as the same memory"),
        )?;
    }
    // Equally near to all of them, but it says the same as one only.
    let again = script.near_draft("the port is 8081, still", "one", [1.0, 0.0]);
    match script.put(again).await? {
        PutMemory::Duplicate(found) if found.content.as_str() == texts[3].0 => Ok(()),
        other => Err(format!("the same number was not found: {other:?}")),
    }
}

async fn lists_pages(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let script = MemoryScript::new(store, ids);
    let mut stored = Vec::new();
    for number in 0..7 {
        let text = format!("fact number {number}");
        stored.push(script.add(&text, project("/pages")).await?.id);
    }
    stored.reverse();
    let mut seen = Vec::new();
    loop {
        let mut filter = script.filter();
        filter.scopes = vec![project("/pages")];
        filter.limit = 3;
        filter.before = seen.last().copied();
        let page = script.records(filter).await?;
        if page.is_empty() {
            break;
        }
        seen.extend(page.iter().map(|record| record.id));
    }
    ensure(seen == stored, "pages skip or repeat a memory")?;
    let mut chosen = script.filter();
    chosen.ids = vec![stored[1], MemoryId::from_source(ids)];
    chosen.kind = Some(MemoryKind::Note);
    let found = script.records(chosen.clone()).await?;
    ensure(
        found.iter().map(|record| record.id).eq([stored[1]]),
        "a memory is not found by its id",
    )?;
    chosen.kind = Some(MemoryKind::Command);
    ensure(
        script.list(chosen).await?.is_empty(),
        "a memory of another kind is listed",
    )
}

async fn filters_expired(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let script = MemoryScript::new(store, ids);
    let mut draft = script.draft("only for a while", RecallScope::User);
    let end = Timestamp::from_micros(5_000_000);
    draft.record.expires_at = Some(end);
    script.put(draft).await?;
    script.add("for ever", RecallScope::User).await?;
    let before = Timestamp::from_micros(4_999_999);
    let rows = [
        (ExpiryFilter::Current(before), 2),
        (ExpiryFilter::Current(end), 1),
        (ExpiryFilter::Expired(before), 0),
        (ExpiryFilter::Expired(end), 1),
        (ExpiryFilter::Any, 2),
    ];
    for (expiry, wanted) in rows {
        let filter = MemoryFilter {
            expiry,
            ..script.filter()
        };
        let found = script.list(filter).await?.len();
        ensure(
            found == wanted,
            format!("{expiry:?} finds {found} memories, not {wanted}"),
        )?;
    }
    Ok(())
}

async fn changes(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let script = MemoryScript::new(store, ids);
    let first = script.near_draft("use tabs", "one", [1.0, 0.0]);
    script.put(first.clone()).await?;
    let id = first.record.id;
    let other = script.add("use spaces", RecallScope::User).await?;
    let text = |text: &str| Some(MemoryText::new(text).expect("a valid text"));
    let change = |change| store.change_memory(id, change);
    let kind = MemoryChange {
        kind: Some(MemoryKind::Preference),
        expires_at: Some(Some(Timestamp::from_micros(7))),
        ..MemoryChange::default()
    };
    let ChangedMemory::Changed(changed) = change(kind).await.map_err(error_text)? else {
        return Err("the memory was not changed".to_owned());
    };
    let mut with_vector = script.filter();
    with_vector.ids = vec![id];
    with_vector.embedder = Some(EmbedderId::new("one"));
    let stored = script.list(with_vector.clone()).await?;
    ensure(
        changed.kind == MemoryKind::Preference
            && stored.len() == 1
            && stored[0].record == *changed
            && stored[0].vector.is_some(),
        "a change of the kind changes something else",
    )?;
    let taken = MemoryChange {
        content: text("USE spaces"),
        ..MemoryChange::default()
    };
    let changed = change(taken).await.map_err(error_text)?;
    ensure(
        changed == ChangedMemory::Duplicate(other.id),
        "a memory was changed into another one that exists",
    )?;
    let new_text = MemoryChange {
        content: text("use four spaces"),
        ..MemoryChange::default()
    };
    change(new_text).await.map_err(error_text)?;
    let stored = script.list(with_vector).await?;
    ensure(
        stored[0].vector.is_none() && stored[0].record.content.as_str() == "use four spaces",
        "a new text has the vector of the old one",
    )?;
    let key = stored[0].record.dedup_key();
    let made = vector("one", [0.0, 1.0]);
    let put = store.put_memory_vector(id, first.record.dedup_key(), made.clone());
    ensure(
        !put.await.map_err(error_text)?,
        "the vector of an old text was stored",
    )?;
    let put = store.put_memory_vector(id, key, made);
    ensure(put.await.map_err(error_text)?, "a vector was not stored")?;
    let missing = store.change_memory(MemoryId::from_source(ids), MemoryChange::default());
    ensure(
        missing.await.map_err(error_text)? == ChangedMemory::Missing,
        "a memory that does not exist was changed",
    )
}

async fn counts_uses(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let script = MemoryScript::new(store, ids);
    let record = script.add("count me", RecallScope::User).await?;
    let later = Timestamp::from_micros(8_000_000);
    for at in [later, Timestamp::from_micros(3_000_000)] {
        let marked = store.mark_recalled(vec![record.id, MemoryId::from_source(ids)], at);
        marked.await.map_err(error_text)?;
    }
    let found = script.records(script.filter()).await?;
    ensure(
        found.len() == 1 && found[0].uses == 2 && found[0].last_recalled_at == Some(later),
        "uses are not counted, or the last one is not the latest",
    )
}

async fn forgets(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let script = MemoryScript::new(store, ids);
    let session = SessionId::from_source(ids);
    let mut draft = script.draft("from a session", RecallScope::User);
    draft.record.source.session = Some(session);
    script.put(draft.clone()).await?;
    let kept = script.add("stays", RecallScope::User).await?;
    let gone = script.add("goes", project("/gone")).await?;
    let erased = store.erase_session(session, Timestamp::EPOCH);
    erased.await.map_err(error_text)?;
    ensure(
        script.list(script.filter()).await?.len() == 3,
        "erasing a session erased a memory",
    )?;
    let mut filter = script.filter();
    filter.scopes = vec![project("/gone")];
    // The limit is for lists.
    filter.limit = 0;
    let forgotten = store
        .forget_memories(filter.clone())
        .await
        .map_err(error_text)?;
    ensure(forgotten.ids == [gone.id], "another memory was forgotten")?;
    let again = store.forget_memories(filter).await.map_err(error_text)?;
    ensure(
        again.ids.is_empty() && again.remains == TextRemains::Nothing,
        "a memory was forgotten twice",
    )?;
    let of_session = MemoryFilter::of_session(session);
    assert_eq!(of_session.owner, MemoryOwner::Any);
    let forgotten = store
        .forget_memories(of_session)
        .await
        .map_err(error_text)?;
    ensure(
        forgotten.ids == [draft.record.id],
        "the memories of a session were not forgotten",
    )?;
    let left = script.records(script.filter()).await?;
    ensure(left == [kept], "another memory is gone")?;
    let again = script.put(script.draft("goes", project("/gone"))).await?;
    ensure(
        matches!(again, PutMemory::Stored(_)),
        "a forgotten memory still counts as a duplicate",
    )
}
