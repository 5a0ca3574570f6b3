//! Restricts the calls that a stage of work may make.

pub(crate) mod limits;

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Failure, Layer, LayerCapabilities, Next, Outcome,
    Refusal, SideEffect,
};

use crate::{BadOption, Capability, Configurable, Resources, ScopePolicy, ScopeViolation};

/// A layer that blocks calls outside the scope of a stage.
///
/// A blocked call is an ordinary outcome: the model reads it and can pick another tool. Scopes only
/// narrow: under two of them a call has to be inside both, and a [`ScopePolicy`] among the
/// resources narrows every configured scope.
///
/// ```
/// # use {toolgate_core::Status, toolgate_layers::Scope, toolgate_testkit::{call, echo_under}};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let stack = echo_under(Scope::only(["search", "read_file"]).stage("research"));
/// assert_eq!(stack.run(call("write_file")).await.status(), Some(Status::OutOfScope));
/// assert!(stack.run(call("search")).await.is_ok());
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Scope {
    policy: ScopePolicy,
    stage: Arc<str>,
    on_violation: OnViolation,
    note: Value,
}

impl Scope {
    /// Creates a scope with these limits.
    pub fn new(policy: ScopePolicy) -> Self {
        let stage = Arc::from(DEFAULT_STAGE);
        let on_violation = OnViolation::Reject;
        Self {
            policy,
            stage,
            on_violation,
            note: Value::Null,
        }
        .with_note()
    }

    /// Creates a scope of exactly these tools; an empty list allows no calls.
    pub fn only<'a>(tools: impl IntoIterator<Item = &'a str>) -> Self {
        // Escaped, so that a name with a `*` in it allows only itself.
        let tools = tools.into_iter().map(globset::escape).collect();
        let options = ScopeOptions {
            allowed_tools: Some(tools),
            ..ScopeOptions::default()
        };
        Self::new(ScopePolicy::new(options).expect("escaped names are valid globs"))
    }

    /// Sets the name of the stage in notes and messages.
    pub fn stage(self, stage: &str) -> Self {
        Self {
            stage: stage.into(),
            ..self
        }
        .with_note()
    }

    /// Narrows the scope to what `ambient` allows as well.
    pub fn within(self, ambient: &ScopePolicy) -> Self {
        Self {
            policy: self.policy.intersect(ambient),
            ..self
        }
        .with_note()
    }

    /// Sets the handling of a call outside the scope.
    pub fn on_violation(self, on_violation: OnViolation) -> Self {
        Self {
            on_violation,
            ..self
        }
    }

    /// Returns the limits of the scope.
    pub fn policy(&self) -> &ScopePolicy {
        &self.policy
    }

    fn with_note(mut self) -> Self {
        let mut note = json!({ "stage": self.stage });
        let tools: Vec<_> = self.policy.allowed_tools().collect();
        match tools.as_slice() {
            [] => {}
            [one] => note["allowed_tools"] = json!(one),
            many => note["allowed_tools"] = json!({ "all_of": many }),
        }
        if let Some(level) = self.policy.side_effect_level() {
            note["side_effect_level"] = json!(level);
        }
        self.note = note;
        self
    }

    fn blocked_outcome(&self, violation: &ScopeViolation) -> Outcome {
        let text = format!("{violation} in the stage {:?}", self.stage);
        match self.on_violation {
            OnViolation::Reject => Outcome::refused(Refusal::OutOfScope, text),
            OnViolation::Raise => Outcome::error(
                Failure::LayerException,
                CallError::new(ErrorCategory::Refused, text),
            ),
        }
    }
}

impl Layer for Scope {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let outcome =
            match self
                .policy
                .judge(call.tool.as_str(), call.annotations(), &call.arguments)
            {
                Ok(()) => next.run(call).await,
                Err(violation) => {
                    next.note_reason(violation.to_string());
                    self.blocked_outcome(&violation)
                }
            };
        // Noted on every outcome, so that receipts show the scope of allowed calls too.
        outcome.with_notes(|notes| notes.scope = Some(self.note.clone()))
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME).answering()
    }
}

impl Configurable for Scope {
    const NAME: &'static str = "scope";
    const SUMMARY: &'static str =
        "Restricts the tools, effects and arguments that a stage of work may use.";
    type Options = ScopeOptions;

    fn configure(options: ScopeOptions, parts: &Resources) -> Result<Self, BadOption> {
        let stage = options.stage.clone();
        let on_violation = options.on_violation;
        if stage.trim().is_empty() {
            return Err(BadOption::new("stage", "a stage needs a name"));
        }
        let scope = Self::new(ScopePolicy::new(options)?)
            .stage(&stage)
            .on_violation(on_violation);
        Ok(match parts.get::<ScopePolicy>() {
            Some(ambient) => scope.within(&ambient),
            None => scope,
        })
    }
}

const DEFAULT_STAGE: &str = "scoped";

/// Limits of a scope. An option that is not set does not limit; a list that is set and empty allows
/// nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScopeOptions {
    /// The name of the stage in notes and messages.
    pub stage: String,
    /// The tools that may be called, by name or glob. An empty list allows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// The strongest effect a tool may have. A tool that declares none counts as the strongest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_effect_level: Option<SideEffect>,
    /// Places of a tool's strongest effect, and the kinds of work it may do there (`read`, `edit`,
    /// …, or `*`). A place that is not listed is not allowed; a tool without an effect needs no
    /// capability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<BTreeMap<Capability, Vec<String>>>,
    /// Patterns that arguments have to match: tool (name, glob or `*`) → argument (name or JSON
    /// pointer) → globs. The argument has to be present and be a text, or a list of texts, that
    /// match one of the globs. A text with `..` matches only `*` and `**`.
    pub arguments: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// Handling of a call outside the scope.
    pub on_violation: OnViolation,
}

impl Default for ScopeOptions {
    fn default() -> Self {
        Self {
            stage: DEFAULT_STAGE.to_owned(),
            allowed_tools: None,
            side_effect_level: None,
            capabilities: None,
            arguments: BTreeMap::new(),
            on_violation: OnViolation::default(),
        }
    }
}

/// Handling of a call outside the scope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnViolation {
    /// The call settles `scope_violation` and the model continues.
    #[default]
    Reject,
    /// The call settles `tool_middleware_exception`, so that a loop that aborts on errors stops.
    Raise,
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::Status;
    use toolgate_core::{Annotations, Arguments, Registry, Schema, ToolSpec, View};
    use toolgate_testkit::{call, echo_under, run_twice, seed, seed_for};

    fn configured_scope(options: Value) -> Result<Scope, String> {
        let options = serde_json::from_value(options).map_err(|error| error.to_string())?;
        Scope::configure(options, &Resources::new()).map_err(|error| error.to_string())
    }

    fn view_with(annotations: Annotations) -> View {
        let registry = Registry::new();
        let spec = ToolSpec::new("tool", "", Schema::any_object()).with_annotations(annotations);
        registry.register_host(spec).expect("registers");
        toolgate_testkit::plain_view(&registry)
    }

    #[tokio::test]
    async fn blocks_a_tool_it_does_not_name_and_notes_the_stage_on_every_outcome() {
        let stack = echo_under(Scope::only(["search"]).stage("research"));
        for (tool, status) in [("search", Status::Ok), ("echo", Status::OutOfScope)] {
            let outcome = stack.run(call(tool)).await;
            let settled = outcome.settled().expect("settled");
            assert_eq!(settled.status, status);
            let note = settled.notes.fields().and_then(|notes| notes.scope.clone());
            assert_eq!(
                note,
                Some(json!({ "stage": "research", "allowed_tools": ["search"] }))
            );
        }
    }

    #[tokio::test]
    async fn an_empty_allow_list_allows_nothing_and_a_missing_one_does_not_restrict() {
        let empty =
            echo_under(configured_scope(json!({ "allowed_tools": [] })).expect("valid options"));
        assert_eq!(
            empty.run(call("echo")).await.status(),
            Some(Status::OutOfScope)
        );
        let missing = echo_under(configured_scope(json!({})).expect("valid options"));
        assert!(missing.run(call("echo")).await.is_ok());
        assert_eq!(
            Scope::only([])
                .policy()
                .judge("x", &Annotations::default(), &Arguments::empty()),
            Err(ScopeViolation::Tool)
        );
    }

    #[tokio::test]
    async fn a_tool_that_declares_nothing_counts_as_the_strongest() {
        let stack = echo_under(
            configured_scope(json!({ "side_effect_level": "read_only" })).expect("valid options"),
        );
        assert_eq!(
            stack.run(call("echo")).await.status(),
            Some(Status::OutOfScope)
        );
        let reads = view_with(Annotations::read_only());
        assert!(
            stack
                .run(Call::new(seed_for(&reads, "tool", json!({}))))
                .await
                .is_ok()
        );
    }

    #[tokio::test]
    async fn raise_settles_as_an_exception_with_a_refused_category() {
        let stack = echo_under(Scope::only([]).on_violation(OnViolation::Raise));
        let outcome = stack.run(call("echo")).await;
        assert_eq!(outcome.status(), Some(Status::LayerException));
        let category = outcome
            .settled()
            .and_then(|s| s.error.as_ref())
            .map(|error| error.category);
        assert_eq!(category, Some(ErrorCategory::Refused));
    }

    #[test]
    fn a_misspelt_word_or_an_invalid_pattern_is_rejected() {
        for bad in [
            json!({ "on_violation": "ignore" }),
            json!({ "side_effect_level": "readonly" }),
            json!({ "capabilities": { "workspce": [] } }),
            json!({ "capabilities": { "workspace": ["raed"] } }),
            json!({ "allowed_tools": ["["] }),
            json!({ "arguments": { "x": { "path": ["["] } } }),
            json!({ "alowed_tools": [] }),
            json!({ "stage": " " }),
        ] {
            assert!(configured_scope(bad.clone()).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_policy_among_the_resources_narrows_a_configured_scope() {
        let ambient = Scope::only(["a", "b"]).policy().clone();
        let options = ScopeOptions {
            allowed_tools: Some(vec!["*".into()]),
            ..ScopeOptions::default()
        };
        let stack = echo_under(
            Scope::configure(options, &Resources::new().with(ambient)).expect("valid options"),
        );
        assert!(stack.run(call("a")).await.is_ok());
        assert_eq!(
            stack.run(call("c")).await.status(),
            Some(Status::OutOfScope)
        );
    }

    #[tokio::test]
    async fn a_call_that_resumes_is_judged_the_same() {
        run_twice(Scope::only(["echo"]), seed("echo", json!({})))
            .await
            .assert_replays();
        run_twice(Scope::only([]), seed("echo", json!({})))
            .await
            .assert_replays();
    }
}
