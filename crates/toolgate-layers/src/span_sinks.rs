//! Where spans go: to the terminal, to a function, to several places at once.

use std::{
    fmt,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use toolgate_core::contained_sync;

use crate::{SinkError, ToolSpan};

/// Takes spans. What it does with them never changes what comes of a call.
pub trait SpanSink: Send + Sync + 'static {
    /// Takes one span without waiting for anything.
    fn export(&self, span: &Arc<ToolSpan>) -> Result<Delivery, SinkError>;

    /// Waits until what was taken is delivered or given up, but no longer than `bound`. It blocks the thread.
    fn flush(&self, _bound: Duration) -> Result<(), SinkError> {
        Ok(())
    }
}

/// What became of a span that a sink took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It is where it should be.
    Done,
    /// It is on its way; the sink counts it when it arrives or is lost.
    Queued,
}

/// How many spans were delivered and how many were lost, over all sinks. Cloning shares the counts.
///
/// A span and what is inside it count as one; with two sinks each call counts twice.
#[derive(Debug, Clone, Default)]
pub struct TelemetryCounters(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl TelemetryCounters {
    /// How many were delivered.
    pub fn exported(&self) -> u64 {
        self.0.exported.load(Ordering::Relaxed)
    }

    /// How many were lost.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn add_exported(&self, more: usize) {
        self.0.exported.fetch_add(more as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_dropped(&self, more: usize) {
        self.0.dropped.fetch_add(more as u64, Ordering::Relaxed);
    }
}

/// A sink that is shared, as a part for a configured layer.
#[derive(Clone)]
pub struct SharedSpanSink(Arc<dyn SpanSink>);

impl SharedSpanSink {
    /// Shares a sink.
    pub fn new(sink: impl SpanSink) -> Self {
        Self(Arc::new(sink))
    }
}

impl SpanSink for SharedSpanSink {
    fn export(&self, span: &Arc<ToolSpan>) -> Result<Delivery, SinkError> {
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

/// Several sinks and what became of the spans they were given. Cloning shares them.
///
/// A configured layer leaves this among the parts, so that a program can wait for the last spans before it ends.
#[derive(Debug, Clone, Default)]
pub struct SpanSinks {
    sinks: Arc<[SharedSpanSink]>,
    counters: TelemetryCounters,
}

impl SpanSinks {
    pub(crate) fn new(sinks: Vec<SharedSpanSink>, counters: TelemetryCounters) -> Self {
        Self {
            sinks: sinks.into(),
            counters,
        }
    }

    pub(crate) fn and(&self, sink: SharedSpanSink) -> Self {
        let sinks = self.sinks.iter().cloned().chain([sink]).collect();
        Self {
            sinks,
            counters: self.counters.clone(),
        }
    }

    pub(crate) fn counting(self, counters: TelemetryCounters) -> Self {
        Self { counters, ..self }
    }

    /// Whether spans go nowhere.
    pub fn is_empty(&self) -> bool {
        self.sinks.is_empty()
    }

    /// How many spans were delivered and lost.
    pub fn counters(&self) -> &TelemetryCounters {
        &self.counters
    }

    /// Gives a span to every sink. One that fails or panics keeps the others from nothing.
    pub(crate) fn export(&self, span: &Arc<ToolSpan>) {
        for sink in &*self.sinks {
            match contained_sync(|| sink.export(span)) {
                Ok(Ok(Delivery::Done)) => self.counters.add_exported(1),
                Ok(Ok(Delivery::Queued)) => {}
                Ok(Err(_)) | Err(_) => self.counters.add_dropped(1),
            }
        }
    }

    /// Waits until every sink has delivered or given up what it took, `bound` for each. It blocks the thread.
    pub fn flush(&self, bound: Duration) -> Result<(), SinkError> {
        let flush =
            |sink: &SharedSpanSink| contained_sync(|| sink.flush(bound)).map_err(SinkError::new)?;
        let results: Vec<_> = self.sinks.iter().map(flush).collect();
        results.into_iter().collect()
    }
}

/// Writes each span as one JSON line to the standard error stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct StderrSpans;

impl SpanSink for StderrSpans {
    fn export(&self, span: &Arc<ToolSpan>) -> Result<Delivery, SinkError> {
        let failed = |error: &dyn fmt::Display| SinkError::new(error.to_string());
        let mut line = serde_json::to_vec(&**span).map_err(|error| failed(&error))?;
        line.push(b'\n');
        std::io::stderr()
            .lock()
            .write_all(&line)
            .map_err(|error| failed(&error))?;
        Ok(Delivery::Done)
    }
}

/// Hands spans to a function. See [`span_fn`].
#[derive(Debug, Clone)]
pub struct SpanFn<F>(F);

/// A sink from a function, which must not wait for anything.
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
    fn export(&self, span: &Arc<ToolSpan>) -> Result<Delivery, SinkError> {
        (self.0)(span).map(|()| Delivery::Done)
    }
}
