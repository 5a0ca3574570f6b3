//! The tools with which a coordinator lets other models read pieces of documents.

use std::{ops::Range, sync::Arc};

use futures::{StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_core::{
    Annotations, Arguments, Context, Delta, Digest, ErrorCategory, Json, Message, Model,
    ModelError, ModelErrorKind, ModelRequest, Progress, Reply, Schema, TaskComplexity, Tool,
    ToolChoice, ToolError, ToolKind, ToolOutput, ToolSpec, parse_arguments,
};

use crate::{
    RecursiveStrategy, TextDocument,
    agent::recursive::{
        billing::QuestionBill,
        state::{DelegateAnswer, RecursiveRun},
        tools::{DocumentPiece, invalid_input},
    },
};

/// Lets a model answer one question about a piece.
pub(crate) struct DelegateTool(pub(crate) RecursiveStrategy);
/// Lets models answer many questions concurrently.
pub(crate) struct DelegateBatchTool(pub(crate) RecursiveStrategy);

#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct DelegatedQuestion {
    /// The question. The model knows nothing but this and the piece.
    question: String,
    /// The complexity of the question: light to look something up, heavy for what needs the best
    /// model. Light if left out.
    weight: Option<TaskComplexity>,
    /// The piece to read.
    #[serde(flatten)]
    piece: DocumentPiece,
}

#[derive(Deserialize, JsonSchema)]
struct BatchInput {
    /// The questions, each with its piece. They are answered in this order, each by itself.
    queries: Vec<DelegatedQuestion>,
}

/// A validated question with its piece.
struct DocumentQuery {
    question: String,
    weight: TaskComplexity,
    document: Arc<TextDocument>,
    range: Range<usize>,
}

/// The instructions of every model that is asked.
const INSTRUCTIONS: &str = "You are given a piece of a larger document and a question. Answer from the piece alone, \
                            briefly, and quote what the answer rests on. If the piece does not hold the answer, say so.";

impl DocumentQuery {
    /// Returns the digest by which the same question about the same piece is recognized.
    fn digest(&self) -> Digest {
        let piece = Digest::of_bytes(self.document.slice(self.range.clone()).as_bytes());
        let question = &self.question;
        let weight = self.weight;
        let document = self.document.name();
        let whole = json!({ "question": question, "weight": weight, "document": document, "piece": piece.to_string() });
        Json::new(whole).expect("flat JSON").digest()
    }

    fn to_request(&self, answer_tokens: u32) -> ModelRequest {
        let Range { start, end } = self.range;
        let name = self.document.name();
        let piece = self.document.slice(start..end);
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

    /// Returns an upper estimate of the tokens the question uses.
    fn estimate_tokens(&self, answer_tokens: u32) -> u64 {
        let bytes = INSTRUCTIONS.len() + self.question.len() + self.range.len() + 100;
        (bytes as u64)
            .div_ceil(3)
            .saturating_add(answer_tokens.into())
    }
}

impl RecursiveStrategy {
    fn validate_question(&self, asked: &DelegatedQuestion) -> Result<DocumentQuery, ToolError> {
        let question = asked.question.trim().to_owned();
        if question.is_empty() {
            return Err(invalid_input("The question is empty."));
        }
        let (document, range) = self.resolve_piece(&asked.piece)?;
        let most = self.0.pieces.delegate;
        if range.len() > most {
            let words = "Ask about smaller pieces, several at once with `delegate_batch`.";
            return Err(invalid_input(format!(
                "The piece has {} bytes; {most} are allowed. {words}",
                range.len()
            )));
        }
        let weight = asked.weight.unwrap_or(TaskComplexity::Light);
        Ok(DocumentQuery {
            question,
            weight,
            document: document.clone(),
            range,
        })
    }

    /// Returns the answer of a model to a question: the stored one, if it was asked in this run
    /// before.
    async fn answer_query(
        &self,
        cx: &Context,
        state: &Arc<RecursiveRun>,
        query: &DocumentQuery,
    ) -> Result<DelegateAnswer, ToolError> {
        let store = cx.env().store();
        let digest = query.digest();
        if let Some(known) = state.stored_answer(store, digest).await? {
            return Ok(known);
        }
        // Reserved before asking, so that a batch cannot exceed the limit together.
        let held =
            state.reserve_tokens(query.estimate_tokens(self.0.pieces.answer_tokens), self.0.limits.tokens).map_err(|left| {
                let words =
                    format!("{left} tokens are left, too few for this. Ask about a smaller piece, or set the answer.");
                ToolError::new(words).with_category(ErrorCategory::Permission)
            })?;
        let reply = self.ask_and_charge(cx, state, query, digest).await?;
        // Without usage from the provider, the whole reservation is counted.
        let tokens = reply
            .usage
            .map_or(held.tokens, toolgate_core::Usage::total_tokens);
        let kept = state
            .store_answer(
                store,
                digest,
                DelegateAnswer {
                    answer: reply.message.text(),
                    tokens,
                },
            )
            .await?;
        Ok(kept)
    }

    async fn ask_and_charge(
        &self,
        cx: &Context,
        state: &RecursiveRun,
        query: &DocumentQuery,
        digest: Digest,
    ) -> Result<Reply, ToolError> {
        let model = self.0.models.for_weight(query.weight);
        let request = query.to_request(self.0.pieces.answer_tokens);
        let mut bill =
            QuestionBill::reserve_budget(cx, state, digest, &request, model.name()).await?;
        let replied = tokio::select! {
            replied = collect_reply(&**model, &request, state, &mut bill) => replied,
            stopped = self.until_stopped(cx, state) => {
                // The request was sent, so the provider may charge for it.
                bill.settle(cx, state, Ok(None)).await;
                return Err(stopped);
            }
        };
        let usage = replied.as_ref().map(|reply| reply.usage);
        bill.settle(cx, state, usage.map_err(|error| error.kind))
            .await;
        replied.map_err(unanswered_error)
    }

    /// Completes when the answer is not needed any more.
    async fn until_stopped(&self, cx: &Context, state: &RecursiveRun) -> ToolError {
        let clock = cx.env().clock();
        let left = self
            .0
            .limits
            .time
            .saturating_sub(clock.now().since(state.started_at));
        tokio::select! {
            () = cx.cancelled() => ToolError::cancelled(),
            () = clock.sleep(left) => ToolError::new("The time limit of this run is reached."),
        }
    }
}

/// Returns the complete reply of a model.
async fn collect_reply(
    model: &dyn Model,
    request: &ModelRequest,
    state: &RecursiveRun,
    bill: &mut QuestionBill,
) -> Result<Reply, ModelError> {
    let mut pieces = model.reply(request);
    while let Some(piece) = pieces.next().await {
        match piece? {
            Delta::Done(reply) => return Ok(*reply),
            Delta::Routed(routed) => bill.use_routed_model(&routed),
            Delta::Retry(retry) => {
                let again = bill.begin_retry(state, retry.error.kind, request, model.name());
                again.await.map_err(|error| {
                    let name = model.name().clone();
                    ModelError::new(ModelErrorKind::Budget, name, error.to_string())
                })?;
            }
            Delta::Text(_) | Delta::Reasoning(_) | Delta::Call { .. } | Delta::Arguments { .. } => {
            }
        }
    }
    let words = "the stream ended before the reply was complete";
    Err(ModelError::new(
        ModelErrorKind::Malformed,
        model.name().clone(),
        words,
    ))
}

/// Builds the error for the coordinator with the kind of failure. The provider's text is for the
/// operator.
fn unanswered_error(error: ModelError) -> ToolError {
    let category = if error.kind.is_transient() {
        ErrorCategory::Transient
    } else {
        ErrorCategory::Internal
    };
    let told = ToolError::new(format!("The question was not answered: {}.", error.kind));
    told.with_category(category)
        .with_operator_detail(error.to_string())
}

/// Sets the annotations. The tool reads, and what it reads leaves the machine for a model that the
/// program chose, as the conversation does. Asking again does no harm, since answers are stored.
fn delegate_spec(spec: ToolSpec, label: &str) -> ToolSpec {
    let mut annotations = Annotations::read_only().with_kind(ToolKind::Think);
    annotations.hints.open_world = Some(true);
    annotations.long_running = Some(label.to_owned());
    spec.with_annotations(annotations)
}

impl Tool for DelegateTool {
    fn spec(&self) -> ToolSpec {
        let words = format!(
            "Lets another model read a piece of a document, up to {} bytes, and answer a question about it.",
            self.0.0.pieces.delegate
        );
        delegate_spec(
            ToolSpec::new("delegate", words, Schema::for_type::<DelegatedQuestion>()),
            "Reading",
        )
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let query = self.0.validate_question(&parse_arguments(&arguments)?)?;
        let state = self.0.find_run(&cx)?;
        let Range { start, end } = query.range;
        let name = query.document.name();
        cx.report_progress(
            Progress::busy().with_message(format!("reading bytes {start}..{end} of {name}")),
        );
        let asked = self.0.answer_query(&cx, &state, &query).await?;
        let text = self
            .0
            .with_warning(&cx, &state, asked.answer.clone())
            .await?;
        Ok(
            ToolOutput::from(json!({ "answer": asked.answer, "tokens": asked.tokens }))
                .with_text(text),
        )
    }
}

impl DelegateBatchTool {
    const MOST: usize = 64;

    /// Asks the questions, a limited number at a time, and the same question once. Answers come in
    /// order.
    async fn answer_all(
        &self,
        cx: &Context,
        state: &Arc<RecursiveRun>,
        queries: &[Result<DocumentQuery, ToolError>],
    ) -> Vec<Result<DelegateAnswer, ToolError>> {
        let digests: Vec<_> = queries
            .iter()
            .map(|query| query.as_ref().ok().map(DocumentQuery::digest))
            .collect();
        let first_of = |n: usize| {
            digests
                .iter()
                .position(|digest| *digest == digests[n])
                .unwrap_or(n)
        };
        let total = queries.len() as u64;
        let ask = async |n: usize| match &queries[n] {
            Ok(query) if first_of(n) == n => self.0.answer_query(cx, state, query).await,
            Ok(_) => Ok(DelegateAnswer {
                answer: String::new(),
                tokens: 0,
            }),
            Err(error) => Err(error.clone()),
        };
        let mut coming = stream::iter(0..queries.len())
            .map(ask)
            .buffered(self.0.0.pieces.at_a_time);
        let mut answers: Vec<Result<DelegateAnswer, ToolError>> = Vec::with_capacity(queries.len());
        cx.report_progress(Progress::step(0, total));
        while let Some(answer) = coming.next().await {
            // A duplicate takes the answer of the first one, which `buffered` has returned before.
            let first = first_of(answers.len());
            answers.push(answers.get(first).cloned().unwrap_or(answer));
            cx.report_progress(Progress::step(answers.len() as u64, total));
        }
        answers
    }
}

impl Tool for DelegateBatchTool {
    fn spec(&self) -> ToolSpec {
        let words = format!(
            "Lets other models answer up to {} questions about pieces of documents, concurrently. One that fails does \
             not stop the others.",
            Self::MOST
        );
        delegate_spec(
            ToolSpec::new("delegate_batch", words, Schema::for_type::<BatchInput>()),
            "Reading",
        )
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let BatchInput { queries } = parse_arguments(&arguments)?;
        if queries.is_empty() || queries.len() > Self::MOST {
            return Err(invalid_input(format!(
                "Give from 1 to {} queries.",
                Self::MOST
            )));
        }
        let state = self.0.find_run(&cx)?;
        let queries: Vec<_> = queries
            .iter()
            .map(|asked| self.0.validate_question(asked))
            .collect();
        let answers = self.answer_all(&cx, &state, &queries).await;
        if cx.is_cancelled() {
            return Err(ToolError::cancelled());
        }
        let mut text = String::new();
        let mut values = Vec::<Value>::new();
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
        let text = self
            .0
            .with_warning(&cx, &state, text.trim_end().to_owned())
            .await?;
        Ok(ToolOutput::from(Value::Array(values)).with_text(text))
    }
}
