//! The trait that the providers of models implement, and what is said to and by them.

use std::{fmt, sync::Arc, time::Duration};

use futures::stream::BoxStream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Message, Schema, ToolName, View};

/// A language model behind some provider.
///
/// It is asked with everything it needs and answers with pieces as they come; the last piece is the whole reply.
/// Whoever drops the stream does not want the rest, and the request ends.
pub trait Model: Send + Sync + 'static {
    /// Which model this is.
    fn name(&self) -> &ModelName;

    /// Asks the model. The stream ends with [`Delta::Done`] or with an error, and nothing follows either.
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
    /// Who serves it.
    pub provider: Arc<str>,
    /// What it is called there.
    pub model: Arc<str>,
}

impl ModelName {
    /// Names a model.
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
        match text.split_once(':') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                Ok(Self::new(provider, model))
            }
            _ => Err(InvalidModelName(text.to_owned())),
        }
    }
}

/// The text does not name a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a model; write it as provider:model")]
pub struct InvalidModelName(pub String);

/// Everything a model is asked with.
///
/// One request is kept for a whole session and grows with it; nothing is copied from turn to turn.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// What the model is told before everything else.
    pub instructions: Option<Arc<str>>,
    /// What the model reads of what was said so far, oldest first. If something was left out because it was too much,
    /// the first message says so.
    pub messages: Vec<Arc<Message>>,
    /// The tools that the model is shown.
    pub view: View,
    /// Which of them it may or must call.
    pub choice: ToolChoice,
    /// Whether it may ask for several calls at once; the provider's default unless said.
    pub parallel_calls: Option<bool>,
    /// What its final answer has to look like.
    pub output: Option<OutputFormat>,
    /// How much it may write.
    pub max_tokens: Option<u32>,
    /// How freely it chooses its words.
    pub temperature: Option<f32>,
    /// How much it should think.
    pub effort: Option<Effort>,
    /// Whether providers that want to be told what to keep for the next turn are told.
    pub cache: bool,
    /// How heavy the work is, for whoever chooses among models.
    pub weight: Option<Weight>,
    /// Fields that are put into the request as they are, over everything else, for what has no name here.
    pub extra: Map<String, Value>,
}

/// Which tools the model may or must call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// It decides.
    #[default]
    Auto,
    /// It may call none.
    None,
    /// It has to call one or more.
    Required,
    /// It has to call this one.
    Named(ToolName),
}

/// What a final answer has to look like.
#[derive(Debug, Clone)]
pub struct OutputFormat {
    /// What it is called.
    pub name: String,
    /// Its schema.
    pub schema: Schema,
}

/// How much a model should think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// As little as it can.
    Minimal,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

/// How heavy a piece of work is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Looking something up.
    Light,
    /// Ordinary work.
    Medium,
    /// Work that needs the best there is.
    Heavy,
}

/// A piece of a reply, as it comes.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// Which model was chosen, and why. Comes before everything else, from whoever chooses.
    Routed(Routed),
    /// Words.
    Text(String),
    /// What the model thinks.
    Reasoning(String),
    /// The model begins to ask for a call.
    Call {
        /// Which call of the reply, counted from 0.
        index: usize,
        /// The provider's id.
        id: String,
        /// Which tool.
        tool: String,
    },
    /// A piece of the arguments of a call. Pieces of several calls may be mixed.
    Arguments {
        /// Which call of the reply.
        index: usize,
        /// The piece.
        text: String,
    },
    /// The whole reply; the end.
    Done(Box<Reply>),
}

/// Which model was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Routed {
    /// The model that was asked for.
    pub requested: String,
    /// The model that is used.
    pub selected: String,
    /// Why.
    pub reason: String,
    /// How heavy the work is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
}

/// A whole reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// What the model says and asks for.
    pub message: Message,
    /// What it used, if the provider told.
    pub usage: Option<Usage>,
    /// Why it stopped. Whether it asks for calls is told by the message alone.
    pub finish: Finish,
    /// The model as it calls itself.
    pub model: Option<String>,
    /// The provider's id of the reply.
    pub id: Option<String>,
}

impl Reply {
    /// A reply that ended by itself.
    pub fn new(message: Message) -> Self {
        Self {
            message,
            usage: None,
            finish: Finish::Stop,
            model: None,
            id: None,
        }
    }
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It had said everything.
    Stop,
    /// It wants to know what comes of its calls.
    Calls,
    /// It may not write more.
    Length,
    /// It has not finished: the provider made a pause, and wants to be asked again with what there is.
    Paused,
    /// The provider did not let it go on.
    Filtered,
    /// For another reason.
    Other,
}

/// Tokens, as the provider counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Usage {
    /// What the model read, without what it remembered.
    pub input: u64,
    /// What it remembered from earlier requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// What it was told to remember.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// What it wrote, thoughts included.
    pub output: u64,
    /// How much of that were thoughts.
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
    /// Everything read and written.
    pub const fn total(self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
            .saturating_add(self.output)
    }

    /// Both together.
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

/// Why a model did not reply. No key is ever part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{model}: {kind}{}{}", if .detail.is_empty() { "" } else { ": " }, .detail)]
pub struct ModelError {
    /// What kind of failure it is.
    pub kind: ModelErrorKind,
    /// Which model was asked.
    pub model: ModelName,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// What the provider said, bounded and without secrets.
    pub detail: String,
}

impl ModelError {
    /// A failure of `model`.
    pub fn new(kind: ModelErrorKind, model: ModelName, detail: impl Into<String>) -> Self {
        Self {
            kind,
            model,
            status: None,
            retry_after: None,
            detail: detail.into(),
        }
    }
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelErrorKind {
    /// Too many requests.
    RateLimited,
    /// The provider has too much to do.
    Overloaded,
    /// The key is missing, wrong or not allowed.
    Auth,
    /// There is no money or quota left with the provider.
    Quota,
    /// The request is wrong.
    BadRequest,
    /// The conversation is longer than the model can read.
    TooLong,
    /// There is no such model.
    NotFound,
    /// The provider refuses to answer this.
    Refused,
    /// The provider failed.
    Server,
    /// It took too long.
    Timeout,
    /// The provider could not be reached, or the connection broke before the reply was whole.
    Connection,
    /// The reply cannot be understood.
    Malformed,
    /// What the model would cost is more than is left.
    Budget,
    /// The program is not set up for this.
    Setup,
}

impl ModelErrorKind {
    /// The word on the wire.
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

    /// Whether the same request may well succeed a little later.
    pub const fn is_passing(self) -> bool {
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
            Self::Quota => "the account has nothing left",
            Self::BadRequest => "the provider refused the request",
            Self::TooLong => "the conversation is too long for the model",
            Self::NotFound => "there is no such model",
            Self::Refused => "the provider refused to answer",
            Self::Server => "the provider failed",
            Self::Timeout => "the provider took too long",
            Self::Connection => "the connection failed",
            Self::Malformed => "the reply could not be understood",
            Self::Budget => "the reply would cost more than is left",
            Self::Setup => "the model is not set up",
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
    fn the_words_of_errors_are_those_of_the_wire() {
        let kind = ModelErrorKind::RateLimited;
        assert_eq!(serde_json::to_value(kind).expect("writes"), kind.as_str());
        let error = ModelError::new(kind, ModelName::new("openai", "gpt-5"), "slow down");
        assert_eq!(
            error.to_string(),
            "openai:gpt-5: too many requests: slow down"
        );
    }
}
