//! Path patterns: loose ones for what is forbidden, strict ones for what is allowed.

use std::path::Path;

use globset::GlobSet;

use crate::{
    BadOption,
    config::lists,
    decide::policy::matching::paths::{
        PathLocation, fold_case, has_parent_component, resolve_links, with_slashes,
    },
};

/// Patterns of paths that are forbidden or need approval.
#[derive(Debug)]
pub(crate) struct LoosePathPatterns {
    /// From the root downwards.
    anchored: GlobSet,
    /// At any depth, inside or outside the root.
    floating: GlobSet,
    absolute: GlobSet,
    /// The patterns without wildcards, part by part.
    plain: Vec<Vec<String>>,
}

impl LoosePathPatterns {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, BadOption> {
        let mut anchored = Vec::new();
        let mut floating = Vec::new();
        let mut absolute = Vec::new();
        let mut plain = Vec::new();
        let patterns: Vec<String> = patterns
            .iter()
            .map(|pattern| normalize_pattern(pattern))
            .collect::<Result<_, _>>()?;
        // A pattern counts both as written and with its links resolved.
        let leading = patterns
            .iter()
            .filter(|pattern| is_absolute(pattern))
            .map(|pattern| resolve_pattern_links(pattern));
        for pattern in patterns.iter().cloned().chain(leading) {
            let pattern = fold_case(&pattern);
            // A directory covers its contents.
            let pattern = pattern
                .strip_suffix("/**")
                .filter(|rest| !rest.is_empty())
                .unwrap_or(&pattern);
            if !pattern.contains(['*', '?', '[', '{', '\\']) {
                plain.push(pattern.split('/').map(str::to_owned).collect());
            }
            match pattern {
                pattern if is_absolute(pattern) => absolute.push(pattern.to_owned()),
                pattern if pattern.starts_with("**") => floating.push(pattern.to_owned()),
                pattern if pattern.contains('/') => anchored.push(pattern.to_owned()),
                pattern => floating.push(format!("**/{pattern}")),
            }
        }
        let [anchored, floating, absolute] = [anchored, floating, absolute]
            .map(|patterns| lists::compile_path_globs("rules", &patterns));
        Ok(Self {
            anchored: anchored?,
            floating: floating?,
            absolute: absolute?,
            plain,
        })
    }

    /// Checks whether a text that a shell or a tool expands could lead to one of the patterns
    /// without wildcards.
    pub(crate) fn may_expand_to(&self, text: &str) -> bool {
        let text = fold_case(text.trim().trim_start_matches("./"));
        let parts: Vec<&str> = text.split('/').collect();
        let fits = |(part, name): (&&str, &String)| {
            let bare = part.chars().all(|c| c == '*');
            !bare && lists::may_expand_to(part, name)
        };
        // A name alone matches at any depth.
        self.plain.iter().any(|names| match names.as_slice() {
            [name] => parts.iter().any(|part| fits((part, name))),
            names => parts.len() >= names.len() && parts.iter().zip(names).all(fits),
        })
    }

    pub(crate) fn matches(&self, spot: &PathLocation) -> bool {
        let PathLocation { absolute, inside } = spot;
        let below =
            |path: &str, globs: &GlobSet| path_prefixes(path).any(|prefix| globs.is_match(prefix));
        let relative = match inside {
            // The directories above the root do not count: a workspace below `build` is not
            // forbidden by `build`.
            Some(inside) => below(inside, &self.anchored) || below(inside, &self.floating),
            None => below(absolute.trim_start_matches('/'), &self.floating),
        };
        relative || below(absolute, &self.absolute)
    }
}

/// Patterns of paths that are allowed.
#[derive(Debug)]
pub(crate) struct StrictPathPatterns {
    relative: GlobSet,
    absolute: GlobSet,
}

impl StrictPathPatterns {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, BadOption> {
        let readable: Vec<String> = patterns
            .iter()
            .map(|pattern| normalize_pattern(pattern))
            .collect::<Result<_, _>>()?;
        let (absolute, relative): (Vec<_>, Vec<_>) = readable
            .into_iter()
            .partition(|pattern| is_absolute(pattern));
        let absolute: Vec<String> = absolute
            .iter()
            .map(|pattern| resolve_pattern_links(pattern))
            .collect();
        Ok(Self {
            relative: lists::compile_path_globs("rules", &relative)?,
            absolute: lists::compile_path_globs("rules", &absolute)?,
        })
    }

    pub(crate) fn matches(&self, spot: &PathLocation) -> bool {
        let inside = spot
            .inside
            .as_ref()
            .is_some_and(|inside| self.relative.is_match(inside));
        inside || self.absolute.is_match(&spot.absolute)
    }
}

/// Normalizes a pattern: no `./` in front, no slash at the end, the home directory written out.
fn normalize_pattern(pattern: &str) -> Result<String, BadOption> {
    let bad =
        |problem: &str| BadOption::new("rules", format!("the path pattern {pattern:?} {problem}"));
    let mut text = pattern.trim_start_matches("./").to_owned();
    if let Some(rest) = text.strip_prefix("~/") {
        let home =
            std::env::home_dir().ok_or_else(|| bad("needs a home directory and there is none"))?;
        text = format!("{}/{rest}", with_slashes(&home.to_string_lossy()));
    }
    if has_parent_component(&text) {
        return Err(bad(
            "contains `..`, which no resolved path has; write the resolved path",
        ));
    }
    while text.len() > 1 && text.ends_with('/') {
        text.pop();
    }
    if text.trim().is_empty() || text.contains('\0') {
        Err(bad("names no path"))
    } else {
        Ok(text)
    }
}

/// Resolves the links in the literal part of an absolute pattern, as those of paths are.
fn resolve_pattern_links(pattern: &str) -> String {
    let is_literal = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']);
    let parts: Vec<&str> = pattern.split('/').collect();
    let literal = parts
        .iter()
        .copied()
        .take_while(is_literal)
        .collect::<Vec<_>>();
    let resolved = resolve_links(Path::new("/"), Path::new(&literal.join("/"))).ok();
    match resolved
        .as_ref()
        .and_then(|path| path.to_str())
        .filter(|_| literal.len() > 1)
    {
        Some(path) => {
            let path = globset::escape(with_slashes(path).trim_end_matches('/'));
            [path.as_str()]
                .into_iter()
                .chain(parts[literal.len()..].iter().copied())
                .collect::<Vec<_>>()
                .join("/")
        }
        None => pattern.to_owned(),
    }
}

/// Returns the prefixes of a path: `a`, `a/b`, `a/b/c` for `a/b/c`.
fn path_prefixes(path: &str) -> impl Iterator<Item = &str> {
    let ends = path
        .char_indices()
        .filter(|(at, c)| *c == '/' && *at > 0)
        .map(|(at, _)| at);
    ends.chain([path.len()]).map(move |end| &path[..end])
}

fn is_absolute(pattern: &str) -> bool {
    pattern.starts_with('/') || Path::new(pattern).is_absolute()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::decide::policy::matching::paths::PathRoot;

    #[test]
    fn a_pattern_that_could_never_match_is_rejected() {
        for bad in ["", "../x", "src/../x", "[", "./"] {
            let bad = [bad.to_owned()];
            assert!(
                StrictPathPatterns::new(&bad).is_err() && LoosePathPatterns::new(&bad).is_err(),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn no_patterns_match_nothing() {
        let place = PathRoot::new(Path::new("/nowhere"))
            .resolve_path("src")
            .expect("a path");
        assert!(!place.is_within(&StrictPathPatterns::new(&[]).expect("no patterns")));
        assert!(!place.may_match(&LoosePathPatterns::new(&[]).expect("no patterns")));
    }

    #[test]
    fn a_relative_pattern_that_allows_starts_at_the_root_and_nowhere_else() {
        let root = PathRoot::new(Path::new("/nowhere"));
        let fits = |pattern: &str, path: &str| {
            let within = StrictPathPatterns::new(&[pattern.to_owned()]).expect("a valid pattern");
            root.resolve_path(path).expect("a path").is_within(&within)
        };
        assert!(fits("*.rs", "a.rs") && !fits("*.rs", "src/a.rs") && !fits("*.rs", "/a.rs"));
        assert!(fits("**/*.rs", "src/a.rs") && !fits("**/*.rs", "/elsewhere/a.rs"));
        assert!(fits("**", ".") && fits("/**", "/elsewhere/a.rs") && !fits("src/**", "src"));
    }
}
