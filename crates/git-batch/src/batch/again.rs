//! What the same input does again of a batch that is done.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Operation, OperationKind, Outcome};

/// What is tried again of a batch that is done: what failed here, what the remote refused, what was
/// skipped because of those, and what reads a branch after an operation that is tried again.
pub(super) fn to_try_again(
    operations: &[&Operation],
    order: &[usize],
    ends: &BTreeMap<usize, Outcome>,
) -> Vec<usize> {
    let mut again: BTreeSet<usize> = BTreeSet::new();
    let mut ids: BTreeSet<&str> = BTreeSet::new();
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
