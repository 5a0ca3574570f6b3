//! OpenAI's responses: the wire format that keeps reasoning across turns.

mod decode;
mod items;
pub(super) mod request;

use futures::stream::BoxStream;
use toolgate_core::{Delta, Model, ModelError, ModelName, ModelRequest};

use self::decode::ResponsesDecoder;
use crate::{
    ModelBuilder,
    providers::openai_shared,
    wire::{
        body::ViewCache,
        exchange::stream_reply,
        http::{AuthScheme, ModelEndpoint, WireSetup},
    },
};

/// A model of OpenAI that speaks responses.
///
/// Nothing is stored at OpenAI (`store: false`): every item that the model sends is stored here as
/// it came and sent back verbatim, reasoning in its encrypted form. Provider-executed calls
/// (search, code, images…) are recorded as such; request these tools through
/// [`ModelRequest::extra`]. Images and files in tool results are sent as such. OpenAI caches long
/// prompt prefixes by itself, so there are no markers to set.
///
/// ```
/// use toolgate_core::Model;
/// use toolgate_models::{ApiKey, OpenAiResponses};
/// let model = OpenAiResponses::builder("gpt-5").key(ApiKey::new("sk-hunter2")?).build()?;
/// assert_eq!(model.name().to_string(), "openai:gpt-5");
/// # Ok::<(), toolgate_models::SetupError>(())
/// ```
#[derive(Debug)]
pub struct OpenAiResponses {
    endpoint: ModelEndpoint,
    tools: ViewCache,
}

impl OpenAiResponses {
    /// Configures a model of OpenAI, with the key in `OPENAI_API_KEY` unless another is given.
    pub fn builder(model: &str) -> ModelBuilder<Self> {
        let setup = WireSetup {
            provider: "openai",
            base_url: Some(openai_shared::BASE_URL),
            key_variable: openai_shared::KEY_VARIABLE,
            auth: AuthScheme::Bearer,
            make: |endpoint| Self {
                endpoint: endpoint.with_path(["responses"]),
                tools: ViewCache::default(),
            },
        };
        ModelBuilder::new(model, setup)
    }
}

impl Model for OpenAiResponses {
    fn name(&self) -> &ModelName {
        self.endpoint.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let body = request::encode_request(self, request);
        stream_reply(&self.endpoint, body, ResponsesDecoder::new(request))
    }
}
