//! The git operations of a run.

use std::collections::HashSet;

use git_batch::{Commit, Merge, Operation, OperationKind, Strategy};

use super::board::{Board, Standing};
use crate::plan::Push;

/// The operations, and the index of the task that each belongs to; `None` for that of the base.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    pub(crate) commits: Vec<(usize, Operation)>,
    pub(crate) merges: Vec<(usize, Operation)>,
    pub(crate) pushes: Vec<(Option<usize>, Operation)>,
}

/// Makes the operations for the usable answers, in the order of the plan.
///
/// `base` says where the branch of a task starts; `None` goes on with a branch that exists.
pub(crate) fn make(
    board: &Board<'_>,
    onto: &str,
    base: impl Fn(&str) -> Option<String>,
) -> Operations {
    let push = board.plan.land.push;
    let mut operations = Operations::default();
    for (at, task, standing) in board.iter() {
        let Standing::Answered { edit, .. } = standing else { continue };
        let (branch, committed) = (task.branch(), format!("{}/commit", task.id));
        let message = edit.message.clone().unwrap_or_else(|| {
            format!("{}\n\nWritten by {} as {}.", task.id, task.model, task.kind)
        });
        let mut commit = Commit::new(&branch, message);
        commit.base = base(&branch);
        commit.changes.clone_from(&edit.changes);
        operations.commits.push((at, Operation::commit(&committed, commit)));
        let mut last = committed;
        if push != Push::Branches {
            let merged = format!("{}/merge", task.id);
            let merge = Merge {
                source: branch.clone(),
                into: onto.to_owned(),
                strategy: Strategy::Merge,
                message: Some(format!("Merge branch '{branch}' into {onto}").into()),
            };
            let kind = OperationKind::Merge(merge);
            let operation = Operation::new(&merged, kind).after(last);
            operations.merges.push((at, operation));
            last = merged;
        }
        if push != Push::Base {
            let pushed = Operation::push(format!("{}/push", task.id), &branch).after(last);
            operations.pushes.push((Some(at), pushed));
        }
    }
    if push != Push::Branches && !operations.merges.is_empty() {
        operations.pushes.push((None, Operation::push("base/push", onto)));
    }
    operations
}

impl Operations {
    /// Returns all operations in the order in which they are done.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Operation> {
        let commits = self.commits.iter().map(|(_, operation)| operation);
        let merges = self.merges.iter().map(|(_, operation)| operation);
        commits.chain(merges).chain(self.pushes.iter().map(|(_, operation)| operation))
    }

    /// Returns the merges and pushes of tasks whose commits are there; that of the base is one of them.
    pub(super) fn landing(&self, tasks: &[usize]) -> Vec<Operation> {
        let tasks: HashSet<usize> = tasks.iter().copied().collect();
        let commits: HashSet<&str> = self.commits.iter().map(|(_, op)| op.id.as_str()).collect();
        let merges = self.merges.iter().map(|(at, op)| (Some(at), op));
        let pushes = self.pushes.iter().map(|(at, op)| (at.as_ref(), op));
        merges
            .chain(pushes)
            .filter(|(at, _)| at.is_none_or(|at| tasks.contains(at)))
            .map(|(_, op)| {
                let mut op = op.clone();
                op.after.retain(|id| !commits.contains(id.as_str()));
                op
            })
            .collect()
    }

    /// Returns the commit of a task.
    pub(super) fn commit(&self, at: usize) -> Option<&Operation> {
        find(&self.commits, |task| *task, at)
    }

    /// Returns the merge of a task, where the base is pushed.
    pub(super) fn merge(&self, at: usize) -> Option<&Operation> {
        find(&self.merges, |task| *task, at)
    }

    /// Returns the push of the branch of a task, where it is pushed.
    pub(super) fn push(&self, at: usize) -> Option<&Operation> {
        find(&self.pushes, |task| task.unwrap_or(usize::MAX), at)
    }

    /// Returns the full name of the base at the remote, where it is pushed.
    pub(super) fn base_name(&self) -> Option<String> {
        match &self.base()?.kind {
            OperationKind::Push(push) => Some(format!("refs/heads/{}", push.branch)),
            _ => None,
        }
    }

    /// Returns the push of the base, where it is pushed: the last one.
    pub(super) fn base(&self) -> Option<&Operation> {
        self.pushes.last().filter(|(task, _)| task.is_none()).map(|(_, op)| op)
    }
}

/// Finds the operation of a task; they are in the order of the tasks.
fn find<T>(all: &[(T, Operation)], task: impl Fn(&T) -> usize, at: usize) -> Option<&Operation> {
    let place = all.binary_search_by_key(&at, |(key, _)| task(key)).ok()?;
    Some(&all[place].1)
}
