//! Policy as data: the options that an operator writes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Labels, SideEffect, ToolKind};

use crate::{ArgumentCondition, BadOption, OneOrMany};

/// Options of a policy. Deny beats ask beats allow, whatever the order of the rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyOptions {
    /// The effect on a call that no rule matches.
    pub default: PolicyFallback,
    /// The rules.
    pub rules: Vec<PolicyRule>,
    /// True if files that hold secrets (`.env`, private keys, credentials) are denied, whatever the
    /// rules say.
    pub secrets_files: bool,
    /// True if a call that changes a file that acts later (`.git`, `.vscode`, `.github`, `AGENTS.md`,
    /// `toolgate.toml`, start-up files of shells …) needs an approver's decision each time, whatever
    /// the rules and the standing rules allow. Only a rule that allows and names the very file, in
    /// `path` and without wildcards, is an exception.
    pub acting_files: bool,
}

impl Default for PolicyOptions {
    fn default() -> Self {
        Self {
            default: PolicyFallback::default(),
            rules: Vec::new(),
            secrets_files: true,
            acting_files: true,
        }
    }
}

/// The effect on a call that no rule matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyFallback {
    /// A tool that only reads is allowed, any other needs approval. A tool without annotations does
    /// not count as one that only reads.
    #[default]
    AskWrites,
    /// It is allowed.
    Allow,
    /// It needs approval.
    Ask,
    /// It is denied. Then a rule that asks is an exception like one that allows.
    Deny,
}

/// Effect of a rule, from loose to strict.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PolicyEffect {
    /// The call may run.
    Allow,
    /// The call needs approval first.
    Ask,
    /// The call does not run.
    Deny,
}

/// A policy rule: an effect and its conditions, all of which have to hold. It has at least one
/// condition.
///
/// Rules that ask or deny match a condition loosely: one path, host or command of the call that may
/// match is enough. Rules that allow match it strictly: everything the call names has to match for
/// certain, and a call that names no path (command, host) is not covered by a rule about paths
/// (commands, hosts). An empty list allows nothing.
///
/// Argument names (`path`, `command`, `url`) count for rules that allow. For the others, every
/// short text of a call may be a path or a host, whatever its name; only commands are searched by
/// name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    /// The name of the rule in explanations. By default its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The effect of the rule.
    pub effect: PolicyEffect,
    /// The reason, for the model and for approvers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Tools by name or glob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<OneOrMany<String>>,
    /// Kinds of work. A tool that does not declare its kind matches any kind when asking or
    /// denying, and none when allowing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<OneOrMany<ToolKind>>,
    /// Reach of the effects: at least this far when asking or denying, at most this far when
    /// allowing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_effect: Option<SideEffect>,
    /// Paths as globs, from the workspace root or absolute; `**` crosses directories. They are
    /// compared with the resolved path. When asking or denying, a pattern without a slash matches
    /// at any depth and a directory includes its contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<OneOrMany<String>>,
    /// Commands by their first words: `git status` covers `git status --short`. A `*` stands for
    /// any text inside a word. When allowing, every command of a text has to be covered by a rule,
    /// and a text that does more than run plain commands is not. Further words are covered if they
    /// are operands or options that are known to be harmless; any other option, and `NAME=value`,
    /// only if the pattern itself names them. If the rule names paths, hosts or URLs too, every
    /// further word has to be one of those. When asking or denying, a command that cannot be read
    /// with certainty needs approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<OneOrMany<String>>,
    /// URLs as globs such as `https://api.example.com/v1/**`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<OneOrMany<String>>,
    /// Hosts: `example.com` is that host alone, `*.example.com` the ones below it, `*` any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<OneOrMany<String>>,
    /// MCP servers by name or glob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_server: Option<OneOrMany<String>>,
    /// Agents by name, id or glob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<OneOrMany<String>>,
    /// Labels of the session and run, such as `{ tenant = "acme" }`: the call has all of them, with
    /// exactly these values.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Conditions on arguments, by name or JSON pointer. An argument that is missing meets none but
    /// `present = false`. A value of another type meets none when allowing, and `min`, `max` and
    /// `matches` when asking or denying.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, ArgumentCondition>>,
    /// Number of earlier identical calls in the session. A rule that asks or denies needs at least
    /// as many, a rule that allows fewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u32>,
}

impl PolicyRule {
    /// Creates a rule without conditions; it needs one before it can be used.
    pub fn new(effect: PolicyEffect) -> Self {
        Self {
            name: None,
            effect,
            reason: None,
            tool: None,
            kind: None,
            side_effect: None,
            path: None,
            command: None,
            url: None,
            domain: None,
            mcp_server: None,
            agent: None,
            labels: Labels::default(),
            arguments: None,
            repeat: None,
        }
    }

    fn list_lengths(&self) -> [Option<usize>; 8] {
        let texts = [
            &self.tool,
            &self.path,
            &self.command,
            &self.url,
            &self.domain,
            &self.mcp_server,
            &self.agent,
        ];
        let [tool, path, command, url, domain, server, agent] =
            texts.map(|list| list.as_ref().map(|list| list.len()));
        [
            tool,
            path,
            command,
            url,
            domain,
            server,
            agent,
            self.kind.as_ref().map(|list| list.len()),
        ]
    }
}

/// Rejects rules that would match everything, or that could never deny anything.
pub(crate) fn check_rule(rule: &PolicyRule) -> Result<(), BadOption> {
    let bad = |problem: &str| Err(BadOption::new("rules", problem));
    let lists = rule.list_lengths();
    let is_conditional = lists.iter().any(Option::is_some)
        || rule.side_effect.is_some()
        || rule.arguments.is_some()
        || rule.repeat.is_some()
        || !rule.labels.is_empty();
    if !is_conditional {
        return bad("a rule needs a condition; write tool = \"*\" for every call");
    }
    if rule.repeat == Some(0) {
        return bad("repeat must be at least 1");
    }
    // An empty list is safe when allowing, but would silently turn off a rule that denies.
    if rule.effect != PolicyEffect::Allow && lists.contains(&Some(0)) {
        return bad("an empty list would never ask or deny; omit the condition or name something");
    }
    Ok(())
}
