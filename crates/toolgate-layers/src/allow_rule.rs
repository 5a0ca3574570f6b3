//! A standing answer to a kind of call: who gave it, to what, where and for how long.

use std::collections::BTreeMap;

use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_core::{Arguments, Json, Principal, SessionId, Timestamp, ToolName};

/// "Always allow" or "always deny", narrowed down.
///
/// A rule names the tool, what its arguments have to look like, where it holds, who made it and until when. One that
/// allows is never wider than it reads: a `*` in it stands for no `/`, for no `..` and for nothing that a shell would
/// take for the end of a command. One that denies is read generously.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowRule {
    /// Its name, unique in the store.
    pub id: String,
    /// Whether it allows or denies.
    pub effect: RuleEffect,
    /// The tool, by name or glob.
    pub tool: String,
    /// What arguments have to look like, by JSON pointer. Arguments that are not named may be anything.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, ArgumentPattern>,
    /// Where it holds.
    pub scope: RuleScope,
    /// Who made it.
    pub owner: Principal,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends, if it does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Why there is such a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a rule does with the calls it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleEffect {
    /// They run without a question.
    Allow,
    /// They do not run.
    Deny,
}

/// Where a rule holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "snake_case")]
pub enum RuleScope {
    /// In one session.
    Session {
        /// Which one.
        session: SessionId,
    },
    /// In every session of a project.
    Project {
        /// Which one.
        project: String,
    },
    /// Everywhere.
    Global,
}

/// What one argument has to look like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentPattern {
    /// Exactly this value.
    Equals(Value),
    /// Text that fits the glob.
    Glob(String),
}

/// Why a rule cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRule {
    /// A part of it is missing or cannot be read.
    #[error("{part} of the rule {problem}")]
    Part {
        /// Which part.
        part: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// It would allow a tool everywhere and whatever its arguments are.
    #[error(
        "a rule that allows needs more than the name of a tool: say which arguments, or in which session or project"
    )]
    TooWide,
}

/// The call that a rule is held against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuledCall<'a> {
    pub(crate) tool: &'a ToolName,
    pub(crate) arguments: &'a Arguments,
    pub(crate) session: SessionId,
    /// Nothing if it is not known, as for calls of long ago: then every project fits.
    pub(crate) project: Option<&'a str>,
}

/// A rule that is ready to be held against calls.
#[derive(Debug, Clone)]
pub(crate) struct ReadyRule {
    pub(crate) rule: AllowRule,
    tool: GlobMatcher,
    arguments: Vec<(String, ReadyPattern)>,
}

#[derive(Debug, Clone)]
enum ReadyPattern {
    Equals(Value),
    Glob(String, GlobMatcher),
}

impl ArgumentPattern {
    /// Whether there are texts that do not fit.
    fn narrows(&self) -> bool {
        match self {
            Self::Equals(_) => true,
            Self::Glob(text) => text.is_empty() || !fits_anything(text),
        }
    }
}

impl ReadyRule {
    pub(crate) fn new(rule: AllowRule) -> Result<Self, BadRule> {
        let bad = |part, problem: &str| {
            Err(BadRule::Part {
                part,
                problem: problem.to_owned(),
            })
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if rule.id.is_empty() || rule.id.len() > 100 || !rule.id.chars().all(fits) {
            return bad(
                "the id",
                "has to be 1 to 100 characters of A-Z a-z 0-9 _ - .",
            );
        }
        if rule.owner.as_str().trim().is_empty() {
            return bad("the owner", "is missing");
        }
        if rule.tool.trim().is_empty() {
            return bad("the tool", "is missing");
        }
        let allows = rule.effect == RuleEffect::Allow;
        if matches!(&rule.scope, RuleScope::Project { project } if project.trim().is_empty()) {
            return bad("the project", "is missing");
        }
        let narrowed = rule.scope != RuleScope::Global
            || rule.arguments.values().any(ArgumentPattern::narrows);
        if allows && (fits_anything(&rule.tool) || !narrowed) {
            return Err(BadRule::TooWide);
        }
        let tool = glob("the tool", &rule.tool, allows)?;
        let mut arguments = Vec::new();
        for (pointer, pattern) in &rule.arguments {
            if !pointer.starts_with('/') {
                return bad(
                    "an argument",
                    "is named by a JSON pointer, which starts with /",
                );
            }
            let ready = match pattern {
                ArgumentPattern::Equals(value) => ReadyPattern::Equals(value.clone()),
                ArgumentPattern::Glob(text) => {
                    ReadyPattern::Glob(text.clone(), glob("an argument", text, allows)?)
                }
            };
            arguments.push((pointer.clone(), ready));
        }
        Ok(Self {
            rule,
            tool,
            arguments,
        })
    }

    /// Whether the rule holds at this time and fits this call.
    pub(crate) fn fits(&self, call: RuledCall<'_>, now: Timestamp) -> bool {
        self.rule.expires_at.is_none_or(|until| now < until)
            && self.holds_for(call)
            && self.tool.is_match(call.tool.as_str())
            && self.arguments.iter().all(|(pointer, pattern)| {
                call.arguments
                    .as_json()
                    .pointer(pointer)
                    .is_some_and(|value| self.pattern_fits(pattern, value))
            })
    }

    fn holds_for(&self, call: RuledCall<'_>) -> bool {
        match &self.rule.scope {
            RuleScope::Session { session } => *session == call.session,
            RuleScope::Project { project } => {
                call.project.is_none_or(|in_project| project == in_project)
            }
            RuleScope::Global => true,
        }
    }

    fn pattern_fits(&self, pattern: &ReadyPattern, value: &Value) -> bool {
        match (pattern, value) {
            (ReadyPattern::Equals(wanted), found) => wanted == found || is_same(wanted, found),
            (ReadyPattern::Glob(text, glob), Value::String(found)) => {
                glob.is_match(found)
                    && (self.rule.effect == RuleEffect::Deny || !says_more(text, found))
            }
            (ReadyPattern::Glob(..), _) => false,
        }
    }
}

/// What is allowed is matched strictly, what is denied under every spelling.
fn glob(part: &'static str, text: &str, strict: bool) -> Result<GlobMatcher, BadRule> {
    let glob = GlobBuilder::new(text)
        .literal_separator(strict)
        .case_insensitive(!strict)
        .build();
    glob.map(|glob| glob.compile_matcher())
        .map_err(|error| BadRule::Part {
            part,
            problem: error.to_string(),
        })
}

/// Whether a glob is made of wildcards only.
fn fits_anything(glob: &str) -> bool {
    glob.chars().all(|c| "*?/".contains(c))
}

/// Whether two values are one in their canonical form, as `1` and `1.0` are: calls with them have the same digest.
fn is_same(a: &Value, b: &Value) -> bool {
    let digest = |value: &Value| Json::new(value.clone()).ok().map(|json| json.digest());
    digest(a).is_some_and(|a| digest(b) == Some(a))
}

/// The signs by which a text leads on to another command.
const LEADING_ON: &str = ";|&`$<>(){}\n\r\0\\";

/// Whether a text holds something that leads further than the pattern lets on: another command, another directory.
///
/// The text has exactly the signs that the pattern spells out, so that no wildcard stands for one.
fn says_more(pattern: &str, text: &str) -> bool {
    let climbs = |text: &str| text.split(['/', '\\']).filter(|part| *part == "..").count();
    let signs: Vec<char> = text.chars().filter(|c| LEADING_ON.contains(*c)).collect();
    signs != spelled_out(pattern) || climbs(text) != climbs(pattern)
}

/// The signs in a glob that every text that fits has, in order. Those in a class or in one of several spellings are not
/// among them.
fn spelled_out(glob: &str) -> Vec<char> {
    let (mut signs, mut spellings, mut chars) = (Vec::new(), 0_u32, glob.chars());
    while let Some(c) = chars.next() {
        let plain = match c {
            '\\' => chars.next(),
            '[' => {
                // A bracket right behind the opening one, or behind its negation, belongs to the class.
                let first = chars.next();
                if matches!(first, Some('!' | '^')) {
                    chars.next();
                }
                chars.by_ref().find(|c| *c == ']');
                None
            }
            '{' => {
                spellings += 1;
                None
            }
            '}' => {
                spellings = spellings.saturating_sub(1);
                None
            }
            other => Some(other),
        };
        signs.extend(plain.filter(|c| spellings == 0 && LEADING_ON.contains(*c)));
    }
    signs
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(value: Value) -> AllowRule {
        let mut whole = json!({
            "id": "r1", "effect": "allow", "tool": "run", "scope": { "scope": "global" }, "owner": "ann",
            "created_at": Timestamp::EPOCH,
        });
        let map = whole.as_object_mut().expect("an object");
        map.extend(value.as_object().expect("an object").clone());
        serde_json::from_value(whole).expect("a rule")
    }

    fn fits(rule: AllowRule, tool: &str, arguments: Value) -> bool {
        let arguments = Arguments::try_from(arguments).expect("an object");
        let (tool, session) = (ToolName::from(tool), session(1));
        let call = RuledCall {
            tool: &tool,
            arguments: &arguments,
            session,
            project: Some("p"),
        };
        ReadyRule::new(rule)
            .expect("a good rule")
            .fits(call, Timestamp::EPOCH)
    }

    fn session(n: u128) -> SessionId {
        format!("{n:032x}").parse().expect("an id")
    }

    fn globbed(effect: &str, glob: &str) -> AllowRule {
        rule(json!({ "effect": effect, "arguments": { "/command": { "glob": glob } } }))
    }

    #[test]
    fn a_bare_name_is_no_rule_that_allows() {
        assert_eq!(
            ReadyRule::new(rule(json!({}))).err(),
            Some(BadRule::TooWide)
        );
        let everything = json!({ "tool": "*", "arguments": { "/n": { "equals": 1 } } });
        assert_eq!(
            ReadyRule::new(rule(everything)).err(),
            Some(BadRule::TooWide)
        );
        assert!(
            ReadyRule::new(rule(
                json!({ "scope": { "scope": "project", "project": "p" } })
            ))
            .is_ok()
        );
        assert!(
            ReadyRule::new(rule(json!({ "effect": "deny" }))).is_ok(),
            "what denies may be wide"
        );
    }

    #[test]
    fn a_rule_without_an_owner_or_with_unreadable_parts_is_refused() {
        let some = json!({ "/n": { "equals": 1 } });
        for bad in [
            json!({ "owner": " ", "arguments": some }),
            json!({ "id": "", "arguments": some }),
            json!({ "id": "a/b", "arguments": some }),
            json!({ "tool": "", "arguments": some }),
            json!({ "scope": { "scope": "project", "project": " " }, "arguments": some }),
            json!({ "tool": "[", "arguments": some }),
            json!({ "arguments": { "n": { "equals": 1 } } }),
            json!({ "arguments": { "/n": { "glob": "[" } } }),
        ] {
            assert!(
                matches!(ReadyRule::new(rule(bad.clone())), Err(BadRule::Part { .. })),
                "{bad}"
            );
        }
    }

    #[test]
    fn every_named_argument_has_to_fit() {
        let both =
            || rule(json!({ "arguments": { "/a": { "equals": 1 }, "/b/0": { "glob": "x*" } } }));
        assert!(fits(
            both(),
            "run",
            json!({ "a": 1, "b": ["xy"], "c": true })
        ));
        for other in [
            json!({ "a": 2, "b": ["xy"] }),
            json!({ "a": 1, "b": ["y"] }),
            json!({ "a": 1 }),
            json!({ "a": 1, "b": [1] }),
        ] {
            assert!(!fits(both(), "run", other.clone()), "{other}");
        }
        assert!(!fits(both(), "other", json!({ "a": 1, "b": ["xy"] })));
    }

    #[test]
    fn a_star_that_allows_stands_for_no_second_command_and_no_other_directory() {
        for good in ["git log", "git log --oneline"] {
            assert!(
                fits(
                    globbed("allow", "git log*"),
                    "run",
                    json!({ "command": good })
                ),
                "{good}"
            );
        }
        for bad in [
            "git log; rm -rf x",
            "git log && x",
            "git log | sh",
            "git log $(x)",
            "git log `x`",
            "git log\nx",
            "GIT LOG",
        ] {
            assert!(
                !fits(
                    globbed("allow", "git log*"),
                    "run",
                    json!({ "command": bad })
                ),
                "{bad}"
            );
        }
        assert!(fits(
            globbed("allow", "src/**"),
            "run",
            json!({ "command": "src/a/b" })
        ));
        assert!(!fits(
            globbed("allow", "src/*"),
            "run",
            json!({ "command": "src/a/b" })
        ));
        assert!(!fits(
            globbed("allow", "src/**"),
            "run",
            json!({ "command": "src/../b" })
        ));
    }

    #[test]
    fn a_sign_in_the_pattern_allows_it_there_and_nowhere_else() {
        let allows = |glob: &str, command: &str| {
            fits(globbed("allow", glob), "run", json!({ "command": command }))
        };
        assert!(allows("git log | head*", "git log | head -3"));
        assert!(!allows("git log | head*", "git log | head -3 | sh"));
        assert!(allows("../shared/**", "../shared/a/b"));
        assert!(!allows("../shared/**", "../shared/../../secret"));
        assert!(allows("{ls,git log}*", "git log -3"));
        assert!(
            !allows("{ls;pwd,ls}*", "ls;rm"),
            "one of several spellings vouches for none of the others"
        );
        assert!(!allows("ls[!;]*", "ls -l;rm"));
    }

    #[test]
    fn a_pattern_that_fits_everything_narrows_nothing() {
        for glob in ["*", "**", "**/*", "?*"] {
            let wide = rule(json!({ "arguments": { "/command": { "glob": glob } } }));
            assert_eq!(ReadyRule::new(wide).err(), Some(BadRule::TooWide), "{glob}");
        }
        let here = json!({ "scope": { "scope": "project", "project": "p" }, "arguments": { "/a": { "glob": "*" } } });
        assert!(ReadyRule::new(rule(here)).is_ok(), "the project narrows it");
    }

    #[test]
    fn a_number_is_the_same_in_every_spelling() {
        for effect in ["allow", "deny"] {
            let one = || rule(json!({ "effect": effect, "arguments": { "/n": { "equals": 1 } } }));
            assert!(fits(one(), "run", json!({ "n": 1.0 })), "{effect}");
            assert!(!fits(one(), "run", json!({ "n": "1" })), "{effect}");
        }
    }

    #[test]
    fn what_denies_is_read_generously() {
        for bad in ["rm -rf x", "RM -rf a/b; x"] {
            assert!(
                fits(globbed("deny", "rm *"), "run", json!({ "command": bad })),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_rule_holds_in_its_scope_and_until_its_end() {
        let scoped =
            |scope: Value| rule(json!({ "scope": scope, "arguments": { "/n": { "equals": 1 } } }));
        let n = || json!({ "n": 1 });
        assert!(fits(
            scoped(json!({ "scope": "session", "session": session(1) })),
            "run",
            n()
        ));
        assert!(!fits(
            scoped(json!({ "scope": "session", "session": session(2) })),
            "run",
            n()
        ));
        assert!(fits(
            scoped(json!({ "scope": "project", "project": "p" })),
            "run",
            n()
        ));
        assert!(!fits(
            scoped(json!({ "scope": "project", "project": "q" })),
            "run",
            n()
        ));
        let over =
            json!({ "expires_at": Timestamp::EPOCH, "arguments": { "/n": { "equals": 1 } } });
        assert!(!fits(rule(over), "run", n()));
    }
}
