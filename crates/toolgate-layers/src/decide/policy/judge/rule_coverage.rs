//! Matches a rule that allows: doubt counts as no match, and every command has to be covered.

use toolgate_core::ToolKind;

use super::compiled_rule::{CompiledPolicyRule, PathCondition};
use crate::decide::policy::{
    features::CallFeatures,
    matching::{
        commands::CommandPattern,
        hosts::{PlainUrl, parse_plain_url},
        shell::CommandWords,
    },
};

impl CompiledPolicyRule {
    /// Checks whether the call is certainly one that the rule allows, commands aside. Doubt counts
    /// as no match.
    pub(super) fn certainly_matches(&self, facts: &CallFeatures<'_>) -> bool {
        let annotations = facts.call.annotations();
        let kind =
            |kinds: &Vec<ToolKind>| annotations.kind.is_some_and(|kind| kinds.contains(&kind));
        let path = |paths: &PathCondition| match paths {
            PathCondition::AnyOf(_) => false,
            PathCondition::Within(patterns) => {
                // A call that names no path is not covered: `all` is true for an empty list.
                let inside = facts.places.iter().all(|place| place.is_within(patterns));
                facts.paths_certain && !facts.places.is_empty() && inside
            }
        };
        let urls = |test: &dyn Fn(&PlainUrl) -> bool| {
            facts.urls_certain
                && !facts.urls.is_empty()
                && facts
                    .urls
                    .iter()
                    .all(|url| url.plain.as_ref().is_some_and(test))
        };
        self.is_about(facts)
            && self.kind.as_ref().is_none_or(kind)
            && self
                .side_effect
                .is_none_or(|most| annotations.strongest_effect() <= most)
            && self
                .repeat
                .is_none_or(|times| facts.earlier < times as usize)
            && self.path.as_ref().is_none_or(path)
            && self
                .domain
                .as_ref()
                .is_none_or(|domains| urls(&|url| domains.contains(&url.host)))
            && self
                .url
                .as_ref()
                .is_none_or(|globs| urls(&|url| globs.is_match(&url.whole)))
    }

    /// Checks whether every command of the call is covered by this rule.
    pub(super) fn covers_all(&self, facts: &CallFeatures<'_>) -> bool {
        if self.command.is_some() {
            let all = |runs: Vec<&CommandWords>| {
                !runs.is_empty() && runs.iter().all(|words| self.covers_command(words, facts))
            };
            return facts.certain_runs().is_some_and(all);
        }
        // A rule about paths or hosts does not cover commands: what a command does is not limited
        // to what it names.
        let about_names = self.path.is_some() || self.domain.is_some() || self.url.is_some();
        !about_names || facts.commands.is_empty()
    }

    pub(super) fn covers_command(&self, words: &[String], facts: &CallFeatures<'_>) -> bool {
        let covers = |pattern: &CommandPattern| {
            pattern.covers(words)
                && pattern
                    .further_words(words)
                    .is_some_and(|words| self.bounds_words(words, facts))
        };
        self.command
            .as_ref()
            .is_some_and(|patterns| patterns.iter().any(covers))
    }

    /// Checks whether the further words of a command stay within the paths, hosts and URLs of the
    /// rule, if it names any.
    fn bounds_words(&self, words: &[String], facts: &CallFeatures<'_>) -> bool {
        let within = match &self.path {
            Some(PathCondition::Within(patterns)) => Some(patterns),
            Some(PathCondition::AnyOf(_)) | None => None,
        };
        if within.is_none() && self.domain.is_none() && self.url.is_none() {
            return true;
        }
        let is_allowed = |url: PlainUrl| {
            let host = self
                .domain
                .as_ref()
                .is_none_or(|domains| domains.contains(&url.host));
            host && self
                .url
                .as_ref()
                .is_none_or(|globs| globs.is_match(&url.whole))
        };
        let about_hosts = self.domain.is_some() || self.url.is_some();
        words.iter().all(|word| {
            let is_option = word.starts_with('-') && !word.contains(['/', '.', ':', '~', '@']);
            // A glob may expand to links, and a colon may name another machine.
            let path = || {
                facts
                    .root
                    .resolve_path(word)
                    .ok()
                    .filter(|_| !word.contains(['*', '?', '[', ':']))
            };
            let inside = || {
                within.is_some_and(|patterns| path().is_some_and(|place| place.is_within(patterns)))
            };
            is_option || inside() || (about_hosts && parse_plain_url(word).is_some_and(is_allowed))
        })
    }
}
