//! A hash table from ids to lessons that holds neither: eight bytes a lesson and some room.

use std::hint::black_box;

use crate::memory::Memory;

/// Finds numbers by hash; who has the ids tells whether it is the right one.
///
/// Open addressing with linear probing. A slot is the upper half of the hash and a number, so that
/// a probe rarely has to look at an id that it does not want.
#[derive(Debug)]
pub(crate) struct Table {
    /// Slots of eight bytes.
    slots: Memory,
    len: usize,
}

/// Is zero where there is nothing.
#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    /// `EMPTY`, `GONE` or a number.
    value: u32,
}

const EMPTY: u32 = u32::MAX;
const GONE: u32 = u32::MAX - 1;

/// More numbers than this do not fit.
pub(crate) const MAX: usize = GONE as usize;

impl Table {
    /// Makes room for so many numbers: five slots for three of them.
    pub(crate) fn with_capacity(count: usize) -> Self {
        let len = count + count * 2 / 3 + 1;
        Self { slots: Memory::zeroed(len * 8), len }
    }

    /// Returns the number under this hash that is the right one.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let slots = self.slots.as_chunks::<8>().0;
        let mut at = self.start(hash);
        loop {
            let slot = Slot::of(*slots.get(at)?);
            if slot.value == EMPTY {
                return None;
            }
            if slot.tag == tag(hash) && slot.value != GONE && is_it(slot.value) {
                return Some(slot.value);
            }
            at = after(at, self.len);
        }
    }

    /// Brings the slots of some hashes into the cache, which does not wait for one after the other.
    pub(crate) fn touch(&self, hashes: impl Iterator<Item = u64>) {
        let slots = self.slots.as_chunks::<8>().0;
        black_box(hashes.fold(0, |all, hash| all ^ slots[self.start(hash)][0]));
    }

    /// Puts a number in place of the one that is the same, and returns that.
    pub(crate) fn put(
        &mut self,
        hash: u64,
        value: u32,
        is_same: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut at = self.start(hash);
        let slots = self.slots.as_chunks_mut::<8>().0;
        loop {
            let slot = Slot::of(slots[at]);
            let is_old = slot.value != EMPTY;
            if !is_old || (slot.tag == tag(hash) && is_same(slot.value)) {
                slots[at] = Slot { tag: tag(hash), value }.bytes();
                return is_old.then_some(slot.value);
            }
            at = after(at, self.len);
        }
    }

    /// Puts other numbers in place of all; `None` takes one out.
    pub(crate) fn renumber(&mut self, of: impl Fn(u32) -> Option<u32>) {
        for bytes in self.slots.as_chunks_mut::<8>().0 {
            let Slot { tag, value } = Slot::of(*bytes);
            if value < GONE {
                *bytes = Slot { tag, value: of(value).unwrap_or(GONE) }.bytes();
            }
        }
    }

    fn start(&self, hash: u64) -> usize {
        // The upper half of the product spreads the hash over any number of slots.
        let spread = u128::from(hash) * self.len as u128;
        usize::try_from(spread >> 64).expect("below the number of slots")
    }
}

/// Returns the slot behind one of so many.
fn after(at: usize, len: usize) -> usize {
    if at + 1 == len { 0 } else { at + 1 }
}

impl Slot {
    fn of(bytes: [u8; 8]) -> Self {
        let word = u64::from_le_bytes(bytes);
        Self { tag: low(word >> 32), value: !low(word) }
    }

    fn bytes(self) -> [u8; 8] {
        (u64::from(self.tag) << 32 | u64::from(!self.value)).to_le_bytes()
    }
}

/// The lower half, since the upper one is the place already.
fn tag(hash: u64) -> u32 {
    low(hash)
}

#[expect(clippy::cast_possible_truncation, reason = "half of it is wanted")]
fn low(word: u64) -> u32 {
    word as u32
}
