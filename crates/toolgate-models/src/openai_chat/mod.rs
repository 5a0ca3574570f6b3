//! OpenAI's chat completions: the wire format that most servers speak.

mod decode;
mod request;

use futures::stream::BoxStream;
use toolgate_core::{Delta, Model, ModelError, ModelName, ModelRequest};

use self::decode::ChatDecoder;
use crate::{
    ModelBuilder,
    body::ViewCache,
    exchange::exchange,
    http::{Auth, Endpoint, WireSetup},
    openai,
};

/// A model that speaks chat completions: OpenAI's own, or one behind any server that speaks the same (Ollama, vLLM,
/// llama.cpp and many more).
///
/// Calls, words, refusals and what such servers tell of the model's thinking are streamed as they come. The results of tools
/// can only be words in this format; pictures and files that come with them follow in a message of the user. OpenAI
/// remembers long beginnings by itself, so there are no markers to set. Use [`OpenAiResponses`](crate::OpenAiResponses)
/// for OpenAI's own models where thinking has to be kept across turns.
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
    endpoint: Endpoint,
    dialect: Dialect,
    tools: ViewCache,
}

/// Who is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// OpenAI itself.
    OpenAi,
    /// Someone who speaks alike. Limits of length go by their old name, and thoughts are given back.
    Compatible,
}

impl OpenAiChat {
    /// A model of OpenAI, with the key in `OPENAI_API_KEY` unless another is given.
    pub fn builder(model: &str) -> ModelBuilder<Self> {
        ModelBuilder::new(
            model,
            setup("openai-chat", Some(openai::BASE_URL), Self::openai),
        )
    }

    /// A model behind a server that speaks like OpenAI, as in `http://127.0.0.1:8000/v1`. No key is sent unless given.
    pub fn compatible(model: &str, base_url: impl Into<String>) -> ModelBuilder<Self> {
        ModelBuilder::new(model, setup("compatible", None, Self::like_openai)).base_url(base_url)
    }

    fn openai(endpoint: Endpoint) -> Self {
        Self::new(endpoint, Dialect::OpenAi)
    }

    fn like_openai(endpoint: Endpoint) -> Self {
        Self::new(endpoint, Dialect::Compatible)
    }

    fn new(endpoint: Endpoint, dialect: Dialect) -> Self {
        Self {
            endpoint: endpoint.at(["chat", "completions"]),
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
        let body = request::body(self, request);
        exchange(&self.endpoint, body, ChatDecoder::new(request))
    }
}

fn setup<M>(
    provider: &'static str,
    base_url: Option<&'static str>,
    make: fn(Endpoint) -> M,
) -> WireSetup<M> {
    WireSetup {
        provider,
        base_url,
        key_variable: openai::KEY_VARIABLE,
        auth: Auth::Bearer,
        make,
    }
}
