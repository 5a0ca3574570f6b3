//! Shows every call to tracing systems, without ever changing what comes of it.

use std::{sync::Arc, time::Duration};

use toolgate_core::{Band, Call, Layer, LayerTraits, Next, Outcome, Timestamp, contained_sync};

use crate::{
    BadOption, Configurable, Parts, SharedRedactor, SharedSpanSink, SinkError, SpanSink, SpanSinks,
    TelemetryCounters, TelemetryOptions, passage::Passage, tracer::Tracer,
};

/// Sends a [`ToolSpan`](crate::ToolSpan) for every call to one or more sinks, also for calls that were refused or suspended.
///
/// The model notices nothing. The names follow the GenAI conventions of OpenTelemetry; arguments and results appear
/// as digests and sizes. A sink that fails or panics is counted ([`Telemetry::counters`]) and changes no outcome. A
/// call that is suspended has a span for each time it went through the stack, linked to the one before, also when
/// days and processes lie in between. A call that something above stopped waiting for has one too.
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
    tracer: Tracer,
}

impl Telemetry {
    /// Sends spans to `sink`.
    pub fn to(sink: impl SpanSink) -> Self {
        Self {
            sinks: SpanSinks::default().and(SharedSpanSink::new(sink)),
            tracer: Tracer::default(),
        }
    }

    /// Sends spans to another sink as well.
    pub fn and(mut self, sink: impl SpanSink) -> Self {
        self.sinks = self.sinks.and(SharedSpanSink::new(sink));
        self
    }

    /// Takes secrets out of what is put on spans.
    pub fn redactor(mut self, redactor: SharedRedactor) -> Self {
        self.tracer.keeper = self.tracer.keeper.redacting(Some(redactor));
        self
    }

    /// Puts arguments and results on spans. Without a redactor they are withheld all the same.
    pub fn capture_content(mut self, capture: bool) -> Self {
        self.tracer.capture_content = capture;
        self
    }

    /// Counts here what becomes of spans; a sink that delivers later counts in the same place.
    pub fn counting(mut self, counters: TelemetryCounters) -> Self {
        self.sinks = self.sinks.counting(counters);
        self
    }

    /// How many spans were delivered and lost.
    pub fn counters(&self) -> &TelemetryCounters {
        self.sinks.counters()
    }

    /// How many spans were lost.
    pub fn dropped(&self) -> u64 {
        self.counters().dropped()
    }

    /// Waits until the sinks have delivered or given up what they took, `bound` for each. It blocks the thread.
    pub fn flush(&self, bound: Duration) -> Result<(), SinkError> {
        self.sinks.flush(bound)
    }

    fn send(&self, passage: &Passage<'_>, outcome: Option<&Outcome>) {
        // Also what makes the span is contained: a recorder that breaks must not break the call.
        if contained_sync(|| {
            self.sinks
                .export(&Arc::new(self.tracer.span(passage, outcome)))
        })
        .is_err()
        {
            self.counters().add_dropped(1);
        }
    }
}

impl Layer for Telemetry {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if call.is_rehearsal() || self.sinks.is_empty() {
            return next.run(call).await;
        }
        let started_at = call.env().clock().now();
        let mut watch = Watch {
            telemetry: self,
            call: &call,
            next: &next,
            started_at,
            over: false,
        };
        let outcome = next.clone().run(call.clone()).await;
        watch.end(Some(&outcome));
        outcome
    }

    fn band(&self) -> Band {
        Band::Record
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).recording()
    }
}

/// Sends the span also when something above stops waiting for the call.
struct Watch<'a> {
    telemetry: &'a Telemetry,
    call: &'a Call,
    next: &'a Next,
    started_at: Timestamp,
    over: bool,
}

impl Watch<'_> {
    fn end(&mut self, outcome: Option<&Outcome>) {
        self.over = true;
        let ended_at = self.call.env().clock().now();
        let passage = Passage {
            call: self.call,
            next: self.next,
            started_at: self.started_at,
            ended_at,
        };
        self.telemetry.send(&passage, outcome);
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.end(None);
        }
    }
}

impl Configurable for Telemetry {
    const NAME: &'static str = "telemetry";
    const SUMMARY: &'static str = "Sends a span for every call to tracing systems.";
    type Options = TelemetryOptions;

    /// A [`SharedSpanSink`] among the parts gets every span too. [`TelemetryCounters`] and [`SpanSinks`] are left
    /// there for the program.
    fn configure(options: TelemetryOptions, parts: &Parts) -> Result<Self, BadOption> {
        let names = options.names()?;
        options.check(&names)?;
        let counters = parts.get_or_default::<TelemetryCounters>();
        let mut sinks: Vec<SharedSpanSink> = parts.get().into_iter().collect();
        for name in names {
            sinks.extend(options.sink(name, &counters)?);
        }
        let sinks = SpanSinks::new(sinks, counters);
        parts.put(sinks.clone());
        let telemetry = Self {
            sinks,
            tracer: Tracer::default(),
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
    use toolgate_testkit::{Scripted, call, echo_under, seed};

    fn configure(options: serde_json::Value, parts: &Parts) -> Result<Telemetry, String> {
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
    async fn a_call_that_nobody_waits_for_any_more_has_a_span() {
        let spans = Arc::new(Mutex::new(Vec::new()));
        let seen = spans.clone();
        let telemetry = Telemetry::to(span_fn(move |span| {
            seen.lock().expect("whole").push(span.clone());
            Ok(())
        }));
        let stack = Stack::over(Scripted::new().then_hang())
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
    async fn a_sink_among_the_parts_gets_every_span_and_the_parts_hold_the_counts() {
        let parts = Parts::new().with(SharedSpanSink::new(span_fn(|_| Ok(()))));
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
    fn options_that_make_no_sense_are_refused() {
        let parts = Parts::new();
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
