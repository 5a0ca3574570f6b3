//! Placeholder model of a session whose host asks a model by itself.

use futures::stream::{self, BoxStream, StreamExt};
use toolgate_core::{Delta, Model, ModelError, ModelErrorKind, ModelName, ModelRequest};

/// Stands in for a model that Toolgate does not know. It is asked only by mistake.
pub(crate) struct HostModel(ModelName);

impl HostModel {
    pub(crate) fn new() -> Self {
        Self(ModelName::new("host", "unknown"))
    }
}

impl Model for HostModel {
    fn name(&self) -> &ModelName {
        &self.0
    }

    fn reply<'a>(&'a self, _: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        let detail =
            "this session has no model because its host asks one; build it with a model to run it";
        stream::iter([Err(ModelError::new(
            ModelErrorKind::Setup,
            self.0.clone(),
            detail,
        ))])
        .boxed()
    }
}
