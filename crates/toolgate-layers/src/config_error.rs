//! Where in a configuration something is wrong, what, and what would be right.

use std::{fmt, ops::Range, sync::Arc};

use toml::{Spanned, de::DeValue};
use toolgate_core::StackError;

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
        Self {
            place: name.to_owned(),
            problem: format!("cannot be read: {error}"),
            hint,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// Why no stack could be built from a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The layers do not stand in order.
    #[error("{0}; a layer that is meant to stand there is listed in stack.allow_out_of_band")]
    Stack(#[from] StackError),
}

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
        Self {
            name: name.to_owned(),
            text: text.into(),
            variables: Vec::new(),
        }
    }

    /// The place of a variable.
    pub(crate) fn variable(&mut self, name: &str) -> Range<usize> {
        self.variables.push(name.to_owned());
        let place = VARIABLES + self.variables.len() - 1;
        place..place + 1
    }

    fn place(&self, span: &Range<usize>) -> String {
        if let Some(variable) = span
            .start
            .checked_sub(VARIABLES)
            .and_then(|at| self.variables.get(at))
        {
            return format!("the variable {variable}");
        }
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        format!("{}:{line}:{column}", self.name)
    }

    pub(crate) fn error(
        &self,
        span: &Range<usize>,
        problem: impl Into<String>,
        hint: Option<String>,
    ) -> ConfigError {
        ConfigError {
            place: self.place(span),
            problem: problem.into(),
            hint,
        }
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
        let nearest = nearest(word, &known)
            .map_or_else(String::new, |near| format!("; the nearest is `{near}`"));
        let problem = format!("{owner} has no {what} `{word}`{nearest}");
        self.error(
            span,
            problem,
            Some(format!("known are {}", known.join(", "))),
        )
    }

    /// An error of the parser.
    pub(crate) fn toml(&self, error: &toml::de::Error, path: &str) -> ConfigError {
        self.error(
            &error.span().unwrap_or(0..0),
            format!("{path}: {}", error.message()),
            None,
        )
    }

    /// An error of serde about `value`, which stands at `path` and may also have the `common` keys.
    pub(crate) fn options(
        &self,
        error: &toml::de::Error,
        path: &str,
        value: &Spanned<DeValue<'_>>,
        common: &[&str],
    ) -> ConfigError {
        let (span, message) = (error.span().unwrap_or(0..0), error.message());
        let mut seats = Vec::new();
        seats_in(value.get_ref(), path, &mut seats);
        // serde says: unknown field `x`, expected one of `a`, `b` / expected `a` / there are no fields.
        if let Some((word, known)) = message.strip_prefix("unknown field ").and_then(words) {
            let seat = seats
                .iter()
                .find(|seat| seat.key == word && seat.key_span == span);
            let owner = seat.map_or(path, |seat| &seat.owner);
            // Only the table of the layer itself has the common keys.
            let common = if owner == path { common } else { &[] };
            return self.unknown(
                &span,
                owner,
                "option",
                word,
                known.iter().chain(common).copied(),
            );
        }
        // Of several that come from one variable, the innermost is the one that could not be read.
        let seat = seats.iter().rfind(|seat| seat.value_span == span);
        let path = seat.map_or_else(|| path.to_owned(), Seat::path);
        if let Some((word, known)) = message.strip_prefix("unknown variant ").and_then(words) {
            // The word may also be a key, as in a table by status.
            let owner = seats
                .iter()
                .find(|seat| seat.key == word && seat.key_span == span)
                .map(|seat| &*seat.owner);
            return self.unknown(
                &span,
                owner.unwrap_or(&path),
                "word",
                word,
                known.iter().copied(),
            );
        }
        let problem = misfit(message).map_or_else(
            || format!("{path}: {message}"),
            |misfit| format!("{path} {misfit}"),
        );
        self.error(&span, problem, None)
    }
}

/// A key of a table or an entry of a list, and where it is written.
struct Seat {
    owner: String,
    key: String,
    key_span: Range<usize>,
    value_span: Range<usize>,
}

impl Seat {
    fn path(&self) -> String {
        let dot = if self.key.starts_with('[') { "" } else { "." };
        format!("{}{dot}{}", self.owner, self.key)
    }
}

/// Lists all that is in `value`, each whole before its parts.
fn seats_in(value: &DeValue<'_>, owner: &str, seats: &mut Vec<Seat>) {
    let mut add = |key: String, key_span: Range<usize>, value: &Spanned<DeValue<'_>>| {
        let seat = Seat {
            owner: owner.to_owned(),
            key,
            key_span,
            value_span: value.span(),
        };
        let path = seat.path();
        seats.push(seat);
        seats_in(value.get_ref(), &path, seats);
    };
    match value {
        DeValue::Table(table) => table
            .iter()
            .for_each(|(key, value)| add(key.get_ref().to_string(), key.span(), value)),
        DeValue::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(at, item)| add(format!("[{at}]"), item.span(), item));
        }
        _ => {}
    }
}

/// The words in backticks: the wrong one and the known ones.
fn words(text: &str) -> Option<(&str, Vec<&str>)> {
    let mut words = text.split('`').skip(1).step_by(2);
    Some((words.next()?, words.collect()))
}

/// What serde says about a value of the wrong type, in the words of a file instead of those of Rust.
fn misfit(message: &str) -> Option<String> {
    if let Some((key, _)) = message.strip_prefix("missing field ").and_then(words) {
        return Some(format!("has no `{key}`, which has to be given"));
    }
    if message == "wanted string or table" {
        return Some("takes a text in quotes or a table".to_owned());
    }
    let rest = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))?;
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let found = match found {
        "map" => "a table",
        "sequence" => "a list",
        text if text.starts_with("string ") => &text["string ".len()..],
        // integer `5`, boolean `true`, floating point `0.5`, integer `5` as i128
        other => words(other).map_or(other, |(value, _)| value),
    };
    let expected = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number of at least 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a string" | "string" | "a borrowed string" => "a text in quotes",
        nonzero if nonzero.starts_with("a nonzero u") => "a whole number of at least 1",
        table if table == "a map" || table.starts_with("struct ") => "a table",
        other => other,
    };
    Some(format!("takes {expected}, not {found}"))
}

/// The known word that is closest to `word`, if any is close at all.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let closeness = |known: &&&str| strsim::jaro_winkler(&word, &known.to_lowercase());
    let best = known
        .iter()
        .max_by(|a, b| closeness(a).total_cmp(&closeness(b)))?;
    (closeness(&best) > 0.6).then_some(*best)
}
