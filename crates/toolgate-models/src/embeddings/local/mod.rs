//! The embedding model that is part of the program: one vector per word piece, no network.

mod model_file;
#[cfg(test)]
mod tests;
mod word_pieces;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use futures::{FutureExt, future::BoxFuture};
use toolgate_core::{EmbedError, Embedder, EmbedderId};

#[cfg(feature = "http")]
pub(crate) use model_file::seal_file;
pub(crate) use model_file::{ModelFileError, StaticModel};
#[cfg(feature = "http")]
pub(crate) use word_pieces::for_each_word;

use super::normalize;

/// The model, made by `assets/distil.py`.
static MODEL_FILE: &[u8] = include_bytes!("../../../assets/minilm-static-256.bin");

/// The model in memory, which every [`LocalEmbedder`] of the process shares.
static SHARED: OnceLock<LoadedModel> = OnceLock::new();

type LoadedModel = Result<StaticModel<'static>, ModelFileError>;

/// The number of texts after which other tasks of the thread get their turn.
const TEXTS_PER_SLICE: usize = 32;

/// The embedding model that is built in: no key, no network, a few microseconds for a message.
///
/// It is distilled from all-MiniLM-L6-v2 into one vector per word piece. The vector of a text is the
/// sum of the vectors of its pieces, in which common words count little, scaled to length 1. So the
/// order of words means nothing to it, and it is made for English. Camel case, snake case and paths are
/// read as the words that they consist of. Of a text, the first 32 KiB count.
///
/// The model is loaded when the first text is embedded, and once per process.
///
/// ```
/// use toolgate_core::Embedder;
/// use toolgate_models::LocalEmbedder;
///
/// # futures::executor::block_on(async {
/// let embedder = LocalEmbedder::new();
/// let vectors = embedder.embed(&["the worker ran out of memory", "process eats all RAM", "a hotel at the lake"]).await?;
/// let similarity = |a: usize, b: usize| -> f32 { vectors[a].iter().zip(&vectors[b]).map(|(x, y)| x * y).sum() };
/// assert!(similarity(0, 1) > similarity(0, 2));
/// # Ok::<(), toolgate_core::EmbedError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct LocalEmbedder {
    id: EmbedderId,
    dimensions: usize,
    file: &'static [u8],
    model: ModelSlot,
}

/// The place of the loaded model.
#[derive(Clone)]
enum ModelSlot {
    /// The place that all embedders with the bundled file share.
    Shared,
    /// A place of its own, for another file.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests have other files"))]
    Own(Arc<OnceLock<LoadedModel>>),
}

impl LocalEmbedder {
    /// Creates the embedder. Nothing is loaded yet.
    pub fn new() -> Self {
        Self::of_file(MODEL_FILE, ModelSlot::Shared)
    }

    /// Creates an embedder with another file.
    #[cfg(test)]
    fn with_file(file: &'static [u8]) -> Self {
        Self::of_file(file, ModelSlot::Own(Arc::default()))
    }

    fn of_file(file: &'static [u8], model: ModelSlot) -> Self {
        Self {
            id: EmbedderId::new(&model_file::name_from_header(file)),
            dimensions: model_file::dimensions_from_header(file),
            file,
            model,
        }
    }

    fn cell(&self) -> &OnceLock<LoadedModel> {
        match &self.model {
            ModelSlot::Shared => &SHARED,
            ModelSlot::Own(cell) => cell,
        }
    }

    /// Loads the model unless it is loaded.
    async fn load(&self) -> Result<&StaticModel<'static>, EmbedError> {
        if self.cell().get().is_none() && tokio::runtime::Handle::try_current().is_ok() {
            let this = self.clone();
            let loading = tokio::task::spawn_blocking(move || {
                this.cell().get_or_init(|| StaticModel::parse(this.file));
            });
            // A runtime that shuts down runs nothing new; then the model is loaded here.
            drop(loading.await);
        }
        let loaded = self.cell().get_or_init(|| StaticModel::parse(self.file));
        loaded.as_ref().map_err(|error| EmbedError::Model {
            embedder: self.id.clone(),
            reason: error.to_string(),
        })
    }
}

impl Default for LocalEmbedder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEmbedder")
            .field("id", &self.id)
            .field("loaded", &self.cell().get().is_some())
            .finish_non_exhaustive()
    }
}

impl Embedder for LocalEmbedder {
    fn id(&self) -> &EmbedderId {
        &self.id
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [&'a str],
    ) -> BoxFuture<'a, Result<Vec<Vec<f32>>, EmbedError>> {
        async move {
            let model = self.load().await?;
            let mut vectors = Vec::with_capacity(texts.len());
            for slice in texts.chunks(TEXTS_PER_SLICE) {
                vectors.extend(slice.iter().map(|text| embed_text(model, text)));
                tokio::task::yield_now().await;
            }
            Ok(vectors)
        }
        .boxed()
    }
}

/// Returns the vector of one text.
pub(crate) fn embed_text(model: &StaticModel<'_>, text: &str) -> Vec<f32> {
    let mut vector = vec![0.0; model.dimensions()];
    word_pieces::for_each_word(text, |word| {
        word_pieces::for_each_piece(model, word, |piece| model.add_to(piece, &mut vector));
    });
    let finite = normalize(&mut vector);
    debug_assert!(
        finite,
        "scales are finite, and so are sums of a bounded text"
    );
    vector
}
