//! What the same input does again of a batch that is done.

use std::collections::{BTreeMap, BTreeSet};

use super::circle::endless;
use crate::{Operation, OperationKind, Outcome};

/// What is tried again of a batch that is done: what failed here, what the remote refused, what was
/// skipped because of those or of each other, and what reads a branch after an operation that is tried
/// again.
pub(super) fn to_try_again(
    operations: &[&Operation],
    order: &[usize],
    ends: &BTreeMap<usize, Outcome>,
) -> Vec<usize> {
    let mut again: BTreeSet<usize> = round(operations, ends);
    let mut ids: BTreeSet<&str> =
        again.iter().map(|&index| operations[index].id.as_str()).collect();
    loop {
        let before = again.len();
        let mut written: BTreeSet<&str> = BTreeSet::new();
        for &index in order {
            let Some(end) = ends.get(&index) else { continue };
            let (reads, writes) = match &operations[index].kind {
                OperationKind::Commit(commit) => (None, Some(&commit.branch)),
                OperationKind::Merge(merge) => (Some(&merge.source), Some(&merge.into)),
                OperationKind::Push(push) => (Some(&push.branch), None),
            };
            let is_again = match end {
                Outcome::Landed { .. } | Outcome::NoChange { .. } | Outcome::Superseded => {
                    reads.is_some_and(|branch| written.contains(branch.as_str()))
                }
                // A user who asks again may have changed what the remote has to say.
                Outcome::Rejected { .. } | Outcome::Conflict { .. } | Outcome::Failed(_) => true,
                // By an operation of another batch it may be.
                Outcome::Skipped { because } => {
                    ids.contains(because.as_str())
                        || !order.iter().any(|index| operations[*index].id == *because)
                }
            };
            if is_again {
                again.insert(index);
                ids.insert(operations[index].id.as_str());
                written.extend(writes.map(String::as_str));
            }
        }
        if again.len() == before {
            break;
        }
    }
    order.iter().copied().filter(|index| again.contains(index)).collect()
}

/// What was skipped because of others that were skipped, and so on without an end: they have skipped each
/// other, and nothing else will have them tried again.
fn round(operations: &[&Operation], ends: &BTreeMap<usize, Outcome>) -> BTreeSet<usize> {
    let index_of: BTreeMap<&str, usize> =
        ends.keys().map(|&index| (operations[index].id.as_str(), index)).collect();
    endless(ends.iter().filter_map(|(&index, end)| match end {
        Outcome::Skipped { because } => Some((index, *index_of.get(because.as_str())?)),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;

    #[test]
    fn what_has_skipped_each_other_is_tried_again() {
        let operations = ["a", "b", "c", "d", "e", "f"].map(|id| Operation::push(id, id));
        let operations: Vec<&Operation> = operations.iter().collect();
        let skipped = |because: &str| Outcome::Skipped { because: because.to_owned() };
        let ends = [
            skipped("b"),
            skipped("a"),
            // Behind the two of them.
            skipped("b"),
            // Behind one that is known to be done.
            skipped("e"),
            Outcome::Superseded,
            // By itself.
            skipped("f"),
        ];
        let ends: BTreeMap<usize, Outcome> = ends.into_iter().enumerate().collect();
        let order: Vec<usize> = (0..6).collect();
        assert_eq!(to_try_again(&operations, &order, &ends), [0, 1, 2, 5]);
    }
}
