//! Which calls a layer wraps.

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
pub struct Matcher(Vec<Rule>);

#[derive(Clone)]
enum Rule {
    Name(ToolName),
    Glob(GlobMatcher),
    Regex(Regex),
    Annotation(Arc<dyn Fn(&Annotations) -> bool + Send + Sync>),
    Predicate(Arc<dyn Fn(&Call) -> bool + Send + Sync>),
}

impl Matcher {
    /// Calls to the tool of exactly this name.
    pub fn name(name: &str) -> Self {
        Self::names([name])
    }

    /// Calls to the tools of exactly these names; no names match no calls.
    pub fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(
            names
                .into_iter()
                .map(|name| Rule::Name(name.into()))
                .collect(),
        )
    }

    /// Calls to tools whose name fits a glob such as `fs_*`.
    pub fn glob(pattern: &str) -> Result<Self, MatcherError> {
        let glob = Glob::new(pattern).map_err(|error| MatcherError(error.to_string()))?;
        Ok(Self(vec![Rule::Glob(glob.compile_matcher())]))
    }

    /// Calls to tools in whose name a regular expression is found.
    pub fn regex(pattern: &str) -> Result<Self, MatcherError> {
        let regex = Regex::new(pattern).map_err(|error| MatcherError(error.to_string()))?;
        Ok(Self(vec![Rule::Regex(regex)]))
    }

    /// Calls to tools with certain annotations.
    pub fn annotation(test: impl Fn(&Annotations) -> bool + Send + Sync + 'static) -> Self {
        Self(vec![Rule::Annotation(Arc::new(test))])
    }

    /// Calls that pass a test of any kind.
    pub fn predicate(test: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Self {
        Self(vec![Rule::Predicate(Arc::new(test))])
    }

    /// Calls that either matcher picks.
    pub fn or(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether `call` is picked.
    pub fn matches(&self, call: &Call) -> bool {
        self.0.iter().any(|rule| match rule {
            Rule::Predicate(test) => test(call),
            Rule::Annotation(test) => test(call.annotations()),
            rule => rule.fits_name(&call.tool),
        })
    }

    /// Whether calls to this tool could be picked.
    pub fn could_match(&self, spec: &ToolSpec) -> bool {
        self.0.iter().any(|rule| match rule {
            Rule::Predicate(_) => true,
            Rule::Annotation(test) => test(&spec.annotations),
            rule => rule.fits_name(&spec.name),
        })
    }
}

impl Rule {
    fn fits_name(&self, tool: &ToolName) -> bool {
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

impl fmt::Debug for Rule {
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

/// The pattern of a matcher cannot be read.
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
    fn an_unreadable_pattern_is_an_error() {
        assert!(Matcher::glob("[").is_err());
        assert!(Matcher::regex("(").is_err());
    }
}
