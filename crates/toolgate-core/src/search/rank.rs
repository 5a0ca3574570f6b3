//! Ranking: BM25 over the counts of candidates, and reciprocal rank fusion of two rankings.

use std::{cmp::Ordering, collections::BTreeMap};

use crate::{
    MatchTerm, SearchDocumentId, SearchMode, TermMatches, TextMatches, TextSearch, WordCounts,
};

/// The number of hits that are ranked; pages end there.
pub(crate) const RANK_DEPTH: usize = 200;

/// How fast repeated words stop to count, and how much long documents are discounted (BM25).
const SATURATION: f32 = 1.2;
const LENGTH_WEIGHT: f32 = 0.75;

/// The constant of reciprocal rank fusion: a higher one makes the first ranks less important. With the
/// usual 60, a document that is somewhere in both rankings comes before the first one of either.
const FUSION_CONSTANT: f32 = 5.0;

/// The weight of the ranking by words; that of the ranking by meaning is the rest. Both constants were
/// chosen on the half `tune` of `bench/search`: decision 0107.
const TEXT_WEIGHT: f32 = 0.35;

/// A document with its score: higher is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankedDocument {
    /// The document.
    pub id: SearchDocumentId,
    /// The score; comparable with the others of the same ranking.
    pub score: f32,
}

impl RankedDocument {
    /// Compares for a ranking: the better score first, and of equal ones the newer document.
    pub fn compare_rank(&self, other: &Self) -> Ordering {
        let by_score = other.score.total_cmp(&self.score);
        by_score.then_with(|| other.id.cmp(&self.id))
    }
}

/// Ranks the documents that a store found for words.
pub fn rank_text(search: &TextSearch, found: &TextMatches) -> Vec<RankedDocument> {
    let sorted = |list: &TermMatches| {
        let mut ids = list.ids.clone();
        ids.sort_unstable();
        ids
    };
    let lists: Vec<Vec<SearchDocumentId>> = found.terms.iter().map(sorted).collect();
    let total = found.documents.max(1) as f32;
    let weights: Vec<f32> = found
        .terms
        .iter()
        .map(|list| inverse_frequency(total, list.frequency as f32))
        .collect();
    let average = found.average_length.max(1.0);
    let score = |id: SearchDocumentId, counts: &WordCounts| {
        let length = counts.length() as f32 / average;
        let discount = SATURATION * (1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * length);
        let terms = search.terms.iter().zip(&weights).zip(&lists);
        let scores = terms.map(|((term, weight), list)| {
            let count = count_term(term, counts, list.binary_search(&id).is_ok());
            weight * count * (SATURATION + 1.0) / (count + discount)
        });
        scores.sum::<f32>()
    };
    let mut ranked: Vec<_> = found
        .candidates
        .iter()
        .map(|candidate| RankedDocument {
            id: candidate.id,
            score: score(candidate.id, &candidate.counts),
        })
        .collect();
    // A word that nearly every document has says nothing, but a search for it alone finds documents.
    let is_hit = |ranked: &RankedDocument| search.terms.is_empty() || ranked.score > 0.0;
    ranked.retain(is_hit);
    ranked.sort_by(RankedDocument::compare_rank);
    ranked.truncate(RANK_DEPTH);
    ranked
}

fn inverse_frequency(total: f32, frequency: f32) -> f32 {
    let frequency = frequency.min(total);
    (1.0 + (total - frequency + 0.5) / (frequency + 0.5)).ln()
}

/// Returns how often a document has a term, as far as its counts say.
fn count_term(term: &MatchTerm, counts: &WordCounts, is_listed: bool) -> f32 {
    let in_words = term.words.iter().map(|word| counts.of_word(word)).min();
    let in_names = term
        .joined
        .as_deref()
        .map_or(0, |name| counts.of_name(name));
    let counted = in_words.unwrap_or(0).max(in_names);
    // The words of a prefix are not known, and those of a phrase may stand apart: the list decides.
    match (is_listed, term.is_prefix, term.words.len()) {
        (true, _, _) => f32::from(counted.max(1)),
        (false, false, 1) => f32::from(counted),
        (false, _, _) => 0.0,
    }
}

/// Combines two rankings by the ranks of each document (reciprocal rank fusion).
///
/// The score is between 0 and 1: 1 for a document that is first in both.
pub fn fuse_rankings(text: &[RankedDocument], semantic: &[RankedDocument]) -> Vec<RankedDocument> {
    let mut scores = BTreeMap::<SearchDocumentId, f32>::new();
    for (ranking, weight) in [(text, TEXT_WEIGHT), (semantic, 1.0 - TEXT_WEIGHT)] {
        for (rank, document) in ranking.iter().enumerate() {
            let score = (FUSION_CONSTANT + 1.0) / (FUSION_CONSTANT + 1.0 + rank as f32);
            *scores.entry(document.id).or_default() += score * weight;
        }
    }
    let fused = scores
        .into_iter()
        .map(|(id, score)| RankedDocument { id, score });
    let mut fused: Vec<_> = fused.collect();
    fused.sort_by(RankedDocument::compare_rank);
    fused.truncate(RANK_DEPTH);
    fused
}

/// Scales the scores of a text ranking to at most 1, so that they can be shown beside others.
pub(crate) fn scale_scores(ranking: &mut [RankedDocument], mode: SearchMode) {
    let best = ranking.first().map_or(0.0, |first| first.score);
    if mode == SearchMode::Text && best > 0.0 {
        ranking.iter_mut().for_each(|hit| hit.score /= best);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranking(ids: &[i64]) -> Vec<RankedDocument> {
        let ranked = |(rank, id): (usize, &i64)| RankedDocument {
            id: SearchDocumentId::new(*id),
            score: 1.0 / (rank + 1) as f32,
        };
        ids.iter().enumerate().map(ranked).collect()
    }

    fn ids(ranking: &[RankedDocument]) -> Vec<i64> {
        ranking.iter().map(|hit| hit.id.get()).collect()
    }

    #[test]
    fn a_document_that_both_rankings_have_comes_first() {
        let fused = fuse_rankings(&ranking(&[1, 2, 3]), &ranking(&[4, 2, 5]));
        assert_eq!(ids(&fused)[0], 2);
        assert!(fused.iter().all(|hit| (0.0..=1.0).contains(&hit.score)));
        assert_eq!(fuse_rankings(&ranking(&[7]), &ranking(&[7]))[0].score, 1.0);
    }

    #[test]
    fn equal_scores_are_ordered_by_age() {
        let equal = RankedDocument {
            score: 0.5,
            ..ranking(&[1])[0]
        };
        let newer = RankedDocument {
            score: 0.5,
            ..ranking(&[9])[0]
        };
        assert!(newer.compare_rank(&equal).is_lt());
    }

    #[test]
    fn the_best_by_words_stands_among_the_best_by_meaning() {
        let meant: Vec<i64> = (11..60).collect();
        let fused = fuse_rankings(&ranking(&[1, 2, 3]), &ranking(&meant));
        let place = ids(&fused).iter().position(|id| *id == 1);
        assert!(place.is_some_and(|place| place < 8), "{fused:?}");
        // With a large constant, every document of both rankings would come before it.
        let mut words = meant.clone();
        words[0] = 1;
        let fused = fuse_rankings(&ranking(&words), &ranking(&meant));
        let place = ids(&fused).iter().position(|id| *id == 1);
        assert!(place.is_some_and(|place| place < 15), "{fused:?}");
    }
}
