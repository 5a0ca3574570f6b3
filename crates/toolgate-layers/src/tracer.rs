//! Makes a span from a call and what came of it.

use std::{borrow::Cow, sync::Arc};

use toolgate_core::{
    Call, Json, LayerNote, LayerStatus, Outcome, Settled, Status, Suspension, Unsettled, Verdict,
};

use crate::{
    ToolSpan,
    keep::{Keeper, bounded},
    passage::Passage,
};

/// The longest content or description put on a span, in characters.
const MOST_CONTENT: usize = 8_192;
const MOST_DESCRIPTION: usize = 512;

/// What is put on spans.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tracer {
    pub(crate) keeper: Keeper,
    pub(crate) capture_content: bool,
}

impl Tracer {
    /// The span of a call; without an outcome, something above stopped waiting for it.
    pub(crate) fn span(&self, passage: &Passage<'_>, outcome: Option<&Outcome>) -> ToolSpan {
        let Passage {
            call,
            next,
            started_at,
            ended_at,
        } = *passage;
        let layers = passage.layers_below();
        let mut span = ToolSpan::root(call, started_at, ended_at);
        let attempts = next.trail().attempts();
        self.describe(&mut span, call, attempts);
        span.event(
            if call.closing().is_some() {
                "closed"
            } else {
                "dispatched"
            },
            started_at,
        );
        decided(&mut span, call);
        match outcome {
            Some(Outcome::Settled(settled)) => self.settled(&mut span, settled),
            Some(Outcome::Suspended(suspension)) => suspended(&mut span, suspension),
            None => drop(span.attributes.put("toolgate.status", "interrupted")),
        }
        add_attempts(&mut span, &layers, call.attempt..=attempts);
        self.add_layers(&mut span, layers);
        span
    }

    fn describe(&self, span: &mut ToolSpan, call: &Call, attempts: u32) {
        let turn = call.turn();
        let text = |text: &Arc<str>| text.to_string();
        let call_id = self
            .keeper
            .text(call.provider_call_id())
            .map(|id| bounded(id, MOST_DESCRIPTION));
        let description = call
            .spec()
            .map(|spec| bounded(&spec.description, MOST_DESCRIPTION));
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
        self.content(span, Content::ARGUMENTS, call.arguments.as_json());
    }

    fn settled(&self, span: &mut ToolSpan, settled: &Settled) {
        let status = settled.status;
        let executor = settled.executor.as_ref().map(ToString::to_string);
        span.attributes
            .put("toolgate.status", status.as_str())
            .put_some("toolgate.executor", executor);
        span.error = went_wrong(status).then(|| status.as_str().into());
        if went_wrong(status) {
            let category = settled.error.as_ref().map(|error| error.category);
            let word = match category.map(serde_json::to_value) {
                Some(Ok(serde_json::Value::String(word))) => word,
                Some(_) | None => status.as_str().to_owned(),
            };
            span.attributes.put("error.type", word);
        }
        self.content(span, Content::RESULT, &settled.value);
        let ended_at = span.ended_at;
        let name = if status.is_refusal() {
            status.as_str()
        } else {
            "result"
        };
        span.event(name, ended_at)
            .put("toolgate.status", status.as_str());
    }

    /// Digest and size; the content itself only if that is wanted and secrets are taken out.
    fn content(&self, span: &mut ToolSpan, names: Content, json: &Json) {
        let Some(kept) = self.keeper.json(json) else {
            span.attributes.put(names.withheld, true);
            return;
        };
        span.attributes
            .put(names.digest, kept.digest())
            .put(names.size, kept.size());
        match self.capture_content {
            true if self.keeper.redacts() => {
                span.attributes
                    .put(names.content, bounded(kept.to_string(), MOST_CONTENT));
            }
            true => drop(span.attributes.put(names.withheld, true)),
            false => {}
        }
    }

    fn add_layers(&self, span: &mut ToolSpan, layers: Vec<LayerNote>) {
        for note in layers {
            let reason = note
                .reason
                .as_deref()
                .and_then(|reason| self.keeper.text(reason).map(Cow::into_owned));
            let layer = span.child(
                format!("layer {}", note.name),
                note.started_at,
                note.ended_at,
            );
            layer.error = failed(note.status).map(Into::into);
            layer
                .attributes
                .put("toolgate.layer.name", note.name.to_string())
                .put("toolgate.layer.band", note.band.to_string())
                .put("toolgate.layer.status", word(note.status))
                .put("toolgate.layer.answered", note.answered)
                .put("toolgate.layer.changed", note.changed)
                .put("toolgate.attempt", note.attempt)
                .put_some("toolgate.layer.reason", reason)
                .put_some("error.type", note.error);
        }
    }
}

/// The names under which arguments or results appear.
#[derive(Clone, Copy)]
struct Content {
    digest: &'static str,
    size: &'static str,
    content: &'static str,
    withheld: &'static str,
}

impl Content {
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

/// The newest answer with which the call has come back.
fn decided(span: &mut ToolSpan, call: &Call) {
    let Some(answer) = call.resumed().answers.last() else {
        return;
    };
    let verdict = match answer.decision.verdict {
        Verdict::Approve => "approve",
        Verdict::ApproveWithEdits { .. } => "approve_with_edits",
        Verdict::Deny { .. } => "deny",
    };
    let at = span.started_at;
    span.event("decided", at)
        .put("toolgate.decision", verdict)
        .put("toolgate.decided_by", answer.decision.by.to_string())
        .put("toolgate.asked_by", answer.asked_by.to_string());
}

fn suspended(span: &mut ToolSpan, suspension: &Suspension) {
    span.attributes.put("toolgate.status", "suspended");
    let ended_at = span.ended_at;
    match suspension {
        Suspension::Decision(request) => {
            let asked_by = request.asked_by.as_ref().map(ToString::to_string);
            span.event("asked", ended_at)
                .put("toolgate.approval.id", request.approval_id.to_string())
                .put_some("toolgate.asked_by", asked_by);
        }
        Suspension::Result => drop(span.event("handed_out", ended_at)),
    }
}

/// One span per attempt, as long as the innermost layer of that attempt saw it.
///
/// If the layer that repeats has none below it, its attempts cannot be told apart in time: each is as long as that
/// layer, and says so.
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
        let child = span.child(format!("attempt {attempt}"), started_at, ended_at);
        child.error = innermost
            .and_then(|note| failed(note.status))
            .map(Into::into);
        child.attributes.put("toolgate.attempt", attempt).put(
            "toolgate.attempt.timed_by",
            innermost.map_or_else(|| "call".to_owned(), |note| note.name.to_string()),
        );
    }
}

fn went_wrong(status: Status) -> bool {
    !matches!(status, Status::Ok | Status::DryRun)
}

fn failed(status: LayerStatus) -> Option<&'static str> {
    match status {
        LayerStatus::Settled(status) => went_wrong(status).then(|| status.as_str()),
        LayerStatus::Open(_) => None,
    }
}

fn word(status: LayerStatus) -> &'static str {
    match status {
        LayerStatus::Settled(status) => status.as_str(),
        LayerStatus::Open(Unsettled::Suspended) => "suspended",
        LayerStatus::Open(Unsettled::Dropped) => "dropped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SharedRedactor, SharedSpanSink, Telemetry, span_fn};
    use serde_json::json;
    use std::{sync::Mutex, time::Duration};
    use toolgate_core::{
        Band, CallSeed, Layer, LayerExt, Next, RedactionFailed, Redactor, Stack, around, from_fn,
        map_outcome,
    };
    use toolgate_testkit::{
        Scripted, TestClock, call, call_with, echo, echo_under, env_at, run_twice, seed,
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
    async fn a_span_follows_the_conventions_and_holds_no_contents() {
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
    async fn a_refused_call_has_a_span_with_the_layer_that_refused() {
        let (telemetry, spans) = catching();
        let refusing = from_fn(async |_, next: Next| {
            next.because("stage two");
            Outcome::refused(Status::OutOfScope, "no")
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
        let script = Scripted::new().then(Outcome::refused(Status::ExecutorError, "busy"));
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
    async fn attempts_that_cannot_be_told_apart_in_time_say_so() {
        let (telemetry, spans) = catching();
        let script = Scripted::new().then(Outcome::refused(Status::ExecutorError, "busy"));
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
        fn redact(&self, value: &Json) -> Result<Json, RedactionFailed> {
            self.redact_text(&value.to_string())?
                .parse()
                .map_err(|_| RedactionFailed)
        }
        fn redact_text(&self, text: &str) -> Result<String, RedactionFailed> {
            if text.contains("poison") {
                Err(RedactionFailed)
            } else {
                Ok(text.replace("hunter2", "***"))
            }
        }
    }

    #[tokio::test]
    async fn contents_are_captured_only_when_asked_for_and_only_redacted() {
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
            "nobody to redact it"
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
    async fn the_providers_id_is_redacted_or_left_out() {
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
        assert_eq!(length, Some(MOST_CONTENT));
    }
}
