//! Ranks memories by their relevance to a text, within a budget of tokens.

use std::{cmp::Ordering, collections::BTreeMap};

use hashbrown::HashMap;

use crate::{
    MemoryRecord, MemoryVector, RecallScope, ScopeWord, SessionId, memory::text::content_words,
};

/// What is recalled, and how much of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecallOptions {
    /// Only memories of this scope; by default those of the session, the project and the user.
    pub scope: Option<ScopeWord>,
    /// The session whose own memories are recalled.
    pub session: Option<SessionId>,
    /// The directory whose memories are recalled.
    pub project: Option<std::sync::Arc<str>>,
    /// The maximum number of memories; 8 by default.
    pub limit: usize,
    /// The minimum relevance, from 0 to 1; 0.2 by default.
    pub min_score: f32,
    /// The maximum number of tokens of all of them, by [`estimate_tokens`]; 800 by default.
    pub max_tokens: usize,
}

impl Default for RecallOptions {
    fn default() -> Self {
        Self {
            scope: None,
            session: None,
            project: None,
            limit: 8,
            min_score: 0.2,
            max_tokens: 800,
        }
    }
}

impl RecallOptions {
    /// Returns the scopes whose records are candidates, narrowest first. A scope without its
    /// session or directory has none.
    pub fn scopes(&self) -> Vec<RecallScope> {
        let session = self.session.map(RecallScope::Session);
        let project = self.project.clone().map(RecallScope::Project);
        let all = [session, project, Some(RecallScope::User)];
        all.into_iter()
            .flatten()
            .filter(|scope| self.scope.is_none_or(|only| only == scope.word()))
            .collect()
    }
}

/// A memory and how relevant it is.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedMemory {
    /// The memory.
    pub record: MemoryRecord,
    /// Its relevance, from 0 to 1; comparable within one answer.
    pub score: f32,
    /// The number of tokens that it was counted with.
    pub tokens: usize,
}

/// A memory that may be recalled.
#[derive(Debug, Clone, PartialEq)]
pub struct RecallCandidate {
    /// The memory.
    pub record: MemoryRecord,
    /// Its vector by the embedder of the query, if it has one.
    pub vector: Option<MemoryVector>,
}

/// Tokens for the frame of one memory in the quoted block: id, kind, source, quotes.
const FRAME_TOKENS: usize = 40;

/// Estimates the tokens of a memory in a request: one for each four bytes of its text, rounded up,
/// and 40 for its frame. It is an estimate for every model, and never asks a tokenizer.
pub fn estimate_tokens(text: &str) -> usize {
    text.len().div_ceil(4) + FRAME_TOKENS
}

/// Returns the memories that are relevant to `query`, most relevant first.
///
/// The relevance is the greater of two numbers from 0 to 1: how much of the words they share (the
/// cosine of word weights, where rare words weigh more), and the similarity of their vectors, where
/// both have one of the same embedder. Of equally relevant memories the one that was used last comes
/// first, then the one that was used more often, then the newer one; so the same store gives the
/// same answer. A memory that does not fit into the rest of the budget is skipped.
pub fn rank_memories(
    query: &str,
    query_vector: Option<&MemoryVector>,
    candidates: Vec<RecallCandidate>,
    options: &RecallOptions,
) -> Vec<RankedMemory> {
    let scorer = WordScorer::new(query, &candidates);
    let mut ranked: Vec<RankedMemory> = candidates
        .into_iter()
        .enumerate()
        .map(|(at, candidate)| {
            let by_words = scorer.score(at);
            let vectors = query_vector.zip(candidate.vector.as_ref());
            let by_meaning = vectors.map_or(0.0, |(query, own)| query.similarity(own));
            RankedMemory {
                tokens: estimate_tokens(candidate.record.content.as_str()),
                score: round_score(by_words.max(by_meaning)),
                record: candidate.record,
            }
        })
        .filter(|ranked| ranked.score > 0.0 && ranked.score >= options.min_score)
        .collect();
    ranked.sort_by(compare_ranked);
    let mut left = options.max_tokens;
    ranked.retain(|ranked| match left.checked_sub(ranked.tokens) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    });
    ranked.truncate(options.limit);
    ranked
}

/// Rounds to thousandths: below that a difference means nothing, and tie-breakers decide.
fn round_score(score: f32) -> f32 {
    (score.clamp(0.0, 1.0) * 1000.0).round() / 1000.0
}

fn compare_ranked(a: &RankedMemory, b: &RankedMemory) -> Ordering {
    b.score
        .total_cmp(&a.score)
        .then_with(|| b.record.last_used_at().cmp(&a.record.last_used_at()))
        .then_with(|| b.record.uses.cmp(&a.record.uses))
        .then_with(|| b.record.id.cmp(&a.record.id))
}

/// Compares words by the cosine of their weights.
struct WordScorer {
    query: BTreeMap<String, f64>,
    query_length: f64,
    /// The words of each candidate, without repeats.
    words: Vec<Vec<String>>,
    /// The number of candidates that have a word.
    known: HashMap<String, usize>,
}

impl WordScorer {
    fn new(query: &str, candidates: &[RecallCandidate]) -> Self {
        let words: Vec<Vec<String>> = candidates
            .iter()
            .map(|candidate| distinct_words(candidate.record.content.as_str()))
            .collect();
        let mut known: HashMap<String, usize> = HashMap::new();
        for word in words.iter().flatten() {
            *known.entry_ref(word.as_str()).or_insert(0) += 1;
        }
        let mut scorer = Self {
            query: BTreeMap::new(),
            query_length: 0.0,
            words,
            known,
        };
        // A word that no memory has cannot tell them apart, and a long request has many of them.
        let query = distinct_words(query);
        scorer.query = query
            .into_iter()
            .filter(|word| scorer.known.contains_key(word))
            .map(|word| {
                let weight = scorer.weight(&word);
                (word, weight)
            })
            .collect();
        scorer.query_length = length(scorer.query.values());
        scorer
    }

    /// Returns the weight of a word: rare words weigh more.
    fn weight(&self, word: &str) -> f64 {
        let all = self.words.len() as f64;
        let with = self.known.get(word).copied().unwrap_or(0) as f64;
        (1.0 + all / (1.0 + with)).ln()
    }

    fn score(&self, at: usize) -> f32 {
        let own: Vec<f64> = self.words[at]
            .iter()
            .map(|word| self.weight(word))
            .collect();
        let lengths = self.query_length * length(own.iter());
        if lengths == 0.0 {
            return 0.0;
        }
        let shared = self.words[at].iter().zip(&own);
        let product: f64 = shared
            .filter_map(|(word, weight)| Some(self.query.get(word)? * weight))
            .sum();
        (product / lengths) as f32
    }
}

fn length<'a>(weights: impl Iterator<Item = &'a f64>) -> f64 {
    weights.map(|weight| weight * weight).sum::<f64>().sqrt()
}

fn distinct_words(text: &str) -> Vec<String> {
    let mut words = content_words(text);
    words.sort_unstable();
    words.dedup();
    words
}
