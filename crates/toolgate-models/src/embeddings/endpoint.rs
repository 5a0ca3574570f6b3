//! An embedder behind HTTP: any server with an OpenAI-compatible `/embeddings`.

use std::{fmt, ops::Range, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use toolgate_core::{EmbedError, Embedder, EmbedderId, ModelErrorKind};

use super::{MAX_DIMENSIONS, normalize};
use crate::{
    ApiKey, ModelBuilder, SetupError,
    wire::{
        errors::WireFailure,
        http::{AuthScheme, ModelEndpoint, WireSetup},
    },
};

/// The largest number of texts in one request.
const MAX_BATCH_TEXTS: usize = 96;
/// The largest number of bytes of texts in one request, unless one text alone has more.
const MAX_BATCH_BYTES: usize = 256 * 1024;
/// The number of bytes of a text that are sent: most models read 8,192 tokens, some only 512.
const MAX_TEXT_BYTES: usize = 8 * 1024;
/// The number of bytes that a number may take in an answer.
const BYTES_PER_NUMBER: usize = 32;
/// The number of bytes of an answer beside its numbers.
const BYTES_AROUND: usize = 64 * 1024;
/// How long an exchange may take by default.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An embedding model of a server with an OpenAI-compatible `/embeddings`: OpenAI itself, Ollama, vLLM,
/// llama.cpp, and many others.
///
/// The texts are sent to that server, in batches. Of a text, the first 8 KiB count. An answer with
/// another number of vectors or of dimensions, with a value that is no number, or of more bytes than such
/// vectors need is an error, and no vector of it is used.
///
/// ```
/// use toolgate_core::Embedder;
/// use toolgate_models::EndpointEmbedder;
///
/// let embedder = EndpointEmbedder::builder("nomic-embed-text", 768)
///     .base_url("http://127.0.0.1:11434/v1")
///     .build()?;
/// assert_eq!(embedder.id().as_str(), "http://127.0.0.1:11434/nomic-embed-text/768");
/// # Ok::<(), toolgate_models::SetupError>(())
/// ```
pub struct EndpointEmbedder {
    id: EmbedderId,
    model: String,
    dimensions: usize,
    endpoint: ModelEndpoint,
}

/// Configures an [`EndpointEmbedder`].
///
/// Without a base URL it is that of OpenAI, and the key is that of `OPENAI_API_KEY`. With a base URL, no
/// key is taken from the environment: it would be sent to a server that it is not for.
#[derive(Debug)]
pub struct EndpointEmbedderBuilder {
    model: String,
    dimensions: usize,
    wire: ModelBuilder<ModelEndpoint>,
}

impl EndpointEmbedder {
    /// Configures an embedder: the name of the model at the server, and the dimensions of its vectors.
    pub fn builder(model: &str, dimensions: usize) -> EndpointEmbedderBuilder {
        let wire = WireSetup {
            provider: "openai",
            base_url: Some("https://api.openai.com/v1"),
            key_variable: "OPENAI_API_KEY",
            auth: AuthScheme::Bearer,
            make: |endpoint| endpoint,
        };
        EndpointEmbedderBuilder {
            model: model.to_owned(),
            dimensions,
            wire: ModelBuilder::new(model, wire).start_timeout(TIMEOUT),
        }
    }

    /// Sends one batch, and puts its vectors in their places.
    async fn embed_batch(
        &self,
        texts: &[&str],
        places: &[usize],
        vectors: &mut [Vec<f32>],
    ) -> Result<(), EmbedError> {
        let request = EmbeddingsRequest {
            model: &self.model,
            input: places.iter().map(|at| first_bytes(texts[*at])).collect(),
            encoding_format: "float",
        };
        let body = serde_json::to_vec(&request)
            .map_err(|error| self.to_error(WireFailure::malformed(error.to_string())))?;
        let limit = BYTES_AROUND + places.len() * self.dimensions * BYTES_PER_NUMBER;
        let answer = self.endpoint.fetch_json(body, limit).await;
        let answer = answer.map_err(|failure| self.to_error(failure))?;
        let decoded = decode_answer(&answer, places.len(), self.dimensions);
        let decoded = decoded.map_err(|problem| self.to_error(WireFailure::malformed(problem)))?;
        for (at, vector) in places.iter().zip(decoded) {
            vectors[*at] = vector;
        }
        Ok(())
    }

    fn to_error(&self, failure: WireFailure) -> EmbedError {
        let advice = match failure.kind {
            ModelErrorKind::Auth => "; check the key of the endpoint",
            ModelErrorKind::NotFound => "; check the address and the name of the model",
            _ => "",
        };
        let detail = self.endpoint.to_model_error(failure);
        let status = detail.status.map(|status| format!("status {status}: "));
        EmbedError::Endpoint {
            address: self.endpoint.origin(),
            reason: format!("{}{}{advice}", status.unwrap_or_default(), detail.detail),
        }
    }
}

impl Embedder for EndpointEmbedder {
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
            let mut vectors = vec![vec![0.0; self.dimensions]; texts.len()];
            // Servers reject a text without content. It is similar to nothing anyway.
            let places: Vec<usize> = (0..texts.len())
                .filter(|at| !first_bytes(texts[*at]).trim().is_empty())
                .collect();
            for batch in split_batches(texts, &places) {
                self.embed_batch(texts, &places[batch], &mut vectors)
                    .await?;
            }
            Ok(vectors)
        }
        .boxed()
    }
}

impl fmt::Debug for EndpointEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointEmbedder")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl EndpointEmbedderBuilder {
    /// Sets the address before `/embeddings`, as in `https://api.openai.com/v1`.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.wire = self.wire.base_url(url);
        self
    }

    /// Sets the key that is sent with every request.
    #[must_use]
    pub fn key(mut self, key: ApiKey) -> Self {
        self.wire = self.wire.key(key);
        self
    }

    /// Sets how long one request may take, with its answer; 60 s by default.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.wire = self.wire.start_timeout(limit);
        self
    }

    /// Builds the embedder. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// Fails if the address, the key or the dimensions cannot be used, or if the key of OpenAI is missing.
    pub fn build(self) -> Result<EndpointEmbedder, SetupError> {
        if self.dimensions == 0 || self.dimensions > MAX_DIMENSIONS {
            return Err(SetupError::InvalidDimensions {
                found: self.dimensions,
                most: MAX_DIMENSIONS,
            });
        }
        let endpoint = self.wire.build()?;
        let id = format!("{}/{}/{}", endpoint.origin(), self.model, self.dimensions);
        Ok(EndpointEmbedder {
            id: EmbedderId::new(&id),
            model: self.model,
            dimensions: self.dimensions,
            endpoint: endpoint.with_path(["embeddings"]),
        })
    }
}

#[derive(Serialize)]
struct EmbeddingsRequest<'a> {
    model: &'a str,
    input: Vec<&'a str>,
    encoding_format: &'static str,
}

#[derive(Deserialize)]
struct EmbeddingsAnswer {
    data: Vec<AnsweredVector>,
}

#[derive(Deserialize)]
struct AnsweredVector {
    /// The place in the request. Some servers leave it out and answer in order.
    index: Option<usize>,
    embedding: Vec<f32>,
}

/// Returns the vectors of an answer in the order of the request, each of length 1.
fn decode_answer(answer: &[u8], count: usize, dimensions: usize) -> Result<Vec<Vec<f32>>, String> {
    let answer: EmbeddingsAnswer = serde_json::from_slice(answer)
        .map_err(|error| format!("the answer is not a list of embeddings: {error}"))?;
    let found = answer.data.len();
    if found != count {
        return Err(format!("it returned {found} vectors for {count} texts"));
    }
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; count];
    for (at, item) in answer.data.into_iter().enumerate() {
        let index = item.index.unwrap_or(at);
        let found = item.embedding.len();
        if found != dimensions {
            return Err(format!(
                "its vectors have {found} dimensions instead of {dimensions}; set the dimensions to {found}"
            ));
        }
        let mut vector = item.embedding;
        if !normalize(&mut vector) {
            return Err("a vector has a value that is not a number".to_owned());
        }
        match vectors.get_mut(index) {
            Some(place @ None) => *place = Some(vector),
            Some(Some(_)) => return Err(format!("it returned two vectors for text {index}")),
            None => return Err(format!("it returned a vector for text {index} of {count}")),
        }
    }
    // As many vectors as places, and none twice: each place is filled.
    Ok(vectors.into_iter().flatten().collect())
}

/// Splits the places of texts into ranges that are one request each.
fn split_batches(texts: &[&str], places: &[usize]) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let mut start = 0;
    let mut bytes = 0;
    for (at, place) in places.iter().enumerate() {
        let length = first_bytes(texts[*place]).len();
        let full = at - start == MAX_BATCH_TEXTS || bytes + length > MAX_BATCH_BYTES;
        if full && at > start {
            batches.push(start..at);
            start = at;
            bytes = 0;
        }
        bytes += length;
    }
    if start < places.len() {
        batches.push(start..places.len());
    }
    batches
}

fn first_bytes(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn embedder() -> EndpointEmbedderBuilder {
        EndpointEmbedder::builder("m", 2).base_url("https://embed.example.com/v1")
    }

    #[test]
    fn the_id_names_server_model_and_dimensions_and_no_secret() {
        let key = ApiKey::new("sk-canary-0123456789").expect("a key");
        let embedder = embedder().key(key).build().expect("fine");
        assert_eq!(embedder.id().as_str(), "https://embed.example.com/m/2");
        let shown = format!("{embedder:?}");
        assert!(!shown.contains("canary"), "{shown}");
        let path = EndpointEmbedder::builder("m", 2).base_url("http://h:1/secret/v1?token=hunter2");
        let path = path.build().expect("fine");
        assert_eq!(path.id().as_str(), "http://h:1/m/2");
    }

    #[test]
    fn dimensions_that_cannot_be_are_rejected() {
        for dimensions in [0, MAX_DIMENSIONS + 1] {
            let builder = EndpointEmbedder::builder("m", dimensions).base_url("http://h/v1");
            let error = builder.build().expect_err("rejected").to_string();
            assert!(error.contains(&dimensions.to_string()), "{error}");
        }
    }

    #[test]
    fn vectors_are_returned_in_the_order_of_the_texts() {
        let answer = br#"{"data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[3,4]}],"model":"x"}"#;
        let vectors = decode_answer(answer, 2, 2).expect("valid");
        assert_eq!(vectors, [[0.6, 0.8], [0.0, 1.0]]);
        let unnumbered = br#"{"data":[{"embedding":[0,0]},{"embedding":[3,4]}]}"#;
        let vectors = decode_answer(unnumbered, 2, 2).expect("valid");
        assert_eq!(vectors, [[0.0, 0.0], [0.6, 0.8]]);
    }

    #[test]
    fn an_answer_that_does_not_fit_the_texts_is_an_error() {
        for (answer, expected) in [
            (
                r#"{"data":[{"index":0,"embedding":[1,2]}]}"#,
                "1 vectors for 2 texts",
            ),
            (
                r#"{"data":[{"index":0,"embedding":[1,2]},{"index":0,"embedding":[1,2]}]}"#,
                "two vectors for text 0",
            ),
            (
                r#"{"data":[{"index":0,"embedding":[1,2]},{"index":9,"embedding":[1,2]}]}"#,
                "text 9 of 2",
            ),
            (
                r#"{"data":[{"index":0,"embedding":[1,2,3]},{"index":1,"embedding":[1,2,3]}]}"#,
                "3 dimensions instead of 2",
            ),
            (
                r#"{"data":[{"index":0,"embedding":[1,null]},{"index":1,"embedding":[1,2]}]}"#,
                "not a list of embeddings",
            ),
            (
                r#"{"data":[{"index":0,"embedding":[NaN,1]},{"index":1,"embedding":[1,2]}]}"#,
                "not a list of embeddings",
            ),
            (
                r#"{"data":[{"index":0,"embedding":[1e39,1]},{"index":1,"embedding":[1,2]}]}"#,
                "number",
            ),
            (r#"{"error":"no"}"#, "not a list of embeddings"),
            ("", "not a list of embeddings"),
        ] {
            let error = decode_answer(answer.as_bytes(), 2, 2).expect_err(answer);
            assert!(error.contains(expected), "{answer}: {error}");
        }
    }

    proptest! {
        #[test]
        fn batches_are_bounded_and_hold_each_text_once(sizes in prop::collection::vec(0_usize..20_000, 0..400)) {
            let text = "x".repeat(20_000);
            let texts: Vec<&str> = sizes.iter().map(|size| &text[..*size]).collect();
            let places: Vec<usize> = (0..texts.len()).collect();
            let batches = split_batches(&texts, &places);
            let all: Vec<usize> = batches.iter().flat_map(|batch| places[batch.clone()].to_vec()).collect();
            prop_assert_eq!(all, places);
            for batch in batches {
                prop_assert!(!batch.is_empty() && batch.len() <= MAX_BATCH_TEXTS);
                let bytes: usize = batch.map(|at| first_bytes(texts[at]).len()).sum();
                prop_assert!(bytes <= MAX_BATCH_BYTES);
            }
        }

        #[test]
        fn any_answer_is_decoded_or_an_error(answer in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode_answer(&answer, 1, 1);
        }
    }
}
