//! A model that says what a script tells it to, for demos and tests.

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
    Content, Delta, Finish, Message, Model, ModelError, ModelErrorKind, ModelName, ModelRequest,
    Part, RawArguments, Reply, Role, ToolRequest,
};

use crate::script::{Failure, Line, Repeat, Spoken, When};

/// A model that plays a script. It needs no key and no network.
///
/// Which line is next is told by the conversation: a request with three assistant messages gets the fourth reply. So a
/// session that another process takes up goes on where it stopped, and several sessions can share one script. A session
/// so long that its beginning is left out would be counted wrongly; there, play [in order](Self::in_order).
///
/// ```
/// use futures::{StreamExt, executor::block_on};
/// use toolgate_core::{Delta, Message, Model, ModelRequest};
/// use toolgate_models::{Line, Scripted};
///
/// let model = Scripted::new([
///     Line::new().say("Let me look.").call("list_dir", serde_json::json!({ "path": "." })),
///     Line::new().say("Two files."),
/// ]);
/// let messages = vec![Message::user("What is here?").into()];
/// let request = ModelRequest { messages, ..ModelRequest::default() };
/// let pieces: Vec<_> = block_on(model.reply(&request).collect());
/// let Some(Ok(Delta::Done(reply))) = pieces.last() else { panic!("the last piece is the reply") };
/// assert_eq!(reply.message.calls().next().unwrap().tool, "list_dir");
/// ```
pub struct Scripted {
    name: ModelName,
    places: Vec<Place>,
    position: Position,
    real_time: bool,
    seen: Option<Mutex<Vec<ModelRequest>>>,
    chunk: NonZeroUsize,
}

/// A place in the conversation: the first of its cues that fits is played.
struct Place {
    cues: Vec<Cue>,
    /// The number of the first reply after this place.
    end: usize,
}

/// A line, ready to be played.
struct Cue {
    line: Line,
    reply: Reply,
    pieces: Vec<Delta>,
    /// Which of its calls, in order, get an id when they are played.
    unnamed: Vec<bool>,
    /// How often a failure was played.
    failed: AtomicUsize,
}

/// How the model knows where it is.
enum Position {
    /// By the assistant messages of the conversation; those of the last request are not counted again.
    Conversation(Mutex<Option<Counted>>),
    /// By how often it replied.
    Order(Mutex<usize>),
}

/// How many assistant messages there are up to a message.
struct Counted {
    last: Arc<Message>,
    messages: usize,
    replies: usize,
}

impl Scripted {
    /// How many characters a piece of text has unless said otherwise.
    const CHUNK: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

    /// A model that plays `lines`, first to last.
    pub fn new<L: Into<Line>>(lines: impl IntoIterator<Item = L>) -> Self {
        let mut model = Self {
            name: ModelName::new("scripted", "script"),
            places: places(lines.into_iter().map(L::into)),
            position: Position::Conversation(Mutex::default()),
            real_time: false,
            seen: None,
            chunk: Self::CHUNK,
        };
        model.cut();
        model
    }

    /// Calls the model something else.
    pub fn named(mut self, name: ModelName) -> Self {
        self.name = name;
        self
    }

    /// Plays one line after the other, whatever the conversation looks like.
    pub fn in_order(mut self) -> Self {
        self.position = Position::Order(Mutex::default());
        self
    }

    /// How many characters a piece of text or arguments has at most.
    pub fn chunk(mut self, characters: NonZeroUsize) -> Self {
        self.chunk = characters;
        self.cut();
        self
    }

    /// Really waits where a line has a pause. Without this, pieces come as fast as they are taken.
    pub fn real_time(mut self) -> Self {
        self.real_time = true;
        self
    }

    /// Keeps every request, for [`requests`](Self::requests).
    pub fn watch(mut self) -> Self {
        self.seen = Some(Mutex::default());
        self
    }

    /// The requests so far, if the model was told to [watch](Self::watch).
    pub fn requests(&self) -> Vec<ModelRequest> {
        let seen = self
            .seen
            .as_ref()
            .map(|seen| seen.lock().unwrap_or_else(PoisonError::into_inner).clone());
        seen.unwrap_or_default()
    }

    fn cut(&mut self) {
        let chunk = self.chunk.get();
        self.places
            .iter_mut()
            .flat_map(|place| &mut place.cues)
            .for_each(|cue| cue.pieces = cue.line.pieces(chunk));
    }

    /// Finds the cue that is next, and the number of its reply, counted from 0.
    fn cue(&self, request: &ModelRequest) -> Result<(usize, &Cue), ModelError> {
        match &self.position {
            Position::Conversation(counted) => {
                let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
                self.cue_at(replies_so_far(&mut counted, &request.messages), request)
            }
            Position::Order(next) => {
                let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
                let found = self.cue_at(*next, request)?;
                *next += usize::from(found.1.line.failure.is_none());
                Ok(found)
            }
        }
    }

    fn cue_at(&self, number: usize, request: &ModelRequest) -> Result<(usize, &Cue), ModelError> {
        let place = self.places.partition_point(|place| place.end <= number);
        let place = self.places.get(place).ok_or_else(|| self.run_out(number))?;
        match place.cues.iter().find(|cue| cue.fits(request)) {
            Some(cue) => Ok((number, cue)),
            None => Err(self.setup(format!(
                "no line of the script fits as reply {}",
                number + 1
            ))),
        }
    }

    fn run_out(&self, number: usize) -> ModelError {
        let replies = self.places.last().map_or(0, |place| place.end);
        let s = if replies == 1 { "y" } else { "ies" };
        self.setup(format!(
            "the script has {replies} repl{s} and was asked for reply {}",
            number + 1
        ))
    }

    fn setup(&self, detail: String) -> ModelError {
        ModelError::new(ModelErrorKind::Setup, self.name.clone(), detail)
    }
}

impl Model for Scripted {
    fn name(&self) -> &ModelName {
        &self.name
    }

    fn reply<'a>(&'a self, request: &'a ModelRequest) -> BoxStream<'a, Result<Delta, ModelError>> {
        if let Some(seen) = &self.seen {
            seen.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(request.clone());
        }
        let (number, cue) = match self.cue(request) {
            Ok(found) => found,
            Err(error) => return stream::iter([Err(error)]).boxed(),
        };
        let pieces = stream::iter(cue.play(&self.name, number));
        match cue
            .line
            .pause
            .filter(|pause| self.real_time && !pause.is_zero())
        {
            Some(pause) => pieces.then(move |piece| after(pause, piece)).boxed(),
            None => pieces.boxed(),
        }
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted")
            .field("name", &self.name)
            .field("places", &self.places.len())
            .finish_non_exhaustive()
    }
}

impl Cue {
    fn new(line: Line) -> Self {
        let (reply, unnamed) = (line.reply(), line.unnamed());
        Self {
            reply,
            pieces: Vec::new(),
            unnamed,
            failed: AtomicUsize::new(0),
            line,
        }
    }

    /// Whether the cue is to be played. A failure that was played often enough is over.
    fn fits(&self, request: &ModelRequest) -> bool {
        let left = || match (&self.line.failure, self.line.repeat) {
            (Some(_), Repeat::Times(times)) => self.failed.fetch_add(1, Ordering::Relaxed) < times,
            _ => true,
        };
        self.line
            .when
            .as_ref()
            .is_none_or(|when: &When| when.holds(request))
            && left()
    }

    fn play(&self, name: &ModelName, number: usize) -> Vec<Result<Delta, ModelError>> {
        let mut pieces = Vec::with_capacity(self.pieces.len() + 1);
        pieces.extend(
            self.pieces
                .iter()
                .map(|piece| Ok(self.identified(piece, number))),
        );
        pieces.push(match &self.line.failure {
            Some(failure) => Err(failure.error(name)),
            None => Ok(Delta::Done(Box::new(self.identified_reply(number)))),
        });
        pieces
    }

    fn is_unnamed(&self, index: usize) -> bool {
        self.unnamed.get(index).copied().unwrap_or_default()
    }

    fn identified(&self, piece: &Delta, number: usize) -> Delta {
        match piece {
            Delta::Call { index, tool, .. } if self.is_unnamed(*index) => Delta::Call {
                index: *index,
                id: call_id(number, *index),
                tool: tool.clone(),
            },
            other => other.clone(),
        }
    }

    fn identified_reply(&self, number: usize) -> Reply {
        let mut reply = self.reply.clone();
        let calls = reply
            .message
            .parts
            .iter_mut()
            .filter_map(|part| match &mut part.content {
                Content::Call(request) => Some(request),
                _ => None,
            });
        for (index, request) in calls
            .enumerate()
            .filter(|(index, _)| self.is_unnamed(*index))
        {
            request.provider_call_id = call_id(number, index);
        }
        reply
    }
}

/// The id of a call whose line gives none. A line that is repeated gives other ids each time.
fn call_id(number: usize, index: usize) -> String {
    format!("call_{number}_{index}")
}

impl Failure {
    fn error(&self, name: &ModelName) -> ModelError {
        let error = ModelError::new(self.kind, name.clone(), self.detail.as_str());
        ModelError {
            status: self.status,
            retry_after: self.retry_after,
            ..error
        }
    }
}

impl Line {
    /// For each call, whether the line gives it no id.
    fn unnamed(&self) -> Vec<bool> {
        let calls = self.spoken.iter().filter_map(|spoken| match spoken {
            Spoken::Call { id, .. } => Some(id.is_none()),
            _ => None,
        });
        calls.collect()
    }

    fn reply(&self) -> Reply {
        let parts: Vec<Part> = self.spoken.iter().map(Spoken::part).collect();
        let calls = self
            .spoken
            .iter()
            .any(|spoken| matches!(spoken, Spoken::Call { .. }));
        let finish = self
            .finish
            .unwrap_or(if calls { Finish::Calls } else { Finish::Stop });
        Reply {
            usage: self.usage,
            finish,
            ..Reply::new(Message::new(Role::Assistant, parts))
        }
    }

    /// The line in pieces of at most `chunk` characters. Pieces of calls that follow one another are mixed.
    fn pieces(&self, chunk: usize) -> Vec<Delta> {
        let mut pieces = Vec::new();
        let mut calls = 0;
        for group in self
            .spoken
            .chunk_by(|a, b| matches!((a, b), (Spoken::Call { .. }, Spoken::Call { .. })))
        {
            let mut arguments = Vec::new();
            for spoken in group {
                match spoken {
                    Spoken::Text(text) => pieces.extend(chunks(text, chunk).map(Delta::Text)),
                    Spoken::Reasoning(text) => {
                        pieces.extend(chunks(text, chunk).map(Delta::Reasoning))
                    }
                    Spoken::Call {
                        id,
                        tool,
                        arguments: text,
                    } => {
                        let (id, tool) = (id.clone().unwrap_or_default(), tool.clone());
                        pieces.push(Delta::Call {
                            index: calls,
                            id,
                            tool,
                        });
                        arguments.push((calls, chunks(text, chunk)));
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

impl Spoken {
    fn part(&self) -> Part {
        match self {
            Self::Text(text) => Part::text(text),
            Self::Reasoning(text) => Content::Reasoning(text.clone()).into(),
            Self::Call {
                id,
                tool,
                arguments,
            } => Content::Call(ToolRequest {
                provider_call_id: id.clone().unwrap_or_default(),
                tool: tool.clone(),
                arguments: RawArguments::Text(arguments.clone()),
            })
            .into(),
        }
    }
}

/// Cuts a text between characters.
fn chunks(text: &str, chunk: usize) -> impl Iterator<Item = String> {
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

/// Puts lines that are alternatives into one place.
fn places(lines: impl Iterator<Item = Line>) -> Vec<Place> {
    let (mut places, mut cues, mut end) = (Vec::new(), Vec::new(), 0_usize);
    for line in lines {
        let (repeat, ends) = (line.repeat, line.when.is_none() && line.failure.is_none());
        let forever = line.when.is_none() && repeat == Repeat::Always;
        cues.push(Cue::new(line));
        end = match repeat {
            _ if forever => usize::MAX,
            Repeat::Times(times) if ends => end.saturating_add(times),
            _ => continue,
        };
        places.push(Place {
            cues: std::mem::take(&mut cues),
            end,
        });
    }
    if !cues.is_empty() {
        places.push(Place {
            cues,
            end: end.saturating_add(1),
        });
    }
    places
}

/// Counts the assistant messages. Only those that came since the last request are looked at, so that a long
/// conversation costs no more than a short one.
fn replies_so_far(counted: &mut Option<Counted>, messages: &[Arc<Message>]) -> usize {
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
    *counted = messages.last().map(|last| Counted {
        last: last.clone(),
        messages: messages.len(),
        replies,
    });
    replies
}

async fn after<T>(pause: Duration, piece: T) -> T {
    tokio::time::sleep(pause).await;
    piece
}

#[cfg(test)]
#[path = "scripted_tests.rs"]
mod tests;
