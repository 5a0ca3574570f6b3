//! Configuration errors: the position, the problem and the nearest valid word.

use std::{fmt, ops::Range, sync::Arc};

use toml::{Spanned, de::DeValue};
use toolgate_core::{StackError, backticked_words, line_and_column};

/// The error for an invalid configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    place: String,
    problem: String,
    hint: Option<String>,
}

impl ConfigError {
    /// Returns the file and line, or the environment variable.
    pub fn location(&self) -> &str {
        &self.place
    }

    /// Returns the problem.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// Returns a next step, if there is one.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Creates the error for a resource that no layer takes.
    pub(crate) fn unused_resource(name: &str) -> Self {
        Self {
            place: "the resources".to_owned(),
            problem: format!("no layer takes a `{name}`"),
            hint: Some(
                "what bundled layers take has a setter, such as Resources::store".to_owned(),
            ),
        }
    }

    /// Creates the error for a file that cannot be read.
    pub(crate) fn unreadable_file(name: &str, error: &std::io::Error) -> Self {
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

/// The error for a stack that could not be built from a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The layers are out of order.
    #[error("{0}; if the position is intended, list the layer in stack.allow_out_of_band")]
    Stack(#[from] StackError),
}

/// The file behind a configuration, and what overrides it.
#[derive(Debug, Clone)]
pub(crate) struct ConfigOrigin {
    name: String,
    text: Arc<str>,
    /// The places of values that are not from the file.
    overrides: Vec<String>,
}

/// Positions from here on stand for overrides, not for bytes of the file.
const FIRST_OVERRIDE_POSITION: usize = usize::MAX / 2;

impl ConfigOrigin {
    /// Creates the origin of a file without overrides.
    pub(crate) fn for_file(name: &str, text: &str) -> Self {
        Self {
            name: name.to_owned(),
            text: text.into(),
            overrides: Vec::new(),
        }
    }

    /// Registers a variable and returns its position.
    pub(crate) fn add_variable(&mut self, name: &str) -> Range<usize> {
        self.add_override(format!("the variable {name}"))
    }

    /// Registers the program that changes the configuration and returns its position.
    pub(crate) fn add_program(&mut self) -> Range<usize> {
        self.add_override(format!("{} as changed by the program", self.name))
    }

    fn add_override(&mut self, place: String) -> Range<usize> {
        self.overrides.push(place);
        let position = FIRST_OVERRIDE_POSITION + self.overrides.len() - 1;
        position..position + 1
    }

    /// Formats a position as `file:line:column`, or as the variable or program that overrides it.
    fn format_position(&self, span: &Range<usize>) -> String {
        if let Some(place) = span
            .start
            .checked_sub(FIRST_OVERRIDE_POSITION)
            .and_then(|at| self.overrides.get(at))
        {
            return place.clone();
        }
        let (line, column) = line_and_column(&self.text, span.start);
        format!("{}:{line}:{column}", self.name)
    }

    /// Creates an error at a position.
    pub(crate) fn error_at(
        &self,
        span: &Range<usize>,
        problem: impl Into<String>,
        hint: Option<String>,
    ) -> ConfigError {
        ConfigError {
            place: self.format_position(span),
            problem: problem.into(),
            hint,
        }
    }

    /// Creates the error for an unknown word, with the nearest known one.
    pub(crate) fn unknown_word<'a>(
        &self,
        span: &Range<usize>,
        owner: &str,
        what: &str,
        word: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> ConfigError {
        let known: Vec<_> = known.into_iter().collect();
        let nearest = nearest_word(word, &known)
            .map_or_else(String::new, |near| format!("; the nearest is `{near}`"));
        let problem = format!("{owner} has no {what} `{word}`{nearest}");
        self.error_at(span, problem, Some(format!("known: {}", known.join(", "))))
    }

    /// Creates the error for an override of a key inside a plain value.
    pub(crate) fn not_a_table(&self, span: &Range<usize>, key: &str) -> ConfigError {
        self.error_at(span, format!("`{key}` is a value, not a table"), None)
    }

    /// Converts an error of the TOML parser.
    pub(crate) fn toml_error(&self, error: &toml::de::Error, path: &str) -> ConfigError {
        self.error_at(
            &error.span().unwrap_or(0..0),
            format!("{path}: {}", error.message()),
            None,
        )
    }

    /// Converts an error of serde about `value`, which is at `path` and may also have the `common`
    /// keys.
    pub(crate) fn options_error(
        &self,
        error: &toml::de::Error,
        path: &str,
        value: &Spanned<DeValue<'_>>,
        common: &[&str],
    ) -> ConfigError {
        let span = error.span().unwrap_or(0..0);
        let message = error.message();
        let mut seats = Vec::new();
        collect_locations(value.get_ref(), path, &mut seats);
        // serde says: unknown field `x`, expected one of `a`, `b` / expected `a` / there are no
        // fields.
        if let Some((word, known)) = message
            .strip_prefix("unknown field ")
            .and_then(backticked_words)
        {
            let seat = seats
                .iter()
                .find(|seat| seat.key == word && seat.key_span == span);
            let owner = seat.map_or(path, |seat| &seat.owner);
            // Only the table of the layer itself has the common keys.
            let common = if owner == path { common } else { &[] };
            return self.unknown_word(
                &span,
                owner,
                "option",
                word,
                known.iter().chain(common).copied(),
            );
        }
        // All values of one variable share its position; the innermost is the one that could not be
        // read.
        let seat = seats.iter().rfind(|seat| seat.value_span == span);
        let path = seat.map_or_else(|| path.to_owned(), ValueLocation::path);
        if let Some((word, known)) = message
            .strip_prefix("unknown variant ")
            .and_then(backticked_words)
        {
            // The word may also be a key, as in a table by status.
            let owner = seats
                .iter()
                .find(|seat| seat.key == word && seat.key_span == span)
                .map(|seat| &*seat.owner);
            return self.unknown_word(
                &span,
                owner.unwrap_or(&path),
                "word",
                word,
                known.iter().copied(),
            );
        }
        let problem = describe_type_mismatch(message).map_or_else(
            || format!("{path}: {message}"),
            |misfit| format!("{path} {misfit}"),
        );
        self.error_at(&span, problem, None)
    }
}

/// A key of a table or an entry of a list, with its position.
struct ValueLocation {
    owner: String,
    key: String,
    key_span: Range<usize>,
    value_span: Range<usize>,
}

impl ValueLocation {
    /// Returns the dotted path of the value.
    fn path(&self) -> String {
        let dot = if self.key.starts_with('[') { "" } else { "." };
        format!("{}{dot}{}", self.owner, self.key)
    }
}

/// Collects everything in `value`, parents before their children.
fn collect_locations(value: &DeValue<'_>, owner: &str, seats: &mut Vec<ValueLocation>) {
    let mut add = |key: String, key_span: Range<usize>, value: &Spanned<DeValue<'_>>| {
        let seat = ValueLocation {
            owner: owner.to_owned(),
            key,
            key_span,
            value_span: value.span(),
        };
        let path = seat.path();
        seats.push(seat);
        collect_locations(value.get_ref(), &path, seats);
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

/// Translates serde's message about a value of the wrong type from terms of Rust into terms of the
/// file.
fn describe_type_mismatch(message: &str) -> Option<String> {
    if let Some((key, _)) = message
        .strip_prefix("missing field ")
        .and_then(backticked_words)
    {
        return Some(format!("has no `{key}`, which is required"));
    }
    if message == "wanted string or table" {
        return Some("takes a string in quotes or a table".to_owned());
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
        other => backticked_words(other).map_or(other, |(value, _)| value),
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
        "a string" | "string" | "a borrowed string" => "a string in quotes",
        nonzero if nonzero.starts_with("a nonzero u") => "a whole number of at least 1",
        table if table == "a map" || table.starts_with("struct ") => "a table",
        other => other,
    };
    Some(format!("takes {expected}, not {found}"))
}

/// Returns the known word that is most similar to `word`, if any is similar at all.
pub(crate) fn nearest_word<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let closeness = |known: &&&str| strsim::jaro_winkler(&word, &known.to_lowercase());
    let best = known
        .iter()
        .max_by(|a, b| closeness(a).total_cmp(&closeness(b)))?;
    // Below this similarity a suggestion is more confusing than helpful.
    (closeness(&best) > 0.6).then_some(*best)
}
