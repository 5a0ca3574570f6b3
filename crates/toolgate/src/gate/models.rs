//! The models that a gate opens by name, and their prices.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use toolgate_core::{Clock, Model, ModelName, ModelSource, Prices};
use toolgate_layers::Config;
use toolgate_models::{ScriptedModel, bundled_prices, load_prices_over};
use toolgate_runtime::{
    ModelRouter, RetryPolicy, RetryingModel, RoutingConfig, RoutingDecision, RoutingHook,
};

use crate::{
    Error, Result,
    gate::{RoutingSection, RunSection},
};

/// The provider whose models are scenario files: `script:PATH`.
pub(super) const SCRIPT_PROVIDER: &str = "script";

/// Opens a model by its name, such as `anthropic:claude-sonnet-4-5`, `ollama:llama3` or
/// `script:demo.toml`. Keys come from the environment.
///
/// # Errors
///
/// Fails if the name is not `provider:name`, if there is no such provider, if its key is not set,
/// or if the scenario cannot be loaded.
pub fn open_model(name: &str) -> Result<Arc<dyn Model>> {
    ModelAddresses::default().open_model(name)
}

/// Parses `provider:name`.
///
/// # Errors
///
/// Fails if the text is not of this form; the hint lists the providers.
pub fn parse_model_name(name: &str) -> Result<ModelName> {
    name.parse().map_err(|_| {
        let hint = suggest_model(name).unwrap_or_else(|| {
            format!(
                "a model is named provider:name; providers are {}{SCRIPT_PROVIDER}",
                known_providers()
            )
        });
        Error::configuration(format!("{name:?} is not a model name")).with_hint(hint)
    })
}

/// Returns what the user may have meant by the name of a model without its provider: the model of
/// that name, or of the same family.
fn suggest_model(name: &str) -> Option<String> {
    // `claude-…`, `gpt-…`: fewer common letters say nothing.
    const MIN_COMMON: usize = 4;
    let prices = bundled_prices();
    let common = |model: &ModelName| {
        let pairs = model.model.bytes().zip(name.bytes());
        pairs.take_while(|(known, given)| known == given).count()
    };
    let known = prices.models().map(|(model, _)| model);
    let nearest = known.max_by_key(|model| (common(model), &*model.model == name))?;
    if &*nearest.model == name {
        return Some(format!("did you mean {nearest}?"));
    }
    (common(&nearest) >= MIN_COMMON)
        .then(|| format!("a model is named provider:name, such as {nearest}"))
}

/// Checks whether models of this provider can be opened by name.
#[cfg(feature = "http")]
pub fn is_provider(name: &str) -> bool {
    name == SCRIPT_PROVIDER || toolgate_models::PROVIDERS.contains(&name)
}

/// Checks whether models of this provider can be opened by name: only scripts without the network.
#[cfg(not(feature = "http"))]
pub fn is_provider(name: &str) -> bool {
    name == SCRIPT_PROVIDER
}

#[cfg(feature = "http")]
fn known_providers() -> String {
    format!("{}, ", toolgate_models::PROVIDERS.join(", "))
}

#[cfg(not(feature = "http"))]
fn known_providers() -> String {
    String::new()
}

#[cfg(feature = "http")]
fn open_provider(
    name: &ModelName,
    chosen: Option<String>,
    configured: Option<String>,
) -> Result<Arc<dyn Model>> {
    let address = toolgate_models::ModelAddress { chosen, configured };
    Ok(toolgate_models::open_model_at(name, &address)?)
}

#[cfg(not(feature = "http"))]
fn open_provider(name: &ModelName, _: Option<String>, _: Option<String>) -> Result<Arc<dyn Model>> {
    let problem = format!("{name} needs the network, and this program is built without it");
    Err(Error::configuration(problem)
        .with_hint("switch on the feature `http` of the crate `toolgate`"))
}

/// Returns the environment variables that hold keys of providers.
#[cfg(feature = "http")]
pub fn key_variables() -> &'static [&'static str] {
    &toolgate_models::KEY_VARIABLES
}

/// Returns the environment variables that hold keys of providers: none without the network.
#[cfg(not(feature = "http"))]
pub fn key_variables() -> &'static [&'static str] {
    &[]
}

/// How a session asks its models.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelOptions {
    /// How models are retried after temporary failures, in place of `[run] retry`.
    pub retry: Option<RetryPolicy>,
    /// The address of the model's provider, before its variable and `[run] base_url`.
    pub base_url: Option<String>,
}

/// The addresses of providers that are not in the environment. Each holds for one provider only, so
/// that no key of another one is sent there.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelAddresses {
    chosen: Option<(Arc<str>, String)>,
    configured: Option<(Arc<str>, String)>,
}

impl ModelAddresses {
    /// Collects the addresses: the chosen one is that of the requested model, the configured one that
    /// of the model in the configuration.
    pub(super) fn new(
        run: &RunSection,
        routing: &RoutingSection,
        requested: &ModelSource,
        chosen: Option<&str>,
    ) -> Result<Self> {
        let requested = match requested {
            ModelSource::Named(name) => Some(routing.0.resolve_alias(name)),
            _ => None,
        };
        let chosen = match (chosen, requested) {
            (Some(url), Some(name)) => Some((provider_of(name)?, url.to_owned())),
            (Some(_), None) => {
                return Err(Error::configuration(
                    "a model that is open already has an address of its own",
                ));
            }
            (None, _) => None,
        };
        let configured = Self::configured(run, routing)?;
        Ok(Self { chosen, configured })
    }

    /// Returns the address of the configuration with its provider.
    pub(super) fn configured(
        run: &RunSection,
        routing: &RoutingSection,
    ) -> Result<Option<(Arc<str>, String)>> {
        let Some(url) = &run.base_url else {
            return Ok(None);
        };
        let model = run.model.as_ref().or(routing.0.default.as_ref());
        let model = model.ok_or_else(|| {
            Error::configuration("base_url is set under [run], and no model").with_hint(
                "add `model = \"provider:name\"`: the address holds for that provider only",
            )
        })?;
        let provider = provider_of(routing.0.resolve_alias(model))?;
        Ok(Some((provider, url.clone())))
    }

    fn open_model(&self, name: &str) -> Result<Arc<dyn Model>> {
        let parsed = parse_model_name(name)?;
        if &*parsed.provider == SCRIPT_PROVIDER {
            return Ok(Arc::new(load_script(&parsed.model)?));
        }
        let of_provider = |address: &Option<(Arc<str>, String)>| {
            let found = address.as_ref();
            let found = found.filter(|(provider, _)| **provider == *parsed.provider);
            found.map(|(_, url)| url.clone())
        };
        open_provider(
            &parsed,
            of_provider(&self.chosen),
            of_provider(&self.configured),
        )
    }
}

fn provider_of(name: &str) -> Result<Arc<str>> {
    Ok((*parse_model_name(name)?.provider).into())
}

/// Opens a model as a session does whose configuration this is: with `[run] base_url`, if the model is
/// of that provider.
///
/// # Errors
///
/// Fails like [`open_model`], and if the configuration has an address without a model.
pub fn open_configured_model(config: &Config, name: &str) -> Result<Arc<dyn Model>> {
    let run = RunSection::of(config)?;
    let routing = RoutingSection::of(config)?;
    let name = routing.0.resolve_alias(name);
    let source = ModelSource::from(name);
    ModelAddresses::new(&run, &routing, &source, None)?.open_model(name)
}

/// How a gate asks models: which one, where, and how often.
pub(super) struct ModelSetup<'a> {
    pub(super) routing: &'a RoutingSection,
    pub(super) hooks: &'a [Arc<dyn RoutingHook>],
    pub(super) retry: RetryPolicy,
    pub(super) addresses: ModelAddresses,
    pub(super) clock: Arc<dyn Clock>,
}

/// A model as a session asks it: chosen by the routing, retried after temporary failures.
pub(super) struct PreparedModel {
    pub(super) model: Arc<dyn Model>,
    /// All models that may be asked in its place, for the reservation of budgets.
    pub(super) may_use: Vec<ModelName>,
}

impl ModelSetup<'_> {
    /// Opens a model, and those that the routing may choose in its place.
    pub(super) fn prepare_model(&self, source: ModelSource) -> Result<PreparedModel> {
        let requested = self.open_source(source)?;
        let mut may_use = Vec::new();
        let model: Arc<dyn Model> =
            if self.routing.0 == RoutingConfig::default() && self.hooks.is_empty() {
                requested
            } else {
                let router = self.build_router(requested)?;
                may_use.extend(router.model_names().cloned());
                Arc::new(router)
            };
        let model = RetryingModel::new(model, self.retry, self.clock.clone());
        Ok(PreparedModel {
            model: Arc::new(model),
            may_use,
        })
    }

    fn open_source(&self, source: ModelSource) -> Result<Arc<dyn Model>> {
        match source {
            ModelSource::Open(model) => Ok(model),
            ModelSource::Named(name) => {
                let name = self.routing.0.resolve_alias(&name);
                self.addresses.open_model(name)
            }
            other => Err(Error::configuration(format!(
                "{other:?} is not a model that this version can open"
            ))),
        }
    }

    fn build_router(&self, requested: Arc<dyn Model>) -> Result<ModelRouter> {
        let mut routing = self.routing.0.clone();
        // `[run] model` and `--model` go before `[routing] default`.
        routing.default = None;
        // A script has another name than its file, so names are replaced by those of the models.
        let mut names = BTreeMap::from([(requested.name().to_string(), requested.name().clone())]);
        let mut models = vec![requested];
        for name in routing.models().map(str::to_owned).collect::<Vec<_>>() {
            if names.contains_key(&name) {
                continue;
            }
            let model = self.addresses.open_model(&name)?;
            if !models.iter().any(|open| open.name() == model.name()) {
                models.push(model.clone());
            }
            names.insert(name, model.name().clone());
        }
        routing.rename_models(|name| names.get(name).map_or(name.into(), ToString::to_string));
        routing.default = Some(models[0].name().to_string());
        let shared = |hook: &Arc<dyn RoutingHook>| {
            let hook = hook.clone();
            let route = move |decision: &RoutingDecision<'_>| hook.route(decision);
            Box::new(route) as Box<dyn RoutingHook>
        };
        let hooks = self.hooks.iter().map(shared).collect();
        ModelRouter::new(routing, models, hooks)
            .map_err(|error| Error::from_source(error).with_hint(ROUTING_HINT))
    }
}

/// The hint for a `[routing]` section that cannot be used.
const ROUTING_HINT: &str = "correct the section [routing] of the configuration";

/// Loads a scenario that replies with the delays it names.
fn load_script(path: &str) -> Result<ScriptedModel> {
    let loaded = ScriptedModel::load(Path::new(path)).map(ScriptedModel::real_time);
    loaded.map_err(|error| {
        Error::from_source(error)
            .while_doing(format!("the script {path} cannot be loaded"))
            .with_hint(
                "script:FILE names a scenario in TOML or JSON, relative to the current directory",
            )
    })
}

/// Returns the prices in effect: those of the user's file override the bundled ones.
///
/// # Errors
///
/// Fails if the file cannot be loaded.
pub fn load_prices(section: &RunSection) -> Result<Prices> {
    match &section.prices {
        Some(path) => Ok(load_prices_over(bundled_prices(), path)?),
        None => Ok(bundled_prices()),
    }
}
