//! The vector of a memory, with the embedder that made it.

use crate::{EmbedderId, MemoryId};

/// The vector of a memory. Vectors of different embedders are never compared.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryVector {
    /// The embedder that made it.
    pub embedder: EmbedderId,
    /// The values; the length of the vector is 1, or 0 if no word is known.
    pub values: Vec<f32>,
}

impl MemoryVector {
    /// Creates a vector. One of another length is normalised; one that is not a number everywhere
    /// becomes a vector of zeros, which is similar to nothing.
    pub fn new(embedder: EmbedderId, mut values: Vec<f32>) -> Self {
        let length = values
            .iter()
            .map(|value| f64::from(*value) * f64::from(*value))
            .sum::<f64>()
            .sqrt();
        for value in &mut values {
            *value = if length.is_finite() && length > 0.0 {
                (f64::from(*value) / length) as f32
            } else {
                0.0
            };
        }
        Self { embedder, values }
    }

    /// Returns the bytes that a store keeps.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    /// Reads the bytes of [`MemoryVector::to_bytes`]. Returns `None` if they are damaged.
    pub fn from_bytes(embedder: &str, bytes: &[u8]) -> Option<Self> {
        let (values, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return None;
        }
        let values: Vec<f32> = values
            .iter()
            .map(|value| f32::from_le_bytes(*value))
            .collect();
        values.iter().all(|value| value.is_finite()).then(|| Self {
            embedder: EmbedderId::new(embedder),
            values,
        })
    }

    /// Returns the similarity: 1 for the same direction, 0 for nothing in common, and 0 for vectors
    /// of another embedder.
    pub fn similarity(&self, other: &Self) -> f32 {
        if self.embedder != other.embedder || self.values.len() != other.values.len() {
            return 0.0;
        }
        // In this order always, so that the same vectors give the same number.
        let product: f64 = self
            .values
            .iter()
            .zip(&other.values)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum();
        (product as f32).clamp(0.0, 1.0)
    }

    /// Returns those of `others` that are at least as similar as `threshold`, the nearest first; of two
    /// that are equally near, the older one.
    pub fn find_near<'a>(
        &self,
        others: impl IntoIterator<Item = (MemoryId, &'a Self)>,
        threshold: f32,
    ) -> Vec<MemoryId> {
        let scored = others
            .into_iter()
            .map(|(id, vector)| (self.similarity(vector), id));
        let mut near: Vec<_> = scored
            .filter(|(score, _)| *score >= threshold && *score > 0.0)
            .collect();
        near.sort_unstable_by(|(a, older), (b, newer)| b.total_cmp(a).then(older.cmp(newer)));
        near.into_iter().map(|(_, id)| id).collect()
    }
}
