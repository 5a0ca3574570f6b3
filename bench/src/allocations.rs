//! Counts allocations, with the allocator of the program `toolgate`.

use std::{
    alloc::{GlobalAlloc, Layout},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use mimalloc::MiMalloc;

/// The allocator of the program `toolgate`, which counts while it is asked to.
pub(crate) struct CountedAllocator;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

fn note_allocation() {
    if IS_COUNTING.load(Ordering::Relaxed) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

#[expect(unsafe_code, reason = "an allocator has no safe interface")]
// SAFETY: every call is passed to mimalloc with the same arguments.
unsafe impl GlobalAlloc for CountedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note_allocation();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note_allocation();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note_allocation();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }
}

/// Returns the number of allocations, on any thread, while `work` runs.
pub(crate) async fn count_allocations(work: impl Future<Output = ()>) -> u64 {
    let before = COUNT.load(Ordering::Relaxed);
    IS_COUNTING.store(true, Ordering::Relaxed);
    work.await;
    IS_COUNTING.store(false, Ordering::Relaxed);
    COUNT.load(Ordering::Relaxed) - before
}
