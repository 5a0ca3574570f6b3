//! Doubt: a call that names too much, and commands that cannot be read. A rule that denies or asks
//! may be about them.

use std::{fmt, sync::Arc};

use super::{Judgement, RuleSet, compiled_rule::CompiledPolicyRule};
use crate::{
    PolicyEffect,
    decide::policy::{
        features::{CallCommand, CallFeatures},
        matching::{
            host_words::connects,
            network_commands::find_unread_host,
            shell::{ShellWord, base_name, shorten},
        },
    },
};

impl RuleSet {
    /// Returns the judgement about a call of which it cannot be told whether a rule asks or denies.
    pub(super) fn judge_doubt(&self, facts: &CallFeatures<'_>) -> Option<Judgement> {
        let ask = |rule: Option<Arc<str>>, reason: String| Judgement {
            effect: PolicyEffect::Ask,
            rule,
            reason: reason.into(),
            each_time: false,
        };
        let strict = || {
            self.rules
                .iter()
                .filter(|rule| rule.effect != PolicyEffect::Allow)
        };
        let examines = self.options.secrets_files
            || self.options.acting_files
            || strict().any(CompiledPolicyRule::is_about_content);
        if examines && facts.exceeds_limits() {
            return Some(ask(
                None,
                "the call names more than can be checked".to_owned(),
            ));
        }
        let doubtful = strict().filter_map(|rule| Some((rule, rule.find_doubt(facts)?)));
        let (rule, doubt) = doubtful.min_by(|(a, _), (b, _)| a.label.cmp(&b.label))?;
        Some(ask(Some(rule.name.clone()), doubt.to_string()))
    }
}

/// The piece of a command because of which it cannot be told whether a rule matches.
pub(super) enum RuleDoubt<'f> {
    /// It decides which command runs.
    Command(&'f str),
    /// It decides which of the commands of this program runs: that of `git $x`.
    Subcommand(&'f str, &'f str),
    /// It decides which host a command reaches.
    Host(&'f str),
}

impl fmt::Display for RuleDoubt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(piece) => write!(f, "cannot tell which command this runs: `{piece}`"),
            Self::Subcommand(program, piece) => {
                write!(f, "cannot tell which {program} command this is: `{piece}`")
            }
            Self::Host(piece) => {
                let piece = shorten(piece);
                write!(f, "cannot tell which host this reaches: `{piece}`")
            }
        }
    }
}

impl CompiledPolicyRule {
    /// Checks whether the rule names hosts.
    pub(super) fn is_about_hosts(&self) -> bool {
        self.url.is_some() || self.domain.is_some()
    }

    /// Returns what keeps it open whether the rule matches.
    pub(super) fn find_doubt<'f>(&self, facts: &'f CallFeatures<'_>) -> Option<RuleDoubt<'f>> {
        let command = || self.find_command_doubt(facts);
        let host = || self.find_host_doubt(facts).map(RuleDoubt::Host);
        command().or_else(host)
    }

    /// Returns the piece of a command because of which it cannot be told whether the rule matches.
    fn find_command_doubt<'f>(&self, facts: &'f CallFeatures<'_>) -> Option<RuleDoubt<'f>> {
        let patterns = self.command.as_ref()?;
        let expands =
            |words: &&Vec<ShellWord>| patterns.iter().any(|pattern| pattern.may_expand_to(words));
        let expansion = |words: &'f Vec<ShellWord>| {
            let unknown = words.iter().find(|word| !word.certain)?;
            Some(RuleDoubt::Subcommand(&words.first()?.text, &unknown.text))
        };
        // `git -c` is a doubt about git, if the rule is about git.
        let subcommand = |piece: &'f str| {
            let (program, _) = piece.split_once(' ')?;
            let is_named = patterns.iter().any(|pattern| pattern.matches_name(program));
            is_named.then_some(RuleDoubt::Subcommand(program, piece))
        };
        let of_piece = |piece: &'f str| subcommand(piece).unwrap_or(RuleDoubt::Command(piece));
        let piece = |command: &'f CallCommand| {
            let reading = &command.reading;
            let expanded = || reading.commands.iter().find(expands).and_then(expansion);
            let mentioned = || {
                let words = reading.commands.iter();
                let mut pairs = words.flat_map(|words| patterns.iter().map(move |it| (it, words)));
                pairs.find_map(|(pattern, words)| pattern.find_mention(words))
            };
            let unread = reading.unread.as_deref().map(of_piece);
            unread
                .or_else(expanded)
                .or_else(|| mentioned().map(RuleDoubt::Command))
        };
        let piece = facts.commands.iter().find_map(piece)?;
        self.matches_besides_commands(facts).then_some(piece)
    }

    /// Returns the piece of a command that may become a host which the rule names.
    fn find_host_doubt<'f>(&self, facts: &'f CallFeatures<'_>) -> Option<&'f str> {
        // A rule that also names commands is about these commands; its doubt is the other one.
        if !self.is_about_hosts() || self.command.is_some() {
            return None;
        }
        let unread = |command: &'f CallCommand| {
            find_unknown_host(command).or_else(|| find_unread_host(command.script()))
        };
        let piece = facts.commands.iter().find_map(unread)?;
        self.matches_besides_hosts(facts).then_some(piece)
    }
}

/// Returns the piece of a command that may become the name of a host, if the command is one that
/// connects, or may be any.
fn find_unknown_host(command: &CallCommand) -> Option<&str> {
    let reading = &command.reading;
    let reaches = |words: &&Vec<ShellWord>| {
        let is_program_known = words.first().is_none_or(|word| word.certain);
        !is_program_known || connects(words.iter().map(|word| word.text.as_str()))
    };
    let unknown = |words: &'_ Vec<ShellWord>| -> Option<usize> {
        let expands = words.iter().any(|word| base_name(&word.text) == "curl");
        words
            .iter()
            .position(|word| !word.certain || expands && has_host_pattern(&word.text))
    };
    let read = { reading.commands.iter() }
        .filter(reaches)
        .find_map(|words| Some(words[unknown(words)?].text.as_str()));
    let unread = || {
        let piece = reading.unread.as_deref()?;
        // A variable in the place of the program may become any program.
        let is_program = { piece.trim_start_matches(['"', '\\']) }
            .strip_prefix('$')
            .is_some_and(|name| {
                name.starts_with(|c: char| c == '{' || c == '_' || c.is_alphabetic())
            });
        let runs = command.possible_runs();
        let connecting = || {
            runs.iter()
                .any(|run| connects(run.iter().map(String::as_str)))
        };
        (is_program || connecting()).then_some(piece)
    };
    read.or_else(unread)
}

/// Checks whether a word may be a URL whose host is a pattern of curl, such as `ev[i-i]l.example` or
/// `{e}vil.example`. JSON is none, and neither is an IPv6 address.
fn has_host_pattern(word: &str) -> bool {
    let rest = word.split_once("://").map_or(word, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let address = host.strip_prefix('[').and_then(|host| host.split_once(']'));
    let is_address = address.is_some_and(|(address, port)| {
        address.parse::<std::net::Ipv6Addr>().is_ok() && !port.contains(is_pattern)
    });
    authority.contains(is_pattern) && !is_address && !word.contains(['"', ' '])
}

fn is_pattern(c: char) -> bool {
    matches!(c, '[' | ']' | '{' | '}')
}
