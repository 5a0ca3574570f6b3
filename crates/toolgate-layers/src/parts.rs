//! What a configuration file cannot hold: sinks, approvers, stores that screens watch.

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use toolgate_core::{Json, Redactor, contained_sync};

/// Parts by their type, shared by all layers of a stack. Cloning shares them.
///
/// A program puts in what it has before the stack is built, and takes out what its screens watch.
///
/// ```
/// use toolgate_layers::{Parts, Workspace};
/// let parts = Parts::new().with(Workspace::new("/srv/project"));
/// assert_eq!(parts.get::<Workspace>().unwrap().root().to_str(), Some("/srv/project"));
/// assert!(parts.get::<String>().is_none());
/// ```
#[derive(Clone, Default)]
pub struct Parts(Arc<Mutex<HashMap<TypeId, Part>>>);

struct Part {
    name: &'static str,
    value: Box<dyn Any + Send + Sync>,
}

impl Parts {
    /// No parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a part in, in place of an earlier one of its type.
    pub fn with<T: Clone + Send + Sync + 'static>(self, part: T) -> Self {
        self.put(part);
        self
    }

    /// Puts a part in, in place of an earlier one of its type.
    pub fn put<T: Clone + Send + Sync + 'static>(&self, part: T) {
        let part = Part { name: type_name::<T>(), value: Box::new(part) };
        self.map().insert(TypeId::of::<T>(), part);
    }

    /// Takes a part out.
    pub fn take<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        let part = self.map().remove(&TypeId::of::<T>())?;
        part.value.downcast::<T>().ok().map(|part| *part)
    }

    /// The part of this type, if there is one.
    pub fn get<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.map().get(&TypeId::of::<T>()).and_then(|part| part.value.downcast_ref::<T>()).cloned()
    }

    /// The part of this type; a fresh one, kept for whoever asks next, if there is none.
    pub fn get_or_default<T: Clone + Default + Send + Sync + 'static>(&self) -> T {
        self.get().unwrap_or_else(|| {
            let part = T::default();
            self.put(part.clone());
            part
        })
    }

    // Inserting and looking up leave the map whole.
    fn map(&self) -> MutexGuard<'_, HashMap<TypeId, Part>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.map().values().map(|part| part.name)).finish()
    }
}

/// The directory that relative paths in calls start from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace(PathBuf);

impl Workspace {
    /// The workspace with this root.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// Its root.
    pub fn root(&self) -> &std::path::Path {
        &self.0
    }
}

/// The redactor that every layer of a stack uses on what it keeps or sends away.
#[derive(Clone)]
pub struct SharedRedactor(Arc<dyn Redactor>);

impl SharedRedactor {
    /// Shares a redactor.
    pub fn new(redactor: impl Redactor) -> Self {
        Self(Arc::new(redactor))
    }

    /// Lets `other` work on what this one has left.
    pub fn and(self, other: impl Redactor) -> Self {
        Self::new(Both(self, Self::new(other)))
    }

    /// Whether both are the very same redactor.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A copy that may be kept, or nothing if that cannot be made sure.
    pub fn json(&self, value: &Json) -> Option<Json> {
        contained_sync(|| self.0.redact(value).ok()).ok().flatten()
    }

    /// A text that may be kept, or nothing if that cannot be made sure.
    pub fn text(&self, text: &str) -> Option<String> {
        contained_sync(|| self.0.redact_text(text).ok()).ok().flatten()
    }
}

impl Redactor for SharedRedactor {
    fn redact(&self, value: &Json) -> Result<Json, toolgate_core::RedactionFailed> {
        self.json(value).ok_or(toolgate_core::RedactionFailed)
    }
    fn redact_text(&self, text: &str) -> Result<String, toolgate_core::RedactionFailed> {
        self.text(text).ok_or(toolgate_core::RedactionFailed)
    }
}

/// Two redactors, one after the other.
struct Both(SharedRedactor, SharedRedactor);

impl Redactor for Both {
    fn redact(&self, value: &Json) -> Result<Json, toolgate_core::RedactionFailed> {
        self.1.redact(&self.0.redact(value)?)
    }
    fn redact_text(&self, text: &str) -> Result<String, toolgate_core::RedactionFailed> {
        self.1.redact_text(&self.0.redact_text(text)?)
    }
}

impl fmt::Debug for SharedRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedRedactor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::RedactionFailed;

    #[test]
    fn a_part_that_is_made_on_demand_is_the_same_for_whoever_asks_next() {
        let parts = Parts::new();
        parts.get_or_default::<Arc<Mutex<u32>>>().lock().expect("whole").clone_from(&7);
        assert_eq!(*parts.clone().get_or_default::<Arc<Mutex<u32>>>().lock().expect("whole"), 7);
    }

    #[test]
    fn a_redactor_that_panics_yields_nothing() {
        struct Broken;
        impl Redactor for Broken {
            fn redact(&self, _: &Json) -> Result<Json, RedactionFailed> {
                panic!("hunter2")
            }
            fn redact_text(&self, _: &str) -> Result<String, RedactionFailed> {
                panic!("hunter2")
            }
        }
        let shared = SharedRedactor::new(Broken);
        assert_eq!((shared.json(&Json::null()), shared.text("x")), (None, None));
    }
}
