//! What rules say about a call, and the stricter of several answers.

use std::{collections::BTreeSet, sync::Arc};

use globset::GlobSet;
use serde_json::json;
use toolgate_core::{Digest, ExecutorTag, Json, Kind, SideEffect};

use crate::{
    BadOption, Effect, Fallback, OneOrMany, PolicyOptions, Rule,
    commands::CommandPattern,
    facts::{Command, Facts, Needs, Url},
    hosts::{Domains, PlainUrl, plain_url, tidy_url, url_globs},
    lists,
    path_patterns::{AnyOf, Within},
    paths::percent_decoded,
    rules::check,
    secret_files,
    shell::Words,
};

/// What a policy says about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What happens to it.
    pub effect: Effect,
    /// The rule that decided; nothing if it was the default.
    pub rule: Option<Arc<str>>,
    /// Why, in words that name the rule and repeat no value of the call.
    pub reason: Arc<str>,
}

impl Judgement {
    /// The stricter of two; this one if they are equally strict.
    pub fn or_stricter(self, other: Self) -> Self {
        if other.effect > self.effect {
            other
        } else {
            self
        }
    }

    fn built_in(rule: &str, why: &str) -> Self {
        let reason = format!("the built-in rule {rule:?} denies: {why}").into();
        Self {
            effect: Effect::Deny,
            rule: Some(rule.into()),
            reason,
        }
    }
}

/// Rules that are ready to judge.
#[derive(Debug)]
pub(crate) struct RuleSet {
    options: PolicyOptions,
    rules: Vec<Compiled>,
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
        let compile = |(at, rule)| Compiled::new(at, rule);
        let rules = options
            .rules
            .iter()
            .enumerate()
            .map(compile)
            .collect::<Result<_, _>>()?;
        Ok(Self { options, rules })
    }

    pub(crate) fn needs(&self) -> Needs {
        let any = |test: fn(&Rule) -> bool| self.options.rules.iter().any(test);
        let paths = self.options.secrets_files || any(|rule| rule.path.is_some());
        let urls = any(|rule| rule.url.is_some() || rule.domain.is_some());
        // Commands name paths and hosts too.
        Needs {
            paths,
            commands: paths || urls || any(|rule| rule.command.is_some()),
            urls,
        }
    }

    /// The highest number of repeats that a rule asks for.
    pub(crate) fn most_repeats(&self) -> Option<u32> {
        self.options
            .rules
            .iter()
            .filter_map(|rule| rule.repeat)
            .max()
    }

    /// The digest of what the rules say.
    pub(crate) fn version(&self) -> Digest {
        let whole = json!({ "format": 1, "policy": self.options });
        Json::new(whole)
            .expect("rules are not nested deeply")
            .digest()
    }

    /// Judges one call. Nothing but the facts and the rules goes in.
    pub(crate) fn judge(&self, facts: &Facts<'_>) -> Judgement {
        if let Some(denied) = self.judge_built_in(facts) {
            return denied;
        }
        // Among rules that say the same, the one whose name comes first is named: the order of writing has no say.
        let matching = self
            .rules
            .iter()
            .filter(|rule| rule.effect != Effect::Allow && rule.may_fit(facts));
        let strictest =
            matching.max_by(|a, b| a.effect.cmp(&b.effect).then_with(|| b.label.cmp(&a.label)));
        match strictest {
            Some(rule) => rule.judgement(),
            None => self
                .judge_allowed(facts)
                .unwrap_or_else(|| self.fall_back(facts)),
        }
    }

    fn judge_built_in(&self, facts: &Facts<'_>) -> Option<Judgement> {
        if facts.lost {
            return Some(Judgement::built_in(
                "paths",
                "nobody can say where a path of the call leads",
            ));
        }
        if !self.options.secrets_files {
            return None;
        }
        let places = facts
            .places
            .iter()
            .chain(facts.hinted())
            .chain(facts.spoken());
        let secret = { places }.any(secret_files::is_secret)
            || facts.globs().any(secret_files::expands_to_secret);
        secret.then(|| {
            Judgement::built_in("secrets files", "the call names a file that holds secrets")
        })
    }

    /// The rules that allow the call, alone or, command by command, together.
    fn judge_allowed(&self, facts: &Facts<'_>) -> Option<Judgement> {
        let mut fitting: Vec<&Compiled> = self
            .rules
            .iter()
            .filter(|rule| rule.effect == Effect::Allow && rule.surely_fits(facts))
            .collect();
        fitting.sort_by(|a, b| a.label.cmp(&b.label));
        if let Some(rule) = fitting.iter().find(|rule| rule.covers_all(facts)) {
            return Some(rule.judgement());
        }
        let runs = facts.runs().filter(|runs| !runs.is_empty())?;
        let covering = |words: &&Words| {
            fitting
                .iter()
                .find(|rule| rule.covers(words, facts))
                .copied()
        };
        let rules: Vec<&Compiled> = runs.iter().map(covering).collect::<Option<_>>()?;
        let labels: BTreeSet<&str> = rules.iter().map(|rule| &*rule.label).collect();
        let labels: Arc<str> = labels.into_iter().collect::<Vec<_>>().join(" and ").into();
        let reason = format!("the rules {labels} allow the commands").into();
        Some(Judgement {
            effect: Effect::Allow,
            rule: Some(labels),
            reason,
        })
    }

    fn fall_back(&self, facts: &Facts<'_>) -> Judgement {
        let (effect, reason) = match self.options.default {
            Fallback::AskWrites if facts.call.annotations().may_write() => (
                Effect::Ask,
                "no rule allows this and the tool may change something",
            ),
            Fallback::AskWrites => (
                Effect::Allow,
                "the tool only reads and no rule is against it",
            ),
            Fallback::Allow => (Effect::Allow, "no rule is against it"),
            Fallback::Ask => (Effect::Ask, "no rule allows this"),
            Fallback::Deny => (Effect::Deny, "no rule allows this"),
        };
        Judgement {
            effect,
            rule: None,
            reason: reason.into(),
        }
    }
}

/// A rule with its patterns compiled.
#[derive(Debug)]
struct Compiled {
    effect: Effect,
    /// `"its name"` or its number, as explanations have it.
    label: Arc<str>,
    name: Arc<str>,
    reason: Arc<str>,
    tool: Option<GlobSet>,
    kind: Option<Vec<Kind>>,
    side_effect: Option<SideEffect>,
    path: Option<Paths>,
    command: Option<Vec<CommandPattern>>,
    url: Option<GlobSet>,
    domain: Option<Domains>,
    mcp_server: Option<GlobSet>,
    agent: Option<GlobSet>,
    repeat: Option<u32>,
}

#[derive(Debug)]
enum Paths {
    AnyOf(AnyOf),
    Within(Within),
}

impl Compiled {
    fn new(at: usize, rule: &Rule) -> Result<Self, BadOption> {
        let number = (at + 1).to_string();
        let label: Arc<str> = rule
            .name
            .as_ref()
            .map_or(number, |name| format!("{name:?}"))
            .into();
        let within =
            |error: BadOption| BadOption::new("rules", format!("rule {label}: {}", error.problem));
        Self::compile(&label, at, rule).map_err(within)
    }

    fn compile(label: &Arc<str>, at: usize, rule: &Rule) -> Result<Self, BadOption> {
        check(rule)?;
        let globs = |list: &Option<OneOrMany<String>>| {
            list.as_ref()
                .map(|list| lists::names("rules", list))
                .transpose()
        };
        let path = |list: &OneOrMany<String>| match rule.effect {
            Effect::Allow => Within::new(list).map(Paths::Within),
            Effect::Ask | Effect::Deny => AnyOf::new(list).map(Paths::AnyOf),
        };
        let url = |list: &OneOrMany<String>| match rule.effect {
            Effect::Allow => url_globs(list),
            Effect::Ask | Effect::Deny => url_globs(
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
            reason: explanation(label, rule).into(),
            tool: globs(&rule.tool)?,
            kind: rule.kind.as_ref().map(|kinds| kinds.to_vec()),
            side_effect: rule.side_effect,
            path: rule.path.as_ref().map(path).transpose()?,
            command: rule.command.as_ref().map(commands).transpose()?,
            url: rule.url.as_ref().map(url).transpose()?,
            domain: rule
                .domain
                .as_ref()
                .map(|list| Domains::new(list))
                .transpose()?,
            mcp_server: globs(&rule.mcp_server)?,
            agent: globs(&rule.agent)?,
            repeat: rule.repeat,
        })
    }

    fn judgement(&self) -> Judgement {
        Judgement {
            effect: self.effect,
            rule: Some(self.name.clone()),
            reason: self.reason.clone(),
        }
    }

    /// Whether the call may be one of those that are asked about or denied.
    fn may_fit(&self, facts: &Facts<'_>) -> bool {
        let annotations = facts.call.annotations();
        let kind = |kinds: &Vec<Kind>| annotations.kind.is_none_or(|kind| kinds.contains(&kind));
        let path = |paths: &Paths| match paths {
            Paths::AnyOf(patterns) => {
                let mut places = facts
                    .places
                    .iter()
                    .chain(facts.hinted())
                    .chain(facts.spoken());
                places.any(|place| place.may_be(patterns))
                    || facts.globs().any(|text| patterns.may_expand_to(text))
            }
            Paths::Within(_) => false,
        };
        let command = |patterns: &Vec<CommandPattern>| {
            let runs = |command: &Command| {
                patterns
                    .iter()
                    .any(|pattern| pattern.may_run(command.said(), command.runs.is_some()))
            };
            facts.commands.iter().any(runs)
        };
        let domain = |domains: &Domains| facts.hosts().iter().any(|host| domains.contains(host));
        let url = |globs: &GlobSet| {
            let plain = |url: &Url| {
                url.plain
                    .as_ref()
                    .is_some_and(|url| globs.is_match(url.whole.to_lowercase()))
            };
            facts.urls.iter().any(plain) || facts.url_texts().any(|text| url_may_fit(globs, text))
        };
        self.is_about(facts)
            && self.kind.as_ref().is_none_or(kind)
            && self
                .side_effect
                .is_none_or(|least| annotations.effect() >= least)
            && self
                .repeat
                .is_none_or(|times| facts.earlier >= times as usize)
            && self.path.as_ref().is_none_or(path)
            && self.command.as_ref().is_none_or(command)
            && self.domain.as_ref().is_none_or(domain)
            && self.url.as_ref().is_none_or(url)
    }

    /// Whether the call is for certain one of those that are allowed, commands aside.
    fn surely_fits(&self, facts: &Facts<'_>) -> bool {
        let annotations = facts.call.annotations();
        let kind = |kinds: &Vec<Kind>| annotations.kind.is_some_and(|kind| kinds.contains(&kind));
        let path = |paths: &Paths| match paths {
            Paths::AnyOf(_) => false,
            Paths::Within(patterns) => {
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
                .is_none_or(|most| annotations.effect() <= most)
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

    /// Whether every command of the call is covered by this rule.
    fn covers_all(&self, facts: &Facts<'_>) -> bool {
        if self.command.is_some() {
            let all = |runs: Vec<&Words>| {
                !runs.is_empty() && runs.iter().all(|words| self.covers(words, facts))
            };
            return facts.runs().is_some_and(all);
        }
        // What a command does is not bounded by the host or the directory that it names.
        let about_names = self.path.is_some() || self.domain.is_some() || self.url.is_some();
        !about_names || facts.commands.is_empty()
    }

    fn covers(&self, words: &[String], facts: &Facts<'_>) -> bool {
        let covers = |pattern: &CommandPattern| {
            pattern.covers(words)
                && pattern
                    .further(words)
                    .is_some_and(|words| self.bounds(words, facts))
        };
        self.command
            .as_ref()
            .is_some_and(|patterns| patterns.iter().any(covers))
    }

    /// Whether the further words of a command stay within the paths, hosts and URLs of the rule, if it names any.
    fn bounds(&self, words: &[String], facts: &Facts<'_>) -> bool {
        let within = match &self.path {
            Some(Paths::Within(patterns)) => Some(patterns),
            Some(Paths::AnyOf(_)) | None => None,
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
            // A glob may lead through links, and a colon to another machine.
            let path = || {
                facts
                    .root
                    .locate(word)
                    .ok()
                    .filter(|_| !word.contains(['*', '?', '[', ':']))
            };
            let inside = || {
                within.is_some_and(|patterns| path().is_some_and(|place| place.is_within(patterns)))
            };
            is_option || inside() || (about_hosts && plain_url(word).is_some_and(is_allowed))
        })
    }

    /// The conditions that mean the same for every effect: which tool, whose tool, which agent.
    fn is_about(&self, facts: &Facts<'_>) -> bool {
        let call = facts.call;
        let server = || match call.shown().map(|shown| &shown.entry.executor) {
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
    }
}

fn url_may_fit(globs: &GlobSet, text: &str) -> bool {
    let decoded = percent_decoded(text).to_lowercase();
    let tidy = || tidy_url(text).is_some_and(|tidy| globs.is_match(tidy));
    globs.is_match(text.to_lowercase()) || globs.is_match(decoded) || tidy()
}

fn explanation(label: &str, rule: &Rule) -> String {
    let says = match rule.effect {
        Effect::Allow => "allows",
        Effect::Ask => "asks",
        Effect::Deny => "denies",
    };
    match rule
        .reason
        .as_deref()
        .map(str::trim)
        .filter(|reason| !reason.is_empty())
    {
        Some(reason) => format!("rule {label} {says}: {reason}"),
        None => format!("rule {label} {says}"),
    }
}
