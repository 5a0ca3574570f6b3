//! Lets somebody change arguments in their editor.

use std::io::{Read, Seek, Write};

use serde_json::Value;
use toolgate::{Arguments, Json, Schema};

use crate::CliError;

/// Opens `arguments` in the editor of the user and reads back what they made of it; nothing if they changed nothing.
///
/// The file is readable by its owner only and gone afterwards: it holds the arguments as they are, secrets included.
pub(crate) async fn edit(
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
    let editor = editor();
    // As git does it: the variable may hold a whole command with options.
    let status = tokio::process::Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$@\""))
        .arg(&editor)
        .arg(file.path())
        .kill_on_drop(true)
        .status()
        .await?;
    if !status.success() {
        return Err(
            CliError::new(format!("{editor} did not end well, so nothing was changed"))
                .hint("set VISUAL or EDITOR to an editor that works here"),
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
    let edited = read(&text, schema)?;
    Ok(Some(edited).filter(|edited| edited.digest() != arguments.digest()))
}

fn editor() -> String {
    let set = |name| {
        std::env::var(name)
            .ok()
            .filter(|value| !value.trim().is_empty())
    };
    set("VISUAL")
        .or_else(|| set("EDITOR"))
        .unwrap_or_else(|| "vi".to_owned())
}

/// Reads what somebody wrote: an object that fits the schema of the tool.
fn read(text: &str, schema: Option<&Schema>) -> Result<Arguments, CliError> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| CliError::from(error).while_doing("what you wrote is not JSON"))?;
    if let Some(Err(problems)) = schema.map(|schema| schema.check(&value)) {
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return Err(CliError::new(format!(
            "the tool does not take this: {}",
            said.join("; ")
        )));
    }
    let json = Json::new(value).map_err(|error| CliError::of(&error))?;
    Arguments::try_from(json)
        .map_err(|error| CliError::of(&error).while_doing("arguments are an object"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_an_object_that_fits_the_tool_is_taken() {
        let schema = Schema::for_arguments(json!({
            "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"],
        }))
        .expect("a schema");
        assert_eq!(
            read(r#"{ "n": 3 }"#, Some(&schema)).expect("fits").as_map()["n"],
            3
        );
        for (text, problem) in [
            ("{", "not JSON"),
            ("[]", ""),
            (r#"{ "n": "x" }"#, "does not take"),
            ("{}", "n"),
        ] {
            let error = read(text, Some(&schema)).expect_err("refused").to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        assert!(read("[]", None).is_err());
    }
}
