//! Sends spans to an OpenTelemetry collector over http/protobuf, from a separate thread.

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
use toolgate_core::{Timestamp, run_contained_sync};

use crate::{
    AttributeValue, BadOption, OtlpSettings, SinkError, SpanAttributes, SpanDelivery, SpanId,
    SpanSink, TelemetryCounters, ToolSpan, TraceId,
};

/// The number of calls that may wait for the collector; further ones are dropped.
const MAX_QUEUED_CALLS: usize = 2_048;
/// The number of calls in one batch.
const MAX_BATCH_CALLS: usize = 128;
/// The time that the first call of a batch waits for others.
const GATHER_TIME: Duration = Duration::from_secs(1);

/// A sink that sends spans to a collector. After a drop, the thread sends the remaining spans in
/// the background.
///
/// It does not use the SDK's batch processor, because that does not report how many spans it
/// dropped.
///
/// ```no_run
/// use toolgate_layers::{OtlpSettings, OtlpSpans, Telemetry, TelemetryCounters};
/// let counters = TelemetryCounters::default();
/// let telemetry = Telemetry::to(OtlpSpans::start(OtlpSettings::default(), counters.clone())?).counting(counters);
/// # Ok::<(), toolgate_layers::BadOption>(())
/// ```
#[derive(Debug)]
pub struct OtlpSpans(SyncSender<WorkerMessage>);

/// An entry of the queue.
#[derive(Debug)]
enum WorkerMessage {
    Span(Arc<ToolSpan>),
    Flush(SyncSender<()>),
}

impl OtlpSpans {
    /// Starts the sending thread. Delivered and lost spans are counted in `counters`.
    ///
    /// # Errors
    ///
    /// Rejects invalid settings, and fails if the exporter or the thread cannot be started.
    pub fn start(settings: OtlpSettings, counters: TelemetryCounters) -> Result<Self, BadOption> {
        settings.validate()?;
        let (queue, messages) = sync_channel(MAX_QUEUED_CALLS);
        let (ready, started) = sync_channel(1);
        // The blocking client panics if it is created or used on an async thread.
        let work = move || match run_contained_sync(|| settings.build_exporter()) {
            Ok(Ok(exporter)) => {
                drop(ready.send(Ok(())));
                OtlpWorker {
                    exporter,
                    messages,
                    counters,
                }
                .run_until_closed();
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
        // Waits for the thread, so that an invalid exporter is an error now and not a silent loss
        // of all spans.
        started
            .recv()
            .map_err(|error| bad(&error))?
            .map_err(|error| bad(&error))?;
        Ok(Self(queue))
    }
}

impl SpanSink for OtlpSpans {
    fn export(&self, span: &Arc<ToolSpan>) -> Result<SpanDelivery, SinkError> {
        // Never blocks: a slow collector may cost spans, but no call may wait for it.
        match self.0.try_send(WorkerMessage::Span(span.clone())) {
            Ok(()) => Ok(SpanDelivery::Queued),
            Err(TrySendError::Full(_)) => Err(SinkError::new(
                "too many spans are waiting for the collector",
            )),
            Err(TrySendError::Disconnected(_)) => Err(SinkError::new("the exporter has stopped")),
        }
    }

    fn flush(&self, bound: Duration) -> Result<(), SinkError> {
        let late = || SinkError::new("the collector did not accept all spans in time");
        // An overflow means no limit.
        let until = Instant::now().checked_add(bound);
        let (done, flushed) = sync_channel(1);
        let mut message = WorkerMessage::Flush(done);
        // It polls, because there is no `send` with a timeout; a full queue drains when a batch is
        // sent or dropped.
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

/// The sending thread. It ends when the last sender is dropped.
struct OtlpWorker {
    exporter: SpanExporter,
    messages: Receiver<WorkerMessage>,
    counters: TelemetryCounters,
}

impl OtlpWorker {
    /// Sends batches until the queue is closed.
    fn run_until_closed(self) {
        while let Ok(first) = self.messages.recv() {
            let (spans, flushed) = self.gather_batch(first);
            self.send_batch(&spans);
            if let Some(flushed) = flushed {
                // The waiting caller may have timed out.
                let _ = flushed.try_send(());
            }
        }
    }

    /// Collects a batch: until it is full, its time is over, or a flush is requested.
    fn gather_batch(&self, first: WorkerMessage) -> (Vec<Arc<ToolSpan>>, Option<SyncSender<()>>) {
        let mut spans = Vec::new();
        let until = Instant::now() + GATHER_TIME;
        let mut message = first;
        loop {
            match message {
                WorkerMessage::Span(span) => spans.push(span),
                WorkerMessage::Flush(done) => return (spans, Some(done)),
            }
            if spans.len() == MAX_BATCH_CALLS {
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

    /// Sends a batch and counts it as delivered or lost.
    fn send_batch(&self, spans: &[Arc<ToolSpan>]) {
        if spans.is_empty() {
            return;
        }
        let batch = spans
            .iter()
            .flat_map(|span| span.flatten())
            .map(span_data)
            .collect();
        match run_contained_sync(|| futures::executor::block_on(self.exporter.export(batch))) {
            Ok(Ok(())) => self.counters.add_exported(spans.len()),
            Ok(Err(_)) | Err(_) => self.counters.add_dropped(spans.len()),
        }
    }
}

/// Converts a span for the SDK.
fn span_data(span: &ToolSpan) -> SpanData {
    let mut events = SpanEvents::default();
    events.events.extend(span.events.iter().map(|event| {
        Event::new(
            event.name,
            system_time(event.at),
            key_values(&event.attributes),
            0,
        )
    }));
    let mut links = SpanLinks::default();
    links.links.extend(
        span.links
            .iter()
            .map(|link| Link::with_context(sdk_span_context(link.trace_id, link.span_id))),
    );
    SpanData {
        span_context: sdk_span_context(span.trace_id, span.span_id),
        parent_span_id: span
            .parent_span_id
            .map_or(opentelemetry::trace::SpanId::INVALID, sdk_span_id),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: span.name.clone(),
        start_time: system_time(span.started_at),
        end_time: system_time(span.ended_at),
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

/// Converts the ids of a span for the SDK.
fn sdk_span_context(trace: TraceId, span: SpanId) -> SpanContext {
    let trace = opentelemetry::trace::TraceId::from_bytes(trace.to_bytes());
    SpanContext::new(
        trace,
        sdk_span_id(span),
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    )
}

/// Converts a span id for the SDK.
fn sdk_span_id(span: SpanId) -> opentelemetry::trace::SpanId {
    opentelemetry::trace::SpanId::from_bytes(span.to_bytes())
}

/// Converts attributes for the SDK.
fn key_values(attributes: &SpanAttributes) -> Vec<KeyValue> {
    let value = |value: &AttributeValue| match value {
        AttributeValue::Text(text) => Value::String(text.clone().into()),
        AttributeValue::Number(number) => Value::I64(*number),
        AttributeValue::Flag(flag) => Value::Bool(*flag),
        AttributeValue::Digest(digest) => Value::String(digest.to_string().into()),
    };
    attributes
        .iter()
        .map(|(name, known)| KeyValue::new(name.clone(), value(known)))
        .collect()
}

/// Converts a timestamp for the SDK.
fn system_time(at: Timestamp) -> SystemTime {
    let micros = u64::try_from(at.as_micros()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn flush_accepts_an_unlimited_wait() {
        let (queue, messages) = sync_channel(1);
        let worker = thread::spawn(move || {
            while let Ok(message) = messages.recv() {
                if let WorkerMessage::Flush(done) = message {
                    done.send(()).expect("the caller waits");
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
            "the worker has ended"
        );
    }

    #[test]
    fn invalid_addresses_and_headers_are_rejected() {
        let refused = |settings: OtlpSettings| {
            OtlpSpans::start(settings, TelemetryCounters::default())
                .map(drop)
                .expect_err("rejected")
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
