//! Sinks for spans: the standard error stream, a function, or several sinks at once.

use std::{
    fmt,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use toolgate_core::run_contained_sync;

use crate::{SinkError, ToolSpan};

/// A destination for spans. It can never change the outcome of a call.
pub trait SpanSink: Send + Sync + 'static {
    /// Accepts one span. It must not block.
    ///
    /// # Errors
    ///
    /// Fails if the span is lost; the caller counts that.
    fn export(&self, span: &Arc<ToolSpan>) -> Result<SpanDelivery, SinkError>;

    /// Waits until accepted spans are delivered or dropped, but no longer than `bound`. It blocks
    /// the thread.
    ///
    /// # Errors
    ///
    /// Fails if spans are still pending at the end.
    fn flush(&self, _bound: Duration) -> Result<(), SinkError> {
        Ok(())
    }
}

/// The state of a span that a sink accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanDelivery {
    /// The span is delivered.
    Done,
    /// The span is queued; the sink counts it when it is delivered or lost.
    Queued,
}

/// The numbers of delivered and lost spans over all sinks. Clones share the counts.
///
/// A span and its children count as one; with two sinks, each call counts twice.
#[derive(Debug, Clone, Default)]
pub struct TelemetryCounters(Arc<SpanCounts>);

/// The shared counts.
#[derive(Debug, Default)]
struct SpanCounts {
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl TelemetryCounters {
    /// Returns the number of delivered spans.
    pub fn exported(&self) -> u64 {
        self.0.exported.load(Ordering::Relaxed)
    }

    /// Returns the number of lost spans.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Counts delivered spans.
    pub(crate) fn add_exported(&self, more: usize) {
        self.0.exported.fetch_add(more as u64, Ordering::Relaxed);
    }

    /// Counts lost spans.
    pub(crate) fn add_dropped(&self, more: usize) {
        self.0.dropped.fetch_add(more as u64, Ordering::Relaxed);
    }
}

/// A shared sink, as a resource for a configured layer.
#[derive(Clone)]
pub struct SharedSpanSink(Arc<dyn SpanSink>);

impl SharedSpanSink {
    /// Shares a sink.
    pub fn new(sink: impl SpanSink) -> Self {
        Self(Arc::new(sink))
    }
}

impl SpanSink for SharedSpanSink {
    fn export(&self, span: &Arc<ToolSpan>) -> Result<SpanDelivery, SinkError> {
        self.0.export(span)
    }
    fn flush(&self, bound: Duration) -> Result<(), SinkError> {
        self.0.flush(bound)
    }
}

impl fmt::Debug for SharedSpanSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSpanSink")
    }
}

/// Several sinks and their counters. Clones share them.
///
/// A configured layer adds this to the resources, so that a program can wait for the last spans
/// before it ends.
#[derive(Debug, Clone, Default)]
pub struct SpanSinks {
    sinks: Arc<[SharedSpanSink]>,
    counters: TelemetryCounters,
}

impl SpanSinks {
    /// Combines sinks that share one set of counters.
    pub(crate) fn new(sinks: Vec<SharedSpanSink>, counters: TelemetryCounters) -> Self {
        Self {
            sinks: sinks.into(),
            counters,
        }
    }

    /// Returns these sinks and another one.
    pub(crate) fn with_sink(&self, sink: SharedSpanSink) -> Self {
        let sinks = self.sinks.iter().cloned().chain([sink]).collect();
        Self {
            sinks,
            counters: self.counters.clone(),
        }
    }

    /// Replaces the counters.
    pub(crate) fn with_counters(self, counters: TelemetryCounters) -> Self {
        Self { counters, ..self }
    }

    /// Checks whether there are no sinks.
    pub fn is_empty(&self) -> bool {
        self.sinks.is_empty()
    }

    /// Returns the counts of delivered and lost spans.
    pub fn counters(&self) -> &TelemetryCounters {
        &self.counters
    }

    /// Sends a span to every sink. A sink that fails or panics does not affect the others.
    pub(crate) fn export(&self, span: &Arc<ToolSpan>) {
        for sink in &*self.sinks {
            match run_contained_sync(|| sink.export(span)) {
                Ok(Ok(SpanDelivery::Done)) => self.counters.add_exported(1),
                // The sink counts it later; counting here would count it twice.
                Ok(Ok(SpanDelivery::Queued)) => {}
                Ok(Err(_)) | Err(_) => self.counters.add_dropped(1),
            }
        }
    }

    /// Waits until every sink has delivered or dropped its spans, at most `bound` for each. It
    /// blocks the thread.
    ///
    /// # Errors
    ///
    /// Returns the first failure; all sinks are flushed before that.
    pub fn flush(&self, bound: Duration) -> Result<(), SinkError> {
        let flush = |sink: &SharedSpanSink| {
            run_contained_sync(|| sink.flush(bound)).map_err(SinkError::new)?
        };
        // Collected first: a failing sink must not keep the others from being flushed.
        let results: Vec<_> = self.sinks.iter().map(flush).collect();
        results.into_iter().collect()
    }
}

/// A sink that writes each span as one JSON line to the standard error stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct StderrSpans;

impl SpanSink for StderrSpans {
    fn export(&self, span: &Arc<ToolSpan>) -> Result<SpanDelivery, SinkError> {
        let failed = |error: &dyn fmt::Display| SinkError::new(error.to_string());
        let mut line = serde_json::to_vec(&**span).map_err(|error| failed(&error))?;
        line.push(b'\n');
        std::io::stderr()
            .lock()
            .write_all(&line)
            .map_err(|error| failed(&error))?;
        Ok(SpanDelivery::Done)
    }
}

/// A sink that calls a function. See [`span_fn`].
#[derive(Debug, Clone)]
pub struct SpanFn<F>(F);

/// Creates a sink from a function, which must not block.
///
/// ```
/// use std::sync::Arc;
/// use toolgate_layers::{Telemetry, ToolSpan, span_fn};
/// let telemetry = Telemetry::to(span_fn(|span: &Arc<ToolSpan>| {
///     println!("{} took {:?}", span.name, span.ended_at.since(span.started_at));
///     Ok(())
/// }));
/// ```
pub fn span_fn<F>(export: F) -> SpanFn<F>
where
    F: Fn(&Arc<ToolSpan>) -> Result<(), SinkError> + Send + Sync + 'static,
{
    SpanFn(export)
}

impl<F> SpanSink for SpanFn<F>
where
    F: Fn(&Arc<ToolSpan>) -> Result<(), SinkError> + Send + Sync + 'static,
{
    fn export(&self, span: &Arc<ToolSpan>) -> Result<SpanDelivery, SinkError> {
        (self.0)(span).map(|()| SpanDelivery::Done)
    }
}
