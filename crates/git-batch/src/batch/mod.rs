//! One batch: build all in memory, write once, move the local branches, push once.

mod again;
mod base;
mod capture;
mod catch_up;
mod circle;
mod commit;
mod deliver;
mod early;
mod finish;
mod gate;
mod group;
mod guards;
mod hooks;
mod landed;
mod merge;
mod push;
mod recovery;
mod references;
mod session;
mod steps;
mod submodules;
mod unchanged;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bstr::{BString, ByteSlice};
use gix::ObjectId;
use gix::refs::FullName;

pub(crate) use self::deliver::pause;
pub(crate) use self::session::{Ran, Session, Writer};
use crate::passage::{Bases, Passage, Question};
use crate::publish::{Ahead, RemoteState, Untracked};
use crate::record::{OpenRecord, Passed, References, Unchanged, wire_enum, wire_struct};
use crate::store::{CheckedOut, Keep, WorktreeMove, check_not_checked_out, clashes};
use crate::{
    Extent, LeftOut, OpError, OpErrorKind, Operation, OperationKind, Outcome, Receipt, guard,
};

/// What a batch knows while it is built.
struct Batch<'s, 'a> {
    session: &'s mut Session<'a>,
    operations: &'s [&'s Operation],
    /// Where each branch is pushed for the last time: the position in the order of execution, and
    /// the operation.
    last_push: BTreeMap<FullName, (usize, usize)>,
    checked_out: CheckedOut,
    branches: BTreeMap<FullName, Branch>,
    /// Where operations that ended before have brought branches that are checked out.
    landed: BTreeMap<FullName, ObjectId>,
    /// Why the remote could not be asked whether that is there still. It is not asked for each operation.
    landed_fault: Option<OpError>,
    remote: Option<RemoteState>,
    /// What is asked of the remote while the batch is built.
    ahead: Option<Ahead>,
    /// The remote as a push names it, once that was needed.
    named: Option<Untracked>,
    /// Where new branches start, as far as that was needed.
    bases: Bases,
    /// Until when to wait for worktrees that others work in, once one was looked at.
    worktree_end: Option<Instant>,
    /// The local branches by their names in lower case, once they were needed.
    folded: Option<BTreeMap<Vec<u8>, FullName>>,
    /// The branches that are pushed in a later step than the one that is being done.
    later: BTreeSet<FullName>,
    /// How much of it is done.
    extent: Extent,
    /// Keeps new packs until all is done.
    keeps: Vec<Keep>,
    /// What is written down of this batch, once it is built.
    record: Option<OpenRecord>,
    /// What operations of it name without containing it.
    references: References,
    /// What an earlier process pushed or was about to push in place of the tips of branches;
    /// `None` if this is no batch of an earlier process.
    resumed: Option<BTreeMap<FullName, ObjectId>>,
    /// What this process has sent of branches and nobody has said the end of: it may have arrived, and
    /// others may have gone on from there.
    sent: BTreeMap<FullName, Vec<ObjectId>>,
    /// The commits that were made again on top of what the remote had, each with the new one.
    remade: BTreeMap<ObjectId, ObjectId>,
    /// The same, with all that one commit was made again as.
    images: BTreeSet<(ObjectId, ObjectId)>,
    /// What the remote has confirmed of groups: what was wanted of each branch, and what was pushed.
    confirmed: BTreeMap<FullName, (ObjectId, ObjectId)>,
    /// Branches that were pushed, or may have been by an earlier process, and that nobody has said
    /// anything about: only where their operations have nothing else to go by.
    unheard: BTreeSet<FullName>,
    /// Whether a moved remote is left to whoever asked for the landing.
    is_landing: bool,
    /// The operations that have found nothing to change, because of others that are not done yet.
    unchanged: Unchanged,
    /// The others for branches that are new and have nothing of their own yet.
    starts: BTreeMap<FullName, usize>,
    /// What the gate has let pass, in this process or in the one that began the batch.
    passed: Passed,
    /// What is known of the gate's verdicts, while the batch is carried out.
    passage: Passage,
    /// Branches that the remote has moved and that wait for the gate to look at what they are now, and
    /// what it has to look at.
    waiting: BTreeSet<FullName>,
    questions: Vec<Question>,
    receipt: Receipt,
}

/// A branch as far as the batch got with it.
#[derive(Debug, Default)]
pub(crate) struct Branch {
    /// The commit before the batch; `None` if the branch is new.
    start: Option<ObjectId>,
    /// The commit now.
    tip: Option<ObjectId>,
    /// The local branch stays; only the remote is to move.
    remote_only: bool,
    /// It starts at what the remote has; the local branch of that name is another.
    starts_at_remote: bool,
    /// The operations that moved it, with the trees before and after each.
    steps: Vec<Step>,
    /// The commit that a new branch would start from, if operations found nothing to change.
    unchanged: Option<ObjectId>,
    /// An operation that could not be done on the branch.
    failed: Option<usize>,
    /// The worktree that all of `steps` were taken from, and that moves with the branch.
    worktree: Option<WorktreeMove>,
}

#[derive(Debug)]
pub(crate) struct Step {
    operation: usize,
    old_tree: ObjectId,
    new_tree: ObjectId,
    message: BString,
}

/// An operation that is built and waits for the refs to move.
#[derive(Debug)]
pub(crate) struct Pending {
    operation: usize,
    branch: FullName,
    commit: ObjectId,
    kind: PendingKind,
    /// Operations of this batch without which it must not land.
    needs: BTreeSet<usize>,
    /// What a commit from a worktree left out.
    left_out: Vec<LeftOut>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PendingKind {
    /// It lands when the local branch has moved.
    Local,
    /// It lands when the remote has confirmed a push of the branch.
    Remote,
    /// It is that push.
    Push,
}

wire_struct!(Branch {
    start,
    tip,
    remote_only,
    starts_at_remote,
    steps,
    unchanged,
    failed,
    worktree,
});
wire_struct!(Step { operation, old_tree, new_tree, message });
wire_struct!(Pending { operation, branch, commit, kind, needs, left_out });
wire_enum!(PendingKind { 0 => Local, 1 => Remote, 2 => Push });

impl Branch {
    /// The operations that it names.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = usize> {
        self.steps.iter().map(|step| step.operation).chain(self.failed)
    }
}

impl Pending {
    /// The operations that it names.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = usize> {
        self.needs.iter().copied().chain([self.operation])
    }

    /// The operation, if it is the one that makes the commit.
    pub(crate) fn made(&self, commit: ObjectId) -> Option<usize> {
        (self.kind != PendingKind::Push && self.commit == commit).then_some(self.operation)
    }
}

/// What building an operation gives: something that waits for the refs, or its end.
type Built = Result<Pending, Outcome>;

impl Batch<'_, '_> {
    fn build(&mut self, order: &[usize], outcomes: &mut [Option<Outcome>]) -> Vec<Pending> {
        let operations = self.operations;
        let index_of: BTreeMap<&str, usize> =
            operations.iter().enumerate().map(|(index, op)| (op.id.as_str(), index)).collect();
        let mut pending: Vec<Pending> = Vec::new();
        let mut waiting = BTreeSet::new();
        for (position, &index) in order.iter().enumerate() {
            let operation = operations[index];
            let mut needs = BTreeSet::new();
            let mut refused = None;
            for id in &operation.after {
                match index_of.get(id.as_str()) {
                    None => match self.session.earlier.succeeded(id) {
                        Some(true) => {}
                        Some(false) => refused = Some(Outcome::Skipped { because: id.clone() }),
                        None => refused = Some(unknown_dependency(id)),
                    },
                    Some(&other) => match &outcomes[other] {
                        Some(outcome) if outcome.is_success() => {
                            needs.extend(self.unchanged.get(&other));
                        }
                        None if waiting.contains(&other) => {
                            needs.insert(other);
                        }
                        _ => refused = Some(Outcome::Skipped { because: id.clone() }),
                    },
                }
                if refused.is_some() {
                    break;
                }
            }
            let built = match (refused, &operation.kind) {
                (Some(outcome), _) => Err(outcome),
                (None, OperationKind::Commit(commit)) => match &commit.worktree {
                    Some(from) => self.capture(index, commit, from),
                    None => self.commit(index, position, commit),
                },
                (None, OperationKind::Merge(merge)) => self.merge(index, position, merge),
                (None, OperationKind::Push(push)) => self.push(index, &push.branch),
            };
            match built {
                Ok(mut built) => {
                    built.needs.append(&mut needs);
                    waiting.insert(index);
                    if self.last_push.contains_key(&built.branch) {
                        self.ask_ahead();
                    }
                    pending.push(built);
                }
                Err(outcome) => {
                    if matches!(outcome, Outcome::NoChange { .. }) {
                        self.note_unchanged(index);
                    }
                    self.note_failure(index, &operation.kind, &outcome);
                    outcomes[index] = Some(outcome);
                }
            }
        }
        self.need_unchanged(&mut pending);
        // Before a gate looks at it: what does not come is not looked at.
        let gone = self.bind_groups(order, &mut pending, outcomes);
        self.skip(gone, &mut pending, outcomes);
        pending
    }

    /// A push publishes the branch as it is at this place in the order.
    fn push(&mut self, index: usize, branch: &str) -> Built {
        let name = branch_name(branch)?;
        let state = self.branch(&name)?;
        let Some(commit) = state.tip else {
            return Err(match (state.unchanged, state.failed) {
                (Some(commit), _) => Outcome::no_change(commit),
                (None, Some(other)) => {
                    Outcome::Skipped { because: self.operations[other].id.clone() }
                }
                (None, None) => unknown_branch(branch).into(),
            });
        };
        let needs = state.steps.last().map(|step| step.operation).into_iter().collect();
        let (kind, left_out) = (PendingKind::Push, Vec::new());
        Ok(Pending { operation: index, branch: name, commit, kind, needs, left_out })
    }

    /// Puts a new tip on a branch and says what has to happen for the operation to land.
    fn advance(
        &mut self,
        name: FullName,
        commit: ObjectId,
        step: Step,
        mut needs: BTreeSet<usize>,
    ) -> Built {
        let remote_only = self.checked_out.contains_key(&name);
        let operation = step.operation;
        let state = self.branch(&name)?;
        state.remote_only |= remote_only;
        needs.extend(state.steps.last().map(|step| step.operation));
        state.tip = Some(commit);
        state.steps.push(step);
        let kind = if state.remote_only { PendingKind::Remote } else { PendingKind::Local };
        Ok(Pending { operation, branch: name, commit, kind, needs, left_out: Vec::new() })
    }

    /// Refuses to move a branch under somebody's feet, unless only the remote is to move.
    fn check_movable(&mut self, name: &FullName, position: usize) -> Result<(), OpError> {
        let state = self.branch(name)?;
        if let Some(moved) = &state.worktree {
            return Err(OpError::new(
                OpErrorKind::CheckedOut,
                format!(
                    "branch {:?} moves with the worktree {} in this batch, which would not know \
                     of this change; do one of both later",
                    name.shorten(),
                    moved.checkout.top.display()
                ),
            ));
        }
        if self.last_push.get(name).is_some_and(|(push, _)| *push > position) {
            return Ok(());
        }
        check_not_checked_out(&self.checked_out, name, None)
    }

    /// Refuses a new branch that would be a folder of another one, or inside one.
    fn check_clash(&mut self, name: &FullName) -> Result<(), OpError> {
        self.check_branch_case(name)?;
        let is_inside = |inner: &FullName, outer: &FullName| {
            inner
                .as_bstr()
                .strip_prefix(outer.as_bstr().as_bytes())
                .is_some_and(|rest| rest.starts_with(b"/"))
        };
        let in_batch = self
            .branches
            .iter()
            .filter(|(_, state)| state.tip.is_some())
            .map(|(other, _)| other)
            .find(|other| is_inside(other, name) || is_inside(name, other))
            .cloned();
        match in_batch.map_or_else(|| self.session.store.clashing_branch(name), |b| Ok(Some(b)))? {
            None => Ok(()),
            Some(other) => Err(clashes(name, &other)),
        }
    }

    /// The operations that changed one of `paths` on the branch in this batch.
    fn who_changed(&self, name: &FullName, paths: &[BString]) -> Result<Vec<String>, OpError> {
        let mut who = Vec::new();
        for step in self.branches.get(name).map_or(&[][..], |branch| &branch.steps) {
            let changed = self.session.store.diff(step.old_tree, step.new_tree)?.paths;
            if paths.iter().any(|path| changed.contains(path)) {
                who.push(self.operations[step.operation].id.clone());
            }
        }
        Ok(who)
    }
}

fn last_pushes(operations: &[&Operation], order: &[usize]) -> BTreeMap<FullName, (usize, usize)> {
    let pushed = |(position, &index): (usize, &usize)| match &operations[index].kind {
        OperationKind::Push(push) => {
            guard::refname::branch(&push.branch).ok().map(|name| (name, (position, index)))
        }
        _ => None,
    };
    order.iter().enumerate().filter_map(pushed).collect()
}

fn branch_name(branch: &str) -> Result<FullName, OpError> {
    guard::refname::branch(branch)
        .map_err(|error| OpError::new(OpErrorKind::InvalidBranch, error.to_string()))
}

fn unknown_branch(branch: &str) -> OpError {
    OpError::new(OpErrorKind::UnknownBranch, format!("there is no local branch {branch:?}"))
}

fn unknown_dependency(id: &str) -> Outcome {
    Outcome::Failed(OpError::new(
        OpErrorKind::UnknownDependency,
        format!("`after` names {id:?}, which is no operation of this input"),
    ))
}

impl From<OpError> for Outcome {
    fn from(error: OpError) -> Outcome {
        Outcome::Failed(error)
    }
}

/// Values for the tests of what is written down.
#[cfg(test)]
pub(crate) fn samples(branch: FullName, commit: ObjectId) -> (Pending, Branch) {
    let kind = PendingKind::Local;
    let needs = BTreeSet::from([1]);
    let pending = Pending { operation: 0, branch, commit, kind, needs, left_out: Vec::new() };
    (pending, Branch { tip: Some(commit), failed: Some(1), ..Branch::default() })
}
