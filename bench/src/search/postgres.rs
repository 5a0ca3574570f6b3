//! The same searches on PostgreSQL.

use std::{sync::Arc, time::Instant};

use toolgate::{
    model::LocalEmbedder,
    search::{SearchMode, SearchService},
    value::SystemClock,
};

use super::{
    CorpusOptions, Fallible,
    corpus::GeneratedCorpus,
    queries::{self, rare_words, time_search},
};
use crate::{
    measure::{CostRow, median},
    store_floors::TestDatabase,
};

/// Measures the searches on the server that `TOOLGATE_TEST_POSTGRES` names.
pub(super) async fn rows(rounds: usize, options: &CorpusOptions) -> Fallible<Vec<CostRow>> {
    let Ok(url) = std::env::var("TOOLGATE_TEST_POSTGRES") else {
        eprintln!("TOOLGATE_TEST_POSTGRES is not set: PostgreSQL is left out");
        return Ok(Vec::new());
    };
    let database = TestDatabase::create(&url).await?;
    let measured = measure(&database, rounds, options.messages).await;
    database.drop().await?;
    measured
}

async fn measure(
    database: &TestDatabase,
    rounds: usize,
    messages: usize,
) -> Fallible<Vec<CostRow>> {
    let url = database.url.as_str();
    let store = toolgate_store::open_store(url).await?;
    let mut corpus = GeneratedCorpus::new(messages)?;
    corpus.write(&store).await?;
    let words = SearchService::new(store.clone(), SystemClock::new());
    let start = Instant::now();
    let events = words.continue_index(|_| ()).await?.events as f64;
    let indexed = start.elapsed().as_secs_f64();
    let service = words.with_embedder(Arc::new(LocalEmbedder::new()));
    let start = Instant::now();
    let embedded = service.continue_index(|_| ()).await?.embedded as f64;
    let spent = start.elapsed().as_secs_f64();
    let mut rows = vec![
        CostRow::new("indexing words", events / indexed, "messages/s", None, ""),
        CostRow::new("embedding", embedded / spent, "messages/s", None, ""),
    ];
    // Embedding has replaced every row, and there are no statistics yet.
    database.vacuum().await?;
    let mut times = Vec::new();
    for round in 0..=rounds {
        for word in rare_words() {
            let spent = time_search(&service, &word, SearchMode::Text).await?;
            if round > 0 {
                times.push(spent.wall * 1e3);
            }
        }
    }
    rows.push(CostRow::new(
        "a rare word, median",
        median(times),
        "us",
        None,
        "",
    ));
    rows.push(first_search(url, rounds).await?);
    let kinds = queries::kinds(&corpus);
    rows.extend(queries::measure_kinds(&service, &kinds, rounds).await?);
    Ok(rows)
}

/// Measures the first semantic search of a process whose model is loaded.
async fn first_search(url: &str, rounds: usize) -> Fallible<CostRow> {
    let mut times = Vec::new();
    for _ in 0..rounds.max(1) {
        let store = toolgate_store::open_store(url).await?;
        let service = SearchService::new(store, SystemClock::new());
        let service = service.with_embedder(Arc::new(LocalEmbedder::new()));
        let query = "how is the deployment of a service repeated";
        times.push(
            time_search(&service, query, SearchMode::Semantic)
                .await?
                .wall,
        );
    }
    let what = "the first semantic search of an open process, median";
    let note = "loads the vectors, unless the server compares them";
    Ok(CostRow::new(what, median(times), "ms", None, note))
}
