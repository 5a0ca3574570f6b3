//! Scripts as files: a scenario that is pleasant to write by hand.

use std::{fmt, num::NonZeroUsize, path::Path, time::Duration};

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use toolgate_core::{Finish, ModelErrorKind, ModelName, Usage};

use crate::{
    Line, Scripted, When,
    script::{Failure, Repeat, ResultMatch, Spoken},
};

/// Scripts from files.
///
/// ```
/// let model = toolgate_models::Scripted::from_toml(r#"
///     model = "scripted:captain"       # what it is called; may be left out, like everything but [[reply]]
///     chunk = 8                        # characters per piece
///     delay_ms = 40                    # before each piece, if the model plays in real time
///
///     [[reply]]
///     reasoning = "The person wants to know what is here."
///     text = "Let me look."
///     calls = [{ tool = "list_dir", arguments = { path = "." } }, { tool = "read_file", arguments = { path = "README.md" } }]
///     usage = { input = 120, output = 30 }
///
///     [[reply]]                        # asked again after this, the model goes on with the next reply
///     error = { kind = "overloaded", detail = "try again", retry_after_ms = 500 }
///
///     [[reply]]                        # an alternative to the reply after it
///     when = { tool_result = { tool = "list_dir", contains = "Cargo.toml" } }
///     text = "A Rust project."
///
///     [[reply]]
///     text = "I cannot tell."
///
///     [[reply]]
///     repeat = "always"                # or how often
///     text = "That was all."
/// "#)?;
/// # Ok::<(), toolgate_models::ScenarioError>(())
/// ```
///
/// A `when` may ask for `last_contains`, `user_contains`, `tool_shown` and `tool_result` (`tool`, `contains`,
/// `is_error`). Arguments that are a text go out as they are, so that a script can write broken ones. The same keys make
/// up a scenario in JSON.
impl Scripted {
    /// Reads a scenario from a file: JSON if its name ends in `.json`, otherwise TOML.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ScenarioError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(source) => return Err(ScenarioError::Unreadable { name, source }),
        };
        match path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            true => read_json(&name, &text),
            false => read_toml(&name, &text),
        }
    }

    /// Reads a scenario in TOML.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        read_toml("scenario.toml", text)
    }

    /// Reads a scenario in JSON.
    pub fn from_json(text: &str) -> Result<Self, ScenarioError> {
        read_json("scenario.json", text)
    }
}

/// Why a scenario was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The file could not be read.
    #[error("{name}: the scenario cannot be read")]
    Unreadable {
        /// Which file.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// Something is written wrongly.
    #[error("{place}: {problem}")]
    Invalid {
        /// File, line and column, or file and reply.
        place: String,
        /// What is wrong.
        problem: String,
        /// What would be right, if that can be told.
        hint: Option<String>,
    },
}

impl ScenarioError {
    /// What would be right, if there is something to add.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unreadable { .. } => None,
            Self::Invalid { hint, .. } => hint.as_deref(),
        }
    }

    fn invalid(place: String, problem: impl Into<String>) -> Self {
        Self::Invalid {
            place,
            problem: problem.into(),
            hint: None,
        }
    }

    /// What serde says about `path`: `unknown field`, `unknown variant`, or something about a value.
    fn of_serde(place: String, path: &str, message: &str) -> Self {
        let unknown = [("unknown field ", "key"), ("unknown variant ", "word")];
        let found = unknown
            .iter()
            .find_map(|(start, what)| Some((what, quoted(message.strip_prefix(start)?)?)));
        let owner = if path.is_empty() {
            "the scenario"
        } else {
            path
        };
        let Some((what, (word, known))) = found else {
            let colon = if path.is_empty() { "" } else { ": " };
            return Self::invalid(place, format!("{path}{colon}{message}"));
        };
        let near = nearest(word, &known)
            .map_or_else(String::new, |near| format!("; the nearest is `{near}`"));
        let problem = format!("{owner} has no {what} `{word}`{near}");
        Self::Invalid {
            place,
            problem,
            hint: Some(format!("known are {}", known.join(", "))),
        }
    }
}

/// A whole scenario.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    model: Option<String>,
    chunk: Option<NonZeroUsize>,
    delay_ms: Option<u64>,
    #[serde(default)]
    reply: Vec<ReplyTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyTable {
    reasoning: Option<String>,
    text: Option<String>,
    #[serde(default)]
    calls: Vec<CallTable>,
    usage: Option<UsageTable>,
    finish: Option<Finish>,
    error: Option<ErrorTable>,
    when: Option<WhenTable>,
    #[serde(default, deserialize_with = "repeat")]
    repeat: Option<Repeat>,
    delay_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallTable {
    tool: String,
    #[serde(default)]
    arguments: Value,
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct UsageTable {
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
    reasoning: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorTable {
    kind: ModelErrorKind,
    #[serde(default)]
    detail: String,
    status: Option<u16>,
    retry_after_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WhenTable {
    last_contains: Option<String>,
    user_contains: Option<String>,
    tool_shown: Option<String>,
    tool_result: Option<ResultTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultTable {
    tool: Option<String>,
    contains: Option<String>,
    is_error: Option<bool>,
}

fn read_json(name: &str, text: &str) -> Result<Scripted, ScenarioError> {
    let scenario: Scenario = serde_json::from_str(text).map_err(|error| {
        let place = format!("{name}:{}:{}", error.line(), error.column());
        let message = error.to_string();
        let message = message
            .rsplit_once(" at line ")
            .map_or(message.as_str(), |(message, _)| message);
        ScenarioError::of_serde(place, "", message)
    })?;
    scenario.model(name)
}

fn read_toml(name: &str, text: &str) -> Result<Scripted, ScenarioError> {
    let scenario: Scenario = toml::from_str(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0).start;
        let before = text.get(..at).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        let path = DeTable::parse(text)
            .map(|table| path_at(&table, at))
            .unwrap_or_default();
        let message = error.message();
        // An unknown key is not the place but stands in it.
        let path = match message.starts_with("unknown field") {
            true => path.rsplit_once('.').map_or("", |(owner, _)| owner),
            false => &path,
        };
        ScenarioError::of_serde(format!("{name}:{line}:{column}"), path, message)
    })?;
    scenario.model(name)
}

impl Scenario {
    fn model(self, name: &str) -> Result<Scripted, ScenarioError> {
        let pause = self.delay_ms.map(Duration::from_millis);
        let mut lines: Vec<Line> = Vec::with_capacity(self.reply.len());
        for (at, reply) in self.reply.into_iter().enumerate() {
            let place = || format!("{name}: reply {}", at + 1);
            if lines
                .last()
                .is_some_and(|line| line.when.is_none() && line.repeat == Repeat::Always)
            {
                return Err(ScenarioError::invalid(
                    place(),
                    "is never reached: the one before it is repeated always",
                ));
            }
            let line = reply
                .line(pause)
                .map_err(|problem| ScenarioError::invalid(place(), problem))?;
            lines.push(line);
        }
        let mut model = Scripted::new(lines);
        if let Some(wanted) = self.model {
            let wanted: ModelName = wanted.parse().map_err(|error| {
                ScenarioError::invalid(name.to_owned(), format!("model: {error}"))
            })?;
            model = model.named(wanted);
        }
        Ok(self.chunk.into_iter().fold(model, Scripted::chunk))
    }
}

impl ReplyTable {
    fn line(self, pause: Option<Duration>) -> Result<Line, &'static str> {
        if self.text.is_none()
            && self.reasoning.is_none()
            && self.calls.is_empty()
            && self.error.is_none()
        {
            return Err("says nothing; give it text, reasoning, calls or error");
        }
        if self.when.is_some() && self.error.is_none() && self.repeat.is_some() {
            return Err(
                "has `when` and `repeat`; the reply that it is an alternative to says how often",
            );
        }
        let mut spoken: Vec<Spoken> = self.reasoning.into_iter().map(Spoken::Reasoning).collect();
        spoken.extend(self.text.into_iter().map(Spoken::Text));
        for call in self.calls {
            spoken.push(call.spoken()?);
        }
        let usage = self.usage.map(
            |UsageTable {
                 input,
                 cache_read,
                 cache_write,
                 output,
                 reasoning,
             }| Usage {
                input,
                cache_read,
                cache_write,
                output,
                reasoning,
            },
        );
        Ok(Line {
            spoken,
            usage,
            failure: self.error.map(ErrorTable::failure),
            when: self.when.map(WhenTable::when),
            repeat: self.repeat.unwrap_or_default(),
            finish: self.finish,
            pause: self.delay_ms.map(Duration::from_millis).or(pause),
        })
    }
}

impl CallTable {
    fn spoken(self) -> Result<Spoken, &'static str> {
        let arguments = match self.arguments {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text,
            value if has_date(&value) => {
                return Err("has a date without quotes in its arguments; JSON has no dates");
            }
            value => value.to_string(),
        };
        Ok(Spoken::Call {
            id: self.id,
            tool: self.tool,
            arguments,
        })
    }
}

impl ErrorTable {
    fn failure(self) -> Failure {
        let retry_after = self.retry_after_ms.map(Duration::from_millis);
        Failure {
            kind: self.kind,
            detail: self.detail,
            status: self.status,
            retry_after,
        }
    }
}

impl WhenTable {
    fn when(self) -> When {
        let result = |table: ResultTable| ResultMatch {
            tool: table.tool,
            contains: table.contains,
            is_error: table.is_error,
        };
        When {
            last_contains: self.last_contains,
            user_contains: self.user_contains,
            tool_shown: self.tool_shown,
            tool_result: self.tool_result.map(result),
        }
    }
}

/// Reads how often: a number, or `"always"`.
fn repeat<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Repeat>, D::Error> {
    struct HowOften;
    impl de::Visitor<'_> for HowOften {
        type Value = Repeat;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number of at least 1 or \"always\"")
        }
        fn visit_u64<E: de::Error>(self, times: u64) -> Result<Repeat, E> {
            let times = usize::try_from(times).ok().filter(|times| *times > 0);
            times
                .map(Repeat::Times)
                .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(0), &self))
        }
        fn visit_i64<E: de::Error>(self, times: i64) -> Result<Repeat, E> {
            let wrong = |_| E::invalid_value(de::Unexpected::Signed(times), &self);
            u64::try_from(times)
                .map_err(wrong)
                .and_then(|times| HowOften.visit_u64(times))
        }
        fn visit_str<E: de::Error>(self, word: &str) -> Result<Repeat, E> {
            match word {
                "always" => Ok(Repeat::Always),
                other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
            }
        }
    }
    deserializer.deserialize_any(HowOften).map(Some)
}

/// The innermost key or entry that stands at a place of the file, as in `reply[1].calls[0].tool`.
fn path_at(table: &Spanned<DeTable<'_>>, at: usize) -> String {
    let mut path = String::new();
    for (key, value) in table.get_ref() {
        if key.span().contains(&at) || reaches(value, at) {
            path = key.get_ref().to_string();
            descend(value.get_ref(), at, &mut path);
        }
    }
    path
}

fn descend(value: &DeValue<'_>, at: usize, path: &mut String) {
    match value {
        DeValue::Table(table) => {
            let found = table
                .iter()
                .find(|(key, value)| key.span().contains(&at) || reaches(value, at));
            if let Some((key, value)) = found {
                path.push('.');
                path.push_str(key.get_ref());
                descend(value.get_ref(), at, path);
            }
        }
        DeValue::Array(items) => {
            if let Some((index, item)) =
                items.iter().enumerate().find(|(_, item)| reaches(item, at))
            {
                path.push_str(&format!("[{index}]"));
                descend(item.get_ref(), at, path);
            }
        }
        _ => {}
    }
}

/// Whether a value or something in it stands at a place. A table of a `[[list]]` is wider than its header.
fn reaches(value: &Spanned<DeValue<'_>>, at: usize) -> bool {
    let within = match value.get_ref() {
        DeValue::Table(table) => table
            .iter()
            .any(|(key, value)| key.span().contains(&at) || reaches(value, at)),
        DeValue::Array(items) => items.iter().any(|item| reaches(item, at)),
        _ => false,
    };
    within || value.span().contains(&at)
}

/// TOML has dates and JSON has not; a date that is read as JSON is a table with this key.
fn has_date(value: &Value) -> bool {
    match value {
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| key == "$__toml_private_datetime" || has_date(value)),
        Value::Array(items) => items.iter().any(has_date),
        _ => false,
    }
}

/// The words in backticks: the wrong one and the known ones.
fn quoted(text: &str) -> Option<(&str, Vec<&str>)> {
    let mut words = text.split('`').skip(1).step_by(2);
    Some((words.next()?, words.collect()))
}

fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let closeness = |known: &&&str| strsim::jaro_winkler(word, known);
    let best = known
        .iter()
        .max_by(|a, b| closeness(a).total_cmp(&closeness(b)))?;
    (closeness(&best) > 0.6).then_some(*best)
}

#[cfg(test)]
#[path = "scenario_tests.rs"]
mod tests;
