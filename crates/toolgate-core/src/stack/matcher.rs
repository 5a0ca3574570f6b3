//! Matchers that pick the calls a layer wraps.

use std::{fmt, sync::Arc};

use globset::{Glob, GlobMatcher};
use regex::Regex;

use crate::{Annotations, Call, ToolName, ToolSpec};

/// Picks calls by tool name, pattern, annotation or predicate.
///
/// ```
/// use toolgate_core::Matcher;
/// let writes = Matcher::glob("fs_write*")?.or(Matcher::annotation(|a| a.may_write()));
/// # Ok::<(), toolgate_core::MatcherError>(())
/// ```
#[derive(Clone)]
pub struct Matcher(Vec<MatchRule>);

#[derive(Clone)]
enum MatchRule {
    Name(ToolName),
    Glob(GlobMatcher),
    Regex(Regex),
    Annotation(Arc<dyn Fn(&Annotations) -> bool + Send + Sync>),
    Predicate(Arc<dyn Fn(&Call) -> bool + Send + Sync>),
}

impl Matcher {
    /// Matches calls to the tool of exactly this name.
    pub fn name(name: &str) -> Self {
        Self::names([name])
    }

    /// Matches calls to the tools of exactly these names; no names match no calls.
    pub fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(
            names
                .into_iter()
                .map(|name| MatchRule::Name(name.into()))
                .collect(),
        )
    }

    /// Matches calls to tools whose name fits a glob such as `fs_*`.
    pub fn glob(pattern: &str) -> Result<Self, MatcherError> {
        let glob = Glob::new(pattern).map_err(|error| MatcherError(error.to_string()))?;
        Ok(Self(vec![MatchRule::Glob(glob.compile_matcher())]))
    }

    /// Matches calls to tools in whose name a regular expression is found.
    pub fn regex(pattern: &str) -> Result<Self, MatcherError> {
        let regex = Regex::new(pattern).map_err(|error| MatcherError(error.to_string()))?;
        Ok(Self(vec![MatchRule::Regex(regex)]))
    }

    /// Matches calls to tools whose annotations pass `test`.
    pub fn annotation(test: impl Fn(&Annotations) -> bool + Send + Sync + 'static) -> Self {
        Self(vec![MatchRule::Annotation(Arc::new(test))])
    }

    /// Matches calls that pass `test`.
    pub fn predicate(test: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Self {
        Self(vec![MatchRule::Predicate(Arc::new(test))])
    }

    /// Matches calls that either matcher picks.
    pub fn or(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Checks whether `call` is picked.
    pub fn matches(&self, call: &Call) -> bool {
        self.0.iter().any(|rule| match rule {
            MatchRule::Predicate(test) => test(call),
            MatchRule::Annotation(test) => test(call.annotations()),
            rule => rule.matches_name(&call.tool),
        })
    }

    /// Checks whether calls to this tool could be picked.
    pub fn could_match(&self, spec: &ToolSpec) -> bool {
        self.0.iter().any(|rule| match rule {
            // It needs a call to answer, so it could pick any tool.
            MatchRule::Predicate(_) => true,
            MatchRule::Annotation(test) => test(&spec.annotations),
            rule => rule.matches_name(&spec.name),
        })
    }
}

impl MatchRule {
    fn matches_name(&self, tool: &ToolName) -> bool {
        match self {
            Self::Name(name) => name == tool,
            Self::Glob(glob) => glob.is_match(tool.as_str()),
            Self::Regex(regex) => regex.is_match(tool.as_str()),
            Self::Annotation(_) | Self::Predicate(_) => false,
        }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

impl fmt::Debug for MatchRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "name {name:?}", name = name.as_str()),
            Self::Glob(glob) => write!(f, "glob {:?}", glob.glob().glob()),
            Self::Regex(regex) => write!(f, "regex {:?}", regex.as_str()),
            Self::Annotation(_) => f.write_str("an annotation test"),
            Self::Predicate(_) => f.write_str("a predicate"),
        }
    }
}

/// The pattern of a matcher is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pattern cannot be read: {0}")]
pub struct MatcherError(String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, Schema};

    #[test]
    fn picks_by_name_glob_regex_annotation_and_predicate() {
        let call = Call::detached("fs_write", crate::Arguments::empty());
        for (matcher, fits) in [
            (Matcher::name("fs_write"), true),
            (Matcher::name("fs_writ"), false),
            (Matcher::names([]), false),
            (Matcher::glob("fs_*").expect("valid"), true),
            (Matcher::glob("net_*").expect("valid"), false),
            (Matcher::regex("^fs_(read|write)$").expect("valid"), true),
            (Matcher::regex("^write").expect("valid"), false),
            (Matcher::annotation(Annotations::may_write), true),
            (
                Matcher::predicate(|call| call.arguments.get("force").is_some()),
                false,
            ),
            (Matcher::name("x").or(Matcher::name("fs_write")), true),
        ] {
            assert_eq!(matcher.matches(&call), fits, "{matcher:?}");
        }
    }

    #[test]
    fn a_predicate_could_match_any_tool() {
        let spec = ToolSpec::new("a", "", Schema::any_object());
        assert!(Matcher::predicate(|_| false).could_match(&spec));
        assert!(!Matcher::name("b").could_match(&spec));
    }

    #[test]
    fn an_invalid_pattern_is_an_error() {
        assert!(Matcher::glob("[").is_err());
        assert!(Matcher::regex("(").is_err());
    }
}
