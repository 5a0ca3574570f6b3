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
/// leaves no room or the last calls came without thoughts. A [temperature](ModelRequest::temperature) is not sent: the API
/// takes none since its version 2026-10-21. A request without `max_tokens` asks for 32 000. The schema of a final answer
/// is sent without the keywords that the API does not enforce; these become part of its descriptions.
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

/// How a model of Anthropic is told to think, and what becomes of its thoughts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// It is given a number of tokens, as models before Claude 4.6 want it.
    Budget,
    /// It decides itself, guided by an effort.
    Adaptive,
    /// The same, and a thought counts only as long as nothing before it changes, as with models since Claude 5.1.
    ///
    /// A session may change its instructions and tools on the way, and leave out its beginning. So the API is asked to
    /// drop thoughts that no longer count; unasked, it would refuse the whole request.
    Bound,
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
        let endpoint = endpoint
            .at(["v1", "messages"])
            .with_header("anthropic-version", "2026-10-21");
        let model = Self {
            endpoint,
            thinking: Thinking::Adaptive,
            tools: Default::default(),
        };
        model.thinking(thinking)
    }

    /// Says how the model is told to think, where its name does not tell.
    #[must_use]
    pub fn thinking(mut self, thinking: Thinking) -> Self {
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
    /// How a model of this name is told.
    fn of(model: &str) -> Self {
        // claude-3-7-sonnet-latest, claude-sonnet-4-20250514, claude-opus-4-1@20250805, claude-haiku-5-5…
        let numbers = model
            .split(['-', '@', '.'])
            .filter(|part| part.len() <= 2)
            .filter_map(|part| part.parse().ok());
        let version: Vec<u8> = numbers.take(2).collect();
        match version.as_slice() {
            [] => Self::Adaptive,
            version if version < [4, 6].as_slice() => Self::Budget,
            version if version < [5, 1].as_slice() => Self::Adaptive,
            // It does not look at what came before its thoughts.
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
        exchange(
            &self.endpoint,
            self.body(request),
            MessageDecoder::new(request),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_model_tells_how_it_is_told_to_think() {
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
                assert_eq!(Thinking::of(name), thinking, "{name}");
            }
        }
    }
}
