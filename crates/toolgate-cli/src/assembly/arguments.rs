//! The arguments of a call on the command line: JSON, a file with JSON, or `key=value` words.

use std::{
    fs,
    io::{self, Read},
};

use clap::Args;
use serde_json::{Map, Value};
use toolgate::value::Schema;

use crate::CliError;

/// A tool and the arguments of a call.
#[derive(Debug, Clone, Args)]
pub struct CallArgs {
    /// The tool
    #[arg(value_name = "TOOL")]
    pub tool: String,
    /// Arguments: JSON, @FILE with JSON (@- is the standard input), key=value or key=@FILE
    #[arg(value_name = "ARGUMENTS")]
    pub arguments: Vec<String>,
}

impl CallArgs {
    /// Parses the arguments with the help of the tool's schema; later words override earlier ones.
    pub(crate) fn parse_arguments(&self, schema: Option<&Schema>) -> Result<Value, CliError> {
        let mut read = Map::new();
        for word in &self.arguments {
            read.extend(parse_word(word, schema)?);
        }
        Ok(Value::Object(read))
    }
}

fn parse_word(word: &str, schema: Option<&Schema>) -> Result<Map<String, Value>, CliError> {
    if word.trim_start().starts_with('{') {
        return parse_object(word, "the arguments");
    }
    if let Some(file) = word.strip_prefix('@') {
        return parse_object(&read_text(file)?, file);
    }
    match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            let value = match value.strip_prefix('@') {
                Some(file) => Value::String(read_text(file)?),
                None => parse_value(value, property_schema(schema, key)),
            };
            Ok(Map::from_iter([(key.to_owned(), value)]))
        }
        Some(_) | None => Err(
            CliError::usage(format!("{word:?} is neither JSON nor key=value"))
                .with_hint(ARGUMENTS_HINT),
        ),
    }
}

const ARGUMENTS_HINT: &str =
    "write path=README.md limit=20, or '{\"path\": \"README.md\"}', or @arguments.json";

fn parse_object(text: &str, whose: &str) -> Result<Map<String, Value>, CliError> {
    serde_json::from_str(text)
        .map_err(|error| CliError::usage(format!("{whose}: {error}")).with_hint(ARGUMENTS_HINT))
}

fn property_schema<'a>(schema: Option<&'a Schema>, key: &str) -> Option<&'a Value> {
    schema?.as_json().as_value().get("properties")?.get(key)
}

/// Parses a value: text where the schema wants a string, otherwise JSON if it parses as JSON, else
/// text.
fn parse_value(text: &str, property: Option<&Value>) -> Value {
    let kind = property.and_then(|property| property.get("type"));
    // `name=007` is the text "007", not the number 7.
    if kind.is_some_and(|kind| kind == "string") {
        return Value::String(text.to_owned());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn read_text(file: &str) -> Result<String, CliError> {
    let mut text = String::new();
    let read = match file {
        "-" => io::stdin().read_to_string(&mut text).map(|_| text),
        path => fs::read_to_string(path),
    };
    read.map_err(|error| {
        CliError::usage(format!("{file}: {error}"))
            .with_hint("@FILE names a text file; @- reads the input")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse_words(words: &[&str]) -> Result<Value, CliError> {
        let schema = json!({ "type": "object", "properties": {
            "name": { "type": "string" }, "count": { "type": "integer" }, "tags": { "type": "array" },
        } });
        let arguments = words.iter().map(|word| (*word).to_owned()).collect();
        let call = CallArgs {
            tool: "t".to_owned(),
            arguments,
        };
        call.parse_arguments(Some(&Schema::new(schema).expect("a schema")))
    }

    #[test]
    fn a_value_has_the_type_that_the_schema_names() {
        let read = parse_words(&["name=007", "count=7", "tags=[1]", "other=x=y", "flag=true"])
            .expect("reads");
        assert_eq!(
            read,
            json!({ "name": "007", "count": 7, "tags": [1], "other": "x=y", "flag": true })
        );
    }

    #[test]
    fn json_files_and_words_are_merged_and_the_last_one_wins() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a.json");
        fs::write(&file, r#"{"count": 2}"#).expect("written");
        let at = format!("@{}", file.display());
        let from_file = format!("name=@{}", file.display());
        let read = parse_words(&[r#"{"count": 1, "name": "a"}"#, &at, &from_file]).expect("reads");
        assert_eq!(read, json!({ "count": 2, "name": r#"{"count": 2}"# }));
    }

    #[test]
    fn invalid_arguments_are_rejected_with_a_hint() {
        for wrong in ["{\"a\":", "[1]", "words", "=x", "@/no/such/file"] {
            let error = parse_words(&[wrong]).expect_err(wrong);
            assert!(
                error.hint_text().is_some() && error.exit_status() == crate::Exit::Usage,
                "{wrong}"
            );
        }
    }
}
