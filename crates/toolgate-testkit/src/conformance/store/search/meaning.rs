//! The store rules for search by meaning.

use std::sync::Arc;

use toolgate_core::{EmbedderId, IdSource, SearchFilter, SearchMode, SearchRequest, StoreHandle};

use super::{Talk, ensure, error_text, service};
use crate::{WordEmbedder, conformance::store::StoreRule};

pub(in crate::conformance::store) const RULES: [(&str, StoreRule); 2] = [
    ("meaning_is_found_within_the_filters", |s, i| {
        Box::pin(finds_meaning(s, i))
    }),
    ("vectors_of_two_embedders_are_never_mixed", |s, i| {
        Box::pin(separates_embedders(s, i))
    }),
];

fn embedder(id: &str) -> Arc<WordEmbedder> {
    Arc::new(WordEmbedder::new(id).with_synonyms(&[("automobile", "car")]))
}

/// Returns the events that are found by their meaning, best first.
pub(super) async fn meaning(
    store: &StoreHandle,
    talk: &Talk<'_>,
    id: &str,
    query: &str,
) -> Result<Vec<u64>, String> {
    let service = service(store).with_embedder(embedder(id));
    let caught_up = service
        .catch_up(u64::MAX)
        .await
        .map_err(|error| error.to_string())?;
    ensure(caught_up.is_complete, "something is not embedded")?;
    let mut filter = SearchFilter::default();
    let session = talk.session.to_string();
    filter
        .add("session", &session)
        .map_err(|error| error.to_string())?;
    let request = SearchRequest::new(query)
        .mode(SearchMode::Semantic)
        .filter(filter);
    let answer = service
        .search(&request)
        .await
        .map_err(|error| error.to_string())?;
    Ok(answer.hits.iter().map(|hit| hit.sequence).collect())
}

async fn finds_meaning(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    talk.user(1, "my car is red").await?;
    talk.user(2, "we ate soup").await?;
    talk.call(3, "shell", "paint the other car blue again")
        .await?;
    let first = |found: Vec<u64>| found.first().copied();
    ensure(
        first(meaning(store, &talk, "one", "automobile").await?) == Some(1),
        "the car is not found",
    )?;
    let found = meaning(store, &talk, "one", "automobile tool:shell").await?;
    ensure(found == [3], format!("{found:?} passes the filter"))?;
    let found = meaning(store, &talk, "one", "automobile -red").await?;
    ensure(
        !found.contains(&1),
        format!("{found:?} contains an excluded word"),
    )
}

async fn separates_embedders(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let talk = Talk::new(store, ids);
    talk.user(1, "my car is red").await?;
    meaning(store, &talk, "one", "car").await?;
    let counts = |id: &str| store.search_counts(Some(EmbedderId::new(id)));
    let one = counts("one").await.map_err(error_text)?;
    ensure(one.embedded == one.documents, format!("{one:?}"))?;
    // Another embedder replaces every vector; none of the first one is compared any more.
    ensure(
        meaning(store, &talk, "two", "automobile").await? == [1],
        "the second finds nothing",
    )?;
    let one = counts("one").await.map_err(error_text)?;
    let two = counts("two").await.map_err(error_text)?;
    let replaced = |id: &str| store.replaced_embedder(EmbedderId::new(id));
    let by_one = replaced("one").await.map_err(error_text)?;
    let by_two = replaced("two").await.map_err(error_text)?;
    ensure(
        by_one == Some(EmbedderId::new("two")) && by_two.is_none(),
        format!("{by_one:?} and {by_two:?} are replaced"),
    )?;
    ensure(
        one.embedded == 0 && two.embedded == two.documents,
        format!("{one:?} {two:?}"),
    )?;
    ensure(
        meaning(store, &talk, "one", "automobile").await? == [1],
        "the first finds nothing",
    )
}
