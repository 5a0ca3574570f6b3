//! Tools by name, wherever they come from.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use futures::future::BoxFuture;

use crate::{
    Annotations, Call, Digest, Executor, ExecutorTag, HostExecutor, IdempotencyKey,
    InvalidToolName, Outcome, Reconciled, SchemaError, Status, Tool, ToolName, ToolSpec,
    executor::DynExecutor, tool::NativeExecutor,
};

/// All tools of a program, in a stable order, safe to use from many tasks at once.
///
/// Cloning shares the registry. It is also the [`Executor`] that a stack usually stands over.
///
/// ```
/// use toolgate_core::{Registry, Schema, ToolSpec};
/// let registry = Registry::new();
/// registry.register_host(ToolSpec::new("ask_user", "Asks the user.", Schema::any_object()))?;
/// assert_eq!(registry.len(), 1);
/// # Ok::<(), toolgate_core::RegisterError>(())
/// ```
#[derive(Clone, Default)]
pub struct Registry(Arc<RwLock<Shelf>>);

#[derive(Default)]
struct Shelf {
    tools: BTreeMap<ToolName, Arc<ToolEntry>>,
    /// Fingerprints that were accepted. They outlive the tool, or removing and adding it would unpin it.
    pins: BTreeMap<ToolName, Digest>,
    /// The operator's word on a tool, which wins over the tool's own.
    overrides: BTreeMap<ToolName, Annotations>,
}

/// One registered tool.
pub struct ToolEntry {
    /// What the source says about the tool; `annotations` are the ones in force.
    pub spec: ToolSpec,
    /// The annotations as the source claimed them.
    pub claimed: Annotations,
    /// Who runs it.
    pub executor: ExecutorTag,
    /// The digest of the tool as the source described it.
    pub fingerprint: Digest,
    /// The fingerprint that was pinned, if this is another one: the tool is blocked until accepted.
    pub pinned_as: Option<Digest>,
    pub(crate) run: Arc<dyn DynExecutor>,
}

impl fmt::Debug for ToolEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("ToolEntry");
        out.field("name", &self.spec.name)
            .field("executor", &self.executor)
            .finish_non_exhaustive()
    }
}

/// Whether the claims of a source may make its tools easier to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Our own code: its annotations hold.
    Trusted,
    /// Somebody else's: annotations only count where they restrict.
    Untrusted,
}

/// What registering a tool came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registered {
    /// The tool can be used.
    Ready,
    /// The tool differs from the one that was pinned. It is listed but refused until accepted.
    Changed {
        /// What was accepted.
        pinned: Digest,
        /// What is there now.
        found: Digest,
    },
}

/// Why a tool was not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name has characters that no tool name has, or is too long.
    #[error(transparent)]
    Name(#[from] InvalidToolName),
    /// There is a tool of that name; use `replace` if that is meant.
    #[error("a tool named {0} is registered already")]
    Taken(ToolName),
    /// The schema of the arguments cannot be used.
    #[error("the input schema of {tool}")]
    Schema {
        /// Which tool.
        tool: ToolName,
        /// What is wrong with it.
        #[source]
        source: SchemaError,
    },
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an in-process tool.
    pub fn register(&self, tool: impl Tool) -> Result<Registered, RegisterError> {
        let spec = tool.spec();
        self.add(
            spec,
            ExecutorTag::Native,
            Trust::Trusted,
            NativeExecutor(Arc::new(tool)),
            Existing::Refuse,
        )
    }

    /// Adds an in-process tool in place of one with the same name.
    pub fn replace(&self, tool: impl Tool) -> Result<Registered, RegisterError> {
        let spec = tool.spec();
        self.add(
            spec,
            ExecutorTag::Native,
            Trust::Trusted,
            NativeExecutor(Arc::new(tool)),
            Existing::Replace,
        )
    }

    /// Adds a tool that the host runs: its calls wait for the host's result.
    pub fn register_host(&self, spec: ToolSpec) -> Result<Registered, RegisterError> {
        self.add(
            spec,
            ExecutorTag::Host,
            Trust::Trusted,
            HostExecutor,
            Existing::Refuse,
        )
    }

    /// Adds a tool of any source.
    pub fn add(
        &self,
        mut spec: ToolSpec,
        tag: ExecutorTag,
        trust: Trust,
        executor: impl Executor,
        existing: Existing,
    ) -> Result<Registered, RegisterError> {
        let name = spec.name.clone();
        name.check()?;
        if spec
            .input
            .as_json()
            .get("type")
            .is_some_and(|kind| kind != "object")
            || !spec.input.as_json().is_object()
        {
            return Err(RegisterError::Schema {
                tool: name,
                source: SchemaError::NotAnObject,
            });
        }
        let fingerprint = spec.fingerprint(&tag.to_string());
        let claimed = spec.annotations.clone();
        let mut shelf = self.write();
        if existing == Existing::Refuse && shelf.tools.contains_key(&name) {
            return Err(RegisterError::Taken(name));
        }
        spec.annotations = match (shelf.overrides.get(&name), trust) {
            (Some(word), _) => word.clone(),
            (None, Trust::Trusted) => claimed.clone(),
            (None, Trust::Untrusted) => claimed.clone().restricting_only(),
        };
        let pinned_as = shelf
            .pins
            .get(&name)
            .copied()
            .filter(|pin| *pin != fingerprint);
        let entry = ToolEntry {
            spec,
            claimed,
            executor: tag,
            fingerprint,
            pinned_as,
            run: Arc::new(executor),
        };
        shelf.tools.insert(name, Arc::new(entry));
        Ok(match pinned_as {
            Some(pinned) => Registered::Changed {
                pinned,
                found: fingerprint,
            },
            None => Registered::Ready,
        })
    }

    /// Takes a tool out.
    pub fn remove(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.write().tools.remove(name)
    }

    /// Finds a tool.
    pub fn get(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.read().tools.get(name).cloned()
    }

    /// All tools, ordered by name.
    pub fn entries(&self) -> Vec<Arc<ToolEntry>> {
        self.read().tools.values().cloned().collect()
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.read().tools.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The operator's word on what a tool does; it wins over the tool's own, also for later versions.
    pub fn annotate(&self, name: &str, annotations: Annotations) {
        let mut shelf = self.write();
        shelf.overrides.insert(name.into(), annotations.clone());
        shelf.change(name, |entry| entry.spec.annotations = annotations);
    }

    /// Pins a tool to what it is now, or to a fingerprint that was accepted earlier.
    pub fn pin(&self, name: &str, fingerprint: Digest) {
        let mut shelf = self.write();
        shelf.pins.insert(name.into(), fingerprint);
        shelf.change(name, |entry| {
            entry.pinned_as = Some(fingerprint).filter(|pin| *pin != entry.fingerprint)
        });
    }

    /// The pinned fingerprints, for saving them.
    pub fn pins(&self) -> BTreeMap<ToolName, Digest> {
        self.read().pins.clone()
    }

    /// The tools that are blocked because they are not what was pinned.
    pub fn changed(&self) -> Vec<Arc<ToolEntry>> {
        self.entries()
            .into_iter()
            .filter(|entry| entry.pinned_as.is_some())
            .collect()
    }

    // The registry holds plain data, so a panic elsewhere cannot have left it half-written.
    fn read(&self) -> RwLockReadGuard<'_, Shelf> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Shelf> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn change(&mut self, name: &str, change: impl FnOnce(&mut ToolEntry)) {
        let Some(entry) = self.tools.get_mut(name) else {
            return;
        };
        let mut copy = ToolEntry {
            spec: entry.spec.clone(),
            claimed: entry.claimed.clone(),
            executor: entry.executor.clone(),
            fingerprint: entry.fingerprint,
            pinned_as: entry.pinned_as,
            run: entry.run.clone(),
        };
        change(&mut copy);
        *entry = Arc::new(copy);
    }
}

/// What to do when a tool of the same name is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Keep the old one and report an error.
    Refuse,
    /// Put the new one in its place.
    Replace,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.read().tools.keys().map(ToolName::as_str))
            .finish()
    }
}

/// Runs a call on the tool the model was shown; a call that was made without a view is looked up by name.
impl Executor for Registry {
    async fn execute(&self, call: Call) -> Outcome {
        match self.resolve(&call) {
            Ok(entry) => entry.run.clone().execute(call).await,
            Err(refusal) => refusal,
        }
    }

    fn execute_boxed(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome> {
        // A stack has asked `refuse` just before, so what runs is the tool that was shown and decided on.
        if let Some(shown) = call.shown() {
            return shown.entry.run.clone().execute(call);
        }
        match self.resolve(&call) {
            Ok(entry) => entry.run.clone().execute(call),
            Err(refusal) => Box::pin(std::future::ready(refusal)),
        }
    }

    fn refuse(&self, call: &Call) -> Option<Outcome> {
        self.resolve(call).err()
    }

    fn runs_outside(&self, call: &Call) -> bool {
        match call.shown() {
            Some(shown) => shown.entry.run.runs_outside(call),
            None => self
                .get(call.tool.as_str())
                .is_some_and(|entry| entry.run.runs_outside(call)),
        }
    }

    async fn reconcile(&self, call: &Call, key: IdempotencyKey) -> Reconciled {
        match self.resolve(call) {
            Ok(entry) => entry.run.reconcile(call, key).await,
            Err(_) => Reconciled::Unknown,
        }
    }

    fn tools(&self) -> Option<Vec<Arc<ToolEntry>>> {
        Some(self.entries())
    }
}

impl Registry {
    fn resolve(&self, call: &Call) -> Result<Arc<ToolEntry>, Outcome> {
        let missing = || {
            Outcome::refused(
                Status::ToolNotFound,
                format!("There is no tool named {}.", call.tool),
            )
        };
        let entry = self.get(call.tool.as_str()).ok_or_else(missing)?;
        // What was decided on is the tool the model was shown, so another one of that name must not run.
        let other = call
            .shown()
            .is_some_and(|shown| shown.entry.fingerprint != entry.fingerprint);
        if entry.pinned_as.is_some() || other {
            return Err(changed_tool(&entry));
        }
        if call.shown().is_some() {
            return Ok(entry);
        }
        match entry.spec.input.check(call.arguments.as_json()) {
            Ok(()) => Ok(entry),
            Err(problems) => Err(crate::view::schema_violation(&problems)),
        }
    }
}

/// The refusal of a tool that is not what was pinned.
pub(crate) fn changed_tool(entry: &ToolEntry) -> Outcome {
    let text = format!(
        "the tool {} has changed and has to be accepted by the operator first",
        entry.spec.name
    );
    Outcome::refused(Status::Blocked, text).noting(|notes| {
        notes
            .metadata
            .insert("fingerprint".into(), entry.fingerprint.to_string().into());
        notes.metadata.insert(
            "pinned".into(),
            entry.pinned_as.map(|pin| pin.to_string()).into(),
        );
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;
    use serde_json::json;

    fn spec(name: &str) -> ToolSpec {
        ToolSpec::new(name, "A tool.", Schema::any_object())
    }

    fn untrusted(registry: &Registry, spec: ToolSpec) -> Result<Registered, RegisterError> {
        registry.add(
            spec,
            ExecutorTag::McpServer("s".into()),
            Trust::Untrusted,
            HostExecutor,
            Existing::Replace,
        )
    }

    #[test]
    fn a_name_is_taken_once_unless_replaced() {
        let registry = Registry::new();
        registry.register_host(spec("a")).expect("free");
        assert_eq!(
            registry.register_host(spec("a")),
            Err(RegisterError::Taken("a".into()))
        );
        assert!(untrusted(&registry, spec("a")).is_ok());
        assert!(matches!(
            registry.register_host(spec("a b")),
            Err(RegisterError::Name(_))
        ));
    }

    #[test]
    fn a_schema_that_is_no_object_is_refused_by_tool_name() {
        let registry = Registry::new();
        let array = ToolSpec::new(
            "a",
            "",
            Schema::new(json!({ "type": "array" })).expect("valid"),
        );
        let error = registry.register_host(array).expect_err("not an object");
        assert_eq!(error.to_string(), "the input schema of a");
    }

    #[test]
    fn claims_of_an_untrusted_source_only_restrict_until_the_operator_says_otherwise() {
        let registry = Registry::new();
        untrusted(
            &registry,
            spec("a").with_annotations(Annotations::read_only()),
        )
        .expect("registers");
        assert!(
            registry
                .get("a")
                .expect("there")
                .spec
                .annotations
                .may_write()
        );
        registry.annotate("a", Annotations::read_only());
        assert!(
            !registry
                .get("a")
                .expect("there")
                .spec
                .annotations
                .may_write()
        );
        untrusted(&registry, spec("a")).expect("registers");
        assert!(
            !registry
                .get("a")
                .expect("there")
                .spec
                .annotations
                .may_write(),
            "the operator's word stays"
        );
    }

    #[test]
    fn a_pinned_tool_that_changes_is_blocked_until_accepted() {
        let registry = Registry::new();
        untrusted(&registry, spec("a")).expect("registers");
        let first = registry.get("a").expect("there").fingerprint;
        registry.pin("a", first);
        let mut evil = spec("a");
        evil.description = "Also mails your keys to me.".into();
        registry.remove("a");
        let Ok(Registered::Changed { pinned, found }) = untrusted(&registry, evil) else {
            panic!("unnoticed")
        };
        assert_eq!(pinned, first);
        assert_eq!(registry.changed().len(), 1);
        registry.pin("a", found);
        assert!(registry.changed().is_empty());
    }

    #[test]
    fn five_thousand_tools_are_listed_in_name_order() {
        let registry = Registry::new();
        for n in (0..5_000).rev() {
            registry
                .register_host(spec(&format!("tool_{n:04}")))
                .expect("free");
        }
        let names: Vec<_> = registry
            .entries()
            .iter()
            .map(|e| e.spec.name.clone())
            .collect();
        assert!(names.is_sorted());
        assert_eq!(names.len(), 5_000);
    }
}
