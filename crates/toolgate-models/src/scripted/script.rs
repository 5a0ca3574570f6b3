//! The lines of a scripted model: text, calls, failures, and the conditions under which each line
//! is played.

use std::time::Duration;

use serde_json::Value;
use toolgate_core::{
    FinishReason, Message, ModelErrorKind, ModelRequest, PartContent, Role, ToolAnswer, Usage,
};

/// One reply of a script.
///
/// Parts are sent in the order in which they are added. Consecutive calls are parallel calls.
///
/// ```
/// use toolgate_models::ScriptLine;
/// let line = ScriptLine::new()
///     .think("Two files could matter.")
///     .say("Let me look at both.")
///     .call("read_file", serde_json::json!({ "path": "a.txt" }))
///     .call("read_file", serde_json::json!({ "path": "b.txt" }));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ScriptLine {
    pub(crate) spoken: Vec<ScriptPart>,
    pub(crate) failure: Option<ScriptFailure>,
    pub(crate) when: Option<LineCondition>,
    pub(crate) repeat: LineRepeat,
    pub(crate) usage: Option<Usage>,
    pub(crate) finish: Option<FinishReason>,
    pub(crate) pause: Option<Duration>,
}

/// A part of a line.
#[derive(Debug, Clone)]
pub(crate) enum ScriptPart {
    Text(String),
    Reasoning(String),
    Call {
        id: Option<String>,
        tool: String,
        arguments: String,
    },
}

/// The failure of a line.
#[derive(Debug, Clone)]
pub(crate) struct ScriptFailure {
    pub(crate) kind: ModelErrorKind,
    pub(crate) detail: String,
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
}

/// The number of times that a line is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineRepeat {
    Times(usize),
    Always,
}

impl Default for LineRepeat {
    fn default() -> Self {
        Self::Times(1)
    }
}

impl ScriptLine {
    /// Creates an empty line.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds text.
    pub fn say(self, text: impl Into<String>) -> Self {
        self.push_part(ScriptPart::Text(text.into()))
    }

    /// Adds reasoning.
    pub fn think(self, text: impl Into<String>) -> Self {
        self.push_part(ScriptPart::Reasoning(text.into()))
    }

    /// Adds a call. It gets an id automatically.
    pub fn call(self, tool: impl Into<String>, arguments: Value) -> Self {
        self.push_part(ScriptPart::Call {
            id: None,
            tool: tool.into(),
            arguments: arguments.to_string(),
        })
    }

    /// Adds a call with an id and arguments exactly as written, which need not be JSON, as models
    /// sometimes send them.
    pub fn raw_call(
        self,
        id: impl Into<String>,
        tool: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        self.push_part(ScriptPart::Call {
            id: Some(id.into()),
            tool: tool.into(),
            arguments: arguments.into(),
        })
    }

    /// Fails, after the content of the line.
    ///
    /// A failure does not count as a reply: when retried, the model continues with the next line.
    pub fn fail(mut self, kind: ModelErrorKind, detail: impl Into<String>) -> Self {
        self.failure = Some(ScriptFailure {
            kind,
            detail: detail.into(),
            status: None,
            retry_after: None,
        });
        self
    }

    /// Sets the delay that the failing provider asks for.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        if let Some(failure) = &mut self.failure {
            failure.retry_after = Some(wait);
        }
        self
    }

    /// Makes the line an alternative to the one after it, played only if the condition holds.
    pub fn when(mut self, when: LineCondition) -> Self {
        self.when = Some(when);
        self
    }

    /// Plays the line this many times. The last of a group of alternatives sets how often the group
    /// is played.
    pub fn times(mut self, times: usize) -> Self {
        self.repeat = LineRepeat::Times(times);
        self
    }

    /// Plays the line for every further request.
    pub fn always(mut self) -> Self {
        self.repeat = LineRepeat::Always;
        self
    }

    /// Sets the token usage of the reply.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Sets the finish reason, if it is not the obvious one.
    pub fn finish(mut self, finish: FinishReason) -> Self {
        self.finish = Some(finish);
        self
    }

    /// Sets the delay before each delta, for models that play in [real
    /// time](crate::ScriptedModel::real_time).
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = Some(pause);
        self
    }

    fn push_part(mut self, spoken: ScriptPart) -> Self {
        self.spoken.push(spoken);
        self
    }
}

impl From<&str> for ScriptLine {
    fn from(text: &str) -> Self {
        Self::new().say(text)
    }
}

/// A condition on a request. All of its parts have to hold.
#[derive(Debug, Clone, Default)]
pub struct LineCondition {
    pub(crate) last_contains: Option<String>,
    pub(crate) user_contains: Option<String>,
    pub(crate) tool_result: Option<ResultCondition>,
    pub(crate) tool_shown: Option<String>,
}

/// A condition on the result of a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResultCondition {
    pub(crate) tool: Option<String>,
    pub(crate) contains: Option<String>,
    pub(crate) is_error: Option<bool>,
}

impl LineCondition {
    /// Requires that the last message, from the user or a tool, contains the text.
    pub fn last_contains(text: impl Into<String>) -> Self {
        Self {
            last_contains: Some(text.into()),
            ..Self::default()
        }
    }

    /// Requires that the last user message contains the text.
    pub fn user_contains(text: impl Into<String>) -> Self {
        Self {
            user_contains: Some(text.into()),
            ..Self::default()
        }
    }

    /// Requires that one of the latest results is from this tool and contains the text.
    pub fn tool_result(tool: impl Into<String>, text: impl Into<String>) -> Self {
        let result = ResultCondition {
            tool: Some(tool.into()),
            contains: Some(text.into()),
            is_error: None,
        };
        Self {
            tool_result: Some(result),
            ..Self::default()
        }
    }

    /// Requires that one of the latest results is from this tool and is an error.
    pub fn tool_failed(tool: impl Into<String>) -> Self {
        let result = ResultCondition {
            tool: Some(tool.into()),
            contains: None,
            is_error: Some(true),
        };
        Self {
            tool_result: Some(result),
            ..Self::default()
        }
    }

    /// Requires that the tool is in the view.
    pub fn tool_shown(tool: impl Into<String>) -> Self {
        Self {
            tool_shown: Some(tool.into()),
            ..Self::default()
        }
    }

    pub(crate) fn is_met_by(&self, request: &ModelRequest) -> bool {
        let last = request.messages.last();
        let says = |message: Option<&std::sync::Arc<Message>>, text: &str| {
            message.is_some_and(|m| message_contains(m, text))
        };
        let user = || {
            request
                .messages
                .iter()
                .rfind(|message| message.role == Role::User)
        };
        self.last_contains
            .as_ref()
            .is_none_or(|text| says(last, text))
            && self
                .user_contains
                .as_ref()
                .is_none_or(|text| says(user(), text))
            && self
                .tool_shown
                .as_ref()
                .is_none_or(|tool| request.view.get(tool).is_some())
            && self.tool_result.as_ref().is_none_or(|wanted| {
                last.is_some_and(|m| tool_answers(m).any(|r| wanted.is_met_by(r)))
            })
    }
}

impl ResultCondition {
    fn is_met_by(&self, answer: &ToolAnswer) -> bool {
        self.tool.as_ref().is_none_or(|tool| *tool == answer.tool)
            && self
                .contains
                .as_ref()
                .is_none_or(|text| answer.text.contains(text))
            && self
                .is_error
                .is_none_or(|is_error| is_error == answer.is_error)
    }
}

fn message_contains(message: &Message, text: &str) -> bool {
    message.parts.iter().any(|part| match &part.content {
        PartContent::Text(said) => said.contains(text),
        PartContent::Result(answer) => answer.text.contains(text),
        _ => false,
    })
}

fn tool_answers(message: &Message) -> impl Iterator<Item = &ToolAnswer> {
    message.parts.iter().filter_map(|part| match &part.content {
        PartContent::Result(answer) => Some(answer),
        _ => None,
    })
}
