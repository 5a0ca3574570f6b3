//! Every change to a ledger, in a file or in a store, is detected, and the error names the first
//! bad record.

use std::{future::Future, ops::Range, sync::Arc};

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;
use toolgate_core::{
    AccountStore, Call, CallSeed, CatalogueStore, Checkpoint, EventStore, LedgerHead, LedgerKey,
    LedgerName, LedgerStore, LedgerVerification, MailboxStore, MemoryStore, RecordStore,
    SealedEntry, SearchStore, StoreHandle, Timestamp,
};
use toolgate_layers::{Ledger, LedgerError, ReceiptFilter, Receipts, verify_export};
use toolgate_testkit::{TestClock, echo_under, seed};

/// The number of receipts in the ledger under test.
const COUNT: u64 = 12;

fn key() -> LedgerKey {
    LedgerKey::from_bytes(&[9; 32])
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
        .block_on(work)
}

/// A ledger of receipts, its exported lines, and a checkpoint of its end that is stored elsewhere.
struct ExportedLedger {
    ledger: Ledger,
    entries: Vec<SealedEntry>,
    lines: Vec<Vec<u8>>,
    checkpoint: Checkpoint,
}

fn exported_ledger() -> &'static ExportedLedger {
    static WHOLE: std::sync::OnceLock<ExportedLedger> = std::sync::OnceLock::new();
    WHOLE.get_or_init(|| block_on(write_ledger(COUNT)))
}

async fn write_ledger(count: u64) -> ExportedLedger {
    let clock = TestClock::new();
    let store = StoreHandle::new(MemoryStore::new());
    let env = toolgate_core::CallEnv::new(
        Arc::new(clock),
        store.clone(),
        Arc::new(toolgate_core::NoProbe),
    );
    let stack = echo_under(Receipts::to_store());
    let ledger = Ledger::main(store.clone());
    for n in 1..=count {
        let id = format!("{n:032x}").parse().expect("an id");
        let arguments = json!({ "n": n, "text": "äöü \"quoted\" \u{1f600}" });
        stack
            .run(Call::new(CallSeed {
                id,
                env: env.clone(),
                ..seed("t", arguments)
            }))
            .await;
        if n == count / 2 {
            ledger
                .sign_checkpoint(&key(), Timestamp::EPOCH)
                .await
                .expect("signed");
        }
    }
    let checkpoint = ledger
        .sign_checkpoint(&key(), Timestamp::EPOCH)
        .await
        .expect("signed");
    let mut bytes = Vec::new();
    ledger
        .export(&mut bytes, &ReceiptFilter::default())
        .await
        .expect("exports");
    let lines = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let entries = store.entries(ledger.name(), 0, 100).await.expect("reads");
    ExportedLedger {
        ledger,
        entries,
        lines,
        checkpoint,
    }
}

/// A change to a list.
#[derive(Debug, Clone)]
enum ListTampering {
    Delete(usize),
    Duplicate(usize),
    Swap(usize, usize),
    Insert(usize, usize),
    Truncate(usize),
}

impl ListTampering {
    fn apply<T: Clone>(&self, list: &mut Vec<T>) {
        match *self {
            Self::Delete(at) => drop(list.remove(at)),
            Self::Duplicate(at) => list.insert(at, list[at].clone()),
            Self::Swap(a, b) => list.swap(a, b),
            Self::Insert(at, other) => list.insert(at, list[other].clone()),
            Self::Truncate(length) => list.truncate(length),
        }
    }
}

fn any_tampering(length: usize) -> impl Strategy<Value = ListTampering> {
    let at = 0..length;
    prop_oneof![
        at.clone().prop_map(ListTampering::Delete),
        at.clone().prop_map(ListTampering::Duplicate),
        (at.clone(), at.clone()).prop_map(|(a, b)| ListTampering::Swap(a, b)),
        (at.clone(), at.clone()).prop_map(|(at, other)| ListTampering::Insert(at, other)),
        at.prop_map(ListTampering::Truncate),
    ]
}

/// Returns the number of the first record that was moved or changed.
fn first_difference<T: PartialEq>(before: &[T], after: &[T]) -> Option<u64> {
    let same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    (same < before.len() || same < after.len()).then_some(same as u64 + 1)
}

fn verify_file(file: &[u8]) -> Result<u64, LedgerError> {
    let whole = exported_ledger();
    verify_export(
        file,
        std::slice::from_ref(&whole.checkpoint),
        Some(&key().to_verifier()),
    )
    .map(|all| all.chain.counter)
}

/// Returns the record that an error names; `None` if it names a line that is not a record.
fn named_record(found: Result<u64, LedgerError>) -> Option<u64> {
    match found.expect_err("it was tampered with") {
        LedgerError::Tampered(bad) => Some(bad.counter),
        LedgerError::Line { .. } => None,
        other => panic!("{other}"),
    }
}

/// A store whose ledger was tampered with.
struct TamperedStore {
    inner: MemoryStore,
    entries: Vec<SealedEntry>,
}

macro_rules! passes_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> impl Future<Output = Result<$out, toolgate_core::StoreError>> + Send {
            self.inner.$name($($arg),*)
        })*
    };
}

use toolgate_core as core;

impl EventStore for TamperedStore {
    passes_on! {
        append(session: core::SessionId, at: core::LogPosition, batch: core::WriteBatch) -> u64;
        events(session: core::SessionId, after: u64, limit: usize) -> Vec<Arc<core::Event>>;
        revision(session: core::SessionId) -> u64;
        acquire_lease(request: core::LeaseRequest) -> core::Lease;
        renew_lease(lease: &core::Lease, term: core::LeaseTerm) -> ();
        release_lease(lease: &core::Lease) -> ();
    }
}

impl RecordStore for TamperedStore {
    passes_on! {
        put_record_once(key: core::RecordKey, record: core::StoreRecord) -> Option<core::StoreRecord>;
        load_record(key: &core::RecordKey) -> Option<core::StoreRecord>;
        load_records(keys: &[core::RecordKey]) -> Vec<Option<core::StoreRecord>>;
        list_records(prefix: &str, after: Option<&str>, limit: usize) -> Vec<(Arc<str>, core::StoreRecord)>;
        records_named(names: &core::ErasureNames, after: Option<&str>, limit: usize) -> Vec<(Arc<str>, core::StoreRecord)>;
        messages(session: core::SessionId, before: u64, limit: usize) -> Vec<(u64, Arc<core::MessageRecord>)>;
        put_blob(bytes: Bytes) -> core::Digest;
        blob(digest: core::Digest, range: Range<u64>) -> Option<Bytes>;
    }
}

impl MailboxStore for TamperedStore {
    fn wait_for_post(
        &self,
        session: core::SessionId,
        after: u64,
    ) -> impl Future<Output = ()> + Send {
        self.inner.wait_for_post(session, after)
    }
    passes_on! {
        post_item(session: core::SessionId, post: core::MailboxItem, records: Vec<(core::RecordKey, core::StoreRecord)>) -> ();
        posts(session: core::SessionId, after: u64, limit: usize) -> Vec<(u64, core::MailboxItem)>;
    }
}

impl LedgerStore for TamperedStore {
    async fn entries(
        &self,
        _: &LedgerName,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SealedEntry>, toolgate_core::StoreError> {
        let from = usize::try_from(after)
            .expect("small")
            .min(self.entries.len());
        Ok(self.entries[from..].iter().take(limit).cloned().collect())
    }
    passes_on! {
        seal_entries(drafts: Vec<core::LedgerDraft>) -> Vec<LedgerHead>;
        ledgers() -> Vec<LedgerHead>;
    }
}

impl AccountStore for TamperedStore {
    passes_on! {
        reserve(charge: core::Charge) -> core::Charge;
        settle_charge(charge: core::Charge, actual: Vec<u64>) -> Vec<core::AccountMovement>;
        release_charge(charge: core::Charge) -> ();
        charges(filter: core::ChargeFilter) -> Vec<core::Charge>;
        account(account: &core::AccountKey) -> Option<core::AccountRow>;
        accounts(prefix: &str, after: Option<&core::AccountKey>, limit: usize) -> Vec<core::AccountRow>;
    }
}

impl CatalogueStore for TamperedStore {
    passes_on! {
        sessions(filter: core::SessionFilter) -> Vec<core::SessionRow>;
        turns(filter: core::TurnFilter) -> Vec<core::TurnRow>;
        approvals(filter: core::ApprovalFilter) -> Vec<core::ApprovalRow>;
        hide_session(session: core::SessionId, at: Option<Timestamp>) -> ();
        rename_session(session: core::SessionId, title: core::SessionTitle) -> ();
        erase_session(session: core::SessionId, now: Timestamp) -> core::ErasedSessions;
    }
}

impl SearchStore for TamperedStore {
    passes_on! {
        stale_sessions(limit: usize) -> Vec<core::StaleSession>;
        index_batch(batch: core::IndexBatch) -> bool;
        match_text(search: core::TextSearch) -> core::TextMatches;
        match_vectors(search: core::VectorSearch) -> core::VectorMatches;
        load_documents(ids: Vec<core::SearchDocumentId>) -> Vec<(core::SearchDocumentId, core::SearchDocument)>;
        unembedded_documents(embedder: core::EmbedderId, limit: usize) -> Vec<(core::SearchDocumentId, core::SearchDocument)>;
        put_vectors(embedder: core::EmbedderId, vectors: Vec<(core::SearchDocumentId, Vec<f32>)>) -> ();
        replaced_embedder(embedder: core::EmbedderId) -> Option<core::EmbedderId>;
        session_directories() -> Vec<Arc<str>>;
        search_counts(embedder: Option<core::EmbedderId>) -> core::SearchCounts;
        clear_index() -> ();
    }
}

impl core::MemoryRecordStore for TamperedStore {
    passes_on! {
        put_memory(draft: core::MemoryDraft) -> core::PutMemory;
        memories(filter: core::MemoryFilter) -> Vec<core::StoredMemory>;
        change_memory(id: core::MemoryId, change: core::MemoryChange) -> core::ChangedMemory;
        put_memory_vector(id: core::MemoryId, key: core::Digest, vector: core::MemoryVector) -> bool;
        mark_recalled(ids: Vec<core::MemoryId>, at: Timestamp) -> ();
        forget_memories(filter: core::MemoryFilter) -> core::ForgottenMemories;
    }
}

fn verify_in_store(entries: Vec<SealedEntry>) -> Result<u64, LedgerError> {
    let ledger = Ledger::main(StoreHandle::new(TamperedStore {
        inner: MemoryStore::new(),
        entries,
    }));
    let checkpoint = std::slice::from_ref(&exported_ledger().checkpoint);
    block_on(ledger.verify(checkpoint, Some(&key().to_verifier()))).map(|verified| verified.counter)
}

#[test]
fn an_unchanged_ledger_is_verified() {
    assert_eq!(
        verify_file(&exported_ledger().lines.concat()).expect("whole"),
        COUNT
    );
    assert_eq!(
        verify_in_store(exported_ledger().entries.clone()).expect("whole"),
        COUNT
    );
    let verifier = key().to_verifier();
    assert_eq!(
        block_on(exported_ledger().ledger.verify(&[], Some(&verifier)))
            .expect("whole")
            .signed,
        Some(COUNT)
    );
}

#[test]
fn every_changed_byte_of_a_file_is_detected() {
    // A short ledger: for each byte after the records there is a signature to verify.
    let bytes = block_on(write_ledger(1)).lines.concat();
    let verifier = key().to_verifier();
    assert!(verify_export(&*bytes, &[], Some(&verifier)).is_ok());
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(
            verify_export(&*changed, &[], Some(&verifier)).is_err(),
            "byte {at}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_changed_byte_of_a_record_in_a_file_names_the_record(
        record in 1..=COUNT, at in any::<proptest::sample::Index>(), byte: u8,
    ) {
        let mut lines = exported_ledger().lines.clone();
        let line = &mut lines[usize::try_from(record).expect("small")];
        let at = at.index(line.len());
        prop_assume!(line[at] != byte);
        line[at] = byte;
        prop_assert_eq!(named_record(verify_file(&lines.concat())), Some(record));
    }

    #[test]
    fn records_of_a_file_that_were_deleted_repeated_moved_or_inserted_are_named(tamper in any_tampering(1 + COUNT as usize)) {
        let (before, mut after) = (&exported_ledger().lines, exported_ledger().lines.clone());
        tamper.apply(&mut after);
        let Some(line) = first_difference(before, &after) else { return Ok(()) };
        // The first line is the header; records are counted after it.
        let expected = line.checked_sub(1).filter(|record| (1..=COUNT + 1).contains(record));
        prop_assert_eq!(named_record(verify_file(&after.concat())), expected);
    }

    #[test]
    fn lines_of_a_file_that_are_not_records_are_protected_too(tamper in any_tampering(COUNT as usize + 4)) {
        let mut after = exported_ledger().lines.clone();
        prop_assert_eq!(after.len() as u64, COUNT + 4, "header, records, two checkpoints, end");
        tamper.apply(&mut after);
        prop_assert_eq!(verify_file(&after.concat()).is_err(), after != exported_ledger().lines);
    }

    #[test]
    fn entries_of_a_store_that_were_deleted_repeated_moved_or_inserted_are_named(tamper in any_tampering(COUNT as usize)) {
        let (before, mut after) = (&exported_ledger().entries, exported_ledger().entries.clone());
        tamper.apply(&mut after);
        let Some(expected) = first_difference(before, &after) else { return Ok(()) };
        prop_assert_eq!(named_record(verify_in_store(after)), Some(expected));
    }

    #[test]
    fn a_changed_entry_of_a_store_is_named_whatever_was_changed(
        record in 0..COUNT, part in 0..4, at in any::<proptest::sample::Index>(), letter in "[ -~]",
    ) {
        let mut entries = exported_ledger().entries.clone();
        let (other, index) = (entries[0].clone(), usize::try_from(record).expect("small"));
        let entry = &mut entries[index];
        match part {
            0 => {
                let mut body = entry.body.to_string();
                let at = body.floor_char_boundary(at.index(body.len()));
                let end = body.ceil_char_boundary(at + 1);
                body.replace_range(at..end, &letter);
                entry.body = body.into();
            }
            1 => entry.counter = at.index(100) as u64,
            2 => entry.hash = other.previous,
            _ => entry.previous = other.hash,
        }
        let Some(expected) = first_difference(&exported_ledger().entries, &entries) else { return Ok(()) };
        prop_assert_eq!(named_record(verify_in_store(entries)), Some(expected));
    }

    #[test]
    fn a_rewritten_ledger_does_not_match_the_signed_one(from in 0..COUNT) {
        let kept = usize::try_from(from).expect("small");
        let mut entries = exported_ledger().entries[..kept].to_vec();
        for old in &exported_ledger().entries[kept..] {
            let head = entries.last().map_or_else(|| LedgerHead::start_of(LedgerName::main()), SealedEntry::head);
            entries.push(head.seal_entry(old.body.replace("\"ok\"", "\"denied\"").into()));
        }
        let mut check = LedgerVerification::from_start(LedgerName::main());
        prop_assert!(entries.iter().all(|entry| check.verify_entry(entry).is_ok()), "the chain alone is valid");
        prop_assert_eq!(named_record(verify_in_store(entries)), Some(COUNT));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_never_fork_the_chain() {
    let store = StoreHandle::new(MemoryStore::new());
    let env = toolgate_core::CallEnv::new(
        Arc::new(TestClock::new()),
        store.clone(),
        Arc::new(toolgate_core::NoProbe),
    );
    let stack = echo_under(Receipts::to_store());
    let run = |n: u128| {
        let id = format!("{n:032x}").parse().expect("an id");
        tokio::spawn(stack.run(Call::new(CallSeed {
            id,
            env: env.clone(),
            ..seed("t", json!({}))
        })))
    };
    let all = (1..=200).map(run).collect::<Vec<_>>();
    for done in all {
        assert!(done.await.expect("no panic").is_ok());
    }
    let ledger = Ledger::main(store);
    assert_eq!(
        ledger.verify(&[], None).await.expect("one chain").counter,
        200
    );
    let filter = ReceiptFilter {
        limit: 1000,
        ..ReceiptFilter::default()
    };
    let receipts = ledger.list_receipts(&filter).await.expect("reads").receipts;
    let ids: std::collections::BTreeSet<_> = receipts
        .iter()
        .map(|sealed| sealed.receipt.invocation_id)
        .collect();
    assert_eq!(ids.len(), 200, "one receipt per call");
}
