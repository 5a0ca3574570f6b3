//! A standing rule: an answer to a kind of call, with its owner, scope and lifetime.

use std::{collections::BTreeMap, fmt};

use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_core::{Arguments, Json, Principal, SessionId, Timestamp, ToolName, within_pointer};

/// "Always allow" or "always deny" for a narrow set of calls.
///
/// A rule names the tool, the patterns of its arguments, its scope, its owner and its end. A rule
/// that allows is never wider than it reads: it covers no call with an argument that it does not
/// name, and a `*` in it matches no `/`, no `..` and no character that a shell treats as the end of
/// a command. A rule that denies is matched loosely.
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

/// The properties of a call that a rule is matched against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleSubject<'a> {
    pub(crate) tool: &'a ToolName,
    pub(crate) arguments: &'a Arguments,
    pub(crate) session: SessionId,
    /// `None` if it is not known, as for past calls: then every project matches.
    pub(crate) project: Option<&'a str>,
}

/// A rule with its patterns compiled.
#[derive(Debug, Clone)]
pub(crate) struct CompiledRule {
    pub(crate) rule: StandingRule,
    tool: GlobMatcher,
    arguments: Vec<(String, CompiledPattern)>,
}

#[derive(Debug, Clone)]
enum CompiledPattern {
    Equals(Value),
    Glob(String, GlobMatcher),
    Any,
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
    fn is_narrowing(&self) -> bool {
        match self {
            Self::Equals(_) => true,
            Self::Glob(text) => text.is_empty() || !is_wildcard_only(text),
            Self::Any => false,
        }
    }
}

impl CompiledRule {
    pub(crate) fn new(rule: StandingRule) -> Result<Self, InvalidRule> {
        let bad = |part, problem: &str| {
            Err(InvalidRule::Part {
                part,
                problem: problem.to_owned(),
            })
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if rule.id.is_empty() || rule.id.len() > 100 || !rule.id.chars().all(fits) {
            return bad("the id", "must be 1 to 100 characters of A-Z a-z 0-9 _ - .");
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
        // "Always allow" must say what it allows: a bare tool name would approve every later call.
        let narrowed = rule.scope != RuleScope::Global
            || rule.arguments.values().any(ArgumentPattern::is_narrowing);
        if allows && (is_wildcard_only(&rule.tool) || !narrowed) {
            return Err(InvalidRule::TooWide);
        }
        let tool = compile_glob("the tool", &rule.tool, allows)?;
        let mut arguments = Vec::new();
        for (pointer, pattern) in &rule.arguments {
            if !pointer.starts_with('/') {
                return bad(
                    "an argument",
                    "must be named by a JSON pointer, which starts with /",
                );
            }
            let ready = match pattern {
                ArgumentPattern::Equals(value) => CompiledPattern::Equals(value.clone()),
                ArgumentPattern::Glob(text) => {
                    CompiledPattern::Glob(text.clone(), compile_glob("an argument", text, allows)?)
                }
                ArgumentPattern::Any => CompiledPattern::Any,
            };
            arguments.push((pointer.clone(), ready));
        }
        Ok(Self {
            rule,
            tool,
            arguments,
        })
    }

    /// Checks whether the rule applies at this time and matches this call.
    pub(crate) fn matches_call(&self, call: RuleSubject<'_>, now: Timestamp) -> bool {
        self.rule.expires_at.is_none_or(|until| now < until)
            && self.is_in_scope(call)
            && self.tool.is_match(call.tool.as_str())
            && self.arguments.iter().all(|(pointer, pattern)| {
                call.arguments
                    .as_json()
                    .pointer(pointer)
                    .is_some_and(|value| self.matches_pattern(pattern, value))
            })
            && (self.rule.effect == RuleEffect::Deny
                || self.names_all(call.arguments.as_json().as_value(), &mut String::new()))
    }

    /// Checks whether the rule names the value at this pointer, or all parts of it.
    fn names_all(&self, value: &Value, at: &mut String) -> bool {
        // An empty object or list has no parts, and it is a value too. Only the call itself may be
        // without arguments.
        let is_call = at.is_empty();
        if self.rule.arguments.contains_key(at.as_str()) {
            return true;
        }
        let mut names_part =
            |name: &str, part| within_pointer(at, name, |at| self.names_all(part, at));
        match value {
            Value::Object(parts) if is_call || !parts.is_empty() => {
                parts.iter().all(|(name, part)| names_part(name, part))
            }
            Value::Array(parts) if !parts.is_empty() => {
                let mut parts = parts.iter().enumerate();
                parts.all(|(number, part)| names_part(&number.to_string(), part))
            }
            _ => false,
        }
    }

    fn is_in_scope(&self, call: RuleSubject<'_>) -> bool {
        match &self.rule.scope {
            RuleScope::Session { session } => *session == call.session,
            RuleScope::Project { project } => {
                call.project.is_none_or(|in_project| project == in_project)
            }
            RuleScope::Global => true,
        }
    }

    fn matches_pattern(&self, pattern: &CompiledPattern, value: &Value) -> bool {
        match (pattern, value) {
            (CompiledPattern::Equals(wanted), found) => {
                wanted == found || is_canonically_equal(wanted, found)
            }
            (CompiledPattern::Glob(text, glob), Value::String(found)) => {
                glob.is_match(found)
                    && (self.rule.effect == RuleEffect::Deny || !exceeds_pattern(text, found))
            }
            (CompiledPattern::Glob(..), _) => false,
            (CompiledPattern::Any, _) => true,
        }
    }
}

/// Compiles a glob: strict for rules that allow, any case and across `/` for rules that deny.
fn compile_glob(part: &'static str, text: &str, strict: bool) -> Result<GlobMatcher, InvalidRule> {
    let glob = GlobBuilder::new(text)
        .literal_separator(strict)
        .case_insensitive(!strict)
        .build();
    glob.map(|glob| glob.compile_matcher())
        .map_err(|error| InvalidRule::Part {
            part,
            problem: error.to_string(),
        })
}

/// Checks whether a glob consists of wildcards only.
fn is_wildcard_only(glob: &str) -> bool {
    glob.chars().all(|c| "*?/".contains(c))
}

/// Checks whether two values have the same canonical form, as `1` and `1.0` have: calls with them
/// have the same digest.
fn is_canonically_equal(a: &Value, b: &Value) -> bool {
    let digest = |value: &Value| Json::new(value.clone()).ok().map(|json| json.digest());
    digest(a).is_some_and(|a| digest(b) == Some(a))
}

/// Characters with which a text can start another command.
const SHELL_CONTROL_CHARS: &str = ";|&`$<>(){}\n\r\0\\";

/// Checks whether a text reaches further than its pattern shows: another command, another
/// directory.
fn exceeds_pattern(pattern: &str, text: &str) -> bool {
    // The text must have exactly the control characters that the pattern spells out, so that no
    // wildcard stands for one.
    let climbs = |text: &str| text.split(['/', '\\']).filter(|part| *part == "..").count();
    let signs: Vec<char> = text
        .chars()
        .filter(|c| SHELL_CONTROL_CHARS.contains(*c))
        .collect();
    signs != literal_control_chars(pattern) || climbs(text) != climbs(pattern)
}

/// Returns the control characters that every matching text has, in order. Those in a class or in
/// one of several alternatives are left out.
fn literal_control_chars(glob: &str) -> Vec<char> {
    let mut signs = Vec::new();
    let mut spellings = 0_u32;
    let mut chars = glob.chars();
    while let Some(c) = chars.next() {
        let plain = match c {
            '\\' => chars.next(),
            '[' => {
                // A bracket right after the opening one, or after its negation, belongs to the
                // class.
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
        signs.extend(plain.filter(|c| spellings == 0 && SHELL_CONTROL_CHARS.contains(*c)));
    }
    signs
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule_with(value: Value) -> StandingRule {
        let mut whole = json!({
            "id": "r1", "effect": "allow", "tool": "run", "scope": { "scope": "global" }, "owner": "ann",
            "created_at": Timestamp::EPOCH,
        });
        let map = whole.as_object_mut().expect("an object");
        map.extend(value.as_object().expect("an object").clone());
        serde_json::from_value(whole).expect("a rule")
    }

    fn rule_matches(rule: StandingRule, tool: &str, arguments: Value) -> bool {
        let arguments = Arguments::try_from(arguments).expect("an object");
        let tool = ToolName::from(tool);
        let session = session_id(1);
        let call = RuleSubject {
            tool: &tool,
            arguments: &arguments,
            session,
            project: Some("p"),
        };
        CompiledRule::new(rule)
            .expect("a good rule")
            .matches_call(call, Timestamp::EPOCH)
    }

    fn session_id(n: u128) -> SessionId {
        format!("{n:032x}").parse().expect("an id")
    }

    fn command_rule(effect: &str, glob: &str) -> StandingRule {
        rule_with(json!({ "effect": effect, "arguments": { "/command": { "glob": glob } } }))
    }

    #[test]
    fn a_bare_tool_name_is_too_wide_to_allow() {
        assert_eq!(
            CompiledRule::new(rule_with(json!({}))).err(),
            Some(InvalidRule::TooWide)
        );
        let everything = json!({ "tool": "*", "arguments": { "/n": { "equals": 1 } } });
        assert_eq!(
            CompiledRule::new(rule_with(everything)).err(),
            Some(InvalidRule::TooWide)
        );
        assert!(
            CompiledRule::new(rule_with(
                json!({ "scope": { "scope": "project", "project": "p" } })
            ))
            .is_ok()
        );
        assert!(
            CompiledRule::new(rule_with(json!({ "effect": "deny" }))).is_ok(),
            "a rule that denies may be wide"
        );
    }

    #[test]
    fn a_rule_without_an_owner_or_with_invalid_parts_is_rejected() {
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
                matches!(
                    CompiledRule::new(rule_with(bad.clone())),
                    Err(InvalidRule::Part { .. })
                ),
                "{bad}"
            );
        }
    }

    #[test]
    fn every_named_argument_has_to_match() {
        let both = || {
            rule_with(json!({ "arguments": { "/a": { "equals": 1 }, "/b/0": { "glob": "x*" } } }))
        };
        assert!(rule_matches(both(), "run", json!({ "a": 1, "b": ["xy"] })));
        for other in [
            json!({ "a": 2, "b": ["xy"] }),
            json!({ "a": 1, "b": ["y"] }),
            json!({ "a": 1 }),
            json!({ "a": 1, "b": [1] }),
        ] {
            assert!(!rule_matches(both(), "run", other.clone()), "{other}");
        }
        assert!(!rule_matches(
            both(),
            "other",
            json!({ "a": 1, "b": ["xy"] })
        ));
    }

    #[test]
    fn a_rule_that_allows_covers_no_argument_that_it_does_not_name() {
        let arguments = json!({ "/a": { "equals": 1 }, "/b/x": { "glob": "y*" }, "/c": "any" });
        let rule = |effect: &str| rule_with(json!({ "effect": effect, "arguments": arguments }));
        let named = json!({ "a": 1, "b": { "x": "yes" }, "c": [{ "deep": true }] });
        assert!(rule_matches(rule("allow"), "run", named.clone()));
        for (pointer, more) in [
            ("", "d"),
            ("", "a/b"),
            ("", ""),
            ("/b", "x/y"),
            ("/b", "~0"),
        ] {
            for value in [json!(null), json!({}), json!([]), json!("y")] {
                let mut other = named.clone();
                let into = other.pointer_mut(pointer).expect("there");
                into[more] = value;
                assert!(
                    !rule_matches(rule("allow"), "run", other.clone()),
                    "{other}"
                );
                assert!(rule_matches(rule("deny"), "run", other.clone()), "{other}");
            }
        }
        let none = rule_with(json!({ "scope": { "scope": "project", "project": "p" } }));
        assert!(rule_matches(none.clone(), "run", json!({})));
        assert!(!rule_matches(none, "run", json!({ "a": 1 })));
    }

    #[test]
    fn an_argument_with_any_value_has_to_be_there_and_narrows_nothing() {
        let rule = |more: Value| {
            rule_with(json!({ "arguments": more, "scope": { "scope": "project", "project": "p" } }))
        };
        assert!(!rule_matches(
            rule(json!({ "/a": "any" })),
            "run",
            json!({})
        ));
        let mut wide = rule(json!({ "/a": "any" }));
        wide.scope = RuleScope::Global;
        assert_eq!(CompiledRule::new(wide).err(), Some(InvalidRule::TooWide));
    }

    #[test]
    fn the_text_of_a_rule_shows_every_argument_and_cannot_be_read_as_another_rule() {
        let arguments = json!({
            "/a": { "equals": "x\ny" }, "/b": { "glob": "docs/*" }, "/c": "any",
            "/d is 1\n": { "equals": 2 },
        });
        assert_eq!(
            rule_with(json!({ "arguments": arguments })).to_string(),
            r#"allow run where a is "x\ny" and b matches docs/* and c is any value and "/d is 1\n" is 2"#
        );
        assert_eq!(
            rule_with(json!({})).to_string(),
            "allow run without arguments"
        );
        let long = json!({ "arguments": { "/a": { "equals": "日".repeat(500) } } });
        let text = rule_with(long).to_string();
        assert!(text.ends_with("日… (1502 bytes)"), "{text}");
    }

    #[test]
    fn a_star_that_allows_matches_no_second_command_and_no_other_directory() {
        for good in ["git log", "git log --oneline"] {
            assert!(
                rule_matches(
                    command_rule("allow", "git log*"),
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
                !rule_matches(
                    command_rule("allow", "git log*"),
                    "run",
                    json!({ "command": bad })
                ),
                "{bad}"
            );
        }
        assert!(rule_matches(
            command_rule("allow", "src/**"),
            "run",
            json!({ "command": "src/a/b" })
        ));
        assert!(!rule_matches(
            command_rule("allow", "src/*"),
            "run",
            json!({ "command": "src/a/b" })
        ));
        assert!(!rule_matches(
            command_rule("allow", "src/**"),
            "run",
            json!({ "command": "src/../b" })
        ));
    }

    #[test]
    fn a_control_character_is_allowed_only_where_the_pattern_has_it() {
        let allows = |glob: &str, command: &str| {
            rule_matches(
                command_rule("allow", glob),
                "run",
                json!({ "command": command }),
            )
        };
        assert!(allows("git log | head*", "git log | head -3"));
        assert!(!allows("git log | head*", "git log | head -3 | sh"));
        assert!(allows("../shared/**", "../shared/a/b"));
        assert!(!allows("../shared/**", "../shared/../../secret"));
        assert!(allows("{ls,git log}*", "git log -3"));
        assert!(
            !allows("{ls;pwd,ls}*", "ls;rm"),
            "one alternative does not allow the characters of another"
        );
        assert!(!allows("ls[!;]*", "ls -l;rm"));
    }

    #[test]
    fn a_pattern_that_matches_everything_narrows_nothing() {
        for glob in ["*", "**", "**/*", "?*"] {
            let wide = rule_with(json!({ "arguments": { "/command": { "glob": glob } } }));
            assert_eq!(
                CompiledRule::new(wide).err(),
                Some(InvalidRule::TooWide),
                "{glob}"
            );
        }
        let here = json!({ "scope": { "scope": "project", "project": "p" }, "arguments": { "/a": { "glob": "*" } } });
        assert!(
            CompiledRule::new(rule_with(here)).is_ok(),
            "the project narrows it"
        );
    }

    #[test]
    fn a_number_is_the_same_in_every_spelling() {
        for effect in ["allow", "deny"] {
            let one =
                || rule_with(json!({ "effect": effect, "arguments": { "/n": { "equals": 1 } } }));
            assert!(rule_matches(one(), "run", json!({ "n": 1.0 })), "{effect}");
            assert!(!rule_matches(one(), "run", json!({ "n": "1" })), "{effect}");
        }
    }

    #[test]
    fn rules_that_deny_match_loosely() {
        for bad in ["rm -rf x", "RM -rf a/b; x"] {
            assert!(
                rule_matches(
                    command_rule("deny", "rm *"),
                    "run",
                    json!({ "command": bad })
                ),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_rule_applies_in_its_scope_until_it_expires() {
        let scoped = |scope: Value| {
            rule_with(json!({ "scope": scope, "arguments": { "/n": { "equals": 1 } } }))
        };
        let n = || json!({ "n": 1 });
        assert!(rule_matches(
            scoped(json!({ "scope": "session", "session": session_id(1) })),
            "run",
            n()
        ));
        assert!(!rule_matches(
            scoped(json!({ "scope": "session", "session": session_id(2) })),
            "run",
            n()
        ));
        assert!(rule_matches(
            scoped(json!({ "scope": "project", "project": "p" })),
            "run",
            n()
        ));
        assert!(!rule_matches(
            scoped(json!({ "scope": "project", "project": "q" })),
            "run",
            n()
        ));
        let over =
            json!({ "expires_at": Timestamp::EPOCH, "arguments": { "/n": { "equals": 1 } } });
        assert!(!rule_matches(rule_with(over), "run", n()));
    }
}
