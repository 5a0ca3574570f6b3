//! The tools with which a coordinator lets other models read pieces of documents.

use std::{ops::Range, sync::Arc};

use futures::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_core::{
    Annotations, Arguments, Context, Delta, Digest, ErrorCategory, Json, Kind, Message, Model,
    ModelError, ModelErrorKind, ModelRequest, Progress, Reply, Schema, Tool, ToolChoice, ToolError,
    ToolOutput, ToolSpec, Weight, typed,
};

use crate::{
    Document, Recursive,
    recursive_bill::Bill,
    recursive_state::{Asked, RunState},
    recursive_tools::{Piece, invalid},
};

/// Lets a model answer one question about a piece.
pub(crate) struct Delegate(pub(crate) Recursive);
/// Lets models answer many questions, side by side.
pub(crate) struct DelegateBatch(pub(crate) Recursive);

#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Question {
    /// What the model is asked. It knows nothing but this and the piece.
    question: String,
    /// How heavy the question is: light to look something up, heavy for what needs the best model. Light if left out.
    weight: Option<Weight>,
    /// The piece to read.
    #[serde(flatten)]
    piece: Piece,
}

#[derive(Deserialize, JsonSchema)]
struct BatchInput {
    /// The questions, each with its piece. They are answered in this order, each by itself.
    queries: Vec<Question>,
}

/// A question that can be asked: everything is there and fits.
struct Query {
    question: String,
    weight: Weight,
    document: Arc<Document>,
    range: Range<usize>,
}

/// What every model is told that is asked.
const INSTRUCTIONS: &str = "You are given a piece of a larger document and a question. Answer from the piece alone, \
                            briefly, and quote what the answer rests on. If the piece does not hold the answer, say so.";

impl Query {
    /// By what the same question about the same piece is known again.
    fn digest(&self) -> Digest {
        let piece = Digest::of_bytes(self.document.slice(self.range.clone()).as_bytes());
        let (question, weight, document) = (&self.question, self.weight, self.document.name());
        let whole = json!({ "question": question, "weight": weight, "document": document, "piece": piece.to_string() });
        Json::new(whole).expect("flat JSON").digest()
    }

    fn request(&self, answer_tokens: u32) -> ModelRequest {
        let Range { start, end } = self.range;
        let (name, piece) = (self.document.name(), self.document.slice(start..end));
        let text = format!(
            "{}\n\nBytes {start}..{end} of {name}:\n\n{piece}",
            self.question
        );
        ModelRequest {
            instructions: Some(INSTRUCTIONS.into()),
            messages: vec![Arc::new(Message::user(text))],
            choice: ToolChoice::None,
            max_tokens: Some(answer_tokens),
            weight: Some(self.weight),
            ..ModelRequest::default()
        }
    }

    /// The most tokens the question can be expected to use.
    fn estimate(&self, answer_tokens: u32) -> u64 {
        let bytes = INSTRUCTIONS.len() + self.question.len() + self.range.len() + 100;
        (bytes as u64)
            .div_ceil(3)
            .saturating_add(answer_tokens.into())
    }
}

impl Recursive {
    fn query(&self, asked: &Question) -> Result<Query, ToolError> {
        let question = asked.question.trim().to_owned();
        if question.is_empty() {
            return Err(invalid("The question is empty."));
        }
        let (document, range) = self.piece(&asked.piece)?;
        let most = self.0.pieces.delegate;
        if range.len() > most {
            let words = "Ask about smaller pieces, several at once with `delegate_batch`.";
            return Err(invalid(format!(
                "The piece has {} bytes; {most} are allowed. {words}",
                range.len()
            )));
        }
        let weight = asked.weight.unwrap_or(Weight::Light);
        Ok(Query {
            question,
            weight,
            document: document.clone(),
            range,
        })
    }

    /// What a model says to a question: what it said before, if it was asked in this run.
    async fn ask(
        &self,
        cx: &Context,
        state: &Arc<RunState>,
        query: &Query,
    ) -> Result<Asked, ToolError> {
        let (store, digest) = (cx.env().store(), query.digest());
        if let Some(known) = state.asked(store, digest).await? {
            return Ok(known);
        }
        let held =
            state.reserve(query.estimate(self.0.pieces.answer_tokens), self.0.limits.tokens).map_err(|left| {
                let words =
                    format!("{left} tokens are left, too few for this. Ask about a smaller piece, or set the answer.");
                ToolError::new(words).with_category(ErrorCategory::Permission)
            })?;
        let reply = self.asked_and_paid(cx, state, query, digest).await?;
        // What the provider does not tell is taken to be all that was set aside.
        let tokens = reply.usage.map_or(held.tokens, toolgate_core::Usage::total);
        let kept = state
            .keep_asked(
                store,
                digest,
                Asked {
                    answer: reply.message.text(),
                    tokens,
                },
            )
            .await?;
        Ok(kept)
    }

    async fn asked_and_paid(
        &self,
        cx: &Context,
        state: &RunState,
        query: &Query,
        digest: Digest,
    ) -> Result<Reply, ToolError> {
        let (model, request) = (
            self.0.models.of(query.weight),
            query.request(self.0.pieces.answer_tokens),
        );
        let mut bill = Bill::open(cx, state, digest, (&request, model.name())).await?;
        let replied = tokio::select! {
            replied = reply(&**model, &request, &mut bill) => replied,
            stopped = self.stopped(cx, state) => {
                bill.settle(cx, state, None).await;
                return Err(stopped);
            }
        };
        match replied {
            Ok(reply) => {
                bill.settle(cx, state, reply.usage).await;
                Ok(reply)
            }
            Err(error) => {
                bill.failed(cx, state, error.kind).await;
                Err(unanswered(error))
            }
        }
    }

    /// Completes when nobody wants the answer any more.
    async fn stopped(&self, cx: &Context, state: &RunState) -> ToolError {
        let clock = cx.env().clock();
        let left = self
            .0
            .limits
            .time
            .saturating_sub(clock.now().since(state.started_at));
        tokio::select! {
            () = cx.cancelled() => ToolError::cancelled(),
            () = clock.sleep(left) => ToolError::new("The time of this run is used up."),
        }
    }
}

/// What a model says, whole.
async fn reply(
    model: &dyn Model,
    request: &ModelRequest,
    bill: &mut Bill,
) -> Result<Reply, ModelError> {
    let mut pieces = model.reply(request);
    while let Some(piece) = pieces.next().await {
        match piece? {
            Delta::Done(reply) => return Ok(*reply),
            Delta::Routed(routed) => bill.routed(&routed),
            Delta::Text(_) | Delta::Reasoning(_) | Delta::Call { .. } | Delta::Arguments { .. } => {
            }
        }
    }
    let words = "the stream ended before the reply was whole";
    Err(ModelError::new(
        ModelErrorKind::Malformed,
        model.name().clone(),
        words,
    ))
}

/// The coordinator is told what kind of failure it was; what the provider said is for the operator.
fn unanswered(error: ModelError) -> ToolError {
    let category = if error.kind.is_passing() {
        ErrorCategory::Transient
    } else {
        ErrorCategory::Internal
    };
    let told = ToolError::new(format!("The question was not answered: {}.", error.kind));
    told.with_category(category)
        .with_operator(error.to_string())
}

/// It reads, and what it reads leaves the machine for a model that the program chose, as the conversation does. Asking
/// again does no harm, since answers are kept.
fn asking(spec: ToolSpec, label: &str) -> ToolSpec {
    let mut annotations = Annotations::read_only().with_kind(Kind::Think);
    annotations.hints.open_world = Some(true);
    annotations.long_running = Some(label.to_owned());
    spec.with_annotations(annotations)
}

impl Tool for Delegate {
    fn spec(&self) -> ToolSpec {
        let words = format!(
            "Lets another model read a piece of a document, up to {} bytes, and answer a question about it.",
            self.0.0.pieces.delegate
        );
        asking(
            ToolSpec::new("delegate", words, Schema::of::<Question>()),
            "Reading",
        )
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let query = self.0.query(&typed(&arguments)?)?;
        let state = self.0.run_of(&cx)?;
        let Range { start, end } = query.range;
        let name = query.document.name();
        cx.progress(
            Progress::busy().with_message(format!("reading bytes {start}..{end} of {name}")),
        );
        let asked = self.0.ask(&cx, &state, &query).await?;
        let text = self.0.told(&cx, &state, asked.answer.clone()).await?;
        Ok(
            ToolOutput::from(json!({ "answer": asked.answer, "tokens": asked.tokens }))
                .with_text(text),
        )
    }
}

impl DelegateBatch {
    const MOST: usize = 64;

    /// Asks the questions, so many at a time, and the same question once. Answers come in order.
    async fn answers(
        &self,
        cx: &Context,
        state: &Arc<RunState>,
        queries: &[Result<Query, ToolError>],
    ) -> Vec<Result<Asked, ToolError>> {
        let digests: Vec<_> = queries
            .iter()
            .map(|query| query.as_ref().ok().map(Query::digest))
            .collect();
        let first_of = |n: usize| {
            digests
                .iter()
                .position(|digest| *digest == digests[n])
                .unwrap_or(n)
        };
        let total = queries.len() as u64;
        let ask = async |n: usize| match &queries[n] {
            Ok(query) if first_of(n) == n => self.0.ask(cx, state, query).await,
            Ok(_) => Ok(Asked {
                answer: String::new(),
                tokens: 0,
            }),
            Err(error) => Err(error.clone()),
        };
        let mut coming = stream::iter(0..queries.len())
            .map(ask)
            .buffered(self.0.0.pieces.at_a_time);
        let mut answers: Vec<Result<Asked, ToolError>> = Vec::with_capacity(queries.len());
        cx.progress(Progress::step(0, total));
        while let Some(answer) = coming.next().await {
            let first = first_of(answers.len());
            answers.push(answers.get(first).cloned().unwrap_or(answer));
            cx.progress(Progress::step(answers.len() as u64, total));
        }
        answers
    }
}

impl Tool for DelegateBatch {
    fn spec(&self) -> ToolSpec {
        let words = format!(
            "Lets other models answer up to {} questions about pieces of documents, side by side. One that fails does \
             not stop the others.",
            Self::MOST
        );
        asking(
            ToolSpec::new("delegate_batch", words, Schema::of::<BatchInput>()),
            "Reading",
        )
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let BatchInput { queries } = typed(&arguments)?;
        if queries.is_empty() || queries.len() > Self::MOST {
            return Err(invalid(format!("Give from 1 to {} queries.", Self::MOST)));
        }
        let state = self.0.run_of(&cx)?;
        let queries: Vec<_> = queries.iter().map(|asked| self.0.query(asked)).collect();
        let answers = self.answers(&cx, &state, &queries).await;
        if cx.is_cancelled() {
            return Err(ToolError::cancelled());
        }
        let (mut text, mut values) = (String::new(), Vec::<Value>::new());
        for (n, answer) in (1..).zip(&answers) {
            let (value, words) = match answer {
                Ok(asked) => (json!({ "answer": asked.answer }), asked.answer.clone()),
                Err(error) => (
                    json!({ "error": error.model }),
                    format!("(no answer) {}", error.model),
                ),
            };
            values.push(value);
            text.push_str(&format!("[{n}] {words}\n\n"));
        }
        let text = self.0.told(&cx, &state, text.trim_end().to_owned()).await?;
        Ok(ToolOutput::from(Value::Array(values)).with_text(text))
    }
}
