//! Functions that run before and after calls to one tool or to all of them.

use std::{
    future::Future,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use futures::future::BoxFuture;
use serde_json::json;

use crate::{Arguments, Call, Digest, Json, Keyring, Layer, Next, Outcome, Refusal, ToolName};

/// Runs hooks by tool name or for every tool (`*`).
///
/// Hooks for every tool come first, then those for the tool, each in the order they were added;
/// hooks after the call run in exactly the reverse order. They run once per logical call: what the
/// hooks before the call decided is stored and reused when the call resumes after a suspension. A
/// rehearsed call runs no hooks.
///
/// Hooks can be listed, added and removed while calls run. A change holds for calls that enter the
/// layer afterwards.
///
/// With keys ([`Hooks::seal_with`]) the stored decision is sealed. One that was changed in the store, or
/// that was stored without a seal, does not count: the hooks run again.
///
/// ```
/// use toolgate_core::{HookAction, Hooks};
/// let hooks = Hooks::new()
///     .before("*", async |_call| HookAction::Continue)
///     .before("rm", async |_call| HookAction::Abort { reason: "not on my watch".into(), result: None })
///     .after("*", async |_call, outcome| outcome);
/// ```
#[derive(Default)]
pub struct Hooks(RwLock<HookLists>);

#[derive(Default)]
struct HookLists {
    before: Vec<RegisteredHook<BeforeHook>>,
    after: Vec<RegisteredHook<AfterHook>>,
    last_id: u64,
    keyring: Option<Keyring>,
}

type BeforeHook = Arc<dyn Fn(Call) -> BoxFuture<'static, HookAction> + Send + Sync>;
type AfterHook = Arc<dyn Fn(Call, Outcome) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// A hook with its id and target.
struct RegisteredHook<H> {
    id: HookId,
    target: HookTarget,
    hook: H,
}

/// The id of a hook, with which it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HookId(u64);

/// A hook as [`Hooks::list`] names it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookEntry {
    /// The id.
    pub id: HookId,
    /// The time at which it runs.
    pub moment: HookMoment,
    /// The tool, or `*` for every tool.
    pub tool: String,
}

/// The time at which a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookMoment {
    /// Before the call.
    Before,
    /// After the call has settled.
    After,
}

/// The decision of a hook that runs before a call.
#[derive(Debug, Clone)]
pub enum HookAction {
    /// Continue.
    Continue,
    /// Continue with other arguments.
    Replace(Arguments),
    /// Continue although the hook failed. The notes of the call say so.
    Warn {
        /// What failed.
        problem: String,
    },
    /// Continue only if an approver approves the call.
    RequireApproval {
        /// The reason, for approvers.
        reason: String,
    },
    /// Do not run the call.
    Abort {
        /// The reason; if empty, "aborted by hook".
        reason: String,
        /// The outcome to return instead of a plain `blocked`.
        result: Option<Arc<crate::SettledOutcome>>,
    },
}

#[derive(Clone, PartialEq)]
enum HookTarget {
    Every,
    Tool(ToolName),
}

impl HookTarget {
    fn parse(name: &str) -> Self {
        if name == "*" {
            Self::Every
        } else {
            Self::Tool(name.into())
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Every => "*".to_owned(),
            Self::Tool(tool) => tool.to_string(),
        }
    }
}

impl Hooks {
    /// Creates an empty set of hooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hook that runs before calls to `tool`, or to every tool for `*`.
    pub fn before<F, Fut>(self, tool: &str, hook: F) -> Self
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HookAction> + Send + 'static,
    {
        self.add_before(tool, hook);
        self
    }

    /// Adds a hook that runs after calls to `tool`, or to every tool for `*`, once the call is
    /// settled.
    pub fn after<F, Fut>(self, tool: &str, hook: F) -> Self
    where
        F: Fn(Call, Outcome) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        self.add_after(tool, hook);
        self
    }

    /// Adds a hook like [`before`](Self::before), and returns the id to remove it with.
    pub fn add_before<F, Fut>(&self, tool: &str, hook: F) -> HookId
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HookAction> + Send + 'static,
    {
        let target = HookTarget::parse(tool);
        let hook: BeforeHook = Arc::new(move |call| Box::pin(hook(call)));
        let mut lists = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let id = lists.next_id();
        lists.before.push(RegisteredHook { id, target, hook });
        id
    }

    /// Adds a hook like [`after`](Self::after), and returns the id to remove it with.
    pub fn add_after<F, Fut>(&self, tool: &str, hook: F) -> HookId
    where
        F: Fn(Call, Outcome) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        let target = HookTarget::parse(tool);
        let hook: AfterHook = Arc::new(move |call, outcome| Box::pin(hook(call, outcome)));
        let mut lists = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let id = lists.next_id();
        lists.after.push(RegisteredHook { id, target, hook });
        id
    }

    /// Seals what the hooks decide with these keys.
    pub fn seal_with(&self, keyring: Keyring) {
        let mut lists = self.0.write().unwrap_or_else(PoisonError::into_inner);
        lists.keyring = Some(keyring);
    }

    /// Removes a hook. Returns false if there is none with this id.
    pub fn remove(&self, id: HookId) -> bool {
        let mut lists = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let count = |lists: &HookLists| lists.before.len() + lists.after.len();
        let known = count(&lists);
        lists.before.retain(|hook| hook.id != id);
        lists.after.retain(|hook| hook.id != id);
        count(&lists) < known
    }

    /// Returns the hooks: those before calls, then those after calls, each in the order in which
    /// they were added.
    pub fn list(&self) -> Vec<HookEntry> {
        let lists = self.read_lists();
        let before = lists
            .before
            .iter()
            .map(|hook| hook.describe(HookMoment::Before));
        let after = lists
            .after
            .iter()
            .map(|hook| hook.describe(HookMoment::After));
        before.chain(after).collect()
    }

    /// Checks whether there are no hooks.
    pub fn is_empty(&self) -> bool {
        let lists = self.read_lists();
        lists.before.is_empty() && lists.after.is_empty()
    }

    // A poisoned lock is usable: no operation under it leaves the lists half-changed.
    fn read_lists(&self) -> RwLockReadGuard<'_, HookLists> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the hooks before a call. The answer is plain JSON, so that it can be stored.
    async fn run_before_hooks(hooks: Vec<BeforeHook>, call: &Call) -> Json {
        let mut arguments = call.arguments.clone();
        let mut asks = Vec::new();
        let mut warnings = Vec::new();
        for hook in hooks {
            match hook(call.clone().with_arguments(arguments.clone())).await {
                HookAction::Continue => {}
                HookAction::Replace(other) => arguments = other,
                HookAction::Warn { problem } => warnings.push(problem),
                HookAction::RequireApproval { reason } => asks.push(reason),
                HookAction::Abort { reason, result } => {
                    let result = result.map(|settled| json!(*settled));
                    return Json::from_shallow(json!({ "abort": reason, "result": result }));
                }
            }
        }
        Json::from_shallow(json!({ "arguments": arguments, "asks": asks, "warnings": warnings }))
    }
}

/// Runs the hooks before a call once, and returns what they decided; `None` if that cannot be stored.
async fn decide_once(
    hooks: Vec<BeforeHook>,
    keyring: Option<Keyring>,
    call: &Call,
    next: &Next,
) -> Option<Json> {
    let run = || Hooks::run_before_hooks(hooks.clone(), call);
    let Some(keyring) = keyring else {
        return next.perform_once(call, "before", run).await.ok();
    };
    let sealed = || async { seal_decision(run().await, call, &keyring) };
    let kept = next.perform_once(call, "before", sealed).await.ok()?;
    if is_sealed(&kept, call, &keyring) {
        return Some(kept);
    }
    // Who can write to the store could otherwise remove the approval that a hook has asked for.
    Some(run().await)
}

fn seal_decision(decision: Json, call: &Call, keyring: &Keyring) -> Json {
    let seal = keyring.seal_record(&decision_name(call), decision_digest(&decision, call));
    let mut sealed = decision.as_value().clone();
    sealed["seal"] = json!(seal);
    Json::from_shallow(sealed)
}

fn is_sealed(kept: &Json, call: &Call, keyring: &Keyring) -> bool {
    let mut decision = kept.as_value().clone();
    let seal = decision.as_object_mut().and_then(|it| it.remove("seal"));
    let digest = decision_digest(&Json::from_shallow(decision), call);
    let seal = seal.as_ref().and_then(|seal| seal.as_str());
    seal.is_some_and(|seal| {
        let name = decision_name(call);
        keyring.check_record_seal(seal, &name, digest).is_ok()
    })
}

/// Returns the name under which what hooks decided about a call is sealed.
fn decision_name(call: &Call) -> String {
    format!("hook-decision/{}", call.id)
}

/// Returns the digest of a decision about exactly these arguments.
fn decision_digest(decision: &Json, call: &Call) -> Digest {
    let arguments = call.arguments.digest();
    let text = format!("{arguments}\n{}", decision.digest());
    Digest::of_bytes(text.as_bytes())
}

impl HookLists {
    fn next_id(&mut self) -> HookId {
        self.last_id += 1;
        HookId(self.last_id)
    }
}

impl<H> RegisteredHook<H> {
    fn describe(&self, moment: HookMoment) -> HookEntry {
        HookEntry {
            id: self.id,
            moment,
            tool: self.target.name(),
        }
    }
}

fn hooks_for_tool<H: Clone>(hooks: &[RegisteredHook<H>], tool: &ToolName) -> Vec<H> {
    let of = |wanted: HookTarget| {
        hooks
            .iter()
            .filter(move |hook| hook.target == wanted)
            .map(|hook| hook.hook.clone())
    };
    of(HookTarget::Every)
        .chain(of(HookTarget::Tool(tool.clone())))
        .collect()
}

/// How a call continues after its hooks.
struct HookedCall {
    arguments: Arguments,
    /// The reasons for which approval is needed.
    asks: Vec<String>,
    /// What failed in hooks that only warn.
    warnings: Vec<String>,
}

/// Parses what [`Hooks::run_before_hooks`] stored: how to continue, or the answer.
fn parse_decision(kept: &Json) -> Option<Result<HookedCall, Outcome>> {
    if let Some(arguments) = kept.get("arguments") {
        let arguments = Arguments::try_from(arguments.clone()).ok()?;
        // Records of earlier versions have no such lists.
        let list = |name: &str| {
            let list = kept.get(name).cloned().unwrap_or_else(|| json!([]));
            serde_json::from_value(list).ok()
        };
        return Some(Ok(HookedCall {
            arguments,
            asks: list("asks")?,
            warnings: list("warnings")?,
        }));
    }
    let reason = kept.get("abort")?.as_str()?.trim();
    // Fail closed: a stored result that cannot be parsed still aborts the call, below.
    if let Ok(Some(settled)) =
        serde_json::from_value::<Option<crate::SettledOutcome>>(kept["result"].clone())
    {
        return Some(Err(settled.into()));
    }
    let text = if reason.is_empty() {
        "aborted by hook".to_owned()
    } else {
        format!("aborted by hook: {reason}")
    };
    Some(Err(Outcome::refused(Refusal::Blocked, text)))
}

impl Layer for Hooks {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if call.is_rehearsal() {
            // Hooks are the user's code and may have effects, which a rehearsal must not have.
            next.note_reason("hooks do not run in a rehearsal");
            return next.run(call).await;
        }
        let mut handed = call.clone();
        let mut warnings = Vec::new();
        // Copied out of the lock: a hook may add or remove hooks itself.
        let (before, after, keyring) = {
            let lists = self.read_lists();
            (
                hooks_for_tool(&lists.before, &call.tool),
                hooks_for_tool(&lists.after, &call.tool),
                lists.keyring.clone(),
            )
        };
        if !before.is_empty() {
            let kept = decide_once(before, keyring, &call, &next).await;
            match kept.as_ref().and_then(parse_decision) {
                Some(Ok(hooked)) => {
                    // Unchanged arguments keep their allocation, so the trail records no change.
                    if hooked.arguments != call.arguments {
                        handed = handed.with_arguments(hooked.arguments);
                    }
                    for reason in hooked.asks {
                        handed = handed.require_approval(reason, None);
                    }
                    warnings = hooked.warnings;
                }
                Some(Err(answer)) => return answer,
                // Fail closed: without the record, a resumed call could not know what the hooks
                // decided.
                None => {
                    return Outcome::refused(
                        Refusal::Blocked,
                        "the hooks of this call could not be recorded",
                    );
                }
            }
        }
        let mut outcome = next.run(handed).await;
        if let (Some(settled), false) = (outcome.settled_mut(), warnings.is_empty()) {
            let text = warnings.join("; ");
            let fields = settled.notes.fields_mut();
            fields.insert(crate::note_keys::HOOK_FAILED, &*text);
        }
        // A suspended call enters again from the top. These hooks run then, once, on the real
        // outcome.
        if outcome.settled().is_some() {
            for hook in after.into_iter().rev() {
                outcome = hook(call.clone(), outcome).await;
            }
        }
        outcome
    }

    fn capabilities(&self) -> crate::LayerCapabilities {
        crate::LayerCapabilities::for_kind("hooks")
            .rewriting()
            .answering()
    }
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lists = self.read_lists();
        f.debug_struct("Hooks")
            .field("before", &lists.before.len())
            .field("after", &lists.after.len())
            .finish()
    }
}
