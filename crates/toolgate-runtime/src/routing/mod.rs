//! Chooses the model to ask: by the `[routing]` section of a configuration file, then by hooks.

pub(crate) mod retrying;
pub(crate) mod router;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{ModelErrorKind, ModelName, ModelRequest, PartContent, TaskComplexity};

/// The section `[routing]` of a configuration file.
///
/// Models are named `provider:model` or by an alias. The first matching rule decides, then the
/// complexity of the work, then the default.
///
/// ```
/// let routing: toolgate_runtime::RoutingConfig = serde_json::from_str(r#"{
///     "default": "large", "aliases": { "large": "acme:large", "small": "acme:small" },
///     "weights": { "light": "small" }, "fallback": ["other:large"]
/// }"#)?;
/// assert_eq!(routing.default.as_deref(), Some("large"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RoutingConfig {
    /// The model that is asked by default.
    pub default: Option<String>,
    /// Short names for models.
    pub aliases: BTreeMap<String, String>,
    /// The model for work of some complexity: `light`, `medium` or `heavy`.
    pub weights: BTreeMap<TaskComplexity, String>,
    /// The rules, checked first and in order.
    pub rules: Vec<RouteRule>,
    /// The models that are asked in place of one that fails, in order.
    pub fallback: Vec<String>,
    /// The failures after which another model is asked.
    pub fallback_on: Vec<ModelErrorKind>,
}

/// A rule: if all its conditions hold, its model is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteRule {
    /// The model.
    #[serde(rename = "use")]
    pub model: String,
    /// The work has this complexity.
    #[serde(default)]
    pub weight: Option<TaskComplexity>,
    /// The messages have more bytes than this.
    #[serde(default)]
    pub longer_than: Option<u64>,
    /// There are tools, or there are none.
    #[serde(default)]
    pub tools: Option<bool>,
    /// There are images or files, or there are none.
    #[serde(default)]
    pub media: Option<bool>,
}

/// The decision so far, for a hook to look at.
#[derive(Debug)]
#[non_exhaustive]
pub struct RoutingDecision<'a> {
    /// The model that was asked for.
    pub requested: &'a ModelName,
    /// The model that would be used.
    pub selected: &'a ModelName,
    /// The reason for it.
    pub reason: &'a str,
    /// The complexity of the work.
    pub weight: Option<TaskComplexity>,
    /// The request to the model.
    pub context: &'a ModelRequest,
}

/// A model to use in place of the selected one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The model, by name or alias.
    pub model: String,
    /// The reason, for people.
    pub reason: String,
}

impl Candidate {
    /// Creates a candidate.
    pub fn new(model: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            reason: reason.into(),
        }
    }
}

/// Changes which model is asked. Hooks are asked in order, and each sees what those before it
/// chose.
///
/// A hook that panics or names an unknown model fails the request: a choice that could not be made
/// is not replaced by a guess.
pub trait RoutingHook: Send + Sync + 'static {
    /// Chooses another model, or returns nothing to keep the selected one.
    fn route(&self, decision: &RoutingDecision<'_>) -> Option<Candidate>;
}

impl<F> RoutingHook for F
where
    F: Fn(&RoutingDecision<'_>) -> Option<Candidate> + Send + Sync + 'static,
{
    fn route(&self, decision: &RoutingDecision<'_>) -> Option<Candidate> {
        self(decision)
    }
}

/// Reason why a routing is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RoutingError {
    /// An unknown model is named.
    #[error("{place} names the unknown model {name:?}; known models: {known}")]
    UnknownModel {
        /// The setting that names it.
        place: String,
        /// The name.
        name: String,
        /// The names that can be used.
        known: String,
    },
    /// No model is requested.
    #[error("routing.default names no model")]
    NoDefault,
    /// Two models have the same name.
    #[error("there are two models {0}")]
    DuplicateModel(ModelName),
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

impl Default for RoutingConfig {
    fn default() -> Self {
        Self {
            default: None,
            aliases: BTreeMap::new(),
            weights: BTreeMap::new(),
            rules: Vec::new(),
            fallback: Vec::new(),
            fallback_on: passing(),
        }
    }
}

impl RoutingConfig {
    /// Creates a routing that always asks the same model.
    pub fn for_model(model: &ModelName) -> Self {
        Self {
            default: Some(model.to_string()),
            ..Self::default()
        }
    }

    /// Returns the full name that a name or an alias means.
    pub fn resolve_alias<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.get(name).map_or(name, String::as_str)
    }

    /// Replaces every name of a model that is not an alias.
    pub fn rename_models(&mut self, mut rename: impl FnMut(&str) -> String) {
        let aliases: Vec<String> = self.aliases.keys().cloned().collect();
        let rules = self.rules.iter_mut().map(|rule| &mut rule.model);
        let names = self.default.iter_mut().chain(&mut self.fallback);
        let names = names.chain(self.weights.values_mut()).chain(rules);
        let full = names.filter(|name| !aliases.contains(name));
        for name in full.chain(self.aliases.values_mut()) {
            *name = rename(name);
        }
    }

    /// Returns the full names of all models that this section names.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        let named = self.named_models().into_iter();
        named.map(|(_, name)| self.resolve_alias(name))
    }

    /// Returns the model that this section wants for a request, by name or alias, and the reason.
    pub(crate) fn choose_model(&self, requested: &str, request: &ModelRequest) -> Candidate {
        if let Some((number, rule)) = (1..)
            .zip(&self.rules)
            .find(|(_, rule)| rule.matches_request(request))
        {
            return Candidate::new(&rule.model, format!("rule {number} of the configuration"));
        }
        match request
            .weight
            .and_then(|weight| Some((weight, self.weights.get(&weight)?)))
        {
            Some((weight, model)) => {
                Candidate::new(model, format!("the work is {}", weight_word(weight)))
            }
            None => Candidate::new(requested, "as requested"),
        }
    }

    /// Returns every setting that names a model, with the name.
    pub(crate) fn named_models(&self) -> Vec<(String, &str)> {
        let aliases = self
            .aliases
            .iter()
            .map(|(alias, name)| (format!("routing.aliases.{alias}"), name));
        let weights = self
            .weights
            .iter()
            .map(|(weight, name)| (format!("routing.weights.{}", weight_word(*weight)), name));
        let rules = (1..)
            .zip(&self.rules)
            .map(|(number, rule)| (format!("routing.rules, entry {number},"), &rule.model));
        let fallback = self
            .fallback
            .iter()
            .map(|name| ("routing.fallback".to_owned(), name));
        let default = self.default.iter();
        let all = default
            .map(|name| ("routing.default".to_owned(), name))
            .chain(aliases)
            .chain(weights)
            .chain(rules)
            .chain(fallback);
        all.map(|(place, name)| (place, name.as_str())).collect()
    }

    /// Checks that another model is asked only after failures that it may not have.
    ///
    /// # Errors
    ///
    /// Fails if `fallback_on` lists a failure that every model would have.
    pub fn check_fallback(&self) -> Result<(), RoutingError> {
        use ModelErrorKind as K;
        // Another provider would fail the same way, or the failure needs an operator.
        let never = |kind: &&K| matches!(kind, K::Auth | K::BadRequest | K::Budget | K::Setup);
        self.fallback_on
            .iter()
            .find(never)
            .map_or(Ok(()), |kind| Err(RoutingError::NoFallbackOn(*kind)))
    }
}

impl RouteRule {
    fn matches_request(&self, request: &ModelRequest) -> bool {
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
        PartContent::Media(_) => true,
        PartContent::Result(answer) => !answer.media.is_empty(),
        _ => false,
    })
}

fn weight_word(weight: TaskComplexity) -> &'static str {
    match weight {
        TaskComplexity::Light => "light",
        TaskComplexity::Medium => "medium",
        TaskComplexity::Heavy => "heavy",
    }
}
