//! The queries by which the speed of search is measured, and how they are timed.

use std::time::Instant;

use toolgate::search::{SearchMode, SearchRequest, SearchService};

use super::{
    Fallible,
    corpus::{GeneratedCorpus, RARE_WORDS, rare_word},
};
use crate::measure::{CostGoal, CostRow, cpu_ns, median};

/// The number of queries of a kind in one round.
const PER_KIND: usize = 20;
/// The longest time of 95 of 100 queries, in milliseconds.
const TEXT_GOAL: f64 = 20.0;
const HYBRID_GOAL: f64 = 40.0;

/// Queries of one kind.
pub(super) struct QueryKind {
    name: &'static str,
    mode: SearchMode,
    goal: f64,
    texts: Vec<String>,
}

/// Returns the queries by kind.
pub(super) fn kinds(corpus: &GeneratedCorpus) -> Vec<QueryKind> {
    let text = |name, texts| QueryKind {
        name,
        mode: SearchMode::Text,
        goal: TEXT_GOAL,
        texts,
    };
    let each = |make: &dyn Fn(usize) -> String| (0..PER_KIND).map(make).collect::<Vec<_>>();
    let phrases = corpus.phrases();
    let words = |at: usize| {
        let ranks = [at * 3, 40 + at * 17, 400 + at * 101];
        ranks.map(|rank| corpus.word(rank)).join(" ")
    };
    vec![
        text("a very common word", each(&|at| corpus.word(at).to_owned())),
        text(
            "two common words",
            each(&|at| format!("{} {}", corpus.word(at), corpus.word(at + 7))),
        ),
        text(
            "a common and a rare word",
            each(&|at| format!("{} {}", corpus.word(at), rare_word(at))),
        ),
        text("three words of all kinds", each(&words)),
        text(
            "a phrase",
            each(&|at| format!("\"{}\"", phrases[at * 7 % phrases.len()])),
        ),
        text(
            "the beginning of a word",
            each(&|at| {
                let word = corpus.word(60 + at * 31);
                format!("{}*", word.get(..3).unwrap_or(word))
            }),
        ),
        text(
            "a common word and a filter by tool",
            each(&|at| format!("{} tool:shell", corpus.word(at))),
        ),
        text(
            "a common word, by role, of the last 30 days",
            each(&|at| format!("{} role:user after:30d", corpus.word(at))),
        ),
        text(
            "a common word of failed calls before 200 days",
            each(&|at| format!("{} status:executor_error before:200d", corpus.word(at))),
        ),
        text(
            "a common word without another",
            each(&|at| format!("{} -{}", corpus.word(at), corpus.word(at + 1))),
        ),
        QueryKind {
            name: "hybrid: three words of all kinds",
            mode: SearchMode::Hybrid,
            goal: HYBRID_GOAL,
            texts: each(&words),
        },
        QueryKind {
            name: "hybrid: a sentence",
            mode: SearchMode::Hybrid,
            goal: HYBRID_GOAL,
            texts: each(&|at| format!("{} {} {}", words(at), words(at + 3), words(at + 5))),
        },
        QueryKind {
            name: "hybrid: with a filter by tool",
            mode: SearchMode::Hybrid,
            goal: HYBRID_GOAL,
            texts: each(&|at| format!("{} tool:sql_query", words(at))),
        },
        QueryKind {
            name: "semantic alone",
            mode: SearchMode::Semantic,
            goal: HYBRID_GOAL,
            texts: each(&words),
        },
    ]
}

/// Measures all kinds in turns.
pub(super) async fn measure_kinds(
    service: &SearchService,
    kinds: &[QueryKind],
    rounds: usize,
) -> Fallible<Vec<CostRow>> {
    let mut times: Vec<Vec<SearchTime>> = vec![Vec::new(); kinds.len()];
    for round in 0..=rounds {
        for (kind, times) in kinds.iter().zip(&mut times) {
            for text in &kind.texts {
                let spent = time_search(service, text, kind.mode).await?;
                // The first round warms up caches.
                if round > 0 {
                    times.push(spent);
                }
            }
        }
    }
    let row = |(kind, times): (&QueryKind, Vec<SearchTime>)| {
        let wall: Vec<f64> = times.iter().map(|time| time.wall).collect();
        let processor = percentile_95(times.iter().map(|time| time.processor).collect());
        let middle = median(wall.clone());
        let name = format!("{}, p95", kind.name);
        let note = format!("median {middle:.2} ms; processor time, p95 {processor:.2} ms");
        CostRow::new(name, percentile_95(wall), "ms", None, &note)
            .aiming(CostGoal::ValueAtMost(kind.goal))
    };
    Ok(kinds.iter().zip(times).map(row).collect())
}

/// The milliseconds of one search.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchTime {
    /// On the clock, so other programs on the machine are part of it.
    pub(super) wall: f64,
    /// On all processors together.
    pub(super) processor: f64,
}

impl SearchTime {
    /// Returns the time since a moment, and since this much processor time was used.
    pub(super) fn since(start: Instant, processor: u64) -> Self {
        let wall = start.elapsed().as_secs_f64() * 1e3;
        Self {
            wall,
            processor: cpu_ns().saturating_sub(processor) as f64 / 1e6,
        }
    }
}

/// Measures one search.
pub(super) async fn time_search(
    service: &SearchService,
    text: &str,
    mode: SearchMode,
) -> Fallible<SearchTime> {
    let request = SearchRequest::new(text).mode(mode);
    let processor = cpu_ns();
    let start = Instant::now();
    let answer = service.search(&request).await?;
    let time = SearchTime::since(start, processor);
    std::hint::black_box(answer);
    Ok(time)
}

/// Returns the texts of searches for a rare word.
pub(super) fn rare_words() -> impl Iterator<Item = String> {
    (0..RARE_WORDS).map(rare_word)
}

pub(super) fn percentile_95(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = (values.len() * 95).div_ceil(100).saturating_sub(1);
    values.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_of_a_hundred_values_are_above_the_percentile() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert!((percentile_95(values) - 95.0).abs() < f64::EPSILON);
        assert!((percentile_95(vec![7.0]) - 7.0).abs() < f64::EPSILON);
    }
}
