//! Lists of tool names in options: exact names and globs such as `fs_*`.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use toolgate_core::ToolName;

use crate::BadOption;

/// Tools named by at least one pattern.
#[derive(Debug, Clone)]
pub(crate) struct ToolGlobs(GlobSet);

impl ToolGlobs {
    /// Reads the patterns of the option `key`. A list that names nothing is refused: it reads like "all" to some
    /// and like "none" to others.
    pub(crate) fn read<S: AsRef<str>>(
        key: &'static str,
        patterns: &[S],
    ) -> Result<Self, BadOption> {
        if patterns.is_empty() {
            return Err(BadOption::new(
                key,
                "names no tool; name at least one or leave it out",
            ));
        }
        let mut globs = GlobSetBuilder::new();
        for pattern in patterns.iter().map(AsRef::as_ref) {
            if pattern.trim().is_empty() {
                return Err(BadOption::new(key, "holds an empty name"));
            }
            let glob = GlobBuilder::new(pattern).build();
            globs.add(glob.map_err(|error| BadOption::new(key, error.to_string()))?);
        }
        globs
            .build()
            .map(Self)
            .map_err(|error| BadOption::new(key, error.to_string()))
    }

    /// Whether a pattern names `tool`.
    pub(crate) fn matches(&self, tool: &ToolName) -> bool {
        self.0.is_match(tool.as_str())
    }
}

/// The tools a layer covers: all, only these, or all but these.
#[derive(Debug, Clone)]
pub(crate) enum Covered {
    /// All.
    All,
    /// Only these.
    Only(ToolGlobs),
    /// All but these.
    Except(ToolGlobs),
}

impl Covered {
    /// Reads the options `only` and `except`, of which at most one may be given.
    pub(crate) fn read(
        only: Option<&[String]>,
        except: Option<&[String]>,
    ) -> Result<Self, BadOption> {
        match (only, except) {
            (None, None) => Ok(Self::All),
            (Some(only), None) => ToolGlobs::read("only", only).map(Self::Only),
            (None, Some(except)) => ToolGlobs::read("except", except).map(Self::Except),
            (Some(_), Some(_)) => Err(BadOption::new(
                "except",
                "cannot be given together with only",
            )),
        }
    }

    /// Whether `tool` is covered.
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
    fn an_unreadable_or_empty_pattern_or_list_is_refused() {
        for bad in [&["["][..], &[""], &["fine", " "], &[]] {
            assert_eq!(
                ToolGlobs::read("tools", bad).expect_err("refused").key,
                "tools",
                "{bad:?}"
            );
        }
    }

    #[test]
    fn only_and_except_pick_by_name_or_glob_and_exclude_each_other() {
        let (fs, read) = (list(&["fs_*", "rm"]), list(&["read"]));
        let only = Covered::read(Some(&fs), None).expect("readable");
        let except = Covered::read(None, Some(&fs)).expect("readable");
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
        assert!(Covered::read(Some(&fs), Some(&read)).is_err());
        assert!(
            Covered::read(None, None)
                .expect("fine")
                .includes(&"anything".into())
        );
    }
}
