//! Embedders for tests: no model, no network, the same vectors always.

use std::{future, sync::Arc};

use futures::future::BoxFuture;
use toolgate_core::{EmbedError, Embedder, EmbedderId, split_words};

/// An embedder that adds up a vector for each word, so that texts with common words are similar.
///
/// Words can be declared to mean the same. With another id it makes other vectors.
#[derive(Debug, Clone)]
pub struct WordEmbedder {
    id: EmbedderId,
    synonyms: Arc<[(&'static str, &'static str)]>,
}

impl WordEmbedder {
    /// The number of dimensions of its vectors.
    pub const DIMENSIONS: usize = 64;

    /// Creates an embedder with an id.
    pub fn new(id: &str) -> Self {
        Self {
            id: EmbedderId::new(id),
            synonyms: Arc::new([]),
        }
    }

    /// Makes the first word of each pair mean the same as the second.
    #[must_use]
    pub fn with_synonyms(mut self, synonyms: &[(&'static str, &'static str)]) -> Self {
        self.synonyms = synonyms.into();
        self
    }

    fn embed_text(&self, text: &str) -> Vec<f32> {
        let mut vector = vec![0.0; Self::DIMENSIONS];
        for word in split_words(text) {
            let found = self.synonyms.iter().find(|(from, _)| *from == word.text);
            self.add_word(found.map_or(word.text.as_str(), |(_, to)| to), &mut vector);
        }
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        if length > 0.0 {
            vector.iter_mut().for_each(|value| *value /= length);
        }
        vector
    }

    fn add_word(&self, word: &str, vector: &mut [f32]) {
        let bytes = self.id.as_str().bytes().chain(word.bytes());
        let mut state = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        for value in vector {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *value += ((state >> 40) as f32 / (1_u64 << 23) as f32) - 1.0;
        }
    }
}

impl Embedder for WordEmbedder {
    fn id(&self) -> &EmbedderId {
        &self.id
    }

    fn dimensions(&self) -> usize {
        Self::DIMENSIONS
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [&'a str],
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
        let vectors = texts.iter().map(|text| self.embed_text(text)).collect();
        Box::pin(future::ready(Ok(vectors)))
    }
}

/// An embedder that counts the letters of a text, so that anagrams have the same vector and texts
/// without a common letter are similar to nothing.
///
/// ```
/// use toolgate_core::Embedder;
/// use toolgate_testkit::LetterEmbedder;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let vectors = LetterEmbedder::new("letters").embed(&["listen", "silent"]).await?;
/// assert_eq!(vectors[0], vectors[1]);
/// # Ok::<(), toolgate_core::EmbedError>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct LetterEmbedder(EmbedderId);

impl LetterEmbedder {
    /// Creates an embedder with this id.
    pub fn new(id: &str) -> Self {
        Self(EmbedderId::new(id))
    }
}

impl Embedder for LetterEmbedder {
    fn id(&self) -> &EmbedderId {
        &self.0
    }

    fn dimensions(&self) -> usize {
        26
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [&'a str],
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
        let vectors = texts.iter().map(|text| count_letters(text)).collect();
        Box::pin(future::ready(Ok(vectors)))
    }
}

/// Returns the number of each letter, as a vector of length 1.
fn count_letters(text: &str) -> Vec<f32> {
    let mut counts = vec![0.0_f32; 26];
    for letter in text.to_lowercase().bytes().filter(u8::is_ascii_lowercase) {
        counts[usize::from(letter - b'a')] += 1.0;
    }
    let length = counts.iter().map(|count| count * count).sum::<f32>().sqrt();
    if length > 0.0 {
        counts.iter_mut().for_each(|count| *count /= length);
    }
    counts
}
