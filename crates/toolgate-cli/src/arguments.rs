//! The arguments of a call as people write them: JSON, a file with JSON, or `key=value` words.

use std::{
    fs,
    io::{self, Read},
};

use clap::Args;
use serde_json::{Map, Value};
use toolgate::Schema;

use crate::CliError;

/// A tool and what it is to be called with.
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
    /// The arguments, read with the help of the tool's schema; later words win over earlier ones.
    pub(crate) fn read(&self, schema: Option<&Schema>) -> Result<Value, CliError> {
        let mut read = Map::new();
        for word in &self.arguments {
            read.extend(part(word, schema)?);
        }
        Ok(Value::Object(read))
    }
}

fn part(word: &str, schema: Option<&Schema>) -> Result<Map<String, Value>, CliError> {
    if word.trim_start().starts_with('{') {
        return object(word, "the arguments");
    }
    if let Some(file) = word.strip_prefix('@') {
        return object(&text_of(file)?, file);
    }
    match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            let value = match value.strip_prefix('@') {
                Some(file) => Value::String(text_of(file)?),
                None => value_of(value, property(schema, key)),
            };
            Ok(Map::from_iter([(key.to_owned(), value)]))
        }
        Some(_) | None => {
            Err(CliError::usage(format!("{word:?} is neither JSON nor key=value")).hint(HOW))
        }
    }
}

const HOW: &str =
    "write path=README.md limit=20, or '{\"path\": \"README.md\"}', or @arguments.json";

fn object(text: &str, whose: &str) -> Result<Map<String, Value>, CliError> {
    serde_json::from_str(text)
        .map_err(|error| CliError::usage(format!("{whose}: {error}")).hint(HOW))
}

fn property<'a>(schema: Option<&'a Schema>, key: &str) -> Option<&'a Value> {
    schema?.as_json().as_value().get("properties")?.get(key)
}

/// A value that is text where the tool takes only text, and otherwise JSON if it reads as some.
fn value_of(text: &str, property: Option<&Value>) -> Value {
    let kind = property.and_then(|property| property.get("type"));
    if kind.is_some_and(|kind| kind == "string") {
        return Value::String(text.to_owned());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn text_of(file: &str) -> Result<String, CliError> {
    let mut text = String::new();
    let read = match file {
        "-" => io::stdin().read_to_string(&mut text).map(|_| text),
        path => fs::read_to_string(path),
    };
    read.map_err(|error| {
        CliError::usage(format!("{file}: {error}"))
            .hint("@FILE names a text file; @- reads the input")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(words: &[&str]) -> Result<Value, CliError> {
        let schema = json!({ "type": "object", "properties": {
            "name": { "type": "string" }, "count": { "type": "integer" }, "tags": { "type": "array" },
        } });
        let arguments = words.iter().map(|word| (*word).to_owned()).collect();
        let call = CallArgs {
            tool: "t".to_owned(),
            arguments,
        };
        call.read(Some(&Schema::new(schema).expect("a schema")))
    }

    #[test]
    fn a_value_is_what_the_schema_takes() {
        let read =
            read(&["name=007", "count=7", "tags=[1]", "other=x=y", "flag=true"]).expect("reads");
        assert_eq!(
            read,
            json!({ "name": "007", "count": 7, "tags": [1], "other": "x=y", "flag": true })
        );
    }

    #[test]
    fn json_files_and_words_go_together_and_the_last_word_wins() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a.json");
        fs::write(&file, r#"{"count": 2}"#).expect("written");
        let at = format!("@{}", file.display());
        let from_file = format!("name=@{}", file.display());
        let read = read(&[r#"{"count": 1, "name": "a"}"#, &at, &from_file]).expect("reads");
        assert_eq!(read, json!({ "count": 2, "name": r#"{"count": 2}"# }));
    }

    #[test]
    fn what_cannot_be_read_says_how_to_write_it() {
        for wrong in ["{\"a\":", "[1]", "words", "=x", "@/no/such/file"] {
            let error = read(&[wrong]).expect_err(wrong);
            assert!(
                error.next_step().is_some() && error.code() == crate::Exit::Usage,
                "{wrong}"
            );
        }
    }
}
