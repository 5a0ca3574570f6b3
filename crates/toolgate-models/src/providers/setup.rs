//! The errors of setting up a model, for the user who has to fix the setup.

use toolgate_core::{ModelError, ModelErrorKind, ModelName};

/// The reason why a model could not be set up. It never contains a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The variable that holds the key is not set.
    #[error("{variable} is not set; it has to hold the key of the provider")]
    MissingKey {
        /// The name of the variable.
        variable: String,
    },
    /// The variable holds something that cannot be a key.
    #[error("{variable} does not hold a key: a key is one line of visible ASCII characters")]
    InvalidKeyIn {
        /// The name of the variable.
        variable: String,
    },
    /// The text cannot be a key.
    #[error("this is not a key: a key is one line of visible ASCII characters")]
    InvalidKey,
    /// The base URL of the provider is invalid. It is not repeated, since it may contain a
    /// password.
    #[error("the base URL cannot be used: {reason}")]
    InvalidBaseUrl {
        /// The problem with the URL.
        reason: String,
    },
    /// The provider has no default address, and none was given.
    #[error("{provider} has no default address; {hint}")]
    MissingBaseUrl {
        /// The name of the provider.
        provider: String,
        /// The way to set an address.
        hint: String,
    },
    /// The variable does not hold a time limit.
    #[error("{variable} does not hold a number of seconds above 0")]
    InvalidTimeout {
        /// The name of the variable.
        variable: &'static str,
    },
    /// The name or the value of a header cannot be sent.
    #[error("the header {name:?} cannot be sent")]
    InvalidHeader {
        /// The name of the header.
        name: String,
    },
    /// No vector has so many dimensions.
    #[error("a vector cannot have {found} dimensions; the number is between 1 and {most}")]
    InvalidDimensions {
        /// The number that was given.
        found: usize,
        /// The largest number.
        most: usize,
    },
    /// No provider has this name.
    #[error("there is no provider named {provider:?}{}; known are {known}", suggestion_suffix(.near.as_deref()))]
    UnknownProvider {
        /// The name that was given.
        provider: String,
        /// The most similar known name, if one is similar enough.
        near: Option<String>,
        /// All known names.
        known: String,
    },
    /// The HTTP client could not be built; `source()` has the cause.
    #[error("the HTTP client could not be built: {0}")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl SetupError {
    /// Converts the error into a model error, for callers that only handle those.
    pub fn to_model_error(&self, model: ModelName) -> ModelError {
        ModelError::new(ModelErrorKind::Setup, model, self.to_string())
    }
}

fn suggestion_suffix(near: Option<&str>) -> String {
    near.map(|near| format!(" (did you mean {near}?)"))
        .unwrap_or_default()
}
