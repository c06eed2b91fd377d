//! One batch on its way through the gate: built, looked at, and built again without what fails.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::refs::FullName;

use crate::gate::{self, Ran, Scratch, Verdicts};
use crate::lock;
use crate::publish::scrub;
use crate::repository::Repository;
use crate::store::{Signed, Signer, Store};
use crate::{Class, OpError, OpErrorKind, Operation, OperationKind, Outcome, Receipt, guard};

/// How often a branch may change while the gate runs.
const MAX_CHANGES: usize = 5;

/// A tree that the gate has to look at, in its folder.
pub(crate) type Question = (ObjectId, Scratch);

/// What has to be remembered while the gate runs and nothing is locked.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    /// What the gate says, if there is one.
    pub(crate) verdicts: Option<Verdicts>,
    /// Operations that are not run again: what the gate keeps out, and what is done.
    pub(crate) ended: BTreeMap<usize, Outcome>,
    /// The local branches as they were when they were first looked at: what others do to them while
    /// the gate runs is not built on, so that there is an end.
    pub(crate) tips: BTreeMap<FullName, Option<ObjectId>>,
    /// Where new branches start: the same each time it is built.
    pub(crate) bases: Bases,
    /// Who makes its commits, and when: the same each time it is built.
    pub(crate) signer: Option<Signer>,
    /// The signatures of its commits.
    pub(crate) signed: Signed,
    /// The trees that all of a branch came to.
    asked: Trees,
    /// Those of branches that the remote has moved.
    moved: Trees,
    /// What it has cost since the last receipt.
    pub(crate) spent: Receipt,
}

/// Commits that bases name which are no branches of the batch.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    /// The remote's default branch.
    pub(crate) default: Option<ObjectId>,
    pub(crate) named: BTreeMap<String, ObjectId>,
}

/// What the gate has to say of a batch that is built.
#[derive(Debug, Default)]
pub(crate) enum Judged {
    /// It has been carried out.
    #[default]
    Passes,
    /// The gate has to look at these trees first.
    Ask(Vec<Question>),
    /// The batch has to be done without these operations.
    LeaveOut(Vec<(usize, Outcome)>),
    /// It has been carried out, but for these branches, which the remote has moved: the gate has to look
    /// at what they are together with that.
    Moved(BTreeSet<FullName>, Vec<Question>),
    /// Nothing of it can be done.
    Stop(Outcome),
}

/// The last tree of each branch, and how many there were.
#[derive(Debug, Default)]
struct Trees(BTreeMap<FullName, (ObjectId, usize)>);

impl Trees {
    /// Gives how many there were of the branch by now. One that waits for its turn is the same still.
    fn note(&mut self, branch: &FullName, tree: ObjectId) -> usize {
        let (last, count) = self.0.entry(branch.clone()).or_insert((tree, 1));
        if *last != tree {
            (*last, *count) = (tree, *count + 1);
        }
        *count
    }
}

impl Judged {
    /// Whether the batch has been carried out, if not with all branches.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Passes | Self::Moved(..))
    }
}

impl Passage {
    pub(crate) fn new(repository: &Repository) -> Passage {
        let state = lock::state_of(&repository.common_dir);
        let gate = repository.settings.gate.as_ref();
        Passage { verdicts: gate.map(|gate| Verdicts::of(gate, &state)), ..Passage::default() }
    }

    /// Notes the local branches as they are now that the batch has been carried out but for what waits.
    pub(crate) fn hold_tips(&mut self, store: &Store) {
        for (name, tip) in &mut self.tips {
            // One that cannot be read is none that can be moved.
            *tip = store.branch_tip(name).unwrap_or(*tip);
        }
    }

    /// Notes that the gate has to look at all of a branch; an error is that it has changed too often.
    pub(crate) fn note_asked(&mut self, branch: &FullName, tree: ObjectId) -> Result<(), Outcome> {
        if self.asked.note(branch, tree) <= MAX_CHANGES + self.ended.len() {
            return Ok(());
        }
        Err(restless(&format!("the branch {:?} changed", branch.shorten())))
    }

    /// Notes that the gate has to look at what a branch and what the remote has got make together; an
    /// error is that the remote has moved too often.
    pub(crate) fn note_moved(&mut self, branch: &FullName, tree: ObjectId) -> Result<(), Outcome> {
        if self.moved.note(branch, tree) <= MAX_CHANGES {
            return Ok(());
        }
        Err(restless(&format!("the remote's branch {:?} moved", branch.shorten())))
    }

    /// Lets the gate look at trees. Nothing is to be locked meanwhile.
    pub(crate) fn ask(&mut self, questions: Vec<Question>) -> Result<(), OpError> {
        let Some(verdicts) = &mut self.verdicts else { return Ok(()) };
        for (tree, scratch) in questions {
            if verdicts.gate().is_stopped() {
                return Err(OpError::new(OpErrorKind::Gate, "the gate was stopped"));
            }
            self.spent.gate_runs += 1;
            let started = std::time::Instant::now();
            let ran = run(verdicts, &scratch)?;
            self.spent.seconds += started.elapsed();
            verdicts.note(tree, ran);
        }
        Ok(())
    }

    /// Forgets all outcomes but those that are ends: of a batch that was not carried out they mean nothing,
    /// and of one that was, what waits has none yet.
    pub(crate) fn keep_ends(&self, order: &[usize], outcomes: &mut [Option<Outcome>]) {
        for &index in order {
            outcomes[index] = self.ended.get(&index).cloned();
        }
    }

    /// Keeps the ends of all operations but those that wait for the gate to look at `branches`, with
    /// what was skipped because of them: only these are done again.
    pub(crate) fn end_all_but(
        &mut self,
        branches: &BTreeSet<FullName>,
        operations: &[&Operation],
        order: &[usize],
        outcomes: &[Option<Outcome>],
    ) {
        let mut redone = BTreeSet::new();
        loop {
            let before = redone.len();
            for &index in order {
                let is_redone = match &outcomes[index] {
                    Some(Outcome::Rejected { class: Class::Transient, .. }) => {
                        branch_of(operations[index]).is_some_and(|name| branches.contains(&name))
                    }
                    Some(Outcome::Skipped { because }) => {
                        redone.iter().any(|index: &usize| operations[*index].id == *because)
                    }
                    _ => false,
                };
                if is_redone {
                    redone.insert(index);
                }
            }
            if redone.len() == before {
                break;
            }
        }
        let kept = order.iter().filter(|index| !redone.contains(index));
        self.ended.extend(kept.filter_map(|index| Some((*index, outcomes[*index].clone()?))));
    }
}

/// The end of what never rests.
fn restless(what: &str) -> Outcome {
    let reason = format!("{what} {MAX_CHANGES} times while the gate ran");
    Outcome::Rejected { class: Class::Transient, reason }
}

/// The branch that an operation moves, here or at the remote.
pub(crate) fn branch_of(operation: &Operation) -> Option<FullName> {
    let name = match &operation.kind {
        OperationKind::Commit(commit) => &commit.branch,
        OperationKind::Merge(merge) => &merge.into,
        OperationKind::Push(push) => &push.branch,
    };
    guard::refname::branch(name).ok()
}

/// Runs the command once.
fn run(verdicts: &Verdicts, scratch: &Scratch) -> Result<Ran, OpError> {
    gate::run(verdicts.gate(), scratch).map_err(|error| {
        let command = scrub::line(verdicts.gate().to_string().as_bytes());
        OpError::new(OpErrorKind::Gate, format!("the gate `{command}` cannot be run: {error}"))
    })
}
