//! The line about the `AGENTS.md` of a project: whether the model reads it, and how to change that.

use std::path::Path;

use serde_json::json;
use toolgate::{
    Gate,
    gate::ProjectInstructions,
    layers::{Toast, ToastLevel, ToastManager},
};

use crate::{CliError, CommandContext, env::style, show::tui::current_time};

/// What a user is told about the instructions of the project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProjectNotice {
    /// True if there is a file that the model does not read.
    pub(crate) is_warning: bool,
    /// The line, without control characters.
    pub(crate) text: String,
}

impl ProjectNotice {
    /// Returns the notice for a gate; `None` if its project has no instructions.
    pub(crate) fn of_gate(gate: &Gate, workspace: &Path) -> Option<Self> {
        let warning = |text: String| Self {
            is_warning: true,
            text: style::escape_controls(&text),
        };
        Some(match gate.project_instructions() {
            ProjectInstructions::Used(file) => {
                let shown = file.path.strip_prefix(workspace).unwrap_or(&file.path);
                let lines = match file.text.lines().count() {
                    1 => "1 line".to_owned(),
                    lines => format!("{lines} lines"),
                };
                let bytes = file.text.len();
                let text = format!(
                    "the model reads {}: {lines}, {bytes} bytes",
                    shown.display()
                );
                Self {
                    is_warning: false,
                    text: style::escape_controls(&text),
                }
            }
            ProjectInstructions::Untrusted { path, changed } => {
                let why = if *changed {
                    "has changed since it was trusted"
                } else {
                    "is not trusted"
                };
                warning(format!(
                    "{} {why}, so the model does not read it; look at it and trust it: toolgate config trust {}",
                    path.strip_prefix(workspace).unwrap_or(path).display(),
                    quote_word(&path.display().to_string()),
                ))
            }
            ProjectInstructions::Unusable { problem, .. } => warning(format!(
                "the model does not read the instructions of the project: {problem}"
            )),
            _ => return None,
        })
    }

    /// Prints the notice beside the result of a command.
    pub(crate) fn print(&self, cx: &CommandContext) -> Result<(), CliError> {
        if cx.out.is_json() {
            return cx.out.print_note(json!({ "note": self.text }));
        }
        let label = if self.is_warning {
            style::warn("instructions:")
        } else {
            style::dim("instructions:")
        };
        cx.out.print_note(format_args!("{label} {}", self.text))
    }

    /// Shows the notice on the screen of a chat.
    pub(crate) fn show_toast(self, gate: &Gate) {
        let level = if self.is_warning {
            ToastLevel::Warning
        } else {
            ToastLevel::Info
        };
        let toasts = gate.resources().get_or_default::<ToastManager>();
        toasts.show(Toast::new(level, "instructions", self.text, current_time()));
    }
}

/// Quotes a word for a shell where that is needed.
fn quote_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./+@:,".contains(c);
    if word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_command_is_one_word_of_the_shell() {
        assert_eq!(quote_word("/srv/a-b/AGENTS.md"), "/srv/a-b/AGENTS.md");
        assert_eq!(quote_word("/my $(work)/it's"), r"'/my $(work)/it'\''s'");
    }
}
