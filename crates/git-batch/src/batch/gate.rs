//! Asks the gate before a batch is carried out.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::refs::FullName;

use super::{Batch, Pending, PendingKind};
use crate::gate::{Scratch, Verdict, Verdicts};
use crate::passage::{self, Judged, Passage};
use crate::{Class, Gate, OpError, OpErrorKind, Outcome};

/// How many trees are checked out at once.
const MAX_QUESTIONS: usize = 8;

/// What is pushed of a branch: how many of its steps, and by which operation.
type Pushed = BTreeMap<FullName, (usize, usize)>;

impl Batch<'_, '_> {
    /// Builds on the branches as they were when the gate was asked first.
    pub(super) fn hold_tips(&mut self, passage: &Passage<'_>) {
        for (name, &tip) in &passage.tips {
            let branch = super::Branch { start: tip, tip, ..super::Branch::default() };
            self.branches.insert(name.clone(), branch);
        }
    }

    /// Says whether the gate lets a batch pass that is built: in a landing the branch `onto`, else each
    /// that is pushed.
    pub(super) fn judge(
        &mut self,
        pending: &[Pending],
        onto: Option<&FullName>,
        passage: &mut Passage<'_>,
    ) -> Judged {
        if passage.verdicts.is_none() {
            return Judged::Passes;
        }
        for (name, branch) in &self.branches {
            if !branch.starts_at_remote {
                passage.tips.entry(name.clone()).or_insert(branch.start);
            }
        }
        let mut left_out = Vec::new();
        let mut trees = BTreeSet::new();
        for (name, (steps, push)) in pushed(pending) {
            if onto.is_some_and(|onto| *onto != name) {
                continue;
            }
            match self.judge_branch(&name, steps, passage) {
                Ok(Verdict::Passes) => {}
                // The others have their turn when these are judged.
                Ok(Verdict::Ask(_)) if trees.len() == MAX_QUESTIONS => {}
                Ok(Verdict::Ask(tree)) => match self.note_asked(&name, tree, passage) {
                    Ok(()) => drop(trees.insert(tree)),
                    Err(end) if onto.is_some() => return Judged::Stop(end),
                    Err(end) => left_out.push((push, end)),
                },
                Ok(Verdict::Culprit(step, why)) => {
                    let operation = self.branches[&name].steps[step].operation;
                    let error = OpError::new(OpErrorKind::Gate, why);
                    left_out.push((operation, error.into()));
                }
                Ok(Verdict::Base(why)) => {
                    let what = match onto {
                        Some(_) => "what the remote has fails already without any branch",
                        None => "what the branch has already fails",
                    };
                    let end = OpError::new(OpErrorKind::Gate, format!("{what}: {why}")).into();
                    if onto.is_some() {
                        return Judged::Stop(end);
                    }
                    left_out.push((push, end));
                }
                Err(end) if onto.is_some() => return Judged::Stop(end),
                Err(end) => left_out.push((push, end)),
            }
        }
        if !left_out.is_empty() {
            return Judged::LeaveOut(left_out);
        }
        let Some(verdicts) = passage.verdicts.as_ref().filter(|_| !trees.is_empty()) else {
            let pushes = pending.iter().filter(|p| p.kind == PendingKind::Push);
            let judged = pushes.filter(|p| onto.is_none_or(|onto| *onto == p.branch));
            self.judged = judged.map(|p| (p.branch.clone(), p.commit)).collect();
            return Judged::Passes;
        };
        let prepared: Result<Vec<_>, OpError> = trees
            .into_iter()
            .map(|tree| Ok((tree, self.prepare(tree, verdicts.gate())?)))
            .collect();
        prepared.map_or_else(|error| Judged::Stop(error.into()), Judged::Ask)
    }

    /// Leaves out pushes of what the gate has not looked at: it has seen a branch as it was to be in the
    /// end, and the rest of that does not come.
    pub(super) fn drop_unjudged(
        &self,
        pending: &mut Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
    ) {
        let last: BTreeMap<FullName, ObjectId> = pending
            .iter()
            .filter(|p| p.kind == PendingKind::Push)
            .map(|p| (p.branch.clone(), p.commit))
            .collect();
        let is_other = |name: &FullName| {
            self.judged
                .get(name)
                .is_some_and(|judged| last.get(name).is_some_and(|id| id != judged))
        };
        let is_unjudged = |p: &mut Pending| p.kind == PendingKind::Push && is_other(&p.branch);
        let gone: BTreeSet<usize> = pending
            .extract_if(.., is_unjudged)
            .map(|p| {
                let reason = format!(
                    "the gate has seen the branch {:?} only with what is left out now",
                    p.branch.shorten()
                );
                let class = Class::Transient;
                outcomes[p.operation] = Some(Outcome::Rejected { class, reason });
                p.operation
            })
            .collect();
        if !gone.is_empty() {
            self.skip(gone, pending, outcomes);
        }
    }

    /// Says what the gate has to say of the first `steps` of a branch.
    fn judge_branch(
        &mut self,
        name: &FullName,
        steps: usize,
        passage: &mut Passage<'_>,
    ) -> Result<Verdict, Outcome> {
        let branch = &self.branches[name];
        let trees: Vec<ObjectId> = branch.steps[..steps].iter().map(|step| step.new_tree).collect();
        let base = match (branch.steps.first(), branch.tip) {
            (Some(first), _) => first.old_tree,
            (None, Some(tip)) => {
                // What the remote has is not pushed.
                if self.is_landing || self.remote()?.refs.get(name.as_bstr()) == Some(&tip) {
                    return Ok(Verdict::Passes);
                }
                self.session.store.tree_of(tip)?
            }
            (None, None) => return Ok(Verdict::Passes),
        };
        let Some(verdicts) = &mut passage.verdicts else { return Ok(Verdict::Passes) };
        Ok(verdicts.judge(base, &trees))
    }

    /// Counts how often all of a branch is looked at.
    fn note_asked(
        &self,
        name: &FullName,
        tree: ObjectId,
        passage: &mut Passage<'_>,
    ) -> Result<(), Outcome> {
        let branch = &self.branches[name];
        let is_all = match (branch.steps.last(), branch.tip) {
            (Some(last), _) => last.new_tree == tree,
            (None, Some(tip)) => self.session.store.tree_of(tip)? == tree,
            (None, None) => false,
        };
        if is_all { passage.note_asked(name) } else { Ok(()) }
    }

    fn prepare(&mut self, tree: ObjectId, gate: &Gate) -> Result<Scratch, OpError> {
        let parent = gate.scratch_parent();
        let scratch = Scratch::new(self.session.lock.state_dir(), &parent).map_err(|error| {
            let message =
                format!("cannot make a folder for the gate in {}: {error}", parent.display());
            OpError::new(OpErrorKind::Gate, message)
        })?;
        let git = self.session.git.clone();
        self.session.store.export(tree, &git, &scratch)?;
        Ok(scratch)
    }

    /// Lets the gate look at what a branch and what the remote has got meanwhile make together. All is
    /// locked as long as it runs: what is pushed then is what it has seen.
    pub(super) fn pass_again(&mut self, commit: ObjectId) -> Result<(), Outcome> {
        let Some(gate) = self.session.settings.gate.clone() else { return Ok(()) };
        let state = self.session.lock.state_dir().to_owned();
        let mut verdicts = Verdicts::of(&gate, &state);
        let tree = self.session.store.tree_of(commit)?;
        loop {
            match verdicts.judge(tree, &[]) {
                Verdict::Passes => return Ok(()),
                Verdict::Ask(tree) => {
                    let scratch = self.prepare(tree, &gate)?;
                    self.receipt.gate_runs += 1;
                    let ran = passage::run(&verdicts, &scratch)?;
                    verdicts.note(tree, ran);
                }
                Verdict::Culprit(_, why) | Verdict::Base(why) => {
                    return Err(OpError::new(OpErrorKind::Gate, why).into());
                }
            }
        }
    }
}

/// What is pushed of each branch at last.
fn pushed(pending: &[Pending]) -> Pushed {
    let mut steps: BTreeMap<&FullName, usize> = BTreeMap::new();
    let mut pushed = Pushed::new();
    for p in pending {
        let count = steps.entry(&p.branch).or_default();
        if p.kind == PendingKind::Push {
            pushed.insert(p.branch.clone(), (*count, p.operation));
        } else {
            *count += 1;
        }
    }
    pushed
}
