//! Bytes in large pieces.

use std::fmt;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// From here on a piece is mapped by itself.
const MAPPED_FROM: usize = 4 << 20;

/// As long as pages are where they are huge.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Holds bytes; many of them in huge pages, where the system has such.
///
/// What takes long about reading a large file is to get memory for it, four KiB at a time. Huge
/// pages make that five times as fast, and the look-ups in it later do not wait for page tables.
pub(crate) struct Memory {
    pages: Pages,
    len: usize,
}

enum Pages {
    Heap(Vec<u8>),
    Mapped(MmapMut),
}

impl Memory {
    /// Returns so many zeros.
    pub(crate) fn zeroed(len: usize) -> Self {
        let pages = mapped(len).map_or_else(|| Pages::Heap(vec![0; len]), Pages::Mapped);
        Self { pages, len }
    }

    /// Forgets what is behind, and gives its room back where that is most of it.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        match &mut self.pages {
            Pages::Heap(bytes) => {
                bytes.truncate(len);
                bytes.shrink_to_fit();
            }
            Pages::Mapped(map) if self.len < map.len() / 2 => {
                let mut shorter = Self::zeroed(self.len);
                shorter.copy_from_slice(self);
                *self = shorter;
            }
            Pages::Mapped(_) => {}
        }
    }
}

/// Returns `None` where the heap is as good.
fn mapped(len: usize) -> Option<MmapMut> {
    if len < MAPPED_FROM {
        return None;
    }
    let map = MmapMut::map_anon(len.next_multiple_of(HUGE_PAGE)).ok()?;
    // Where there are no huge pages, small ones do.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Some(map)
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes: &[u8] = match &self.pages {
            Pages::Heap(bytes) => bytes,
            Pages::Mapped(map) => map,
        };
        &bytes[..self.len]
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes: &mut [u8] = match &mut self.pages {
            Pages::Heap(bytes) => bytes,
            Pages::Mapped(map) => map,
        };
        &mut bytes[..self.len]
    }
}

/// Takes bytes that come one after the other.
pub(crate) struct Growing {
    bytes: Memory,
    len: usize,
}

impl Growing {
    /// Starts with room for so many.
    pub(crate) fn with_room(room: usize) -> Self {
        Self { bytes: Memory::zeroed(room), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn append(&mut self, more: &[u8]) {
        let len = self.len + more.len();
        if len > self.bytes.len() {
            let mut larger = Memory::zeroed(len.next_power_of_two());
            larger[..self.len].copy_from_slice(&self.bytes[..self.len]);
            self.bytes = larger;
        }
        self.bytes[self.len..len].copy_from_slice(more);
        self.len = len;
    }

    pub(crate) fn finish(mut self) -> Memory {
        self.bytes.truncate(self.len);
        self.bytes
    }
}

/// Copies the bytes only if there are so many that huge pages are worth it.
impl From<Vec<u8>> for Memory {
    fn from(mut bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        // What is freed of less than this stays with the heap, as memory that is held twice.
        let is_large = len >= 8 * MAPPED_FROM;
        if is_large && let Some(mut map) = mapped(len) {
            map[..len].copy_from_slice(&bytes);
            return Self { pages: Pages::Mapped(map), len };
        }
        bytes.shrink_to_fit();
        Self { pages: Pages::Heap(bytes), len }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_keeps_its_bytes_whatever_room_it_began_with() {
        for room in [0, 1, 9_999, 5 << 20] {
            let mut growing = Growing::with_room(room);
            let mut wanted = Vec::new();
            for n in 0..2_000_u32 {
                let more = n.to_le_bytes().repeat(n as usize % 7);
                growing.append(&more);
                wanted.extend(more);
            }
            assert_eq!(growing.len(), wanted.len());
            assert_eq!(*growing.finish(), *wanted, "{room}");
        }
    }

    /// The lists of a segment of unique words take a tenth of the room that is asked for.
    #[test]
    fn room_that_nothing_took_is_given_back() {
        const ROOM: usize = 32 << 20;
        let room_of = |memory: &Memory| match &memory.pages {
            Pages::Heap(bytes) => bytes.capacity(),
            Pages::Mapped(map) => map.len(),
        };
        for (len, wanted) in [(999, 999..=999), (5 << 20, 5 << 20..=6 << 20), (ROOM, ROOM..=ROOM)] {
            let mut growing = Growing::with_room(ROOM);
            let bytes = [1, 2, 3].iter().copied().cycle().take(len).collect::<Vec<u8>>();
            growing.append(&bytes);
            let memory = growing.finish();
            assert!(*memory == *bytes, "{len}");
            assert!(wanted.contains(&room_of(&memory)), "{len}: {}", room_of(&memory));
        }
    }
}
