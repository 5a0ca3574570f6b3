//! OpenAI's responses: the wire format that keeps what a model thought across turns.

mod decode;
mod items;
mod request;

use futures::stream::BoxStream;
use toolgate_core::{Delta, Model, ModelError, ModelName, ModelRequest};

use self::decode::ResponsesDecoder;
use crate::{
    ModelBuilder,
    body::ViewCache,
    exchange::exchange,
    http::{Auth, Endpoint, WireSetup},
    openai,
};

/// A model of OpenAI that speaks responses.
///
/// Nothing is stored with OpenAI (`store: false`): every item that the model sends is kept here as it came and given back
/// verbatim, thoughts encrypted as they are. Tools that OpenAI runs by itself (search, code, pictures…) are recorded as
/// such; ask for them through [`ModelRequest::extra`]. Pictures and files in the results of tools are sent as such. OpenAI
/// remembers long beginnings by itself, so there are no markers to set.
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
    endpoint: Endpoint,
    tools: ViewCache,
}

impl OpenAiResponses {
    /// A model of OpenAI, with the key in `OPENAI_API_KEY` unless another is given.
    pub fn builder(model: &str) -> ModelBuilder<Self> {
        let setup = WireSetup {
            provider: "openai",
            base_url: Some(openai::BASE_URL),
            key_variable: openai::KEY_VARIABLE,
            auth: Auth::Bearer,
            make: |endpoint| Self {
                endpoint: endpoint.at(["responses"]),
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
        let body = request::body(self, request);
        exchange(&self.endpoint, body, ResponsesDecoder::new(request))
    }
}
