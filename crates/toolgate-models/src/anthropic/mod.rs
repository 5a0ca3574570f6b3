//! Anthropic's messages.

mod decode;
mod request;
mod schema;

use futures::stream::BoxStream;
use toolgate_core::{Delta, Model, ModelError, ModelName, ModelRequest};

use crate::{
    ModelBuilder,
    body::ViewCache,
    exchange::exchange,
    http::{Auth, Endpoint, WireSetup},
};
use decode::MessageDecoder;

/// The wire format, as native items are marked with.
pub(crate) const WIRE: &str = "anthropic";

/// A model of Anthropic, asked through `/v1/messages`.
///
/// Every block of a reply is kept as it came and given back verbatim, signatures of thoughts included. The key comes
/// from `ANTHROPIC_API_KEY` unless one is given.
///
/// What has no place in the API is left out or put into words: thoughts and searches of other providers are not sent
/// on, and a file that is no picture, PDF or text is only mentioned. An [effort](ModelRequest::effort) turns thinking on,
/// except where the API refuses it: when a call is forced, and, for models that think by budget, when `max_tokens`
/// leaves no room or the last calls came without thoughts. While a model thinks, no temperature is sent. A request
/// without `max_tokens` asks for 32 000. The schema of a final answer is sent without the keywords that the API does not
/// enforce; these become part of its descriptions.
///
/// ```
/// use toolgate_models::{Anthropic, ApiKey};
/// let model = Anthropic::builder("claude-sonnet-5").key(ApiKey::new("sk-hunter2")?).build()?;
/// assert!(!format!("{model:?}").contains("hunter2"));
/// # Ok::<(), toolgate_models::SetupError>(())
/// ```
#[derive(Debug)]
pub struct Anthropic {
    endpoint: Endpoint,
    thinking: Thinking,
    /// The tools with and without the mark for caching.
    tools: [ViewCache; 2],
}

/// How a model of Anthropic is told to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// It decides itself, guided by an effort.
    Adaptive,
    /// It is given a number of tokens, as models before Claude 4.6 want it.
    Budget,
}

impl Anthropic {
    /// Sets up a model by the name that Anthropic gives it.
    pub fn builder(model: &str) -> ModelBuilder<Self> {
        ModelBuilder::new(
            model,
            WireSetup {
                provider: "anthropic",
                base_url: Some("https://api.anthropic.com"),
                key_variable: "ANTHROPIC_API_KEY",
                auth: Auth::Header("x-api-key"),
                make: Self::new,
            },
        )
    }

    fn new(endpoint: Endpoint) -> Self {
        let thinking = Thinking::of(&endpoint.name().model);
        let endpoint = endpoint.at(["v1", "messages"]).with_header("anthropic-version", "2023-06-01");
        Self { endpoint, thinking, tools: Default::default() }
    }

    /// Says how the model is told to think, where its name does not tell.
    #[must_use]
    pub fn thinking(mut self, thinking: Thinking) -> Self {
        self.thinking = thinking;
        self
    }
}

impl Thinking {
    /// How a model of this name is told.
    fn of(model: &str) -> Self {
        let version = model.split_once("-4-").map(|(_, rest)| rest.split('-').next().unwrap_or_default());
        let old = match version {
            // claude-sonnet-4-20250514, claude-opus-4-1, claude-haiku-4-5…
            Some(version) => !matches!(version, "6" | "7" | "8" | "9"),
            None => model.contains("claude-3") || model.contains("claude-2"),
        };
        if old { Self::Budget } else { Self::Adaptive }
    }
}

impl Model for Anthropic {
    fn name(&self) -> &ModelName {
        self.endpoint.name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        exchange(&self.endpoint, self.body(request), MessageDecoder::new(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_model_tells_how_it_is_told_to_think() {
        for old in
            ["claude-3-7-sonnet-latest", "claude-sonnet-4-20250514", "claude-opus-4-1", "claude-haiku-4-5-20251001"]
        {
            assert_eq!(Thinking::of(old), Thinking::Budget, "{old}");
        }
        for new in ["claude-opus-4-6", "claude-opus-4-8", "claude-sonnet-5", "claude-haiku-5-5", "claude-next"] {
            assert_eq!(Thinking::of(new), Thinking::Adaptive, "{new}");
        }
    }
}
