//! Judges what a tool accesses while it runs: entries of a directory walk, redirects.

use std::{
    cell::LazyCell,
    path::Path,
    sync::{Arc, LazyLock},
};

use serde_json::Value;
use toolgate_core::{
    Access, AccessJudge, AccessVerdict, Admission, Annotations, Arguments, Call, CallSeed,
    ExecutorTag, OnExisting, Registry, ResumeState, Schema, ShownTool, SourceTrust, Stack,
    ToolKind, ToolName, ToolSpec, View,
};

use crate::{
    Judgement, PolicyEffect,
    decide::policy::{
        features::{CallFeatures, FeatureNeeds},
        judge::RuleSet,
        matching::{hosts::have_same_host, paths::PathRoot},
    },
};

/// The tool as which the content of a file is judged.
const READING_TOOL: &str = "read_file";

/// The rules of a policy, with the directory that their paths start from.
#[derive(Debug, Clone)]
pub(super) struct PolicyRules {
    pub(super) sets: Arc<[Arc<RuleSet>]>,
    pub(super) needs: FeatureNeeds,
    pub(super) root: Arc<PathRoot>,
}

impl PolicyRules {
    /// Judges a call that was made `earlier` times before.
    pub(super) fn judge(&self, call: &Call, earlier: usize) -> Judgement {
        let facts = self.facts(call, earlier);
        let answers = self.sets.iter().map(|rules| rules.judge(&facts));
        answers
            .reduce(Judgement::or_stricter)
            .expect("a policy has at least one set of rules")
    }

    fn facts<'a>(&'a self, call: &'a Call, earlier: usize) -> CallFeatures<'a> {
        CallFeatures::extract_from(call, &self.root, self.needs, earlier)
    }

    /// Judges a file or directory that `call` has found: neither the call itself nor reading the
    /// file may be denied or need an approval that the call does not have.
    fn judge_path(&self, call: &Call, path: &Path, content: bool) -> AccessVerdict {
        let Some(path) = self.root.relative_path(path).to_str() else {
            // Fail closed: no rule can name it, and no call can read it.
            return AccessVerdict::Denied("its name is not valid UTF-8".into());
        };
        let called = LazyCell::new(|| self.facts(call, 0));
        let judge = |access: &Call, content: bool| {
            let access = self.facts(access, 0);
            let judge = |rules: &Arc<RuleSet>| rules.judge_path_access(&access, &called, content);
            self.sets
                .iter()
                .filter_map(judge)
                .reduce(Judgement::or_stricter)
        };
        // Only a rule can tell the call from reading. The default counts for reading alone, because
        // the call itself was let pass.
        let restricted = self.sets.iter().any(|rules| rules.has_restrictions());
        let as_call = restricted.then(|| judge(&with_argument(call, "path", path), false));
        let as_reading = judge(&reading_call(call, path), content);
        let judgements = as_call.flatten().into_iter().chain(as_reading);
        let strictest = judgements.reduce(Judgement::or_stricter);
        strictest.map_or(AccessVerdict::Allowed, into_verdict)
    }

    /// Judges a URL as a call of its own. An approval of the call covers redirects on its host.
    fn judge_url(&self, call: &Call, url: &str) -> AccessVerdict {
        let judgement = self.judge(&with_argument(call, "url", url), 0);
        let approved = || self.judge(call, 0).effect == PolicyEffect::Ask;
        let called = call.arguments.get("url").and_then(Value::as_str);
        let covered = judgement.effect == PolicyEffect::Ask
            && called.is_some_and(|called| have_same_host(called, url))
            && approved();
        if covered {
            AccessVerdict::Allowed
        } else {
            into_verdict(judgement)
        }
    }
}

impl AccessJudge for PolicyRules {
    fn judge_access(&self, call: &Call, access: Access<'_>) -> AccessVerdict {
        match access {
            Access::ListEntry(path) => self.judge_path(call, path, false),
            Access::ReadFile(path) => self.judge_path(call, path, true),
            Access::FetchUrl(url) => self.judge_url(call, url),
        }
    }
}

fn into_verdict(judgement: Judgement) -> AccessVerdict {
    match judgement.effect {
        PolicyEffect::Allow => AccessVerdict::Allowed,
        PolicyEffect::Ask => AccessVerdict::NeedsApproval(judgement.reason),
        PolicyEffect::Deny => AccessVerdict::Denied(judgement.reason),
    }
}

/// Returns the call with another value of one argument.
fn with_argument(call: &Call, name: &str, value: &str) -> Call {
    let mut arguments = call.arguments.as_map().clone();
    arguments.insert(name.to_owned(), Value::from(value));
    call.clone().with_arguments(to_arguments(arguments))
}

/// Returns the call that would read a file, made by the same agent in the same turn.
fn reading_call(call: &Call, path: &str) -> Call {
    let path = ("path".to_owned(), Value::from(path));
    Call::new(CallSeed {
        id: call.id,
        generation: 0,
        provider_call_id: "".into(),
        emit_order: 0,
        turn: call.turn().clone(),
        admission: Admission {
            tool: ToolName::from(READING_TOOL),
            shown: Some(READING_SPEC.clone()),
            arguments: to_arguments([path].into_iter().collect()),
            refusal: None,
        },
        resumed: ResumeState::default(),
        attempts_before: 0,
        rehearsal: true,
        closing: None,
        cancel: call.cancel.clone(),
        env: call.env().clone(),
    })
}

fn to_arguments(arguments: serde_json::Map<String, Value>) -> Arguments {
    Arguments::try_from(Value::Object(arguments)).expect("as deep as the arguments of the call")
}

/// The spec of a tool that reads files, for rules about kinds and effects.
static READING_SPEC: LazyLock<Arc<ShownTool>> = LazyLock::new(|| {
    let annotations = Annotations::read_only().with_kind(ToolKind::Read);
    let spec = ToolSpec::new(READING_TOOL, "", Schema::any_object()).with_annotations(annotations);
    let registry = Registry::new();
    registry
        .register_from(
            spec,
            ExecutorTag::Native,
            SourceTrust::Trusted,
            toolgate_core::HostExecutor,
            OnExisting::Reject,
        )
        .expect("the registry is empty");
    let stack = Stack::over(registry.clone()).build().expect("no layers");
    let view = View::for_stack(&registry, &stack).expect("nothing transforms the tool");
    view.get(READING_TOOL).expect("it was registered").clone()
});
