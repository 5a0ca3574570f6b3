//! Narrows which calls a stage of work may make.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Layer, LayerTraits, Next, Outcome, SideEffect, Status,
};

use crate::{BadOption, Capability, Configurable, Parts, ScopePolicy, Violation};

/// Refuses calls that lie outside the surface of a stage.
///
/// A refusal is an ordinary outcome: the model reads it and can pick another tool. Scopes only narrow: under two of
/// them a call has to be inside both, and a [`ScopePolicy`] among the parts narrows every configured scope.
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
    /// A scope with these limits.
    pub fn new(policy: ScopePolicy) -> Self {
        let (stage, on_violation) = (Arc::from(DEFAULT_STAGE), OnViolation::Reject);
        Self {
            policy,
            stage,
            on_violation,
            note: Value::Null,
        }
        .noted()
    }

    /// A scope of exactly these tools; no names allow no calls.
    pub fn only<'a>(tools: impl IntoIterator<Item = &'a str>) -> Self {
        let tools = tools.into_iter().map(globset::escape).collect();
        let options = ScopeOptions {
            allowed_tools: Some(tools),
            ..ScopeOptions::default()
        };
        Self::new(ScopePolicy::new(options).expect("escaped names are readable globs"))
    }

    /// Says what the stage is called in notes and refusals.
    pub fn stage(self, stage: &str) -> Self {
        Self {
            stage: stage.into(),
            ..self
        }
        .noted()
    }

    /// Narrows the scope to what `ambient` allows as well.
    pub fn within(self, ambient: &ScopePolicy) -> Self {
        Self {
            policy: self.policy.intersect(ambient),
            ..self
        }
        .noted()
    }

    /// Says what happens to a call outside the scope.
    pub fn on_violation(self, on_violation: OnViolation) -> Self {
        Self {
            on_violation,
            ..self
        }
    }

    /// What the scope allows.
    pub fn policy(&self) -> &ScopePolicy {
        &self.policy
    }

    fn noted(mut self) -> Self {
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

    fn refuse(&self, violation: &Violation) -> Outcome {
        let text = format!("{violation} in the stage {:?}", self.stage);
        match self.on_violation {
            OnViolation::Reject => Outcome::refused(Status::OutOfScope, text),
            OnViolation::Raise => Outcome::error(
                Status::LayerException,
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
                    next.because(violation.to_string());
                    self.refuse(&violation)
                }
            };
        outcome.noting(|notes| notes.scope = Some(self.note.clone()))
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).answering()
    }
}

impl Configurable for Scope {
    const NAME: &'static str = "scope";
    const SUMMARY: &'static str =
        "Narrows which tools, effects and arguments a stage of work may use.";
    type Options = ScopeOptions;

    fn configure(options: ScopeOptions, parts: &Parts) -> Result<Self, BadOption> {
        let (stage, on_violation) = (options.stage.clone(), options.on_violation);
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

/// What a scope allows. What is not set is not limited; a list that is set and empty allows nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScopeOptions {
    /// What the stage is called in notes and refusals.
    pub stage: String,
    /// The tools that may be called, by name or glob. An empty list allows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// The strongest effect a tool may have. A tool that declares none counts as the strongest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_effect_level: Option<SideEffect>,
    /// Where a tool's strongest effect may lie, and which kinds of work it may do there (`read`, `edit`, …, or `*`).
    /// What is not listed is not allowed; a tool without an effect needs no capability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<BTreeMap<Capability, Vec<String>>>,
    /// Patterns that arguments have to fit: tool (name, glob or `*`) → argument (name or JSON pointer) → globs. The
    /// argument has to be there and be a text, or a list of texts, that fit one of the globs. A text with `..` in it
    /// fits only `*` and `**`.
    pub arguments: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// What happens to a call outside the scope.
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

/// What happens to a call outside the scope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnViolation {
    /// The call settles `scope_violation` and the model goes on.
    #[default]
    Reject,
    /// The call settles `tool_middleware_exception`, so that a loop that aborts on errors stops.
    Raise,
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::{Annotations, Arguments, Registry, Schema, ToolSpec, View};
    use toolgate_testkit::{call, echo_under, run_twice, seed, seed_for};

    fn configured(options: Value) -> Result<Scope, String> {
        let options = serde_json::from_value(options).map_err(|error| error.to_string())?;
        Scope::configure(options, &Parts::new()).map_err(|error| error.to_string())
    }

    fn annotated(annotations: Annotations) -> View {
        let registry = Registry::new();
        let spec = ToolSpec::new("tool", "", Schema::any_object()).with_annotations(annotations);
        registry.register_host(spec).expect("registers");
        View::of(&registry)
    }

    #[tokio::test]
    async fn refuses_a_tool_it_does_not_name_and_notes_the_stage_on_every_outcome() {
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
        let empty = echo_under(configured(json!({ "allowed_tools": [] })).expect("fine"));
        assert_eq!(
            empty.run(call("echo")).await.status(),
            Some(Status::OutOfScope)
        );
        let missing = echo_under(configured(json!({})).expect("fine"));
        assert!(missing.run(call("echo")).await.is_ok());
        assert_eq!(
            Scope::only([])
                .policy()
                .judge("x", &Annotations::default(), &Arguments::empty()),
            Err(Violation::Tool)
        );
    }

    #[tokio::test]
    async fn a_tool_that_declares_nothing_counts_as_the_strongest() {
        let stack =
            echo_under(configured(json!({ "side_effect_level": "read_only" })).expect("fine"));
        assert_eq!(
            stack.run(call("echo")).await.status(),
            Some(Status::OutOfScope)
        );
        let reads = annotated(Annotations::read_only());
        assert!(
            stack
                .run(Call::new(seed_for(&reads, "tool", json!({}))))
                .await
                .is_ok()
        );
    }

    #[tokio::test]
    async fn raise_settles_as_an_exception_that_was_a_refusal() {
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
    fn a_misspelt_word_or_an_unreadable_pattern_refuses_to_load() {
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
            assert!(configured(bad.clone()).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_policy_among_the_parts_narrows_a_configured_scope() {
        let ambient = Scope::only(["a", "b"]).policy().clone();
        let options = ScopeOptions {
            allowed_tools: Some(vec!["*".into()]),
            ..ScopeOptions::default()
        };
        let stack =
            echo_under(Scope::configure(options, &Parts::new().with(ambient)).expect("fine"));
        assert!(stack.run(call("a")).await.is_ok());
        assert_eq!(
            stack.run(call("c")).await.status(),
            Some(Status::OutOfScope)
        );
    }

    #[tokio::test]
    async fn a_call_that_comes_back_is_judged_the_same() {
        run_twice(Scope::only(["echo"]), seed("echo", json!({})))
            .await
            .assert_replays();
        run_twice(Scope::only([]), seed("echo", json!({})))
            .await
            .assert_replays();
    }
}
