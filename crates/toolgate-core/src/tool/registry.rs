//! The registry: tools of all sources by name.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use futures::future::BoxFuture;

use crate::{
    Annotations, Call, Digest, Executor, ExecutorTag, HostExecutor, HostValues, IdempotencyKey,
    InvalidToolName, Outcome, ReconciledAttempt, Refusal, Schema, SchemaError, Tool, ToolName,
    ToolSpec, note_keys, stack::executor::DynExecutor, tool::NativeExecutor,
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
pub struct Registry(Arc<RwLock<RegistryState>>);

#[derive(Default)]
struct RegistryState {
    tools: BTreeMap<ToolName, Arc<ToolEntry>>,
    /// Accepted fingerprints. They outlive the tool; otherwise removing and adding it would unpin
    /// it.
    pins: BTreeMap<ToolName, Digest>,
    /// The operator's annotations of a tool, which override the tool's own.
    overrides: BTreeMap<ToolName, Annotations>,
}

/// One registered tool.
#[derive(Clone)]
pub struct ToolEntry {
    /// The spec of the source; its `annotations` are the ones in force.
    pub spec: ToolSpec,
    /// The annotations as the source claimed them.
    pub claimed: Annotations,
    /// The executor that runs it.
    pub executor: ExecutorTag,
    /// The digest of the tool as the source described it.
    pub fingerprint: Digest,
    /// The pinned fingerprint, if it differs: the tool is blocked until accepted.
    pub pinned_as: Option<Digest>,
    /// The parameters that the program fills; the model is not shown them.
    pub host_values: HostValues,
    /// The schema without them.
    pub(crate) shown_input: Schema,
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

/// The trust in a source: whether its claims may loosen restrictions on its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceTrust {
    /// Our own code: its annotations apply.
    Trusted,
    /// Third-party code: annotations only count where they restrict.
    Untrusted,
}

/// The result of registering a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// The tool can be used.
    Ready,
    /// The tool differs from the pinned one. It is listed but blocked until accepted.
    Changed {
        /// The accepted fingerprint.
        pinned: Digest,
        /// The current fingerprint.
        found: Digest,
    },
}

/// The reason a tool was not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name has characters that no tool name has, or is too long.
    #[error(transparent)]
    Name(#[from] InvalidToolName),
    /// There is a tool of that name; use [`Registry::replace`] to replace it.
    #[error("a tool named {0} is already registered")]
    Taken(ToolName),
    /// The schema of the arguments cannot be used.
    #[error("the input schema of {tool}: {source}")]
    Schema {
        /// The tool's name.
        tool: ToolName,
        /// The problem with it.
        #[source]
        source: SchemaError,
    },
    /// A parameter that the program has to fill is not filled, or does not exist.
    #[error("the parameter {parameter} of {tool}, which the program fills: {problem}")]
    HostValue {
        /// The tool's name.
        tool: ToolName,
        /// The parameter's name.
        parameter: String,
        /// The problem with it.
        problem: &'static str,
    },
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an in-process tool.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] if the name is taken or not valid, or the schema cannot be used.
    pub fn register(&self, tool: impl Tool) -> Result<Registration, RegisterError> {
        self.register_native(tool, OnExisting::Reject)
    }

    /// Adds an in-process tool in place of one with the same name.
    pub fn replace(&self, tool: impl Tool) -> Result<Registration, RegisterError> {
        self.register_native(tool, OnExisting::Replace)
    }

    fn register_native(
        &self,
        tool: impl Tool,
        existing: OnExisting,
    ) -> Result<Registration, RegisterError> {
        let candidate = ToolCandidate {
            spec: tool.spec(),
            tag: ExecutorTag::Native,
            trust: SourceTrust::Trusted,
            host_values: tool.host_values(),
            run: Arc::new(NativeExecutor(Arc::new(tool))),
        };
        self.register_candidate(candidate, existing)
    }

    /// Adds a tool that the host runs: its calls wait for the host's result.
    pub fn register_host(&self, spec: ToolSpec) -> Result<Registration, RegisterError> {
        self.register_from(
            spec,
            ExecutorTag::Host,
            SourceTrust::Trusted,
            HostExecutor,
            OnExisting::Reject,
        )
    }

    /// Adds a tool of any source.
    pub fn register_from(
        &self,
        spec: ToolSpec,
        tag: ExecutorTag,
        trust: SourceTrust,
        executor: impl Executor,
        existing: OnExisting,
    ) -> Result<Registration, RegisterError> {
        let candidate = ToolCandidate {
            spec,
            tag,
            trust,
            host_values: HostValues::default(),
            run: Arc::new(executor),
        };
        self.register_candidate(candidate, existing)
    }

    fn register_candidate(
        &self,
        candidate: ToolCandidate,
        existing: OnExisting,
    ) -> Result<Registration, RegisterError> {
        let ToolCandidate {
            mut spec,
            tag,
            trust,
            host_values,
            run,
        } = candidate;
        let name = spec.name.clone();
        name.check_characters()?;
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
        host_values.check_registration(&spec)?;
        let shown_input =
            host_values
                .hide_from(&spec.input)
                .map_err(|source| RegisterError::Schema {
                    tool: name.clone(),
                    source,
                })?;
        // Over the claimed annotations: the operator's overrides must not look like a changed tool.
        let fingerprint = spec.fingerprint(&tag.to_string());
        let claimed = spec.annotations.clone();
        let mut shelf = self.write_state();
        if existing == OnExisting::Reject && shelf.tools.contains_key(&name) {
            return Err(RegisterError::Taken(name));
        }
        // The operator's annotations win over any claim, and an untrusted source can only restrict.
        spec.annotations = match (shelf.overrides.get(&name), trust) {
            (Some(word), _) => word.clone(),
            (None, SourceTrust::Trusted) => claimed.clone(),
            (None, SourceTrust::Untrusted) => claimed.clone().restricting_only(),
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
            host_values,
            shown_input,
            run,
        };
        shelf.tools.insert(name, Arc::new(entry));
        Ok(match pinned_as {
            Some(pinned) => Registration::Changed {
                pinned,
                found: fingerprint,
            },
            None => Registration::Ready,
        })
    }

    /// Adds all tools of another registry, or none of them. The pins and the operator's annotations
    /// of this one apply.
    ///
    /// # Errors
    ///
    /// [`RegisterError::Taken`] if the name of one of them is taken.
    pub fn register_all(&self, other: &Registry) -> Result<(), RegisterError> {
        let more = other.entries();
        let mut shelf = self.write_state();
        let taken = |entry: &&Arc<ToolEntry>| shelf.tools.contains_key(&entry.spec.name);
        if let Some(entry) = more.iter().find(taken) {
            return Err(RegisterError::Taken(entry.spec.name.clone()));
        }
        for entry in more {
            let name = entry.spec.name.clone();
            let mut entry = ToolEntry::clone(&entry);
            if let Some(word) = shelf.overrides.get(&name) {
                entry.spec.annotations = word.clone();
            }
            let pin = shelf.pins.get(&name).copied();
            entry.pinned_as = pin.filter(|pin| *pin != entry.fingerprint);
            shelf.tools.insert(name, Arc::new(entry));
        }
        Ok(())
    }

    /// Removes a tool. Its pin and the operator's annotations stay.
    pub fn remove(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.write_state().tools.remove(name)
    }

    /// Returns a tool by name.
    pub fn get(&self, name: &str) -> Option<Arc<ToolEntry>> {
        self.read_state().tools.get(name).cloned()
    }

    /// Returns all tools, ordered by name.
    pub fn entries(&self) -> Vec<Arc<ToolEntry>> {
        self.read_state().tools.values().cloned().collect()
    }

    /// Returns the number of tools.
    pub fn len(&self) -> usize {
        self.read_state().tools.len()
    }

    /// Checks whether there are no tools.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the operator's annotations of a tool; they override the tool's own, also for later
    /// versions.
    pub fn override_annotations(&self, name: &str, annotations: Annotations) {
        let mut shelf = self.write_state();
        shelf.overrides.insert(name.into(), annotations.clone());
        shelf.update_entry(name, |entry| entry.spec.annotations = annotations);
    }

    /// Pins a tool to what it is now, or to a fingerprint that was accepted earlier.
    pub fn pin_fingerprint(&self, name: &str, fingerprint: Digest) {
        let mut shelf = self.write_state();
        shelf.pins.insert(name.into(), fingerprint);
        shelf.update_entry(name, |entry| {
            entry.pinned_as = Some(fingerprint).filter(|pin| *pin != entry.fingerprint)
        });
    }

    /// Returns the pinned fingerprints, for storing them.
    pub fn pins(&self) -> BTreeMap<ToolName, Digest> {
        self.read_state().pins.clone()
    }

    /// Returns the tools that are blocked because they differ from their pins.
    pub fn changed_tools(&self) -> Vec<Arc<ToolEntry>> {
        self.entries()
            .into_iter()
            .filter(|entry| entry.pinned_as.is_some())
            .collect()
    }

    // A poisoned lock is usable: the registry holds plain data that no method leaves half-written.
    fn read_state(&self) -> RwLockReadGuard<'_, RegistryState> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_state(&self) -> RwLockWriteGuard<'_, RegistryState> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryState {
    fn update_entry(&mut self, name: &str, change: impl FnOnce(&mut ToolEntry)) {
        let Some(entry) = self.tools.get_mut(name) else {
            return;
        };
        // A copy, because views share the entry and must not change during a turn.
        let mut copy = ToolEntry {
            spec: entry.spec.clone(),
            claimed: entry.claimed.clone(),
            executor: entry.executor.clone(),
            fingerprint: entry.fingerprint,
            pinned_as: entry.pinned_as,
            host_values: entry.host_values.clone(),
            shown_input: entry.shown_input.clone(),
            run: entry.run.clone(),
        };
        change(&mut copy);
        *entry = Arc::new(copy);
    }
}

/// A tool that is about to be registered.
struct ToolCandidate {
    spec: ToolSpec,
    tag: ExecutorTag,
    trust: SourceTrust,
    host_values: HostValues,
    run: Arc<dyn DynExecutor>,
}

/// The treatment of a registered tool of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExisting {
    /// Keep the old one and report an error.
    Reject,
    /// Replace it by the new one.
    Replace,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.read_state().tools.keys().map(ToolName::as_str))
            .finish()
    }
}

/// Runs a call on the tool the model was shown; a call without a view is looked up by name.
impl Executor for Registry {
    async fn execute(&self, call: Call) -> Outcome {
        match self.resolve_tool(&call) {
            Ok(entry) => entry.run.clone().execute(call).await,
            Err(refusal) => refusal,
        }
    }

    fn execute_boxed(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome> {
        // The stack called `refuse` just before, so this is the tool that was shown and decided on.
        if let Some(shown) = call.shown_tool() {
            return shown.entry.run.clone().execute(call);
        }
        match self.resolve_tool(&call) {
            Ok(entry) => entry.run.clone().execute(call),
            Err(refusal) => Box::pin(std::future::ready(refusal)),
        }
    }

    fn reject_early(&self, call: &Call) -> Option<Outcome> {
        self.resolve_tool(call).err()
    }

    fn runs_externally(&self, call: &Call) -> bool {
        match call.shown_tool() {
            Some(shown) => shown.entry.run.runs_externally(call),
            None => self
                .get(call.tool.as_str())
                .is_some_and(|entry| entry.run.runs_externally(call)),
        }
    }

    async fn rehearse(&self, call: Call) -> Option<Outcome> {
        match self.resolve_tool(&call) {
            Ok(entry) => entry.run.rehearse(call).await,
            Err(refusal) => Some(refusal),
        }
    }

    async fn reconcile(&self, call: &Call, key: IdempotencyKey) -> ReconciledAttempt {
        match self.resolve_tool(call) {
            // The tool is asked about the arguments it ran with.
            Ok(entry) => match entry.host_values.fill_call(call) {
                Ok(call) => entry.run.reconcile(&call, key).await,
                Err(_) => ReconciledAttempt::Unknown,
            },
            Err(_) => ReconciledAttempt::Unknown,
        }
    }

    fn known_tools(&self) -> Option<Vec<Arc<ToolEntry>>> {
        Some(self.entries())
    }
}

impl Registry {
    fn resolve_tool(&self, call: &Call) -> Result<Arc<ToolEntry>, Outcome> {
        let missing = || {
            Outcome::refused(
                Refusal::ToolNotFound,
                format!("There is no tool named {}.", call.tool),
            )
        };
        let entry = self.get(call.tool.as_str()).ok_or_else(missing)?;
        // The decision was about the tool the model was shown, so another one of that name must not
        // run.
        let other = call
            .shown_tool()
            .is_some_and(|shown| shown.entry.fingerprint != entry.fingerprint);
        if entry.pinned_as.is_some() || other {
            return Err(changed_tool_outcome(&entry));
        }
        if call.shown_tool().is_some() {
            return Ok(entry);
        }
        match entry.spec.input.check_value(call.arguments.as_json()) {
            Ok(()) => Ok(entry),
            Err(problems) => Err(Outcome::schema_violation(&problems)),
        }
    }
}

/// Returns the outcome that blocks a tool that differs from its pin.
pub(crate) fn changed_tool_outcome(entry: &ToolEntry) -> Outcome {
    let text = format!(
        "the tool {} has changed and has to be accepted by the operator first",
        entry.spec.name
    );
    Outcome::refused(Refusal::Blocked, text).with_notes(|notes| {
        notes.insert(note_keys::FINGERPRINT, &entry.fingerprint);
        notes.insert(note_keys::PINNED, &entry.pinned_as);
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

    fn untrusted(registry: &Registry, spec: ToolSpec) -> Result<Registration, RegisterError> {
        registry.register_from(
            spec,
            ExecutorTag::McpServer("s".into()),
            SourceTrust::Untrusted,
            HostExecutor,
            OnExisting::Replace,
        )
    }

    #[test]
    fn a_name_is_registered_once_unless_replaced() {
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
    fn an_input_schema_that_is_not_an_object_is_rejected() {
        let registry = Registry::new();
        let array = ToolSpec::new(
            "a",
            "",
            Schema::new(json!({ "type": "array" })).expect("valid"),
        );
        let error = registry.register_host(array).expect_err("not an object");
        assert_eq!(
            error.to_string(),
            format!("the input schema of a: {}", SchemaError::NotAnObject)
        );
    }

    #[test]
    fn claims_of_an_untrusted_source_only_restrict_unless_the_operator_overrides_them() {
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
        registry.override_annotations("a", Annotations::read_only());
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
        registry.pin_fingerprint("a", first);
        let mut evil = spec("a");
        evil.description = "Also mails your keys to me.".into();
        registry.remove("a");
        let Ok(Registration::Changed { pinned, found }) = untrusted(&registry, evil) else {
            panic!("unnoticed")
        };
        assert_eq!(pinned, first);
        assert_eq!(registry.changed_tools().len(), 1);
        registry.pin_fingerprint("a", found);
        assert!(registry.changed_tools().is_empty());
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
