//! What the policy makes of one pattern of a standing rule: where a path leads, and which commands
//! a text runs.

use serde_json::Value;
use toolgate_core::{
    Resource, ResourceKind,
    patch::{Patch, PatchedFile},
};

use crate::{
    ArgumentPattern, PolicyEffect, PolicyFallback, PolicyOptions, PolicyRule, RuleEffect,
    decide::{
        approval::rule_match::{RuleMatch, RuleSubject},
        policy::{
            argument_roles::{ArgumentRole, classify_argument, normalize_name},
            judge::RuleSet,
            matching::{
                patch_names::possible_names, path_patterns::StrictPathPatterns, paths::PathRoot,
            },
        },
    },
};

/// The judgement of the policy's matchers about one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyMatch {
    /// It is neither a path nor a command: its text decides.
    NotJudged,
    /// The matchers decide.
    Judged(RuleMatch),
}

/// The part of a pattern that the matchers of the policy decide.
#[derive(Debug)]
pub(crate) struct PatternPolicy {
    pointer: String,
    role: ArgumentRole,
    effect: RuleEffect,
    /// A policy of one rule that has the effect of the pattern.
    rules: Option<RuleSet>,
    /// The places that a pattern of paths names, when it allows.
    within: Option<StrictPathPatterns>,
    /// True for a pattern that any value matches.
    open: bool,
}

impl PatternPolicy {
    pub(crate) fn new(
        effect: RuleEffect,
        pointer: &str,
        pattern: &ArgumentPattern,
        root: &PathRoot,
    ) -> Self {
        let role = role_of(pointer);
        let is_command = matches!(role, ArgumentRole::Command | ArgumentRole::Commands);
        let rules = match (pattern, effect) {
            (ArgumentPattern::Glob(text), RuleEffect::Deny) if is_command => deny_command(text),
            (ArgumentPattern::Equals(Value::String(text)), RuleEffect::Deny) if is_command => {
                deny_command(text)
            }
            (ArgumentPattern::Glob(text), RuleEffect::Deny) => deny_path(text),
            // Absolute, because a name alone would be denied in every directory.
            (ArgumentPattern::Equals(Value::String(text)), RuleEffect::Deny) => {
                deny_path(&root.absolute_pattern(text))
            }
            (ArgumentPattern::Glob(text), RuleEffect::Allow) if is_command => allow_command(text),
            _ => None,
        };
        let within = match pattern {
            // The links in an absolute pattern would be resolved together with those of the path.
            ArgumentPattern::Glob(text) if !text.starts_with(['/', '~']) => {
                StrictPathPatterns::new(std::slice::from_ref(text)).ok()
            }
            ArgumentPattern::Glob(_) | ArgumentPattern::Equals(_) | ArgumentPattern::Any => None,
        };
        Self {
            pointer: pointer.to_owned(),
            role,
            effect,
            rules,
            within,
            open: *pattern == ArgumentPattern::Any,
        }
    }

    /// Judges the value of the argument in a call.
    pub(crate) fn match_value(&self, value: &Value, subject: &RuleSubject<'_>) -> PolicyMatch {
        let role = self.role_in(subject);
        let judged = |yes| PolicyMatch::Judged(if yes { RuleMatch::Yes } else { RuleMatch::No });
        match (role, self.effect) {
            _ if self.open => PolicyMatch::NotJudged,
            (ArgumentRole::Url | ArgumentRole::Host | ArgumentRole::Other, _) => {
                PolicyMatch::NotJudged
            }
            (_, RuleEffect::Deny) => self.judge_denied(subject),
            (ArgumentRole::Command | ArgumentRole::Commands, RuleEffect::Allow) => {
                let covers = |rules: &RuleSet| {
                    judged(rules.judge(subject.facts()).effect == PolicyEffect::Allow)
                };
                self.rules.as_ref().map_or(PolicyMatch::NotJudged, covers)
            }
            (ArgumentRole::Path | ArgumentRole::PossiblePath | ArgumentRole::Patch, _) => {
                judged(self.leads_as_named(role, value, subject.root))
            }
        }
    }

    fn judge_denied(&self, subject: &RuleSubject<'_>) -> PolicyMatch {
        let Some(rules) = &self.rules else {
            return PolicyMatch::NotJudged;
        };
        PolicyMatch::Judged(match rules.judge(subject.facts()).effect {
            PolicyEffect::Deny => RuleMatch::Yes,
            // The policy cannot tell what a command runs.
            PolicyEffect::Ask => RuleMatch::Unclear,
            PolicyEffect::Allow => RuleMatch::No,
        })
    }

    /// Returns the role of the argument, by its name or by the annotations of the tool.
    fn role_in(&self, subject: &RuleSubject<'_>) -> ArgumentRole {
        let is_path = |resource: &Resource| {
            resource.kind == ResourceKind::Path && resource.argument == self.pointer
        };
        let mut resources = subject.call.annotations().resources.iter();
        if self.role == ArgumentRole::Other && resources.any(is_path) {
            ArgumentRole::Path
        } else {
            self.role
        }
    }

    /// Checks whether every path in a value leads where the rule says, and not elsewhere by a link.
    fn leads_as_named(&self, role: ArgumentRole, value: &Value, root: &PathRoot) -> bool {
        match value {
            Value::String(text) => match (role, &self.within) {
                (ArgumentRole::Patch, _) => patch_leads_as_spelled(text, root),
                (ArgumentRole::PossiblePath, _) => !root.leads_elsewhere(text),
                (_, Some(within)) => root
                    .resolve_path(text)
                    .is_ok_and(|place| place.is_within(within)),
                (_, None) => root.leads_as_spelled(text),
            },
            Value::Array(items) => items
                .iter()
                .all(|item| self.leads_as_named(role, item, root)),
            Value::Object(parts) => parts
                .values()
                .all(|part| self.leads_as_named(role, part, root)),
            Value::Null | Value::Bool(_) | Value::Number(_) => true,
        }
    }
}

fn patch_leads_as_spelled(text: &str, root: &PathRoot) -> bool {
    match Patch::parse(text) {
        Ok(patch) => {
            let mut paths = patch.files().flat_map(PatchedFile::paths);
            paths.all(|path| root.leads_as_spelled(path))
        }
        // Another tool may apply it.
        Err(_) => !possible_names(text)
            .iter()
            .any(|name| root.leads_elsewhere(name)),
    }
}

/// Returns the role of the argument that a pointer names: the last name in it, not an index.
fn role_of(pointer: &str) -> ArgumentRole {
    let is_name = |part: &&str| part.contains(|c: char| !c.is_ascii_digit());
    let name = pointer.rsplit('/').find(is_name).unwrap_or_default();
    classify_argument(&normalize_name(name))
}

fn deny_command(text: &str) -> Option<RuleSet> {
    let rule = PolicyRule {
        command: Some([text].into()),
        ..PolicyRule::new(PolicyEffect::Deny)
    };
    one_rule(rule, PolicyFallback::Allow)
}

fn deny_path(text: &str) -> Option<RuleSet> {
    let rule = PolicyRule {
        path: Some([text].into()),
        ..PolicyRule::new(PolicyEffect::Deny)
    };
    one_rule(rule, PolicyFallback::Allow)
}

fn allow_command(text: &str) -> Option<RuleSet> {
    // Patterns of commands know no other wildcard than `*`.
    if text.contains(['?', '[', ']', '{', '}', '\\']) {
        return None;
    }
    let rule = PolicyRule {
        command: Some([text].into()),
        ..PolicyRule::new(PolicyEffect::Allow)
    };
    one_rule(rule, PolicyFallback::Deny)
}

/// Returns the policy of this rule alone; `None` if the policy cannot express it.
fn one_rule(rule: PolicyRule, default: PolicyFallback) -> Option<RuleSet> {
    let options = PolicyOptions {
        default,
        rules: vec![rule],
        secrets_files: false,
        acting_files: false,
    };
    RuleSet::new(options).ok()
}
