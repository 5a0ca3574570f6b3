//! Vectors as bytes, and the scan that finds the nearest ones.

use std::cmp::Reverse;

use hashbrown::HashSet;

use crate::{RankedDocument, SearchDocumentId};

/// The number of vectors up to which a scan compares all of them exactly. Above it, one bit per
/// dimension finds candidates first.
const MAX_EXACT: usize = 100_000;

/// The number of candidates of the first stage, per wanted hit. Each one is a look-up, and a million
/// vectors were searched in half the time with 2 instead of 10.
const COARSE_FACTOR: usize = 2;

/// The number of rows of signs whose distances are computed before any is looked at.
const SCANNED_AT_ONCE: usize = 256;

/// Returns the bytes of a vector: its scale, and each dimension in 8 bits.
pub fn encode_vector(vector: &[f32]) -> Vec<u8> {
    let largest = vector
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    let scale = if largest.is_finite() && largest > 0.0 {
        largest / 127.0
    } else {
        0.0
    };
    let mut bytes = Vec::with_capacity(4 + vector.len());
    bytes.extend(scale.to_le_bytes());
    let quantize = |value: &f32| {
        let steps = if scale > 0.0 {
            (value / scale).round()
        } else {
            0.0
        };
        (steps.clamp(-127.0, 127.0) as i8).cast_unsigned()
    };
    bytes.extend(vector.iter().map(quantize));
    bytes
}

/// Returns the scale of a stored vector, and its dimensions in steps of the scale; none if it is
/// damaged.
pub fn decode_vector(stored: &[u8]) -> Option<(f32, Vec<i8>)> {
    let (scale, values) = split_vector(stored)?;
    let steps = values.iter().map(|byte| byte.cast_signed());
    Some((scale, steps.collect()))
}

/// Returns the signs of a vector, one bit per dimension.
pub fn encode_signs(vector: &[f32]) -> Vec<u8> {
    let bits = vector.chunks(8).map(|chunk| {
        let set = |byte: u8, (bit, value): (usize, &f32)| byte | (u8::from(*value > 0.0) << bit);
        chunk.iter().enumerate().fold(0, set)
    });
    bits.collect()
}

/// The vectors of one embedder, in memory: all of them, or only their signs if there are many.
#[derive(Debug, Clone)]
pub struct VectorIndex {
    dimensions: usize,
    ids: Vec<SearchDocumentId>,
    scales: Vec<f32>,
    values: Vec<i8>,
    signs: Vec<u64>,
    is_coarse: bool,
    most_exact: usize,
}

/// The result of a scan.
#[derive(Debug, Clone, PartialEq)]
pub enum NearestVectors {
    /// The nearest documents with their similarity.
    Exact(Vec<RankedDocument>),
    /// Candidates: their vectors have to be compared with [`VectorQuery::similarity`].
    Coarse(Vec<SearchDocumentId>),
}

/// A vector to compare others with.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorQuery {
    scale: f32,
    values: Vec<i8>,
    signs: Vec<u64>,
}

impl VectorQuery {
    /// Prepares a vector.
    pub fn new(vector: &[f32]) -> Self {
        let bytes = encode_vector(vector);
        let (scale, values) = split_vector(&bytes).unwrap_or_default();
        Self {
            scale,
            values: values.iter().map(|byte| byte.cast_signed()).collect(),
            signs: sign_words(&encode_signs(vector)).collect(),
        }
    }

    /// Returns what one step of a dimension is worth.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// Returns the dimensions in steps of the scale.
    pub fn steps(&self) -> &[i8] {
        &self.values
    }

    /// Returns the similarity with a stored vector; none if it has other dimensions.
    pub fn similarity(&self, stored: &[u8]) -> Option<f32> {
        let (scale, values) = decode_vector(stored)?;
        (values.len() == self.values.len())
            .then(|| dot_product(&self.values, &values) as f32 * scale * self.scale)
    }
}

impl VectorIndex {
    /// Creates an index for vectors with this number of dimensions. With `expected` vectors or more,
    /// it may hold only signs.
    pub fn new(dimensions: usize, expected: usize) -> Self {
        Self::with_limit(dimensions, expected, MAX_EXACT)
    }

    fn with_limit(dimensions: usize, expected: usize, most_exact: usize) -> Self {
        Self {
            dimensions,
            ids: Vec::new(),
            scales: Vec::new(),
            values: Vec::new(),
            signs: Vec::new(),
            is_coarse: expected > most_exact,
            most_exact,
        }
    }

    /// Checks whether it needs only the signs of vectors.
    pub fn is_coarse(&self) -> bool {
        self.is_coarse
    }

    /// Returns the number of vectors.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Checks whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Adds a vector as [`encode_vector`] wrote it. Vectors of other dimensions are ignored.
    pub fn add_vector(&mut self, id: SearchDocumentId, stored: &[u8]) {
        let Some((scale, values)) = split_vector(stored) else {
            return;
        };
        if values.len() != self.dimensions {
            return;
        }
        let plain: Vec<f32> = values
            .iter()
            .map(|byte| f32::from(byte.cast_signed()))
            .collect();
        self.ids.push(id);
        self.signs.extend(sign_words(&encode_signs(&plain)));
        if self.is_coarse {
            return;
        }
        self.scales.push(scale);
        self.values
            .extend(values.iter().map(|byte| byte.cast_signed()));
        if self.ids.len() > self.most_exact {
            self.is_coarse = true;
            self.scales = Vec::new();
            self.values = Vec::new();
        }
    }

    /// Adds only the signs of a vector, as [`encode_signs`] wrote them. After that, the index is
    /// [coarse](Self::is_coarse).
    pub fn add_signs(&mut self, id: SearchDocumentId, signs: &[u8]) {
        if signs.len() == self.dimensions.div_ceil(8) {
            self.is_coarse = true;
            self.ids.push(id);
            self.signs.extend(sign_words(signs));
        }
    }

    /// Returns the nearest documents among those that are allowed.
    pub fn nearest(
        &self,
        query: &VectorQuery,
        allowed: Option<&HashSet<SearchDocumentId>>,
        limit: usize,
    ) -> NearestVectors {
        if query.values.len() != self.dimensions {
            return NearestVectors::Exact(Vec::new());
        }
        let is_allowed = |id: SearchDocumentId| allowed.is_none_or(|allowed| allowed.contains(&id));
        if self.is_coarse {
            let words = self.dimensions.div_ceil(64);
            let most = limit.saturating_mul(COARSE_FACTOR);
            let mut nearest = SignScan::new(&self.ids, most, is_allowed);
            let rows = self.signs.chunks(words * SCANNED_AT_ONCE);
            rows.enumerate().for_each(|(chunk, signs)| {
                nearest.add_rows(
                    chunk * SCANNED_AT_ONCE,
                    signs.chunks_exact(words),
                    &query.signs,
                );
            });
            return NearestVectors::Coarse(nearest.into_ids());
        }
        let vectors = self.values.chunks_exact(self.dimensions);
        let rows = self.ids.iter().zip(&self.scales).zip(vectors);
        let ranked = rows
            .filter(|((id, _), _)| is_allowed(**id))
            .map(|((id, scale), values)| {
                let score = dot_product(&query.values, values) as f32 * scale * query.scale;
                RankedDocument { id: *id, score }
            });
        NearestVectors::Exact(best_documents(ranked, limit))
    }
}

/// The nearest rows of signs so far.
struct SignScan<'i, F> {
    ids: &'i [SearchDocumentId],
    most: usize,
    is_allowed: F,
    kept: Vec<SignDistance>,
    /// Rows with more differences are not among the nearest.
    farthest: u32,
}

/// The number of bits in which a row differs. Of equally distant documents the newer one is first.
type SignDistance = (u32, Reverse<SearchDocumentId>);

impl<'i, F: Fn(SearchDocumentId) -> bool> SignScan<'i, F> {
    fn new(ids: &'i [SearchDocumentId], most: usize, is_allowed: F) -> Self {
        Self {
            ids,
            most,
            is_allowed,
            kept: Vec::new(),
            farthest: u32::MAX,
        }
    }

    /// Adds rows, of which the first one has this number.
    fn add_rows<'s>(&mut self, first: usize, rows: impl Iterator<Item = &'s [u64]>, query: &[u64]) {
        // All distances first: a loop without branches becomes vector instructions.
        let mut distances = [u32::MAX; SCANNED_AT_ONCE];
        for (distance, signs) in distances.iter_mut().zip(rows) {
            *distance = count_differences(query, signs);
        }
        let ids = self.ids.get(first..).unwrap_or_default();
        for (distance, id) in distances.iter().zip(ids) {
            // Far fewer rows are near enough than are allowed, so the distance is checked first.
            if *distance <= self.farthest && (self.is_allowed)(*id) {
                self.kept.push((*distance, Reverse(*id)));
                if self.kept.len() >= self.most.saturating_mul(2).max(16) {
                    self.drop_farther_half();
                }
            }
        }
    }

    fn drop_farther_half(&mut self) {
        if self.most < self.kept.len() {
            self.kept.select_nth_unstable(self.most);
            self.kept.truncate(self.most);
        }
        let farthest = self.kept.iter().map(|(distance, _)| *distance).max();
        self.farthest = farthest.unwrap_or(0);
    }

    fn into_ids(mut self) -> Vec<SearchDocumentId> {
        self.kept.sort_unstable();
        // Two processes may have stored the vector of a document at the same time.
        self.kept.dedup_by_key(|(_, id)| *id);
        self.kept.truncate(self.most);
        self.kept.into_iter().map(|(_, id)| id.0).collect()
    }
}

/// Returns the best documents, best first, each once.
pub fn best_documents(
    ranked: impl Iterator<Item = RankedDocument>,
    limit: usize,
) -> Vec<RankedDocument> {
    // Twice the limit is collected before the worse half is dropped: cheaper than a heap per row.
    let room = limit.saturating_mul(2).max(16);
    let mut best: Vec<RankedDocument> = Vec::with_capacity(room.min(4_096));
    let mut worst = f32::NEG_INFINITY;
    for hit in ranked {
        if hit.score < worst {
            continue;
        }
        best.push(hit);
        if best.len() >= room {
            best.sort_unstable_by(RankedDocument::compare_rank);
            best.truncate(limit);
            worst = best.last().map_or(worst, |last| last.score);
        }
    }
    best.sort_unstable_by(RankedDocument::compare_rank);
    // Two processes may have stored the vector of a document at the same time.
    let mut seen = HashSet::new();
    best.retain(|hit| seen.insert(hit.id));
    best.truncate(limit);
    best
}

fn split_vector(stored: &[u8]) -> Option<(f32, &[u8])> {
    let (scale, values) = stored.split_first_chunk::<4>()?;
    let scale = f32::from_le_bytes(*scale);
    scale.is_finite().then_some((scale, values))
}

/// Multiplies in chunks of a fixed size, which the compiler turns into vector instructions.
fn dot_product(a: &[i8], b: &[i8]) -> i32 {
    const LANES: usize = 32;
    let chunks = a.chunks_exact(LANES).zip(b.chunks_exact(LANES));
    let whole: i32 = chunks
        .map(|(a, b)| {
            let products = a
                .iter()
                .zip(b)
                .map(|(a, b)| i32::from(i16::from(*a) * i16::from(*b)));
            products.sum::<i32>()
        })
        .sum();
    let done = a.len().min(b.len()) / LANES * LANES;
    let rest = a[done..].iter().zip(&b[done..]);
    whole
        + rest
            .map(|(a, b)| i32::from(*a) * i32::from(*b))
            .sum::<i32>()
}

fn count_differences(a: &[u64], b: &[u64]) -> u32 {
    // 256 dimensions, the usual number: a loop of known length becomes vector instructions.
    if let (Ok(a), Ok(b)) = (<&[u64; 4]>::try_from(a), <&[u64; 4]>::try_from(b)) {
        return (0..4).map(|at| (a[at] ^ b[at]).count_ones()).sum();
    }
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

fn sign_words(signs: &[u8]) -> impl Iterator<Item = u64> + '_ {
    signs.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unit(vector: &[f32]) -> Vec<f32> {
        let length = vector
            .iter()
            .map(|value| value * value)
            .sum::<f32>()
            .sqrt()
            .max(1e-9);
        vector.iter().map(|value| value / length).collect()
    }

    fn index(vectors: &[Vec<f32>], most_exact: usize) -> VectorIndex {
        let mut index = VectorIndex::with_limit(vectors[0].len(), 0, most_exact);
        for (number, vector) in vectors.iter().enumerate() {
            let id = SearchDocumentId::new(number as i64);
            index.add_vector(id, &encode_vector(vector));
        }
        index
    }

    #[test]
    fn a_vector_is_most_similar_to_itself() {
        let vectors =
            [[1.0, 0.0, 0.2], [0.0, 1.0, 0.0], [0.7, 0.7, 0.0]].map(|vector| unit(&vector));
        let found = index(&vectors, 10).nearest(&VectorQuery::new(&vectors[2]), None, 2);
        let NearestVectors::Exact(found) = found else {
            panic!("few vectors are compared exactly");
        };
        assert_eq!(found[0].id.get(), 2);
        assert!((found[0].score - 1.0).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn many_vectors_are_compared_in_two_stages() {
        let vectors: Vec<Vec<f32>> = (0..40)
            .map(|n| {
                unit(
                    &(0..64)
                        .map(|d| ((n * 31 + d * 17) % 23) as f32 - 11.0)
                        .collect::<Vec<_>>(),
                )
            })
            .collect();
        let index = index(&vectors, 10);
        assert!(index.is_coarse() && index.values.is_empty());
        let query = VectorQuery::new(&vectors[7]);
        let NearestVectors::Coarse(found) = index.nearest(&query, None, 1) else {
            panic!("many vectors are compared by their signs first");
        };
        assert!(found.contains(&SearchDocumentId::new(7)));
        let exact = query
            .similarity(&encode_vector(&vectors[7]))
            .expect("the same dimensions");
        assert!((exact - 1.0).abs() < 0.02);
    }

    #[test]
    fn a_scan_of_signs_finds_the_nearest_allowed_ones_and_of_equal_ones_the_newest() {
        // Vector n has n mod 61 negative dimensions, so that many are equally far from the query.
        let vector = |n: usize| {
            let sign = |d: usize| if d < n % 61 { -1.0 } else { 1.0 };
            unit(&(0..64).map(sign).collect::<Vec<f32>>())
        };
        let count = 3 * SCANNED_AT_ONCE + 7;
        let vectors: Vec<Vec<f32>> = (0..count).map(vector).collect();
        let index = index(&vectors, 10);
        let odd = (0..count).filter(|n| n % 2 == 1);
        let odd: HashSet<SearchDocumentId> = odd.map(|n| SearchDocumentId::new(n as i64)).collect();
        let query = VectorQuery::new(&vector(0));
        for allowed in [None, Some(&odd)] {
            let is_allowed = |n: &usize| {
                allowed.is_none_or(|odd| odd.contains(&SearchDocumentId::new(*n as i64)))
            };
            let mut wanted: Vec<usize> = (0..count).filter(is_allowed).collect();
            wanted.sort_by_key(|n| (n % 61, Reverse(*n)));
            wanted.truncate(20 * COARSE_FACTOR);
            let NearestVectors::Coarse(found) = index.nearest(&query, allowed, 20) else {
                panic!("many vectors are compared by their signs first");
            };
            let found: Vec<usize> = found.iter().map(|id| id.get() as usize).collect();
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn vectors_of_other_dimensions_are_never_compared() {
        let index = index(&[vec![1.0, 0.0]], 10);
        assert_eq!(
            index.nearest(&VectorQuery::new(&[1.0]), None, 5),
            NearestVectors::Exact(vec![])
        );
        assert_eq!(
            VectorQuery::new(&[1.0]).similarity(&encode_vector(&[1.0, 0.0])),
            None
        );
    }

    proptest! {
        #[test]
        fn stored_vectors_keep_their_similarity(a in prop::collection::vec(-1.0_f32..1.0, 40), b in prop::collection::vec(-1.0_f32..1.0, 40)) {
            let a = unit(&a);
            let b = unit(&b);
            let exact: f32 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
            let found = VectorQuery::new(&a).similarity(&encode_vector(&b)).expect("the same dimensions");
            prop_assert!((exact - found).abs() < 0.03, "{exact} {found}");
        }
    }
}
