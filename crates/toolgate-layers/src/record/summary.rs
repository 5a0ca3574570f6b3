//! Writes a one-line summary of every call for people.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, Layer, LayerCapabilities, Next, Outcome, SettledOutcome, ToolHints, ToolKind,
    run_contained_sync, serialized_word,
};

use crate::{
    BadOption, Configurable, Resources, SharedRedactor, record::receipts::sanitize::truncate_text,
};

/// The longest line, in characters.
const MAX_CHARS: usize = 200;

/// Sets `summary`, `kind` and `hints` in the notes unless a tool or layer below has set them.
///
/// The model notices nothing. The line contains no argument or result unless your own formatter
/// adds it. It is redacted, then truncated to 200 characters, and has no line breaks; if it cannot
/// be redacted, it is omitted. A reason that the model gave (`RequireReason`) takes precedence.
/// Place the layer inside the layers that store summaries. [`Receipt`](crate::Receipt) lists the
/// names of the notes in other protocols.
///
/// ```
/// use toolgate_layers::Summary;
/// use toolgate_testkit::{call, echo_under};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let outcome = echo_under(Summary::default()).run(call("read_file")).await;
/// let notes = outcome.settled().unwrap().notes.fields().unwrap().clone();
/// assert_eq!(notes.summary.as_deref(), Some("read_file: done in 0 ms"));
/// # });
/// ```
#[derive(Clone)]
pub struct Summary {
    format: SummaryFormat,
    redactor: Option<SharedRedactor>,
}

/// The source of the line.
#[derive(Clone)]
enum SummaryFormat {
    Template(Arc<[TemplatePiece]>),
    Function(Arc<Formatter>),
}

type Formatter = dyn Fn(&Call, &Outcome) -> String + Send + Sync;

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
enum TemplatePiece {
    Text(String),
    Tool,
    Label,
    Status,
    Duration,
    Kind,
}

impl Summary {
    /// Creates a layer that calls a function for the line. If it panics or returns only white
    /// space, there is no line.
    pub fn new(format: impl Fn(&Call, &Outcome) -> String + Send + Sync + 'static) -> Self {
        Self {
            format: SummaryFormat::Function(Arc::new(format)),
            redactor: None,
        }
    }

    /// Creates a layer that fills in a template. See [`SummaryOptions::template`].
    ///
    /// # Errors
    ///
    /// Rejects an empty template and unknown placeholders.
    pub fn template(template: &str) -> Result<Self, BadOption> {
        parse_template(template).map(|pieces| Self {
            format: SummaryFormat::Template(pieces.into()),
            redactor: None,
        })
    }

    /// Redacts the line.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// Returns the line, redacted and truncated.
    fn format_line(
        &self,
        call: &Call,
        outcome: &Outcome,
        took: Option<Duration>,
    ) -> Option<String> {
        let text: String = match (&self.format, outcome.settled()) {
            // The program's formatter may panic; a missing line must not fail the call.
            (SummaryFormat::Function(format), _) => {
                run_contained_sync(|| format(call, outcome)).ok()?
            }
            (SummaryFormat::Template(pieces), Some(settled)) => {
                let mut line = String::with_capacity(64);
                pieces
                    .iter()
                    .for_each(|piece| piece.write_text(&mut line, call, settled, took));
                line
            }
            (SummaryFormat::Template(_), None) => return None,
        };
        // Redacted first and truncated afterwards: a detector does not recognise half a secret.
        let text = match &self.redactor {
            Some(redactor) => redactor.changed_text(&text).ok()?.unwrap_or(text),
            None => text,
        };
        let line = collapse_whitespace(text);
        (!line.is_empty()).then(|| truncate_text(line, MAX_CHARS))
    }
}

/// Replaces white space and control characters between words by single spaces.
fn collapse_whitespace(text: String) -> String {
    // The fast path, for most texts: nothing to replace.
    let words = text.split(' ');
    if words
        .clone()
        .all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        return text;
    }
    let is_between = |c: char| c.is_whitespace() || c.is_control();
    let words: Vec<&str> = text
        .split(is_between)
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

impl Default for Summary {
    fn default() -> Self {
        Self::template(&SummaryOptions::default().template).expect("the default template is valid")
    }
}

impl fmt::Debug for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.format {
            SummaryFormat::Template(pieces) => f.debug_tuple("Summary").field(pieces).finish(),
            SummaryFormat::Function(_) => f.write_str("Summary(..)"),
        }
    }
}

impl Layer for Summary {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let clock = call.env().clock();
        let started_at = clock.now();
        let mut outcome = next.run(call.clone()).await;
        let Some(settled) = outcome.settled() else {
            return outcome;
        };
        let silent = settled
            .notes
            .fields()
            .is_none_or(|notes| notes.summary.is_none());
        let took = match call.closing_outcome() {
            None => Some(clock.now().since(started_at)),
            // The duration is known only if the process that settled the call recorded it.
            Some(end) => Some(end.ended_at.since(end.started_at)).filter(|took| !took.is_zero()),
        };
        let line = if silent {
            self.format_line(&call, &outcome, took)
        } else {
            None
        };
        if let Some(settled) = outcome.settled_mut() {
            let plain = matches!(self.format, SummaryFormat::Template(_));
            fill_notes(settled, &call, line, plain);
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Record
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME).annotating()
    }
}

/// Adds what is known to the notes and keeps what is already noted.
fn fill_notes(settled: &mut SettledOutcome, call: &Call, line: Option<String>, plain: bool) {
    let kind = call.annotations().kind;
    let hints = call.annotations().hints;
    let hints = Some(hints).filter(|hints| *hints != ToolHints::default());
    if line.is_none() && kind.is_none() && hints.is_none() {
        return;
    }
    let notes = settled.notes.fields_mut();
    // Screens show tool, status and duration anyway, so they leave out a line that only repeats
    // them.
    if plain && line.is_some() {
        notes.plain_summary = true;
    }
    notes.summary = notes.summary.take().or(line);
    notes.kind = notes.kind.or(kind);
    notes.hints = notes.hints.or(hints);
}

impl TemplatePiece {
    /// Returns the placeholder with this name.
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "tool" => Self::Tool,
            "label" => Self::Label,
            "status" => Self::Status,
            "duration" => Self::Duration,
            "kind" => Self::Kind,
            _ => return None,
        })
    }

    /// Writes the text for a piece to the line.
    fn write_text(
        &self,
        line: &mut String,
        call: &Call,
        settled: &SettledOutcome,
        took: Option<Duration>,
    ) {
        let tool = call.tool.as_str();
        match self {
            Self::Text(text) => line.push_str(text),
            Self::Tool => line.push_str(tool),
            Self::Label => {
                line.push_str(call.annotations().long_running.as_deref().unwrap_or(tool));
            }
            Self::Status => line.push_str(settled.status.text()),
            Self::Duration => write_duration(line, took),
            Self::Kind => {
                let kind = call.annotations().kind.unwrap_or(ToolKind::Other);
                line.push_str(&serialized_word(&kind));
            }
        }
    }
}

fn write_duration(line: &mut String, took: Option<Duration>) {
    let written = match took {
        Some(took) if took < Duration::from_secs(10) => write!(line, "{} ms", took.as_millis()),
        Some(took) => write!(line, "{} s", took.as_secs()),
        None => write!(line, "an unknown time"),
    };
    written.expect("a text can be written to");
}

/// Parses a template.
fn parse_template(template: &str) -> Result<Vec<TemplatePiece>, BadOption> {
    let bad = |problem: String| BadOption::new("template", problem);
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('{') {
        let (name, after) = after
            .split_once('}')
            .ok_or_else(|| bad("has a { without a }".to_owned()))?;
        let known = "{tool}, {label}, {status}, {duration} and {kind}";
        let piece = TemplatePiece::from_name(name)
            .ok_or_else(|| bad(format!("{{{name}}} is unknown; known are {known}")))?;
        pieces.extend([TemplatePiece::Text(text.to_owned()), piece]);
        rest = after;
    }
    pieces.push(TemplatePiece::Text(rest.to_owned()));
    if template.trim().is_empty() {
        Err(bad(
            "is empty; write for example {tool}: {status} in {duration}".to_owned(),
        ))
    } else {
        Ok(pieces)
    }
}

/// The options of [`Summary`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SummaryOptions {
    /// The template of the line, with the placeholders `{tool}`, `{label}` (the label of a
    /// long-running tool, else its name), `{status}`, `{duration}` and `{kind}`.
    pub template: String,
}

impl Default for SummaryOptions {
    fn default() -> Self {
        Self {
            template: "{label}: {status} in {duration}".to_owned(),
        }
    }
}

impl Configurable for Summary {
    const NAME: &'static str = "summary";
    const SUMMARY: &'static str = "Writes a one-line summary of every call for people.";
    type Options = SummaryOptions;

    fn configure(options: SummaryOptions, parts: &Resources) -> Result<Self, BadOption> {
        Ok(Self {
            redactor: parts.get(),
            ..Self::template(&options.template)?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_core::{
        Annotations, CallSeed, Failure, Json, NoteFields, RedactionError, Redactor, Registry,
        Schema, Stack, Tool, ToolError, ToolKind, ToolOutput, ToolSpec, map_outcome,
    };
    use toolgate_testkit::{
        FakeExecutor, TestClock, call, call_with, echo, echo_under, env_at, run_twice, seed,
        seed_for,
    };

    fn notes(outcome: &Outcome) -> NoteFields {
        outcome
            .settled()
            .and_then(|settled| settled.notes.fields())
            .cloned()
            .unwrap_or_default()
    }

    struct Build;

    impl Tool for Build {
        fn spec(&self) -> ToolSpec {
            let mut annotations = Annotations::read_only().with_kind(ToolKind::Execute);
            annotations.long_running = Some("Building".into());
            ToolSpec::new("build", "Builds.", Schema::any_object()).with_annotations(annotations)
        }
        async fn invoke(
            &self,
            _: toolgate_core::Arguments,
            _: toolgate_core::Context,
        ) -> Result<ToolOutput, ToolError> {
            Ok("built".to_owned().into())
        }
    }

    #[tokio::test]
    async fn the_line_has_tool_status_and_duration() {
        let clock = TestClock::new();
        let hands = clock.clone();
        let slow = map_outcome(move |_: &Call, outcome: Outcome| {
            hands.advance(Duration::from_millis(12));
            outcome
        });
        let script = FakeExecutor::new().then(Outcome::failed_with(Failure::Timeout, "late"));
        let stack = Stack::over(script)
            .layer(Summary::default())
            .layer(slow)
            .build()
            .expect("in order");
        let run = |tool| {
            stack.run(Call::new(CallSeed {
                env: env_at(&clock),
                ..seed(tool, json!({ "k": "secret" }))
            }))
        };
        assert_eq!(
            notes(&run("fetch").await).summary.as_deref(),
            Some("fetch: timed out in 12 ms")
        );
        assert_eq!(
            notes(&run("fetch").await).summary.as_deref(),
            Some("fetch: done in 12 ms")
        );
    }

    #[tokio::test]
    async fn label_kind_and_hints_come_from_the_tool() {
        let registry = Registry::new();
        registry.register(Build).expect("a good name");
        let view = toolgate_testkit::plain_view(&registry);
        let stack = Stack::over(registry)
            .layer(Summary::default())
            .build()
            .expect("in order");
        let noted = notes(
            &stack
                .run(Call::new(seed_for(&view, "build", json!({}))))
                .await,
        );
        assert_eq!(noted.summary.as_deref(), Some("Building: done in 0 ms"));
        assert_eq!(
            (noted.kind, noted.hints.and_then(|hints| hints.read_only)),
            (Some(ToolKind::Execute), Some(true))
        );
    }

    #[tokio::test]
    async fn notes_from_below_take_precedence() {
        let inner = map_outcome(|_: &Call, outcome: Outcome| {
            outcome.with_notes(|notes| notes.summary = Some("my reason".into()))
        });
        let stack = Stack::over(echo())
            .layer(Summary::default())
            .layer(inner)
            .build()
            .expect("in order");
        let noted = notes(&stack.run(call("t")).await);
        assert_eq!(
            (noted.summary.as_deref(), noted.superseded.len()),
            (Some("my reason"), 0)
        );
    }

    #[tokio::test]
    async fn a_formatter_that_panics_does_not_change_the_outcome() {
        let outcome = echo_under(Summary::new(|_, _| panic!("hunter2")))
            .run(call("t"))
            .await;
        assert!(outcome.is_ok());
        assert_eq!(notes(&outcome).summary, None);
    }

    #[tokio::test]
    async fn the_line_is_one_line_and_short() {
        let wild = Summary::new(|call, _| format!("a\nb\u{1b}[2J \t{}", call.arguments.as_json()));
        let outcome = echo_under(wild)
            .run(call_with("t", json!({ "k": "ü".repeat(500) })))
            .await;
        let line = notes(&outcome).summary.expect("a line");
        assert!(
            line.starts_with("a b [2J {") && line.ends_with('…'),
            "{line}"
        );
        assert_eq!(line.chars().count(), MAX_CHARS);
    }

    #[tokio::test]
    async fn the_line_is_redacted_before_it_is_truncated_or_withheld() {
        struct Censor;
        impl Redactor for Censor {
            fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
                Ok(value.clone())
            }
            fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
                if text.contains("poison") {
                    Err(RedactionError)
                } else {
                    Ok(text.replace("hunter2", "***"))
                }
            }
        }
        let line = async |text: String| {
            let summary =
                Summary::new(move |_, _| text.clone()).redactor(SharedRedactor::new(Censor));
            notes(&echo_under(summary).run(call("t")).await).summary
        };
        // The limit is in the middle of the secret.
        let across = line("x".repeat(MAX_CHARS - 4) + "hunter2 and more")
            .await
            .expect("a line");
        assert!(
            across.ends_with("x***…") && !across.contains('h'),
            "{across}"
        );
        assert_eq!(line("poison".into()).await, None);
        let parts = Resources::new().with(SharedRedactor::new(Censor));
        let options = SummaryOptions {
            template: "hunter2 {status}".into(),
        };
        let configured = Summary::configure(options, &parts).expect("makes sense");
        assert_eq!(
            notes(&echo_under(configured).run(call("t")).await)
                .summary
                .as_deref(),
            Some("*** done")
        );
    }

    #[tokio::test]
    async fn a_suspended_call_is_summarised_when_it_settles() {
        let twice = run_twice(Summary::default(), seed("t", json!({}))).await;
        twice.assert_replays();
        assert!(notes(&twice.second).summary.is_some());
    }

    #[test]
    fn a_template_with_unknown_placeholders_is_rejected() {
        for (template, word) in [("{tol}", "{tol}"), ("{tool", "without"), ("  ", "empty")] {
            let bad = Summary::template(template).expect_err(template);
            assert!(bad.key == "template" && bad.problem.contains(word), "{bad}");
        }
    }
}
