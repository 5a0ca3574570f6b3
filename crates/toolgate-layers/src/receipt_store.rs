//! Seals receipts into a ledger of the store, in the same write as the outcome they are about.

use std::sync::Arc;

use futures::future::BoxFuture;
use toolgate_core::{
    Call, CallId, InvalidLedgerName, LedgerDraft, LedgerName, RecordKey, SessionId, StoreError,
    canonical_json,
};

use crate::{Receipt, ReceiptSink, SinkError};

/// What is replaced by the id of the session in the name of a ledger.
const SESSION: &str = "{session}";

/// Seals receipts into a ledger: a chain in which each names the one before it. See [`Ledger`](crate::Ledger).
///
/// Under a runtime the receipt is handed over with the outcome and both become durable in one write: there is no outcome
/// without a receipt, no receipt without an outcome, and exactly one for each invocation. Where nobody keeps outcomes, the
/// receipt is written by itself. Before a call it is made sure that the journal has not failed or, where there is none,
/// that the store answers.
///
/// The receipt is kept as canonical JSON, so that its hash can be computed again by anybody.
///
/// ```
/// use toolgate_layers::{Ledger, Receipts};
/// use toolgate_testkit::{call, echo_under};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let call = call("echo");
/// let outcome = echo_under(Receipts::to_store()).run(call.clone()).await;
/// let uri = &outcome.settled().unwrap().notes.fields().unwrap().metadata["receipt_uri"];
/// assert_eq!(*uri, format!("toolgate:receipt/main/{}", call.id));
/// let ledger = Ledger::main(call.env().store().clone());
/// assert_eq!(ledger.show(call.id).await.unwrap().unwrap().receipt.tool_name, "echo");
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct StoreReceipts {
    ledger: Which,
}

#[derive(Debug, Clone)]
enum Which {
    One(LedgerName),
    PerSession(Arc<str>),
}

impl StoreReceipts {
    /// Seals into the ledger of this name. `{session}` in it is replaced by the id of the session, so that each has a
    /// ledger of its own.
    pub fn named(ledger: &str) -> Result<Self, InvalidLedgerName> {
        let nil: SessionId = format!("{:032x}", 0)
            .parse()
            .map_err(|_| InvalidLedgerName(ledger.to_owned()))?;
        let name: LedgerName = ledger.replace(SESSION, &nil.to_string()).parse()?;
        let per_session = ledger.contains(SESSION);
        Ok(Self {
            ledger: if per_session {
                Which::PerSession(ledger.into())
            } else {
                Which::One(name)
            },
        })
    }

    /// The ledger of a session.
    pub fn ledger(&self, session: SessionId) -> LedgerName {
        match &self.ledger {
            Which::One(name) => name.clone(),
            Which::PerSession(name) => name
                .replace(SESSION, &session.to_string())
                .parse()
                .expect("a name with one id has one with another"),
        }
    }
}

/// Seals into the ledger `main`.
impl Default for StoreReceipts {
    fn default() -> Self {
        Self {
            ledger: Which::One(LedgerName::main()),
        }
    }
}

impl ReceiptSink for StoreReceipts {
    fn prepare<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<(), SinkError>> {
        match call.env().probe().seals_with_outcome(call) {
            Ok(true) => Box::pin(std::future::ready(Ok(()))),
            Ok(false) => Box::pin(async move {
                // Any key will do: only whether there is an answer counts.
                let key = RecordKey::Layer(call.id, "receipts".into());
                call.env()
                    .store()
                    .record(&key)
                    .await
                    .map(drop)
                    .map_err(|error| failed(&error))
            }),
            Err(stopped) => Box::pin(std::future::ready(Err(SinkError::new(stopped.to_string())))),
        }
    }

    fn write<'a>(
        &'a self,
        call: &'a Call,
        receipt: &'a Arc<Receipt>,
    ) -> BoxFuture<'a, Result<Option<String>, SinkError>> {
        let ledger = self.ledger(receipt.session_id);
        let uri = receipt_uri(&ledger, receipt.invocation_id);
        let body = match serde_json::to_value(&**receipt) {
            Ok(value) => canonical_json(&value).into(),
            Err(error) => {
                return Box::pin(std::future::ready(Err(SinkError::new(error.to_string()))));
            }
        };
        match call
            .env()
            .probe()
            .seal_with_outcome(call, LedgerDraft { ledger, body })
        {
            Ok(()) => Box::pin(std::future::ready(Ok(Some(uri)))),
            Err(draft) => Box::pin(async move {
                call.env()
                    .store()
                    .seal(vec![draft])
                    .await
                    .map_err(|error| failed(&error))?;
                Ok(Some(uri))
            }),
        }
    }
}

/// Where the receipt of an invocation is kept, as it is written on outcomes.
pub(crate) fn receipt_uri(ledger: &LedgerName, invocation: CallId) -> String {
    format!("toolgate:receipt/{ledger}/{invocation}")
}

fn failed(error: &StoreError) -> SinkError {
    let cause = std::error::Error::source(error)
        .map(|cause| format!(": {cause}"))
        .unwrap_or_default();
    SinkError::new(format!("{error}{cause}"))
}

#[cfg(test)]
#[path = "receipt_store_tests.rs"]
mod tests;
