//! Services that a configuration file cannot hold: sinks, approvers, stores that screens watch.

use std::{
    any::{Any, TypeId, type_name},
    borrow::Cow,
    collections::HashMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Map, Value};
use toolgate_core::{
    Json, MAX_DEPTH, RedactionError, Redactor, SecretSpan, run_contained_sync, within_depth,
};

use crate::{SecretScanner, config::bundled_resources::is_bundled_resource};

/// A map from type to value, shared by all layers of a stack. Clones share its content.
///
/// A program adds its services before the stack is built, and gets from it what its screens watch.
/// What bundled layers take has a setter of its own. [`Resources::with`] is for layers of the
/// program; a value that no layer takes is an error when the stack is built.
///
/// ```
/// use toolgate_layers::{PathBase, Resources};
/// let parts = Resources::new().path_base("/srv/project").with("for a layer of the program");
/// assert_eq!(parts.get::<PathBase>().unwrap().root().to_str(), Some("/srv/project"));
/// assert!(parts.get::<String>().is_none());
/// ```
#[derive(Clone, Default)]
pub struct Resources(Arc<Mutex<HashMap<TypeId, ResourceEntry>>>);

struct ResourceEntry {
    name: &'static str,
    value: Box<dyn Any + Send + Sync>,
    /// True if a layer or the program has asked for it.
    taken: bool,
}

impl Resources {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value, replacing an earlier one of its type.
    pub fn with<T: Clone + Send + Sync + 'static>(self, part: T) -> Self {
        self.insert(part);
        self
    }

    /// Adds a value, replacing an earlier one of its type.
    pub fn insert<T: Clone + Send + Sync + 'static>(&self, part: T) {
        let part = ResourceEntry {
            name: type_name::<T>(),
            value: Box::new(part),
            taken: false,
        };
        self.lock_entries().insert(TypeId::of::<T>(), part);
    }

    /// Removes the value of this type and returns it.
    pub fn remove<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        let part = self.lock_entries().remove(&TypeId::of::<T>())?;
        part.value.downcast::<T>().ok().map(|part| *part)
    }

    /// Returns the value of this type, if there is one.
    pub fn get<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        let mut entries = self.lock_entries();
        let part = entries.get_mut(&TypeId::of::<T>())?;
        part.taken = true;
        part.value.downcast_ref::<T>().cloned()
    }

    /// Returns the value of this type. If there is none, stores a default one first, so that later
    /// callers share it.
    pub fn get_or_default<T: Clone + Default + Send + Sync + 'static>(&self) -> T {
        self.get().unwrap_or_else(|| {
            let part = T::default();
            self.insert(part.clone());
            part
        })
    }

    /// Returns the name of a type that neither a bundled layer nor anything else has asked for.
    pub(super) fn unused_type(&self) -> Option<&'static str> {
        let entries = self.lock_entries();
        let unused =
            |(id, part): &(&TypeId, &ResourceEntry)| !part.taken && !is_bundled_resource(**id);
        // The first by name: the order of a hash map would make the error random.
        let names = entries.iter().filter(unused).map(|(_, part)| part.name);
        names.min()
    }

    // A poisoned lock is usable: no operation under it leaves the map half-changed.
    fn lock_entries(&self) -> MutexGuard<'_, HashMap<TypeId, ResourceEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.lock_entries().values().map(|part| part.name))
            .finish()
    }
}

/// The directory that relative paths in calls start from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathBase(PathBuf);

impl PathBase {
    /// Creates a base with this directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// Returns the directory.
    pub fn root(&self) -> &std::path::Path {
        &self.0
    }
}

/// Values that are secret wherever they occur: the layer `redact` finds them by their text.
#[derive(Clone, Default)]
pub struct KnownSecrets(Arc<[String]>);

impl KnownSecrets {
    /// Creates a list of these values.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        Self(values.into_iter().collect())
    }

    /// Returns the values.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownSecrets({})", self.0.len())
    }
}

/// The redactor that every layer of a stack applies to what it stores or sends away.
#[derive(Clone)]
pub struct SharedRedactor(Arc<dyn LazyRedactor>);

impl SharedRedactor {
    /// Shares a redactor.
    pub fn new(redactor: impl Redactor) -> Self {
        Self(Arc::new(ComparingRedactor(redactor)))
    }

    /// Shares the bundled redactor, which makes no copy if there is nothing to redact.
    pub(crate) fn from_secrets(secrets: SecretScanner) -> Self {
        Self(Arc::new(secrets))
    }

    /// Applies `other` to the output of this redactor.
    pub fn and(self, other: impl Redactor) -> Self {
        Self(Arc::new(ChainedRedactor(self, Self::new(other))))
    }

    /// Checks whether it has rules of a program, which may fail. The bundled ones do not.
    pub(crate) fn can_fail(&self) -> bool {
        self.0.can_fail()
    }

    /// Checks whether both are the same instance.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns a redacted copy, or `None` if the redactor fails or panics. `None` must not be
    /// stored as the original.
    pub fn redacted_json(&self, value: &Json) -> Option<Json> {
        // A panic counts as a failure: a recorder must not store a value whose redaction was
        // interrupted.
        run_contained_sync(|| self.0.redact(value).ok())
            .ok()
            .flatten()
    }

    /// Returns the redacted text, or `None` if the redactor fails or panics.
    pub fn redacted_text(&self, text: &str) -> Option<String> {
        run_contained_sync(|| self.0.redact_text(text).ok())
            .ok()
            .flatten()
    }

    /// Returns the redacted text, or `None` if there was nothing to redact.
    pub(crate) fn changed_text(&self, text: &str) -> Result<Option<String>, RedactionError> {
        run_contained_sync(|| self.0.changed_text(text)).unwrap_or(Err(RedactionError))
    }

    /// Returns the redacted object, or `None` if there was nothing to redact.
    pub(crate) fn changed_map(
        &self,
        map: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, RedactionError> {
        run_contained_sync(|| self.0.changed_map(map)).unwrap_or(Err(RedactionError))
    }
}

/// A redactor that can say that there is nothing to redact, without making a copy.
trait LazyRedactor: Redactor {
    fn can_fail(&self) -> bool {
        true
    }

    fn changed_text(&self, text: &str) -> Result<Option<String>, RedactionError> {
        Ok(Some(self.redact_text(text)?).filter(|clean| clean != text))
    }

    fn changed_map(
        &self,
        map: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, RedactionError> {
        let json = Json::new(Value::Object(map.clone())).map_err(|_| RedactionError)?;
        let clean = self.redact(&json)?;
        if clean == json {
            return Ok(None);
        }
        clean.as_object().cloned().map(Some).ok_or(RedactionError)
    }
}

/// An adapter for any [`Redactor`]: it redacts a copy and compares.
struct ComparingRedactor<R>(R);

impl<R: Redactor> Redactor for ComparingRedactor<R> {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        self.0.redact(value)
    }
    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        self.0.redact_text(text)
    }
    fn find_secrets(&self, field: Option<&str>, text: &str) -> Vec<SecretSpan> {
        self.0.find_secrets(field, text)
    }
    fn safe_prefix(&self, text: &str) -> usize {
        self.0.safe_prefix(text)
    }
}

impl<R: Redactor> LazyRedactor for ComparingRedactor<R> {}

impl LazyRedactor for ChainedRedactor {
    fn can_fail(&self) -> bool {
        self.0.can_fail() || self.1.can_fail()
    }
}

impl LazyRedactor for SecretScanner {
    fn can_fail(&self) -> bool {
        false
    }

    fn changed_text(&self, text: &str) -> Result<Option<String>, RedactionError> {
        Ok(match self.redact_str(text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(clean) => Some(clean).filter(|clean| clean != text),
        })
    }

    fn changed_map(
        &self,
        map: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, RedactionError> {
        // The same limit as for any other redactor, whose input goes through `Json::new`: too deep
        // is an error.
        if !map.values().all(|value| within_depth(value, MAX_DEPTH - 1)) {
            return Err(RedactionError);
        }
        Ok(self.redacted_object(map).filter(|clean| clean != map))
    }
}

impl Redactor for SharedRedactor {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        self.redacted_json(value).ok_or(RedactionError)
    }
    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        self.redacted_text(text).ok_or(RedactionError)
    }
    fn find_secrets(&self, field: Option<&str>, text: &str) -> Vec<SecretSpan> {
        run_contained_sync(|| self.0.find_secrets(field, text)).unwrap_or_default()
    }
    fn safe_prefix(&self, text: &str) -> usize {
        run_contained_sync(|| self.0.safe_prefix(text)).unwrap_or(0)
    }
}

/// Creates a redactor from a function. It sees every value and text that is stored, shown or told
/// to the model, and returns a copy, or `None` to leave it unchanged. A text is passed as a JSON
/// string and has to stay one. If it fails or panics, the value is withheld; if that value is the
/// arguments of a call, the call does not run.
///
/// A text that is still streaming is shown only when it is complete, because a function cannot say
/// how much of it is safe.
///
/// ```
/// use toolgate_core::{Json, RedactionError, Redactor as _};
/// use toolgate_layers::redact_fn;
///
/// let names = redact_fn(|value: &Json| {
///     let text = value.to_string().replace("Ann", "[name]");
///     text.parse().map(Some).map_err(|_| RedactionError)
/// });
/// assert_eq!(names.redact_text("Dear Ann")?, "Dear [name]");
/// # Ok::<(), RedactionError>(())
/// ```
pub fn redact_fn<F>(redact: F) -> impl Redactor
where
    F: Fn(&Json) -> Result<Option<Json>, RedactionError> + Send + Sync + 'static,
{
    FunctionRedactor(redact)
}

/// The redactor of [`redact_fn`].
struct FunctionRedactor<F>(F);

impl<F> Redactor for FunctionRedactor<F>
where
    F: Fn(&Json) -> Result<Option<Json>, RedactionError> + Send + Sync + 'static,
{
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        Ok((self.0)(value)?.unwrap_or_else(|| value.clone()))
    }

    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        match (self.0)(&Json::from(text))? {
            Some(clean) => clean.as_str().map(str::to_owned).ok_or(RedactionError),
            None => Ok(text.to_owned()),
        }
    }
}

/// Two redactors, one after the other.
struct ChainedRedactor(SharedRedactor, SharedRedactor);

impl Redactor for ChainedRedactor {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        self.1.redact(&self.0.redact(value)?)
    }
    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        self.1.redact_text(&self.0.redact_text(text)?)
    }
    fn find_secrets(&self, field: Option<&str>, text: &str) -> Vec<SecretSpan> {
        let mut found = self.0.find_secrets(field, text);
        found.extend(self.1.find_secrets(field, text));
        found
    }
    fn safe_prefix(&self, text: &str) -> usize {
        // A place that the first redactor allows and the second one does not is tried again with
        // less text.
        let mut text = text;
        loop {
            let safe = text.floor_char_boundary(self.0.safe_prefix(text));
            let Ok(shown) = self.0.redact_text(&text[..safe]) else {
                return 0;
            };
            if safe == 0 || self.1.safe_prefix(&shown) == shown.len() {
                return safe;
            }
            text = &text[..text.floor_char_boundary(safe - 1)];
        }
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
    fn a_resource_that_is_created_on_demand_is_shared_by_later_callers() {
        let parts = Resources::new();
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
    fn the_bundled_redactor_finds_the_same_as_any_redactor() {
        let bundled = SharedRedactor::from_secrets(SecretScanner::standard());
        let any = SharedRedactor::new(SecretScanner::standard());
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
            Err(RedactionError)
        );
        assert_eq!(
            bundled.changed_map(deep(1).as_object().expect("an object")),
            Ok(json!({ "token": "[redacted:token]" }).as_object().cloned())
        );
    }

    #[test]
    fn a_redactor_that_panics_yields_nothing() {
        struct PanickingRedactor;
        impl Redactor for PanickingRedactor {
            fn redact(&self, _: &Json) -> Result<Json, RedactionError> {
                panic!("hunter2")
            }
            fn redact_text(&self, _: &str) -> Result<String, RedactionError> {
                panic!("hunter2")
            }
        }
        let shared = SharedRedactor::new(PanickingRedactor);
        assert_eq!(
            (
                shared.redacted_json(&Json::null()),
                shared.redacted_text("x")
            ),
            (None, None)
        );
    }
}
