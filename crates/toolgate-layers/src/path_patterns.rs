//! Patterns for places: generous ones for what is forbidden, strict ones for what is allowed.

use std::path::Path;

use globset::GlobSet;

use crate::{
    BadOption, lists,
    paths::{Spot, climbs, fold_case, follow, slashes},
};

/// Patterns of what is forbidden or asked about.
#[derive(Debug)]
pub(crate) struct AnyOf {
    /// From the root downwards.
    anchored: GlobSet,
    /// At any depth, anywhere.
    floating: GlobSet,
    absolute: GlobSet,
    /// The patterns that are plain paths, part by part.
    plain: Vec<Vec<String>>,
}

impl AnyOf {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, BadOption> {
        let (mut anchored, mut floating, mut absolute) = (Vec::new(), Vec::new(), Vec::new());
        let mut plain = Vec::new();
        let patterns: Vec<String> = patterns
            .iter()
            .map(|pattern| readable(pattern))
            .collect::<Result<_, _>>()?;
        // Both as written and where it leads.
        let leading = patterns
            .iter()
            .filter(|pattern| is_absolute(pattern))
            .map(|pattern| without_links(pattern));
        for pattern in patterns.iter().cloned().chain(leading) {
            let pattern = fold_case(&pattern);
            // What is inside a directory is covered by the directory.
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
        let [anchored, floating, absolute] =
            [anchored, floating, absolute].map(|patterns| lists::paths("rules", &patterns));
        Ok(Self {
            anchored: anchored?,
            floating: floating?,
            absolute: absolute?,
            plain,
        })
    }

    /// Whether a text that a shell or a tool expands could lead to one of the patterns that are plain paths.
    pub(crate) fn may_expand_to(&self, text: &str) -> bool {
        let text = fold_case(text.trim().trim_start_matches("./"));
        let parts: Vec<&str> = text.split('/').collect();
        let fits = |(part, name): (&&str, &String)| {
            let bare = part.chars().all(|c| c == '*');
            !bare && lists::may_expand_to(part, name)
        };
        // A name alone holds at any depth.
        self.plain.iter().any(|names| match names.as_slice() {
            [name] => parts.iter().any(|part| fits((part, name))),
            names => parts.len() >= names.len() && parts.iter().zip(names).all(fits),
        })
    }

    pub(crate) fn matches(&self, spot: &Spot) -> bool {
        let Spot { absolute, inside } = spot;
        let below =
            |path: &str, globs: &GlobSet| prefixes(path).any(|prefix| globs.is_match(prefix));
        let relative = match inside {
            // Not the directories above the root: a workspace below `build` is not all forbidden with `build`.
            Some(inside) => below(inside, &self.anchored) || below(inside, &self.floating),
            None => below(absolute.trim_start_matches('/'), &self.floating),
        };
        relative || below(absolute, &self.absolute)
    }
}

/// Patterns of what is allowed.
#[derive(Debug)]
pub(crate) struct Within {
    relative: GlobSet,
    absolute: GlobSet,
}

impl Within {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, BadOption> {
        let readable: Vec<String> = patterns
            .iter()
            .map(|pattern| readable(pattern))
            .collect::<Result<_, _>>()?;
        let (absolute, relative): (Vec<_>, Vec<_>) = readable
            .into_iter()
            .partition(|pattern| is_absolute(pattern));
        let absolute: Vec<String> = absolute
            .iter()
            .map(|pattern| without_links(pattern))
            .collect();
        Ok(Self {
            relative: lists::paths("rules", &relative)?,
            absolute: lists::paths("rules", &absolute)?,
        })
    }

    pub(crate) fn matches(&self, spot: &Spot) -> bool {
        let inside = spot
            .inside
            .as_ref()
            .is_some_and(|inside| self.relative.is_match(inside));
        inside || self.absolute.is_match(&spot.absolute)
    }
}

/// A pattern as it is compiled: no `./` in front, no slash behind, the home directory written out.
fn readable(pattern: &str) -> Result<String, BadOption> {
    let bad =
        |problem: &str| BadOption::new("rules", format!("the path pattern {pattern:?} {problem}"));
    let mut text = pattern.trim_start_matches("./").to_owned();
    if let Some(rest) = text.strip_prefix("~/") {
        let home =
            std::env::home_dir().ok_or_else(|| bad("needs a home directory and there is none"))?;
        text = format!("{}/{rest}", slashes(&home.to_string_lossy()));
    }
    if climbs(&text) {
        return Err(bad(
            "has `..` in it, which no resolved path has; write where it leads",
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

/// An absolute pattern with the links in its literal part resolved, as those of paths are.
fn without_links(pattern: &str) -> String {
    let is_literal = |part: &&str| !part.contains(['*', '?', '[', '{', '\\']);
    let parts: Vec<&str> = pattern.split('/').collect();
    let literal = parts
        .iter()
        .copied()
        .take_while(is_literal)
        .collect::<Vec<_>>();
    let resolved = follow(Path::new("/"), Path::new(&literal.join("/"))).ok();
    match resolved
        .as_ref()
        .and_then(|path| path.to_str())
        .filter(|_| literal.len() > 1)
    {
        Some(path) => {
            let path = globset::escape(slashes(path).trim_end_matches('/'));
            [path.as_str()]
                .into_iter()
                .chain(parts[literal.len()..].iter().copied())
                .collect::<Vec<_>>()
                .join("/")
        }
        None => pattern.to_owned(),
    }
}

/// `a`, `a/b`, `a/b/c` for `a/b/c`.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
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
    use crate::paths::Root;

    #[test]
    fn a_pattern_that_could_never_match_is_refused() {
        for bad in ["", "../x", "src/../x", "[", "./"] {
            let bad = [bad.to_owned()];
            assert!(
                Within::new(&bad).is_err() && AnyOf::new(&bad).is_err(),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn no_patterns_fit_nothing() {
        let place = Root::new(Path::new("/nowhere"))
            .locate("src")
            .expect("a path");
        assert!(!place.is_within(&Within::new(&[]).expect("no patterns")));
        assert!(!place.may_be(&AnyOf::new(&[]).expect("no patterns")));
    }

    #[test]
    fn a_relative_pattern_that_allows_starts_at_the_root_and_nowhere_else() {
        let root = Root::new(Path::new("/nowhere"));
        let fits = |pattern: &str, path: &str| {
            let within = Within::new(&[pattern.to_owned()]).expect("readable");
            root.locate(path).expect("a path").is_within(&within)
        };
        assert!(fits("*.rs", "a.rs") && !fits("*.rs", "src/a.rs") && !fits("*.rs", "/a.rs"));
        assert!(fits("**/*.rs", "src/a.rs") && !fits("**/*.rs", "/elsewhere/a.rs"));
        assert!(fits("**", ".") && fits("/**", "/elsewhere/a.rs") && !fits("src/**", "src"));
    }
}
