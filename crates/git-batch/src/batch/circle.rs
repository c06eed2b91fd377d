//! What waits for itself.

use std::collections::{BTreeMap, BTreeSet};

/// What has a way into a circle, or is on one, where each pair leads from the first to the second: all
/// but that from which each way ends.
pub(super) fn endless(ways: impl IntoIterator<Item = (usize, usize)>) -> BTreeSet<usize> {
    let mut before: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut left: BTreeMap<usize, usize> = BTreeMap::new();
    for (from, to) in ways {
        before.entry(to).or_default().push(from);
        *left.entry(from).or_default() += 1;
        left.entry(to).or_default();
    }
    let has_no_way = |(&at, &ways): (&usize, &usize)| (ways == 0).then_some(at);
    let mut ends: Vec<usize> = left.iter().filter_map(has_no_way).collect();
    while let Some(end) = ends.pop() {
        left.remove(&end);
        for from in before.remove(&end).into_iter().flatten() {
            if let Some(ways) = left.get_mut(&from) {
                *ways -= 1;
                if *ways == 0 {
                    ends.push(from);
                }
            }
        }
    }
    left.into_keys().collect()
}

#[cfg(test)]
mod tests {
    use super::endless;

    #[test]
    fn what_leads_into_a_circle_has_no_end() {
        assert_eq!(endless([]), [].into());
        assert_eq!(endless([(0, 1), (1, 2), (0, 2)]), [].into());
        // Two that lead to each other, one before them, one behind them, and one to itself.
        let ways = [(0, 1), (1, 0), (2, 1), (1, 3), (4, 4), (5, 3)];
        assert_eq!(endless(ways), [0, 1, 2, 4].into());
        // The same way twice.
        assert_eq!(endless([(0, 1), (0, 1)]), [].into());
    }
}
