//! Functions that run before and after calls to one tool or to all of them.

use std::{future::Future, sync::Arc};

use futures::future::BoxFuture;
use serde_json::json;

use crate::{Arguments, Call, Json, Layer, Next, Outcome, Status, ToolName};

/// Runs hooks by tool name or for every tool (`*`).
///
/// Hooks for every tool come first, then those for the tool, each in the order they were added; hooks
/// after the call run in exactly the reverse order. They run once per logical call: what the hooks before
/// the call decided is kept in the store and used again when the call comes back from a suspension. A call that is
/// only rehearsed runs no hooks.
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
    before: Vec<(Target, BeforeHook)>,
    after: Vec<(Target, AfterHook)>,
}

type BeforeHook = Box<dyn Fn(Call) -> BoxFuture<'static, HookAction> + Send + Sync>;
type AfterHook = Box<dyn Fn(Call, Outcome) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// What a hook before the call wants.
#[derive(Debug, Clone)]
pub enum HookAction {
    /// Go on.
    Continue,
    /// Go on with other arguments.
    Replace(Arguments),
    /// Do not run the call.
    Abort {
        /// Why; if empty, "aborted by hook".
        reason: String,
        /// What to answer instead of a plain refusal.
        result: Option<Arc<crate::Settled>>,
    },
}

#[derive(PartialEq)]
enum Target {
    Every,
    Tool(ToolName),
}

impl Target {
    fn of(name: &str) -> Self {
        if name == "*" {
            Self::Every
        } else {
            Self::Tool(name.into())
        }
    }
}

impl Hooks {
    /// No hooks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hook that runs before calls to `tool`, or to every tool for `*`.
    pub fn before<F, Fut>(mut self, tool: &str, hook: F) -> Self
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HookAction> + Send + 'static,
    {
        self.before
            .push((Target::of(tool), Box::new(move |call| Box::pin(hook(call)))));
        self
    }

    /// Adds a hook that runs after calls to `tool`, or to every tool for `*`, once the call is settled.
    pub fn after<F, Fut>(mut self, tool: &str, hook: F) -> Self
    where
        F: Fn(Call, Outcome) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        self.after.push((
            Target::of(tool),
            Box::new(move |call, outcome| Box::pin(hook(call, outcome))),
        ));
        self
    }

    /// Runs the hooks before a call. The answer is plain JSON, so that it can be kept.
    async fn decide(&self, call: &Call) -> Json {
        let mut arguments = call.arguments.clone();
        for hook in for_tool(&self.before, &call.tool) {
            match hook(call.clone().with_arguments(arguments.clone())).await {
                HookAction::Continue => {}
                HookAction::Replace(other) => arguments = other,
                HookAction::Abort { reason, result } => {
                    let result = result.map(|settled| json!(*settled));
                    return Json::shallow(json!({ "abort": reason, "result": result }));
                }
            }
        }
        Json::shallow(json!({ "arguments": arguments }))
    }
}

fn for_tool<'a, H>(hooks: &'a [(Target, H)], tool: &ToolName) -> Vec<&'a H> {
    let of = |wanted: Target| {
        hooks
            .iter()
            .filter(move |(target, _)| *target == wanted)
            .map(|(_, hook)| hook)
    };
    of(Target::Every)
        .chain(of(Target::Tool(tool.clone())))
        .collect()
}

/// Reads what [`Hooks::decide`] wrote: the arguments to go on with, or the answer.
fn decided(kept: &Json) -> Option<Result<Arguments, Outcome>> {
    if let Some(arguments) = kept.get("arguments") {
        return Some(Arguments::try_from(arguments.clone()).ok())
            .flatten()
            .map(Ok);
    }
    let reason = kept.get("abort")?.as_str()?.trim();
    if let Ok(Some(settled)) =
        serde_json::from_value::<Option<crate::Settled>>(kept["result"].clone())
    {
        return Some(Err(settled.into()));
    }
    let text = if reason.is_empty() {
        "aborted by hook".to_owned()
    } else {
        format!("aborted by hook: {reason}")
    };
    Some(Err(Outcome::refused(Status::Blocked, text)))
}

impl Layer for Hooks {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if call.is_rehearsal() {
            // Somebody else's code: nobody knows what it would leave behind.
            next.because("hooks do not run in a rehearsal");
            return next.run(call).await;
        }
        let mut handed = call.clone();
        if !for_tool(&self.before, &call.tool).is_empty() {
            let kept = match next.once(&call, "before", || self.decide(&call)).await {
                Ok(kept) => decided(&kept),
                Err(_) => None,
            };
            match kept {
                Some(Ok(arguments)) if arguments == call.arguments => {}
                Some(Ok(arguments)) => handed = handed.with_arguments(arguments),
                Some(Err(answer)) => return answer,
                // Without the record nobody knows what the hooks said, so the call does not run.
                None => {
                    return Outcome::refused(
                        Status::Blocked,
                        "the hooks of this call could not be recorded",
                    );
                }
            }
        }
        let mut outcome = next.run(handed).await;
        if outcome.settled().is_some() {
            for hook in for_tool(&self.after, &call.tool).into_iter().rev() {
                outcome = hook(call.clone(), outcome).await;
            }
        }
        outcome
    }

    fn traits(&self) -> crate::LayerTraits {
        crate::LayerTraits::of("hooks").rewriting().answering()
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
