//! Why a model could not be set up, for the person who has to mend it.

use toolgate_core::{ModelError, ModelErrorKind, ModelName};

/// Why a model could not be set up. No key is ever part of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The variable that holds the key is not set.
    #[error("{variable} is not set; it has to hold the key of the provider")]
    MissingKey {
        /// Which variable.
        variable: String,
    },
    /// The variable holds something that cannot be a key.
    #[error("{variable} does not hold a key: a key is one line of visible ASCII characters")]
    InvalidKeyIn {
        /// Which variable.
        variable: String,
    },
    /// The text cannot be a key.
    #[error("this is not a key: a key is one line of visible ASCII characters")]
    InvalidKey,
    /// The address of the provider cannot be used. It is not repeated, since it may carry a password.
    #[error("the base URL cannot be used: {reason}")]
    InvalidBaseUrl {
        /// What is wrong with it.
        reason: String,
    },
    /// The provider has no address of its own, and none was given.
    #[error("{provider} has no address of its own; {hint}")]
    MissingBaseUrl {
        /// Which provider.
        provider: String,
        /// How to give one.
        hint: String,
    },
    /// The name or the value of a header cannot be sent.
    #[error("the header {name:?} cannot be sent")]
    InvalidHeader {
        /// Which header.
        name: String,
    },
    /// No provider goes by this name.
    #[error("there is no provider named {provider:?}{}; known are {known}", nearest(.near.as_deref()))]
    UnknownProvider {
        /// The name.
        provider: String,
        /// The known name that is most like it, if one is.
        near: Option<String>,
        /// All known names.
        known: String,
    },
    /// The HTTP client could not be made; `source()` has the cause.
    #[error("the HTTP client could not be made")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl SetupError {
    /// The same as the failure of a model, for whoever only handles those.
    pub fn for_model(&self, model: ModelName) -> ModelError {
        ModelError::new(ModelErrorKind::Setup, model, self.to_string())
    }
}

fn nearest(near: Option<&str>) -> String {
    near.map(|near| format!(" (did you mean {near}?)"))
        .unwrap_or_default()
}
