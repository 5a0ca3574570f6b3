//! What layers report about a call for people: the files that it changed, and short messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CallId, Timestamp, ToolName};

/// A file that a tool has changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct FileChange {
    /// The path, as the tool gives it, without a leading `./`.
    pub path: String,
    /// The kind of change.
    pub change: FileChangeKind,
    /// The previous path, if the file was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_path: Option<String>,
    /// The current size in bytes, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The modification time in the file system, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_at: Option<Timestamp>,
    /// The tool that changed the file. An event has it in its own fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<ToolName>,
    /// The call that changed the file. An event has it in its own fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
}

/// The kind of a file change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// The file is new.
    Created,
    /// The content has changed.
    Modified,
    /// The file was deleted.
    Deleted,
    /// The file has another path.
    Renamed,
}

impl FileChangeKind {
    /// Returns the text that people read.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Modified => "changed",
            Self::Deleted => "deleted",
            Self::Renamed => "renamed",
        }
    }
}

impl FileChange {
    /// Creates a change of the file at `path`.
    pub fn new(path: &str, change: FileChangeKind) -> Self {
        Self {
            path: strip_dot_slash(path).to_owned(),
            change,
            old_path: None,
            size: None,
            modified_at: None,
            tool_name: None,
            call_id: None,
        }
    }

    /// Creates a rename from `old_path` to `path`.
    pub fn renamed(old_path: &str, path: &str) -> Self {
        Self {
            old_path: Some(strip_dot_slash(old_path).to_owned()),
            ..Self::new(path, FileChangeKind::Renamed)
        }
    }
}

/// Removes every leading `./` from a path.
pub fn strip_dot_slash(path: &str) -> &str {
    let mut path = path;
    while let Some(rest) = path.strip_prefix("./").filter(|rest| !rest.is_empty()) {
        path = rest.trim_start_matches('/');
    }
    path
}

/// A short message about a call for the people at the screen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToastNotice {
    /// The level of the message.
    pub level: ToastLevel,
    /// The title.
    pub title: String,
    /// The text.
    pub message: String,
    /// The time it stays in milliseconds; without one, it stays until it is dismissed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The action that the screen offers with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ToastAction>,
}

/// The level of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToastLevel {
    /// An information.
    Info,
    /// A success.
    Success,
    /// A blocked call, or a limit that is nearly reached.
    Warning,
    /// A failure.
    Error,
}

/// An action that the screen offers with a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToastAction {
    /// The label of the button.
    pub label: String,
    /// The command that the screen runs. The bundled screens know [`ToastAction::SHOW_CALL`] and
    /// [`ToastAction::SHOW_BUDGETS`]; a program may use commands of its own on screens of its own.
    pub command: String,
}

impl ToastAction {
    /// Shows everything about a call; followed by a space and the id of the invocation.
    pub const SHOW_CALL: &'static str = "show_call";
    /// Shows the budgets that have reached a threshold.
    pub const SHOW_BUDGETS: &'static str = "show_budgets";

    /// Creates the action that shows a call.
    pub fn show_call(call: CallId) -> Self {
        Self {
            label: "details".to_owned(),
            command: format!("{} {call}", Self::SHOW_CALL),
        }
    }

    /// Creates the action that shows the budgets.
    pub fn show_budgets() -> Self {
        Self {
            label: "budgets".to_owned(),
            command: Self::SHOW_BUDGETS.to_owned(),
        }
    }

    /// Returns the call that the action shows, if it is one that shows a call.
    pub fn shown_call(&self) -> Option<CallId> {
        let (command, call) = self.command.split_once(' ')?;
        (command == Self::SHOW_CALL).then(|| call.parse().ok())?
    }
}

/// The label that a call of a long-running tool has on screens while it runs.
///
/// A layer puts it on the call, and the runtime reports it as the first progress of each attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongRunningLabel(pub std::sync::Arc<str>);
