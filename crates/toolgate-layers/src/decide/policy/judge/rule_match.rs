//! Matches a rule that asks or denies: doubt counts as a match.

use globset::GlobSet;
use toolgate_core::{ExecutorTag, ToolKind};

use super::compiled_rule::{CompiledPolicyRule, PathCondition};
use crate::decide::policy::{
    features::{CallCommand, CallFeatures, CallUrl},
    matching::{
        commands::CommandPattern,
        hosts::{DomainPatterns, normalize_url},
        paths::percent_decode,
    },
};

impl CompiledPolicyRule {
    /// Checks whether the call may be one that the rule asks about or denies. Doubt counts as a
    /// match.
    pub(super) fn may_match(&self, facts: &CallFeatures<'_>) -> bool {
        let command = |patterns: &Vec<CommandPattern>| {
            let runs = |command: &CallCommand| {
                patterns.iter().any(|pattern| {
                    if command.is_certain() {
                        pattern.begins_any(command.certain_runs())
                    } else {
                        pattern.may_run(command.possible_runs())
                    }
                })
            };
            facts.commands.iter().any(runs)
        };
        self.matches_besides_commands(facts) && self.command.as_ref().is_none_or(command)
    }

    /// Checks the conditions of a rule that asks or denies, apart from the one about commands.
    pub(super) fn matches_besides_commands(&self, facts: &CallFeatures<'_>) -> bool {
        self.matches_besides_hosts(facts) && self.matches_hosts(facts)
    }

    /// Checks the hosts that a rule that asks or denies names, if it names any.
    fn matches_hosts(&self, facts: &CallFeatures<'_>) -> bool {
        let domain = |domains: &DomainPatterns| {
            let hosts = facts.hosts();
            hosts.named.iter().any(|host| domains.contains(host))
                || hosts.mentioned.iter().any(|word| domains.names_word(word))
        };
        let url = |globs: &GlobSet| {
            let plain = |url: &CallUrl| {
                url.plain
                    .as_ref()
                    .is_some_and(|url| globs.is_match(url.whole.to_lowercase()))
            };
            facts.urls.iter().any(plain) || facts.url_texts().any(|text| url_may_match(globs, text))
        };
        self.domain.as_ref().is_none_or(domain) && self.url.as_ref().is_none_or(url)
    }

    /// Checks the conditions of a rule that asks or denies, apart from those about commands and
    /// hosts.
    pub(super) fn matches_besides_hosts(&self, facts: &CallFeatures<'_>) -> bool {
        let annotations = facts.call.annotations();
        let kind =
            |kinds: &Vec<ToolKind>| annotations.kind.is_none_or(|kind| kinds.contains(&kind));
        let path = |paths: &PathCondition| match paths {
            PathCondition::AnyOf(patterns) => {
                let mut places = facts
                    .places
                    .iter()
                    .chain(facts.hinted_places())
                    .chain(facts.command_places());
                places.any(|place| place.may_match(patterns))
                    || facts.glob_texts().any(|text| patterns.may_expand_to(text))
            }
            PathCondition::Within(_) => false,
        };
        self.is_about(facts)
            && self.kind.as_ref().is_none_or(kind)
            && self
                .side_effect
                .is_none_or(|least| annotations.strongest_effect() >= least)
            && self
                .repeat
                .is_none_or(|times| facts.earlier >= times as usize)
            && self.path.as_ref().is_none_or(path)
    }

    /// Checks whether the rule, in asking about a call, asked about the paths that it names. A text
    /// that only looks like a path, such as a search pattern, is not what an approver approved.
    pub(super) fn has_asked_about(&self, call: &CallFeatures<'_>) -> bool {
        self.matches_named_path(call) && self.may_match(call)
    }

    /// Checks whether an argument that names a path matches the paths of the rule, if it has any.
    pub(super) fn matches_named_path(&self, facts: &CallFeatures<'_>) -> bool {
        match &self.path {
            Some(PathCondition::AnyOf(patterns)) => {
                facts.places.iter().any(|place| place.may_match(patterns))
            }
            Some(PathCondition::Within(_)) => false,
            None => true,
        }
    }

    /// Checks the conditions on what the call is: tool, MCP server, agent, labels and single arguments.
    pub(super) fn is_about(&self, facts: &CallFeatures<'_>) -> bool {
        let call = facts.call;
        let server = || match call.shown_tool().map(|shown| &shown.entry.executor) {
            Some(ExecutorTag::McpServer(name)) => Some(name),
            Some(ExecutorTag::Native | ExecutorTag::Host | ExecutorTag::ProviderNative) | None => {
                None
            }
        };
        let agent = |globs: &GlobSet| {
            let turn = call.turn();
            let name = turn
                .agent_name
                .as_ref()
                .is_some_and(|name| globs.is_match(&**name));
            name || turn
                .agent_id
                .as_ref()
                .is_some_and(|id| globs.is_match(id.as_str()))
        };
        self.tool
            .as_ref()
            .is_none_or(|globs| globs.is_match(call.tool.as_str()))
            && self
                .mcp_server
                .as_ref()
                .is_none_or(|globs| server().is_some_and(|name| globs.is_match(&**name)))
            && self.agent.as_ref().is_none_or(agent)
            && call.turn().labels.contains_all(&self.labels)
            && self
                .arguments
                .as_ref()
                .is_none_or(|conditions| conditions.hold(&call.arguments))
    }
}

fn url_may_match(globs: &GlobSet, text: &str) -> bool {
    let decoded = percent_decode(text).to_lowercase();
    let tidy = || normalize_url(text).is_some_and(|tidy| globs.is_match(tidy));
    globs.is_match(text.to_lowercase()) || globs.is_match(decoded) || tidy()
}
