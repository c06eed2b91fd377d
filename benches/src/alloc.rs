//! Counts how often a thread asks for memory.
#![expect(unsafe_code, reason = "an allocator can be counted only by being one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with a count per thread.
///
/// Per thread, so that a thread in the background cannot change the count of a scenario.
///
/// # Examples
/// ```
/// #[global_allocator]
/// static ALLOCATOR: benches::alloc::Counting = benches::alloc::Counting;
///
/// let (count, list) = benches::alloc::count(|| vec![1, 2, 3]);
/// assert_eq!((count, list.len()), (1, 3));
/// ```
#[derive(Debug)]
pub struct Counting;

thread_local! {
    // Constant and without a destructor, so that reading it never allocates.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Runs `scenario` and returns how many allocations and reallocations it made on this thread.
///
/// Always zero unless [`Counting`] is the global allocator of the program.
pub fn count<R>(scenario: impl FnOnce() -> R) -> (u64, R) {
    let before = COUNT.get();
    let result = scenario();
    (COUNT.get() - before, result)
}

fn one_more() {
    // Not there while a thread ends, when nothing is measured.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to the system's allocator with the caller's arguments as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        one_more();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        one_more();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        one_more();
        // SAFETY: `memory` came from `System`, and the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `System` with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}
