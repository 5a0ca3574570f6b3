//! The rules of [`StoreReceipts`].

use std::sync::Mutex;

use serde_json::json;
use toolgate_core::{
    CallEnv, CallSeed, LogLevel, MemoryStore, Outcome, Probe, Progress, SealedEntry, Stack,
    StartPermit, Status, StopReason, StoreHandle, canonical_json,
};
use toolgate_testkit::{FakeExecutor, FaultyStore, StoreCall, StoreFault, TestClock, call, seed};

use super::*;
use crate::{
    Configurable, MemoryReceipts, PathBase, Receipts, ReceiptsOptions, Resources, SharedReceiptSink,
};

/// Accepts entries as a runtime does, or has failed.
#[derive(Default)]
struct FakeJournal {
    taken: Mutex<Vec<LedgerDraft>>,
    failed: bool,
}

impl Probe for FakeJournal {
    fn before_start(&self, _: &Call, _: bool) -> StartPermit {
        StartPermit::Now(Ok(()))
    }
    fn report_progress(&self, _: &Call, _: Progress) {}
    fn write_log(&self, _: &Call, _: LogLevel, _: &str) {}
    fn can_seal_with_outcome(&self, _: &Call) -> Result<bool, StopReason> {
        if self.failed {
            Err(StopReason::NotRecorded("disk full".into()))
        } else {
            Ok(true)
        }
    }
    fn seal_with_outcome(&self, _: &Call, entry: LedgerDraft) -> Result<(), LedgerDraft> {
        self.taken.lock().expect("whole").push(entry);
        Ok(())
    }
}

fn store_call(store: StoreHandle, probe: Arc<dyn Probe>) -> Call {
    let env = CallEnv::new(Arc::new(TestClock::new()), store, probe);
    Call::new(CallSeed {
        env,
        ..seed("t", json!({ "n": 1.5 }))
    })
}

fn uri_of(outcome: &Outcome) -> String {
    outcome
        .settled()
        .and_then(|settled| settled.notes.fields())
        .expect("notes")
        .receipt_location()
        .expect("a location")
        .to_owned()
}

async fn main_entries(store: &StoreHandle) -> Vec<SealedEntry> {
    store
        .entries(&LedgerName::main(), 0, 10)
        .await
        .expect("reads")
}

#[tokio::test]
async fn the_receipt_is_written_together_with_the_outcome() {
    let journal = Arc::new(FakeJournal::default());
    let store = FaultyStore::new(MemoryStore::new(), |_, _| StoreFault::Pass);
    let call = store_call(StoreHandle::new(store.clone()), journal.clone());
    let outcome = toolgate_testkit::echo_under(Receipts::to_store())
        .run(call.clone())
        .await;
    assert_eq!(
        uri_of(&outcome),
        format!("toolgate:receipt/main/{}", call.id)
    );
    assert_eq!((store.write_count(), store.read_count()), (0, 0));
    let taken = journal.taken.lock().expect("whole");
    assert_eq!((taken.len(), taken[0].ledger.as_str()), (1, "main"));
    let receipt: Receipt = serde_json::from_str(&taken[0].body).expect("a receipt");
    assert_eq!(
        (receipt.invocation_id, receipt.status),
        (call.id, Status::Ok)
    );
    let value = serde_json::from_str(&taken[0].body).expect("JSON");
    assert_eq!(
        canonical_json(&value),
        *taken[0].body,
        "written in canonical form"
    );
}

#[tokio::test]
async fn without_a_journal_the_receipt_is_sealed_by_itself() {
    let call = call("t");
    let stack = toolgate_testkit::echo_under(Receipts::to_store());
    stack.run(call.clone()).await;
    stack.run(call.clone()).await;
    let entries = main_entries(call.env().store()).await;
    assert_eq!(
        entries
            .iter()
            .map(|entry| entry.counter)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert!(entries[1].follows(&entries[0].head()));
}

#[tokio::test]
async fn nothing_runs_while_the_journal_has_failed_or_the_store_does_not_respond() {
    let down = |_, _| StoreFault::Fail(StoreError::Backend("disk full".into()));
    let broken = StoreHandle::new(FaultyStore::new(MemoryStore::new(), down));
    let failed = Arc::new(FakeJournal {
        failed: true,
        ..FakeJournal::default()
    });
    for call in [
        store_call(StoreHandle::new(MemoryStore::new()), failed),
        store_call(broken, Arc::new(toolgate_core::NoProbe)),
    ] {
        let executor = FakeExecutor::new();
        let stack = Stack::over(executor.clone())
            .layer(Receipts::to_store())
            .build()
            .expect("in order");
        let outcome = stack.run(call).await;
        assert_eq!(outcome.status(), Some(Status::ExecutorError));
        let detail = outcome
            .settled()
            .and_then(|settled| settled.error.clone()?.operator)
            .expect("says why");
        assert!(detail.contains("disk full"), "{detail}");
        assert!(executor.seen().is_empty());
    }
}

#[tokio::test]
async fn a_receipt_that_cannot_be_sealed_afterwards_stops_the_run() {
    let full = |called, _| match called {
        StoreCall::SealEntries => StoreFault::Fail(StoreError::Backend("disk full".into())),
        _ => StoreFault::Pass,
    };
    let store = StoreHandle::new(FaultyStore::new(MemoryStore::new(), full));
    let stack = toolgate_testkit::echo_under(Receipts::to_store());
    let call = store_call(store, Arc::new(toolgate_core::NoProbe));
    assert_eq!(
        stack.run(call.clone()).await.status(),
        Some(Status::LayerException)
    );
    assert_eq!(stack.run(call).await.status(), Some(Status::ExecutorError));
}

#[tokio::test]
async fn each_session_can_have_its_own_ledger() {
    let sink = StoreReceipts::for_ledger("sessions/{session}").expect("a name");
    let call = call("t");
    toolgate_testkit::echo_under(Receipts::to(sink))
        .run(call.clone())
        .await;
    let heads = call.env().store().ledgers().await.expect("reads");
    assert_eq!(
        heads[0].ledger.as_str(),
        format!("sessions/{}", call.turn().session)
    );
    for bad in ["", "a b", "{session} "] {
        assert!(StoreReceipts::for_ledger(bad).is_err(), "{bad:?}");
    }
}

#[tokio::test]
async fn with_both_each_copy_has_a_uri_of_its_own_and_the_host_gets_that_of_the_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let kept = MemoryReceipts::default();
    let parts = Resources::new()
        .with(PathBase::new(dir.path()))
        .with(SharedReceiptSink::new(kept.clone()));
    let options: ReceiptsOptions =
        serde_json::from_value(json!({ "sink": "both" })).expect("options");
    let call = call("t");
    toolgate_testkit::echo_under(Receipts::configure(options, &parts).expect("fine"))
        .run(call.clone())
        .await;
    let uri = format!("toolgate:receipt/main/{}", call.id);
    assert_eq!(kept.receipts()[0].receipt_uri.as_ref(), Some(&uri));
    let ledger = crate::Ledger::main(call.env().store().clone());
    let page = ledger.list_receipts(&crate::ReceiptFilter::default()).await;
    let sealed = &page.expect("reads").receipts[0];
    assert_eq!(sealed.uri, uri, "the entry of the ledger");
    let file = dir
        .path()
        .join(".toolgate/receipts")
        .join(format!("{}.jsonl", call.turn().session));
    let line = std::fs::read_to_string(&file).expect("written");
    let mirrored: Receipt = serde_json::from_str(&line).expect("a receipt");
    let own = format!("file://{}#L1", file.display());
    assert_eq!(mirrored.receipt_uri, Some(own), "the line names itself");
    assert_eq!(mirrored.receipt_id(), sealed.receipt.receipt_id());
}
