//! The trait that model providers implement, and its requests and replies.

pub(crate) mod embedder;
pub(crate) mod message;
pub(crate) mod source;

use std::{fmt, sync::Arc, time::Duration};

use futures::stream::BoxStream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Message, Schema, ToolName, View};

/// A language model behind some provider.
///
/// A request contains everything the model needs. The reply is a stream of deltas; the last one is
/// the complete reply. Dropping the stream ends the request.
pub trait Model: Send + Sync + 'static {
    /// Returns the model's name.
    fn name(&self) -> &ModelName;

    /// Sends a request to the model. The stream ends with [`Delta::Done`] or with an error.
    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>>;
}

impl<M: Model + ?Sized> Model for Arc<M> {
    fn name(&self) -> &ModelName {
        (**self).name()
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        (**self).reply(request)
    }
}

/// A provider and a model of it, written `provider:model`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelName {
    /// The provider's name.
    pub provider: Arc<str>,
    /// The model's name at the provider.
    pub model: Arc<str>,
}

impl ModelName {
    /// Creates the name of a model.
    pub fn new(provider: &str, model: &str) -> Self {
        Self {
            provider: provider.into(),
            model: model.into(),
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.model)
    }
}

impl std::str::FromStr for ModelName {
    type Err = InvalidModelName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // At the first colon: names of models may contain more.
        match text.split_once(':') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                Ok(Self::new(provider, model))
            }
            _ => Err(InvalidModelName(text.to_owned())),
        }
    }
}

/// An error for text that does not name a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a model; write it as provider:model")]
pub struct InvalidModelName(pub String);

/// A request to a model.
///
/// One request is reused for a whole session and grows with it; nothing is copied from turn to
/// turn.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// The system instructions.
    pub instructions: Option<Arc<str>>,
    /// The conversation so far, oldest first. If it was compacted, the first message says so.
    pub messages: Vec<Arc<Message>>,
    /// The tools that the model is shown.
    pub view: View,
    /// The tools that it may or must call.
    pub choice: ToolChoice,
    /// True if it may ask for several calls at once; the provider's default if `None`.
    pub parallel_calls: Option<bool>,
    /// The format of its final answer.
    pub output: Option<OutputFormat>,
    /// The most tokens it may write.
    pub max_tokens: Option<u32>,
    /// The sampling temperature.
    pub temperature: Option<f32>,
    /// The reasoning effort.
    pub effort: Option<Effort>,
    /// True if providers with explicit caching are told what to cache for the next turn.
    pub cache: bool,
    /// The complexity of the task, for routers.
    pub weight: Option<TaskComplexity>,
    /// Provider-specific fields, merged into the request last.
    pub extra: Map<String, Value>,
}

/// The tools that the model may or must call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It may call none.
    None,
    /// It has to call one or more.
    Required,
    /// It has to call this one.
    Named(ToolName),
}

/// The format of a final answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputFormat {
    /// The format's name.
    pub name: String,
    /// Its schema.
    pub schema: Schema,
}

/// The reasoning effort of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// As little as possible.
    Minimal,
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

/// The complexity of a task.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TaskComplexity {
    /// A simple lookup.
    Light,
    /// Ordinary work.
    Medium,
    /// Work that needs the best model.
    Heavy,
}

/// A piece of a streamed reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// The model that a router chose. It comes before everything else.
    Routed(RoutedModel),
    /// A request failed and is sent again. All pieces before this one are void: the reply begins
    /// anew.
    Retry(ModelRetry),
    /// Text.
    Text(String),
    /// Reasoning text.
    Reasoning(String),
    /// The model begins to ask for a call.
    Call {
        /// The number of the call in the reply, counted from 0.
        index: usize,
        /// The provider's id.
        id: String,
        /// The tool's name.
        tool: String,
    },
    /// A piece of the arguments of a call. Pieces of several calls may be mixed.
    Arguments {
        /// The number of the call in the reply.
        index: usize,
        /// The piece.
        text: String,
    },
    /// The complete reply; the last delta.
    Done(Box<Reply>),
}

/// A failed request that is sent again, to the same or to another model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRetry {
    /// The failure.
    pub error: ModelError,
    /// The delay before the next request; zero if another model is asked at once.
    pub delay: Duration,
}

/// The choice of a model by a router.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoutedModel {
    /// The model that was asked for.
    pub requested: String,
    /// The model that is used.
    pub selected: String,
    /// The reason for the choice.
    pub reason: String,
    /// The complexity of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<TaskComplexity>,
}

/// A complete reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The text and the calls of the model.
    pub message: Message,
    /// The tokens it used, if the provider reported them.
    pub usage: Option<Usage>,
    /// The reason it stopped. Only the message tells whether it asks for calls.
    pub finish: FinishReason,
    /// The model's name in the reply.
    pub model: Option<String>,
    /// The provider's id of the reply.
    pub id: Option<String>,
}

impl Reply {
    /// Creates a reply that ended normally.
    pub fn new(message: Message) -> Self {
        Self {
            message,
            usage: None,
            finish: FinishReason::Stop,
            model: None,
            id: None,
        }
    }
}

/// The reason a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The answer is complete.
    Stop,
    /// It waits for the results of its calls.
    Calls,
    /// The token limit was reached.
    Length,
    /// The provider paused the reply and expects another request with what there is so far.
    Paused,
    /// The provider's content filter stopped it.
    Filtered,
    /// A reason that is unknown, or none. The reply may be incomplete, so a run does not complete
    /// with it.
    Other,
}

/// Token counts of the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Usage {
    /// Tokens in, without cached ones.
    pub input: u64,
    /// Tokens in that were read from the cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Tokens in that were written to the cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// Tokens out, reasoning included.
    pub output: u64,
    /// Tokens out that were reasoning.
    #[serde(skip_serializing_if = "is_zero")]
    pub reasoning: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde asks for"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Usage {
    /// Returns the sum of tokens in and out.
    pub const fn total_tokens(self) -> u64 {
        // `reasoning` is part of `output`.
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
            .saturating_add(self.output)
    }

    /// Returns the sum of both.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self {
            input: self.input.saturating_add(more.input),
            cache_read: self.cache_read.saturating_add(more.cache_read),
            cache_write: self.cache_write.saturating_add(more.cache_write),
            output: self.output.saturating_add(more.output),
            reasoning: self.reasoning.saturating_add(more.reasoning),
        }
    }
}

/// The reason a model request failed. It never contains a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{model}: {kind}{}{}", if .detail.is_empty() { "" } else { ": " }, .detail)]
pub struct ModelError {
    /// The kind of failure.
    pub kind: ModelErrorKind,
    /// The model.
    pub model: ModelName,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// The delay that the provider asks for.
    pub retry_after: Option<Duration>,
    /// The total time within which a retry may help, if the failure tells: a server on this machine
    /// that refuses connections is starting, or it is not running.
    pub retry_within: Option<Duration>,
    /// The provider's message, truncated and without secrets.
    pub detail: String,
}

impl ModelError {
    /// Creates a failure of `model`.
    pub fn new(kind: ModelErrorKind, model: ModelName, detail: impl Into<String>) -> Self {
        Self {
            kind,
            model,
            status: None,
            retry_after: None,
            retry_within: None,
            detail: detail.into(),
        }
    }
}

/// The kind of failure of a model request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// Too many requests.
    RateLimited,
    /// The provider is overloaded.
    Overloaded,
    /// The key is missing, wrong or not allowed.
    Auth,
    /// The provider's quota or credit is used up.
    Quota,
    /// The provider rejected the request.
    BadRequest,
    /// The conversation is longer than the model can read.
    TooLong,
    /// There is no such model.
    NotFound,
    /// The provider declined to answer.
    Refused,
    /// The provider failed.
    Server,
    /// It took too long.
    Timeout,
    /// The provider could not be reached, or the connection failed before the end of the reply.
    Connection,
    /// The reply cannot be parsed.
    Malformed,
    /// The request would cost more than the budget has left.
    Budget,
    /// The model is not configured.
    Setup,
}

impl ModelErrorKind {
    /// Returns the wire word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::BadRequest => "bad_request",
            Self::TooLong => "too_long",
            Self::NotFound => "not_found",
            Self::Refused => "refused",
            Self::Server => "server",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Malformed => "malformed",
            Self::Budget => "budget",
            Self::Setup => "setup",
        }
    }

    /// Checks whether the same request may succeed a little later.
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::RateLimited | Self::Overloaded | Self::Server | Self::Timeout | Self::Connection
        )
    }
}

impl fmt::Display for ModelErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RateLimited => "too many requests",
            Self::Overloaded => "the provider is overloaded",
            Self::Auth => "the key was not accepted",
            Self::Quota => "the account's quota is used up",
            Self::BadRequest => "the provider rejected the request",
            Self::TooLong => "the conversation is too long for the model",
            Self::NotFound => "there is no such model",
            Self::Refused => "the provider declined to answer",
            Self::Server => "the provider failed",
            Self::Timeout => "the provider took too long",
            Self::Connection => "the connection failed",
            Self::Malformed => "the reply could not be parsed",
            Self::Budget => "the reply would cost more than is left",
            Self::Setup => "the model is not configured",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_by_provider_and_model() {
        let name: ModelName = "openai:ft:gpt-5:acme".parse().expect("a name");
        assert_eq!((&*name.provider, &*name.model), ("openai", "ft:gpt-5:acme"));
        assert_eq!(name.to_string(), "openai:ft:gpt-5:acme");
        for bad in ["", "gpt-5", ":gpt-5", "openai:"] {
            assert_eq!(
                bad.parse::<ModelName>(),
                Err(InvalidModelName(bad.to_owned()))
            );
        }
    }

    #[test]
    fn error_kinds_use_their_wire_words() {
        let kind = ModelErrorKind::RateLimited;
        assert_eq!(serde_json::to_value(kind).expect("writes"), kind.as_str());
        let error = ModelError::new(kind, ModelName::new("openai", "gpt-5"), "slow down");
        assert_eq!(
            error.to_string(),
            "openai:gpt-5: too many requests: slow down"
        );
    }
}
