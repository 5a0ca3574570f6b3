//! Policy as data: what an operator writes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Kind, SideEffect};

use crate::{BadOption, OneOrMany};

/// What a policy is made of. Deny beats ask beats allow, in whatever order the rules are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyOptions {
    /// What happens to a call that no rule is about.
    pub default: Fallback,
    /// The rules.
    pub rules: Vec<Rule>,
    /// Whether files that hold secrets (`.env`, private keys, credentials) are denied, whatever the rules say.
    pub secrets_files: bool,
}

impl Default for PolicyOptions {
    fn default() -> Self {
        Self {
            default: Fallback::default(),
            rules: Vec::new(),
            secrets_files: true,
        }
    }
}

/// What happens to a call that no rule is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// A tool that only reads is allowed, any other is asked about. One that declares nothing does not only read.
    #[default]
    AskWrites,
    /// It is allowed.
    Allow,
    /// It is asked about.
    Ask,
    /// It is denied. Where everything else is, a rule that asks is an exception like one that allows.
    Deny,
}

/// What a rule says, from loose to strict.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The call may run.
    Allow,
    /// Somebody is asked first.
    Ask,
    /// The call does not run.
    Deny,
}

/// One rule: an effect and the conditions under which it holds, all of them together. It has at least one condition.
///
/// Rules that ask or deny take a condition generously: one path, host or command of the call that may fit is enough.
/// Rules that allow take it strictly: everything the call names has to fit for certain, and a call that names no path
/// (command, host) is not covered by a rule about paths (commands, hosts). An empty list allows nothing.
///
/// What an argument is called (`path`, `command`, `url`) counts for rules that allow. For the others every short text
/// of a call may be a path or a host, whatever its name; only commands are looked for by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What explanations call the rule; otherwise its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the rule says.
    pub effect: Effect,
    /// Why, in words for the model and for whoever is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Tools by name or glob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<OneOrMany<String>>,
    /// Kinds of work. A tool that does not say what it does counts as any kind when asking or denying, as none when
    /// allowing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<OneOrMany<Kind>>,
    /// How far effects reach: at least this far when asking or denying, at most this far when allowing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_effect: Option<SideEffect>,
    /// Paths as globs, from the workspace root or absolute; `**` crosses directories. They are compared with where a path
    /// really leads. When asking or denying, a pattern without a slash holds at any depth and a directory stands for
    /// what is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<OneOrMany<String>>,
    /// Commands by their first words: `git status` covers `git status --short`. A `*` stands for any text inside a word. When
    /// allowing, every command of a text has to be covered by a rule, and a text that does more than run plain commands is not.
    /// Further words are covered if they are plain operands or options; `--option=value`, `NAME=value` and options that run,
    /// load or write something else (`--exec`, `--output`, `git -c`) only if the pattern itself names them. If the rule names
    /// paths, hosts or URLs too, every further word has to be one of those.
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
    /// When asking or denying: the same call has been made this often in the session already. When allowing: it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u32>,
}

impl Rule {
    /// A rule without conditions yet; it needs one before it can be used.
    pub fn new(effect: Effect) -> Self {
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
            repeat: None,
        }
    }

    fn lists(&self) -> [Option<usize>; 8] {
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

/// Refuses rules that would hold for everything, or that could never deny what they are there to deny.
pub(crate) fn check(rule: &Rule) -> Result<(), BadOption> {
    let bad = |problem: &str| Err(BadOption::new("rules", problem));
    let lists = rule.lists();
    if lists.iter().all(Option::is_none) && rule.side_effect.is_none() && rule.repeat.is_none() {
        return bad("a rule needs a condition; write tool = \"*\" for every call");
    }
    if rule.repeat == Some(0) {
        return bad("repeat has to be at least 1");
    }
    if rule.effect != Effect::Allow && lists.contains(&Some(0)) {
        return bad(
            "an empty list would never ask or deny; leave the condition out or name something",
        );
    }
    Ok(())
}
