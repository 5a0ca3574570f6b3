//! Builds a span from a call and its outcome.

use std::{borrow::Cow, sync::Arc};

use toolgate_core::{
    Call, Json, LayerNote, LayerStatus, Outcome, SettledOutcome, Status, Suspension,
    UnsettledReason, Verdict, serialized_word,
};

use crate::{
    ToolSpan,
    record::{
        passage::CallPassage,
        receipts::sanitize::{RecordSanitizer, truncate_text},
    },
};

/// The longest content or description put on a span, in characters.
const MAX_CONTENT_CHARS: usize = 8_192;
const MAX_DESCRIPTION_CHARS: usize = 512;

/// The builder of spans, with the settings for their content.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpanRecorder {
    pub(crate) keeper: RecordSanitizer,
    pub(crate) capture_content: bool,
}

impl SpanRecorder {
    /// Builds the span of a call. Without an outcome, the call was dropped before it settled.
    pub(crate) fn build_span(
        &self,
        passage: &CallPassage<'_>,
        outcome: Option<&Outcome>,
    ) -> ToolSpan {
        let CallPassage {
            call,
            next,
            started_at,
            ended_at,
        } = *passage;
        let layers = passage.layers_below();
        let mut span = ToolSpan::for_call(call, started_at, ended_at);
        let attempts = next.trail().attempts();
        self.add_call(&mut span, call, attempts);
        span.add_event(
            if call.closing_outcome().is_some() {
                "closed"
            } else {
                "dispatched"
            },
            started_at,
        );
        add_decision(&mut span, call);
        match outcome {
            Some(Outcome::Settled(settled)) => self.add_outcome(&mut span, settled),
            Some(Outcome::Suspended(suspension)) => self.add_suspension(&mut span, suspension),
            None => drop(span.attributes.put("toolgate.status", "interrupted")),
        }
        // Only the attempts of this generation; earlier ones are on the spans before the
        // suspension.
        add_attempts(&mut span, &layers, call.attempt..=attempts);
        self.add_layers(&mut span, layers);
        span
    }

    /// Adds the attributes of the call.
    fn add_call(&self, span: &mut ToolSpan, call: &Call, attempts: u32) {
        let turn = call.turn();
        let text = |text: &Arc<str>| text.to_string();
        let call_id = self
            .keeper
            .sanitize_text(call.provider_call_id())
            .map(|id| truncate_text(id, MAX_DESCRIPTION_CHARS));
        let description = call
            .spec()
            .map(|spec| truncate_text(&spec.description, MAX_DESCRIPTION_CHARS));
        span.attributes
            .put("gen_ai.operation.name", "execute_tool")
            .put("gen_ai.tool.name", call.tool.to_string())
            .put_some("gen_ai.tool.call.id", call_id)
            .put("gen_ai.tool.type", "function")
            .put_some("gen_ai.tool.description", description)
            .put("gen_ai.conversation.id", turn.session.to_string())
            .put_some(
                "gen_ai.agent.id",
                turn.agent_id.as_ref().map(ToString::to_string),
            )
            .put_some("gen_ai.agent.name", turn.agent_name.as_ref().map(text))
            .put_some("gen_ai.request.model", turn.model.as_ref().map(text))
            .put_some("gen_ai.provider.name", turn.provider.as_ref().map(text))
            .put("toolgate.invocation.id", call.id.to_string())
            .put("toolgate.turn.id", turn.turn.to_string())
            .put("toolgate.generation", call.generation)
            .put("toolgate.attempts", attempts);
        for (name, value) in turn.labels.iter() {
            let name = format!("toolgate.label.{name}");
            span.attributes.put(name, value.to_owned());
        }
        self.add_content(span, ContentAttributes::ARGUMENTS, call.arguments.as_json());
    }

    /// Adds what the call waits for.
    fn add_suspension(&self, span: &mut ToolSpan, suspension: &Suspension) {
        span.attributes.put("toolgate.status", "suspended");
        let ended_at = span.ended_at;
        match suspension {
            Suspension::Decision(request) => {
                let asked_by = request.asked_by.as_ref().map(ToString::to_string);
                let stated = request.stated_reason.as_deref();
                let stated = stated.and_then(|stated| self.keeper.sanitize_text(stated));
                let stated = stated.map(|stated| truncate_text(stated, MAX_DESCRIPTION_CHARS));
                span.add_event("asked", ended_at)
                    .put("toolgate.approval.id", request.approval_id.to_string())
                    .put_some("toolgate.asked_by", asked_by)
                    .put_some("toolgate.stated_reason", stated);
            }
            Suspension::Result => drop(span.add_event("handed_out", ended_at)),
        }
    }

    /// Adds status, error and result.
    fn add_outcome(&self, span: &mut ToolSpan, settled: &SettledOutcome) {
        let status = settled.status;
        let executor = settled.executor.as_ref().map(ToString::to_string);
        let reason = settled.error.as_ref().and_then(|e| e.reason.as_deref());
        let reason = reason.and_then(|reason| self.keeper.sanitize_text(reason));
        span.attributes
            .put("toolgate.status", status.as_str())
            .put_some("toolgate.executor", executor)
            .put_some(
                "toolgate.denial.reason",
                reason.map(|reason| truncate_text(reason, MAX_DESCRIPTION_CHARS)),
            );
        span.error = is_error_status(status).then(|| status.as_str().into());
        if is_error_status(status) {
            let word = match &settled.error {
                Some(error) => serialized_word(&error.category),
                None => status.as_str().to_owned(),
            };
            span.attributes.put("error.type", word);
        }
        self.add_notes(span, settled);
        self.add_exception(span, settled);
        self.add_content(span, ContentAttributes::RESULT, &settled.value);
        self.add_model_text(span, settled);
        let ended_at = span.ended_at;
        let name = if status.is_refusal() {
            status.as_str()
        } else {
            "result"
        };
        span.add_event(name, ended_at)
            .put("toolgate.status", status.as_str());
    }

    /// Adds the summary and the description, such as the reason that the model stated.
    fn add_notes(&self, span: &mut ToolSpan, settled: &SettledOutcome) {
        let Some(notes) = settled.notes.fields() else {
            return;
        };
        for (name, text) in [
            ("toolgate.summary", notes.summary.as_deref()),
            ("toolgate.description", notes.description.as_deref()),
        ] {
            let text = text.and_then(|text| self.keeper.sanitize_text(text));
            let text = text.map(|text| truncate_text(text, MAX_DESCRIPTION_CHARS));
            span.attributes.put_some(name, text);
        }
    }

    /// Adds the error as the operator may read it: cause, panic message, stack.
    fn add_exception(&self, span: &mut ToolSpan, settled: &SettledOutcome) {
        let Some(error) = &settled.error else {
            return;
        };
        let Some(detail) = &error.operator else {
            return;
        };
        let at = span.ended_at;
        let exception = span.add_event("exception", at);
        exception.put("exception.type", serialized_word(&error.category));
        // Fails closed like captured content: a cause may quote a connection string.
        let detail = self.keeper.sanitize_text(detail);
        match detail.filter(|_| self.keeper.has_redactor()) {
            Some(detail) => exception.put(
                "exception.message",
                truncate_text(detail, MAX_CONTENT_CHARS),
            ),
            None => exception.put("toolgate.exception.withheld", true),
        };
    }

    /// Adds digest and size, and the content itself only if it is configured and redacted.
    fn add_content(&self, span: &mut ToolSpan, names: ContentAttributes, json: &Json) {
        // If redaction fails, even a digest is withheld: short secrets could be guessed from it.
        let Some(kept) = self.keeper.sanitize_json(json) else {
            span.attributes.put(names.withheld, true);
            return;
        };
        span.attributes
            .put(names.digest, kept.digest())
            .put(names.size, kept.size());
        if !self.capture_content {
            return;
        }
        // Fails closed: spans may leave the machine, and content that was not searched may hold
        // secrets.
        if self.keeper.has_redactor() {
            let content = truncate_text(kept.to_string(), MAX_CONTENT_CHARS);
            span.attributes.put(names.content, content);
        } else {
            span.attributes.put(names.withheld, true);
        }
    }

    /// Adds the text that the model reads, if it is not the result itself and content is captured.
    fn add_model_text(&self, span: &mut ToolSpan, settled: &SettledOutcome) {
        span.attributes
            .put("toolgate.result.model_bytes", settled.model_size());
        let text = settled.text.as_deref();
        let text = text.filter(|_| self.capture_content && self.keeper.has_redactor());
        let text = text.and_then(|text| self.keeper.sanitize_text(text));
        let text = text.map(|text| truncate_text(text, MAX_CONTENT_CHARS));
        span.attributes.put_some("toolgate.result.model_text", text);
    }

    /// Adds a child span for each layer.
    fn add_layers(&self, span: &mut ToolSpan, layers: Vec<LayerNote>) {
        for note in layers {
            let reason = note
                .reason
                .as_deref()
                .and_then(|reason| self.keeper.sanitize_text(reason).map(Cow::into_owned));
            let layer = span.add_child(
                format!("layer {}", note.name),
                note.started_at,
                note.ended_at,
            );
            layer.error = layer_error_word(note.status).map(Into::into);
            layer
                .attributes
                .put("toolgate.layer.name", note.name.to_string())
                .put("toolgate.layer.band", note.band.to_string())
                .put("toolgate.layer.status", layer_status_word(note.status))
                .put("toolgate.layer.answered", note.answered)
                .put("toolgate.layer.changed", note.changed)
                .put("toolgate.attempt", note.attempt)
                .put_some("toolgate.layer.reason", reason)
                .put_some("error.type", note.error);
        }
    }
}

/// The attribute names for arguments or results.
#[derive(Clone, Copy)]
struct ContentAttributes {
    digest: &'static str,
    size: &'static str,
    content: &'static str,
    withheld: &'static str,
}

impl ContentAttributes {
    const ARGUMENTS: Self = Self {
        digest: "toolgate.arguments.digest",
        size: "toolgate.arguments.bytes",
        content: "gen_ai.tool.call.arguments",
        withheld: "toolgate.arguments.withheld",
    };
    const RESULT: Self = Self {
        digest: "toolgate.result.digest",
        size: "toolgate.result.bytes",
        content: "gen_ai.tool.call.result",
        withheld: "toolgate.result.withheld",
    };
}

/// Adds the newest decision with which the call was resumed.
fn add_decision(span: &mut ToolSpan, call: &Call) {
    let Some(answer) = call.resume_state().answers.last() else {
        return;
    };
    let verdict = match answer.decision.verdict {
        Verdict::Approve => "approve",
        Verdict::ApproveWithEdits { .. } => "approve_with_edits",
        Verdict::Deny { .. } => "deny",
    };
    let at = span.started_at;
    let decided = span.add_event("decided", at);
    decided
        .put("toolgate.decision", verdict)
        .put("toolgate.decided_by", answer.decision.by.to_string())
        .put("toolgate.asked_by", answer.asked_by.to_string());
    if answer.decision.unseen {
        decided.put("toolgate.unseen", true);
    }
}

/// Adds one span per attempt, with the times of the innermost layer of that attempt.
///
/// If the repeating layer has no layer below it, the times of its attempts are unknown: each span
/// then has the times of that layer, and an attribute says so.
fn add_attempts(
    span: &mut ToolSpan,
    layers: &[LayerNote],
    attempts: std::ops::RangeInclusive<u32>,
) {
    for attempt in attempts {
        let own = layers.iter().rev().find(|note| note.attempt == attempt);
        let innermost = own.or(layers.last());
        let (started_at, ended_at) = innermost.map_or((span.started_at, span.ended_at), |note| {
            (note.started_at, note.ended_at)
        });
        let child = span.add_child(format!("attempt {attempt}"), started_at, ended_at);
        child.error = innermost
            .and_then(|note| layer_error_word(note.status))
            .map(Into::into);
        child.attributes.put("toolgate.attempt", attempt).put(
            "toolgate.attempt.timed_by",
            innermost.map_or_else(|| "call".to_owned(), |note| note.name.to_string()),
        );
    }
}

/// Checks whether a status counts as an error in tracing systems.
fn is_error_status(status: Status) -> bool {
    // A dry run did what it should, so it is no error in a trace.
    !matches!(status, Status::Ok | Status::DryRun)
}

/// Returns the error word of a layer, if it failed.
fn layer_error_word(status: LayerStatus) -> Option<&'static str> {
    match status {
        LayerStatus::Settled(status) => is_error_status(status).then(|| status.as_str()),
        LayerStatus::Open(_) => None,
    }
}

/// Returns the attribute value for the status of a layer.
fn layer_status_word(status: LayerStatus) -> &'static str {
    match status {
        LayerStatus::Settled(status) => status.as_str(),
        LayerStatus::Open(UnsettledReason::Suspended) => "suspended",
        LayerStatus::Open(UnsettledReason::Dropped) => "dropped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RequireReason, SharedRedactor, SharedSpanSink, Telemetry, span_fn};
    use serde_json::json;
    use std::{sync::Mutex, time::Duration};
    use toolgate_core::{
        Band, CallSeed, Labels, Layer, LayerExt, Next, RedactionError, Redactor, Stack, around,
        from_fn, map_outcome,
    };
    use toolgate_core::{Failure, Refusal, ToolError, ToolOutput};
    use toolgate_testkit::{
        FakeExecutor, TestClock, call, call_with, echo, echo_under, env_at, run_twice, seed,
    };

    type Spans = Arc<Mutex<Vec<Arc<ToolSpan>>>>;

    fn catching() -> (Telemetry, Spans) {
        let spans = Spans::default();
        let seen = spans.clone();
        let sink = span_fn(move |span: &Arc<ToolSpan>| {
            seen.lock().expect("whole").push(span.clone());
            Ok(())
        });
        (Telemetry::to(SharedSpanSink::new(sink)), spans)
    }

    fn only(spans: &Spans) -> Arc<ToolSpan> {
        let spans = spans.lock().expect("whole");
        assert_eq!(spans.len(), 1);
        spans[0].clone()
    }

    fn names(span: &ToolSpan) -> Vec<&str> {
        span.children.iter().map(|child| &*child.name).collect()
    }

    fn events(span: &ToolSpan) -> Vec<&str> {
        span.events.iter().map(|event| event.name).collect()
    }

    fn again() -> impl Layer {
        let twice = around(async |call: Call, next: Next| {
            let first = next.clone().run(call.clone()).await;
            if first.is_ok() {
                first
            } else {
                next.run(call).await
            }
        });
        twice.named("again").in_band(Band::Repeat)
    }

    #[tokio::test]
    async fn a_span_has_the_labels_of_its_call() {
        let (telemetry, spans) = catching();
        let mut seed = seed("read_file", json!({}));
        let labels = Labels::new([("tenant", "acme"), ("request.id", "r-1")]);
        Arc::make_mut(&mut seed.turn).labels = labels.expect("valid");
        echo_under(telemetry).run(Call::new(seed)).await;
        let span = only(&spans);
        let text = |name| span.attributes.text(name);
        assert_eq!(
            (
                text("toolgate.label.tenant"),
                text("toolgate.label.request.id")
            ),
            (Some("acme"), Some("r-1"))
        );
    }

    #[tokio::test]
    async fn a_span_follows_the_conventions_and_has_no_contents() {
        let (telemetry, spans) = catching();
        echo_under(telemetry)
            .run(call_with("read_file", json!({ "path": "contents" })))
            .await;
        let span = only(&spans);
        let text = |name| span.attributes.text(name);
        assert_eq!(span.name, "execute_tool read_file");
        assert_eq!(text("gen_ai.operation.name"), Some("execute_tool"));
        assert_eq!(
            (text("gen_ai.tool.name"), text("gen_ai.tool.call.id")),
            (Some("read_file"), Some("call_1"))
        );
        assert_eq!(
            (text("toolgate.status"), text("gen_ai.tool.type")),
            (Some("ok"), Some("function"))
        );
        let digest = call_with("t", json!({ "path": "contents" }))
            .arguments
            .digest();
        assert_eq!(
            span.attributes.get("toolgate.arguments.digest"),
            Some(&digest.into())
        );
        assert_eq!(
            (&span.error, events(&span)),
            (&None, vec!["dispatched", "result"])
        );
        let json = serde_json::to_string(&*span).expect("writes");
        assert!(
            !json.contains("contents") && json.contains(&digest.to_string()),
            "{json}"
        );
    }

    #[tokio::test]
    async fn a_blocked_call_has_a_span_with_the_layer_that_blocked_it() {
        let (telemetry, spans) = catching();
        let refusing = from_fn(async |_, next: Next| {
            next.note_reason("stage two");
            Outcome::refused(Refusal::OutOfScope, "no")
        });
        let gate = refusing.named("scope").in_band(Band::Decide);
        Stack::over(echo())
            .layer(telemetry)
            .layer(gate)
            .build()
            .expect("in order")
            .run(call("t"))
            .await;
        let span = only(&spans);
        assert_eq!(span.error.as_deref(), Some("scope_violation"));
        assert_eq!(span.attributes.text("error.type"), Some("refused"));
        assert_eq!(
            (events(&span), names(&span)),
            (vec!["dispatched", "scope_violation"], vec!["layer scope"])
        );
        let layer = &span.children[0];
        assert_eq!(
            layer.attributes.text("toolgate.layer.reason"),
            Some("stage two")
        );
        assert_eq!(
            layer.attributes.get("toolgate.layer.answered"),
            Some(&true.into())
        );
        assert_eq!(layer.attributes.text("toolgate.layer.band"), Some("decide"));
    }

    #[tokio::test]
    async fn each_attempt_has_a_span_as_long_as_its_innermost_layer() {
        let (telemetry, spans) = catching();
        let clock = TestClock::new();
        let hands = clock.clone();
        let slow = map_outcome(move |call: &Call, outcome: Outcome| {
            hands.advance(Duration::from_secs(call.attempt.into()));
            outcome
        });
        let script = FakeExecutor::new().then(Outcome::failed_with(Failure::ExecutorError, "busy"));
        let stack = Stack::over(script)
            .layer(telemetry)
            .layer(again())
            .layer(slow.named("slow").in_band(Band::Bound));
        let call = Call::new(CallSeed {
            env: env_at(&clock),
            ..seed("t", json!({}))
        });
        assert!(stack.build().expect("in order").run(call).await.is_ok());
        let span = only(&spans);
        assert_eq!(
            names(&span),
            [
                "attempt 1",
                "attempt 2",
                "layer again",
                "layer slow",
                "layer slow"
            ]
        );
        let took = |at: usize| {
            span.children[at]
                .ended_at
                .since(span.children[at].started_at)
                .as_secs()
        };
        assert_eq!((took(0), took(1), took(2)), (1, 2, 3));
        assert_eq!(span.children[0].error.as_deref(), Some("executor_error"));
        assert_eq!(span.children[1].error, None);
        assert_eq!(
            span.attributes.get("toolgate.attempts"),
            Some(&2_u32.into())
        );
    }

    #[tokio::test]
    async fn attempts_without_times_of_their_own_are_marked() {
        let (telemetry, spans) = catching();
        let script = FakeExecutor::new().then(Outcome::failed_with(Failure::ExecutorError, "busy"));
        let stack = Stack::over(script)
            .layer(telemetry)
            .layer(again())
            .build()
            .expect("in order");
        stack.run(call("t")).await;
        let span = only(&spans);
        assert_eq!(names(&span), ["attempt 1", "attempt 2", "layer again"]);
        assert_eq!(
            span.children[1]
                .attributes
                .text("toolgate.attempt.timed_by"),
            Some("again")
        );
        let (telemetry, spans) = catching();
        echo_under(telemetry).run(call("t")).await;
        let alone = only(&spans);
        assert_eq!(names(&alone), ["attempt 1"]);
        assert_eq!(
            alone.children[0]
                .attributes
                .text("toolgate.attempt.timed_by"),
            Some("call")
        );
    }

    #[tokio::test]
    async fn a_suspended_call_has_a_span_each_time_and_the_second_is_linked_to_the_first() {
        let (telemetry, spans) = catching();
        let twice = run_twice(telemetry, seed("t", json!({ "n": 1 }))).await;
        twice.assert_replays();
        let spans = spans.lock().expect("whole");
        let [asked, done] = &spans[..] else {
            panic!("two spans, not {}", spans.len())
        };
        assert_eq!(asked.attributes.text("toolgate.status"), Some("suspended"));
        assert_eq!(
            (&asked.error, events(asked)),
            (&None, vec!["dispatched", "asked"])
        );
        assert_eq!(events(done), ["dispatched", "decided", "result"]);
        assert_eq!(
            (done.trace_id, done.links[0].span_id),
            (asked.trace_id, asked.span_id)
        );
        assert_ne!(done.span_id, asked.span_id);
        assert_eq!(
            names(done),
            ["attempt 2"],
            "the attempt before the suspension is on the first span"
        );
    }

    /// Blanks out one word and fails on another.
    struct Blank;

    impl Redactor for Blank {
        fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
            self.redact_text(&value.to_string())?
                .parse()
                .map_err(|_| RedactionError)
        }
        fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
            if text.contains("poison") {
                Err(RedactionError)
            } else {
                Ok(text.replace("hunter2", "***"))
            }
        }
    }

    #[tokio::test]
    async fn contents_are_captured_only_if_configured_and_only_redacted() {
        let arguments = json!({ "k": "hunter2" });
        let captured = |layer: Telemetry, spans: Spans, arguments: serde_json::Value| async move {
            assert!(
                echo_under(layer)
                    .run(call_with("t", arguments))
                    .await
                    .is_ok()
            );
            only(&spans)
        };
        let (telemetry, spans) = catching();
        let span = captured(telemetry.capture_content(true), spans, arguments.clone()).await;
        assert_eq!(
            span.attributes.get("gen_ai.tool.call.arguments"),
            None,
            "there is no redactor"
        );
        assert_eq!(
            span.attributes.get("toolgate.arguments.withheld"),
            Some(&true.into())
        );

        let (telemetry, spans) = catching();
        let redacting = telemetry
            .redactor(SharedRedactor::new(Blank))
            .capture_content(true);
        let span = captured(redacting.clone(), spans, arguments).await;
        for name in ["gen_ai.tool.call.arguments", "gen_ai.tool.call.result"] {
            assert_eq!(span.attributes.text(name), Some(r#"{"k":"***"}"#));
        }

        let (telemetry, spans) = catching();
        let redacting = telemetry
            .redactor(SharedRedactor::new(Blank))
            .capture_content(true);
        let span = captured(redacting, spans, json!({ "k": "poison" })).await;
        for name in [
            "gen_ai.tool.call.arguments",
            "toolgate.arguments.digest",
            "toolgate.result.bytes",
        ] {
            assert_eq!(
                span.attributes.get(name),
                None,
                "{name} of what cannot be redacted"
            );
        }
    }

    #[tokio::test]
    async fn the_cause_of_a_failure_is_on_the_span_redacted_or_withheld() {
        let failing = || {
            let error = ToolError::new("the tool failed").with_operator_detail("hunter2 refused");
            FakeExecutor::new().then(Outcome::failed(error))
        };
        let exception = |span: &ToolSpan| {
            let event = span.events.iter().find(|event| event.name == "exception");
            event.expect("is there").attributes.clone()
        };
        let (telemetry, spans) = catching();
        let redacting = telemetry.redactor(SharedRedactor::new(Blank));
        Stack::over(failing())
            .layer(redacting)
            .build()
            .expect("in order")
            .run(call("t"))
            .await;
        let shown = exception(&only(&spans));
        assert_eq!(shown.text("exception.message"), Some("*** refused"));
        assert_eq!(shown.text("exception.type"), Some("internal"));

        let (telemetry, spans) = catching();
        Stack::over(failing())
            .layer(telemetry)
            .build()
            .expect("in order")
            .run(call("t"))
            .await;
        let shown = exception(&only(&spans));
        assert_eq!(
            shown.text("exception.message"),
            None,
            "there is no redactor"
        );
        assert_eq!(shown.get("toolgate.exception.withheld"), Some(&true.into()));
    }

    #[tokio::test]
    async fn the_text_for_the_model_is_on_the_span_if_content_is_captured() {
        for (captured, expected) in [(true, Some("saw ***")), (false, None)] {
            let (telemetry, spans) = catching();
            let telemetry = telemetry.redactor(SharedRedactor::new(Blank));
            let output = ToolOutput::from(json!(1)).with_text("saw hunter2");
            let stack = Stack::over(FakeExecutor::new().then(Outcome::ok(output)))
                .layer(telemetry.capture_content(captured))
                .build()
                .expect("in order");
            stack.run(call("t")).await;
            let span = only(&spans);
            assert_eq!(span.attributes.text("toolgate.result.model_text"), expected);
            let bytes = span.attributes.get("toolgate.result.model_bytes");
            assert_eq!(bytes, Some(&11usize.into()));
        }
    }

    #[tokio::test]
    async fn the_reason_that_the_model_stated_is_on_the_span() {
        let (telemetry, spans) = catching();
        let stack = Stack::over(echo())
            .layer(telemetry.redactor(SharedRedactor::new(Blank)))
            .layer(RequireReason::new())
            .build()
            .expect("in order");
        let reason = "find hunter2 in the code";
        stack.run(call_with("t", json!({ "reason": reason }))).await;
        let span = only(&spans);
        assert_eq!(
            span.attributes.text("toolgate.summary"),
            Some("find *** in the code")
        );
    }

    #[tokio::test]
    async fn the_providers_id_is_redacted_or_omitted() {
        for (id, shown) in [("id-hunter2", Some("id-***")), ("poison", None)] {
            let (telemetry, spans) = catching();
            let seed = CallSeed {
                provider_call_id: id.into(),
                ..seed("t", json!({}))
            };
            echo_under(telemetry.redactor(SharedRedactor::new(Blank)))
                .run(Call::new(seed))
                .await;
            assert_eq!(only(&spans).attributes.text("gen_ai.tool.call.id"), shown);
        }
    }

    #[tokio::test]
    async fn captured_contents_are_bounded() {
        let (telemetry, spans) = catching();
        let redacting = telemetry
            .redactor(SharedRedactor::new(Blank))
            .capture_content(true);
        echo_under(redacting)
            .run(call_with("t", json!({ "k": "ü".repeat(100_000) })))
            .await;
        let length = only(&spans)
            .attributes
            .text("gen_ai.tool.call.result")
            .map(|text| text.chars().count());
        assert_eq!(length, Some(MAX_CONTENT_CHARS));
    }
}
