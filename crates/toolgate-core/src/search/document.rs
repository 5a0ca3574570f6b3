//! The documents of search, derived from events.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    AgentId, Event, EventBody, Invocation, Json, SessionEvent, SessionId, SessionTitle, Status,
    Timestamp, ToolEvent, ToolName, TurnInfo,
};

/// The kinds of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchKind {
    /// A message of the user.
    User,
    /// A message of the model.
    Assistant,
    /// A call: the tool and its arguments.
    Call,
    /// The result of a call.
    Result,
    /// The title that a session was given.
    Title,
}

impl SearchKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::User,
        Self::Assistant,
        Self::Call,
        Self::Result,
        Self::Title,
    ];

    /// Returns the wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Call => "call",
            Self::Result => "result",
            Self::Title => "title",
        }
    }

    /// Returns the kind with this wire name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for SearchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The id of a document in an index. A later document has a higher one, apart from those of the same
/// second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SearchDocumentId(i64);

impl SearchDocumentId {
    /// Creates an id.
    pub const fn new(id: i64) -> Self {
        Self(id)
    }

    /// Returns the number.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Returns the first id of a second. Seconds, because the differences of ids are stored with
    /// every word, and smaller ones need fewer bytes.
    pub fn first_at(at: Timestamp) -> i64 {
        let second = at.as_micros().max(0) / 1_000_000;
        second.saturating_mul(1 << 8)
    }
}

/// A message, call, result or title that can be found. Its text is redacted, because events are.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchDocument {
    /// The session.
    pub session: SessionId,
    /// The number of the event; 0 for the title of the session.
    pub sequence: u64,
    /// The kind.
    pub kind: SearchKind,
    /// The tool of a call or result.
    pub tool: Option<ToolName>,
    /// The status of a result.
    pub status: Option<Status>,
    /// The agent: its name, or its id if it has none.
    pub agent: Option<Arc<str>>,
    /// The id of the agent.
    pub agent_id: Option<AgentId>,
    /// The name of the model of the turn, without its provider.
    pub model: Option<Arc<str>>,
    /// The provider of that model.
    pub provider: Option<Arc<str>>,
    /// The directory that the session works in.
    pub project: Option<Arc<str>>,
    /// The time of the event.
    pub at: Timestamp,
    /// The text.
    pub text: String,
}

impl SearchDocument {
    /// Returns the document of an event, if it has text that can be found.
    ///
    /// This is the only function that makes documents from events, so an index can always be rebuilt
    /// from the log.
    pub fn from_event(event: &Event, project: Option<&Arc<str>>) -> Option<Self> {
        let content = match event.body() {
            EventBody::Loop(_, event) => session_content(event)?,
            EventBody::Tool(invocation, event) => tool_content(invocation, event)?,
            EventBody::Turn(..) => return None,
        };
        let has_word = content
            .text
            .chars()
            .any(|character| !character.is_whitespace());
        let info = event.turn_info();
        has_word.then(|| Self {
            session: info.session,
            sequence: event.sequence(),
            kind: content.kind,
            tool: content.tool,
            status: content.status,
            agent: agent_of(info),
            agent_id: info.agent_id.clone(),
            model: info.model.clone(),
            provider: info.provider.clone(),
            project: project.cloned(),
            at: event.at(),
            text: content.text,
        })
    }

    /// Returns the document of the title that a session was given.
    pub fn from_title(
        session: SessionId,
        title: &SessionTitle,
        project: Option<&Arc<str>>,
        at: Timestamp,
    ) -> Self {
        Self {
            session,
            sequence: 0,
            kind: SearchKind::Title,
            tool: None,
            status: None,
            agent: None,
            agent_id: None,
            model: None,
            provider: None,
            project: project.cloned(),
            at,
            text: title.to_string(),
        }
    }
}

struct DocumentContent {
    kind: SearchKind,
    tool: Option<ToolName>,
    status: Option<Status>,
    text: String,
}

fn agent_of(info: &TurnInfo) -> Option<Arc<str>> {
    let id = || info.agent_id.as_ref().map(|id| Arc::from(id.as_str()));
    info.agent_name.clone().or_else(id)
}

fn session_content(event: &SessionEvent) -> Option<DocumentContent> {
    let message = |kind, text: &Option<String>| {
        Some(DocumentContent {
            kind,
            tool: None,
            status: None,
            text: text.clone()?,
        })
    };
    match event {
        SessionEvent::UserMessage { text, .. } => message(SearchKind::User, text),
        SessionEvent::InferenceFinished { text, .. } => message(SearchKind::Assistant, text),
        SessionEvent::ImportedCall {
            tool, arguments, ..
        } => Some(DocumentContent {
            kind: SearchKind::Call,
            tool: Some(tool.as_str().into()),
            status: None,
            text: call_text(tool, arguments.as_ref()),
        }),
        // As the other program says: no gate of ours decided.
        SessionEvent::ImportedResult {
            tool,
            text,
            is_error,
            ..
        } => Some(DocumentContent {
            kind: SearchKind::Result,
            tool: Some(tool.as_str().into()),
            status: Some(if *is_error {
                Status::ExecutorError
            } else {
                Status::Ok
            }),
            text: text.clone()?,
        }),
        SessionEvent::ModelRouted(_)
        | SessionEvent::InferenceStarted { .. }
        | SessionEvent::InferenceFailed { .. }
        | SessionEvent::HistoryCompacted { .. }
        | SessionEvent::SkillLoaded { .. }
        | SessionEvent::MemoryRecalled { .. }
        | SessionEvent::BudgetAlert(_)
        | SessionEvent::RecursiveIteration { .. }
        | SessionEvent::RunEnded { .. } => None,
    }
}

fn tool_content(invocation: &Invocation, event: &ToolEvent) -> Option<DocumentContent> {
    let call = |arguments: Option<&Json>| DocumentContent {
        kind: SearchKind::Call,
        tool: Some(invocation.tool.clone()),
        status: None,
        text: call_text(invocation.tool.as_str(), arguments),
    };
    let result = |text: String| DocumentContent {
        kind: SearchKind::Result,
        tool: Some(invocation.tool.clone()),
        status: event.terminal_status(),
        text,
    };
    match event {
        ToolEvent::ToolRequested { arguments, .. } => Some(call(arguments.as_ref())),
        // Only arguments that an approver or a layer changed are in this event.
        ToolEvent::ToolExecutionStarted {
            arguments: Some(arguments),
            ..
        } => Some(call(Some(arguments))),
        ToolEvent::ToolExecutionSucceeded {
            result: found,
            model_text,
            ..
        } => {
            let shown = found.as_ref().map(|found| plain_text(found.as_value()));
            Some(result(shown.or_else(|| model_text.clone())?))
        }
        ToolEvent::ToolExecutionFailed { error, .. } => Some(result(error.clone())),
        ToolEvent::ToolDenied { error, reason, .. } => {
            Some(result(error.clone().or_else(|| reason.clone())?))
        }
        ToolEvent::ToolExecutionInterrupted { reason, .. } => Some(result(reason.clone())),
        ToolEvent::ToolSkipped { reason } => Some(result(reason.clone()?)),
        ToolEvent::ToolExecutionStarted { .. }
        | ToolEvent::ToolApprovalRequested(_)
        | ToolEvent::ToolApproved { .. }
        | ToolEvent::ToolExecutionProgress { .. }
        | ToolEvent::ToolCallAudit { .. }
        | ToolEvent::ToolFilesChanged { .. }
        | ToolEvent::ToolToast(_)
        | ToolEvent::ToolLog { .. } => None,
    }
}

fn call_text(tool: &str, arguments: Option<&Json>) -> String {
    let mut text = tool.to_owned();
    if let Some(arguments) = arguments {
        text.push('\n');
        text.push_str(&plain_text(arguments.as_value()));
    }
    text
}

/// Returns a JSON value as lines of `name: value`, so that texts in it are read as they are.
fn plain_text(value: &Value) -> String {
    let mut lines = String::new();
    write_plain(value, None, &mut lines);
    lines.truncate(lines.trim_end().len());
    lines
}

// The depth is bounded, because `Json` is.
fn write_plain(value: &Value, name: Option<&str>, lines: &mut String) {
    match value {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| write_plain(value, Some(key), lines)),
        Value::Array(items) => items.iter().for_each(|item| write_plain(item, name, lines)),
        Value::Null => {}
        Value::String(text) => write_line(text, name, lines),
        Value::Bool(_) | Value::Number(_) => write_line(&value.to_string(), name, lines),
    }
}

fn write_line(text: &str, name: Option<&str>, lines: &mut String) {
    if let Some(name) = name {
        lines.push_str(name);
        lines.push_str(": ");
    }
    lines.push_str(text);
    lines.push('\n');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_read_as_plain_lines() {
        let value = json!({"path": "src/a b.rs", "lines": [1, 2], "deep": {"text": "one\ntwo"}, "none": null});
        let text = plain_text(&value);
        for line in [
            "path: src/a b.rs",
            "lines: 1",
            "lines: 2",
            "text: one",
            "two",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert_eq!(text.lines().count(), 5);
        assert_eq!(plain_text(&json!("only\n")), "only");
    }

    #[test]
    fn every_kind_is_found_by_its_word() {
        for kind in SearchKind::ALL {
            assert_eq!(SearchKind::from_word(kind.as_str()), Some(kind));
        }
        assert_eq!(SearchKind::from_word("robot"), None);
    }
}
