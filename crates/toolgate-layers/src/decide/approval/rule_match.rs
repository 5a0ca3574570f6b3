//! Matches calls against a standing rule, with the matchers of the policy.

#[cfg(test)]
mod tests;

use std::cell::OnceCell;

use globset::{GlobBuilder, GlobMatcher};
use serde_json::Value;
use toolgate_core::{Call, Json, SessionId, Timestamp, within_pointer};

use crate::{
    ArgumentPattern, InvalidRule, RuleEffect, RuleScope, StandingRule,
    decide::{
        approval::{
            rule::is_wildcard_only,
            rule_policy::{PatternPolicy, PolicyMatch},
        },
        policy::{
            features::{CallFeatures, FeatureNeeds},
            matching::paths::PathRoot,
        },
    },
};

/// The call that rules are matched against.
pub(crate) struct RuleSubject<'a> {
    pub(crate) call: &'a Call,
    pub(crate) session: SessionId,
    /// `None` if it is not known, as for past calls: then every project matches.
    pub(crate) project: Option<&'a str>,
    pub(crate) root: &'a PathRoot,
    facts: OnceCell<CallFeatures<'a>>,
}

impl<'a> RuleSubject<'a> {
    pub(crate) fn new(
        call: &'a Call,
        session: SessionId,
        project: Option<&'a str>,
        root: &'a PathRoot,
    ) -> Self {
        Self {
            call,
            session,
            project,
            root,
            facts: OnceCell::new(),
        }
    }

    /// Returns what the policy understands of the call, extracted when a rule first needs it.
    pub(crate) fn facts(&self) -> &CallFeatures<'a> {
        let needs = FeatureNeeds {
            paths: true,
            commands: true,
            urls: false,
        };
        self.facts
            .get_or_init(|| CallFeatures::extract_from(self.call, self.root, needs, 0))
    }
}

/// The result of matching a rule with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleMatch {
    /// The rule decides the call.
    Yes,
    /// The rule does not apply.
    No,
    /// A rule that denies may apply, and a person has to say.
    Unclear,
}

/// A rule with its patterns compiled.
#[derive(Debug)]
pub(crate) struct CompiledRule {
    pub(crate) rule: StandingRule,
    tool: GlobMatcher,
    arguments: Vec<CompiledPattern>,
}

/// The pattern of one argument.
#[derive(Debug)]
struct CompiledPattern {
    pointer: String,
    text: TextMatch,
    /// What the policy makes of it, for a path or a command.
    policy: PatternPolicy,
}

#[derive(Debug)]
enum TextMatch {
    Equals(Value),
    Glob(String, GlobMatcher),
    Any,
}

impl CompiledRule {
    /// Compiles a rule; its relative paths start at `root`.
    pub(crate) fn new(rule: StandingRule, root: &PathRoot) -> Result<Self, InvalidRule> {
        check_parts(&rule)?;
        let allows = rule.effect == RuleEffect::Allow;
        let tool = compile_glob("the tool", &rule.tool, allows)?;
        let mut arguments = Vec::new();
        for (pointer, pattern) in &rule.arguments {
            let text = match pattern {
                ArgumentPattern::Equals(value) => TextMatch::Equals(value.clone()),
                ArgumentPattern::Glob(text) => {
                    TextMatch::Glob(text.clone(), compile_glob("an argument", text, allows)?)
                }
                ArgumentPattern::Any => TextMatch::Any,
            };
            arguments.push(CompiledPattern {
                pointer: pointer.clone(),
                text,
                policy: PatternPolicy::new(rule.effect, pointer, pattern, root),
            });
        }
        Ok(Self {
            rule,
            tool,
            arguments,
        })
    }

    /// Matches the rule at this time with this call.
    pub(crate) fn match_call(&self, subject: &RuleSubject<'_>, now: Timestamp) -> RuleMatch {
        let arguments = subject.call.arguments.as_json();
        let applies = self.rule.expires_at.is_none_or(|until| now < until)
            && self.is_in_scope(subject)
            && self.tool.is_match(subject.call.tool.as_str())
            && (self.rule.effect == RuleEffect::Deny
                || self.names_all(arguments.as_value(), &mut String::new()));
        if !applies {
            return RuleMatch::No;
        }
        let matches = self.arguments.iter().map(|pattern| {
            let value = arguments.pointer(&pattern.pointer);
            value.map_or(RuleMatch::No, |value| {
                self.match_pattern(pattern, value, subject)
            })
        });
        matches.fold(RuleMatch::Yes, |all, one| match (all, one) {
            (RuleMatch::No, _) | (_, RuleMatch::No) => RuleMatch::No,
            (RuleMatch::Yes, RuleMatch::Yes) => RuleMatch::Yes,
            (RuleMatch::Unclear, _) | (_, RuleMatch::Unclear) => RuleMatch::Unclear,
        })
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

    fn is_in_scope(&self, subject: &RuleSubject<'_>) -> bool {
        match &self.rule.scope {
            RuleScope::Session { session } => *session == subject.session,
            RuleScope::Project { project } => {
                let same = |in_project| project == in_project;
                subject.project.is_none_or(same)
            }
            RuleScope::Global => true,
        }
    }

    fn match_pattern(
        &self,
        pattern: &CompiledPattern,
        value: &Value,
        subject: &RuleSubject<'_>,
    ) -> RuleMatch {
        let fits = self.fits_text(&pattern.text, value);
        match self.rule.effect {
            RuleEffect::Allow if !fits => RuleMatch::No,
            RuleEffect::Deny if fits => RuleMatch::Yes,
            RuleEffect::Allow | RuleEffect::Deny => {
                match pattern.policy.match_value(value, subject) {
                    PolicyMatch::NotJudged if fits => RuleMatch::Yes,
                    PolicyMatch::NotJudged => RuleMatch::No,
                    PolicyMatch::Judged(result) => result,
                }
            }
        }
    }

    fn fits_text(&self, text: &TextMatch, value: &Value) -> bool {
        match (text, value) {
            (TextMatch::Equals(wanted), found) => {
                wanted == found || is_canonically_equal(wanted, found)
            }
            (TextMatch::Glob(text, glob), Value::String(found)) => {
                glob.is_match(found)
                    && (self.rule.effect == RuleEffect::Deny || !exceeds_pattern(text, found))
            }
            (TextMatch::Glob(..), _) => false,
            (TextMatch::Any, _) => true,
        }
    }
}

/// Rejects a rule without its parts, and one that allows more than it says.
fn check_parts(rule: &StandingRule) -> Result<(), InvalidRule> {
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
    if matches!(&rule.scope, RuleScope::Project { project } if project.trim().is_empty()) {
        return bad("the project", "is missing");
    }
    if rule
        .arguments
        .keys()
        .any(|pointer| !pointer.starts_with('/'))
    {
        return bad(
            "an argument",
            "must be named by a JSON pointer, which starts with /",
        );
    }
    // "Always allow" must say what it allows: a bare tool name would approve every later call.
    let narrowed = rule.scope != RuleScope::Global
        || rule.arguments.values().any(ArgumentPattern::is_narrowing);
    if rule.effect == RuleEffect::Allow && (is_wildcard_only(&rule.tool) || !narrowed) {
        return Err(InvalidRule::TooWide);
    }
    Ok(())
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
