//! The newest lessons, before they are put into a segment.

use std::sync::{Arc, OnceLock};

use crate::bits::ones;
use crate::deaths::NOT_DEAD;
use crate::fingerprint::Fingerprint;
use crate::fold;
use crate::lesson::Lesson;
use crate::marks::{Marks, Wanted};
use crate::rank::Words;
use crate::sync::{AtomicU64, Ordering};

/// Lessons of a page. A query may look at each of them, so there are few.
#[cfg(not(shuttle))]
pub(crate) const PAGE: usize = 512;
/// So few that a model goes from page to page.
#[cfg(shuttle)]
pub(crate) const PAGE: usize = 3;

/// Places of the table of a page: half of them stay free, so that most look-ups end at the first.
const PLACES: usize = 2 * PAGE;

/// A place of the table that is free.
const FREE: u64 = 0;

/// Holds lessons in the order in which they were published; several may have one id, of which a
/// snapshot sees at most one.
///
/// One writer appends, any number of readers look. A reader knows from its snapshot how many
/// slots there are for it, and passes what is behind them.
pub(crate) struct Page {
    slots: Box<[OnceLock<Slot>]>,
    /// By hash, probed one after the other: the upper half of the hash, and one more than the slot.
    places: Box<[AtomicU64]>,
    marks: Marks,
}

/// Is one version of a lesson.
pub(crate) struct Slot {
    pub(crate) lesson: Arc<Lesson>,
    hash: u64,
    /// The first snapshot with it, and the first without it again.
    born: u64,
    dead: AtomicU64,
    folded: OnceLock<Box<[u8]>>,
    kind: OnceLock<Fingerprint>,
    words: OnceLock<Words>,
}

impl Page {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..PAGE).map(|_| OnceLock::new()).collect(),
            places: (0..PLACES).map(|_| AtomicU64::new(FREE)).collect(),
            marks: Marks::new(),
        }
    }

    /// Appends a version behind `len` others; it is in the snapshots from `seq` on.
    pub(crate) fn push(&self, len: usize, hash: u64, lesson: Arc<Lesson>, seq: u64) {
        self.marks.set(len, &lesson);
        let slot = Slot {
            lesson,
            hash,
            born: seq,
            dead: AtomicU64::new(NOT_DEAD),
            folded: OnceLock::new(),
            kind: OnceLock::new(),
            words: OnceLock::new(),
        };
        let is_free = self.slots[len].set(slot).is_ok();
        assert!(is_free, "the one writer never fills a slot twice");
        let mut places = self.places_of(hash);
        let free = places.find(|place| place.load(Ordering::Relaxed) == FREE);
        let free = free.expect("there are more places than slots");
        free.store(tag(hash) << 32 | (len as u64 + 1), Ordering::Release);
    }

    /// Returns the version of a lesson that a snapshot sees.
    pub(crate) fn find(&self, len: usize, hash: u64, id: &str, seq: u64) -> Option<&Slot> {
        for place in self.places_of(hash) {
            let place = place.load(Ordering::Acquire);
            if place == FREE {
                break;
            }
            if place >> 32 != tag(hash) {
                continue;
            }
            // What was put in place later is not for this snapshot.
            let at = usize::try_from(place & u64::from(u32::MAX)).expect("32 bits") - 1;
            let slot = self.slots[..len].get(at).and_then(OnceLock::get);
            let is_it = |slot: &&Slot| slot.hash == hash && slot.lesson.id == id;
            if let Some(slot) = slot.filter(is_it).filter(|slot| slot.is_visible(seq)) {
                return Some(slot);
            }
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

    /// Returns all places of the table, the one where a hash belongs first.
    fn places_of(&self, hash: u64) -> impl Iterator<Item = &AtomicU64> {
        let low = usize::try_from(hash & u64::from(u32::MAX)).expect("32 bits");
        let (before, from) = self.places.split_at(low % PLACES);
        from.iter().chain(before)
    }

    /// Returns how many bytes the lines have, of the dead too.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.slots.iter().filter_map(OnceLock::get).map(|slot| slot.lesson.raw().len()).sum()
    }

    /// Returns those of the first `len` slots that a snapshot sees and that can hold what is wanted.
    pub(crate) fn visible(
        &self,
        len: usize,
        seq: u64,
        wanted: Wanted,
    ) -> impl Iterator<Item = &Slot> {
        let slots = &self.slots[..len];
        let marked = self.marks.of(wanted).into_iter().enumerate();
        let marked = marked.flat_map(|(at, word)| ones(word, at)).map(|slot| slot as usize);
        let slots = marked.take_while(move |slot| *slot < len).filter_map(|slot| slots[slot].get());
        slots.filter(move |slot| slot.is_visible(seq))
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

/// The upper half, since the lower one is the place.
fn tag(hash: u64) -> u64 {
    hash >> 32
}
