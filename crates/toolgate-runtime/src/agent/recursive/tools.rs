//! The tools with which a coordinator reads documents and sets its answer.

use std::{ops::Range, sync::Arc};

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolgate_core::{
    Annotations, Arguments, Context, ErrorCategory, ModelRequest, PartContent, Role, Schema, Tool,
    ToolError, ToolOutput, ToolSpec, parse_arguments,
};

use crate::{
    RecursiveStrategy, TextDocument,
    agent::recursive::state::{CoordinatorAnswer, RecursiveRun},
};

/// Shows the documents.
pub(crate) struct PeekTool(pub(crate) RecursiveStrategy);
/// Finds words or patterns.
pub(crate) struct SearchTool(pub(crate) RecursiveStrategy);
/// Reads a piece.
pub(crate) struct SliceTool(pub(crate) RecursiveStrategy);
/// Stores a note.
pub(crate) struct NoteTool(pub(crate) RecursiveStrategy);
/// Sets the answer.
pub(crate) struct SetAnswerTool(pub(crate) RecursiveStrategy);

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
    /// True if `query` is a regular expression.
    #[serde(default)]
    regex: bool,
    /// True if upper and lower case count as the same.
    #[serde(default)]
    ignore_case: bool,
    /// The document to search; leave it out to search all.
    document: Option<String>,
    /// The byte to begin at, to continue an earlier search. Needs `document` if there are several.
    #[serde(default)]
    from: usize,
    /// The number of matches to return, 50 at most; 20 if left out.
    limit: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
struct NoteInput {
    /// The note.
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct SetAnswerInput {
    /// The answer, in full.
    answer: String,
    /// True for the final answer, which ends the work; false stores it as the best one so far. True
    /// if left out.
    ready: Option<bool>,
}

/// A piece of a document, as a model names it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(crate) struct DocumentPiece {
    /// The document; may be left out if there is only one.
    pub(crate) document: Option<String>,
    /// The first byte; 0 if left out.
    pub(crate) start: Option<usize>,
    /// The byte after the last one; the end of the document if left out.
    pub(crate) end: Option<usize>,
    /// The first line, counted from 1, instead of `start`.
    pub(crate) first_line: Option<usize>,
    /// The last line, instead of `end`.
    pub(crate) last_line: Option<usize>,
}

impl RecursiveStrategy {
    /// Returns the document that a model names.
    pub(crate) fn find_document(
        &self,
        name: Option<&str>,
    ) -> Result<&Arc<TextDocument>, ToolError> {
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
                None => "Name the document.".to_owned(),
            };
            invalid_input(format!("{problem} There are: {}.", names.join(", ")))
        })
    }

    /// Returns the document and the bytes that a model names.
    pub(crate) fn resolve_piece(
        &self,
        piece: &DocumentPiece,
    ) -> Result<(&Arc<TextDocument>, Range<usize>), ToolError> {
        let document = self.find_document(piece.document.as_deref())?;
        let start = match (piece.start, piece.first_line) {
            (Some(_), Some(_)) => {
                return Err(invalid_input("Give `start` or `first_line`, not both."));
            }
            (Some(start), None) => start,
            (None, line) => document.line_start(line.unwrap_or(1)),
        };
        let end = match (piece.end, piece.last_line) {
            (Some(_), Some(_)) => {
                return Err(invalid_input("Give `end` or `last_line`, not both."));
            }
            (None, Some(line)) => document.line_start(line.saturating_add(1)),
            (end, None) => end.unwrap_or(document.bytes()),
        };
        if start >= end || start >= document.bytes() {
            let name = document.name();
            let bytes = document.bytes();
            let lines = document.line_count();
            return Err(invalid_input(format!(
                "There is nothing there: {name} has {bytes} bytes in {lines} lines."
            )));
        }
        Ok((document, document.fit_range(start..end)))
    }

    /// Returns the run that a call belongs to.
    pub(crate) fn find_run(&self, cx: &Context) -> Result<Arc<RecursiveRun>, ToolError> {
        let words = "This tool works only in a session that uses the recursive strategy.";
        let foreign = || {
            ToolError::new(words).with_operator_detail("the strategy was not given to the session")
        };
        self.cached_run(cx.turn().session).ok_or_else(foreign)
    }

    /// Adds a warning to the text for the model when a limit is nearly reached: once for each
    /// threshold.
    pub(crate) async fn with_warning(
        &self,
        cx: &Context,
        state: &RecursiveRun,
        mut text: String,
    ) -> Result<String, ToolError> {
        let used = state.limit_usage(
            &self.0.limits,
            cx.turn().iteration.saturating_add(1),
            cx.now(),
        );
        let store = cx.env().store();
        let mut news = false;
        for percent in WARN_AT
            .into_iter()
            .filter(|percent| used.percent >= *percent)
        {
            news |= state
                .claim_threshold(store, "warned", percent, &cx.id.to_string())
                .await?;
        }
        if news {
            text.push_str(&format!(
                "\n\n[Used so far: {used}. Finish soon and call set_answer with what you know.]"
            ));
        }
        Ok(text)
    }
}

pub(crate) fn invalid_input(text: impl Into<String>) -> ToolError {
    ToolError::new(text).with_category(ErrorCategory::InvalidInput)
}

/// Builds the spec of a tool that only reads documents.
fn read_only_spec<I: JsonSchema>(name: &str, words: &str) -> ToolSpec {
    ToolSpec::new(name, words, Schema::for_type::<I>()).with_annotations(Annotations::read_only())
}

impl PeekTool {
    /// The maximum size of the head and of the tail.
    const SHOWN: usize = 1000;
    /// The maximum number of listed documents.
    const LISTED: usize = 200;

    fn overview_text(&self) -> String {
        let documents = &self.0.0.documents;
        let count = documents.iter().count();
        let mut text = format!("{count} documents, {} bytes:", documents.bytes());
        for document in documents.iter().take(Self::LISTED) {
            text.push_str(&format!("\n- {}", size_line(document)));
        }
        if count > Self::LISTED {
            text.push_str(&format!("\n- and {} more", count - Self::LISTED));
        }
        text
    }

    fn head_and_tail(document: &TextDocument) -> String {
        let head = document.slice(0..Self::SHOWN);
        let tail = document
            .slice(document.bytes().saturating_sub(Self::SHOWN).max(head.len())..document.bytes());
        let gap = document.bytes() - head.len() - tail.len();
        match gap {
            0 => format!("{}\n\n{head}{tail}", size_line(document)),
            _ => format!(
                "{}\n\n{head}\n\n[… {gap} bytes …]\n\n{tail}",
                size_line(document)
            ),
        }
    }
}

fn size_line(document: &TextDocument) -> String {
    format!(
        "{}: {} bytes, {} lines",
        document.name(),
        document.bytes(),
        document.line_count()
    )
}

impl Tool for PeekTool {
    fn spec(&self) -> ToolSpec {
        read_only_spec::<PeekInput>(
            "peek",
            "Shows which documents there are, or the size, head and tail of one.",
        )
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let PeekInput { document } = parse_arguments(&arguments)?;
        let state = self.0.find_run(&cx)?;
        let one = self.0.0.documents.iter().count() == 1;
        let text = match &document {
            None if !one => self.overview_text(),
            name => Self::head_and_tail(self.0.find_document(name.as_deref())?),
        };
        Ok(self.0.with_warning(&cx, &state, text).await?.into())
    }
}

impl SearchTool {
    const MOST: usize = 50;
    const USUAL: usize = 20;
    const QUERY_BYTES: usize = 1000;
    /// The maximum size of the text on each side of a match, and of a match itself.
    const AROUND: usize = 100;
    const MATCH: usize = 200;

    fn compile_pattern(input: &SearchInput) -> Result<Regex, ToolError> {
        if input.query.is_empty() || input.query.len() > Self::QUERY_BYTES {
            return Err(invalid_input(format!(
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
        // The compiled size is bounded, since a few characters can require gigabytes:
        // `((a{999}){999}){999}`.
        builder
            .multi_line(true)
            .case_insensitive(input.ignore_case)
            .size_limit(4 << 20)
            .dfa_size_limit(4 << 20);
        builder.build().map_err(|error| {
            invalid_input(format!("The regular expression cannot be used: {error}"))
        })
    }

    /// Searches the documents in order until there are enough matches.
    fn search_documents(
        documents: &[Arc<TextDocument>],
        pattern: &Regex,
        from: usize,
        limit: usize,
    ) -> String {
        let mut text = String::new();
        let mut left = limit;
        for document in documents {
            let (found, more) = document.find_matches(pattern, from, left);
            left -= found.len();
            for one in found {
                let name = document.name();
                let at = one.range.start;
                let line = one.line;
                let snippet = match_snippet(document, one.range);
                text.push_str(&format!("{name}, byte {at}, line {line}: {snippet}\n"));
            }
            if let Some(next) = more {
                let name = document.name();
                text.push_str(&format!(
                    "There are more. Continue in {name} with `from` {next}."
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

/// Returns a match with a little of the text around it, in one line.
fn match_snippet(document: &TextDocument, range: Range<usize>) -> String {
    let shown_end = range.end.min(range.start + SearchTool::MATCH);
    let around = document.fit_range(
        range.start.saturating_sub(SearchTool::AROUND)
            ..shown_end.saturating_add(SearchTool::AROUND),
    );
    let before = around.start > 0;
    let after = around.end < document.bytes();
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

impl Tool for SearchTool {
    fn spec(&self) -> ToolSpec {
        let words = "Finds words or a regular expression in the documents. Returns the position of each match, with a little of \
                     the text around it.";
        read_only_spec::<SearchInput>("search", words)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let input: SearchInput = parse_arguments(&arguments)?;
        let state = self.0.find_run(&cx)?;
        let pattern = Self::compile_pattern(&input)?;
        let documents: Vec<_> = match (&input.document, input.from) {
            (None, 0) => self.0.0.documents.iter().cloned().collect(),
            (name, _) => vec![self.0.find_document(name.as_deref())?.clone()],
        };
        let from = input.from;
        let limit = input.limit.unwrap_or(Self::USUAL).clamp(1, Self::MOST);
        // Searching gigabytes takes a while, and other calls run on this thread.
        let text = tokio::task::spawn_blocking(move || {
            Self::search_documents(&documents, &pattern, from, limit)
        })
        .await?;
        Ok(self.0.with_warning(&cx, &state, text).await?.into())
    }
}

impl Tool for SliceTool {
    fn spec(&self) -> ToolSpec {
        let words = format!(
            "Reads a piece of a document, by bytes or by lines. At most {} bytes at a time; use `delegate` for more.",
            self.0.0.pieces.slice
        );
        read_only_spec::<DocumentPiece>("slice", &words)
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let piece: DocumentPiece = parse_arguments(&arguments)?;
        let state = self.0.find_run(&cx)?;
        let (document, asked) = self.0.resolve_piece(&piece)?;
        let most = self.0.0.pieces.slice;
        let shown =
            document.fit_range(asked.start..asked.end.min(asked.start.saturating_add(most)));
        let name = document.name();
        let lines = (
            document.line_of(shown.start),
            document.line_of(shown.end.saturating_sub(1)),
        );
        let mut text = format!(
            "{name}, bytes {}..{}, lines {}..{}:\n\n",
            shown.start, shown.end, lines.0, lines.1
        );
        text.push_str(document.slice(shown.clone()));
        if shown.end < asked.end {
            text.push_str(&format!(
                "\n\n[Truncated; continue with `start` {}.]",
                shown.end
            ));
        }
        Ok(self.0.with_warning(&cx, &state, text).await?.into())
    }
}

impl NoteTool {
    const NAME: &'static str = "note";
    /// The maximum size of all notes of a run.
    const MOST: usize = 32 * 1024;
    /// The result of the first note of a run. Stored conversations are searched for it, so the text
    /// must not change.
    const FIRST: &'static str = "Note 1 is kept.";

    /// Checks whether all notes of the run are still in the conversation. The oldest messages are
    /// left out first, so if the first note of any run is there, so are those of the last.
    pub(crate) fn are_notes_visible(request: &ModelRequest) -> bool {
        let tools = request
            .messages
            .iter()
            .filter(|message| message.role == Role::Tool);
        tools
            .flat_map(|message| &message.parts)
            .any(|part| match &part.content {
                PartContent::Result(answer) => {
                    answer.tool == Self::NAME && answer.text.starts_with(Self::FIRST)
                }
                _ => false,
            })
    }
}

/// Builds the spec of a tool that only changes our own records.
fn record_spec<I: JsonSchema>(name: &str, words: &str) -> ToolSpec {
    let annotations = Annotations::read_only().with_kind(toolgate_core::ToolKind::Think);
    ToolSpec::new(name, words, Schema::for_type::<I>()).with_annotations(annotations)
}

impl Tool for NoteTool {
    fn spec(&self) -> ToolSpec {
        record_spec::<NoteInput>(
            Self::NAME,
            "Stores a note: a finding, a plan, what was ruled out.",
        )
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let NoteInput { text } = parse_arguments(&arguments)?;
        let state = self.0.find_run(&cx)?;
        let text = text.trim();
        if text.is_empty() || state.scratchpad().len() + text.len() > Self::MOST {
            return Err(invalid_input(format!(
                "A note must not be empty, and all notes together have at most {} bytes.",
                Self::MOST
            )));
        }
        let number = state
            .add_note(cx.env().store(), cx.id, text.to_owned())
            .await?;
        Ok(self
            .0
            .with_warning(&cx, &state, format!("Note {number} is kept."))
            .await?
            .into())
    }
}

impl Tool for SetAnswerTool {
    fn spec(&self) -> ToolSpec {
        record_spec::<SetAnswerInput>(
            "set_answer",
            "Sets the answer. Unless `ready` is false, the work ends with it.",
        )
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let SetAnswerInput { answer, ready } = parse_arguments(&arguments)?;
        let state = self.0.find_run(&cx)?;
        if answer.trim().is_empty() {
            return Err(invalid_input("The answer is empty."));
        }
        let ready = ready.unwrap_or(true);
        state
            .set_answer(
                cx.env().store(),
                cx.id,
                CoordinatorAnswer {
                    text: answer,
                    ready,
                },
            )
            .await?;
        let words = if ready {
            "The answer is set."
        } else {
            "Stored as the best answer so far."
        };
        let text = self.0.with_warning(&cx, &state, words.to_owned()).await?;
        Ok(ToolOutput::from(json!({ "ready": ready })).with_text(text))
    }
}
