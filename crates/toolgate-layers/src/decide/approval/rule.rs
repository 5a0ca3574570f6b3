//! A standing rule: an answer to a kind of call, with its owner, scope and lifetime.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{Digest, Json, Principal, SessionId, Timestamp};

/// "Always allow" or "always deny" for a narrow set of calls.
///
/// A rule names the tool, the patterns of its arguments, its scope, its owner and its end. A rule
/// that allows is never wider than it reads: it covers no call with an argument that it does not
/// name, a `*` in it matches no `/`, no `..` and no character that a shell treats as the end of a
/// command, and paths and commands are compared as the policy does it: a path has to lead where it
/// is spelled. A rule that denies is matched loosely.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandingRule {
    /// Its id, unique in the store.
    pub id: String,
    /// Allow or deny.
    pub effect: RuleEffect,
    /// The tool, by name or glob.
    pub tool: String,
    /// Patterns of arguments, by JSON pointer. A rule that allows covers only calls whose arguments
    /// are all named; for a rule that denies, the others may have any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, ArgumentPattern>,
    /// The calls it applies to, by session or project.
    pub scope: RuleScope,
    /// The person who made it.
    pub owner: Principal,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time at which it expires, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The reason for the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl StandingRule {
    /// Checks whether two rules are equal but for the time they were made.
    pub(crate) fn decides_like(&self, other: &Self) -> bool {
        let at_the_same_time = Self {
            created_at: other.created_at,
            ..self.clone()
        };
        at_the_same_time == *other
    }

    /// Returns the digest that is signed. It covers every field; `None` if a value is nested too
    /// deeply to be stored.
    pub fn digest(&self) -> Option<Digest> {
        let whole = json!({ "format": 1, "rule": self });
        Json::new(whole).ok().map(|whole| whole.digest())
    }
}

/// Effect of a rule on the calls it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleEffect {
    /// They run without an approval request.
    Allow,
    /// They do not run.
    Deny,
}

/// Scope of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "snake_case")]
pub enum RuleScope {
    /// One session.
    Session {
        /// Its id.
        session: SessionId,
    },
    /// Every session of a project.
    Project {
        /// Its name.
        project: String,
    },
    /// Every session of every project.
    Global,
}

/// Pattern of one argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentPattern {
    /// Exactly this value.
    Equals(Value),
    /// Text that matches the glob.
    Glob(String),
    /// Any value.
    Any,
}

/// The reason why a rule cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRule {
    /// A part of it is missing or invalid.
    #[error("{part} of the rule {problem}")]
    Part {
        /// The invalid part.
        part: &'static str,
        /// The problem with it.
        problem: String,
    },
    /// It would allow a tool everywhere and with any arguments.
    #[error(
        "a rule that allows needs more than a tool name: name arguments, a session or a project"
    )]
    TooWide,
}

/// The most characters of a value in the text of a rule.
const MAX_VALUE_CHARS: usize = 400;

impl StandingRule {
    /// Returns the text of the patterns for people.
    pub fn arguments_text(&self) -> String {
        let text = |(pointer, pattern): (&String, &ArgumentPattern)| {
            format!("{} {pattern}", argument_name(pointer))
        };
        let all: Vec<String> = self.arguments.iter().map(text).collect();
        all.join(" and ")
    }
}

/// Formats the rule for people, without its scope.
impl fmt::Display for StandingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.effect.as_str(), self.tool)?;
        match (self.arguments.is_empty(), self.effect) {
            (false, _) => write!(f, " where {}", self.arguments_text()),
            (true, RuleEffect::Allow) => f.write_str(" without arguments"),
            (true, RuleEffect::Deny) => Ok(()),
        }
    }
}

impl fmt::Display for ArgumentPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(value) => {
                let text = value.to_string();
                match text.char_indices().nth(MAX_VALUE_CHARS) {
                    Some((end, _)) => write!(f, "is {}… ({} bytes)", &text[..end], text.len()),
                    None => write!(f, "is {text}"),
                }
            }
            Self::Glob(glob) => write!(f, "matches {glob}"),
            Self::Any => f.write_str("is any value"),
        }
    }
}

/// Returns the name of an argument for people: quoted if it could be read as more than a name.
fn argument_name(pointer: &str) -> String {
    let is_plain = |name: &&str| {
        let fits = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        !name.is_empty() && name.chars().all(fits)
    };
    match pointer.strip_prefix('/').filter(is_plain) {
        Some(name) => name.to_owned(),
        None => format!("{pointer:?}"),
    }
}

impl RuleEffect {
    /// Returns the word for the effect.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl ArgumentPattern {
    /// Returns true if there are texts that do not match.
    pub(crate) fn is_narrowing(&self) -> bool {
        match self {
            Self::Equals(_) => true,
            Self::Glob(text) => text.is_empty() || !is_wildcard_only(text),
            Self::Any => false,
        }
    }
}

/// Checks whether a glob consists of wildcards only.
pub(crate) fn is_wildcard_only(glob: &str) -> bool {
    glob.chars().all(|c| "*?/".contains(c))
}
