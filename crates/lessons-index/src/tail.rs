//! The newest lessons, before they are put into a segment.

use std::sync::{Arc, OnceLock};

use crate::draft::narrow;
use crate::fingerprint::Fingerprint;
use crate::fold;
use crate::lesson::Lesson;
use crate::rank::Words;
use crate::segment::NOT_DEAD;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Lessons of a page. A query looks at each of them, so there are few.
#[cfg(not(shuttle))]
pub(crate) const PAGE: usize = 512;
/// So few that a model goes from page to page.
#[cfg(shuttle)]
pub(crate) const PAGE: usize = 3;

/// Chains of a page.
const HEADS: usize = 512;

const NONE: u32 = u32::MAX;

/// Holds lessons in the order in which they were published; several may have one id, of which a
/// snapshot sees at most one.
///
/// One writer appends, any number of readers look. A reader knows from its snapshot how many
/// slots there are for it, and passes what is behind them.
pub(crate) struct Page {
    slots: Box<[OnceLock<Slot>]>,
    /// The newest slot of each chain.
    heads: Box<[AtomicU32]>,
}

/// Is one version of a lesson.
pub(crate) struct Slot {
    pub(crate) lesson: Arc<Lesson>,
    hash: u64,
    /// The first snapshot with it, and the first without it again.
    born: u64,
    dead: AtomicU64,
    /// The next older slot of its chain.
    older: u32,
    folded: OnceLock<Box<[u8]>>,
    kind: OnceLock<Fingerprint>,
    words: OnceLock<Words>,
}

impl Page {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..PAGE).map(|_| OnceLock::new()).collect(),
            heads: (0..HEADS).map(|_| AtomicU32::new(NONE)).collect(),
        }
    }

    /// Appends a version behind `len` others; it is in the snapshots from `seq` on.
    pub(crate) fn push(&self, len: usize, hash: u64, lesson: Arc<Lesson>, seq: u64) {
        let head = &self.heads[chain(hash)];
        let slot = Slot {
            lesson,
            hash,
            born: seq,
            dead: AtomicU64::new(NOT_DEAD),
            older: head.load(Ordering::Relaxed),
            folded: OnceLock::new(),
            kind: OnceLock::new(),
            words: OnceLock::new(),
        };
        let is_free = self.slots[len].set(slot).is_ok();
        assert!(is_free, "the one writer never fills a slot twice");
        head.store(narrow(len), Ordering::Release);
    }

    /// Returns the version of a lesson that a snapshot sees.
    pub(crate) fn find(&self, len: usize, hash: u64, id: &str, seq: u64) -> Option<&Slot> {
        let mut at = self.heads[chain(hash)].load(Ordering::Acquire);
        while at != NONE {
            let slot = self.slots[at as usize].get().expect("a chain has filled slots only");
            let is_it = slot.hash == hash && slot.lesson.id == id;
            if is_it && (at as usize) < len && slot.is_visible(seq) {
                return Some(slot);
            }
            at = slot.older;
        }
        None
    }

    /// Ends the lesson with this id from snapshot `seq` on. Returns it if it was alive.
    pub(crate) fn end(&self, len: usize, hash: u64, id: &str, seq: u64) -> Option<&Slot> {
        // Alive now is what a snapshot just before the end of time would see.
        let slot = self.find(len, hash, id, NOT_DEAD - 1)?;
        slot.dead.store(seq, Ordering::Relaxed);
        Some(slot)
    }

    /// Returns how many bytes the lines have, of the dead too.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.slots.iter().filter_map(OnceLock::get).map(|slot| slot.lesson.raw().len()).sum()
    }

    /// Returns the first `len` slots that a snapshot sees.
    pub(crate) fn visible(&self, len: usize, seq: u64) -> impl Iterator<Item = &Slot> {
        let slots = self.slots[..len].iter();
        slots.filter_map(OnceLock::get).filter(move |slot| slot.is_visible(seq))
    }
}

impl Slot {
    fn is_visible(&self, seq: u64) -> bool {
        self.born <= seq && seq < self.dead.load(Ordering::Relaxed)
    }

    /// Returns the folded message.
    pub(crate) fn folded(&self) -> &[u8] {
        self.folded.get_or_init(|| fold::fold(&self.lesson.failure_msg).into())
    }

    pub(crate) fn kind(&self) -> Fingerprint {
        *self.kind.get_or_init(|| Fingerprint::of_lesson(&self.lesson))
    }

    /// Returns the words that it is ranked by.
    pub(crate) fn words(&self) -> &Words {
        self.words.get_or_init(|| Words::of(&self.lesson))
    }
}

fn chain(hash: u64) -> usize {
    usize::try_from(hash >> 32).expect("32 bits fit") % HEADS
}
