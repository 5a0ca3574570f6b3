//! The model of a session, and its prices.

use std::{path::Path, sync::Arc};

use toolgate::{
    Model,
    budget::Prices,
    model::{self, ModelName, ScriptedModel},
};

use crate::{CliError, env::settings::RunSection};

/// The provider whose models are scenario files: `script:PATH`.
const SCRIPT_PROVIDER: &str = "script";

/// Opens the model that is named, or the one of the configuration.
pub(crate) fn open_model(
    named: Option<&ModelName>,
    section: &RunSection,
) -> Result<Arc<dyn Model>, CliError> {
    let name = match (named, &section.model) {
        (Some(name), _) => name.clone(),
        (None, Some(name)) => parse_model_name(name)?,
        (None, None) => {
            return Err(CliError::usage("no model is named").with_hint(
                "add --model provider:name, or put `model = \"provider:name\"` under [run] in toolgate.toml; \
                 `toolgate demo` needs none",
            ));
        }
    };
    // The library does not know this provider: scripts exist only for the command line.
    if &*name.provider == SCRIPT_PROVIDER {
        return Ok(Arc::new(load_script(&name.model)?));
    }
    Ok(model::open_model(&name)?)
}

/// Parses `provider:name`.
pub(crate) fn parse_model_name(name: &str) -> Result<ModelName, CliError> {
    name.parse().map_err(|_| {
        CliError::usage(format!("{name:?} is not a model name")).with_hint(format!(
            "a model is named provider:name; providers are {}, script",
            model::PROVIDERS.join(", ")
        ))
    })
}

/// Loads a scenario that replies with the delays it names.
fn load_script(path: &str) -> Result<ScriptedModel, CliError> {
    let loaded = ScriptedModel::load(Path::new(path)).map(ScriptedModel::real_time);
    loaded.map_err(|error| {
        CliError::from_error(&error)
            .while_doing(format!("the script {path} cannot be loaded"))
            .with_hint(
                "script:FILE names a scenario in TOML or JSON, relative to the current directory",
            )
    })
}

/// Returns the prices in effect: those of the user's file override the bundled ones.
pub(crate) fn load_prices(section: &RunSection) -> Result<Prices, CliError> {
    let bundled = model::bundled_prices();
    match &section.prices {
        Some(path) => {
            model::load_prices_over(bundled, path).map_err(|error| CliError::from_error(&error))
        }
        None => Ok(bundled),
    }
}
