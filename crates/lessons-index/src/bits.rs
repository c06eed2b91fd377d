//! Walking over bits.

use crate::draft::narrow;

/// Returns the numbers of the bits that are set in the word that is number `at` of many.
pub(crate) fn ones(mut word: u64, at: usize) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros();
            word &= word - 1;
            narrow(at * 64) + bit
        })
    })
}
