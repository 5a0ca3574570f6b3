//! Vectors of memories: made when a text is stored, and made again when the embedder is another one.

use std::{sync::Arc, time::Duration};

use toolgate_core::{Embedder, EmbedderId, MemoryVector, RecallCandidate, StoreHandle};

/// The time that an embedder may take. Without its answer, relevance is by words.
const EMBED_TIME: Duration = Duration::from_secs(10);

/// The number of vectors that are made again in one search.
const MAX_MADE_AGAIN: usize = 256;

/// The part of a query that is embedded, in bytes.
const MAX_QUERY_BYTES: usize = 4 * 1024;

/// An embedder with a limit on its time. A failure is logged, and there is no vector then.
#[derive(Clone)]
pub(crate) struct MemoryEmbedder(Arc<dyn Embedder>);

impl MemoryEmbedder {
    pub(crate) fn new(embedder: Arc<dyn Embedder>) -> Self {
        Self(embedder)
    }

    pub(crate) fn id(&self) -> &EmbedderId {
        self.0.id()
    }

    pub(crate) async fn embed_one(&self, text: &str) -> Option<MemoryVector> {
        self.embed(&[text]).await?.into_iter().next()
    }

    /// Returns a vector for each text, or nothing if the embedder does not answer as it has to.
    async fn embed(&self, texts: &[&str]) -> Option<Vec<MemoryVector>> {
        let embedder = self.0.id().clone();
        let answer = tokio::time::timeout(EMBED_TIME, self.0.embed(texts)).await;
        let dimensions = self.0.dimensions();
        match answer {
            Ok(Ok(vectors))
                if vectors.len() == texts.len()
                    && vectors.iter().all(|values| values.len() == dimensions) =>
            {
                let vectors = vectors.into_iter();
                Some(
                    vectors
                        .map(|values| MemoryVector::new(embedder.clone(), values))
                        .collect(),
                )
            }
            Ok(Ok(_)) => {
                tracing::warn!(%embedder, "the embedder returned vectors of another number or size");
                None
            }
            Ok(Err(error)) => {
                tracing::warn!(%embedder, "memories are compared by words: {error}");
                None
            }
            Err(_) => {
                tracing::warn!(%embedder, "memories are compared by words: no answer in time");
                None
            }
        }
    }

    /// Returns the vector of a query, and fills in the vectors that candidates do not have yet: they
    /// are new, or another embedder made theirs. All of it is one request.
    pub(crate) async fn complete(
        &self,
        store: &StoreHandle,
        query: &str,
        candidates: &mut [RecallCandidate],
    ) -> Option<MemoryVector> {
        let missing = candidates.iter_mut().filter(|known| known.vector.is_none());
        let missing: Vec<&mut RecallCandidate> = missing.take(MAX_MADE_AGAIN).collect();
        let contents: Vec<String> = { missing.iter() }
            .map(|candidate| candidate.record.content.to_string())
            .collect();
        let mut texts = vec![truncate(query)];
        texts.extend(contents.iter().map(String::as_str));
        let mut vectors = self.embed(&texts).await?.into_iter();
        let query_vector = vectors.next();
        for (candidate, vector) in missing.into_iter().zip(vectors) {
            let key = candidate.record.dedup_key();
            let put = store.put_memory_vector(candidate.record.id, key, vector.clone());
            // The next search makes it again.
            if let Err(error) = put.await {
                tracing::warn!("the vector of a memory was not stored: {error}");
            }
            candidate.vector = Some(vector);
        }
        query_vector
    }
}

fn truncate(query: &str) -> &str {
    let mut end = query.len().min(MAX_QUERY_BYTES);
    while !query.is_char_boundary(end) {
        end -= 1;
    }
    &query[..end]
}
