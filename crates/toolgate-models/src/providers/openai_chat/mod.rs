//! OpenAI's chat completions: the wire format that most servers speak.

mod decode;
pub(super) mod request;

use futures::stream::BoxStream;
use toolgate_core::{Delta, Model, ModelError, ModelName, ModelRequest};

use self::decode::ChatDecoder;
use crate::{
    ModelBuilder,
    providers::openai_shared,
    wire::{
        body::ViewCache,
        exchange::stream_reply,
        http::{AuthScheme, ModelEndpoint, WireSetup},
    },
};

/// A model that speaks chat completions: OpenAI's own, or one behind any server that speaks the
/// same (Ollama, vLLM, llama.cpp and many more).
///
/// Calls, text, refusals and the reasoning that such servers report are streamed as they arrive.
/// Tool results can only be text in this format; images and files that come with them follow in a
/// user message. OpenAI caches long prompt prefixes by itself, so there are no markers to set. Use
/// [`OpenAiResponses`](crate::OpenAiResponses) for OpenAI's own models where reasoning has to be
/// kept across turns.
///
/// ```
/// use toolgate_core::Model;
/// use toolgate_models::OpenAiChat;
/// let model = OpenAiChat::compatible("qwen3", "http://127.0.0.1:8000/v1").provider("vllm").build()?;
/// assert_eq!(model.name().to_string(), "vllm:qwen3");
/// # Ok::<(), toolgate_models::SetupError>(())
/// ```
#[derive(Debug)]
pub struct OpenAiChat {
    endpoint: ModelEndpoint,
    dialect: ChatDialect,
    tools: ViewCache,
}

/// The kind of server that is addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChatDialect {
    /// OpenAI itself.
    OpenAi,
    /// A server with a compatible API. The output limit has its old name, and reasoning is sent
    /// back.
    Compatible,
}

impl OpenAiChat {
    /// Configures a model of OpenAI, with the key in `OPENAI_API_KEY` unless another is given.
    pub fn builder(model: &str) -> ModelBuilder<Self> {
        ModelBuilder::new(
            model,
            wire_setup(
                "openai-chat",
                Some(openai_shared::BASE_URL),
                Self::for_openai,
            ),
        )
    }

    /// Configures a model behind a server compatible with OpenAI, as in `http://127.0.0.1:8000/v1`.
    /// No key is sent unless given.
    pub fn compatible(model: &str, base_url: impl Into<String>) -> ModelBuilder<Self> {
        ModelBuilder::new(model, wire_setup("compatible", None, Self::for_compatible))
            .base_url(base_url)
    }

    fn for_openai(endpoint: ModelEndpoint) -> Self {
        Self::new(endpoint, ChatDialect::OpenAi)
    }

    fn for_compatible(endpoint: ModelEndpoint) -> Self {
        Self::new(endpoint, ChatDialect::Compatible)
    }

    fn new(endpoint: ModelEndpoint, dialect: ChatDialect) -> Self {
        Self {
            endpoint: endpoint.with_path(["chat", "completions"]),
            dialect,
            tools: ViewCache::default(),
        }
    }
}

impl Model for OpenAiChat {
    fn name(&self) -> &ModelName {
        self.endpoint.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let body = request::encode_request(self, request);
        stream_reply(&self.endpoint, body, ChatDecoder::new(request))
    }
}

fn wire_setup<M>(
    provider: &'static str,
    base_url: Option<&'static str>,
    make: fn(ModelEndpoint) -> M,
) -> WireSetup<M> {
    WireSetup {
        provider,
        base_url,
        key_variable: openai_shared::KEY_VARIABLE,
        auth: AuthScheme::Bearer,
        make,
    }
}
