//! Functions that run before and after calls to one tool or to all of them.

use std::{future::Future, sync::Arc};

use futures::future::BoxFuture;
use serde_json::json;

use crate::{Arguments, Call, Json, Layer, Next, Outcome, Refusal, ToolName};

/// Runs hooks by tool name or for every tool (`*`).
///
/// Hooks for every tool come first, then those for the tool, each in the order they were added;
/// hooks after the call run in exactly the reverse order. They run once per logical call: what the
/// hooks before the call decided is stored and reused when the call resumes after a suspension. A
/// rehearsed call runs no hooks.
///
/// ```
/// use toolgate_core::{HookAction, Hooks};
/// let hooks = Hooks::new()
///     .before("*", async |_call| HookAction::Continue)
///     .before("rm", async |_call| HookAction::Abort { reason: "not on my watch".into(), result: None })
///     .after("*", async |_call, outcome| outcome);
/// ```
#[derive(Default)]
pub struct Hooks {
    before: Vec<(HookTarget, BeforeHook)>,
    after: Vec<(HookTarget, AfterHook)>,
}

type BeforeHook = Box<dyn Fn(Call) -> BoxFuture<'static, HookAction> + Send + Sync>;
type AfterHook = Box<dyn Fn(Call, Outcome) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// The decision of a hook that runs before a call.
#[derive(Debug, Clone)]
pub enum HookAction {
    /// Continue.
    Continue,
    /// Continue with other arguments.
    Replace(Arguments),
    /// Do not run the call.
    Abort {
        /// The reason; if empty, "aborted by hook".
        reason: String,
        /// The outcome to return instead of a plain `blocked`.
        result: Option<Arc<crate::SettledOutcome>>,
    },
}

#[derive(PartialEq)]
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
}

impl Hooks {
    /// Creates an empty set of hooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hook that runs before calls to `tool`, or to every tool for `*`.
    pub fn before<F, Fut>(mut self, tool: &str, hook: F) -> Self
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HookAction> + Send + 'static,
    {
        self.before.push((
            HookTarget::parse(tool),
            Box::new(move |call| Box::pin(hook(call))),
        ));
        self
    }

    /// Adds a hook that runs after calls to `tool`, or to every tool for `*`, once the call is
    /// settled.
    pub fn after<F, Fut>(mut self, tool: &str, hook: F) -> Self
    where
        F: Fn(Call, Outcome) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        self.after.push((
            HookTarget::parse(tool),
            Box::new(move |call, outcome| Box::pin(hook(call, outcome))),
        ));
        self
    }

    /// Runs the hooks before a call. The answer is plain JSON, so that it can be stored.
    async fn run_before_hooks(&self, call: &Call) -> Json {
        let mut arguments = call.arguments.clone();
        for hook in hooks_for_tool(&self.before, &call.tool) {
            match hook(call.clone().with_arguments(arguments.clone())).await {
                HookAction::Continue => {}
                HookAction::Replace(other) => arguments = other,
                HookAction::Abort { reason, result } => {
                    let result = result.map(|settled| json!(*settled));
                    return Json::from_shallow(json!({ "abort": reason, "result": result }));
                }
            }
        }
        Json::from_shallow(json!({ "arguments": arguments }))
    }
}

fn hooks_for_tool<'a, H>(hooks: &'a [(HookTarget, H)], tool: &ToolName) -> Vec<&'a H> {
    let of = |wanted: HookTarget| {
        hooks
            .iter()
            .filter(move |(target, _)| *target == wanted)
            .map(|(_, hook)| hook)
    };
    of(HookTarget::Every)
        .chain(of(HookTarget::Tool(tool.clone())))
        .collect()
}

/// Parses what [`Hooks::run_before_hooks`] stored: the arguments to continue with, or the answer.
fn parse_decision(kept: &Json) -> Option<Result<Arguments, Outcome>> {
    if let Some(arguments) = kept.get("arguments") {
        return Some(Arguments::try_from(arguments.clone()).ok())
            .flatten()
            .map(Ok);
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
        if !hooks_for_tool(&self.before, &call.tool).is_empty() {
            let kept = match next
                .perform_once(&call, "before", || self.run_before_hooks(&call))
                .await
            {
                Ok(kept) => parse_decision(&kept),
                Err(_) => None,
            };
            match kept {
                // Unchanged arguments keep their allocation, so the trail records no change.
                Some(Ok(arguments)) if arguments == call.arguments => {}
                Some(Ok(arguments)) => handed = handed.with_arguments(arguments),
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
        // A suspended call enters again from the top. These hooks run then, once, on the real
        // outcome.
        if outcome.settled().is_some() {
            for hook in hooks_for_tool(&self.after, &call.tool).into_iter().rev() {
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
        f.debug_struct("Hooks")
            .field("before", &self.before.len())
            .field("after", &self.after.len())
            .finish()
    }
}
