//! Which model is asked: what a configuration file says about it, and hooks that have the last word.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toolgate_core::{Content, ModelErrorKind, ModelName, ModelRequest, Weight};

/// The section `[routing]` of a configuration file.
///
/// Models are named `provider:model` or by an alias. Of the rules the first that fits decides, then the weight of the
/// work, then the default.
///
/// ```
/// let routing: toolgate_runtime::Routing = serde_json::from_str(r#"{
///     "default": "large", "aliases": { "large": "acme:large", "small": "acme:small" },
///     "weights": { "light": "small" }, "fallback": ["other:large"]
/// }"#)?;
/// assert_eq!(routing.default, "large");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routing {
    /// The model that is asked unless something else is said.
    pub default: String,
    /// Short names for models.
    #[serde(default)]
    pub aliases: BTreeMap<String, String>,
    /// The model for work of some weight.
    #[serde(default)]
    pub weights: BTreeMap<Weight, String>,
    /// What is looked at first, in order.
    #[serde(default)]
    pub rules: Vec<RouteRule>,
    /// The models that are asked in place of one that fails, in order.
    #[serde(default)]
    pub fallback: Vec<String>,
    /// The failures after which another model is asked.
    #[serde(default = "passing")]
    pub fallback_on: Vec<ModelErrorKind>,
}

/// A rule: if everything it names is so, its model is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteRule {
    /// The model.
    #[serde(rename = "use")]
    pub model: String,
    /// The work is of this weight.
    #[serde(default)]
    pub weight: Option<Weight>,
    /// What the model is to read has more bytes than this.
    #[serde(default)]
    pub longer_than: Option<u64>,
    /// There are tools, or there are none.
    #[serde(default)]
    pub tools: Option<bool>,
    /// There are pictures or files, or there are none.
    #[serde(default)]
    pub media: Option<bool>,
}

/// What was decided so far, for a hook to look at.
#[derive(Debug)]
#[non_exhaustive]
pub struct RoutingDecision<'a> {
    /// The model that was asked for.
    pub requested: &'a ModelName,
    /// The model that would be used.
    pub selected: &'a ModelName,
    /// Why.
    pub reason: &'a str,
    /// How heavy the work is.
    pub weight: Option<Weight>,
    /// What the model will be asked with.
    pub context: &'a ModelRequest,
}

/// Another model than the one that was selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Which one, by name or alias.
    pub model: String,
    /// Why, for people.
    pub reason: String,
}

impl Choice {
    /// Chooses a model.
    pub fn new(model: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            reason: reason.into(),
        }
    }
}

/// Has a say in which model is asked. Hooks are asked in order, and each sees what those before it chose.
///
/// A hook that panics or names a model that is not there fails the request: a choice that could not be made is not
/// replaced by a guess.
pub trait RoutingHook: Send + Sync + 'static {
    /// Chooses another model, or leaves it.
    fn route(&self, decision: &RoutingDecision<'_>) -> Option<Choice>;
}

impl<F> RoutingHook for F
where
    F: Fn(&RoutingDecision<'_>) -> Option<Choice> + Send + Sync + 'static,
{
    fn route(&self, decision: &RoutingDecision<'_>) -> Option<Choice> {
        self(decision)
    }
}

/// What is wrong with a routing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoutingError {
    /// A model is named that is not there.
    #[error("{place} names the model {name:?}, which is not there; there are: {known}")]
    UnknownModel {
        /// Where it is named.
        place: String,
        /// The name.
        name: String,
        /// The names that can be used.
        known: String,
    },
    /// Two models have the same name.
    #[error("there are two models {0}")]
    Twice(ModelName),
    /// Another model would not help after such a failure.
    #[error("routing.fallback_on has {0:?}, after which no other model is asked")]
    NoFallbackOn(ModelErrorKind),
}

fn passing() -> Vec<ModelErrorKind> {
    use ModelErrorKind as K;
    vec![
        K::RateLimited,
        K::Overloaded,
        K::Server,
        K::Timeout,
        K::Connection,
    ]
}

impl Routing {
    /// Always the same model.
    pub fn only(model: &ModelName) -> Self {
        Self {
            default: model.to_string(),
            aliases: BTreeMap::new(),
            weights: BTreeMap::new(),
            rules: Vec::new(),
            fallback: Vec::new(),
            fallback_on: passing(),
        }
    }

    /// The model that this section wants for a request, by name or alias, and why.
    pub(crate) fn choose(&self, requested: &str, request: &ModelRequest) -> Choice {
        if let Some((number, rule)) = (1..).zip(&self.rules).find(|(_, rule)| rule.fits(request)) {
            return Choice::new(&rule.model, format!("rule {number} of the configuration"));
        }
        match request
            .weight
            .and_then(|weight| Some((weight, self.weights.get(&weight)?)))
        {
            Some((weight, model)) => Choice::new(model, format!("the work is {}", word(weight))),
            None => Choice::new(requested, "as requested"),
        }
    }

    /// Every place that names a model, with the name.
    pub(crate) fn names(&self) -> Vec<(String, &str)> {
        let aliases = self
            .aliases
            .iter()
            .map(|(alias, name)| (format!("routing.aliases.{alias}"), name));
        let weights = self
            .weights
            .iter()
            .map(|(weight, name)| (format!("routing.weights.{}", word(*weight)), name));
        let rules = (1..)
            .zip(&self.rules)
            .map(|(number, rule)| (format!("routing.rules, entry {number},"), &rule.model));
        let fallback = self
            .fallback
            .iter()
            .map(|name| ("routing.fallback".to_owned(), name));
        let all = [("routing.default".to_owned(), &self.default)].into_iter();
        let all = all
            .chain(aliases)
            .chain(weights)
            .chain(rules)
            .chain(fallback);
        all.map(|(place, name)| (place, name.as_str())).collect()
    }

    pub(crate) fn check_fallback(&self) -> Result<(), RoutingError> {
        use ModelErrorKind as K;
        let never = |kind: &&K| matches!(kind, K::Auth | K::BadRequest | K::Budget | K::Setup);
        self.fallback_on
            .iter()
            .find(never)
            .map_or(Ok(()), |kind| Err(RoutingError::NoFallbackOn(*kind)))
    }
}

impl RouteRule {
    fn fits(&self, request: &ModelRequest) -> bool {
        let size = || {
            request
                .messages
                .iter()
                .map(|message| message.size() as u64)
                .sum::<u64>()
        };
        self.weight
            .is_none_or(|weight| request.weight == Some(weight))
            && self
                .tools
                .is_none_or(|tools| tools != request.view.is_empty())
            && self.longer_than.is_none_or(|bytes| size() > bytes)
            && self.media.is_none_or(|media| media == has_media(request))
    }
}

fn has_media(request: &ModelRequest) -> bool {
    let mut parts = request.messages.iter().flat_map(|message| &message.parts);
    parts.any(|part| match &part.content {
        Content::Media(_) => true,
        Content::Result(answer) => !answer.media.is_empty(),
        _ => false,
    })
}

fn word(weight: Weight) -> &'static str {
    match weight {
        Weight::Light => "light",
        Weight::Medium => "medium",
        Weight::Heavy => "heavy",
    }
}
