//! A store that counts how often it is read.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use toolgate_core::{Store, StoreHandle};

use crate::{FaultyStore, StoreFault};

/// The number of reads of a store so far.
#[derive(Debug, Clone, Default)]
pub struct ReadCount(Arc<AtomicU64>);

impl ReadCount {
    /// Wraps a store so that its reads are counted.
    pub fn of(store: impl Store) -> (StoreHandle, Self) {
        let count = Self::default();
        let reads = count.0.clone();
        let counted = FaultyStore::new(store, move |call, _| {
            reads.fetch_add((!call.is_write()).into(), Ordering::SeqCst);
            StoreFault::Pass
        });
        (StoreHandle::new(counted), count)
    }

    /// Returns the number of reads so far.
    pub fn reads(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
