//! Where in a configuration something is wrong, what, and what would be right.

use std::{fmt, ops::Range, sync::Arc};

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    place: String,
    problem: String,
    hint: Option<String>,
}

impl ConfigError {
    /// The file and line, or the variable.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What is wrong.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What to do about it, if there is something to add.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub(crate) fn unreadable(name: &str, error: &std::io::Error) -> Self {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let hint = missing.then(|| "a relative path starts from the current directory".to_owned());
        Self { place: name.to_owned(), problem: format!("cannot be read: {error}"), hint }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// The file and the variables that a configuration was made from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    name: String,
    text: Arc<str>,
    variables: Vec<String>,
}

/// Places from here on are variables, not bytes of the file.
const VARIABLES: usize = usize::MAX / 2;

impl Origin {
    pub(crate) fn file(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: text.into(), variables: Vec::new() }
    }

    /// The place of a variable.
    pub(crate) fn variable(&mut self, name: &str) -> Range<usize> {
        self.variables.push(name.to_owned());
        let place = VARIABLES + self.variables.len() - 1;
        place..place + 1
    }

    fn place(&self, span: &Range<usize>) -> String {
        if let Some(variable) = span.start.checked_sub(VARIABLES).and_then(|at| self.variables.get(at)) {
            return format!("the variable {variable}");
        }
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{}:{line}:{column}", self.name)
    }

    pub(crate) fn error(&self, span: &Range<usize>, problem: impl Into<String>, hint: Option<String>) -> ConfigError {
        ConfigError { place: self.place(span), problem: problem.into(), hint }
    }

    /// A word that is not on a list, with the nearest one that is.
    pub(crate) fn unknown<'a>(
        &self,
        span: &Range<usize>,
        owner: &str,
        what: &str,
        word: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> ConfigError {
        let known: Vec<_> = known.into_iter().collect();
        let nearest = nearest(word, &known).map_or_else(String::new, |near| format!("; the nearest is `{near}`"));
        let problem = format!("{owner} has no {what} `{word}`{nearest}");
        self.error(span, problem, Some(format!("known are {}", known.join(", "))))
    }

    /// An error of the parser or of serde.
    pub(crate) fn toml(&self, error: &toml::de::Error, path: &str) -> ConfigError {
        self.explained(error, path, &[])
    }

    /// The same for the options of a layer, which also takes the `common` keys.
    pub(crate) fn options(&self, error: &toml::de::Error, path: &str, common: &[&str]) -> ConfigError {
        self.explained(error, path, common)
    }

    fn explained(&self, error: &toml::de::Error, path: &str, common: &[&str]) -> ConfigError {
        let span = error.span().unwrap_or(0..0);
        let message = error.message();
        // serde says: unknown field `x`, expected one of `a`, `b` / expected `a` / there are no fields.
        let unknown = [("unknown field ", "option"), ("unknown variant ", "word")];
        for (begin, what) in unknown {
            let Some(rest) = message.strip_prefix(begin) else { continue };
            let words: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
            let Some((word, known)) = words.split_first() else { continue };
            let common = if what == "option" { common } else { &[] };
            return self.unknown(&span, path, what, word, known.iter().chain(common).copied());
        }
        self.error(&span, format!("{path}: {message}"), None)
    }
}

/// The known word that is closest to `word`, if any is close at all.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let closeness = |known: &&&str| strsim::jaro_winkler(&word, known);
    let best = known.iter().max_by(|a, b| closeness(a).total_cmp(&closeness(b)))?;
    (closeness(&best) > 0.6).then_some(*best)
}
