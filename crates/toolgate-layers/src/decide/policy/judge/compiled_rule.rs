//! A rule with its patterns compiled.

use std::{collections::BTreeMap, sync::Arc};

use globset::GlobSet;
use toolgate_core::{Labels, SideEffect, ToolKind};

use super::Judgement;
use crate::{
    ArgumentCondition, BadOption, OneOrMany, PolicyEffect, PolicyRule,
    config::lists,
    decide::policy::{
        arguments::ArgumentConditions,
        matching::{
            commands::CommandPattern,
            hosts::{DomainPatterns, compile_url_globs},
            path_patterns::{LoosePathPatterns, StrictPathPatterns},
        },
        rules::check_rule,
    },
};

/// A rule with its patterns compiled.
#[derive(Debug)]
pub(super) struct CompiledPolicyRule {
    pub(super) effect: PolicyEffect,
    /// `"its name"` or its number, as shown in explanations.
    pub(super) label: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) reason: Arc<str>,
    pub(super) tool: Option<GlobSet>,
    pub(super) kind: Option<Vec<ToolKind>>,
    pub(super) side_effect: Option<SideEffect>,
    pub(super) path: Option<PathCondition>,
    /// The paths of a rule that allows which have no wildcards.
    pub(super) named_paths: Option<StrictPathPatterns>,
    pub(super) command: Option<Vec<CommandPattern>>,
    pub(super) url: Option<GlobSet>,
    pub(super) domain: Option<DomainPatterns>,
    pub(super) mcp_server: Option<GlobSet>,
    pub(super) agent: Option<GlobSet>,
    pub(super) labels: Labels,
    pub(super) arguments: Option<ArgumentConditions>,
    pub(super) repeat: Option<u32>,
}

/// The paths of a rule: any of them for one that asks or denies, all within them for one that allows.
#[derive(Debug)]
pub(super) enum PathCondition {
    AnyOf(LoosePathPatterns),
    Within(StrictPathPatterns),
}

impl CompiledPolicyRule {
    pub(super) fn new(at: usize, rule: &PolicyRule) -> Result<Self, BadOption> {
        let number = (at + 1).to_string();
        let label: Arc<str> = rule
            .name
            .as_ref()
            .map_or(number, |name| format!("{name:?}"))
            .into();
        let within =
            |error: BadOption| BadOption::new("rules", format!("rule {label}: {}", error.problem));
        Self::compile_conditions(&label, at, rule).map_err(within)
    }

    fn compile_conditions(
        label: &Arc<str>,
        at: usize,
        rule: &PolicyRule,
    ) -> Result<Self, BadOption> {
        check_rule(rule)?;
        let globs = |list: &Option<OneOrMany<String>>| {
            list.as_ref()
                .map(|list| lists::compile_name_globs("rules", list))
                .transpose()
        };
        let path = |list: &OneOrMany<String>| match rule.effect {
            PolicyEffect::Allow => StrictPathPatterns::new(list).map(PathCondition::Within),
            PolicyEffect::Ask | PolicyEffect::Deny => {
                LoosePathPatterns::new(list).map(PathCondition::AnyOf)
            }
        };
        let named = |list: &OneOrMany<String>| {
            let is_plain = |path: &&String| !path.contains(['*', '?', '[', '{', '\\']);
            let plain: Vec<String> = list.iter().filter(is_plain).cloned().collect();
            StrictPathPatterns::new(&plain)
        };
        let url = |list: &OneOrMany<String>| match rule.effect {
            PolicyEffect::Allow => compile_url_globs(list),
            PolicyEffect::Ask | PolicyEffect::Deny => compile_url_globs(
                &list
                    .iter()
                    .map(|url| url.to_lowercase())
                    .collect::<Vec<_>>(),
            ),
        };
        let commands =
            |list: &OneOrMany<String>| list.iter().map(|text| CommandPattern::new(text)).collect();
        let name = rule
            .name
            .clone()
            .unwrap_or_else(|| format!("rule {}", at + 1));
        Ok(Self {
            effect: rule.effect,
            label: label.clone(),
            name: name.into(),
            reason: explain_rule(label, rule).into(),
            tool: globs(&rule.tool)?,
            kind: rule.kind.as_ref().map(|kinds| kinds.to_vec()),
            side_effect: rule.side_effect,
            path: rule.path.as_ref().map(path).transpose()?,
            named_paths: { rule.path.as_ref() }
                .filter(|_| rule.effect == PolicyEffect::Allow)
                .map(named)
                .transpose()?,
            command: rule.command.as_ref().map(commands).transpose()?,
            url: rule.url.as_ref().map(url).transpose()?,
            domain: rule
                .domain
                .as_ref()
                .map(|list| DomainPatterns::new(list))
                .transpose()?,
            mcp_server: globs(&rule.mcp_server)?,
            agent: globs(&rule.agent)?,
            labels: rule.labels.clone(),
            arguments: rule
                .arguments
                .as_ref()
                .map(|given| ArgumentConditions::new(given, rule.effect))
                .transpose()?,
            repeat: rule.repeat,
        })
    }

    pub(super) fn judgement(&self) -> Judgement {
        Judgement {
            effect: self.effect,
            rule: Some(self.name.clone()),
            reason: self.reason.clone(),
            each_time: false,
        }
    }

    /// Checks whether the rule depends on what the arguments name.
    pub(super) fn is_about_content(&self) -> bool {
        self.path.is_some() || self.command.is_some() || self.url.is_some() || self.domain.is_some()
    }
}

fn explain_rule(label: &str, rule: &PolicyRule) -> String {
    let says = match rule.effect {
        PolicyEffect::Allow => "allows",
        PolicyEffect::Ask => "asks",
        PolicyEffect::Deny => "denies",
    };
    match rule
        .reason
        .as_deref()
        .map(str::trim)
        .filter(|reason| !reason.is_empty())
    {
        Some(reason) => format!("rule {label} {says}: {reason}"),
        None => match &rule.arguments {
            Some(conditions) => format!("rule {label} {says}: {}", describe_conditions(conditions)),
            None => format!("rule {label} {says}"),
        },
    }
}

fn describe_conditions(conditions: &BTreeMap<String, ArgumentCondition>) -> String {
    let texts: Vec<String> = conditions
        .iter()
        .map(|(name, condition)| format!("{name} {condition}"))
        .collect();
    texts.join(", ")
}
