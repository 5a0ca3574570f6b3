//! Where receipts go: into memory, to a function, or to one place and then to another.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use toolgate_core::Call;

use crate::Receipt;

/// Keeps receipts.
///
/// A sink that fails stops the run: before a call it keeps the call from running, after one it ends the run.
pub trait ReceiptSink: Send + Sync + 'static {
    /// Makes sure, as far as possible, that the receipt of this call can be written.
    fn prepare<'a>(&'a self, _call: &'a Call) -> BoxFuture<'a, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Writes the receipt of a call and says where it can be found, if there is such a place.
    fn write<'a>(
        &'a self,
        call: &'a Call,
        receipt: &'a Arc<Receipt>,
    ) -> BoxFuture<'a, Result<Option<String>, SinkError>>;
}

/// A sink could not do its work; the words are for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(String);

impl SinkError {
    /// Says what went wrong.
    pub fn new(detail: impl Into<String>) -> Self {
        Self(detail.into())
    }
}

/// A sink that is shared, as a part for a configured layer.
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

/// Keeps the newest receipts in memory. Cloning shares them.
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
    /// Keeps at most `most` receipts; the oldest go first.
    pub fn bounded(most: usize) -> Self {
        Self {
            kept: Arc::default(),
            most,
        }
    }

    /// What is kept, oldest first.
    pub fn receipts(&self) -> Vec<Arc<Receipt>> {
        self.kept().iter().cloned().collect()
    }

    // Pushing and popping leave the queue whole.
    fn kept(&self) -> MutexGuard<'_, VecDeque<Arc<Receipt>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryReceipts {
    fn default() -> Self {
        Self::bounded(10_000)
    }
}

impl ReceiptSink for MemoryReceipts {
    fn write<'a>(
        &'a self,
        _: &'a Call,
        receipt: &'a Arc<Receipt>,
    ) -> BoxFuture<'a, Result<Option<String>, SinkError>> {
        let mut kept = self.kept();
        kept.push_back(receipt.clone());
        while kept.len() > self.most {
            kept.pop_front();
        }
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Hands receipts to an async function. See [`receipt_fn`].
#[derive(Debug, Clone)]
pub struct ReceiptFn<F>(F);

/// A sink from an async function, such as one that mirrors receipts to a host.
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

/// Writes to one sink first, then mirrors the same receipt to another one.
///
/// Both have to succeed: a mirror that is lost counts as a receipt that is lost, and stops the run. The mirror is
/// told where the first sink keeps the record.
#[derive(Debug, Clone)]
pub struct BothReceipts {
    first: SharedReceiptSink,
    second: SharedReceiptSink,
}

impl BothReceipts {
    /// Writes to `first`, then to `second`.
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
    async fn both_writes_the_first_sink_first_and_tells_the_mirror_where() {
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
        assert_eq!(notes.metadata["receipt_uri"], "file:///r#L1");
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
    async fn memory_keeps_the_newest_receipts() {
        let kept = MemoryReceipts::bounded(2);
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
