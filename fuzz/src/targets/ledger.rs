//! Exported ledgers: no edit of a file is verified, unless every record in it is as it was.

use std::sync::{Arc, LazyLock};

use futures::executor::block_on;
use serde_json::json;
use toolgate_core::{
    Call, CallEnv, CallSeed, Checkpoint, LedgerKey, LedgerVerifier, MemoryStore, NoProbe,
    StoreHandle, Timestamp,
};
use toolgate_layers::{Ledger, ReceiptFilter, Receipts, verify_export};
use toolgate_testkit::{TestClock, echo_under, seed};

use crate::{FuzzTarget, InputTrace, targets::edits::apply_edits};

pub(super) const TARGET: FuzzTarget = FuzzTarget::new("ledger", run, WORDS);

const WORDS: &[&str] = &[
    "{\"header\":",
    "{\"entry\":",
    "{\"outline\":",
    "{\"checkpoint\":",
    "{\"end\":",
    "\"counter\":",
    "\"ledger\":\"main\"",
    "\"mirror\":true,",
    "\"version\":1",
    "\"checkpoints\":0",
    "\n",
    "}",
    ",",
    "sha256:",
    "0",
    "1",
    "2",
    "3",
];

const COUNT: u64 = 3;

/// An exported ledger, and the checkpoint of its end that is stored elsewhere.
struct ExportedWorld {
    file: Vec<u8>,
    checkpoint: Checkpoint,
    verifier: LedgerVerifier,
}

static WORLD: LazyLock<ExportedWorld> = LazyLock::new(|| block_on(write_ledger()));

async fn write_ledger() -> ExportedWorld {
    let store = StoreHandle::new(MemoryStore::new());
    let env = CallEnv::new(Arc::new(TestClock::new()), store.clone(), Arc::new(NoProbe));
    let stack = echo_under(Receipts::to_store());
    let ledger = Ledger::main(store);
    let key = LedgerKey::from_bytes(&[9; 32]);
    for n in 1..=COUNT {
        let id = format!("{n:032x}").parse().expect("an id");
        let seed = CallSeed {
            id,
            env: env.clone(),
            ..seed("t", json!({ "n": n }))
        };
        stack.run(Call::new(seed)).await;
    }
    let checkpoint = ledger
        .sign_checkpoint(&key, Timestamp::EPOCH)
        .await
        .expect("it is intact");
    let mut file = Vec::new();
    ledger
        .export(&mut file, &ReceiptFilter::default())
        .await
        .expect("a vector takes everything");
    ExportedWorld {
        file,
        checkpoint,
        verifier: key.to_verifier(),
    }
}

fn run(data: &[u8]) -> InputTrace {
    let world = &*WORLD;
    let (is_edit, file) = match data.split_first() {
        Some((0..16, edits)) => (true, apply_edits(&world.file, edits)),
        _ => (false, data.to_vec()),
    };
    let elsewhere = std::slice::from_ref(&world.checkpoint);
    let verified = verify_export(&*file, elsewhere, Some(&world.verifier));
    match verified {
        Err(error) => {
            assert_ne!(file, world.file, "the genuine file is rejected: {error}");
            InputTrace::of_message(&error.to_string())
        }
        Ok(verified) => {
            assert_eq!(verified.chain.counter, COUNT, "records are missing");
            assert_eq!(records(&file), records(&world.file), "a record was changed");
            // One edit changes one byte or cuts the file, and both are noticed.
            assert!(
                !is_edit || data.len() > 5 || file == world.file,
                "an edit is not noticed"
            );
            InputTrace::of((verified.outlines, file == world.file))
        }
    }
}

fn records(file: &[u8]) -> Vec<&[u8]> {
    file.split(|byte| *byte == b'\n')
        .filter(|line| line.starts_with(b"{\"entry\":"))
        .collect()
}
