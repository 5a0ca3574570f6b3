//! Judges a call by rules, and picks the stricter of several answers.

mod doubt;

use std::{
    cell::LazyCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use globset::GlobSet;
use serde_json::json;
use toolgate_core::{Digest, ExecutorTag, Json, Labels, SideEffect, ToolKind};

use crate::{
    ArgumentCondition, BadOption, OneOrMany, PolicyEffect, PolicyFallback, PolicyOptions,
    PolicyRule,
    config::lists,
    decide::policy::{
        arguments::ArgumentConditions,
        features::{CallCommand, CallFeatures, CallUrl, FeatureNeeds},
        matching::{
            acting_files,
            commands::CommandPattern,
            git_config,
            hosts::{DomainPatterns, PlainUrl, compile_url_globs, normalize_url, parse_plain_url},
            installing_commands,
            path_patterns::{LoosePathPatterns, StrictPathPatterns},
            paths::{ResolvedPath, percent_decode},
            secret_files,
            shell::{CommandWords, shorten},
        },
        rules::check_rule,
    },
};

/// The judgement of a policy about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The effect on the call.
    pub effect: PolicyEffect,
    /// The rule that decided; `None` if it was the default.
    pub rule: Option<Arc<str>>,
    /// The reason, which names the rule. It repeats no value of the call, except the piece of a
    /// command that cannot be read, or that no rule covers.
    pub reason: Arc<str>,
    /// True if an approver has to decide about this very call: a standing rule is not enough.
    pub each_time: bool,
}

impl Judgement {
    /// Returns the stricter of two; this one if they are equally strict.
    pub fn or_stricter(self, other: Self) -> Self {
        if (other.effect, other.each_time) > (self.effect, self.each_time) {
            other
        } else {
            self
        }
    }

    fn denied_by_built_in(rule: &str, why: &str) -> Self {
        let reason = format!("the built-in rule {rule:?} denies: {why}").into();
        Self {
            effect: PolicyEffect::Deny,
            rule: Some(rule.into()),
            reason,
            each_time: false,
        }
    }

    /// Returns the judgement about a call that changes these files that act later, and that the
    /// rules judge as `self`.
    fn asked_each_time(self, changes: &ActingChanges<'_>) -> Self {
        let built_in = format!("the built-in rule {ACTING_FILES:?} asks: the call {changes}");
        // The approver reads all reasons, not only the one that cannot be configured.
        let reason = match &self.rule {
            Some(_) if self.effect == PolicyEffect::Ask => format!("{}; {built_in}", self.reason),
            Some(_) | None => built_in,
        };
        Self {
            effect: PolicyEffect::Ask,
            rule: Some(ACTING_FILES.into()),
            reason: reason.into(),
            each_time: true,
        }
    }
}

/// What a call may change of the files that act later.
struct ActingChanges<'f> {
    /// Entries of the list of these files.
    entries: BTreeSet<&'static str>,
    /// The piece of a command that leaves open which file is written.
    unread: Option<&'f str>,
}

impl fmt::Display for ActingChanges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<&str> = self.entries.iter().copied().collect();
        let entries = entries.join(", ");
        if !self.entries.is_empty() {
            write!(
                f,
                "may change {entries}, which runs or is obeyed later, outside the gate"
            )?;
        }
        let Some(piece) = self.unread else {
            return Ok(());
        };
        let also = if self.entries.is_empty() { "" } else { "; it " };
        write!(
            f,
            "{also}may change a file that acts later: cannot tell which file this writes: `{}`",
            shorten(piece)
        )
    }
}

/// The name of the built-in rule about files that act later.
const ACTING_FILES: &str = "files that act later";

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

    /// Returns what the call may change of the files that act later; `None` if it is nothing.
    fn find_acting_changes<'f>(&self, facts: &'f CallFeatures<'_>) -> Option<ActingChanges<'f>> {
        if !facts.call.annotations().may_write() {
            return None;
        }
        let changes = ActingChanges {
            entries: self.changed_acting_files(facts),
            unread: acting_files::find_unread_write(facts),
        };
        let is_any = !changes.entries.is_empty() || changes.unread.is_some();
        is_any.then_some(changes)
    }

    /// Returns the entries of the list of files that act later which the call may change, except
    /// files that a rule allows by their very path.
    fn changed_acting_files(&self, facts: &CallFeatures<'_>) -> BTreeSet<&'static str> {
        let only_reads = acting_files::only_reads(facts);
        let commands = if only_reads {
            &[]
        } else {
            facts.command_places()
        };
        let hinted = facts.hinted_places_without_contents();
        let places = { facts.places.iter() }.chain(hinted.iter()).chain(commands);
        let entry = |place: &ResolvedPath| {
            acting_files::acting_entry(place).filter(|_| !self.names_exactly(place, facts))
        };
        let mut entries: BTreeSet<&'static str> = places.filter_map(entry).collect();
        if !only_reads && { facts.glob_texts() }.any(acting_files::expands_to_acting_file) {
            entries.insert("a file that a wildcard may expand to");
        }
        if git_config::may_write_acting_config(facts) {
            entries.insert("a setting of git that runs a program or loads more settings");
        }
        if installing_commands::may_install(facts) {
            entries.insert("a hook, or a setting that runs a program");
        }
        entries
    }

    /// Checks whether a rule allows the call and names the place without wildcards.
    fn names_exactly(&self, place: &ResolvedPath, facts: &CallFeatures<'_>) -> bool {
        self.rules.iter().any(|rule| {
            let is_named = |named: &StrictPathPatterns| place.is_within(named);
            rule.effect == PolicyEffect::Allow
                && rule.named_paths.as_ref().is_some_and(is_named)
                && rule.certainly_matches(facts)
        })
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

    /// Returns the judgement about a call of which it cannot be told whether a rule asks or denies.
    fn judge_doubt(&self, facts: &CallFeatures<'_>) -> Option<Judgement> {
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

    /// Checks whether a rule denies calls or asks about them.
    pub(crate) fn has_restrictions(&self) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.effect != PolicyEffect::Allow)
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

    /// Returns the judgement of the rules that allow the call, alone or, command by command,
    /// together.
    fn judge_allowed(&self, facts: &CallFeatures<'_>) -> Option<Judgement> {
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

    fn fall_back(&self, facts: &CallFeatures<'_>) -> Judgement {
        let (effect, reason) = match self.options.default {
            PolicyFallback::AskWrites if facts.call.annotations().may_write() => (
                PolicyEffect::Ask,
                "no rule allows this and the tool may change something",
            ),
            PolicyFallback::AskWrites => (
                PolicyEffect::Allow,
                "the tool only reads and no rule forbids it",
            ),
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

    /// Names the first word because of which a rule that allows the beginning of a command does not
    /// cover it, and the pattern that would.
    fn explain_uncovered(&self, facts: &CallFeatures<'_>) -> Option<String> {
        let mut allows: Vec<&CompiledPolicyRule> = self
            .rules
            .iter()
            .filter(|rule| rule.effect == PolicyEffect::Allow && rule.certainly_matches(facts))
            .collect();
        allows.sort_by(|a, b| a.label.cmp(&b.label));
        let covered =
            |words: &&&CommandWords| !allows.iter().any(|rule| rule.covers_command(words, facts));
        let runs = facts.certain_runs()?;
        let words = runs.iter().find(covered)?;
        allows.iter().find_map(|rule| {
            let patterns = rule.command.iter().flatten();
            let (word, wider) = { patterns }.find_map(|pattern| pattern.uncovered_word(words))?;
            let wider = wider.map(|wider| format!("; the pattern `{}` would", shorten(&wider)));
            let label = &rule.label;
            let word = shorten(word);
            Some(format!(
                "rule {label} does not cover `{word}`{}",
                wider.unwrap_or_default()
            ))
        })
    }
}

/// A rule with its patterns compiled.
#[derive(Debug)]
struct CompiledPolicyRule {
    effect: PolicyEffect,
    /// `"its name"` or its number, as shown in explanations.
    label: Arc<str>,
    name: Arc<str>,
    reason: Arc<str>,
    tool: Option<GlobSet>,
    kind: Option<Vec<ToolKind>>,
    side_effect: Option<SideEffect>,
    path: Option<PathCondition>,
    /// The paths of a rule that allows which have no wildcards.
    named_paths: Option<StrictPathPatterns>,
    command: Option<Vec<CommandPattern>>,
    url: Option<GlobSet>,
    domain: Option<DomainPatterns>,
    mcp_server: Option<GlobSet>,
    agent: Option<GlobSet>,
    labels: Labels,
    arguments: Option<ArgumentConditions>,
    repeat: Option<u32>,
}

#[derive(Debug)]
enum PathCondition {
    AnyOf(LoosePathPatterns),
    Within(StrictPathPatterns),
}

impl CompiledPolicyRule {
    fn new(at: usize, rule: &PolicyRule) -> Result<Self, BadOption> {
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

    fn judgement(&self) -> Judgement {
        Judgement {
            effect: self.effect,
            rule: Some(self.name.clone()),
            reason: self.reason.clone(),
            each_time: false,
        }
    }

    /// Checks whether the rule depends on what the arguments name.
    fn is_about_content(&self) -> bool {
        self.path.is_some() || self.command.is_some() || self.url.is_some() || self.domain.is_some()
    }

    /// Checks whether the call may be one that the rule asks about or denies. Doubt counts as a
    /// match.
    fn may_match(&self, facts: &CallFeatures<'_>) -> bool {
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
    fn matches_besides_commands(&self, facts: &CallFeatures<'_>) -> bool {
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
    fn matches_besides_hosts(&self, facts: &CallFeatures<'_>) -> bool {
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
    fn has_asked_about(&self, call: &CallFeatures<'_>) -> bool {
        self.matches_named_path(call) && self.may_match(call)
    }

    /// Checks whether an argument that names a path matches the paths of the rule, if it has any.
    fn matches_named_path(&self, facts: &CallFeatures<'_>) -> bool {
        match &self.path {
            Some(PathCondition::AnyOf(patterns)) => {
                facts.places.iter().any(|place| place.may_match(patterns))
            }
            Some(PathCondition::Within(_)) => false,
            None => true,
        }
    }

    /// Checks whether the call is certainly one that the rule allows, commands aside. Doubt counts
    /// as no match.
    fn certainly_matches(&self, facts: &CallFeatures<'_>) -> bool {
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
    fn covers_all(&self, facts: &CallFeatures<'_>) -> bool {
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

    fn covers_command(&self, words: &[String], facts: &CallFeatures<'_>) -> bool {
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

    /// Checks the conditions on what the call is: tool, MCP server, agent, labels and single arguments.
    fn is_about(&self, facts: &CallFeatures<'_>) -> bool {
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
