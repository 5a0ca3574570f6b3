//! A model that replies from a script, for demos and tests.

pub(crate) mod scenario;
pub(crate) mod script;

use std::{
    fmt,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream, stream::BoxStream};
use toolgate_core::{
    Delta, FinishReason, Message, MessagePart, Model, ModelError, ModelErrorKind, ModelName,
    ModelRequest, PartContent, RawArguments, Reply, Role, ToolRequest,
};

use crate::scripted::script::{LineCondition, LineRepeat, ScriptFailure, ScriptLine, ScriptPart};

/// A model that plays a script. It needs no key and no network.
///
/// The conversation determines the next line: a request with three assistant messages gets the
/// fourth reply. So a session that another process resumes continues where it stopped, and several
/// sessions can share one script. A session so long that its beginning is dropped would be counted
/// wrongly; for those, play [in order](Self::in_order).
///
/// ```
/// use futures::{StreamExt, executor::block_on};
/// use toolgate_core::{Delta, Message, Model, ModelRequest};
/// use toolgate_models::{ScriptLine, ScriptedModel};
///
/// let model = ScriptedModel::new([
///     ScriptLine::new().say("Let me look.").call("list_dir", serde_json::json!({ "path": "." })),
///     ScriptLine::new().say("Two files."),
/// ]);
/// let messages = vec![Message::user("What is here?").into()];
/// let request = ModelRequest { messages, ..ModelRequest::default() };
/// let pieces: Vec<_> = block_on(model.reply(&request).collect());
/// let Some(Ok(Delta::Done(reply))) = pieces.last() else { panic!("the last delta is the reply") };
/// assert_eq!(reply.message.calls().next().unwrap().tool, "list_dir");
/// ```
pub struct ScriptedModel {
    name: ModelName,
    places: Vec<ScriptStep>,
    position: ScriptPosition,
    real_time: bool,
    seen: Option<Mutex<Vec<ModelRequest>>>,
    chunk: NonZeroUsize,
}

/// A position in the conversation: the first of its cues that matches is played.
struct ScriptStep {
    cues: Vec<ScriptCue>,
    /// The number of the first reply after this position.
    end: usize,
}

/// A line, ready to be played.
struct ScriptCue {
    line: ScriptLine,
    reply: Reply,
    pieces: Vec<Delta>,
    /// For each call in order, true if it gets its id when it is played.
    unnamed: Vec<bool>,
    /// The number of times that the failure was played.
    failed: AtomicUsize,
}

/// The way in which the model determines the next line.
enum ScriptPosition {
    /// By the assistant messages of the conversation; those of the last request are not counted
    /// again.
    Conversation(Mutex<Option<CountedReplies>>),
    /// By the number of replies so far.
    Order(Mutex<usize>),
}

/// The number of assistant messages up to a message.
struct CountedReplies {
    last: Arc<Message>,
    messages: usize,
    replies: usize,
}

impl ScriptedModel {
    /// The default number of characters of a delta.
    const CHUNK: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

    /// Creates a model that plays `lines`, first to last.
    pub fn new<L: Into<ScriptLine>>(lines: impl IntoIterator<Item = L>) -> Self {
        let mut model = Self {
            name: ModelName::new("scripted", "script"),
            places: group_lines(lines.into_iter().map(L::into)),
            position: ScriptPosition::Conversation(Mutex::default()),
            real_time: false,
            seen: None,
            chunk: Self::CHUNK,
        };
        model.split_lines();
        model
    }

    /// Sets the name of the model.
    pub fn named(mut self, name: ModelName) -> Self {
        self.name = name;
        self
    }

    /// Plays one line after the other, whatever the conversation looks like.
    pub fn in_order(mut self) -> Self {
        self.position = ScriptPosition::Order(Mutex::default());
        self
    }

    /// Sets the maximum number of characters of a delta of text or arguments.
    pub fn chunk(mut self, characters: NonZeroUsize) -> Self {
        self.chunk = characters;
        self.split_lines();
        self
    }

    /// Waits where a line has a pause. By default, deltas are produced as fast as they are read.
    pub fn real_time(mut self) -> Self {
        self.real_time = true;
        self
    }

    /// Stores every request, for [`requests`](Self::requests).
    pub fn store_requests(mut self) -> Self {
        self.seen = Some(Mutex::default());
        self
    }

    /// Returns the requests so far, if the model was told to [store](Self::store_requests) them.
    pub fn requests(&self) -> Vec<ModelRequest> {
        let seen = self
            .seen
            .as_ref()
            .map(|seen| seen.lock().unwrap_or_else(PoisonError::into_inner).clone());
        seen.unwrap_or_default()
    }

    fn split_lines(&mut self) {
        let chunk = self.chunk.get();
        self.places
            .iter_mut()
            .flat_map(|place| &mut place.cues)
            .for_each(|cue| cue.pieces = cue.line.to_deltas(chunk));
    }

    /// Finds the next cue, and the number of its reply, counted from 0.
    fn next_cue(&self, request: &ModelRequest) -> Result<(usize, &ScriptCue), ModelError> {
        match &self.position {
            ScriptPosition::Conversation(counted) => {
                let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
                self.cue_at(count_replies(&mut counted, &request.messages), request)
            }
            ScriptPosition::Order(next) => {
                let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
                let found = self.cue_at(*next, request)?;
                // A failure does not consume a position: the caller may retry, and the next line is
                // played then.
                *next += usize::from(found.1.line.failure.is_none());
                Ok(found)
            }
        }
    }

    fn cue_at(
        &self,
        number: usize,
        request: &ModelRequest,
    ) -> Result<(usize, &ScriptCue), ModelError> {
        let place = self.places.partition_point(|place| place.end <= number);
        let place = self
            .places
            .get(place)
            .ok_or_else(|| self.script_ended_error(number))?;
        match place.cues.iter().find(|cue| cue.matches_request(request)) {
            Some(cue) => Ok((number, cue)),
            None => Err(self.setup_error(format!(
                "no line of the script fits as reply {}",
                number + 1
            ))),
        }
    }

    fn script_ended_error(&self, number: usize) -> ModelError {
        let replies = self.places.last().map_or(0, |place| place.end);
        let s = if replies == 1 { "y" } else { "ies" };
        self.setup_error(format!(
            "the script has {replies} repl{s} and was asked for reply {}",
            number + 1
        ))
    }

    fn setup_error(&self, detail: String) -> ModelError {
        ModelError::new(ModelErrorKind::Setup, self.name.clone(), detail)
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        if let Some(seen) = &self.seen {
            seen.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(request.clone());
        }
        let (number, cue) = match self.next_cue(request) {
            Ok(found) => found,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        let pieces = stream::iter(cue.play_deltas(&self.name, number));
        match cue
            .line
            .pause
            .filter(|pause| self.real_time && !pause.is_zero())
        {
            Some(pause) => pieces.then(move |piece| delay_item(pause, piece)).boxed(),
            None => pieces.boxed(),
        }
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel")
            .field("name", &self.name)
            .field("places", &self.places.len())
            .finish_non_exhaustive()
    }
}

impl ScriptCue {
    fn new(line: ScriptLine) -> Self {
        let reply = line.to_reply();
        let unnamed = line.calls_without_id();
        Self {
            reply,
            pieces: Vec::new(),
            unnamed,
            failed: AtomicUsize::new(0),
            line,
        }
    }

    /// Checks whether the cue is to be played. A failure that was played often enough is not.
    fn matches_request(&self, request: &ModelRequest) -> bool {
        let left = || match (&self.line.failure, self.line.repeat) {
            (Some(_), LineRepeat::Times(times)) => {
                self.failed.fetch_add(1, Ordering::Relaxed) < times
            }
            _ => true,
        };
        // The condition comes first: `left` counts, so it must run only if the line would be
        // played.
        self.line
            .when
            .as_ref()
            .is_none_or(|when: &LineCondition| when.is_met_by(request))
            && left()
    }

    fn play_deltas(&self, name: &ModelName, number: usize) -> Vec<Result<Delta, ModelError>> {
        let mut pieces = Vec::with_capacity(self.pieces.len() + 1);
        pieces.extend(
            self.pieces
                .iter()
                .map(|piece| Ok(self.identify_delta(piece, number))),
        );
        pieces.push(match &self.line.failure {
            Some(failure) => Err(failure.to_model_error(name)),
            None => Ok(Delta::Done(Box::new(self.identify_reply(number)))),
        });
        pieces
    }

    fn needs_id(&self, index: usize) -> bool {
        self.unnamed.get(index).copied().unwrap_or_default()
    }

    fn identify_delta(&self, piece: &Delta, number: usize) -> Delta {
        match piece {
            Delta::Call { index, tool, .. } if self.needs_id(*index) => Delta::Call {
                index: *index,
                id: generated_call_id(number, *index),
                tool: tool.clone(),
            },
            other => other.clone(),
        }
    }

    fn identify_reply(&self, number: usize) -> Reply {
        let mut reply = self.reply.clone();
        let calls = reply
            .message
            .parts
            .iter_mut()
            .filter_map(|part| match &mut part.content {
                PartContent::Call(request) => Some(request),
                _ => None,
            });
        for (index, request) in calls.enumerate().filter(|(index, _)| self.needs_id(*index)) {
            request.provider_call_id = generated_call_id(number, index);
        }
        reply
    }
}

/// Returns the id of a call whose line gives none. A line that is repeated gets new ids each time.
fn generated_call_id(number: usize, index: usize) -> String {
    format!("call_{number}_{index}")
}

impl ScriptFailure {
    fn to_model_error(&self, name: &ModelName) -> ModelError {
        let error = ModelError::new(self.kind, name.clone(), self.detail.as_str());
        ModelError {
            status: self.status,
            retry_after: self.retry_after,
            retry_within: None,
            ..error
        }
    }
}

impl ScriptLine {
    /// Returns for each call whether the line gives it no id.
    fn calls_without_id(&self) -> Vec<bool> {
        let calls = self.spoken.iter().filter_map(|spoken| match spoken {
            ScriptPart::Call { id, .. } => Some(id.is_none()),
            _ => None,
        });
        calls.collect()
    }

    fn to_reply(&self) -> Reply {
        let parts: Vec<MessagePart> = self.spoken.iter().map(ScriptPart::to_part).collect();
        let calls = self
            .spoken
            .iter()
            .any(|spoken| matches!(spoken, ScriptPart::Call { .. }));
        let finish = self.finish.unwrap_or(if calls {
            FinishReason::Calls
        } else {
            FinishReason::Stop
        });
        Reply {
            usage: self.usage,
            finish,
            ..Reply::new(Message::new(Role::Assistant, parts))
        }
    }

    /// Splits the line into deltas of at most `chunk` characters. Deltas of consecutive calls are
    /// interleaved, as real models may send them.
    fn to_deltas(&self, chunk: usize) -> Vec<Delta> {
        let mut pieces = Vec::new();
        let mut calls = 0;
        for group in self
            .spoken
            .chunk_by(|a, b| matches!((a, b), (ScriptPart::Call { .. }, ScriptPart::Call { .. })))
        {
            let mut arguments = Vec::new();
            for spoken in group {
                match spoken {
                    ScriptPart::Text(text) => {
                        pieces.extend(split_text(text, chunk).map(Delta::Text))
                    }
                    ScriptPart::Reasoning(text) => {
                        pieces.extend(split_text(text, chunk).map(Delta::Reasoning))
                    }
                    ScriptPart::Call {
                        id,
                        tool,
                        arguments: text,
                    } => {
                        let id = id.clone().unwrap_or_default();
                        let tool = tool.clone();
                        pieces.push(Delta::Call {
                            index: calls,
                            id,
                            tool,
                        });
                        arguments.push((calls, split_text(text, chunk)));
                        calls += 1;
                    }
                }
            }
            while !arguments.is_empty() {
                arguments.retain_mut(|(index, rest)| {
                    let before = pieces.len();
                    pieces.extend(rest.next().map(|text| Delta::Arguments {
                        index: *index,
                        text,
                    }));
                    pieces.len() > before
                });
            }
        }
        pieces
    }
}

impl ScriptPart {
    fn to_part(&self) -> MessagePart {
        match self {
            Self::Text(text) => MessagePart::from_text(text),
            Self::Reasoning(text) => PartContent::Reasoning(text.clone()).into(),
            Self::Call {
                id,
                tool,
                arguments,
            } => PartContent::Call(ToolRequest {
                provider_call_id: id.clone().unwrap_or_default(),
                tool: tool.clone(),
                arguments: RawArguments::Text(arguments.clone()),
            })
            .into(),
        }
    }
}

/// Splits a text between characters.
fn split_text(text: &str, chunk: usize) -> impl Iterator<Item = String> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest
            .char_indices()
            .nth(chunk)
            .map_or(rest.len(), |(at, _)| at);
        let (piece, left) = rest.split_at(end);
        rest = left;
        (!piece.is_empty()).then(|| piece.to_owned())
    })
}

/// Groups lines that are alternatives into one position.
fn group_lines(lines: impl Iterator<Item = ScriptLine>) -> Vec<ScriptStep> {
    let mut places = Vec::new();
    let mut cues = Vec::new();
    let mut end = 0_usize;
    for line in lines {
        let repeat = line.repeat;
        // A conditional line or a failure shares its position with the lines after it.
        let ends = line.when.is_none() && line.failure.is_none();
        let forever = line.when.is_none() && repeat == LineRepeat::Always;
        cues.push(ScriptCue::new(line));
        end = match repeat {
            _ if forever => usize::MAX,
            LineRepeat::Times(times) if ends => end.saturating_add(times),
            _ => continue,
        };
        places.push(ScriptStep {
            cues: std::mem::take(&mut cues),
            end,
        });
    }
    // Alternatives at the end of a script without an unconditional line are a position, too.
    if !cues.is_empty() {
        places.push(ScriptStep {
            cues,
            end: end.saturating_add(1),
        });
    }
    places
}

/// Counts the assistant messages. Only those since the last request are examined, so that a long
/// conversation costs no more than a short one.
fn count_replies(counted: &mut Option<CountedReplies>, messages: &[Arc<Message>]) -> usize {
    // Only valid if this request extends the last one; another conversation is counted from its
    // start.
    let known = counted.as_ref().filter(|known| {
        known
            .messages
            .checked_sub(1)
            .and_then(|last| messages.get(last))
            .is_some_and(|m| Arc::ptr_eq(m, &known.last))
    });
    let (from, before) = known.map_or((0, 0), |known| (known.messages, known.replies));
    let replies = before
        + messages[from..]
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count();
    *counted = messages.last().map(|last| CountedReplies {
        last: last.clone(),
        messages: messages.len(),
        replies,
    });
    replies
}

async fn delay_item<T>(pause: Duration, piece: T) -> T {
    tokio::time::sleep(pause).await;
    piece
}

#[cfg(test)]
mod tests;
