//! The lines of a scripted model: what it says, what it asks for, how it fails, and when each line fits.

use std::time::Duration;

use serde_json::Value;
use toolgate_core::{
    Content, Finish, Message, ModelErrorKind, ModelRequest, Role, ToolAnswer, Usage,
};

/// One reply of a script.
///
/// Parts are said in the order in which they are added. Calls that follow one another are asked for at once.
///
/// ```
/// use toolgate_models::Line;
/// let line = Line::new()
///     .think("Two files could matter.")
///     .say("Let me look at both.")
///     .call("read_file", serde_json::json!({ "path": "a.txt" }))
///     .call("read_file", serde_json::json!({ "path": "b.txt" }));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Line {
    pub(crate) spoken: Vec<Spoken>,
    pub(crate) failure: Option<Failure>,
    pub(crate) when: Option<When>,
    pub(crate) repeat: Repeat,
    pub(crate) usage: Option<Usage>,
    pub(crate) finish: Option<Finish>,
    pub(crate) pause: Option<Duration>,
}

/// A part of a line.
#[derive(Debug, Clone)]
pub(crate) enum Spoken {
    Text(String),
    Reasoning(String),
    Call {
        id: Option<String>,
        tool: String,
        arguments: String,
    },
}

/// How a line fails.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: ModelErrorKind,
    pub(crate) detail: String,
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
}

/// How often a line is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Times(usize),
    Always,
}

impl Default for Repeat {
    fn default() -> Self {
        Self::Times(1)
    }
}

impl Line {
    /// A line that says nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says something.
    pub fn say(self, text: impl Into<String>) -> Self {
        self.with(Spoken::Text(text.into()))
    }

    /// Thinks aloud.
    pub fn think(self, text: impl Into<String>) -> Self {
        self.with(Spoken::Reasoning(text.into()))
    }

    /// Asks for a call. It gets an id of its own.
    pub fn call(self, tool: impl Into<String>, arguments: Value) -> Self {
        self.with(Spoken::Call {
            id: None,
            tool: tool.into(),
            arguments: arguments.to_string(),
        })
    }

    /// Asks for a call with an id and arguments exactly as written, which need not be JSON, as models sometimes do.
    pub fn raw_call(
        self,
        id: impl Into<String>,
        tool: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        self.with(Spoken::Call {
            id: Some(id.into()),
            tool: tool.into(),
            arguments: arguments.into(),
        })
    }

    /// Fails, after whatever the line says.
    ///
    /// A failure takes no place in the conversation: asked again, the model goes on with the next line.
    pub fn fail(mut self, kind: ModelErrorKind, detail: impl Into<String>) -> Self {
        self.failure = Some(Failure {
            kind,
            detail: detail.into(),
            status: None,
            retry_after: None,
        });
        self
    }

    /// How long the failing provider asks to wait.
    pub fn retry_after(mut self, wait: Duration) -> Self {
        if let Some(failure) = &mut self.failure {
            failure.retry_after = Some(wait);
        }
        self
    }

    /// Makes the line an alternative to the one after it, said only if this holds.
    pub fn when(mut self, when: When) -> Self {
        self.when = Some(when);
        self
    }

    /// Plays the line so many times. Of a line and its alternatives, the last says how often they are gone through.
    pub fn times(mut self, times: usize) -> Self {
        self.repeat = Repeat::Times(times);
        self
    }

    /// Plays the line however often the model is asked.
    pub fn always(mut self) -> Self {
        self.repeat = Repeat::Always;
        self
    }

    /// What the reply used.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Why the reply stopped, if not for the obvious reason.
    pub fn finish(mut self, finish: Finish) -> Self {
        self.finish = Some(finish);
        self
    }

    /// How long to wait before each piece, for models that play in [real time](crate::Scripted::real_time).
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = Some(pause);
        self
    }

    fn with(mut self, spoken: Spoken) -> Self {
        self.spoken.push(spoken);
        self
    }
}

impl From<&str> for Line {
    fn from(text: &str) -> Self {
        Self::new().say(text)
    }
}

/// When a line fits. Everything that is asked for has to hold.
#[derive(Debug, Clone, Default)]
pub struct When {
    pub(crate) last_contains: Option<String>,
    pub(crate) user_contains: Option<String>,
    pub(crate) tool_result: Option<ResultMatch>,
    pub(crate) tool_shown: Option<String>,
}

/// What the result of a call has to be like.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResultMatch {
    pub(crate) tool: Option<String>,
    pub(crate) contains: Option<String>,
    pub(crate) is_error: Option<bool>,
}

impl When {
    /// The last message contains this, be it of a person or a result.
    pub fn last_contains(text: impl Into<String>) -> Self {
        Self {
            last_contains: Some(text.into()),
            ..Self::default()
        }
    }

    /// What a person said last contains this.
    pub fn user_contains(text: impl Into<String>) -> Self {
        Self {
            user_contains: Some(text.into()),
            ..Self::default()
        }
    }

    /// One of the results that came last is from this tool and contains this.
    pub fn tool_result(tool: impl Into<String>, text: impl Into<String>) -> Self {
        let result = ResultMatch {
            tool: Some(tool.into()),
            contains: Some(text.into()),
            is_error: None,
        };
        Self {
            tool_result: Some(result),
            ..Self::default()
        }
    }

    /// One of the results that came last is from this tool and is an error.
    pub fn tool_failed(tool: impl Into<String>) -> Self {
        let result = ResultMatch {
            tool: Some(tool.into()),
            contains: None,
            is_error: Some(true),
        };
        Self {
            tool_result: Some(result),
            ..Self::default()
        }
    }

    /// The model is shown this tool.
    pub fn tool_shown(tool: impl Into<String>) -> Self {
        Self {
            tool_shown: Some(tool.into()),
            ..Self::default()
        }
    }

    pub(crate) fn holds(&self, request: &ModelRequest) -> bool {
        let last = request.messages.last();
        let says = |message: Option<&std::sync::Arc<Message>>, text: &str| {
            message.is_some_and(|m| contains(m, text))
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
            && self
                .tool_result
                .as_ref()
                .is_none_or(|wanted| last.is_some_and(|m| results(m).any(|r| wanted.fits(r))))
    }
}

impl ResultMatch {
    fn fits(&self, answer: &ToolAnswer) -> bool {
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

fn contains(message: &Message, text: &str) -> bool {
    message.parts.iter().any(|part| match &part.content {
        Content::Text(said) => said.contains(text),
        Content::Result(answer) => answer.text.contains(text),
        _ => false,
    })
}

fn results(message: &Message) -> impl Iterator<Item = &ToolAnswer> {
    message.parts.iter().filter_map(|part| match &part.content {
        Content::Result(answer) => Some(answer),
        _ => None,
    })
}
