//! Counts how often a thread, or the whole process, asks for memory.
#![expect(unsafe_code, reason = "an allocator can be counted only by being one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

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

/// What all threads of the process asked for while [`count_all`] ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Allocations and reallocations.
    pub allocations: u64,
    /// Bytes that were asked for and not given back; negative where older ones were.
    pub kept_bytes: i64,
}

/// Off but while it is asked for: counters that all threads share cost every allocation.
static COUNTS_ALL: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static KEPT_BYTES: AtomicI64 = AtomicI64::new(0);

/// Runs `scenario` and returns what all threads asked for meanwhile. Not for two threads at once.
///
/// Always zero unless [`Counting`] is the global allocator of the program.
pub fn count_all<R>(scenario: impl FnOnce() -> R) -> (Process, R) {
    ALLOCATIONS.store(0, Ordering::SeqCst);
    KEPT_BYTES.store(0, Ordering::SeqCst);
    COUNTS_ALL.store(true, Ordering::SeqCst);
    let result = scenario();
    COUNTS_ALL.store(false, Ordering::SeqCst);
    let process = Process {
        allocations: ALLOCATIONS.load(Ordering::SeqCst),
        kept_bytes: KEPT_BYTES.load(Ordering::SeqCst),
    };
    (process, result)
}

/// Notes that `freed` bytes became `asked` ones; 0 for none.
fn note(freed: usize, asked: usize) {
    if asked > 0 {
        // Not there while a thread ends, when nothing is measured.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    }
    if COUNTS_ALL.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(u64::from(asked > 0), Ordering::Relaxed);
        // No object is larger than `isize::MAX`.
        KEPT_BYTES.fetch_add(asked.cast_signed() as i64, Ordering::Relaxed);
        KEPT_BYTES.fetch_sub(freed.cast_signed() as i64, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with the caller's arguments as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(0, layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(0, layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(layout.size(), size);
        // SAFETY: `memory` came from `System`, and the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(layout.size(), 0);
        // SAFETY: `memory` came from `System` with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}
