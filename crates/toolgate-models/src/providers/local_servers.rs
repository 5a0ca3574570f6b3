//! Finds servers for models on this machine: Ollama, vLLM and llama.cpp.

use std::time::Duration;

use futures::future::join_all;
use reqwest::Url;
use serde::Deserialize;

use super::{
    EnvLookup, LLAMA_CPP_BASE_URL, VLLM_BASE_URL,
    builder::{WireLimits, build_client, is_loopback, parse_base_url},
    find_ollama_url, read_variable,
};

/// The size limit of a list of models.
const MAX_LIST_BYTES: usize = 1024 * 1024;

/// A server on this machine that listed its models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    /// The provider to name it by, such as `ollama`.
    pub provider: &'static str,
    /// Its address.
    pub address: String,
    /// The names of its models, as it lists them.
    pub models: Vec<String>,
}

/// Asks the servers of this machine for their models: at the addresses of their variables
/// (`OLLAMA_HOST`, `VLLM_BASE_URL`, `LLAMA_CPP_BASE_URL`), or at their usual ports. A server that does not
/// answer within `limit`, has no models, or is not on this machine is left out. No key is sent.
pub async fn find_local_servers(limit: Duration) -> Vec<LocalServer> {
    let asked = server_addresses(&read_variable).map(|(provider, address)| async move {
        let models = tokio::time::timeout(limit, list_models(&address));
        let models = models.await.ok().flatten()?;
        Some(LocalServer {
            provider,
            address,
            models,
        })
    });
    let found = join_all(asked).await.into_iter().flatten();
    found.filter(|server| !server.models.is_empty()).collect()
}

fn server_addresses(environment: EnvLookup<'_>) -> [(&'static str, String); 3] {
    let address =
        |variable: &str, usual: &str| environment(variable).unwrap_or_else(|| usual.to_owned());
    [
        ("ollama", find_ollama_url(environment)),
        ("vllm", address("VLLM_BASE_URL", VLLM_BASE_URL)),
        (
            "llama-cpp",
            address("LLAMA_CPP_BASE_URL", LLAMA_CPP_BASE_URL),
        ),
    ]
}

/// The list of models of a compatible server.
#[derive(Deserialize)]
struct ModelList {
    data: Vec<ListedModel>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
}

/// Returns the models of a server; `None` for anything that is not such a server.
async fn list_models(address: &str) -> Option<Vec<String>> {
    let base = parse_base_url(address).ok()?;
    if !is_loopback(&base) {
        return None;
    }
    let url = Url::parse(&format!("{}/models", base.as_str().trim_end_matches('/'))).ok()?;
    let client = build_client(&WireLimits::default(), true).ok()?;
    let mut response = client.get(url).send().await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.ok()? {
        body.extend_from_slice(&piece);
        // Any program may listen on these ports.
        if body.len() > MAX_LIST_BYTES {
            return None;
        }
    }
    let list: ModelList = serde_json::from_slice(&body).ok()?;
    Some(list.data.into_iter().map(|model| model.id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_looked_for_at_their_variables_and_else_at_their_usual_ports() {
        let usual = server_addresses(&|_| None).map(|(_, address)| address);
        assert_eq!(
            usual,
            [
                "http://127.0.0.1:11434/v1",
                "http://127.0.0.1:8000/v1",
                "http://127.0.0.1:8080/v1"
            ]
        );
        let named = server_addresses(&|name| Some(format!("http://{name}:1/v1")));
        assert_eq!(named[2].1, "http://LLAMA_CPP_BASE_URL:1/v1");
    }

    #[tokio::test]
    async fn a_server_elsewhere_is_not_asked() {
        assert_eq!(list_models("http://192.0.2.1:11434/v1").await, None);
    }
}
