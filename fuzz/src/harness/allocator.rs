//! An allocator that counts, so that the memory of one input has a limit.

// An allocator is unsafe by its trait; this one only counts and leaves the work to the system's.
#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

/// The system's allocator with counters. A program installs it with `#[global_allocator]`.
#[derive(Debug, Clone, Copy)]
pub struct CountingAllocator;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The most memory that a program may hold. Beyond it an allocation fails, which ends the program
/// with the input on record instead of making the machine swap.
const MAX_LIVE: usize = 2 << 30;

/// Returns the result of `work` and the most bytes that it held at a time. Without the allocator
/// that is zero.
pub fn measure_peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    let peak = PEAK.load(Ordering::Relaxed);
    (result, peak.saturating_sub(before))
}

fn count_allocation(bytes: usize) -> bool {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if live > MAX_LIVE {
        LIVE.fetch_sub(bytes, Ordering::Relaxed);
        return false;
    }
    PEAK.fetch_max(live, Ordering::Relaxed);
    true
}

fn count_release(bytes: usize) {
    LIVE.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: every block comes from `System` and goes back to it with the layout it came with.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !count_allocation(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count_release(layout.size());
        // SAFETY: the caller's promise about `block` and `layout` is passed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old block lives until the new one is there.
        if !count_allocation(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        let moved = unsafe { System.realloc(block, layout, size) };
        count_release(if moved.is_null() { size } else { layout.size() });
        moved
    }
}
