//! An embedder for tests: no model, no network, the same vectors always.

use futures::future::BoxFuture;
use toolgate_core::{EmbedError, Embedder, EmbedderId};

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
        Box::pin(std::future::ready(Ok(vectors)))
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
