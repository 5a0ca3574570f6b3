//! The models that can be used here: keys in the environment, and servers on this machine.

use std::time::Duration;

use toolgate::model::{LocalServer, find_local_servers};

use crate::{CliError, env::runtime};

/// How long a server on this machine may take to answer.
const SERVER_LIMIT: Duration = Duration::from_millis(500);

/// The variables of keys, each with a model of its provider that the bundled prices have.
const MODELS_OF_KEYS: [(&str, &str); 4] = [
    ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-4-5"),
    ("OPENAI_API_KEY", "openai:gpt-5"),
    ("GEMINI_API_KEY", "google:gemini-2.5-pro"),
    ("GOOGLE_API_KEY", "google:gemini-2.5-pro"),
];

/// A model that can be used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundModel {
    pub(super) name: String,
    /// Why it can be used, never with the value of a key.
    pub(super) source: String,
}

/// Finds the models of keys first, then those of local servers.
pub(super) fn find_models() -> Result<Vec<FoundModel>, CliError> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let servers = runtime::block_on(async { Ok(find_local_servers(SERVER_LIMIT).await) })?;
    let mut found = models_of_keys(&is_set);
    found.extend(servers.iter().flat_map(models_of_server));
    Ok(found)
}

fn models_of_keys(is_set: &dyn Fn(&str) -> bool) -> Vec<FoundModel> {
    let set = MODELS_OF_KEYS
        .iter()
        .filter(|(variable, _)| is_set(variable));
    let mut found: Vec<FoundModel> = set
        .map(|(variable, model)| FoundModel {
            name: (*model).to_owned(),
            source: format!("key in {variable}"),
        })
        .collect();
    // Google's key has two names.
    found.dedup_by(|second, first| second.name == first.name);
    found
}

/// Returns the first few models of a server: a list of dozens is no choice.
fn models_of_server(server: &LocalServer) -> impl Iterator<Item = FoundModel> {
    const MOST: usize = 5;
    server.models.iter().take(MOST).map(|model| FoundModel {
        name: format!("{}:{model}", server.provider),
        source: format!("server at {}", server.address),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate::{
        event::Cost,
        model::{Usage, bundled_prices},
    };

    #[test]
    fn every_key_has_a_model_with_a_known_price() {
        let all = models_of_keys(&|_| true);
        assert_eq!(all.len(), 3, "{all:?}");
        let usage = Usage {
            input: 1_000,
            ..Usage::default()
        };
        for found in all {
            let name = found.name.parse().expect("a name");
            let cost = bundled_prices().request_cost(&name, usage);
            assert!(matches!(cost, Cost::NanoUsd(_)), "{found:?}");
        }
    }
}
