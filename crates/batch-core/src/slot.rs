//! The place of one result: a [`Filler`] writes it, a [`Claim`] reads it, each once.
//!
//! Cells live in blocks of [`cells`] their type, so an item costs no allocation of its own. A
//! block is made in place, as values may be larger than what is left of a stack. It counts the
//! fillers and claims that are out, and is freed by the last; the count is charged for all cells
//! when the block is made, and a [`Round`] gives back many at once.
//!
//! All that the two sides of a cell tell each other goes through ONE word of bits that are only
//! ever changed by read-modify-write. Each side sets its bit and learns in the same step what the
//! other has set before, so one of them always knows: that the value is there to be taken or
//! dropped, and that somebody waits to be woken.
#![allow(unsafe_code, reason = "values are handed over between threads without a lock an item")]

mod claims;
mod fillers;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
mod waiters;

use std::alloc::{self, Layout};
use std::iter;
use std::mem::{self, MaybeUninit};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::task::Context;
use std::time::Instant;

pub(crate) use self::fillers::Fillers;
use self::waiters::{Waiter, Waiters};
use crate::panics;
use crate::sync::is_over;
use crate::sync::raw::{AtomicU32, AtomicUsize, Ordering, UnsafeCell, current, park_until};

/// The most cells of a block: the bits of [`Round::noted`].
const MOST_CELLS: usize = if cfg!(all(test, loom)) { 2 } else { 128 };
/// A block of more than one cell is not larger than this: one value that waits, or is kept, keeps
/// its block.
const MOST_BYTES: usize = 64 << 10;

/// Returns how many cells a block of values of a type has.
const fn cells<T>() -> usize {
    match MOST_BYTES / size_of::<Cell<T>>() {
        0 => 1,
        count if count < MOST_CELLS => count,
        _ => MOST_CELLS,
    }
}

/// The filler is done with the cell; the value is there unless `EMPTY` is set too.
const DONE: u32 = 1;
/// The filler was dropped without a value. Only ever set together with `DONE`.
const EMPTY: u32 = 1 << 1;
/// The claim was dropped. Whoever comes second, this or `DONE`, drops the value.
const GONE: u32 = 1 << 2;
/// There is, or was, an entry in the block's list of waiters.
const WAITING: u32 = 1 << 3;
/// The waiting thread is asked to lead. Only ever set while its entry is in the list.
const LEAD: u32 = 1 << 4;

/// The head of a block; its cells follow it in the same allocation.
#[repr(C)]
struct Block<T, H> {
    /// Fillers and claims that are out, and those that the arena has yet to hand out.
    references: AtomicUsize,
    header: H,
    waiters: Waiters,
    /// Where the first of [`cells`] the type stands.
    cells: [Cell<T>; 0],
}

struct Cell<T> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

impl<T, H> Block<T, H> {
    fn layout() -> Layout {
        let whole = Layout::array::<Cell<T>>(cells::<T>())
            .and_then(|cells| Layout::new::<Self>().extend(cells));
        whole.expect("one cell is hardly more than a value, and several are little").0
    }

    fn allocate(header: H) -> NonNull<Self> {
        let layout = Self::layout();
        // SAFETY: the layout is not empty: a block begins with a counter.
        let memory = unsafe { alloc::alloc(layout) };
        let Some(block) = NonNull::new(memory.cast::<Self>()) else {
            alloc::handle_alloc_error(layout);
        };
        let references = AtomicUsize::new(2 * cells::<T>());
        let head = Self { references, header, waiters: Waiters::new(), cells: [] };
        // SAFETY: the memory is new, of the layout of a block, and nobody else knows of it.
        unsafe { block.write(head) };
        for index in 0..cells::<T>() {
            // SAFETY: the memory has room for so many cells, and nobody else knows of it. A value
            // that is not there yet is any bytes, so the state is all that has to be written.
            unsafe { (&raw mut (*Self::cell(block, index)).state).write(AtomicU32::new(0)) };
            // SAFETY: as above. What keeps books of each access is more than bytes.
            #[cfg(all(test, loom))]
            unsafe {
                let value = &raw mut (*Self::cell(block, index)).value;
                value.write(UnsafeCell::new(MaybeUninit::uninit()));
            }
        }
        block
    }

    /// Returns where a cell stands.
    ///
    /// # Safety
    /// The memory of the block, which [`allocate`](Self::allocate) made, is not freed yet, and it
    /// has more than `index` cells.
    unsafe fn cell(block: NonNull<Self>, index: usize) -> *mut Cell<T> {
        // SAFETY: the cells follow the head in one allocation, from which the pointer is, and the
        // place of the first is that of the empty array, which `repr(C)` puts at the end.
        unsafe { (&raw mut (*block.as_ptr()).cells).cast::<Cell<T>>().add(index) }
    }

    /// Gives back `count` references and frees the block with the last.
    ///
    /// # Safety
    /// The caller owns so many references to the block and uses none of them afterwards.
    unsafe fn release(block: NonNull<Self>, count: usize) {
        // SAFETY: the references of the caller keep the block alive.
        let references = unsafe { &block.as_ref().references };
        // AcqRel: all that others did with the block before they gave it back is done by now.
        if references.fetch_sub(count, Ordering::AcqRel) == count {
            // SAFETY: nobody else has a reference any more.
            unsafe { Self::free(block) };
        }
    }

    /// Drops the head and frees the memory.
    ///
    /// # Safety
    /// Nobody has a reference to the block, and it was not freed.
    #[cold]
    unsafe fn free(block: NonNull<Self>) {
        const { assert!(!mem::needs_drop::<Cell<T>>(), "a cell that nobody uses is but bytes") };
        // SAFETY: the head is read once, and then only this copy is used.
        let head = unsafe { block.read() };
        // SAFETY: it was allocated with this layout, and nobody knows of it any more.
        unsafe { alloc::dealloc(block.as_ptr().cast(), Self::layout()) };
        drop(head);
    }
}

/// One side of a cell, which is one reference to its block. Not given back by dropping it.
struct Place<T, H> {
    block: NonNull<Block<T, H>>,
    index: u32,
}

impl<T, H> Clone for Place<T, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, H> Copy for Place<T, H> {}

// SAFETY: a value goes from the thread of the filler to that of the claim, so it is `Send`. Headers
// are lent to all threads and dropped by any. No method lends a value, so it need not be `Sync`.
unsafe impl<T: Send, H: Send + Sync> Send for Place<T, H> {}
// SAFETY: as above; through a shared reference no value is reached at all.
unsafe impl<T: Send, H: Send + Sync> Sync for Place<T, H> {}

// A cell changes in single steps; no panic is ever seen half way through one.
impl<T, H> UnwindSafe for Place<T, H> {}
impl<T, H> RefUnwindSafe for Place<T, H> {}

impl<T, H> Place<T, H> {
    fn block(&self) -> &Block<T, H> {
        // SAFETY: a place is held only by those who own a reference to the block.
        unsafe { self.block.as_ref() }
    }

    fn cell(&self) -> &Cell<T> {
        // SAFETY: as above; the arena makes places for cells that there are.
        unsafe { &*Block::cell(self.block, self.index as usize) }
    }

    fn state(&self) -> u32 {
        self.cell().state.load(Ordering::Acquire)
    }

    fn set(&self, bits: u32) -> u32 {
        self.cell().state.fetch_or(bits, Ordering::AcqRel)
    }

    /// Takes the value out.
    ///
    /// # Safety
    /// The value was written and not yet taken, and the caller is the only one who may.
    unsafe fn take(&self) -> T {
        // SAFETY: nobody else has access, and the value is there, says the caller.
        self.cell().value.with_mut(|value| unsafe { (*value).assume_init_read() })
    }

    /// Asks the thread that waits for the cell to lead, and wakes it; false if none does.
    fn hand_lead(&self) -> bool {
        if self.state() & WAITING == 0 {
            return false;
        }
        self.block().waiters.call_thread(self.index, || {
            self.set(LEAD);
        })
    }

    /// Takes the waiter of the cell off the list. Wakers are user code: drop it without a lock.
    fn take_waiter(&self) -> Option<Waiter> {
        self.block().waiters.take(self.index)
    }
}

/// Hands out the two sides of cells.
pub(crate) struct Arena<T, H> {
    header: H,
    /// The next cell; its block's references for this and all later cells belong to the arena.
    next: Option<Place<T, H>>,
}

impl<T, H: Clone> Arena<T, H> {
    pub(crate) fn new(header: H) -> Self {
        Self { header, next: None }
    }

    /// Makes the two sides of a new cell. Allocates once for each block.
    #[inline]
    pub(crate) fn pair(&mut self) -> (Filler<T, H>, Claim<T, H>) {
        let place = self
            .next
            .take()
            .unwrap_or_else(|| Place { block: Block::allocate(self.header.clone()), index: 0 });
        let index = place.index + 1;
        self.next = ((index as usize) < cells::<T>()).then_some(Place { index, ..place });
        (Filler(place), Claim(place))
    }
}

impl<T, H: Clone> Arena<T, H> {
    /// Returns how many cells in a row there are now.
    pub(crate) fn left(&self) -> usize {
        cells::<T>() - self.next.map_or(0, |next| next.index as usize)
    }

    /// Makes the two sides of cells in a row: of `most`, which is not 0, or of as many as the block
    /// has.
    pub(crate) fn row(&mut self, most: usize) -> (Fillers<T, H>, Claims<T, H>) {
        let (filler, claim) = self.pair();
        let (mut fillers, mut claims) = (Fillers::of(filler), Claims::of(claim));
        if let Some(next) = self.next.take_if(|_| most > 1) {
            let left = cells::<T>() - next.index as usize;
            let more = u32::try_from(left.min(most - 1)).expect("a block has few cells");
            // The arena owned both references of each of these cells.
            fillers.len += more;
            claims.len += more;
            let index = next.index + more;
            self.next = ((index as usize) < cells::<T>()).then_some(Place { index, ..next });
        }
        (fillers, claims)
    }
}

impl<T, H> Drop for Arena<T, H> {
    fn drop(&mut self) {
        if let Some(next) = self.next {
            // SAFETY: no side of this cell and of those after it was ever handed out.
            unsafe { Block::release(next.block, 2 * (cells::<T>() - next.index as usize)) };
        }
    }
}

/// The side of a cell that gives the value. Dropped without one, its claim learns just that.
pub(crate) struct Filler<T, H>(Place<T, H>);

impl<T, H> Filler<T, H> {
    /// Asks the thread that waits for this cell to lead, and wakes it; false if no thread does.
    ///
    /// After true the thread calls what it gave to [`Claim::wait`] as `lead`, whatever happens to
    /// the cell.
    pub(crate) fn hand_lead(&self) -> bool {
        self.0.hand_lead()
    }

    /// Says whether the claim is gone, so that nobody asks for the value any more.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.0.state() & GONE != 0
    }
}

impl<T, H> Drop for Filler<T, H> {
    fn drop(&mut self) {
        Round::new().end(self.0, DONE | EMPTY);
    }
}

/// Fills many cells, and wakes those who wait for them when it is finished.
pub(crate) struct Round<T, H> {
    /// The block of the last cell that was filled.
    block: Option<NonNull<Block<T, H>>>,
    /// References to that block that are to be given back.
    references: usize,
    /// Cells of that block that somebody waits for, a bit each.
    noted: u128,
    woken: Vec<Waiter>,
}

impl<T, H> Round<T, H> {
    pub(crate) fn new() -> Self {
        Self { block: None, references: 0, noted: 0, woken: Vec::new() }
    }

    /// Gives the value of a cell. It can be taken at once; who waits for it is woken at the end.
    ///
    /// If the claim is gone, the value is dropped here, which is user code.
    #[inline]
    pub(crate) fn fill(&mut self, filler: Filler<T, H>, value: T) {
        if let Some(unwanted) = self.offer(filler, value) {
            panics::swallow(|| drop(unwanted));
        }
    }

    /// Gives the values of cells in a row, as [`fill`](Self::fill) does; those for which there is
    /// none are abandoned. `next` does not panic: values of cells not marked yet would leak.
    ///
    /// A step on a word waits until its line of memory is here, but many lines can be on their way
    /// while values are written. So some are written before the first of their cells is marked.
    pub(crate) fn fill_row(
        &mut self,
        mut fillers: Fillers<T, H>,
        next: &mut impl FnMut() -> Option<T>,
    ) {
        const AT_ONCE: usize = 32;
        loop {
            let mut written = 0;
            for (place, value) in fillers.places().take(AT_ONCE).zip(iter::from_fn(&mut *next)) {
                // SAFETY: the row has the only filler of the cell, and nobody reads the value before
                // `DONE` is set.
                place.cell().value.with_mut(|cell| unsafe { (*cell).write(value) });
                written += 1;
            }
            for filler in fillers.by_ref().take(written) {
                // SAFETY: its value was written above.
                let unwanted = unsafe { self.mark(filler) };
                if unwanted.is_some() {
                    panics::swallow(|| drop(unwanted));
                }
            }
            if written < AT_ONCE {
                return;
            }
        }
    }

    /// Gives the value of a cell as [`fill`](Self::fill) does; it comes back if the claim is gone.
    #[inline]
    #[must_use = "dropping an unwanted value is user code"]
    pub(crate) fn offer(&mut self, filler: Filler<T, H>, value: T) -> Option<T> {
        // SAFETY: the filler is the only one, and nobody reads the value before `DONE` is set.
        filler.0.cell().value.with_mut(|cell| unsafe { (*cell).write(value) });
        // SAFETY: the value was just written.
        unsafe { self.mark(filler) }
    }

    /// Marks a cell as done whose value is there; the value comes back if the claim is gone.
    ///
    /// # Safety
    /// The value of the cell was written.
    #[inline]
    unsafe fn mark(&mut self, filler: Filler<T, H>) -> Option<T> {
        let place = filler.0;
        mem::forget(filler);
        let is_unwanted = self.end(place, DONE) & GONE != 0;
        // SAFETY: the value is there, says the caller; the claim was gone before and has left it.
        // The round holds the reference of the filler.
        is_unwanted.then(|| unsafe { place.take() })
    }

    /// Marks a cell as done, takes over the reference of its filler, and returns its old state.
    #[inline]
    fn end(&mut self, place: Place<T, H>, bits: u32) -> u32 {
        if self.block != Some(place.block) {
            self.leave_block();
            self.block = Some(place.block);
        }
        self.references += 1;
        let old = place.set(bits);
        if old & (WAITING | GONE) == WAITING {
            self.noted |= 1 << place.index;
        }
        old
    }

    #[cold]
    fn leave_block(&mut self) {
        let Some(block) = self.block.take() else { return };
        if self.noted != 0 {
            // SAFETY: the references of the round keep the block alive.
            unsafe { block.as_ref() }.waiters.take_all(self.noted, &mut self.woken);
            self.noted = 0;
        }
        // SAFETY: so many fillers of the block have ended here, each with its reference.
        unsafe { Block::release(block, mem::take(&mut self.references)) };
    }

    /// Wakes whoever waits, which dropping the round does as well.
    pub(crate) fn finish(self) {
        drop(self);
    }
}

impl<T, H> Drop for Round<T, H> {
    fn drop(&mut self) {
        self.leave_block();
        if !self.woken.is_empty() {
            waiters::wake(mem::take(&mut self.woken));
        }
    }
}

/// The side of a cell that takes the value. It has one owner, who waits in one way at a time.
pub(crate) struct Claim<T, H>(Place<T, H>);

/// Claims of one block that follow each other.
pub(crate) struct Claims<T, H> {
    block: NonNull<Block<T, H>>,
    first: u32,
    /// Each is the one owner of its claim, and of its reference.
    len: u32,
}

// SAFETY: as for a place, of which it is a number.
unsafe impl<T: Send, H: Send + Sync> Send for Claims<T, H> {}
// SAFETY: as for a place.
unsafe impl<T: Send, H: Send + Sync> Sync for Claims<T, H> {}

// As for a place.
impl<T, H> UnwindSafe for Claims<T, H> {}
impl<T, H> RefUnwindSafe for Claims<T, H> {}

impl<T, H> Claims<T, H> {
    /// Takes what is there of the first cells, up to one that is not done. A step of the counter of
    /// the block for all of them is what it saves.
    pub(crate) fn take_done(&mut self, mut taken: impl FnMut(Fate<T>)) {
        let mut done = Done { claims: self, count: 0 };
        while let Some(fate) = done.next() {
            taken(fate);
        }
    }
}

/// Cells at the start of a row that were taken; their references are given back when it is dropped.
struct Done<'c, T, H> {
    claims: &'c mut Claims<T, H>,
    count: usize,
}

impl<T, H> Done<'_, T, H> {
    fn next(&mut self) -> Option<Fate<T>> {
        let place = self.claims.first_place()?;
        let state = place.state();
        if state & DONE == 0 {
            return None;
        }
        self.claims.first += 1;
        self.claims.len -= 1;
        self.count += 1;
        if state & EMPTY != 0 {
            return Some(Fate::Abandoned);
        }
        // SAFETY: it is done and not empty, so the value is there. The claim was the only one, and
        // is no longer one of the row.
        Some(Fate::Value(unsafe { place.take() }))
    }
}

impl<T, H> Drop for Done<'_, T, H> {
    fn drop(&mut self) {
        if self.count > 0 {
            // SAFETY: the references of so many claims that are no longer in the row.
            unsafe { Block::release(self.claims.block, self.count) };
        }
    }
}

/// What became of a cell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate<T> {
    Value(T),
    /// The filler was dropped.
    Abandoned,
}

impl<T, H> Claim<T, H> {
    pub(crate) fn header(&self) -> &H {
        &self.0.block().header
    }

    pub(crate) fn is_done(&self) -> bool {
        self.0.state() & DONE != 0
    }

    /// Takes what is there, or gives the claim back.
    #[inline]
    pub(crate) fn try_take(self) -> Result<Fate<T>, Self> {
        let state = self.0.state();
        if state & DONE == 0 {
            return Err(self);
        }
        let place = self.0;
        mem::forget(self);
        let fate = if state & EMPTY == 0 {
            // SAFETY: it is done and not empty, so the value is there. The claim was the only one.
            Fate::Value(unsafe { place.take() })
        } else {
            Fate::Abandoned
        };
        // SAFETY: the reference of the claim, which was forgotten above.
        unsafe { Block::release(place.block, 1) };
        Ok(fate)
    }

    /// Blocks until the cell is done or `until` has come; says whether it is done.
    ///
    /// A thread that is asked to lead meanwhile calls `lead`, once each time, and goes on waiting.
    pub(crate) fn wait(&self, until: Option<Instant>, mut lead: impl FnMut()) -> bool {
        while !self.is_done() {
            if self.register(Waiter::Thread(current())) {
                break;
            }
            while self.0.state() & (DONE | LEAD) == 0 && !is_over(until) {
                park_until(until);
            }
            // Off the list first: then nobody asks this thread to lead any more, and if somebody
            // has, it is seen here, whether the cell is done or the time over.
            self.0.take_waiter();
            if self.0.cell().state.fetch_and(!LEAD, Ordering::AcqRel) & LEAD != 0 {
                lead();
            }
            if is_over(until) {
                return self.is_done();
            }
        }
        true
    }

    /// Says whether the cell is done, and sees to it that the task is woken if it is not.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> bool {
        // The waker is cloned before any lock: that is user code.
        self.is_done() || self.register(Waiter::Task(context.waker().clone()))
    }

    /// Puts the one who waits on the list, in place of an earlier one; true if the cell is done.
    fn register(&self, waiter: Waiter) -> bool {
        // Either the filler's step came before this one, and is seen here; or it comes after, and
        // then the filler sees that somebody waits, and finds the entry once the lock is free.
        let is_done = || self.0.set(WAITING) & DONE != 0;
        self.0.block().waiters.put(self.0.index, waiter, is_done)
    }
}

impl<T, H> Drop for Claim<T, H> {
    fn drop(&mut self) {
        let old = self.0.set(GONE);
        if old & (DONE | EMPTY) == DONE {
            // SAFETY: the value was written, not taken, as that consumes the claim, and the filler
            // came first and has left it.
            let value = unsafe { self.0.take() };
            panics::swallow(|| drop(value));
        } else if old & (DONE | WAITING) == WAITING {
            let waiter = self.0.take_waiter();
            panics::swallow(|| drop(waiter));
        }
        // SAFETY: the reference of the claim, which is dropped.
        unsafe { Block::release(self.0.block, 1) };
    }
}
