//! Judges a call by rules, and picks the stricter of several answers.
//!
//! What is denied comes first: by the built-in rules, then by the strictest rule that may match
//! (`rule_match`). Then follow what a rule allows (`allowed`, `rule_coverage`) and what cannot be told
//! (`doubt`), of which the stricter counts, and at last files that act later (`acting_changes`).

mod acting_changes;
mod allowed;
mod compiled_rule;
mod doubt;
mod judgement;
mod rule_coverage;
mod rule_match;
mod uncovered;

use std::{cell::LazyCell, collections::BTreeSet};

use serde_json::json;
use toolgate_core::{Digest, Json};

use self::compiled_rule::CompiledPolicyRule;
pub use self::judgement::Judgement;
use crate::{
    BadOption, PolicyEffect, PolicyFallback, PolicyOptions, PolicyRule,
    decide::policy::{
        features::{CallFeatures, FeatureNeeds},
        matching::secret_files,
    },
};

/// The compiled rules of a policy.
#[derive(Debug)]
pub(crate) struct RuleSet {
    options: PolicyOptions,
    rules: Vec<CompiledPolicyRule>,
}

impl RuleSet {
    pub(crate) fn new(options: PolicyOptions) -> Result<Self, BadOption> {
        let mut names = BTreeSet::new();
        for name in options.rules.iter().filter_map(|rule| rule.name.as_deref()) {
            if name.trim().is_empty() || !names.insert(name) {
                return Err(BadOption::new(
                    "rules",
                    format!("the name {name:?} is empty or used twice"),
                ));
            }
        }
        let compile = |(at, rule)| CompiledPolicyRule::new(at, rule);
        let rules = options
            .rules
            .iter()
            .enumerate()
            .map(compile)
            .collect::<Result<_, _>>()?;
        Ok(Self { options, rules })
    }

    pub(crate) fn feature_needs(&self) -> FeatureNeeds {
        let any = |test: fn(&PolicyRule) -> bool| self.options.rules.iter().any(test);
        let paths = self.options.secrets_files
            || self.options.acting_files
            || any(|rule| rule.path.is_some());
        let urls = any(|rule| rule.url.is_some() || rule.domain.is_some());
        // Commands name paths and hosts too.
        FeatureNeeds {
            paths,
            commands: paths || urls || any(|rule| rule.command.is_some()),
            urls,
        }
    }

    /// Returns the highest number of repeats that a rule compares with.
    pub(crate) fn most_repeats(&self) -> Option<u32> {
        self.options
            .rules
            .iter()
            .filter_map(|rule| rule.repeat)
            .max()
    }

    /// Checks whether a rule or the default can require approval.
    pub(crate) fn may_ask(&self) -> bool {
        let by_default = match self.options.default {
            PolicyFallback::AskWrites | PolicyFallback::Ask => true,
            PolicyFallback::Allow | PolicyFallback::Deny => false,
        };
        // A call that is allowed otherwise may change a file that acts later.
        let may_allow = self.options.default != PolicyFallback::Deny || !self.rules.is_empty();
        // A command that cannot be read may be one that a rule denies.
        let rule = |rule: &CompiledPolicyRule| {
            let may_doubt = rule.command.is_some() || rule.is_about_hosts();
            rule.effect == PolicyEffect::Ask || (rule.effect == PolicyEffect::Deny && may_doubt)
        };
        by_default || (self.options.acting_files && may_allow) || self.rules.iter().any(rule)
    }

    /// Returns the digest of the rules.
    pub(crate) fn version(&self) -> Digest {
        let whole = json!({ "format": 1, "policy": self.options });
        Json::new(whole)
            .expect("rules are not nested deeply")
            .digest()
    }

    /// Checks whether a rule denies calls or asks about them.
    pub(crate) fn has_restrictions(&self) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.effect != PolicyEffect::Allow)
    }

    /// Judges one call. The result depends on the facts and the rules only.
    pub(crate) fn judge(&self, facts: &CallFeatures<'_>) -> Judgement {
        let judged = self.judge_by_rules(facts);
        if judged.effect == PolicyEffect::Deny || !self.options.acting_files {
            return judged;
        }
        match self.find_acting_changes(facts) {
            Some(changes) => judged.asked_each_time(&changes),
            None => judged,
        }
    }

    fn judge_by_rules(&self, facts: &CallFeatures<'_>) -> Judgement {
        if let Some(denied) = self.judge_built_in(facts) {
            return denied;
        }
        if let Some(rule) = self.strictest_match(facts, |_| true) {
            return rule.judgement();
        }
        let usual = self
            .judge_allowed(facts)
            .unwrap_or_else(|| self.fall_back(facts));
        match self.judge_doubt(facts) {
            Some(doubt) => doubt.or_stricter(usual),
            None => usual,
        }
    }

    /// Judges an access to a path by what denies it or asks about it, for a call that was let pass.
    /// A rule that asked about the call itself is answered by its approval. Without `content`, only
    /// rules about paths or arguments count: to list a directory is not to read its files.
    pub(crate) fn judge_path_access<'a, F: FnOnce() -> CallFeatures<'a>>(
        &self,
        access: &CallFeatures<'_>,
        call: &LazyCell<CallFeatures<'a>, F>,
        content: bool,
    ) -> Option<Judgement> {
        if let Some(denied) = self.judge_built_in(access) {
            return Some(denied);
        }
        let counts = |rule: &CompiledPolicyRule| {
            let about_entry = rule.path.is_some() || rule.arguments.is_some();
            let answered = rule.effect == PolicyEffect::Ask && rule.has_asked_about(call);
            // By its own place: a text of the call, such as a search pattern, is not the entry.
            (content || about_entry) && rule.matches_named_path(access) && !answered
        };
        if let Some(rule) = self.strictest_match(access, counts) {
            return Some(rule.judgement());
        }
        // Under this default only what a rule lets read may be read.
        let closed = content && self.options.default == PolicyFallback::Deny;
        let let_read = || {
            let asks = |rule: &CompiledPolicyRule| rule.effect == PolicyEffect::Ask;
            self.judge_allowed(access).is_some() || self.strictest_match(access, asks).is_some()
        };
        (closed && !let_read()).then(|| self.fall_back(access))
    }

    /// Returns the strictest rule that matches, among those that deny or ask and that `counts`.
    fn strictest_match(
        &self,
        facts: &CallFeatures<'_>,
        counts: impl Fn(&CompiledPolicyRule) -> bool,
    ) -> Option<&CompiledPolicyRule> {
        let matching = self.rules.iter().filter(|rule| {
            rule.effect != PolicyEffect::Allow && rule.may_match(facts) && counts(rule)
        });
        // Among rules with the same effect, the first by name is reported: the order of the file
        // must not matter.
        matching.max_by(|a, b| a.effect.cmp(&b.effect).then_with(|| b.label.cmp(&a.label)))
    }

    fn judge_built_in(&self, facts: &CallFeatures<'_>) -> Option<Judgement> {
        // Fail closed: a path that cannot be resolved could lead to anything that is denied.
        if facts.lost {
            return Some(Judgement::denied_by_built_in(
                "paths",
                "a path of the call cannot be resolved",
            ));
        }
        if !self.options.secrets_files {
            return None;
        }
        let places = facts
            .places
            .iter()
            .chain(facts.hinted_places())
            .chain(facts.command_places());
        let secret = { places }.any(secret_files::is_secret)
            || facts.glob_texts().any(secret_files::expands_to_secret);
        secret.then(|| {
            Judgement::denied_by_built_in(
                "secrets files",
                "the call names a file that holds secrets",
            )
        })
    }
}
