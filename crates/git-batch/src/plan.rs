//! The order in which operations run, and which of them share a push.

use std::collections::{BTreeMap, BTreeSet};

use crate::{OpError, OpErrorKind, Operation, OperationKind};

/// Indexes into the input, by the batches that they run in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Each inner list is one batch: one build, one push. In order of execution.
    pub(crate) batches: Vec<Vec<usize>>,
    /// Operations that can never run.
    pub(crate) refused: Vec<(usize, OpError)>,
}

/// Orders `operations`: first come, first served on each branch, and nothing before what it is
/// `after`. What waits for the outcome of a push goes into a later batch than that push.
/// Otherwise all share one batch, up to `max_items`.
pub(crate) fn plan(operations: &[&Operation], max_items: usize) -> Plan {
    let edges = Edges::of(operations);
    let mut blockers: Vec<usize> = edges.needs.iter().map(BTreeSet::len).collect();
    let mut followers = vec![Vec::new(); operations.len()];
    for (index, needs) in edges.needs.iter().enumerate() {
        for &need in needs {
            followers[need].push(index);
        }
    }

    let mut ready: BTreeSet<usize> =
        (0..operations.len()).filter(|&index| blockers[index] == 0).collect();
    let mut stage = vec![0_usize; operations.len()];
    let mut by_stage: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    while let Some(index) = ready.pop_first() {
        by_stage.entry(stage[index]).or_default().push(index);
        for &follower in &followers[index] {
            let waits_for_push = matches!(operations[index].kind, OperationKind::Push(_))
                && operations[follower].after.contains(&operations[index].id);
            stage[follower] = stage[follower].max(stage[index] + usize::from(waits_for_push));
            blockers[follower] -= 1;
            if blockers[follower] == 0 {
                ready.insert(follower);
            }
        }
    }

    let refused = (0..operations.len())
        .filter(|&index| blockers[index] > 0)
        .map(|index| {
            let message = format!(
                "operation {:?} waits for itself through `after` and the order of its branch",
                operations[index].id
            );
            (index, OpError::new(OpErrorKind::Cycle, message))
        })
        .collect();
    let batches = by_stage
        .into_values()
        .flat_map(|stage| stage.chunks(max_items.max(1)).map(<[usize]>::to_vec).collect::<Vec<_>>())
        .collect();
    Plan { batches, refused }
}

/// For each operation, the ones that come before it.
struct Edges {
    needs: Vec<BTreeSet<usize>>,
}

/// Who touched a branch so far.
#[derive(Default)]
struct Touched {
    writer: Option<usize>,
    readers: Vec<usize>,
}

impl Edges {
    fn of(operations: &[&Operation]) -> Edges {
        let by_id: BTreeMap<&str, usize> =
            operations.iter().enumerate().map(|(index, op)| (op.id.as_str(), index)).collect();
        let mut branches: BTreeMap<&str, Touched> = BTreeMap::new();
        let mut needs = vec![BTreeSet::new(); operations.len()];
        for (index, op) in operations.iter().enumerate() {
            needs[index].extend(op.after.iter().filter_map(|id| by_id.get(id.as_str()).copied()));
            let (reads, writes) = touches(&op.kind);
            if let Some(branch) = reads {
                let touched = branches.entry(branch).or_default();
                needs[index].extend(touched.writer);
                touched.readers.push(index);
            }
            if let Some(branch) = writes {
                let touched = branches.entry(branch).or_default();
                needs[index].extend(touched.writer.replace(index));
                needs[index].extend(touched.readers.drain(..).filter(|&reader| reader != index));
            }
        }
        Edges { needs }
    }
}

/// The branch that an operation reads and the one that it moves.
fn touches(kind: &OperationKind) -> (Option<&str>, Option<&str>) {
    match kind {
        OperationKind::Commit(commit) => (commit.base.as_deref(), Some(&commit.branch)),
        OperationKind::Merge(merge) => (Some(&merge.source), Some(&merge.into)),
        OperationKind::Push(push) => (Some(&push.branch), None),
    }
}

#[cfg(test)]
mod tests {
    use super::plan;
    use crate::{Commit, OpErrorKind, Operation};

    fn commit(id: &str, branch: &str) -> Operation {
        Operation::commit(id, Commit::new(branch, "m"))
    }

    fn refs(ops: &[Operation]) -> Vec<&Operation> {
        ops.iter().collect()
    }

    #[test]
    fn input_order_holds_where_nothing_else_is_asked() {
        let ops = [commit("a", "x"), Operation::push("b", "x"), commit("c", "y")];
        assert_eq!(plan(&refs(&ops), 100).batches, [vec![0, 1, 2]]);
    }

    #[test]
    fn after_runs_later_and_the_branch_stays_in_order() {
        // "b" waits for "c"; "d" is behind "b" on the same branch.
        let ops = [commit("b", "x").after("c"), commit("c", "y"), commit("d", "x")];
        assert_eq!(plan(&refs(&ops), 100).batches, [vec![1, 0, 2]]);
    }

    #[test]
    fn what_waits_for_a_push_gets_a_batch_of_its_own() {
        let ops = [commit("a", "x"), Operation::push("p", "x"), commit("b", "y").after("p")];
        assert_eq!(plan(&refs(&ops), 100).batches, [vec![0, 1], vec![2]]);
    }

    #[test]
    fn a_cycle_takes_only_its_members_and_what_follows() {
        let ops = [commit("a", "x").after("b"), commit("b", "y").after("a"), commit("c", "z")];
        let plan = plan(&refs(&ops), 100);
        assert_eq!(plan.batches, [vec![2]]);
        let refused: Vec<_> = plan.refused.iter().map(|(i, e)| (*i, e.kind)).collect();
        assert_eq!(refused, [(0, OpErrorKind::Cycle), (1, OpErrorKind::Cycle)]);
    }

    #[test]
    fn max_items_cuts_batches() {
        let ops: Vec<_> = (0..5).map(|n| commit(&n.to_string(), &n.to_string())).collect();
        assert_eq!(plan(&refs(&ops), 2).batches, [vec![0, 1], vec![2, 3], vec![4]]);
    }
}
