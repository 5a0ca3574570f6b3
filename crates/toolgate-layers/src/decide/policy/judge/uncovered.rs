//! Explanations why a rule that allows a command like this one does not cover it.

use super::{RuleSet, compiled_rule::CompiledPolicyRule};
use crate::{
    PolicyEffect,
    decide::policy::{
        features::CallFeatures,
        matching::{
            commands::CommandPattern,
            shell::{CommandWords, shorten},
        },
    },
};

/// The options of git that choose the repository, and with it settings and hooks that may run
/// programs.
const REPOSITORY_OPTIONS: [&str; 3] = ["-C", "--git-dir", "--work-tree"];

impl RuleSet {
    /// Names what keeps the first command that no rule allows from being covered by one that allows
    /// its beginning, and the pattern that would cover it.
    pub(super) fn explain_uncovered(&self, facts: &CallFeatures<'_>) -> Option<String> {
        let mut allows: Vec<&CompiledPolicyRule> = self
            .rules
            .iter()
            .filter(|rule| rule.effect == PolicyEffect::Allow && rule.certainly_matches(facts))
            .collect();
        allows.sort_by(|a, b| a.label.cmp(&b.label));
        let is_uncovered =
            |words: &&&CommandWords| !allows.iter().any(|rule| rule.covers_command(words, facts));
        let runs = facts.certain_runs()?;
        let words = runs.iter().find(is_uncovered)?;
        let elsewhere = || {
            let mut rules = allows.iter();
            rules.find_map(|rule| rule.explain_other_repository(words, facts))
        };
        let mut rules = allows.iter();
        rules
            .find_map(|rule| rule.explain_word(words))
            .or_else(elsewhere)
    }
}

impl CompiledPolicyRule {
    /// Names the first word because of which the rule, which allows the beginning of a command, does
    /// not cover it.
    fn explain_word(&self, words: &CommandWords) -> Option<String> {
        let mut patterns = self.command.iter().flatten();
        let (word, wider) = patterns.find_map(|pattern| pattern.uncovered_word(words))?;
        Some(format!(
            "rule {} does not cover `{}`{}",
            self.label,
            shorten(word),
            suggest_pattern(wider)
        ))
    }

    /// Says that the rule would cover a git command if it did not choose another repository. It is
    /// not covered, because the settings of that repository can name programs which `git status` runs.
    fn explain_other_repository(
        &self,
        words: &CommandWords,
        facts: &CallFeatures<'_>,
    ) -> Option<String> {
        let (chosen, rest) = split_repository_options(words)?;
        self.covers_command(&rest, facts).then_some(())?;
        // The options as they are, the words of the rule, and as few further ones as possible.
        let mut patterns = self.command.iter().flatten();
        let length = patterns.find_map(|pattern| pattern.matched_words(&rest))?;
        let fewest = chosen.len() + length.max(1);
        let mut beginnings = (fewest..=words.len()).map(|end| words[..end].join(" "));
        let wider = beginnings
            .find(|wider| CommandPattern::new(wider).is_ok_and(|pattern| pattern.covers(words)));
        Some(format!(
            "rule {} covers it only without `{}`, which chooses a repository with its own settings and hooks{}",
            self.label,
            shorten(&chosen.join(" ")),
            suggest_pattern(wider)
        ))
    }
}

fn suggest_pattern(wider: Option<String>) -> String {
    let suggestion = wider.map(|wider| format!("; the pattern `{}` would", shorten(&wider)));
    suggestion.unwrap_or_default()
}

/// Splits a git command into the options that choose the repository and the command without them.
fn split_repository_options(words: &CommandWords) -> Option<(&[String], CommandWords)> {
    words.first().filter(|word| *word == "git")?;
    let mut end = 1;
    while let Some(word) = words.get(end) {
        let is_option = REPOSITORY_OPTIONS.contains(&word.as_str());
        let is_joined = word
            .split_once('=')
            .is_some_and(|(name, _)| name != "-C" && REPOSITORY_OPTIONS.contains(&name));
        end += match (is_option, is_joined) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => break,
        };
    }
    let chosen = words.get(1..end).filter(|chosen| !chosen.is_empty())?;
    let rest = [&words[..1], &words[end..]].concat();
    Some((chosen, rest))
}
