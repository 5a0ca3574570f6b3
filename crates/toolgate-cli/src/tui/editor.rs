//! Lets somebody change text in the editor they like.

use std::{io::Write, path::Path, process::Command};

/// Opens the text in `$VISUAL` or `$EDITOR` and returns what was saved, or why that did not work, in a sentence.
pub(super) fn edit(text: &str) -> Result<String, String> {
    let broken = |error: std::io::Error| format!("the arguments could not be handed to an editor: {error}");
    let mut file = tempfile::Builder::new().prefix("arguments-").suffix(".json").tempfile().map_err(broken)?;
    file.write_all(text.as_bytes()).and_then(|()| file.flush()).map_err(broken)?;
    let path = file.into_temp_path();
    open(&path)?;
    std::fs::read_to_string(&path).map_err(|error| format!("what the editor saved cannot be read: {error}"))
}

fn open(path: &Path) -> Result<(), String> {
    let named = ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok());
    let editor = named.filter(|editor| !editor.trim().is_empty()).unwrap_or_else(|| "vi".to_owned());
    // People put options into the variable, so a shell takes it apart; the file is an argument and never parsed.
    let status = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the editor `{editor}` ended with {status}; nothing was decided")),
        Err(error) => Err(format!("the editor `{editor}` could not be started: {error}")),
    }
}
