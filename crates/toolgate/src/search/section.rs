//! `[search]` of `toolgate.toml`.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Embedder, SearchService, StoreHandle};
use toolgate_layers::ProgramSection;
use toolgate_runtime::SystemClock;

use crate::{Error, Result};

/// `[search]`: how sessions are searched.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SearchSection {
    /// What turns texts into vectors, for search by meaning: `local`, `none`, or an endpoint.
    pub embedder: EmbedderChoice,
}

/// What turns texts into vectors.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmbedderChoice {
    /// The model that is built in: no key, no network.
    #[default]
    Local,
    /// Nothing: search by words only.
    None,
    /// A server with an OpenAI-compatible `/embeddings`. The texts of sessions are sent there, redacted
    /// as events are.
    Endpoint(EndpointSection),
}

/// A server that turns texts into vectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointSection {
    /// The name of the model at the server.
    pub model: String,
    /// The number of dimensions of its vectors.
    pub dimensions: usize,
    /// The address before `/embeddings`; by default that of OpenAI.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The environment variable with the key; by default that of OpenAI for its address, and none for
    /// others.
    #[serde(default)]
    pub key_variable: Option<String>,
}

impl ProgramSection for SearchSection {
    const NAME: &'static str = "search";
}

impl SearchSection {
    /// Opens the search over a store, with this embedder. Nothing is loaded and nothing is sent yet.
    ///
    /// # Errors
    ///
    /// Fails if the endpoint cannot be used, or if this program is built without HTTP.
    pub fn open_search(&self, store: StoreHandle) -> Result<SearchService> {
        let service = SearchService::new(store, SystemClock::new());
        Ok(match self.open_embedder()? {
            Some(embedder) => service.with_embedder(embedder),
            None => service,
        })
    }

    /// Opens the embedder. Nothing is loaded and nothing is sent yet.
    ///
    /// # Errors
    ///
    /// Fails if the endpoint cannot be used, or if this program is built without HTTP.
    pub(crate) fn open_embedder(&self) -> Result<Option<Arc<dyn Embedder>>> {
        match &self.embedder {
            EmbedderChoice::None => Ok(None),
            EmbedderChoice::Local => Ok(local_embedder()),
            EmbedderChoice::Endpoint(endpoint) => endpoint.open().map(Some).map_err(|error| {
                error.while_doing("the endpoint in the section [search] cannot be used")
            }),
        }
    }
}

#[cfg(feature = "local-embeddings")]
fn local_embedder() -> Option<Arc<dyn Embedder>> {
    Some(Arc::new(toolgate_models::LocalEmbedder::new()))
}

/// Without the built-in model, every mode searches by words, and an answer says so.
#[cfg(not(feature = "local-embeddings"))]
fn local_embedder() -> Option<Arc<dyn Embedder>> {
    None
}

impl EndpointSection {
    #[cfg(feature = "http")]
    fn open(&self) -> Result<Arc<dyn Embedder>> {
        use toolgate_models::{ApiKey, EndpointEmbedder};
        let mut builder = EndpointEmbedder::builder(&self.model, self.dimensions);
        if let Some(url) = &self.base_url {
            builder = builder.base_url(url.clone());
        }
        if let Some(variable) = &self.key_variable {
            builder = builder.key(ApiKey::from_env(variable).map_err(Error::from_source)?);
        }
        Ok(Arc::new(builder.build().map_err(Error::from_source)?))
    }

    #[cfg(not(feature = "http"))]
    fn open(&self) -> Result<Arc<dyn Embedder>> {
        Err(Error::configuration("this program is built without HTTP")
            .with_hint("build it with the feature http, or set search.embedder to \"local\""))
    }
}
