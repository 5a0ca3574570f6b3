//! The places in the file system that a call names, or may name.

use std::borrow::Cow;

use super::{ArgumentRole, CallCommand, CallFeatures, MAX_DIRECTORIES, MAX_EXAMINED};
use crate::decide::policy::matching::{
    paths::{PathError, ResolvedPath},
    shell,
};

/// Arguments that hold the content of a file beside its path.
const FILE_CONTENTS: [&str; 8] = [
    "content",
    "contents",
    "new",
    "new_string",
    "new_text",
    "old",
    "old_string",
    "old_text",
];

/// Maximum number of texts or words that are looked up in the file system. Beyond it only the
/// spelling counts.
const MAX_LOOKUPS: usize = 256;

impl CallFeatures<'_> {
    /// Returns the places that texts of any name may lead to.
    pub(crate) fn hinted_places(&self) -> &[ResolvedPath] {
        self.hinted
            .get_or_init(|| self.locate_hints(self.texts.iter().copied()))
    }

    /// Returns the places that texts of any name may lead to, without the content of a file that the
    /// call writes: `AGENTS.md` as the only word of a file names no other file.
    pub(crate) fn hinted_places_without_contents(&self) -> &[ResolvedPath] {
        let named = |name: &&str| self.call.arguments.get(name)?.as_str();
        let contents: Vec<&str> = FILE_CONTENTS.iter().filter_map(named).collect();
        let is_content = |text: &&&str| contents.iter().any(|it| std::ptr::eq(*it, **text));
        // Only beside the path of the file is it its content.
        if self.places.is_empty() || !self.texts.iter().any(|text| is_content(&text)) {
            return self.hinted_places();
        }
        self.hinted_besides_contents.get_or_init(|| {
            let others = self.texts.iter().filter(|text| !is_content(text));
            self.locate_hints(others.copied())
        })
    }

    fn locate_hints<'t>(&self, texts: impl Iterator<Item = &'t str>) -> Vec<ResolvedPath> {
        // `event.key` is code rather than a file name, unless such a file exists.
        let is_code = |text: &str| {
            text.contains('.') && !text.contains(['/', '\\', '~']) && !text.starts_with('.')
        };
        let is_there = |text: &str| {
            let from = |dir: &String| self.root.has_entry(&format!("{dir}/{text}"));
            self.root.has_entry(text) || self.dirs.iter().any(from)
        };
        let texts = texts.map(|text| text.trim_matches(['@', ' ']));
        self.locate_texts(texts.filter(|text| !is_code(text) || is_there(text)))
    }

    /// Returns the places that words of the commands may name.
    pub(crate) fn command_places(&self) -> &[ResolvedPath] {
        self.spoken
            .get_or_init(|| self.locate_texts(self.command_words().iter().map(String::as_str)))
    }

    /// Returns the texts that a shell or a tool may expand to other paths.
    pub(crate) fn glob_texts(&self) -> impl Iterator<Item = &str> {
        let named = self.named.iter().map(|(text, _)| &**text);
        let all = named
            .chain(self.texts.iter().copied())
            .chain(self.command_words().iter().map(String::as_str));
        all.filter(|text| text.contains(['*', '?', '[']))
    }

    /// Checks whether a word may be a path. `build` in `cargo build` is one only if it exists.
    fn may_be_path(&self, word: &str) -> bool {
        word.contains(['/', '.', '~', '\\', ':', '@'])
            || may_be_key_file(word)
            || self.root.has_entry(word)
    }

    /// Returns the places that texts may lead to, from the root and from every directory that the
    /// call names.
    fn locate_texts<'t>(&self, texts: impl Iterator<Item = &'t str>) -> Vec<ResolvedPath> {
        let mut places = Vec::new();
        let mut dirs = self.dirs.clone();
        shell::add_directories(
            self.commands.iter().flat_map(CallCommand::possible_runs),
            &mut dirs,
            MAX_DIRECTORIES,
        );
        for text in texts {
            // Beyond the limit only the spelling counts: a large call must not cost thousands of
            // file lookups.
            let cheap = places.len() >= MAX_LOOKUPS;
            let find = |text: &str| {
                if cheap {
                    self.root.spelled_place(text)
                } else {
                    self.root
                        .resolve_path(text)
                        .unwrap_or_else(|_| self.root.spelled_place(text))
                }
            };
            if cheap || self.may_be_path(text) {
                places.push(find(text));
            }
            if is_relative(text) {
                let most = if cheap {
                    MAX_DIRECTORIES / 4
                } else {
                    MAX_DIRECTORIES
                };
                places.extend(
                    dirs.iter()
                        .take(most)
                        .map(|dir| find(&format!("{dir}/{text}"))),
                );
            }
        }
        places
    }

    /// Resolves the named paths.
    pub(super) fn resolve_named_paths(&mut self) {
        let mut more = Vec::new();
        for (text, means) in &self.named {
            let from_dirs = self
                .dirs
                .iter()
                .filter(|dir| is_relative(text) && *dir != text);
            let from_dirs = from_dirs.map(|dir| Cow::Owned(format!("{dir}/{text}")));
            for text in [Cow::Borrowed(&**text)].into_iter().chain(from_dirs) {
                if more.len() >= 2 * MAX_EXAMINED {
                    self.crowded = true;
                    break;
                }
                match self.root.resolve_path(&text) {
                    Ok(place) => more.push(place),
                    // Source code in an argument called `source` is not a path, and no path of that
                    // length can be opened.
                    Err(PathError::TooLong) if *means == ArgumentRole::PossiblePath => {
                        self.paths_certain = false
                    }
                    Err(_) => self.lost = true,
                }
            }
        }
        self.places = more;
        if self.commands.is_empty() {
            return;
        }
        // In another directory the same words may run other programs.
        let elsewhere = |dir: &String| {
            !self
                .root
                .resolve_path(dir)
                .is_ok_and(|place| place.is_inside_root())
        };
        let elsewhere = self.dirs.iter().any(elsewhere);
        for command in &mut self.commands {
            if self.surrounded {
                command.reading.doubt("another argument changes it");
            }
            if self.surrounded || elsewhere {
                command.runs = None;
            }
        }
    }
}

fn is_relative(text: &str) -> bool {
    !text.starts_with(['/', '~', '\\', '-']) && !text.contains("://")
}

/// Checks whether a word may be the name of a private key or `_netrc`, which have no dot.
pub(super) fn may_be_key_file(word: &str) -> bool {
    let start = |start: &str| {
        word.get(..start.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(start))
    };
    start("id_") || start("_netrc")
}
