//! Sinks for receipts: memory, a function, or two sinks in order.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use toolgate_core::Call;

use crate::Receipt;

/// A destination for receipts.
///
/// A failing sink stops the run: before a call, the call does not run; after a call, the run ends.
pub trait ReceiptSink: Send + Sync + 'static {
    /// Checks, as far as possible, that the receipt of this call can be written.
    fn prepare<'a>(&'a self, _call: &'a Call) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Writes the receipt of a call and returns its URI, if it has one.
    fn write<'a>(
        &'a self,
        call: &'a Call,
        receipt: &'a Arc<Receipt>,
    ) -> BoxFuture<'a, Result<Option<String>, SinkError>>;
}

/// The error of a sink, with a text for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(String);

impl SinkError {
    /// Creates an error with details for the operator.
    pub fn new(detail: impl Into<String>) -> Self {
        Self(detail.into())
    }
}

/// A shared sink, as a resource for a configured layer.
#[derive(Clone)]
pub struct SharedReceiptSink(Arc<dyn ReceiptSink>);

impl SharedReceiptSink {
    /// Shares a sink.
    pub fn new(sink: impl ReceiptSink) -> Self {
        Self(Arc::new(sink))
    }
}

impl ReceiptSink for SharedReceiptSink {
    fn prepare<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<(), SinkError>> {
        self.0.prepare(call)
    }
    fn write<'a>(
        &'a self,
        call: &'a Call,
        receipt: &'a Arc<Receipt>,
    ) -> BoxFuture<'a, Result<Option<String>, SinkError>> {
        self.0.write(call, receipt)
    }
}

impl fmt::Debug for SharedReceiptSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedReceiptSink")
    }
}

/// A sink that stores the newest receipts in memory. Clones share them.
///
/// ```
/// use toolgate_layers::{MemoryReceipts, Receipts};
/// use toolgate_testkit::{call, echo_under};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let kept = MemoryReceipts::default();
/// echo_under(Receipts::to(kept.clone())).run(call("echo")).await;
/// assert_eq!(kept.receipts()[0].tool_name, "echo");
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct MemoryReceipts {
    kept: Arc<Mutex<VecDeque<Arc<Receipt>>>>,
    most: usize,
}

impl MemoryReceipts {
    /// Creates a sink for at most `most` receipts; the oldest are dropped first.
    pub fn with_limit(most: usize) -> Self {
        Self {
            kept: Arc::default(),
            most,
        }
    }

    /// Returns the stored receipts, oldest first.
    pub fn receipts(&self) -> Vec<Arc<Receipt>> {
        self.lock_receipts().iter().cloned().collect()
    }

    // A poisoned lock is usable: pushing and popping never leave the queue half-changed.
    fn lock_receipts(&self) -> MutexGuard<'_, VecDeque<Arc<Receipt>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryReceipts {
    fn default() -> Self {
        Self::with_limit(10_000)
    }
}

impl ReceiptSink for MemoryReceipts {
    fn write<'a>(
        &'a self,
        _: &'a Call,
        receipt: &'a Arc<Receipt>,
    ) -> BoxFuture<'a, Result<Option<String>, SinkError>> {
        let mut kept = self.lock_receipts();
        kept.push_back(receipt.clone());
        while kept.len() > self.most {
            kept.pop_front();
        }
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// A sink that calls an async function. See [`receipt_fn`].
#[derive(Debug, Clone)]
pub struct ReceiptFn<F>(F);

/// Creates a sink from an async function, such as one that mirrors receipts to a host.
///
/// ```
/// use std::sync::Arc;
/// use toolgate_layers::{Receipt, Receipts, receipt_fn};
/// let receipts = Receipts::to(receipt_fn(async |receipt: Arc<Receipt>| {
///     println!("{} {}", receipt.tool_name, receipt.status);
///     Ok(None)
/// }));
/// ```
pub fn receipt_fn<F, Fut>(write: F) -> ReceiptFn<F>
where
    F: Fn(Arc<Receipt>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<String>, SinkError>> + Send + 'static,
{
    ReceiptFn(write)
}

impl<F, Fut> ReceiptSink for ReceiptFn<F>
where
    F: Fn(Arc<Receipt>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<String>, SinkError>> + Send + 'static,
{
    fn write<'a>(
        &'a self,
        _: &'a Call,
        receipt: &'a Arc<Receipt>,
    ) -> BoxFuture<'a, Result<Option<String>, SinkError>> {
        Box::pin((self.0)(receipt.clone()))
    }
}

/// A sink that writes to one sink first and then mirrors the receipt to another.
///
/// Both have to succeed: a failed mirror counts as a lost receipt and stops the run. A mirror that has
/// no locations of its own gets the URI of the record in the first sink; a file has its own.
#[derive(Debug, Clone)]
pub struct BothReceipts {
    first: SharedReceiptSink,
    second: SharedReceiptSink,
}

impl BothReceipts {
    /// Creates a sink that writes to `first`, then to `second`.
    pub fn new(first: impl ReceiptSink, second: impl ReceiptSink) -> Self {
        Self {
            first: SharedReceiptSink::new(first),
            second: SharedReceiptSink::new(second),
        }
    }
}

impl ReceiptSink for BothReceipts {
    fn prepare<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(async move {
            self.first.prepare(call).await?;
            self.second.prepare(call).await
        })
    }

    fn write<'a>(
        &'a self,
        call: &'a Call,
        receipt: &'a Arc<Receipt>,
    ) -> BoxFuture<'a, Result<Option<String>, SinkError>> {
        Box::pin(async move {
            // A failure of the first sink ends here: a mirror must not have a receipt that the
            // record lacks.
            let Some(uri) = self.first.write(call, receipt).await? else {
                return self.second.write(call, receipt).await;
            };
            let copy = Receipt {
                receipt_uri: Some(uri.clone()),
                ..Receipt::clone(receipt)
            };
            self.second.write(call, &Arc::new(copy)).await?;
            Ok(Some(uri))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Receipts;
    use toolgate_core::Status;
    use toolgate_testkit::{call, echo_under};

    #[tokio::test]
    async fn the_first_sink_is_written_first_and_the_mirror_gets_its_uri() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let noting = |name: &'static str, uri: Option<&'static str>| {
            let order = order.clone();
            receipt_fn(move |receipt: Arc<Receipt>| {
                order
                    .lock()
                    .expect("whole")
                    .push((name, receipt.receipt_uri.clone()));
                std::future::ready(Ok(uri.map(str::to_owned)))
            })
        };
        let both = BothReceipts::new(noting("local", Some("file:///r#L1")), noting("host", None));
        let outcome = echo_under(Receipts::to(both)).run(call("t")).await;
        assert_eq!(
            *order.lock().expect("whole"),
            [("local", None), ("host", Some("file:///r#L1".to_owned()))]
        );
        let notes = outcome
            .settled()
            .expect("settled")
            .notes
            .fields()
            .expect("notes")
            .clone();
        assert_eq!(notes.receipt_location(), Some("file:///r#L1"));
        for uri in [None, Some("file:///r#L2")] {
            let failing = receipt_fn(async |_| Err(SinkError::new("disk full")));
            let lost = BothReceipts::new(noting("local", uri), failing);
            let outcome = echo_under(Receipts::to(lost)).run(call("t")).await;
            assert_eq!(
                outcome.status(),
                Some(Status::LayerException),
                "a lost mirror is a lost receipt"
            );
        }
    }

    #[tokio::test]
    async fn memory_stores_the_newest_receipts() {
        let kept = MemoryReceipts::with_limit(2);
        let stack = echo_under(Receipts::to(kept.clone()));
        for tool in ["a", "b", "c"] {
            stack.run(call(tool)).await;
        }
        let names: Vec<_> = kept
            .receipts()
            .iter()
            .map(|receipt| receipt.tool_name.clone())
            .collect();
        assert_eq!(names, ["b", "c"]);
    }
}
