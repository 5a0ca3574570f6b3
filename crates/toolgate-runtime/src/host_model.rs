//! The model of a session whose host asks a model by itself.

use futures::stream::{self, BoxStream, StreamExt};
use toolgate_core::{Delta, Model, ModelError, ModelErrorKind, ModelName, ModelRequest};

/// Stands in for a model that Toolgate does not know. It is never asked, unless by mistake.
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
            "the host asks its model by itself; a session that is to ask one has to be given it";
        stream::iter([Err(ModelError::new(
            ModelErrorKind::Setup,
            self.0.clone(),
            detail,
        ))])
        .boxed()
    }
}
