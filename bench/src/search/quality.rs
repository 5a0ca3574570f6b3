//! How good search is: where the documents that answer a query stand among the hits.

use std::{collections::HashMap, sync::Arc};

use serde::Serialize;
use tempfile::TempDir;
use toolgate::{
    model::LocalEmbedder,
    search::{SearchMode, SearchRequest, SearchService},
    store::StoreHandle,
    value::{SessionId, SystemClock, Timestamp},
};
use toolgate_store::SqliteStore;

use super::{
    Fallible,
    evaluation::{self, EvaluationSession, JudgedQuery, QueryHalf},
    log::SessionLog,
};

/// The number of points that hybrid search may be worse than the better one of the other two.
const MOST_POINTS: f64 = 2.0;
/// The number of hits that are counted.
const DEPTH: usize = 10;

/// The numbers of one mode for one half of the queries, in points of 100.
#[derive(Debug, Clone, Serialize)]
pub(super) struct QualityRow {
    pub(super) half: &'static str,
    pub(super) mode: &'static str,
    pub(super) queries: usize,
    pub(super) recall_1: f64,
    pub(super) recall_3: f64,
    pub(super) recall_10: f64,
    pub(super) mrr: f64,
    /// The goal of hybrid search and whether it is met.
    pub(super) goal: String,
}

/// Measures each mode on each half.
pub(super) async fn rows() -> Fallible<Vec<QualityRow>> {
    let sessions = evaluation::sessions()?;
    let queries = evaluation::queries(&sessions)?;
    let directory = TempDir::new()?;
    let store = StoreHandle::new(SqliteStore::open(directory.path().join("search.db"))?);
    let names = load(&store, &sessions).await?;
    let service =
        SearchService::new(store, SystemClock::new()).with_embedder(Arc::new(LocalEmbedder::new()));
    service.continue_index(|_| ()).await?;
    let mut rows = Vec::new();
    for half in [QueryHalf::Tune, QueryHalf::Held] {
        let chosen: Vec<&JudgedQuery> = queries.iter().filter(|query| query.half == half).collect();
        let mut of_half = Vec::new();
        for mode in [SearchMode::Text, SearchMode::Semantic, SearchMode::Hybrid] {
            of_half.push(measure(&service, &names, half, mode, &chosen).await?);
        }
        judge(&mut of_half);
        rows.extend(of_half);
    }
    Ok(rows)
}

/// Writes the sessions to the store, and returns their names.
pub(super) async fn load(
    store: &StoreHandle,
    sessions: &[EvaluationSession],
) -> Fallible<HashMap<SessionId, String>> {
    let mut names = HashMap::new();
    for (number, session) in sessions.iter().enumerate() {
        let first = Timestamp::from_micros(1_790_000_000_000_000 + number as i64 * 86_400_000_000);
        let mut log = SessionLog::new(number as u64, first, "scripted");
        for line in &session.lines {
            log.push(store, line).await?;
        }
        log.flush(store).await?;
        names.insert(log.session, session.name.clone());
    }
    Ok(names)
}

async fn measure(
    service: &SearchService,
    names: &HashMap<SessionId, String>,
    half: QueryHalf,
    mode: SearchMode,
    queries: &[&JudgedQuery],
) -> Fallible<QualityRow> {
    let mut sums = [0.0; 4];
    for query in queries {
        let request = SearchRequest::new(&query.text).mode(mode).limit(DEPTH);
        let answer = service.search(&request).await?;
        let ranked: Vec<bool> = answer
            .hits
            .iter()
            .map(|hit| {
                let name = names.get(&hit.session).map(String::as_str);
                query
                    .relevant
                    .iter()
                    .any(|(session, number)| name == Some(session) && hit.sequence == *number)
            })
            .collect();
        let scores = score(&ranked, query.relevant.len());
        for (sum, score) in sums.iter_mut().zip(scores) {
            *sum += score;
        }
    }
    let [recall_1, recall_3, recall_10, mrr] = sums.map(|sum| sum * 100.0 / queries.len() as f64);
    Ok(QualityRow {
        half: match half {
            QueryHalf::Tune => "tune",
            QueryHalf::Held => "held",
        },
        mode: match mode {
            SearchMode::Text => "full text",
            SearchMode::Semantic => "semantic",
            SearchMode::Hybrid => "hybrid",
        },
        queries: queries.len(),
        recall_1,
        recall_3,
        recall_10,
        mrr,
        goal: String::new(),
    })
}

/// Returns recall@1, @3 and @10 and the reciprocal rank, each between 0 and 1.
///
/// Recall@k is the number of relevant hits among the first k, of those that could be there.
fn score(ranked: &[bool], relevant: usize) -> [f64; 4] {
    let recall = |depth: usize| {
        let found = ranked.iter().take(depth).filter(|hit| **hit).count();
        found as f64 / relevant.min(depth) as f64
    };
    let first = ranked.iter().position(|hit| *hit);
    let reciprocal = first.map_or(0.0, |place| 1.0 / (place + 1) as f64);
    [recall(1), recall(3), recall(10), reciprocal]
}

/// Compares hybrid search, the last row, with the better one of the others.
fn judge(rows: &mut [QualityRow]) {
    let Some((hybrid, others)) = rows.split_last_mut() else {
        return;
    };
    let best = |value: fn(&QualityRow) -> f64| others.iter().map(value).fold(0.0, f64::max);
    let verdict = |name: &str, mine: f64, best: f64| {
        let met = if mine >= best - MOST_POINTS {
            "met"
        } else {
            "missed"
        };
        format!("{name} at least {:.1}: {met}", best - MOST_POINTS)
    };
    let mrr = verdict("MRR", hybrid.mrr, best(|row| row.mrr));
    let recall = verdict("recall@10", hybrid.recall_10, best(|row| row.recall_10));
    hybrid.goal = format!("{mrr}; {recall}");
}

/// Prints rows for people.
pub(super) fn print(rows: &[QualityRow]) {
    println!("half  mode       queries  recall@1  recall@3  recall@10    MRR  goal of hybrid");
    for row in rows {
        println!(
            "{:<5} {:<10} {:>7}  {:>8.1}  {:>8.1}  {:>9.1}  {:>5.1}  {}",
            row.half,
            row.mode,
            row.queries,
            row.recall_1,
            row.recall_3,
            row.recall_10,
            row.mrr,
            row.goal
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recall_and_rank_count_what_could_be_found() {
        assert_eq!(score(&[true, false, true], 2), [1.0, 1.0, 1.0, 1.0]);
        assert_eq!(score(&[false, true], 3), [0.0, 1.0 / 3.0, 1.0 / 3.0, 0.5]);
        assert_eq!(score(&[], 1), [0.0; 4]);
    }

    #[test]
    fn a_hybrid_that_is_worse_than_two_points_is_a_miss() {
        let row = |mode, mrr| QualityRow {
            half: "tune",
            mode,
            queries: 1,
            recall_1: 0.0,
            recall_3: 0.0,
            recall_10: 50.0,
            mrr,
            goal: String::new(),
        };
        let mut rows = [
            row("full text", 70.0),
            row("semantic", 60.0),
            row("hybrid", 67.9),
        ];
        judge(&mut rows);
        assert_eq!(
            rows[2].goal,
            "MRR at least 68.0: missed; recall@10 at least 48.0: met"
        );
        assert!(rows[0].goal.is_empty());
    }
}
