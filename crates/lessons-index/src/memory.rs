//! Bytes and numbers in large pieces.

use std::fmt;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use memmap2::MmapMut;

/// From so many bytes on a piece is mapped by itself.
const MAPPED_FROM: usize = 4 << 20;

/// So is one that fills whole pages but for one part in so many: numbers of two or four bytes of a
/// million lessons do.
const MAX_EMPTY: usize = 8;

/// From so many bytes on the heap gives a piece back to the system when it is freed.
const UNMAPPED_FROM: usize = 32 << 20;

/// As long as pages are where they are huge.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Holds bytes or what else any bytes are; many of them in huge pages, where the system has such.
///
/// What takes long about reading a large file is to get memory for it, four KiB at a time. Huge
/// pages make that five times as fast, and the look-ups in it later do not wait for page tables.
pub(crate) struct Memory<T = u8> {
    pages: Pages<T>,
    len: usize,
}

enum Pages<T> {
    Heap(Vec<T>),
    /// Begins at a page, which is a multiple of what any `T` has to begin at.
    Mapped(MmapMut),
}

impl<T: Pod> Memory<T> {
    /// Returns so many zeros.
    pub(crate) fn zeroed(len: usize) -> Self {
        let pages = mapped(len * size_of::<T>())
            .map_or_else(|| Pages::Heap(vec![T::zeroed(); len]), Pages::Mapped);
        Self { pages, len }
    }

    /// Forgets what is behind, and gives its room back where that is most of it.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        match &mut self.pages {
            Pages::Heap(all) => {
                all.truncate(len);
                all.shrink_to_fit();
            }
            Pages::Mapped(map) if self.len * size_of::<T>() < map.len() / 2 => {
                self.renew(self.len, self.len);
            }
            Pages::Mapped(_) => {}
        }
    }

    /// Gets other memory, of so many zeros, and copies the first `used` there.
    pub(crate) fn renew(&mut self, used: usize, len: usize) {
        let mut other = Self::zeroed(len);
        other[..used].copy_from_slice(&self[..used]);
        *self = other;
    }
}

/// Returns `None` where the heap is as good.
fn mapped(len: usize) -> Option<MmapMut> {
    let room = len.next_multiple_of(HUGE_PAGE);
    if len < MAPPED_FROM && room - len >= room.div_ceil(MAX_EMPTY) {
        return None;
    }
    let map = MmapMut::map_anon(room).ok()?;
    // Where there are no huge pages, small ones do.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Some(map)
}

impl<T: Pod> Deref for Memory<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.pages {
            Pages::Heap(all) => &all[..self.len],
            Pages::Mapped(map) => bytemuck::cast_slice(&map[..self.len * size_of::<T>()]),
        }
    }
}

impl<T: Pod> DerefMut for Memory<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.pages {
            Pages::Heap(all) => &mut all[..self.len],
            Pages::Mapped(map) => bytemuck::cast_slice_mut(&mut map[..self.len * size_of::<T>()]),
        }
    }
}

/// Takes what comes one after the other.
pub(crate) struct Growing<T = u8> {
    all: Memory<T>,
    len: usize,
}

impl<T: Pod> Growing<T> {
    /// Starts with room for so many.
    pub(crate) fn with_room(room: usize) -> Self {
        Self { all: Memory::zeroed(room), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn append(&mut self, more: &[T]) {
        self.more(more.len()).copy_from_slice(more);
    }

    #[inline]
    pub(crate) fn extend(&mut self, more: impl ExactSizeIterator<Item = T>) {
        for (place, one) in self.more(more.len()).iter_mut().zip(more) {
            *place = one;
        }
    }

    /// Returns the place of so many more, which are zeros.
    #[inline]
    pub(crate) fn more(&mut self, count: usize) -> &mut [T] {
        let start = self.len;
        self.len += count;
        if self.len > self.all.len() {
            self.all.renew(start, self.len.next_power_of_two());
        }
        &mut self.all[start..self.len]
    }

    pub(crate) fn finish(mut self) -> Memory<T> {
        self.all.truncate(self.len);
        self.all
    }
}

/// Copies the bytes only if there are so many that huge pages are worth it.
impl From<Vec<u8>> for Memory {
    fn from(mut bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        // What is freed of less stays with the heap, as memory that is held twice.
        if len >= UNMAPPED_FROM
            && let Some(mut map) = mapped(len)
        {
            map[..len].copy_from_slice(&bytes);
            return Self { pages: Pages::Mapped(map), len };
        }
        bytes.shrink_to_fit();
        Self { pages: Pages::Heap(bytes), len }
    }
}

impl<T> fmt::Debug for Memory<T> {
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

    #[test]
    fn numbers_come_back_on_the_heap_and_in_pages() {
        for count in [0_u32, 1, 1_000, 400_000, 1_100_000] {
            let triples = || (0..count).map(|n| [n, !n, n / 3]);
            let mut growing = Growing::with_room(count as usize / 2);
            growing.extend(triples().take(5).collect::<Vec<_>>().into_iter());
            growing.extend(triples().skip(5).collect::<Vec<_>>().into_iter());
            assert!(growing.finish().iter().copied().eq(triples()), "{count}");
        }
    }

    /// What is a little longer than a page would take two.
    #[test]
    fn a_piece_under_four_mib_is_mapped_only_where_it_fills_its_pages() {
        for (len, is_mapped) in [
            (0, false),
            (1_200_000, false),
            (2_000_000, true),
            (HUGE_PAGE, true),
            (HUGE_PAGE + 1, false),
            (4_000_000, true),
            (MAPPED_FROM + 1, true),
        ] {
            assert_eq!(mapped(len).is_some(), is_mapped, "{len}");
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
