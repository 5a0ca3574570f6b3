//! The models that a gate opens by name, and their prices.

use std::{path::Path, sync::Arc};

use toolgate_core::{Model, ModelName, ModelSource, Prices};
use toolgate_models::{ScriptedModel, bundled_prices, load_prices_over};

use crate::{Error, Result, gate::RunSection};

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
    let parsed = parse_model_name(name)?;
    if &*parsed.provider == SCRIPT_PROVIDER {
        return Ok(Arc::new(load_script(&parsed.model)?));
    }
    open_provider(&parsed)
}

/// Parses `provider:name`.
///
/// # Errors
///
/// Fails if the text is not of this form; the hint lists the providers.
pub fn parse_model_name(name: &str) -> Result<ModelName> {
    name.parse().map_err(|_| {
        Error::configuration(format!("{name:?} is not a model name")).with_hint(format!(
            "a model is named provider:name; providers are {}{SCRIPT_PROVIDER}",
            known_providers()
        ))
    })
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
fn open_provider(name: &ModelName) -> Result<Arc<dyn Model>> {
    Ok(toolgate_models::open_model(name)?)
}

#[cfg(not(feature = "http"))]
fn open_provider(name: &ModelName) -> Result<Arc<dyn Model>> {
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

/// Opens a model, unless it is open already.
pub(super) fn open_source(source: ModelSource) -> Result<Arc<dyn Model>> {
    match source {
        ModelSource::Open(model) => Ok(model),
        ModelSource::Named(name) => open_model(&name),
        other => Err(Error::configuration(format!(
            "{other:?} is not a model that this version can open"
        ))),
    }
}

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
