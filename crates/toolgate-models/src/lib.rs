//! Models for Toolgate: one module per wire format, a scripted model, and recording and replaying.
//!
//! Everything here is a [`Model`](toolgate_core::Model): it takes a request and streams deltas of a
//! reply, and at last the whole reply. `open` finds a model by its name and takes keys from the
//! environment; the builders (`OpenAiResponses::builder`, `OpenAiChat::compatible`…) take them from
//! code. [`ScriptedModel`] needs no network, and [`RecordingModel`] and [`ReplayModel`] store what a real model
//! replied and play it back.
//!
//! ```
//! use futures::StreamExt;
//! use toolgate_core::{Delta, Message, Model, ModelRequest};
//! use toolgate_models::{ScriptLine, ScriptedModel};
//!
//! # futures::executor::block_on(async {
//! let model = ScriptedModel::new([ScriptLine::new().say("Four files.")]);
//! let request = ModelRequest { messages: vec![Message::user("What is here?").into()], ..ModelRequest::default() };
//! let mut reply = model.reply(&request);
//! while let Some(Ok(delta)) = reply.next().await {
//!     if let Delta::Done(whole) = delta {
//!         assert_eq!(whole.message.text(), "Four files.");
//!     }
//! }
//! # });
//! ```
//!
//! `LocalEmbedder` and `EndpointEmbedder` turn texts into vectors, for search.
//!
//! Choosing among models, retrying after an error, counting what replies cost and running the calls
//! they contain are left to the runtime. No key ever becomes part of an error, a `{:?}` or a
//! recording.

mod cassette;
#[cfg(any(feature = "http", feature = "local-embeddings"))]
mod embeddings;
mod prices;
#[cfg(feature = "http")]
mod providers;
mod scripted;
mod wire;

pub use cassette::CassetteError;
pub use cassette::record::RecordingModel;
pub use cassette::replay::ReplayModel;
#[cfg(feature = "http")]
pub use embeddings::endpoint::{EndpointEmbedder, EndpointEmbedderBuilder};
#[cfg(feature = "local-embeddings")]
pub use embeddings::local::LocalEmbedder;
pub use prices::{PriceFileError, bundled_prices, load_prices_over};
#[cfg(feature = "http")]
pub use providers::anthropic::{Anthropic, Thinking};
#[cfg(feature = "http")]
pub use providers::builder::ModelBuilder;
#[cfg(feature = "http")]
pub use providers::gemini::Gemini;
#[cfg(feature = "http")]
pub use providers::local_servers::{LocalServer, find_local_servers};
#[cfg(feature = "http")]
pub use providers::openai_chat::OpenAiChat;
#[cfg(feature = "http")]
pub use providers::openai_responses::OpenAiResponses;
#[cfg(feature = "http")]
pub use providers::setup::SetupError;
#[cfg(feature = "http")]
pub use providers::tool_dialect::ToolDialect;
#[cfg(feature = "http")]
pub use providers::{KEY_VARIABLES, ModelAddress, PROVIDERS, open_model, open_model_at};
pub use scripted::ScriptedModel;
pub use scripted::scenario::ScenarioError;
pub use scripted::script::{LineCondition, ScriptLine};
#[cfg(feature = "http")]
pub use wire::secret::ApiKey;

/// Doors for the fuzz targets in `fuzz/`; not for other use.
#[doc(hidden)]
#[cfg(feature = "http")]
pub mod __fuzz {
    use crate::{cassette::count_exchanges_in, wire::sse::parse_pieces};

    /// The events with their names, or the reason why the stream is not valid.
    pub type SseResult = Result<Vec<(String, String)>, String>;

    /// Parses server-sent events that arrive in pieces.
    pub fn parse_sse<'a>(limit: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> SseResult {
        let events = parse_pieces(limit, pieces).map_err(|error| error.to_string())?;
        let pairs = events.into_iter().map(|event| (event.name, event.data));
        Ok(pairs.collect())
    }

    /// Writes a file of a static embedding model around these bytes, with a true checksum; reads it,
    /// embeds a text, and returns the length of the vector.
    #[cfg(feature = "local-embeddings")]
    pub fn embed_with(header: [u32; 3], body: &[u8], text: &str) -> Result<f32, String> {
        use crate::embeddings::local::{StaticModel, embed_text, seal_file};
        let file = seal_file(header, body);
        let model = StaticModel::parse(&file).map_err(|error| error.to_string())?;
        let vector = embed_text(&model, text);
        Ok(vector.iter().map(|value| value * value).sum::<f32>().sqrt())
    }

    /// Returns the words that the local embedder reads in a text.
    #[cfg(feature = "local-embeddings")]
    pub fn embedded_words(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        crate::embeddings::local::for_each_word(text, |word| words.push(word.to_owned()));
        words
    }

    /// Loads a cassette and returns the number of its exchanges.
    pub fn count_exchanges(cassette: &[u8]) -> Result<usize, String> {
        count_exchanges_in(cassette).map_err(|error| error.to_string())
    }
}
