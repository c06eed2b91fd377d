//! Which lessons of a segment have ended, and when.

use std::sync::OnceLock;

use crate::bits::ones;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The sequence number of a death that has not come.
pub(crate) const NOT_DEAD: u64 = u64::MAX;

/// Lessons whose times of death come into being together: most segments lose few.
const TOGETHER: usize = 512;

/// Holds the first snapshot without each lesson of a segment.
///
/// Relaxed is enough all over: a reader got its snapshot through a pointer swap that came after the
/// marks of that snapshot, and every later mark has a higher number, seen or not.
pub(crate) struct Deaths {
    len: usize,
    /// A bit for each lesson that has such a snapshot: few bytes to look at, where the lessons that
    /// readers ask for and the writer replaces are all over the segment.
    ended: Box<[AtomicU64]>,
    at: Box<[OnceLock<Box<[AtomicU64]>>]>,
    /// How many there are. Apart from all else, since every reader looks at that.
    count: Apart,
}

/// Is in a line of the cache of its own.
#[repr(align(128))]
struct Apart(AtomicU32);

impl Deaths {
    pub(crate) fn none(len: usize) -> Self {
        Self {
            len,
            ended: (0..len.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            at: (0..len.div_ceil(TOGETHER)).map(|_| OnceLock::new()).collect(),
            count: Apart(AtomicU32::new(0)),
        }
    }

    /// Returns how many lessons are not alive; never less than those that a snapshot in use does
    /// not see.
    pub(crate) fn count(&self) -> u32 {
        self.count.0.load(Relaxed)
    }

    /// Returns whether the snapshot with this sequence number has a lesson.
    pub(crate) fn is_visible(&self, doc: u32, seq: u64) -> bool {
        let doc = doc as usize;
        let is_ended = self.ended[doc / 64].load(Relaxed) >> (doc % 64) & 1 == 1;
        !is_ended || seq < self.of(doc)
    }

    /// Returns a bit for each lesson that the snapshot with this sequence number has.
    pub(crate) fn visible(&self, seq: u64) -> Vec<u64> {
        let word = |(at, ended): (usize, &AtomicU64)| {
            let all = u64::MAX >> (64 - (self.len - at * 64).min(64));
            let dead = ones(ended.load(Relaxed), at).filter(|doc| self.of(*doc as usize) <= seq);
            dead.fold(all, |visible, doc| visible & !(1 << (doc % 64)))
        };
        self.ended.iter().enumerate().map(word).collect()
    }

    /// Ends a lesson from snapshot `seq` on. Returns whether it was alive.
    ///
    /// Only the writer of the index calls this.
    pub(crate) fn end(&self, doc: u32, seq: u64) -> bool {
        let doc = doc as usize;
        let together = self.at[doc / TOGETHER]
            .get_or_init(|| (0..TOGETHER).map(|_| AtomicU64::new(NOT_DEAD)).collect());
        let at = &together[doc % TOGETHER];
        let is_alive = at.load(Relaxed) == NOT_DEAD;
        if is_alive {
            at.store(seq, Relaxed);
            self.ended[doc / 64].fetch_or(1 << (doc % 64), Relaxed);
            self.count.0.fetch_add(1, Relaxed);
        }
        is_alive
    }

    fn of(&self, doc: usize) -> u64 {
        let together = self.at[doc / TOGETHER].get();
        together.map_or(NOT_DEAD, |together| together[doc % TOGETHER].load(Relaxed))
    }
}
