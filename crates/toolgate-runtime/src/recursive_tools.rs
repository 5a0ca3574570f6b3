//! The tools with which a coordinator looks at documents and says what it knows.

use std::{ops::Range, sync::Arc};

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate_core::{
    Annotations, Arguments, Content, Context, ErrorCategory, ModelRequest, Role, Schema, Tool,
    ToolError, ToolOutput, ToolSpec, typed,
};

use crate::{
    Document, Recursive,
    recursive_state::{Answer, RunState},
};

/// Shows what there is.
pub(crate) struct Peek(pub(crate) Recursive);
/// Finds words or patterns.
pub(crate) struct Search(pub(crate) Recursive);
/// Reads a piece.
pub(crate) struct Slice(pub(crate) Recursive);
/// Keeps something in mind.
pub(crate) struct Note(pub(crate) Recursive);
/// Says the answer.
pub(crate) struct SetAnswer(pub(crate) Recursive);

/// The thresholds at which the coordinator is told how much is used.
pub(crate) const WARN_AT: [u8; 2] = [75, 90];

#[derive(Deserialize, JsonSchema)]
struct PeekInput {
    /// The document to look at; leave it out for a list of all.
    document: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct SearchInput {
    /// The words to look for, or a regular expression if `regex` is true.
    query: String,
    /// Whether `query` is a regular expression.
    #[serde(default)]
    regex: bool,
    /// Whether upper and lower case count as the same.
    #[serde(default)]
    ignore_case: bool,
    /// The document to search; leave it out to search all.
    document: Option<String>,
    /// The byte to begin at, to go on with an earlier search. Needs `document` if there are several.
    #[serde(default)]
    from: usize,
    /// How many matches to return, 50 at most; 20 if left out.
    limit: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
struct NoteInput {
    /// What to keep in mind.
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct SetAnswerInput {
    /// The answer, in full.
    answer: String,
    /// Whether this is the final answer, which ends the work; false keeps it as the best one so far. True if left out.
    ready: Option<bool>,
}

/// A piece of a document, as a model names it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(crate) struct Piece {
    /// The document; may be left out if there is only one.
    pub(crate) document: Option<String>,
    /// The first byte; 0 if left out.
    pub(crate) start: Option<usize>,
    /// The byte behind the last one; the end of the document if left out.
    pub(crate) end: Option<usize>,
    /// The first line, counted from 1, instead of `start`.
    pub(crate) first_line: Option<usize>,
    /// The last line, instead of `end`.
    pub(crate) last_line: Option<usize>,
}

impl Recursive {
    /// The document that a model means.
    pub(crate) fn document(&self, name: Option<&str>) -> Result<&Arc<Document>, ToolError> {
        let documents = &self.0.documents;
        let found = match name {
            Some(name) => documents.get(name),
            None => {
                let mut all = documents.iter();
                all.next().filter(|_| all.next().is_none())
            }
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = documents
                .iter()
                .take(20)
                .map(|document| document.name())
                .collect();
            let problem = match name {
                Some(name) => format!("There is no document named {name:?}."),
                None => "Say which document you mean.".to_owned(),
            };
            invalid(format!("{problem} There are: {}.", names.join(", ")))
        })
    }

    /// The document and the bytes that a model means.
    pub(crate) fn piece(&self, piece: &Piece) -> Result<(&Arc<Document>, Range<usize>), ToolError> {
        let document = self.document(piece.document.as_deref())?;
        let start = match (piece.start, piece.first_line) {
            (Some(_), Some(_)) => return Err(invalid("Give `start` or `first_line`, not both.")),
            (Some(start), None) => start,
            (None, line) => document.line_start(line.unwrap_or(1)),
        };
        let end = match (piece.end, piece.last_line) {
            (Some(_), Some(_)) => return Err(invalid("Give `end` or `last_line`, not both.")),
            (None, Some(line)) => document.line_start(line.saturating_add(1)),
            (end, None) => end.unwrap_or(document.bytes()),
        };
        if start >= end || start >= document.bytes() {
            let (name, bytes, lines) = (document.name(), document.bytes(), document.lines());
            return Err(invalid(format!(
                "There is nothing there: {name} has {bytes} bytes in {lines} lines."
            )));
        }
        Ok((document, document.fit(start..end)))
    }

    /// The run that a call belongs to.
    pub(crate) fn run_of(&self, cx: &Context) -> Result<Arc<RunState>, ToolError> {
        let words = "This tool works only in a session that uses the recursive strategy.";
        let foreign =
            || ToolError::new(words).with_operator("the strategy was not given to the session");
        self.known(cx.turn().session).ok_or_else(foreign)
    }

    /// What the model is told, with a word about limits that are nearly used up: once for each threshold.
    pub(crate) async fn told(
        &self,
        cx: &Context,
        state: &RunState,
        mut text: String,
    ) -> Result<String, ToolError> {
        let used = state.used(
            &self.0.limits,
            cx.turn().iteration.saturating_add(1),
            cx.now(),
        );
        let (store, mut news) = (cx.env().store(), false);
        for percent in WARN_AT
            .into_iter()
            .filter(|percent| used.percent >= *percent)
        {
            news |= state
                .first_to_say(store, "warned", percent, &cx.id.to_string())
                .await?;
        }
        if news {
            text.push_str(&format!(
                "\n\n[Used so far: {used}. Come to an end soon and call set_answer with what you know.]"
            ));
        }
        Ok(text)
    }
}

pub(crate) fn invalid(text: impl Into<String>) -> ToolError {
    ToolError::new(text).with_category(ErrorCategory::InvalidInput)
}

/// A tool that only looks at documents.
fn looking<I: JsonSchema>(name: &str, words: &str) -> ToolSpec {
    ToolSpec::new(name, words, Schema::of::<I>()).with_annotations(Annotations::read_only())
}

impl Peek {
    /// How much of the head and of the tail is shown.
    const SHOWN: usize = 1000;
    /// How many documents are listed.
    const LISTED: usize = 200;

    fn overview(&self) -> String {
        let documents = &self.0.0.documents;
        let count = documents.iter().count();
        let mut text = format!("{count} documents, {} bytes:", documents.bytes());
        for document in documents.iter().take(Self::LISTED) {
            text.push_str(&format!("\n- {}", measured(document)));
        }
        if count > Self::LISTED {
            text.push_str(&format!("\n- and {} more", count - Self::LISTED));
        }
        text
    }

    fn ends(document: &Document) -> String {
        let head = document.slice(0..Self::SHOWN);
        let tail = document
            .slice(document.bytes().saturating_sub(Self::SHOWN).max(head.len())..document.bytes());
        let gap = document.bytes() - head.len() - tail.len();
        match gap {
            0 => format!("{}\n\n{head}{tail}", measured(document)),
            _ => format!(
                "{}\n\n{head}\n\n[… {gap} bytes …]\n\n{tail}",
                measured(document)
            ),
        }
    }
}

fn measured(document: &Document) -> String {
    format!(
        "{}: {} bytes, {} lines",
        document.name(),
        document.bytes(),
        document.lines()
    )
}

impl Tool for Peek {
    fn spec(&self) -> ToolSpec {
        looking::<PeekInput>(
            "peek",
            "Shows which documents there are, or the size, head and tail of one.",
        )
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let PeekInput { document } = typed(&arguments)?;
        let state = self.0.run_of(&cx)?;
        let one = self.0.0.documents.iter().count() == 1;
        let text = match &document {
            None if !one => self.overview(),
            name => Self::ends(self.0.document(name.as_deref())?),
        };
        Ok(self.0.told(&cx, &state, text).await?.into())
    }
}

impl Search {
    const MOST: usize = 50;
    const USUAL: usize = 20;
    const QUERY_BYTES: usize = 1000;
    /// How much is shown on each side of a match, and of a match itself.
    const AROUND: usize = 100;
    const MATCH: usize = 200;

    fn pattern(input: &SearchInput) -> Result<Regex, ToolError> {
        if input.query.is_empty() || input.query.len() > Self::QUERY_BYTES {
            return Err(invalid(format!(
                "The query has to have from 1 to {} bytes.",
                Self::QUERY_BYTES
            )));
        }
        let escaped = if input.regex {
            input.query.clone()
        } else {
            regex::escape(&input.query)
        };
        let mut builder = RegexBuilder::new(&escaped);
        // The size is bounded, since a few characters can ask for gigabytes: `((a{999}){999}){999}`.
        builder
            .multi_line(true)
            .case_insensitive(input.ignore_case)
            .size_limit(4 << 20)
            .dfa_size_limit(4 << 20);
        builder
            .build()
            .map_err(|error| invalid(format!("The regular expression cannot be used: {error}")))
    }

    /// Looks through the documents in order until there are enough matches.
    fn look(documents: &[Arc<Document>], pattern: &Regex, from: usize, limit: usize) -> String {
        let (mut text, mut left) = (String::new(), limit);
        for document in documents {
            let (found, more) = document.find(pattern, from, left);
            left -= found.len();
            for one in found {
                let (name, at, line) = (document.name(), one.range.start, one.line);
                let snippet = snippet(document, one.range);
                text.push_str(&format!("{name}, byte {at}, line {line}: {snippet}\n"));
            }
            if let Some(next) = more {
                let name = document.name();
                text.push_str(&format!(
                    "There are more. Go on in {name} with `from` {next}."
                ));
                return text;
            }
        }
        if left == limit {
            "Nothing was found.".to_owned()
        } else {
            text + "That is all."
        }
    }
}

/// A match with a little of what is around it, in one line.
fn snippet(document: &Document, range: Range<usize>) -> String {
    let shown_end = range.end.min(range.start + Search::MATCH);
    let around = document
        .fit(range.start.saturating_sub(Search::AROUND)..shown_end.saturating_add(Search::AROUND));
    let (before, after) = (around.start > 0, around.end < document.bytes());
    let line: String = document
        .slice(around)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    format!(
        "{}{}{}",
        if before { "…" } else { "" },
        line,
        if after { "…" } else { "" }
    )
}

impl Tool for Search {
    fn spec(&self) -> ToolSpec {
        let words = "Finds words or a regular expression in the documents. Tells where each match is, with a little of \
                     what is around it.";
        looking::<SearchInput>("search", words)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let input: SearchInput = typed(&arguments)?;
        let state = self.0.run_of(&cx)?;
        let pattern = Self::pattern(&input)?;
        let documents: Vec<_> = match (&input.document, input.from) {
            (None, 0) => self.0.0.documents.iter().cloned().collect(),
            (name, _) => vec![self.0.document(name.as_deref())?.clone()],
        };
        let (from, limit) = (
            input.from,
            input.limit.unwrap_or(Self::USUAL).clamp(1, Self::MOST),
        );
        // Searching gigabytes takes a while, and other calls run on this thread.
        let text =
            tokio::task::spawn_blocking(move || Self::look(&documents, &pattern, from, limit))
                .await?;
        Ok(self.0.told(&cx, &state, text).await?.into())
    }
}

impl Tool for Slice {
    fn spec(&self) -> ToolSpec {
        let words = format!(
            "Reads a piece of a document, by bytes or by lines. At most {} bytes at a time; use `delegate` for more.",
            self.0.0.pieces.slice
        );
        looking::<Piece>("slice", &words)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let piece: Piece = typed(&arguments)?;
        let state = self.0.run_of(&cx)?;
        let (document, asked) = self.0.piece(&piece)?;
        let most = self.0.0.pieces.slice;
        let shown = document.fit(asked.start..asked.end.min(asked.start.saturating_add(most)));
        let (name, lines) = (
            document.name(),
            (
                document.line_of(shown.start),
                document.line_of(shown.end.saturating_sub(1)),
            ),
        );
        let mut text = format!(
            "{name}, bytes {}..{}, lines {}..{}:\n\n",
            shown.start, shown.end, lines.0, lines.1
        );
        text.push_str(document.slice(shown.clone()));
        if shown.end < asked.end {
            text.push_str(&format!(
                "\n\n[Cut here; go on with `start` {}.]",
                shown.end
            ));
        }
        Ok(self.0.told(&cx, &state, text).await?.into())
    }
}

impl Note {
    const NAME: &'static str = "note";
    /// The most bytes of all notes of a run.
    const MOST: usize = 32 * 1024;
    /// What the first note of a run is answered with.
    const FIRST: &'static str = "Note 1 is kept.";

    /// Whether all notes of the run are still in the conversation. What is oldest is left out first, so if the first
    /// note of any run is there, so are those of the last.
    pub(crate) fn all_in_sight(request: &ModelRequest) -> bool {
        let tools = request
            .messages
            .iter()
            .filter(|message| message.role == Role::Tool);
        tools
            .flat_map(|message| &message.parts)
            .any(|part| match &part.content {
                Content::Result(answer) => {
                    answer.tool == Self::NAME && answer.text.starts_with(Self::FIRST)
                }
                _ => false,
            })
    }
}

/// What only touches our own records.
fn inward<I: JsonSchema>(name: &str, words: &str) -> ToolSpec {
    let annotations = Annotations::read_only().with_kind(toolgate_core::Kind::Think);
    ToolSpec::new(name, words, Schema::of::<I>()).with_annotations(annotations)
}

impl Tool for Note {
    fn spec(&self) -> ToolSpec {
        inward::<NoteInput>(
            Self::NAME,
            "Keeps something in mind: a finding, a plan, what was ruled out.",
        )
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let NoteInput { text } = typed(&arguments)?;
        let state = self.0.run_of(&cx)?;
        let text = text.trim();
        if text.is_empty() || state.scratchpad().len() + text.len() > Self::MOST {
            return Err(invalid(format!(
                "A note has to say something, and all of them at most {} bytes.",
                Self::MOST
            )));
        }
        let number = state.note(cx.env().store(), cx.id, text.to_owned()).await?;
        Ok(self
            .0
            .told(&cx, &state, format!("Note {number} is kept."))
            .await?
            .into())
    }
}

impl Tool for SetAnswer {
    fn spec(&self) -> ToolSpec {
        inward::<SetAnswerInput>(
            "set_answer",
            "Says the answer. Unless `ready` is false, the work ends with it.",
        )
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let SetAnswerInput { answer, ready } = typed(&arguments)?;
        let state = self.0.run_of(&cx)?;
        if answer.trim().is_empty() {
            return Err(invalid("The answer is empty."));
        }
        let ready = ready.unwrap_or(true);
        state
            .answer(
                cx.env().store(),
                cx.id,
                Answer {
                    text: answer,
                    ready,
                },
            )
            .await?;
        let words = if ready {
            "The answer is set."
        } else {
            "Kept as the best answer so far."
        };
        let text = self.0.told(&cx, &state, words.to_owned()).await?;
        Ok(ToolOutput::from(json!({ "ready": ready })).with_text(text))
    }
}
