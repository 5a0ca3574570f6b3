//! Gives every call one line for people.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, Hints, Layer, LayerTraits, Next, Outcome, Settled, Status, contained_sync,
};

use crate::{BadOption, Configurable, Parts, SharedRedactor, keep::bounded};

/// The longest line, in characters.
const MOST: usize = 200;

/// Fills `summary`, `kind` and `hints` of the notes where no tool or layer below has.
///
/// The model notices nothing. The line holds no argument or result unless a formatter of your own puts it there; it
/// is redacted, then cut to 200 characters, and has no line breaks; one that cannot be redacted is left out. A reason that the model gave (`RequireReason`) stands. Put it
/// inside the layers that write summaries down. How the notes are called elsewhere is listed at
/// [`Receipt`](crate::Receipt).
///
/// ```
/// use toolgate_layers::Summary;
/// use toolgate_testkit::{call, echo_under};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let outcome = echo_under(Summary::default()).run(call("read_file")).await;
/// let notes = outcome.settled().unwrap().notes.fields().unwrap().clone();
/// assert_eq!(notes.summary.as_deref(), Some("read_file: ok in 0 ms"));
/// # });
/// ```
#[derive(Clone)]
pub struct Summary {
    format: Format,
    redactor: Option<SharedRedactor>,
}

#[derive(Clone)]
enum Format {
    Template(Arc<[Piece]>),
    Function(Arc<Formatter>),
}

type Formatter = dyn Fn(&Call, &Outcome) -> String + Send + Sync;

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Tool,
    Label,
    Status,
    Duration,
    Kind,
}

impl Summary {
    /// Asks a function for the line. If it panics or returns nothing but white space, there is none.
    pub fn new(format: impl Fn(&Call, &Outcome) -> String + Send + Sync + 'static) -> Self {
        Self {
            format: Format::Function(Arc::new(format)),
            redactor: None,
        }
    }

    /// Fills in a template. See [`SummaryOptions::template`].
    pub fn template(template: &str) -> Result<Self, BadOption> {
        pieces(template).map(|pieces| Self {
            format: Format::Template(pieces.into()),
            redactor: None,
        })
    }

    /// Takes secrets out of the line.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    fn line(&self, call: &Call, outcome: &Outcome, took: Option<Duration>) -> Option<String> {
        let text: String = match (&self.format, outcome.settled()) {
            (Format::Function(format), _) => contained_sync(|| format(call, outcome)).ok()?,
            (Format::Template(pieces), Some(settled)) => {
                let mut line = String::with_capacity(64);
                pieces
                    .iter()
                    .for_each(|piece| line.push_str(&piece.filled(call, settled, took)));
                line
            }
            (Format::Template(_), None) => return None,
        };
        // Redacted whole and cut afterwards: half a secret is not recognised.
        let text = match &self.redactor {
            Some(redactor) => redactor.changed_text(&text).ok()?.unwrap_or(text),
            None => text,
        };
        let line = one_line(text);
        (!line.is_empty()).then(|| bounded(line, MOST))
    }
}

/// The words of a text with one space between them.
fn one_line(text: String) -> String {
    // Mostly it is that already.
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
        Self::template(&SummaryOptions::default().template).expect("the default template is one")
    }
}

impl fmt::Debug for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.format {
            Format::Template(pieces) => f.debug_tuple("Summary").field(pieces).finish(),
            Format::Function(_) => f.write_str("Summary(..)"),
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
        let took = match call.closing() {
            None => Some(clock.now().since(started_at)),
            // What it took is known only if whoever settled it wrote that down.
            Some(end) => Some(end.ended_at.since(end.started_at)).filter(|took| !took.is_zero()),
        };
        let line = if silent {
            self.line(&call, &outcome, took)
        } else {
            None
        };
        if let Some(settled) = outcome.settled_mut() {
            fill(settled, &call, line);
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Record
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME)
    }
}

/// Writes down what is known and not yet noted.
fn fill(settled: &mut Settled, call: &Call, line: Option<String>) {
    let (kind, hints) = (call.annotations().kind, call.annotations().hints);
    let hints = Some(hints).filter(|hints| *hints != Hints::default());
    if line.is_none() && kind.is_none() && hints.is_none() {
        return;
    }
    let notes = settled.notes.edit();
    notes.summary = notes.summary.take().or(line);
    notes.kind = notes.kind.or(kind);
    notes.hints = notes.hints.or(hints);
}

impl Piece {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "tool" => Self::Tool,
            "label" => Self::Label,
            "status" => Self::Status,
            "duration" => Self::Duration,
            "kind" => Self::Kind,
            _ => return None,
        })
    }

    fn filled<'a>(
        &'a self,
        call: &'a Call,
        settled: &Settled,
        took: Option<Duration>,
    ) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text.into(),
            Self::Tool => call.tool.as_str().into(),
            Self::Label => call
                .annotations()
                .long_running
                .as_deref()
                .unwrap_or(call.tool.as_str())
                .into(),
            Self::Status => in_words(settled.status).into(),
            Self::Duration => match took {
                Some(took) if took < Duration::from_secs(10) => {
                    format!("{} ms", took.as_millis()).into()
                }
                Some(took) => format!("{} s", took.as_secs()).into(),
                None => "an unknown time".into(),
            },
            Self::Kind => match call.annotations().kind.map(serde_json::to_value) {
                Some(Ok(serde_json::Value::String(word))) => word.into(),
                Some(_) | None => "other".into(),
            },
        }
    }
}

fn pieces(template: &str) -> Result<Vec<Piece>, BadOption> {
    let bad = |problem: String| BadOption::new("template", problem);
    let (mut pieces, mut rest) = (Vec::new(), template);
    while let Some((text, after)) = rest.split_once('{') {
        let (name, after) = after
            .split_once('}')
            .ok_or_else(|| bad("has a { without a }".to_owned()))?;
        let known = "{tool}, {label}, {status}, {duration} and {kind}";
        let piece = Piece::named(name)
            .ok_or_else(|| bad(format!("{{{name}}} is not known; there are {known}")))?;
        pieces.extend([Piece::Text(text.to_owned()), piece]);
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    match template.trim().is_empty() {
        true => Err(bad(
            "is empty; write for example {tool}: {status} in {duration}".to_owned(),
        )),
        false => Ok(pieces),
    }
}

fn in_words(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::ToolNotFound => "there is no such tool",
        Status::SchemaViolation => "the arguments do not fit",
        Status::Denied => "denied",
        Status::Expired => "nobody decided in time",
        Status::Blocked => "blocked by policy",
        Status::OutOfScope => "out of scope",
        Status::RateLimited => "too many calls",
        Status::BudgetExceeded => "over budget",
        Status::LoopGuard => "stopped as a repetition",
        Status::ExecutorError => "failed",
        Status::Timeout => "timed out",
        Status::Cancelled => "cancelled",
        Status::OutcomeUnknown => "may or may not have happened",
        Status::Redacted => "result withheld",
        Status::DryRun => "dry run",
        Status::Exception => "crashed",
        Status::LayerException => "stopped by an internal error",
    }
}

/// What the line looks like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SummaryOptions {
    /// The line, with `{tool}`, `{label}` (what a long-running tool is called, else its name), `{status}`,
    /// `{duration}` and `{kind}` filled in.
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
    const SUMMARY: &'static str = "Gives every call one line for people.";
    type Options = SummaryOptions;

    fn configure(options: SummaryOptions, parts: &Parts) -> Result<Self, BadOption> {
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
        Annotations, CallSeed, Json, Kind, NoteFields, RedactionFailed, Redactor, Registry, Schema,
        Stack, Tool, ToolError, ToolOutput, ToolSpec, View, map_outcome,
    };
    use toolgate_testkit::{
        Scripted, TestClock, call, call_with, echo, echo_under, env_at, run_twice, seed, seed_for,
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
            let mut annotations = Annotations::read_only().with_kind(Kind::Execute);
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
    async fn the_line_says_what_ran_how_it_ended_and_how_long_it_took() {
        let clock = TestClock::new();
        let hands = clock.clone();
        let slow = map_outcome(move |_: &Call, outcome: Outcome| {
            hands.advance(Duration::from_millis(12));
            outcome
        });
        let script = Scripted::new().then(Outcome::refused(Status::Timeout, "late"));
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
            Some("fetch: ok in 12 ms")
        );
    }

    #[tokio::test]
    async fn label_kind_and_hints_come_from_the_tool() {
        let registry = Registry::new();
        registry.register(Build).expect("a good name");
        let view = View::of(&registry);
        let stack = Stack::over(registry)
            .layer(Summary::default())
            .build()
            .expect("in order");
        let noted = notes(
            &stack
                .run(Call::new(seed_for(&view, "build", json!({}))))
                .await,
        );
        assert_eq!(noted.summary.as_deref(), Some("Building: ok in 0 ms"));
        assert_eq!(
            (noted.kind, noted.hints.and_then(|hints| hints.read_only)),
            (Some(Kind::Execute), Some(true))
        );
    }

    #[tokio::test]
    async fn what_was_noted_below_stands() {
        let inner = map_outcome(|_: &Call, outcome: Outcome| {
            outcome.noting(|notes| notes.summary = Some("my reason".into()))
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
    async fn a_formatter_that_panics_leaves_the_outcome_alone() {
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
        assert_eq!(line.chars().count(), MOST);
    }

    #[tokio::test]
    async fn the_line_is_redacted_before_it_is_cut_or_withheld() {
        struct Censor;
        impl Redactor for Censor {
            fn redact(&self, value: &Json) -> Result<Json, RedactionFailed> {
                Ok(value.clone())
            }
            fn redact_text(&self, text: &str) -> Result<String, RedactionFailed> {
                if text.contains("poison") {
                    Err(RedactionFailed)
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
        // The cut would go through the middle of the word.
        let across = line("x".repeat(MOST - 4) + "hunter2 and more")
            .await
            .expect("a line");
        assert!(
            across.ends_with("x***…") && !across.contains('h'),
            "{across}"
        );
        assert_eq!(line("poison".into()).await, None);
        let parts = Parts::new().with(SharedRedactor::new(Censor));
        let options = SummaryOptions {
            template: "hunter2 {status}".into(),
        };
        let configured = Summary::configure(options, &parts).expect("makes sense");
        assert_eq!(
            notes(&echo_under(configured).run(call("t")).await)
                .summary
                .as_deref(),
            Some("*** ok")
        );
    }

    #[tokio::test]
    async fn a_suspended_call_is_summed_up_when_it_settles() {
        let twice = run_twice(Summary::default(), seed("t", json!({}))).await;
        twice.assert_replays();
        assert!(notes(&twice.second).summary.is_some());
    }

    #[test]
    fn a_template_with_unknown_words_is_refused() {
        for (template, word) in [("{tol}", "{tol}"), ("{tool", "without"), ("  ", "empty")] {
            let bad = Summary::template(template).expect_err(template);
            assert!(bad.key == "template" && bad.problem.contains(word), "{bad}");
        }
    }
}
