//! Lists of tool names in options: exact names and globs such as `fs_*`.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use toolgate_core::ToolName;

use crate::BadOption;

/// Tools named by at least one pattern.
#[derive(Debug, Clone)]
pub(crate) struct ToolGlobs(GlobSet);

impl ToolGlobs {
    /// Parses the patterns of the option `key`.
    ///
    /// An empty list is rejected: some readers take it for "all" and others for "none".
    pub(crate) fn parse<S: AsRef<str>>(
        key: &'static str,
        patterns: &[S],
    ) -> Result<Self, BadOption> {
        if patterns.is_empty() {
            return Err(BadOption::new(
                key,
                "is empty; name at least one tool or omit it",
            ));
        }
        let mut globs = GlobSetBuilder::new();
        for pattern in patterns.iter().map(AsRef::as_ref) {
            if pattern.trim().is_empty() {
                return Err(BadOption::new(key, "contains an empty name"));
            }
            let glob = GlobBuilder::new(pattern).build();
            globs.add(glob.map_err(|error| BadOption::new(key, error.to_string()))?);
        }
        globs
            .build()
            .map(Self)
            .map_err(|error| BadOption::new(key, error.to_string()))
    }

    /// Checks whether a pattern matches `tool`.
    pub(crate) fn matches(&self, tool: &ToolName) -> bool {
        self.0.is_match(tool.as_str())
    }
}

/// The tools that a layer covers.
#[derive(Debug, Clone)]
pub(crate) enum ToolCoverage {
    /// All tools.
    All,
    /// Only these tools.
    Only(ToolGlobs),
    /// All tools except these.
    Except(ToolGlobs),
}

impl ToolCoverage {
    /// Reads the options `only` and `except`, of which at most one may be set.
    pub(crate) fn from_options(
        only: Option<&[String]>,
        except: Option<&[String]>,
    ) -> Result<Self, BadOption> {
        match (only, except) {
            (None, None) => Ok(Self::All),
            (Some(only), None) => ToolGlobs::parse("only", only).map(Self::Only),
            (None, Some(except)) => ToolGlobs::parse("except", except).map(Self::Except),
            // No precedence between the two: either would silently ignore one of the lists.
            (Some(_), Some(_)) => Err(BadOption::new("except", "cannot be set together with only")),
        }
    }

    /// Checks whether `tool` is covered.
    pub(crate) fn includes(&self, tool: &ToolName) -> bool {
        match self {
            Self::All => true,
            Self::Only(globs) => globs.matches(tool),
            Self::Except(globs) => !globs.matches(tool),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_invalid_or_empty_pattern_or_list_is_rejected() {
        for bad in [&["["][..], &[""], &["fine", " "], &[]] {
            assert_eq!(
                ToolGlobs::parse("tools", bad).expect_err("rejected").key,
                "tools",
                "{bad:?}"
            );
        }
    }

    #[test]
    fn only_and_except_select_by_name_or_glob_and_exclude_each_other() {
        let fs = list(&["fs_*", "rm"]);
        let read = list(&["read"]);
        let only = ToolCoverage::from_options(Some(&fs), None).expect("readable");
        let except = ToolCoverage::from_options(None, Some(&fs)).expect("readable");
        for (tool, named) in [
            ("fs_write", true),
            ("rm", true),
            ("rmdir", false),
            ("xfs_write", false),
        ] {
            assert_eq!(
                (only.includes(&tool.into()), except.includes(&tool.into())),
                (named, !named),
                "{tool}"
            );
        }
        assert!(ToolCoverage::from_options(Some(&fs), Some(&read)).is_err());
        assert!(
            ToolCoverage::from_options(None, None)
                .expect("fine")
                .includes(&"anything".into())
        );
    }
}
