//! A model, or the name of one that has yet to be opened.

use std::{fmt, sync::Arc};

use crate::{Model, ModelName};

/// A model that is open, or the name of one, such as `"anthropic:claude-sonnet-4-5"`.
///
/// Functions that take `impl Into<ModelSource>` accept both.
#[derive(Clone)]
#[non_exhaustive]
pub enum ModelSource {
    /// The name of a model, written `provider:model`.
    Named(String),
    /// A model that is open.
    Open(Arc<dyn Model>),
}

impl From<&str> for ModelSource {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<String> for ModelSource {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

impl From<&ModelName> for ModelSource {
    fn from(name: &ModelName) -> Self {
        Self::Named(name.to_string())
    }
}

impl<M: Model> From<M> for ModelSource {
    fn from(model: M) -> Self {
        Self::Open(Arc::new(model))
    }
}

impl fmt::Debug for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.debug_tuple("Named").field(name).finish(),
            Self::Open(model) => f.debug_tuple("Open").field(model.name()).finish(),
        }
    }
}
