//! Which lessons of a page can have a value in an exact field.

use crate::hash;
use crate::lesson::Lesson;
use crate::record::Field;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::tail::PAGE;

/// Words of a row: a bit for each lesson of a page.
pub(crate) const WORDS: usize = PAGE.div_ceil(64);

/// The texts of a field fall into so many groups by their hash: a bit of a word each.
const GROUPS: usize = 64;

/// Is a row of bits for each group of texts of each field.
///
/// A query with exact fields looks at the lessons whose bits are set in a row of each, so that it
/// costs the same few lines of memory however many lessons wait for their segment. A bit that is
/// set is a reason to look: other texts are in the same group.
pub(crate) struct Marks(Box<[AtomicU64]>);

/// Is what a query asks for: for each field the groups of its texts, or `None` where any text will
/// do.
#[derive(Clone, Copy)]
pub(crate) struct Wanted([Option<u64>; 4]);

impl Wanted {
    pub(crate) fn of(exact: &[Option<Vec<String>>; 4]) -> Self {
        let groups = |texts: &Vec<String>| texts.iter().fold(0, |all, text| all | 1 << group(text));
        Self(exact.each_ref().map(|texts| texts.as_ref().map(groups)))
    }

    /// Wants every lesson.
    pub(crate) const ALL: Self = Self([None; 4]);
}

impl Marks {
    pub(crate) fn new() -> Self {
        Self((0..Field::ALL.len() * GROUPS * WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Marks the lesson of a slot, before a snapshot with that slot is published.
    pub(crate) fn set(&self, slot: usize, lesson: &Lesson) {
        for field in Field::ALL {
            let row = self.row(field, group(lesson.exact(field)));
            row[slot / 64].fetch_or(1 << (slot % 64), Relaxed);
        }
    }

    /// Returns a bit for each slot that can hold what is wanted. Those behind what a snapshot has
    /// may be there already.
    pub(crate) fn of(&self, wanted: Wanted) -> [u64; WORDS] {
        let mut common = [u64::MAX; WORDS];
        for (field, groups) in Field::ALL.into_iter().zip(wanted.0) {
            let Some(mut groups) = groups else { continue };
            let mut any = [0; WORDS];
            while groups != 0 {
                let row = self.row(field, groups.trailing_zeros() as usize);
                groups &= groups - 1;
                any.iter_mut().zip(row).for_each(|(any, word)| *any |= word.load(Relaxed));
            }
            common.iter_mut().zip(any).for_each(|(common, any)| *common &= any);
        }
        common
    }

    fn row(&self, field: Field, group: usize) -> &[AtomicU64] {
        let at = (field as usize * GROUPS + group) * WORDS;
        &self.0[at..at + WORDS]
    }
}

fn group(text: &str) -> usize {
    usize::try_from(hash::of(text) >> 58).expect("six bits")
}
