//! What a configuration file cannot hold: sinks, approvers, stores that screens watch.

use std::{
    any::{Any, TypeId, type_name},
    borrow::Cow,
    collections::HashMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Map, Value};
use toolgate_core::{Json, MAX_DEPTH, RedactionFailed, Redactor, contained_sync};

use crate::Secrets;

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
        let part = Part {
            name: type_name::<T>(),
            value: Box::new(part),
        };
        self.map().insert(TypeId::of::<T>(), part);
    }

    /// Takes a part out.
    pub fn take<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        let part = self.map().remove(&TypeId::of::<T>())?;
        part.value.downcast::<T>().ok().map(|part| *part)
    }

    /// The part of this type, if there is one.
    pub fn get<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.map()
            .get(&TypeId::of::<T>())
            .and_then(|part| part.value.downcast_ref::<T>())
            .cloned()
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
        f.debug_set()
            .entries(self.map().values().map(|part| part.name))
            .finish()
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
pub struct SharedRedactor(Arc<dyn Finds>);

impl SharedRedactor {
    /// Shares a redactor.
    pub fn new(redactor: impl Redactor) -> Self {
        Self(Arc::new(Plain(redactor)))
    }

    /// Shares the bundled one, which copies nothing to find out that there is nothing in it.
    pub(crate) fn bundled(secrets: Secrets) -> Self {
        Self(Arc::new(secrets))
    }

    /// Lets `other` work on what this one has left.
    pub fn and(self, other: impl Redactor) -> Self {
        Self(Arc::new(Both(self, Self::new(other))))
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
        contained_sync(|| self.0.redact_text(text).ok())
            .ok()
            .flatten()
    }

    /// The text without secrets; nothing if it may be kept as it is.
    pub(crate) fn changed_text(&self, text: &str) -> Result<Option<String>, RedactionFailed> {
        contained_sync(|| self.0.changed_text(text)).unwrap_or(Err(RedactionFailed))
    }

    /// The object without secrets; nothing if it may be kept as it is.
    pub(crate) fn changed_map(
        &self,
        map: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, RedactionFailed> {
        contained_sync(|| self.0.changed_map(map)).unwrap_or(Err(RedactionFailed))
    }
}

/// A redactor that can also be asked whether there is anything to take out, and then need not make a copy.
trait Finds: Redactor {
    fn changed_text(&self, text: &str) -> Result<Option<String>, RedactionFailed> {
        Ok(Some(self.redact_text(text)?).filter(|clean| clean != text))
    }

    fn changed_map(
        &self,
        map: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, RedactionFailed> {
        let json = Json::new(Value::Object(map.clone())).map_err(|_| RedactionFailed)?;
        let clean = self.redact(&json)?;
        if clean == json {
            return Ok(None);
        }
        clean.as_object().cloned().map(Some).ok_or(RedactionFailed)
    }
}

/// A redactor of which nothing more is known.
struct Plain<R>(R);

impl<R: Redactor> Redactor for Plain<R> {
    fn redact(&self, value: &Json) -> Result<Json, RedactionFailed> {
        self.0.redact(value)
    }
    fn redact_text(&self, text: &str) -> Result<String, RedactionFailed> {
        self.0.redact_text(text)
    }
}

impl<R: Redactor> Finds for Plain<R> {}

impl Finds for Both {}

impl Finds for Secrets {
    fn changed_text(&self, text: &str) -> Result<Option<String>, RedactionFailed> {
        Ok(match self.text(text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(clean) => Some(clean).filter(|clean| clean != text),
        })
    }

    fn changed_map(
        &self,
        map: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, RedactionFailed> {
        // As for any value that is made JSON: what is nested too deeply is not looked through.
        if !map.values().all(|value| within_depth(value, MAX_DEPTH - 1)) {
            return Err(RedactionFailed);
        }
        Ok(self.object(map).filter(|clean| clean != map))
    }
}

fn within_depth(value: &Value, left: usize) -> bool {
    match value {
        Value::Array(items) => left > 0 && items.iter().all(|item| within_depth(item, left - 1)),
        Value::Object(map) => left > 0 && map.values().all(|item| within_depth(item, left - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

impl Redactor for SharedRedactor {
    fn redact(&self, value: &Json) -> Result<Json, RedactionFailed> {
        self.json(value).ok_or(RedactionFailed)
    }
    fn redact_text(&self, text: &str) -> Result<String, RedactionFailed> {
        self.text(text).ok_or(RedactionFailed)
    }
}

/// Two redactors, one after the other.
struct Both(SharedRedactor, SharedRedactor);

impl Redactor for Both {
    fn redact(&self, value: &Json) -> Result<Json, RedactionFailed> {
        self.1.redact(&self.0.redact(value)?)
    }
    fn redact_text(&self, text: &str) -> Result<String, RedactionFailed> {
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
    use serde_json::json;

    #[test]
    fn a_part_that_is_made_on_demand_is_the_same_for_whoever_asks_next() {
        let parts = Parts::new();
        parts
            .get_or_default::<Arc<Mutex<u32>>>()
            .lock()
            .expect("whole")
            .clone_from(&7);
        assert_eq!(
            *parts
                .clone()
                .get_or_default::<Arc<Mutex<u32>>>()
                .lock()
                .expect("whole"),
            7
        );
    }

    #[test]
    fn the_bundled_redactor_finds_what_any_redactor_would() {
        let (bundled, any) = (
            SharedRedactor::bundled(Secrets::standard()),
            SharedRedactor::new(Secrets::standard()),
        );
        for text in [
            "nothing",
            "",
            "curl https://ann:hunter2@host/x",
            "password=[redacted:password]",
        ] {
            assert_eq!(bundled.changed_text(text), any.changed_text(text), "{text}");
        }
        let deep = |levels: usize| {
            (1..levels).fold(
                json!({ "token": "hunter2" }),
                |inner, _| json!({ "in": inner }),
            )
        };
        let plain = json!({ "n": 1, "list": ["x", { "y": "z" }] });
        for value in [
            json!({}),
            plain,
            deep(1),
            deep(MAX_DEPTH),
            deep(MAX_DEPTH + 1),
            json!({ "ok": deep(MAX_DEPTH) }),
        ] {
            let map = value.as_object().expect("an object");
            assert_eq!(bundled.changed_map(map), any.changed_map(map));
        }
        assert_eq!(
            bundled.changed_map(deep(MAX_DEPTH + 1).as_object().expect("an object")),
            Err(RedactionFailed)
        );
        assert_eq!(
            bundled.changed_map(deep(1).as_object().expect("an object")),
            Ok(json!({ "token": "[redacted:token]" }).as_object().cloned())
        );
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
