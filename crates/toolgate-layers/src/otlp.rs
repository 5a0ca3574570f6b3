//! Sends spans to an OpenTelemetry collector over http/protobuf, from a thread of its own.

use std::{
    fmt,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use opentelemetry::{
    InstrumentationScope, KeyValue, Value,
    trace::{Event, Link, SpanContext, SpanKind, Status, TraceFlags, TraceState},
};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use toolgate_core::{Timestamp, contained_sync};

use crate::{
    AttributeValue, Attributes, BadOption, Delivery, OtlpSettings, SinkError, SpanId, SpanSink,
    TelemetryCounters, ToolSpan, TraceId,
};

/// How many calls may wait for the collector; further ones are dropped.
const MOST_WAITING: usize = 2_048;
/// How many calls are sent at once.
const MOST_AT_ONCE: usize = 128;
/// How long the first call of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);

/// Sends spans to a collector. Dropping it lets the thread send what is left, without waiting for that.
///
/// The queue is our own and not the SDK's batch processor: that one does not tell how many spans it dropped.
///
/// ```no_run
/// use toolgate_layers::{OtlpSettings, OtlpSpans, Telemetry, TelemetryCounters};
/// let counters = TelemetryCounters::default();
/// let telemetry = Telemetry::to(OtlpSpans::start(OtlpSettings::default(), counters.clone())?).counting(counters);
/// # Ok::<(), toolgate_layers::BadOption>(())
/// ```
#[derive(Debug)]
pub struct OtlpSpans(SyncSender<Message>);

#[derive(Debug)]
enum Message {
    Span(Arc<ToolSpan>),
    Flush(SyncSender<()>),
}

impl OtlpSpans {
    /// Starts the thread that sends. What becomes of spans is counted in `counters`.
    pub fn start(settings: OtlpSettings, counters: TelemetryCounters) -> Result<Self, BadOption> {
        settings.check()?;
        let (queue, messages) = sync_channel(MOST_WAITING);
        let (ready, started) = sync_channel(1);
        // The blocking client may neither be made nor used where async code runs.
        let work = move || match contained_sync(|| settings.exporter()) {
            Ok(Ok(exporter)) => {
                drop(ready.send(Ok(())));
                Worker {
                    exporter,
                    messages,
                    counters,
                }
                .run();
            }
            Ok(Err(error)) => drop(ready.send(Err(error))),
            Err(report) => drop(ready.send(Err(SinkError::new(report)))),
        };
        let bad = |error: &dyn fmt::Display| {
            BadOption::new("sink", format!("cannot be started: {error}"))
        };
        thread::Builder::new()
            .name("toolgate-otlp".into())
            .spawn(work)
            .map_err(|error| bad(&error))?;
        started
            .recv()
            .map_err(|error| bad(&error))?
            .map_err(|error| bad(&error))?;
        Ok(Self(queue))
    }
}

impl SpanSink for OtlpSpans {
    fn export(&self, span: &Arc<ToolSpan>) -> Result<Delivery, SinkError> {
        match self.0.try_send(Message::Span(span.clone())) {
            Ok(()) => Ok(Delivery::Queued),
            Err(TrySendError::Full(_)) => Err(SinkError::new(
                "too many spans are waiting for the collector",
            )),
            Err(TrySendError::Disconnected(_)) => Err(SinkError::new("the exporter has stopped")),
        }
    }

    fn flush(&self, bound: Duration) -> Result<(), SinkError> {
        let late = || SinkError::new("the collector did not take all spans in time");
        // A bound beyond what a clock can tell is none.
        let until = Instant::now().checked_add(bound);
        let (done, flushed) = sync_channel(1);
        let mut message = Message::Flush(done);
        // There is no `send` with a bound; a full queue moves on as soon as a batch is sent or given up.
        while let Err(back) = self.0.try_send(message) {
            message = match back {
                TrySendError::Full(message) if until.is_none_or(|until| Instant::now() < until) => {
                    message
                }
                TrySendError::Full(_) | TrySendError::Disconnected(_) => return Err(late()),
            };
            thread::sleep(Duration::from_millis(5));
        }
        let left = until.map_or(Duration::MAX, |until| {
            until.saturating_duration_since(Instant::now())
        });
        flushed.recv_timeout(left).map_err(|_| late())
    }
}

/// Takes spans from the queue and sends them, until nobody can put any in.
struct Worker {
    exporter: SpanExporter,
    messages: Receiver<Message>,
    counters: TelemetryCounters,
}

impl Worker {
    fn run(self) {
        while let Ok(first) = self.messages.recv() {
            let (spans, flushed) = self.gather(first);
            self.send(&spans);
            if let Some(flushed) = flushed {
                // Whoever waited may have given up.
                let _ = flushed.try_send(());
            }
        }
    }

    fn gather(&self, first: Message) -> (Vec<Arc<ToolSpan>>, Option<SyncSender<()>>) {
        let (mut spans, until) = (Vec::new(), Instant::now() + GATHER);
        let mut message = first;
        loop {
            match message {
                Message::Span(span) => spans.push(span),
                Message::Flush(done) => return (spans, Some(done)),
            }
            if spans.len() == MOST_AT_ONCE {
                return (spans, None);
            }
            message = match self
                .messages
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return (spans, None);
                }
            };
        }
    }

    fn send(&self, spans: &[Arc<ToolSpan>]) {
        if spans.is_empty() {
            return;
        }
        let batch = spans
            .iter()
            .flat_map(|span| span.flatten())
            .map(span_data)
            .collect();
        match contained_sync(|| futures::executor::block_on(self.exporter.export(batch))) {
            Ok(Ok(())) => self.counters.add_exported(spans.len()),
            Ok(Err(_)) | Err(_) => self.counters.add_dropped(spans.len()),
        }
    }
}

fn span_data(span: &ToolSpan) -> SpanData {
    let mut events = SpanEvents::default();
    events.events.extend(
        span.events
            .iter()
            .map(|event| Event::new(event.name, time(event.at), key_values(&event.attributes), 0)),
    );
    let mut links = SpanLinks::default();
    links.links.extend(
        span.links
            .iter()
            .map(|link| Link::with_context(context(link.trace_id, link.span_id))),
    );
    SpanData {
        span_context: context(span.trace_id, span.span_id),
        parent_span_id: span
            .parent_span_id
            .map_or(opentelemetry::trace::SpanId::INVALID, span_id),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: span.name.clone(),
        start_time: time(span.started_at),
        end_time: time(span.ended_at),
        attributes: key_values(&span.attributes),
        dropped_attributes_count: 0,
        events,
        links,
        status: span.error.clone().map_or(Status::Unset, Status::error),
        instrumentation_scope: InstrumentationScope::builder("toolgate")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    }
}

fn context(trace: TraceId, span: SpanId) -> SpanContext {
    let trace = opentelemetry::trace::TraceId::from_bytes(trace.to_bytes());
    SpanContext::new(
        trace,
        span_id(span),
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    )
}

fn span_id(span: SpanId) -> opentelemetry::trace::SpanId {
    opentelemetry::trace::SpanId::from_bytes(span.to_bytes())
}

fn key_values(attributes: &Attributes) -> Vec<KeyValue> {
    let value = |value: &AttributeValue| match value {
        AttributeValue::Text(text) => Value::String(text.clone().into()),
        AttributeValue::Number(number) => Value::I64(*number),
        AttributeValue::Flag(flag) => Value::Bool(*flag),
        AttributeValue::Digest(digest) => Value::String(digest.to_string().into()),
    };
    attributes
        .iter()
        .map(|(name, known)| KeyValue::new(name, value(known)))
        .collect()
}

fn time(at: Timestamp) -> SystemTime {
    let micros = u64::try_from(at.as_micros()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn one_may_wait_without_a_bound() {
        let (queue, messages) = sync_channel(1);
        let worker = thread::spawn(move || {
            while let Ok(message) = messages.recv() {
                if let Message::Flush(done) = message {
                    done.send(()).expect("somebody waits");
                }
            }
        });
        let spans = OtlpSpans(queue);
        assert!(spans.flush(Duration::MAX).is_ok());
        drop(spans);
        worker.join().expect("no panic");
        let (queue, messages) = sync_channel(1);
        drop(messages);
        assert!(
            OtlpSpans(queue).flush(Duration::MAX).is_err(),
            "nobody is left to wait for"
        );
    }

    #[test]
    fn addresses_and_headers_that_cannot_be_used_are_refused() {
        let refused = |settings: OtlpSettings| {
            OtlpSpans::start(settings, TelemetryCounters::default())
                .map(drop)
                .expect_err("refused")
                .key
        };
        for endpoint in ["", "localhost", "ftp://localhost", "unix:/x"] {
            let settings = OtlpSettings {
                endpoint: Some(endpoint.to_owned()),
                ..OtlpSettings::default()
            };
            assert_eq!(refused(settings), "endpoint", "{endpoint}");
        }
        let headers = BTreeMap::from([("a b".to_owned(), "c".to_owned())]);
        assert_eq!(
            refused(OtlpSettings {
                headers,
                ..OtlpSettings::default()
            }),
            "headers"
        );
    }
}
