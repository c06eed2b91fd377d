//! Lessons that have a bit in each of some rows.

use std::ops::Range;

use crate::draft::narrow;

/// Most rows: one for each exact field.
const MAX_ROWS: usize = 4;

/// Words that are looked at together.
const TOGETHER: usize = 8;

/// Walks over the lessons of a range that have a bit in each of some rows.
pub(crate) struct Common<'s> {
    rows: [&'s [u64]; MAX_ROWS],
    count: usize,
    /// Where the range ends.
    end: usize,
    /// The word in hand, and the lessons of it that are left.
    at: usize,
    left: u64,
}

impl<'s> Common<'s> {
    /// Takes up to [`MAX_ROWS`] rows, of which each is long enough for the range.
    pub(crate) fn new(
        first: &'s [u64],
        others: impl Iterator<Item = &'s [u64]>,
        docs: Range<u32>,
    ) -> Self {
        let (start, end) = (docs.start as usize, docs.end as usize);
        let words = end.div_ceil(64);
        let mut common =
            Self { rows: [&first[..words]; MAX_ROWS], count: 1, end, at: start / 64, left: 0 };
        for row in others {
            common.rows[common.count] = &row[..words];
            common.count += 1;
        }
        if start < end {
            common.left = common.word(common.at) & u64::MAX << (start % 64);
        }
        common
    }

    fn word(&self, at: usize) -> u64 {
        self.rows[..self.count].iter().fold(u64::MAX, |word, row| word & row[at])
    }

    /// Returns the next place with a word that is not empty.
    fn next_word(&self) -> Option<usize> {
        match self.rows[..self.count] {
            [a, b] => find(self.at + 1, [a, b]),
            [a, b, c] => find(self.at + 1, [a, b, c]),
            // Where there are fewer the first is there again.
            _ => find(self.at + 1, self.rows),
        }
    }
}

/// Finds the first word from a place on that is in common, of rows that are of one length.
#[inline]
fn find<const ROWS: usize>(from: usize, rows: [&[u64]; ROWS]) -> Option<usize> {
    let rest = rows.map(|row| row.get(from..).unwrap_or_default().as_chunks::<TOGETHER>());
    let empty = rest[0].0.len();
    let is_common = |at: usize| {
        let mut words = [u64::MAX; TOGETHER];
        for (chunks, _) in &rest {
            words.iter_mut().zip(&chunks[at]).for_each(|(word, other)| *word &= other);
        }
        words.iter().fold(0, |any, word| any | word) != 0
    };
    let chunk = (0..empty).find(|at| is_common(*at)).unwrap_or(empty);
    let start = from + chunk * TOGETHER;
    let word = |at: &usize| rows.iter().fold(u64::MAX, |word, row| word & row[*at]) != 0;
    (start..rows[0].len()).find(word)
}

impl Iterator for Common<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.left == 0 {
            self.at = self.next_word()?;
            self.left = self.word(self.at);
        }
        let doc = self.at * 64 + self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        (doc < self.end).then(|| narrow(doc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_rows_have_in_common_is_found_in_any_range() {
        const LEN: u32 = 2_500;
        let row = |every: u32| {
            let mut row = vec![0_u64; LEN.div_ceil(64) as usize];
            (0..LEN)
                .step_by(every as usize)
                .for_each(|doc| row[doc as usize / 64] |= 1 << (doc % 64));
            row
        };
        for steps in [&[1][..], &[7], &[2, 3], &[1, 97], &[5, 7, 64], &[2, 3, 5, 7], &[33, 64]] {
            let rows: Vec<Vec<u64>> = steps.iter().map(|every| row(*every)).collect();
            for range in [0..LEN, 0..0, 1..2, 63..65, 64..128, 700..701, 129..2_400, 2_499..LEN] {
                let common =
                    Common::new(&rows[0], rows[1..].iter().map(|row| &**row), range.clone());
                let found: Vec<u32> = common.collect();
                let is_in_all = |doc: &u32| steps.iter().all(|every| doc.is_multiple_of(*every));
                let wanted: Vec<u32> = range.clone().filter(is_in_all).collect();
                assert_eq!(found, wanted, "{steps:?} in {range:?}");
            }
        }
    }
}
