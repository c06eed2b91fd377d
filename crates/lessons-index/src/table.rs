//! A hash table from ids to lessons that holds neither: eight bytes a lesson and some room.

/// Finds numbers by hash; who has the ids tells whether it is the right one.
///
/// Open addressing with linear probing. A slot is the upper half of the hash and a number, so that
/// a probe rarely has to look at an id that it does not want.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Box<[Slot]>,
}

#[derive(Clone, Copy, Debug)]
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
        let slot = Slot { tag: 0, value: EMPTY };
        Self { slots: vec![slot; count + count * 2 / 3 + 1].into() }
    }

    /// Returns the number under this hash that is the right one.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.start(hash);
        loop {
            let slot = *self.slots.get(at)?;
            if slot.value == EMPTY {
                return None;
            }
            if slot.tag == tag(hash) && slot.value != GONE && is_it(slot.value) {
                return Some(slot.value);
            }
            at = self.after(at);
        }
    }

    /// Puts a number in place of the one that is the same, and returns that.
    pub(crate) fn put(
        &mut self,
        hash: u64,
        value: u32,
        is_same: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut at = self.start(hash);
        loop {
            let slot = self.slots[at];
            if slot.value == EMPTY {
                self.slots[at] = Slot { tag: tag(hash), value };
                return None;
            }
            if slot.tag == tag(hash) && is_same(slot.value) {
                self.slots[at].value = value;
                return Some(slot.value);
            }
            at = self.after(at);
        }
    }

    /// Puts other numbers in place of all; `None` takes one out.
    pub(crate) fn renumber(&mut self, of: impl Fn(u32) -> Option<u32>) {
        for slot in self.slots.iter_mut().filter(|slot| slot.value < GONE) {
            slot.value = of(slot.value).unwrap_or(GONE);
        }
    }

    fn start(&self, hash: u64) -> usize {
        // The upper half of the product spreads the hash over any number of slots.
        let spread = u128::from(hash) * self.slots.len() as u128;
        usize::try_from(spread >> 64).expect("below the number of slots")
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }
}

/// The lower half, since the upper one is the place already.
#[expect(clippy::cast_possible_truncation, reason = "half of the hash is wanted")]
fn tag(hash: u64) -> u32 {
    hash as u32
}
