//! The store rules for search: what is written is found, and what is erased is not.

mod meaning;
mod talk;

use toolgate_core::{
    IdSource, IndexBatch, IndexEntry, SearchDocument, SearchHit, SearchKind, SearchMode,
    SearchRequest, SearchService, SessionTitle, StoreHandle, Timestamp,
};

use self::{meaning::meaning, talk::Talk};
use super::{StoreRule, ensure, error_text};
use crate::clock::TestClock;

pub(super) use self::meaning::RULES as MEANING_RULES;

pub(super) const RULES: [(&str, StoreRule); 14] = [
    ("everything_that_was_said_and_done_is_found", |s, i| {
        Box::pin(finds_every_kind(s, i))
    }),
    ("phrases_prefixes_exclusions_and_names_are_found", |s, i| {
        Box::pin(finds_terms(s, i))
    }),
    (
        "accents_and_scripts_without_blanks_are_found_by_their_parts",
        |s, i| Box::pin(finds_scripts(s, i)),
    ),
    ("every_filter_of_a_search_holds", |s, i| {
        Box::pin(filters(s, i))
    }),
    ("any_text_is_safe_as_a_query", |s, i| {
        Box::pin(any_text(s, i))
    }),
    ("pages_of_a_search_have_every_hit_once", |s, i| {
        Box::pin(pages(s, i))
    }),
    (
        "a_very_common_word_ranks_the_newest_documents_and_says_so",
        |s, i| Box::pin(bounds_common_words(s, i)),
    ),
    ("hidden_sessions_are_not_found", |s, i| {
        Box::pin(hides(s, i))
    }),
    (
        "hidden_sessions_do_not_come_back_through_a_cursor",
        |s, i| Box::pin(hides_from_cursors(s, i)),
    ),
    ("an_erased_session_is_not_found", |s, i| {
        Box::pin(erases(s, i))
    }),
    ("a_session_is_found_by_the_title_it_was_given", |s, i| {
        Box::pin(finds_titles(s, i))
    }),
    (
        "a_title_that_changes_while_it_is_indexed_is_found",
        |s, i| Box::pin(renames_while_indexing(s, i)),
    ),
    ("a_rebuilt_index_gives_the_same_answers", |s, i| {
        Box::pin(rebuilds(s, i))
    }),
    ("a_batch_of_another_place_is_not_indexed", |s, i| {
        Box::pin(checks_places(s, i))
    }),
];

const NOW: Timestamp = Timestamp::from_micros(10 * 86_400 * 1_000_000);

fn service(store: &StoreHandle) -> SearchService {
    SearchService::new(store.clone(), TestClock::at(NOW))
}

async fn hits(store: &StoreHandle, query: &str) -> Result<Vec<SearchHit>, String> {
    let request = SearchRequest::new(query).mode(SearchMode::Text).limit(100);
    let answer = service(store).search(&request).await;
    answer
        .map(|answer| answer.hits)
        .map_err(|error| error.to_string())
}

/// Checks that a query finds exactly these events of a talk.
async fn expect(
    store: &StoreHandle,
    talk: &Talk<'_>,
    query: &str,
    wanted: &[u64],
) -> Result<(), String> {
    let id = talk.session.uuid().simple();
    let found = hits(store, &format!("{query} session:{id}")).await?;
    let mut found: Vec<u64> = found.iter().map(|hit| hit.sequence).collect();
    found.sort_unstable();
    ensure(
        found == wanted,
        format!("{query} found {found:?}, not {wanted:?}"),
    )
}

async fn finds_every_kind(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    talk.user(1, "please deploy the walrus").await?;
    talk.assistant(2, "the walrus is deployed").await?;
    talk.call(3, "shell", "walrus --now").await?;
    talk.succeeded(4, "shell", "walrus done").await?;
    talk.failed(5, "shell", "no walrus here").await?;
    let id = talk.session.uuid();
    let found = hits(store, &format!("walrus session:{id}")).await?;
    let mut kinds: Vec<_> = found.iter().map(|hit| (hit.sequence, hit.kind)).collect();
    kinds.sort_unstable();
    let wanted = [
        (1, SearchKind::User),
        (2, SearchKind::Assistant),
        (3, SearchKind::Call),
        (4, SearchKind::Result),
        (5, SearchKind::Result),
    ];
    ensure(kinds == wanted, format!("{kinds:?}"))?;
    for hit in &found {
        let marked = hit
            .snippet
            .matches
            .iter()
            .map(|range| &hit.snippet.text[range.clone()]);
        let marked: Vec<&str> = marked.collect();
        ensure(marked == ["walrus"], format!("{marked:?} is marked"))?;
        ensure(
            hit.score > 0.0 && hit.score <= 1.0,
            format!("the score is {}", hit.score),
        )?;
    }
    let again = hits(store, &format!("walrus session:{id}")).await?;
    ensure(again == found, "the order changed")
}

async fn finds_terms(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    talk.user(1, "the connection was refused by peer").await?;
    talk.user(2, "refused was the connection").await?;
    talk.user(3, "parseHttpHeader in src/net/http_header.rs")
        .await?;
    talk.user(4, "migrations and migrating").await?;
    for (query, wanted) in [
        ("\"connection was refused\"", &[1][..]),
        ("connection refused", &[1, 2]),
        ("connection -peer", &[2]),
        ("-\"connection was refused\" connection", &[2]),
        ("migrat*", &[4]),
        ("http", &[3]),
        ("parsehttpheader", &[3]),
        ("parse_http_header", &[3]),
        ("net/http_header.rs", &[3]),
        ("httpheader", &[3]),
        ("PARSE", &[3]),
        ("nowhere", &[]),
        ("role:user -connection", &[3, 4]),
    ] {
        expect(store, &talk, query, wanted).await?;
    }
    Ok(())
}

async fn finds_scripts(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    talk.user(1, "Die Größe der Crème brûlée").await?;
    talk.user(2, "東京で会議を検索する").await?;
    talk.user(3, "ship it 🚀").await?;
    for (query, wanted) in [
        ("grosse creme", &[1][..]),
        ("GRÖSSE", &[1]),
        ("検索", &[2]),
        ("会議", &[2]),
        ("索検", &[]),
        ("🚀", &[3]),
    ] {
        expect(store, &talk, query, wanted).await?;
    }
    Ok(())
}

async fn filters(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids).in_directory("/home/ann/shop").await?;
    talk.user(1, "otter").await?;
    talk.call(2, "shell", "otter").await?;
    talk.succeeded(3, "shell", "otter").await?;
    talk.failed(4, "read_file", "otter").await?;
    for (query, wanted) in [
        ("otter role:user", &[1][..]),
        ("otter role:tool", &[2, 3, 4]),
        ("otter tool:shell", &[2, 3]),
        ("otter tool:shell tool:read_file", &[2, 3, 4]),
        ("otter status:ok", &[3]),
        ("otter status:failed", &[4]),
        ("otter status:executor_error", &[4]),
        ("otter project:shop", &[1, 2, 3, 4]),
        ("otter project:/home/ann", &[1, 2, 3, 4]),
        ("otter project:hop", &[]),
        ("otter agent:scout", &[1, 2, 3, 4]),
        ("otter agent:a1", &[1, 2, 3, 4]),
        ("otter agent:other", &[]),
        ("otter model:big:1", &[1, 2, 3, 4]),
        ("otter model:far:big:1", &[1, 2, 3, 4]),
        ("otter model:near:big:1", &[]),
        ("otter model:1", &[]),
        ("otter model:far", &[]),
        ("otter model:small:1", &[]),
        // Event n happened n days after the beginning of time, and now is the tenth day.
        ("otter after:1970-01-04", &[3, 4]),
        ("otter before:1970-01-04", &[1, 2]),
        ("otter after:7d before:6d", &[3]),
        ("tool:shell", &[2, 3]),
    ] {
        expect(store, &talk, query, wanted).await?;
    }
    Ok(())
}

async fn any_text(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    talk.user(
        1,
        "it's a \"quoted\" OR text: with (brackets) \u{0} and * stars",
    )
    .await?;
    let huge = "x\" OR ".repeat(150_000);
    for query in [
        "",
        "\"",
        "\"\"",
        "*",
        "a*",
        "-",
        "-a",
        "--",
        "'",
        "''",
        "\\",
        "(",
        ")",
        "a AND",
        "OR b",
        "NOT",
        "NEAR(a b)",
        "words:a",
        "facets:d",
        "{a b}:c",
        "a^b",
        "\u{0}",
        "a\u{0}b",
        "🚀*",
        "<->",
        "a <-> b",
        "a & !b",
        "a:*",
        "'; DROP TABLE sessions; --",
        "%s %d",
        "session:",
        "after:",
        "tool:\"",
        "\u{202e}abc",
        "quoted OR",
        huge.as_str(),
    ] {
        hits(store, query).await.map_err(|error| {
            format!(
                "{:?} fails: {error}",
                query.chars().take(40).collect::<String>()
            )
        })?;
    }
    expect(store, &talk, "\"it's a\" brackets", &[1]).await
}

async fn pages(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    for n in 1..=23 {
        talk.user(n, &format!("lemur number {n}")).await?;
    }
    let id = talk.session.uuid();
    let mut request = SearchRequest::new(&format!("lemur session:{id}"))
        .mode(SearchMode::Text)
        .limit(5);
    let mut seen = Vec::new();
    loop {
        let answer = service(store)
            .search(&request)
            .await
            .map_err(|error| error.to_string())?;
        seen.extend(answer.hits.iter().map(|hit| hit.sequence));
        let Some(next) = answer.next else { break };
        // What is written between two pages does not change them.
        talk.user(23 + seen.len() as u64 / 5, "lemur lemur lemur")
            .await?;
        let written = next
            .to_string()
            .parse()
            .map_err(|_| "the cursor cannot be read")?;
        request = request.after_cursor(written);
    }
    seen.sort_unstable();
    ensure(seen == (1..=23).collect::<Vec<_>>(), format!("{seen:?}"))?;
    let other = SearchRequest::new("other").after_cursor(request.cursor.expect("there were pages"));
    ensure(
        service(store).search(&other).await.is_err(),
        "a cursor of another search is used",
    )
}

async fn bounds_common_words(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    let texts: Vec<String> = (1..=1_500).map(|n| format!("gnu {n}")).collect();
    talk.many_users(&texts).await?;
    let id = talk.session.uuid();
    let search = |query: String| async move {
        let request = SearchRequest::new(&query).mode(SearchMode::Text);
        service(store)
            .search(&request)
            .await
            .map_err(|error| error.to_string())
    };
    let answer = search(format!("gnu session:{id}")).await?;
    ensure(answer.notices.len() == 1, format!("{:?}", answer.notices))?;
    ensure(
        answer.hits[0].sequence == 1_500,
        format!("{:?} is first", answer.hits[0].sequence),
    )?;
    // A rare word beside it is found, however old its document is.
    let answer = search(format!("gnu 3 session:{id}")).await?;
    ensure(
        answer.hits[0].sequence == 3,
        format!("{:?} is first", answer.hits[0].sequence),
    )
}

async fn hides(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    talk.user(1, "heron").await?;
    store
        .hide_session(talk.session, Some(NOW))
        .await
        .map_err(error_text)?;
    expect(store, &talk, "heron", &[]).await?;
    ensure(
        meaning(store, &talk, "one", "heron").await?.is_empty(),
        "its meaning is found",
    )?;
    store
        .hide_session(talk.session, None)
        .await
        .map_err(error_text)?;
    expect(store, &talk, "heron", &[1]).await
}

async fn hides_from_cursors(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let hidden = Talk::new(store, ids);
    let shown = Talk::new(store, ids);
    for n in 1..=6 {
        hidden.user(n, "tapir").await?;
        shown.user(n, "tapir").await?;
    }
    let mut request = SearchRequest::new("tapir").mode(SearchMode::Text).limit(2);
    let first = service(store).search(&request).await;
    let mut next = first.map_err(|error| error.to_string())?.next;
    store
        .hide_session(hidden.session, Some(NOW))
        .await
        .map_err(error_text)?;
    let mut found = Vec::new();
    while let Some(cursor) = next {
        request = request.after_cursor(cursor);
        let page = service(store).search(&request).await;
        let page = page.map_err(|error| error.to_string())?;
        found.extend(page.hits.iter().map(|hit| hit.session));
        next = page.next;
    }
    ensure(
        !found.contains(&hidden.session),
        "a hidden session is found",
    )?;
    ensure(
        found.len() >= 4,
        format!("{} hits of the other session", found.len()),
    )
}

async fn erases(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    talk.user(1, "badger").await?;
    let title = SessionTitle::new("the badger").expect("visible");
    store
        .rename_session(talk.session, title)
        .await
        .map_err(error_text)?;
    let other = Talk::new(store, ids);
    other.user(1, "badger").await?;
    expect(store, &talk, "badger", &[0, 1]).await?;
    let before = store.search_counts(None).await.map_err(error_text)?;
    meaning(store, &talk, "one", "badger").await?;
    store
        .erase_session(talk.session, NOW)
        .await
        .map_err(error_text)?;
    expect(store, &talk, "badger", &[]).await?;
    expect(store, &other, "badger", &[1]).await?;
    ensure(
        meaning(store, &talk, "one", "badger").await?.is_empty(),
        "its meaning is found",
    )?;
    let after = store.search_counts(None).await.map_err(error_text)?;
    ensure(
        before.documents - after.documents == 2,
        format!("{before:?}, then {after:?}"),
    )
}

async fn finds_titles(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    talk.user(1, "hello").await?;
    for (name, query, wanted) in [
        ("Puffin colony", "puffin", &[0][..]),
        ("Gannet colony", "puffin", &[]),
        ("Gannet colony", "gannet role:title", &[0]),
    ] {
        let title = SessionTitle::new(name).expect("visible");
        store
            .rename_session(talk.session, title)
            .await
            .map_err(error_text)?;
        expect(store, &talk, query, wanted).await?;
    }
    // The first message is the title of a session that was given none; it is found once.
    expect(store, &talk, "hello", &[1]).await
}

async fn renames_while_indexing(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    talk.user(1, "hello").await?;
    // Its events are indexed, so that nothing but the title is left to do.
    expect(store, &talk, "hello", &[1]).await?;
    let rename = |name: &str| {
        let title = SessionTitle::new(name).expect("visible");
        store.rename_session(talk.session, title)
    };
    rename("Fulmar colony").await.map_err(error_text)?;
    let listed = store.stale_sessions(1_000).await.map_err(error_text)?;
    let stale = listed.iter().find(|stale| stale.session == talk.session);
    let stale = stale.ok_or("the session is not listed")?;
    // It is renamed again after a process has read the title and before it writes the batch.
    rename("Dunlin colony").await.map_err(error_text)?;
    let title = stale.title.as_ref().ok_or("it has no title")?;
    let title = SearchDocument::from_title(talk.session, title, None, stale.updated_at);
    let batch = IndexBatch {
        session: talk.session,
        created_at: stale.created_at,
        from: stale.indexed,
        to: stale.indexed,
        entries: Vec::new(),
        title: Some(Box::new(IndexEntry::new(title))),
    };
    store.index_batch(batch).await.map_err(error_text)?;
    expect(store, &talk, "dunlin", &[0]).await?;
    expect(store, &talk, "fulmar", &[]).await
}

async fn rebuilds(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    talk.user(1, "marmot one").await?;
    talk.assistant(2, "marmot two").await?;
    let title = SessionTitle::new("marmot three").expect("visible");
    store
        .rename_session(talk.session, title)
        .await
        .map_err(error_text)?;
    let id = talk.session.uuid();
    let query = format!("marmot session:{id}");
    let before = hits(store, &query).await?;
    ensure(before.len() == 3, format!("{before:?}"))?;
    let reindexed = service(store)
        .reindex(|_| ())
        .await
        .map_err(|error| error.to_string())?;
    ensure(reindexed.is_complete, "it is not complete")?;
    let counts = store.search_counts(None).await.map_err(error_text)?;
    ensure(
        counts.stale_sessions == 0 && counts.stale_events == 0,
        format!("{counts:?}"),
    )?;
    let order = |hits: &[SearchHit]| hits.iter().map(|hit| hit.sequence).collect::<Vec<_>>();
    let after = hits(store, &query).await?;
    ensure(
        order(&after) == order(&before),
        format!("{:?}, not {:?}", order(&after), order(&before)),
    )
}

async fn checks_places(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    talk.user(1, "ibex").await?;
    expect(store, &talk, "ibex", &[1]).await?;
    talk.user(2, "ibex").await?;
    let listed = store.stale_sessions(1_000).await.map_err(error_text)?;
    let stale = listed.iter().find(|stale| stale.session == talk.session);
    let stale = stale.ok_or("the session is not listed")?;
    ensure(
        stale.indexed == 1 && stale.revision == 2,
        format!("{stale:?}"),
    )?;
    let batch = |from, to, created_at| IndexBatch {
        session: talk.session,
        created_at,
        from,
        to,
        entries: Vec::new(),
        title: None,
    };
    let later = Timestamp::from_micros(stale.created_at.as_micros() + 1);
    for wrong in [
        batch(0, 2, stale.created_at),
        batch(1, 3, stale.created_at),
        batch(1, 2, later),
    ] {
        let seen = format!("{wrong:?} is indexed");
        ensure(!store.index_batch(wrong).await.map_err(error_text)?, seen)?;
    }
    expect(store, &talk, "ibex", &[1, 2]).await
}
