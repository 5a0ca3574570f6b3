//! Seals receipts into a ledger of the store, in the same write as the outcome.

use std::{fmt::Write as _, sync::Arc};

use futures::future::BoxFuture;
use toolgate_core::{
    Call, CallId, InvalidLedgerName, LedgerDraft, LedgerName, RecordKey, SessionId, StoreError,
    canonical_text, error_chain,
};

use crate::{Receipt, ReceiptSink, SinkError};

/// The placeholder for the session id in the name of a ledger.
const SESSION_PLACEHOLDER: &str = "{session}";

/// Seals receipts into a ledger: a chain in which each entry names the one before it. See
/// [`Ledger`](crate::Ledger).
///
/// Under a runtime, the receipt is passed on with the outcome and both become durable in one write:
/// there is no outcome without a receipt, no receipt without an outcome, and exactly one receipt
/// per invocation. Without a journal, the receipt is written by itself. Before a call, the sink
/// checks that the journal has not failed or, if there is none, that the store responds.
///
/// The receipt is stored as canonical JSON, so that any reader can recompute its hash.
///
/// ```
/// use toolgate_layers::{Ledger, Receipts};
/// use toolgate_testkit::{call, echo_under};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let call = call("echo");
/// let outcome = echo_under(Receipts::to_store()).run(call.clone()).await;
/// let notes = outcome.settled().unwrap().notes.fields().unwrap();
/// assert_eq!(notes.receipt_location().unwrap(), format!("toolgate:receipt/main/{}", call.id));
/// let ledger = Ledger::main(call.env().store().clone());
/// assert_eq!(ledger.find_receipt(call.id).await.unwrap().unwrap().receipt.tool_name, "echo");
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct StoreReceipts {
    ledger: LedgerChoice,
}

/// The ledger for a receipt.
#[derive(Debug, Clone)]
enum LedgerChoice {
    One(LedgerName),
    PerSession(Arc<str>),
}

impl StoreReceipts {
    /// Creates a sink for the ledger of this name. `{session}` in it is replaced by the id of the
    /// session, so that each session has its own ledger.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidLedgerName`] if no ledger can have this name.
    pub fn for_ledger(ledger: &str) -> Result<Self, InvalidLedgerName> {
        // Checked with any id, because all ids have the same form: the name must not turn out
        // invalid during a call.
        let nil: SessionId = format!("{:032x}", 0)
            .parse()
            .map_err(|_| InvalidLedgerName(ledger.to_owned()))?;
        let name: LedgerName = ledger
            .replace(SESSION_PLACEHOLDER, &nil.to_string())
            .parse()?;
        let per_session = ledger.contains(SESSION_PLACEHOLDER);
        Ok(Self {
            ledger: if per_session {
                LedgerChoice::PerSession(ledger.into())
            } else {
                LedgerChoice::One(name)
            },
        })
    }

    /// Returns the ledger for a session.
    pub fn ledger_for(&self, session: SessionId) -> LedgerName {
        match &self.ledger {
            LedgerChoice::One(name) => name.clone(),
            LedgerChoice::PerSession(name) => name
                .replace(SESSION_PLACEHOLDER, &session.to_string())
                .parse()
                .expect("the name was valid with another id of the same form"),
        }
    }
}

/// The default is the ledger `main`.
impl Default for StoreReceipts {
    fn default() -> Self {
        Self {
            ledger: LedgerChoice::One(LedgerName::main()),
        }
    }
}

impl ReceiptSink for StoreReceipts {
    fn prepare<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<(), SinkError>> {
        match call.env().probe().can_seal_with_outcome(call) {
            // The journal writes the entry with the outcome, so there is nothing to check in the
            // store.
            Ok(true) => Box::pin(std::future::ready(Ok(()))),
            Ok(false) => Box::pin(async move {
                // Any key works: only whether the store responds matters.
                let key = RecordKey::Layer(call.id, "receipts".into());
                call.env()
                    .store()
                    .load_record(&key)
                    .await
                    .map(drop)
                    .map_err(|error| store_failure(&error))
            }),
            Err(stopped) => Box::pin(std::future::ready(Err(SinkError::new(stopped.to_string())))),
        }
    }

    fn write<'a>(
        &'a self,
        call: &'a Call,
        receipt: &'a Arc<Receipt>,
    ) -> BoxFuture<'a, Result<Option<String>, SinkError>> {
        let ledger = self.ledger_for(receipt.session_id);
        let uri = receipt_uri(&ledger, receipt.invocation_id);
        let body = match canonical_text(&**receipt) {
            Ok(text) => text.into(),
            Err(error) => {
                return Box::pin(std::future::ready(Err(SinkError::new(error.to_string()))));
            }
        };
        // Under a journal the entry is sealed with the outcome: a crash in between cannot leave one
        // without the other.
        match call
            .env()
            .probe()
            .seal_with_outcome(call, LedgerDraft { ledger, body })
        {
            Ok(()) => Box::pin(std::future::ready(Ok(Some(uri)))),
            Err(draft) => Box::pin(async move {
                call.env()
                    .store()
                    .seal_entries(vec![draft])
                    .await
                    .map_err(|error| store_failure(&error))?;
                Ok(Some(uri))
            }),
        }
    }
}

/// Returns the URI of the receipt of an invocation, as outcomes have it.
pub(crate) fn receipt_uri(ledger: &LedgerName, invocation: CallId) -> String {
    const SCHEME: &str = "toolgate:receipt/";
    const ID_BYTES: usize = 36;
    let mut uri = String::with_capacity(SCHEME.len() + ledger.as_str().len() + 1 + ID_BYTES);
    write!(uri, "{SCHEME}{ledger}/{invocation}").expect("a text can be written to");
    uri
}

/// Converts a store error, with its cause, for the operator.
fn store_failure(error: &StoreError) -> SinkError {
    SinkError::new(error_chain(error))
}

#[cfg(test)]
mod tests;
