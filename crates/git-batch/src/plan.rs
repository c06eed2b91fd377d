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
/// Otherwise all share one batch, up to `max_items`; a group is never cut.
pub(crate) fn plan(operations: &[&Operation], max_items: usize) -> Plan {
    let edges = Edges::of(operations);
    let order = edges.order();
    let stage = stages(operations, &edges, &order);
    let last = operations.len();
    let mut runs: Vec<bool> = vec![false; operations.len()];
    let mut by_stage: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for index in order.into_iter().filter(|&index| stage[index] <= last) {
        runs[index] = true;
        by_stage.entry(stage[index]).or_default().push(index);
    }
    let refused = (0..operations.len())
        .filter(|&index| !runs[index])
        .map(|index| {
            let message = format!(
                "operation {:?} waits for itself through `after`, its group and the order of its \
                 branch",
                operations[index].id
            );
            (index, OpError::new(OpErrorKind::Cycle, message))
        })
        .collect();
    let batches =
        by_stage.into_values().flat_map(|stage| chunks(operations, stage, max_items)).collect();
    Plan { batches, refused }
}

/// The batch that each operation has to be in, counted from the first. What can be in none, because
/// two groups wait for each other's pushes, gets a number that is larger than any can be.
fn stages(operations: &[&Operation], edges: &Edges, order: &[usize]) -> Vec<usize> {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for &index in order {
        if let Some(group) = &operations[index].group {
            groups.entry(group).or_default().push(index);
        }
    }
    let mut stage = vec![0_usize; operations.len()];
    loop {
        let before = stage.clone();
        for &index in order {
            let op = operations[index];
            for &need in &edges.needs[index] {
                let other = operations[need];
                let waits_for_push = matches!(other.kind, OperationKind::Push(_))
                    && op.after.contains(&other.id)
                    && (op.group.is_none() || op.group != other.group);
                stage[index] = stage[index].max(stage[need] + usize::from(waits_for_push));
            }
            stage[index] = stage[index].min(operations.len() + 1);
        }
        for members in groups.values() {
            let last = members.iter().map(|&index| stage[index]).max().unwrap_or_default();
            for &index in members {
                stage[index] = last;
            }
        }
        if stage == before {
            return stage;
        }
    }
}

/// Cuts a batch where it is long enough and no group has begun that has not ended.
fn chunks(operations: &[&Operation], stage: Vec<usize>, max_items: usize) -> Vec<Vec<usize>> {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for group in stage.iter().filter_map(|&index| operations[index].group.as_deref()) {
        *left.entry(group).or_default() += 1;
    }
    let sizes = left.clone();
    let mut open = 0_usize;
    let mut chunks = Vec::new();
    let mut chunk = Vec::new();
    for index in stage {
        if chunk.len() >= max_items.max(1) && open == 0 {
            chunks.push(std::mem::take(&mut chunk));
        }
        chunk.push(index);
        if let Some(group) = operations[index].group.as_deref()
            && let Some(count) = left.get_mut(group)
        {
            open += usize::from(Some(&*count) == sizes.get(group));
            *count -= 1;
            open -= usize::from(*count == 0);
        }
    }
    chunks.extend((!chunk.is_empty()).then_some(chunk));
    chunks
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

    /// All operations but those in a cycle, in the order of the input where nothing else is asked.
    fn order(&self) -> Vec<usize> {
        let mut blockers: Vec<usize> = self.needs.iter().map(BTreeSet::len).collect();
        let mut followers = vec![Vec::new(); self.needs.len()];
        for (index, needs) in self.needs.iter().enumerate() {
            for &need in needs {
                followers[need].push(index);
            }
        }
        let mut ready: BTreeSet<usize> =
            (0..self.needs.len()).filter(|&index| blockers[index] == 0).collect();
        let mut order = Vec::new();
        while let Some(index) = ready.pop_first() {
            order.push(index);
            for &follower in &followers[index] {
                blockers[follower] -= 1;
                if blockers[follower] == 0 {
                    ready.insert(follower);
                }
            }
        }
        order
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
    fn a_group_is_in_one_batch() {
        let ops = [
            commit("a", "x").in_group("g"),
            Operation::push("p", "y"),
            commit("b", "z").in_group("g").after("p"),
            commit("c", "w"),
        ];
        assert_eq!(plan(&refs(&ops), 1).batches, [vec![1], vec![3], vec![0, 2]]);
        let inside = [Operation::push("p", "x").in_group("g"), commit("b", "y").in_group("g")];
        assert_eq!(plan(&refs(&inside), 1).batches, [vec![0, 1]]);
    }

    #[test]
    fn groups_that_wait_for_each_others_push_are_a_cycle() {
        let ops = [
            Operation::push("a1", "a").in_group("a"),
            Operation::push("b1", "b").in_group("b"),
            commit("a2", "c").in_group("a").after("b1"),
            commit("b2", "d").in_group("b").after("a1"),
            commit("free", "e"),
        ];
        let plan = plan(&refs(&ops), 100);
        assert_eq!(plan.batches, [vec![4]]);
        assert_eq!(plan.refused.len(), 4);
    }

    #[test]
    fn max_items_cuts_batches() {
        let ops: Vec<_> = (0..5).map(|n| commit(&n.to_string(), &n.to_string())).collect();
        assert_eq!(plan(&refs(&ops), 2).batches, [vec![0, 1], vec![2, 3], vec![4]]);
    }
}
