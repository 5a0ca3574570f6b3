//! Scripts as files: scenarios written by hand.

use std::{fmt, num::NonZeroUsize, path::Path, time::Duration};

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use toolgate_core::{
    FinishReason, HumanDuration, ModelErrorKind, ModelName, Usage, backticked_words,
    line_and_column,
};

use crate::{
    LineCondition, ScriptLine, ScriptedModel,
    scripted::script::{LineRepeat, ResultCondition, ScriptFailure, ScriptPart},
};

/// Loads scripts from files.
///
/// ```
/// let model = toolgate_models::ScriptedModel::from_toml(r#"
///     model = "scripted:captain"       # its name; optional, like everything but [[reply]]
///     chunk = 8                        # characters per delta
///     delay = "40ms"                   # before each delta, if the model plays in real time
///
///     [[reply]]
///     reasoning = "The user wants to know what is here."
///     text = "Let me look."
///     calls = [{ tool = "list_dir", arguments = { path = "." } }, { tool = "read_file", arguments = { path = "README.md" } }]
///     usage = { input = 120, output = 30 }
///
///     [[reply]]                        # when retried after this, the model continues with the next reply
///     error = { kind = "overloaded", detail = "try again", retry_after = "500ms" }
///
///     [[reply]]                        # an alternative to the reply after it
///     when = { tool_result = { tool = "list_dir", contains = "Cargo.toml" } }
///     text = "A Rust project."
///
///     [[reply]]
///     text = "I cannot tell."
///
///     [[reply]]
///     repeat = "always"                # or a number
///     text = "That was all."
/// "#)?;
/// # Ok::<(), toolgate_models::ScenarioError>(())
/// ```
///
/// A `when` may have `last_contains`, `user_contains`, `tool_shown` and `tool_result` (`tool`,
/// `contains`, `is_error`). Arguments given as a string are sent as they are, so that a script can
/// send invalid ones. A scenario in JSON has the same keys.
impl ScriptedModel {
    /// Loads a scenario from a file: JSON if its name ends in `.json`, otherwise TOML.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ScenarioError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(source) => return Err(ScenarioError::Unreadable { name, source }),
        };
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            parse_json_scenario(&name, &text)
        } else {
            parse_toml_scenario(&name, &text)
        }
    }

    /// Parses a scenario in TOML.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        parse_toml_scenario("scenario.toml", text)
    }

    /// Parses a scenario in JSON.
    pub fn from_json(text: &str) -> Result<Self, ScenarioError> {
        parse_json_scenario("scenario.json", text)
    }
}

/// The reason why a scenario was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The file could not be read.
    #[error("{name}: the scenario cannot be read: {source}")]
    Unreadable {
        /// The path of the file.
        name: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The content of the file is invalid.
    #[error("{place}: {problem}")]
    Invalid {
        /// File, line and column, or file and reply.
        place: String,
        /// The problem.
        problem: String,
        /// A suggestion for a fix, if there is one.
        hint: Option<String>,
    },
}

impl ScenarioError {
    /// Returns a suggestion for a fix, if there is one.
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

    /// Converts a serde message about `path`: `unknown field`, `unknown variant`, or an invalid
    /// value.
    fn from_serde(place: String, path: &str, message: &str) -> Self {
        let unknown = [("unknown field ", "key"), ("unknown variant ", "word")];
        let found = unknown.iter().find_map(|(start, what)| {
            Some((what, backticked_words(message.strip_prefix(start)?)?))
        });
        let owner = if path.is_empty() {
            "the scenario"
        } else {
            path
        };
        let Some((what, (word, known))) = found else {
            let colon = if path.is_empty() { "" } else { ": " };
            return Self::invalid(place, format!("{path}{colon}{message}"));
        };
        let near = nearest_word(word, &known)
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
struct ScenarioFile {
    model: Option<String>,
    chunk: Option<NonZeroUsize>,
    delay: Option<HumanDuration>,
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
    finish: Option<FinishReason>,
    error: Option<ErrorTable>,
    when: Option<WhenTable>,
    #[serde(default, deserialize_with = "deserialize_repeat")]
    repeat: Option<LineRepeat>,
    delay: Option<HumanDuration>,
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
    retry_after: Option<HumanDuration>,
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

fn parse_json_scenario(name: &str, text: &str) -> Result<ScriptedModel, ScenarioError> {
    let scenario: ScenarioFile = serde_json::from_str(text).map_err(|error| {
        let place = format!("{name}:{}:{}", error.line(), error.column());
        let message = error.to_string();
        let message = message
            .rsplit_once(" at line ")
            .map_or(message.as_str(), |(message, _)| message);
        ScenarioError::from_serde(place, "", message)
    })?;
    scenario.into_model(name)
}

fn parse_toml_scenario(name: &str, text: &str) -> Result<ScriptedModel, ScenarioError> {
    let scenario: ScenarioFile = toml::from_str(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0).start;
        let (line, column) = line_and_column(text, at);
        let path = DeTable::parse(text)
            .map(|table| path_at(&table, at))
            .unwrap_or_default();
        let message = error.message();
        // An unknown key is not the position itself but stands in it, so the owner is named.
        let path = if message.starts_with("unknown field") {
            path.rsplit_once('.').map_or("", |(owner, _)| owner)
        } else {
            &path
        };
        ScenarioError::from_serde(format!("{name}:{line}:{column}"), path, message)
    })?;
    scenario.into_model(name)
}

impl ScenarioFile {
    fn into_model(self, name: &str) -> Result<ScriptedModel, ScenarioError> {
        let pause = self.delay.map(HumanDuration::get);
        let mut lines: Vec<ScriptLine> = Vec::with_capacity(self.reply.len());
        for (at, reply) in self.reply.into_iter().enumerate() {
            let place = || format!("{name}: reply {}", at + 1);
            if lines
                .last()
                .is_some_and(|line| line.when.is_none() && line.repeat == LineRepeat::Always)
            {
                return Err(ScenarioError::invalid(
                    place(),
                    "is never reached: the reply before it is always repeated",
                ));
            }
            let line = reply
                .into_line(pause)
                .map_err(|problem| ScenarioError::invalid(place(), problem))?;
            lines.push(line);
        }
        let mut model = ScriptedModel::new(lines);
        if let Some(wanted) = self.model {
            let wanted: ModelName = wanted.parse().map_err(|error| {
                ScenarioError::invalid(name.to_owned(), format!("model: {error}"))
            })?;
            model = model.named(wanted);
        }
        Ok(self.chunk.into_iter().fold(model, ScriptedModel::chunk))
    }
}

impl ReplyTable {
    fn into_line(self, pause: Option<Duration>) -> Result<ScriptLine, &'static str> {
        if self.text.is_none()
            && self.reasoning.is_none()
            && self.calls.is_empty()
            && self.error.is_none()
        {
            return Err("is empty; give it text, reasoning, calls or error");
        }
        if self.when.is_some() && self.error.is_none() && self.repeat.is_some() {
            return Err("has `when` and `repeat`; set `repeat` on the last of the alternatives");
        }
        let mut spoken: Vec<ScriptPart> = self
            .reasoning
            .into_iter()
            .map(ScriptPart::Reasoning)
            .collect();
        spoken.extend(self.text.into_iter().map(ScriptPart::Text));
        for call in self.calls {
            spoken.push(call.into_part()?);
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
        Ok(ScriptLine {
            spoken,
            usage,
            failure: self.error.map(ErrorTable::into_failure),
            when: self.when.map(WhenTable::into_condition),
            repeat: self.repeat.unwrap_or_default(),
            finish: self.finish,
            pause: self.delay.map(HumanDuration::get).or(pause),
        })
    }
}

impl CallTable {
    fn into_part(self) -> Result<ScriptPart, &'static str> {
        let arguments = match self.arguments {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text,
            value if has_date(&value) => {
                return Err("has an unquoted date in its arguments; JSON has no dates");
            }
            value => value.to_string(),
        };
        Ok(ScriptPart::Call {
            id: self.id,
            tool: self.tool,
            arguments,
        })
    }
}

impl ErrorTable {
    fn into_failure(self) -> ScriptFailure {
        let retry_after = self.retry_after.map(HumanDuration::get);
        ScriptFailure {
            kind: self.kind,
            detail: self.detail,
            status: self.status,
            retry_after,
        }
    }
}

impl WhenTable {
    fn into_condition(self) -> LineCondition {
        let result = |table: ResultTable| ResultCondition {
            tool: table.tool,
            contains: table.contains,
            is_error: table.is_error,
        };
        LineCondition {
            last_contains: self.last_contains,
            user_contains: self.user_contains,
            tool_shown: self.tool_shown,
            tool_result: self.tool_result.map(result),
        }
    }
}

/// Deserializes a repeat count: a number, or `"always"`.
fn deserialize_repeat<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<LineRepeat>, D::Error> {
    struct RepeatVisitor;
    impl de::Visitor<'_> for RepeatVisitor {
        type Value = LineRepeat;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number of at least 1 or \"always\"")
        }
        fn visit_u64<E: de::Error>(self, times: u64) -> Result<LineRepeat, E> {
            let times = usize::try_from(times).ok().filter(|times| *times > 0);
            times
                .map(LineRepeat::Times)
                .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(0), &self))
        }
        fn visit_i64<E: de::Error>(self, times: i64) -> Result<LineRepeat, E> {
            let wrong = |_| E::invalid_value(de::Unexpected::Signed(times), &self);
            u64::try_from(times)
                .map_err(wrong)
                .and_then(|times| RepeatVisitor.visit_u64(times))
        }
        fn visit_str<E: de::Error>(self, word: &str) -> Result<LineRepeat, E> {
            match word {
                "always" => Ok(LineRepeat::Always),
                other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
            }
        }
    }
    deserializer.deserialize_any(RepeatVisitor).map(Some)
}

/// Returns the innermost key or entry at an offset of the file, as in `reply[1].calls[0].tool`.
fn path_at(table: &Spanned<DeTable<'_>>, at: usize) -> String {
    let mut path = String::new();
    for (key, value) in table.get_ref() {
        if key.span().contains(&at) || covers_offset(value, at) {
            path = key.get_ref().to_string();
            extend_path(value.get_ref(), at, &mut path);
        }
    }
    path
}

fn extend_path(value: &DeValue<'_>, at: usize, path: &mut String) {
    match value {
        DeValue::Table(table) => {
            let found = table
                .iter()
                .find(|(key, value)| key.span().contains(&at) || covers_offset(value, at));
            if let Some((key, value)) = found {
                path.push('.');
                path.push_str(key.get_ref());
                extend_path(value.get_ref(), at, path);
            }
        }
        DeValue::Array(items) => {
            if let Some((index, item)) = items
                .iter()
                .enumerate()
                .find(|(_, item)| covers_offset(item, at))
            {
                path.push_str(&format!("[{index}]"));
                extend_path(item.get_ref(), at, path);
            }
        }
        _ => {}
    }
}

/// Checks whether a value or something in it covers an offset. A table of a `[[list]]` is wider
/// than its header.
fn covers_offset(value: &Spanned<DeValue<'_>>, at: usize) -> bool {
    let within = match value.get_ref() {
        DeValue::Table(table) => table
            .iter()
            .any(|(key, value)| key.span().contains(&at) || covers_offset(value, at)),
        DeValue::Array(items) => items.iter().any(|item| covers_offset(item, at)),
        _ => false,
    };
    within || value.span().contains(&at)
}

/// Checks for dates: TOML has them and JSON does not; a date deserialized as JSON is a table with
/// this key.
fn has_date(value: &Value) -> bool {
    match value {
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| key == "$__toml_private_datetime" || has_date(value)),
        Value::Array(items) => items.iter().any(has_date),
        _ => false,
    }
}

fn nearest_word<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let closeness = |known: &&&str| strsim::jaro_winkler(word, known);
    let best = known
        .iter()
        .max_by(|a, b| closeness(a).total_cmp(&closeness(b)))?;
    (closeness(&best) > 0.6).then_some(*best)
}

#[cfg(test)]
mod tests;
