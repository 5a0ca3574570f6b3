//! Opens arguments in the user's editor.

use std::io::{Read, Seek, Write};

use serde_json::Value;
use toolgate::{
    Arguments,
    value::{Json, Schema},
};

use crate::CliError;

/// Opens `arguments` in the user's editor and returns the edited arguments; `None` if nothing was
/// changed.
///
/// The file is readable by its owner only and deleted afterwards: it holds the arguments
/// unredacted, secrets included.
///
/// # Errors
/// If the editor fails, or the text is not a JSON object that matches `schema`.
pub(crate) async fn edit_arguments(
    arguments: &Arguments,
    schema: Option<&Schema>,
) -> Result<Option<Arguments>, CliError> {
    let mut file = tempfile::Builder::new()
        .prefix("toolgate-")
        .suffix(".json")
        .tempfile()?;
    let before = serde_json::to_string_pretty(arguments.as_json().as_value())?;
    writeln!(file, "{before}")?;
    file.flush()?;
    let editor = editor_command();
    // Like git: the variable may hold a whole command with options.
    let status = tokio::process::Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$@\""))
        // `$0`, which the shell puts in front of its own error messages.
        .arg(&editor)
        .arg(file.path())
        .kill_on_drop(true)
        .status()
        .await?;
    if !status.success() {
        return Err(
            CliError::new(format!("{editor} failed, so nothing was changed"))
                .with_hint("set VISUAL or EDITOR to an editor that works here"),
        );
    }
    // Editors that save by renaming leave another file under the name.
    let mut text = String::new();
    match std::fs::File::open(file.path()) {
        Ok(mut saved) => saved.read_to_string(&mut text)?,
        Err(_) => {
            file.rewind()?;
            file.read_to_string(&mut text)?
        }
    };
    let edited = parse_edited(&text, schema)?;
    Ok(Some(edited).filter(|edited| edited.digest() != arguments.digest()))
}

fn editor_command() -> String {
    let set = |name| {
        std::env::var(name)
            .ok()
            .filter(|value| !value.trim().is_empty())
    };
    set("VISUAL")
        .or_else(|| set("EDITOR"))
        .unwrap_or_else(|| "vi".to_owned())
}

/// Parses edited text: an object that matches the tool's schema.
fn parse_edited(text: &str, schema: Option<&Schema>) -> Result<Arguments, CliError> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| CliError::from(error).while_doing("the edited text is not JSON"))?;
    if let Some(Err(problems)) = schema.map(|schema| schema.check_value(&value)) {
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return Err(CliError::new(format!(
            "invalid arguments: {}",
            said.join("; ")
        )));
    }
    let json = Json::new(value).map_err(|error| CliError::from_error(&error))?;
    Arguments::try_from(json).map_err(|error| {
        CliError::from_error(&error).while_doing("the arguments must be an object")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_an_object_that_matches_the_schema_is_accepted() {
        let schema = Schema::for_arguments(json!({
            "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"],
        }))
        .expect("a schema");
        assert_eq!(
            parse_edited(r#"{ "n": 3 }"#, Some(&schema))
                .expect("fits")
                .as_map()["n"],
            3
        );
        for (text, problem) in [
            ("{", "not JSON"),
            ("[]", ""),
            (r#"{ "n": "x" }"#, "invalid arguments"),
            ("{}", "n"),
        ] {
            let error = parse_edited(text, Some(&schema))
                .expect_err("rejected")
                .to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        assert!(parse_edited("[]", None).is_err());
    }
}
