//! What no rule denies or asks about: the rules that allow it, or the default.

use std::{collections::BTreeSet, sync::Arc};

use super::{Judgement, RuleSet, compiled_rule::CompiledPolicyRule};
use crate::{
    PolicyEffect, PolicyFallback,
    decide::policy::{features::CallFeatures, matching::shell::CommandWords},
};

impl RuleSet {
    /// Returns the judgement of the rules that allow the call, alone or, command by command,
    /// together.
    pub(super) fn judge_allowed(&self, facts: &CallFeatures<'_>) -> Option<Judgement> {
        let mut fitting: Vec<&CompiledPolicyRule> = self
            .rules
            .iter()
            .filter(|rule| rule.effect == PolicyEffect::Allow && rule.certainly_matches(facts))
            .collect();
        fitting.sort_by(|a, b| a.label.cmp(&b.label));
        if let Some(rule) = fitting.iter().find(|rule| rule.covers_all(facts)) {
            return Some(rule.judgement());
        }
        let runs = facts.certain_runs().filter(|runs| !runs.is_empty())?;
        let covering = |words: &&CommandWords| {
            fitting
                .iter()
                .find(|rule| rule.covers_command(words, facts))
                .copied()
        };
        let rules: Vec<&CompiledPolicyRule> = runs.iter().map(covering).collect::<Option<_>>()?;
        let labels: BTreeSet<&str> = rules.iter().map(|rule| &*rule.label).collect();
        let labels: Arc<str> = labels.into_iter().collect::<Vec<_>>().join(" and ").into();
        let reason = format!("the rules {labels} allow the commands").into();
        Some(Judgement {
            effect: PolicyEffect::Allow,
            rule: Some(labels),
            reason,
            each_time: false,
        })
    }

    pub(super) fn fall_back(&self, facts: &CallFeatures<'_>) -> Judgement {
        let (effect, reason) = match self.options.default {
            PolicyFallback::AskWrites if facts.call.annotations().may_write() => (
                PolicyEffect::Ask,
                "no rule allows this and the tool may change something",
            ),
            PolicyFallback::AskWrites => return Judgement::allowed_read(),
            PolicyFallback::Allow => (PolicyEffect::Allow, "no rule forbids it"),
            PolicyFallback::Ask => (PolicyEffect::Ask, "no rule allows this"),
            PolicyFallback::Deny => (PolicyEffect::Deny, "no rule allows this"),
        };
        let hint = Some(effect)
            .filter(|effect| *effect != PolicyEffect::Allow)
            .and_then(|_| self.explain_uncovered(facts));
        let reason = hint.map_or_else(|| reason.into(), |hint| format!("{reason}: {hint}").into());
        Judgement {
            effect,
            rule: None,
            reason,
            each_time: false,
        }
    }
}
