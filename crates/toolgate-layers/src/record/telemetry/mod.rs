//! Sends a span for every call to tracing systems, without ever changing the outcome.

mod build;
pub(crate) mod options;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
#[cfg(feature = "otlp")]
pub(crate) mod otlp_settings;
pub(crate) mod sink;
pub(crate) mod span;

use std::{sync::Arc, time::Duration};

use toolgate_core::{
    Band, Call, Layer, LayerCapabilities, Next, Outcome, Timestamp, run_contained_sync,
};

use crate::{
    BadOption, Configurable, Resources, SharedRedactor, SharedSpanSink, SinkError, SpanSink,
    SpanSinks, TelemetryCounters, TelemetryOptions,
    record::{passage::CallPassage, telemetry::build::SpanRecorder},
};

/// Sends a [`ToolSpan`](crate::ToolSpan) for every call to one or more sinks, including calls that
/// were blocked, denied or suspended.
///
/// The model notices nothing. The names follow the GenAI conventions of OpenTelemetry; arguments
/// and results appear as digests and sizes. A sink that fails or panics is counted
/// ([`Telemetry::counters`]) and changes no outcome. A suspended call has a span for each time it
/// went through the stack, linked to the one before, even if days or a restart lie in between. A
/// call that is dropped before it settles has a span too.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use toolgate_layers::{Telemetry, ToolSpan, span_fn};
/// use toolgate_testkit::{call, echo_under};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let names = Arc::new(Mutex::new(Vec::new()));
/// let seen = names.clone();
/// let sink = span_fn(move |span: &Arc<ToolSpan>| Ok(seen.lock().unwrap().push(span.name.clone())));
/// echo_under(Telemetry::to(sink)).run(call("read_file")).await;
/// assert_eq!(*names.lock().unwrap(), ["execute_tool read_file"]);
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Telemetry {
    sinks: SpanSinks,
    tracer: SpanRecorder,
}

impl Telemetry {
    /// Creates a layer that sends spans to `sink`.
    pub fn to(sink: impl SpanSink) -> Self {
        Self {
            sinks: SpanSinks::default().with_sink(SharedSpanSink::new(sink)),
            tracer: SpanRecorder::default(),
        }
    }

    /// Adds another sink.
    pub fn and(mut self, sink: impl SpanSink) -> Self {
        self.sinks = self.sinks.with_sink(SharedSpanSink::new(sink));
        self
    }

    /// Redacts everything that is put on spans.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.tracer.keeper = self.tracer.keeper.with_redactor(Some(redactor));
        self
    }

    /// Puts arguments and results on spans. Without a redactor they are still withheld.
    pub fn capture_content(mut self, capture: bool) -> Self {
        self.tracer.capture_content = capture;
        self
    }

    /// Counts delivered and lost spans in `counters`, which a sink that delivers later shares.
    pub fn counting(mut self, counters: TelemetryCounters) -> Self {
        self.sinks = self.sinks.with_counters(counters);
        self
    }

    /// Returns the counts of delivered and lost spans.
    pub fn counters(&self) -> &TelemetryCounters {
        self.sinks.counters()
    }

    /// Returns the number of lost spans.
    pub fn dropped(&self) -> u64 {
        self.counters().dropped()
    }

    /// Waits until the sinks have delivered or dropped their spans, at most `bound` for each. It
    /// blocks the thread.
    ///
    /// # Errors
    ///
    /// Returns the first failure of a sink.
    pub fn flush(&self, bound: Duration) -> Result<(), SinkError> {
        self.sinks.flush(bound)
    }

    /// Builds a span and sends it. Counts it as lost if that panics.
    fn send_span(&self, passage: &CallPassage<'_>, outcome: Option<&Outcome>) {
        // Building the span is contained too: a recorder that panics must not fail the call.
        if run_contained_sync(|| {
            self.sinks
                .export(&Arc::new(self.tracer.build_span(passage, outcome)))
        })
        .is_err()
        {
            self.counters().add_dropped(1);
        }
    }
}

impl Layer for Telemetry {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        // A rehearsal must not be sent anywhere; without sinks a span would be built for nothing.
        if call.is_rehearsal() || self.sinks.is_empty() {
            return next.run(call).await;
        }
        let started_at = call.env().clock().now();
        let mut watch = SpanGuard {
            telemetry: self,
            call: &call,
            next: &next,
            started_at,
            over: false,
        };
        let outcome = next.clone().run(call.clone()).await;
        watch.finish(Some(&outcome));
        outcome
    }

    fn band(&self) -> Band {
        Band::Record
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME).recording()
    }
}

/// A guard that sends the span even if the call is dropped.
struct SpanGuard<'a> {
    telemetry: &'a Telemetry,
    call: &'a Call,
    next: &'a Next,
    started_at: Timestamp,
    over: bool,
}

impl SpanGuard<'_> {
    /// Sends the span.
    fn finish(&mut self, outcome: Option<&Outcome>) {
        self.over = true;
        let ended_at = self.call.env().clock().now();
        let passage = CallPassage {
            call: self.call,
            next: self.next,
            started_at: self.started_at,
            ended_at,
        };
        self.telemetry.send_span(&passage, outcome);
    }
}

impl Drop for SpanGuard<'_> {
    fn drop(&mut self) {
        // The future was dropped before the call returned: an interruption or a time limit further
        // out.
        if !self.over {
            self.finish(None);
        }
    }
}

impl Configurable for Telemetry {
    const NAME: &'static str = "telemetry";
    const SUMMARY: &'static str = "Sends a span for every call to tracing systems.";
    type Options = TelemetryOptions;

    /// Builds the layer. A [`SharedSpanSink`] in the resources receives every span too.
    /// [`TelemetryCounters`] and [`SpanSinks`] are added to the resources for the program.
    fn configure(options: TelemetryOptions, parts: &Resources) -> Result<Self, BadOption> {
        let names = options.sink_names()?;
        options.check_sinks(&names)?;
        let counters = parts.get_or_default::<TelemetryCounters>();
        let mut sinks: Vec<SharedSpanSink> = parts.get().into_iter().collect();
        for name in names {
            sinks.extend(options.build_sink(name, &counters)?);
        }
        let sinks = SpanSinks::new(sinks, counters);
        parts.insert(sinks.clone());
        let telemetry = Self {
            sinks,
            tracer: SpanRecorder::default(),
        }
        .capture_content(options.capture_content);
        Ok(match parts.get::<SharedRedactor>() {
            Some(redactor) => telemetry.redactor(redactor),
            None => telemetry,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span_fn;
    use serde_json::json;
    use std::sync::Mutex;
    use toolgate_core::{CallSeed, Stack, Status};
    use toolgate_testkit::{FakeExecutor, call, echo_under, seed};

    fn configure(options: serde_json::Value, parts: &Resources) -> Result<Telemetry, String> {
        let options = serde_json::from_value(options).map_err(|error| error.to_string())?;
        Telemetry::configure(options, parts).map_err(|bad| bad.key.to_owned())
    }

    #[tokio::test]
    async fn a_sink_that_fails_or_panics_changes_nothing_and_is_counted() {
        let seen = Arc::new(Mutex::new(0));
        let count = seen.clone();
        let telemetry = Telemetry::to(span_fn(|_| Err(SinkError::new("down"))))
            .and(span_fn(|_| panic!("hunter2")))
            .and(span_fn(move |_| {
                *count.lock().expect("whole") += 1;
                Ok(())
            }));
        let outcome = echo_under(telemetry.clone()).run(call("t")).await;
        assert!(outcome.is_ok());
        assert_eq!(
            (telemetry.dropped(), telemetry.counters().exported()),
            (2, 1)
        );
        assert_eq!(
            *seen.lock().expect("whole"),
            1,
            "the sink after the broken ones has its span"
        );
    }

    #[tokio::test]
    async fn a_rehearsal_has_no_span() {
        let telemetry = Telemetry::to(span_fn(|_| Ok(())));
        let rehearsal = Call::new(CallSeed {
            rehearsal: true,
            ..seed("t", json!({}))
        });
        assert_eq!(
            echo_under(telemetry.clone()).run(rehearsal).await.status(),
            Some(Status::DryRun)
        );
        assert_eq!(telemetry.counters().exported(), 0);
    }

    #[tokio::test]
    async fn a_dropped_call_has_a_span() {
        let spans = Arc::new(Mutex::new(Vec::new()));
        let seen = spans.clone();
        let telemetry = Telemetry::to(span_fn(move |span| {
            seen.lock().expect("whole").push(span.clone());
            Ok(())
        }));
        let stack = Stack::over(FakeExecutor::new().then_hang())
            .layer(telemetry)
            .build()
            .expect("in order");
        let mut run = Box::pin(stack.run(call("t")));
        assert!(futures::poll!(&mut run).is_pending());
        drop(run);
        let spans = spans.lock().expect("whole");
        assert_eq!(spans.len(), 1);
        assert_eq!(
            spans[0].attributes.text("toolgate.status"),
            Some("interrupted")
        );
    }

    #[tokio::test]
    async fn a_sink_in_the_resources_gets_every_span_and_the_counters_are_shared() {
        let parts = Resources::new().with(SharedSpanSink::new(span_fn(|_| Ok(()))));
        let telemetry = configure(json!({ "sink": "noop" }), &parts).expect("fine");
        echo_under(telemetry).run(call("t")).await;
        assert_eq!(
            parts.get::<TelemetryCounters>().expect("there").exported(),
            1
        );
        assert!(
            parts
                .get::<SpanSinks>()
                .expect("there")
                .flush(Duration::from_secs(1))
                .is_ok()
        );
    }

    #[test]
    fn options_that_make_no_sense_are_rejected() {
        let parts = Resources::new();
        assert!(configure(json!({}), &parts).is_ok());
        for (options, key) in [
            (
                json!({ "sink": "stderr", "sinks": ["noop", "stderr"] }),
                "sinks",
            ),
            (
                json!({ "sink": "stderr", "endpoint": "http://localhost" }),
                "endpoint",
            ),
            (
                json!({ "sink": "stderr", "headers": { "a": "b" } }),
                "headers",
            ),
            (json!({ "timeout": "0s" }), "timeout"),
        ] {
            assert_eq!(configure(options, &parts).expect_err("nonsense"), key);
        }
        assert!(configure(json!({ "sink": "STDERR" }), &parts).is_err());
        assert!(configure(json!({ "sampling": 1 }), &parts).is_err());
    }
}
