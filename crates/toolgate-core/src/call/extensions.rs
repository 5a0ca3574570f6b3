//! Values that a layer puts on a call for the layers below it, one of each type.

use std::{any::Any, sync::Arc};

/// The extensions of a call, newest first; without any, nothing is allocated.
#[derive(Clone, Default)]
pub(crate) struct CallExtensions(Option<Arc<ExtensionNode>>);

struct ExtensionNode<T: ?Sized = dyn Any + Send + Sync> {
    older: CallExtensions,
    value: T,
}

impl CallExtensions {
    /// Checks whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds a value, which hides an older one of its type.
    pub(crate) fn add<T: Send + Sync + 'static>(&mut self, value: T) {
        let older = std::mem::take(self);
        self.0 = Some(Arc::new(ExtensionNode { older, value }));
    }

    /// Returns the newest value of this type.
    pub(crate) fn find<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values().next()
    }

    /// Returns the values of this type, newest first, with those that newer ones hide.
    pub(crate) fn values<T: Send + Sync + 'static>(&self) -> impl Iterator<Item = &T> {
        let nodes = std::iter::successors(self.0.as_deref(), |node| node.older.0.as_deref());
        nodes.filter_map(|node| node.value.downcast_ref::<T>())
    }
}
