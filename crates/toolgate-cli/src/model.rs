//! Which model is asked, and what it costs.

use std::{path::Path, sync::Arc};

use toolgate::{
    Model, ModelName, Prices,
    models::{self, Scripted},
};

use crate::{CliError, settings::RunSection};

/// The provider whose models are files: `script:PATH` plays a scenario.
const SCRIPT: &str = "script";

/// Opens the model that is named, or the one of the configuration.
pub(crate) fn open(
    named: Option<&ModelName>,
    section: &RunSection,
) -> Result<Arc<dyn Model>, CliError> {
    let name = match (named, &section.model) {
        (Some(name), _) => name.clone(),
        (None, Some(name)) => read(name)?,
        (None, None) => {
            return Err(CliError::usage("no model is named").hint(
                "say --model provider:name, or put `model = \"provider:name\"` under [run] in toolgate.toml; \
                 `toolgate demo` needs none",
            ));
        }
    };
    if &*name.provider == SCRIPT {
        return Ok(Arc::new(script(&name.model)?));
    }
    Ok(models::open(&name)?)
}

/// Reads `provider:name`.
pub(crate) fn read(name: &str) -> Result<ModelName, CliError> {
    name.parse().map_err(|_| {
        CliError::usage(format!("{name:?} names no model")).hint(format!(
            "a model is named provider:name; providers are {}, script",
            models::PROVIDERS.join(", ")
        ))
    })
}

/// A script is played as fast as it says.
fn script(path: &str) -> Result<Scripted, CliError> {
    let loaded = Scripted::load(Path::new(path)).map(Scripted::real_time);
    loaded.map_err(|error| {
        CliError::of(&error)
            .while_doing(format!("the script {path} cannot be played"))
            .hint("script:FILE names a scenario in TOML or JSON, from the current directory")
    })
}

/// The prices that count: those of the user's file before the bundled ones.
pub(crate) fn prices(section: &RunSection) -> Result<Prices, CliError> {
    let bundled = models::bundled_prices();
    match &section.prices {
        Some(path) => models::prices_with(bundled, path).map_err(|error| CliError::of(&error)),
        None => Ok(bundled),
    }
}
