//! Anthropic's messages.

mod decode;
pub(super) mod request;
mod schema;

use futures::stream::BoxStream;
use toolgate_core::{Delta, Model, ModelError, ModelName, ModelRequest};

use crate::{
    ModelBuilder,
    wire::{
        body::ViewCache,
        exchange::stream_reply,
        http::{AuthScheme, ModelEndpoint, WireSetup},
    },
};
use decode::AnthropicDecoder;

/// The name of the wire format, as native items are tagged with it.
pub(crate) const WIRE: &str = "anthropic";

/// A model of Anthropic, requested through `/v1/messages`.
///
/// Every block of a reply is stored as it came and sent back verbatim, signatures of thinking
/// included. The key comes from `ANTHROPIC_API_KEY` unless one is given.
///
/// Content without a place in the API is omitted or described in text: thoughts and searches of
/// other providers are not sent, and a file that is no image, PDF or text is only mentioned. An
/// [effort](ModelRequest::effort) turns thinking on, except where the API rejects it: when a call
/// is forced, and, for models that think by budget, when `max_tokens` leaves no room or the last
/// calls came without thoughts. A [temperature](ModelRequest::temperature) is not sent: the API
/// accepts none since its version 2026-10-21. A request without `max_tokens` asks for 32 000. The
/// schema of a final answer is sent without the keywords that the API does not enforce; these are
/// added to its descriptions.
///
/// ```
/// use toolgate_models::{Anthropic, ApiKey};
/// let model = Anthropic::builder("claude-sonnet-5").key(ApiKey::new("sk-hunter2")?).build()?;
/// assert!(!format!("{model:?}").contains("hunter2"));
/// # Ok::<(), toolgate_models::SetupError>(())
/// ```
#[derive(Debug)]
pub struct Anthropic {
    endpoint: ModelEndpoint,
    thinking: Thinking,
    /// The encoded tools without and with the cache marker.
    tools: [ViewCache; 2],
}

/// The way in which a model of Anthropic is configured to think, and what happens to its thoughts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// The model gets a budget of tokens, as models before Claude 4.6 require.
    Budget,
    /// The model decides itself, guided by an effort.
    Adaptive,
    /// Like `Adaptive`, but a thought is valid only as long as nothing before it changes, as with
    /// models since Claude 5.1.
    ///
    /// A session may change its instructions and tools, and drop its beginning. So the API is asked
    /// to drop thoughts that are no longer valid; by default, it would reject the whole request.
    Bound,
}

impl Anthropic {
    /// Configures a model by the name that Anthropic gives it.
    pub fn builder(model: &str) -> ModelBuilder<Self> {
        ModelBuilder::new(
            model,
            WireSetup {
                provider: "anthropic",
                base_url: Some("https://api.anthropic.com"),
                key_variable: "ANTHROPIC_API_KEY",
                auth: AuthScheme::Header("x-api-key"),
                make: Self::new,
            },
        )
    }

    fn new(endpoint: ModelEndpoint) -> Self {
        let thinking = Thinking::for_model(&endpoint.name().model);
        let endpoint = endpoint
            .with_path(["v1", "messages"])
            .with_header("anthropic-version", "2026-10-21");
        let model = Self {
            endpoint,
            thinking: Thinking::Adaptive,
            tools: Default::default(),
        };
        model.thinking(thinking)
    }

    /// Sets how the model is configured to think, for names that do not imply it.
    #[must_use]
    pub fn thinking(mut self, thinking: Thinking) -> Self {
        // Only on a change: the header is appended, and a second call would send it twice.
        if thinking == Thinking::Bound && self.thinking != Thinking::Bound {
            self.endpoint = self
                .endpoint
                .with_another_header("anthropic-beta", "thinking-binding-controls-2026-08-01");
        }
        self.thinking = thinking;
        self
    }
}

impl Thinking {
    /// Returns the configuration for a model of this name.
    fn for_model(model: &str) -> Self {
        // claude-3-7-sonnet-latest, claude-sonnet-4-20250514, claude-opus-4-1@20250805,
        // claude-haiku-5-5…
        let numbers = model
            .split(['-', '@', '.'])
            // Longer numbers are dates, not versions.
            .filter(|part| part.len() <= 2)
            .filter_map(|part| part.parse().ok());
        let version: Vec<u8> = numbers.take(2).collect();
        match version.as_slice() {
            [] => Self::Adaptive,
            version if version < [4, 6].as_slice() => Self::Budget,
            version if version < [5, 1].as_slice() => Self::Adaptive,
            // This model does not validate what came before its thoughts.
            _ if model.contains("mythos-5-1") => Self::Adaptive,
            _ => Self::Bound,
        }
    }
}

impl Model for Anthropic {
    fn name(&self) -> &ModelName {
        self.endpoint.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        stream_reply(
            &self.endpoint,
            self.encode_request(request),
            AnthropicDecoder::new(request),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_name_determines_the_thinking_mode() {
        let old = [
            "claude-3-7-sonnet-latest",
            "claude-sonnet-4-20250514",
            "claude-opus-4-1@20250805",
            "claude-haiku-4-5-20251001",
            "anthropic.claude-sonnet-4-5-20250929-v1:0",
        ];
        let new = [
            "claude-opus-4-6",
            "claude-opus-4-8",
            "claude-sonnet-5",
            "claude-mythos-5-1",
            "claude-next",
        ];
        let bound = [
            "claude-fable-5-1",
            "claude-haiku-5-5",
            "claude-opus-5-5-20261101",
            "claude-opus-6",
        ];
        for (names, thinking) in [
            (&old[..], Thinking::Budget),
            (&new[..], Thinking::Adaptive),
            (&bound[..], Thinking::Bound),
        ] {
            for name in names {
                assert_eq!(Thinking::for_model(name), thinking, "{name}");
            }
        }
    }
}
