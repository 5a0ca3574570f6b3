//! Archives: no edit of an archive is imported, and a refused one leaves nothing.

use std::{io::Cursor, sync::OnceLock};

use toolgate_archive::{ImportError, Importer};
use toolgate_core::{MemoryStore, SessionFilter, StoreHandle, Timestamp};
use toolgate_testkit::{CountingIds, conformance::SampleSessions, conformance::export_raw};

use super::MEMORY;
use crate::{FuzzTarget, InputTrace};

pub(crate) const TARGET: FuzzTarget =
    FuzzTarget::new("import_archive", run, WORDS).with_memory(MEMORY);

const WORDS: &[&str] = &[
    "{\"link\":\"sha256:",
    "\",\"event\":",
    "\",\"end\":{\"lines\":",
    "\n",
    "\0",
];

/// Returns a small archive.
fn sample() -> &'static [u8] {
    static SAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        futures::executor::block_on(async {
            let store = StoreHandle::new(MemoryStore::new());
            let ids = CountingIds::new();
            let session = SampleSessions::new(&store, &ids, 1)
                .add_session(1)
                .await
                .expect("stores");
            export_raw(&store, &[session]).await.expect("exports")
        })
    })
}

/// The input is an edit: a place, a length, and what is there instead; or a whole file.
fn edited(data: &[u8]) -> Vec<u8> {
    let file = sample();
    let [high, low, length, new @ ..] = data else {
        return data.to_vec();
    };
    if data.starts_with(b"{") {
        return data.to_vec();
    }
    let at = usize::from(u16::from_be_bytes([*high, *low])) % file.len();
    let end = (at + usize::from(*length)).min(file.len());
    [&file[..at], new, &file[end..]].concat()
}

fn run(data: &[u8]) -> InputTrace {
    let file = edited(data);
    futures::executor::block_on(async {
        let store = StoreHandle::new(MemoryStore::new());
        let importer = Importer::new(store.clone(), Timestamp::EPOCH);
        match importer.import_archive(Cursor::new(&file)).await {
            Ok(_) => {
                assert!(file == sample(), "a changed archive was imported");
                InputTrace::of("imported")
            }
            Err(error) => {
                let rows = store
                    .sessions(SessionFilter::default())
                    .await
                    .expect("lists");
                assert!(rows.is_empty(), "a refused archive left a session");
                match error {
                    ImportError::Line { what, .. } => InputTrace::of_message(&what),
                    ImportError::Truncated { .. } => InputTrace::of("truncated"),
                    other => InputTrace::of_message(&other.to_string()),
                }
            }
        }
    })
}
