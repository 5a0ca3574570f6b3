//! The trait that turns texts into vectors, for search and for memory.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;

/// A model that turns texts into vectors, so that texts of similar meaning are near each other.
///
/// Vectors of different embedders are never compared: what is stored names the embedder that made
/// it, by its [`EmbedderId`].
pub trait Embedder: Send + Sync + 'static {
    /// Returns the id of the embedder: the same id always stands for the same vectors.
    fn id(&self) -> &EmbedderId;

    /// Returns the number of dimensions of each vector.
    fn dimensions(&self) -> usize;

    /// Returns a vector of length 1 for each text, in their order.
    ///
    /// A text without a word that the embedder knows gets a vector of zeros, which is similar to
    /// nothing.
    ///
    /// # Errors
    ///
    /// Fails if the model cannot be loaded, or if its endpoint does not answer.
    fn embed<'a>(
        &'a self,
        texts: &'a [&'a str],
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>>;
}

impl<E: Embedder + ?Sized> Embedder for Arc<E> {
    fn id(&self) -> &EmbedderId {
        (**self).id()
    }

    fn dimensions(&self) -> usize {
        (**self).dimensions()
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [&'a str],
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
        (**self).embed(texts)
    }
}

/// The id of an embedder: its model and the version of how it is used.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EmbedderId(Arc<str>);

impl EmbedderId {
    /// Creates an id.
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EmbedderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reason texts could not be turned into vectors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// The model could not be loaded.
    #[error("the embedding model {embedder} cannot be loaded: {reason}")]
    Model {
        /// The embedder.
        embedder: EmbedderId,
        /// The problem.
        reason: String,
    },
    /// The endpoint did not answer as it has to.
    #[error("the embeddings endpoint {address} failed: {reason}")]
    Endpoint {
        /// Its address, without credentials.
        address: String,
        /// The problem.
        reason: String,
    },
}
