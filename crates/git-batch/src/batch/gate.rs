//! Asks the gate before a batch is carried out.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::refs::FullName;

use super::finish::wanted;
use super::push::moved;
use super::{Batch, Pending, PendingKind};
use crate::gate::{Ran, Scratch, Verdict, Verdicts};
use crate::passage::{Judged, Passage, Question};
use crate::store::Unfit;
use crate::{Class, Gate, OpError, OpErrorKind, Outcome};

/// How many trees are checked out at once.
const MAX_QUESTIONS: usize = 8;

/// What is pushed of a branch: so many of its steps.
struct Pushed {
    branch: FullName,
    steps: usize,
    commit: ObjectId,
    operation: usize,
}

impl Batch<'_, '_> {
    /// Builds on the branches as they were when the gate was asked first.
    pub(super) fn hold_tips(&mut self, passage: &Passage) {
        for (name, &tip) in &passage.tips {
            // What has landed on it at the remote meanwhile counts, too.
            if self.landed.contains_key(name) {
                continue;
            }
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
        passage: &mut Passage,
    ) -> Judged {
        loop {
            let trees = match self.trees_to_ask(pending, onto, passage) {
                Ok(trees) => trees,
                Err(judged) => return judged,
            };
            let Some(verdicts) = &mut passage.verdicts else { return Judged::Passes };
            let questions = self.prepare_all(&trees, verdicts, true);
            // What cannot be checked out has failed by that, or by what stood there before.
            if !questions.is_empty() {
                return Judged::Ask(questions);
            }
        }
    }

    /// The trees that the gate has to look at next, each with what stood there before. Where there are
    /// none, the error is what it says.
    fn trees_to_ask(
        &mut self,
        pending: &[Pending],
        onto: Option<&FullName>,
        passage: &mut Passage,
    ) -> Result<BTreeMap<ObjectId, ObjectId>, Judged> {
        if passage.verdicts.is_none() {
            return Err(Judged::Passes);
        }
        for (name, branch) in &self.branches {
            if !branch.starts_at_remote && !self.landed.contains_key(name) {
                passage.tips.entry(name.clone()).or_insert(branch.start);
            }
        }
        let mut left_out = Vec::new();
        let mut trees = BTreeMap::new();
        let mut pushed = self.pushed(pending);
        pushed.retain(|pushed| onto.is_none_or(|onto| *onto == pushed.branch));
        for &Pushed { branch: ref name, steps, operation: push, .. } in &pushed {
            let (base, verdict) = match self.judge_branch(name, steps, passage) {
                Ok((base, verdict)) => (base, Ok(verdict)),
                Err(end) => (self.session.store.empty_tree(), Err(end)),
            };
            match verdict {
                Ok(Verdict::Passes) => {}
                // The others have their turn when these are judged.
                Ok(Verdict::Ask(_)) if trees.len() == MAX_QUESTIONS => {}
                Ok(Verdict::Ask(tree)) => match self.note_asked(name, tree, base, passage) {
                    Ok(()) => drop(trees.insert(tree, base)),
                    Err(end) if onto.is_some() => return Err(Judged::Stop(end)),
                    Err(end) => left_out.push((push, end)),
                },
                Ok(Verdict::Culprit(step, why)) => {
                    let step = &self.branches[name].steps[step];
                    let known = passage.verdicts.as_ref();
                    let unfit = known.and_then(|known| known.unfit(step.new_tree)).cloned();
                    let error = unfit.unwrap_or_else(|| OpError::new(OpErrorKind::Gate, why));
                    left_out.push((step.operation, error.into()));
                }
                Ok(Verdict::Base(why)) => {
                    let what = match onto {
                        Some(_) => "what the remote has fails already without any branch",
                        None => "what the branch has already fails",
                    };
                    let end = OpError::new(OpErrorKind::Gate, format!("{what}: {why}")).into();
                    if onto.is_some() {
                        return Err(Judged::Stop(end));
                    }
                    left_out.push((push, end));
                }
                Err(end) if onto.is_some() => return Err(Judged::Stop(end)),
                Err(end) => left_out.push((push, end)),
            }
        }
        if !left_out.is_empty() {
            return Err(Judged::LeaveOut(left_out));
        }
        if trees.is_empty() {
            self.note_passed(pushed);
            return Err(Judged::Passes);
        }
        Ok(trees)
    }

    /// Leaves out pushes of what the gate has not looked at: it has seen a branch as it was to be in the
    /// end of a step, and the rest of that does not come.
    pub(super) fn drop_unjudged(
        &self,
        pending: &mut Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
    ) {
        if self.passed.is_empty() {
            return;
        }
        let wanted = wanted(pending);
        let is_unjudged = |p: &mut Pending| {
            let passed = self.passed.get(&p.branch);
            p.kind == PendingKind::Push
                && passed.is_some_and(|passed| !passed.contains(&wanted[&p.branch]))
        };
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

    fn note_passed(&mut self, pushed: Vec<Pushed>) {
        self.passed.clear();
        for Pushed { branch, commit, .. } in pushed {
            self.passed.entry(branch).or_default().insert(commit);
        }
    }

    /// What is pushed of each branch: what each group pushes, and what each step pushes at last.
    fn pushed(&self, pending: &[Pending]) -> Vec<Pushed> {
        let mut steps: BTreeMap<&FullName, usize> = BTreeMap::new();
        let (mut pushed, mut last) = (Vec::new(), BTreeMap::new());
        for (p, step) in pending.iter().zip(self.step_of_each(pending)) {
            let count = steps.entry(&p.branch).or_default();
            if p.kind != PendingKind::Push {
                *count += 1;
                continue;
            }
            let (branch, operation) = (p.branch.clone(), p.operation);
            let this = Pushed { branch, steps: *count, commit: p.commit, operation };
            if self.operations[operation].group.is_some() {
                pushed.push(this);
                last.remove(&(step, &p.branch));
            } else {
                last.insert((step, &p.branch), this);
            }
        }
        pushed.extend(last.into_values());
        pushed
    }

    /// Says what the gate has to say of the first `steps` of a branch, and what stood there before.
    fn judge_branch(
        &mut self,
        name: &FullName,
        steps: usize,
        passage: &mut Passage,
    ) -> Result<(ObjectId, Verdict), Outcome> {
        let branch = &self.branches[name];
        let trees: Vec<ObjectId> = branch.steps[..steps].iter().map(|step| step.new_tree).collect();
        let passes = |batch: &Self| (batch.session.store.empty_tree(), Verdict::Passes);
        let base = match (branch.steps.first(), branch.tip) {
            (Some(first), _) => first.old_tree,
            (None, Some(tip)) => {
                // What the remote has is not pushed.
                if self.is_landing || self.remote()?.refs.get(name.as_bstr()) == Some(&tip) {
                    return Ok(passes(self));
                }
                self.session.store.tree_of(tip)?
            }
            (None, None) => return Ok(passes(self)),
        };
        let Some(verdicts) = &mut passage.verdicts else { return Ok(passes(self)) };
        Ok((base, verdicts.judge(base, &trees)))
    }

    /// Counts how many trees all of a branch came to. An error is that it cannot be looked at.
    fn note_asked(
        &self,
        name: &FullName,
        tree: ObjectId,
        base: ObjectId,
        passage: &mut Passage,
    ) -> Result<(), Outcome> {
        if let Some(known) = &passage.verdicts {
            // In a landing it is found out with which branch there is no room.
            let of_tree = known.unfit(tree).filter(|_| !self.is_landing);
            if let Some(error) = known.unfit(base).or(of_tree) {
                return Err(error.clone().into());
            }
        }
        let branch = &self.branches[name];
        let is_all = match (branch.steps.last(), branch.tip) {
            (Some(last), _) => last.new_tree == tree,
            (None, Some(tip)) => self.session.store.tree_of(tip)? == tree,
            (None, None) => false,
        };
        if is_all { passage.note_asked(name, tree) } else { Ok(()) }
    }

    /// Checks trees out for the gate. One of which git says that it cannot be has failed by that, unless
    /// what stood there before cannot be checked out either: then it is nobody of this input. Where the
    /// machine has no room for one, its push alone fails, and a landing leaves out the first branch with which
    /// there is none. What is not alone there waits for its turn, as the others may take the room that it needs.
    fn prepare_all(
        &mut self,
        trees: &BTreeMap<ObjectId, ObjectId>,
        verdicts: &mut Verdicts,
        is_alone: bool,
    ) -> Vec<Question> {
        let mut questions = Vec::new();
        for (&tree, &base) in trees {
            if verdicts.unfit(base).is_some() {
                continue;
            }
            let unfit = match self.prepare(tree, verdicts.gate()) {
                Ok(scratch) => {
                    if verdicts.has_tried(tree) {
                        verdicts.note_fit(tree, None);
                    }
                    questions.push((tree, scratch));
                    continue;
                }
                Err(_) if !is_alone || !questions.is_empty() => break,
                Err(unfit) => unfit,
            };
            if tree != base && !verdicts.has_tried(base) {
                let fault = self.prepare(base, verdicts.gate()).err().map(Unfit::into_error);
                verdicts.note_fit(base, fault);
            }
            let is_machine = matches!(unfit, Unfit::Machine(_));
            let error = unfit.into_error();
            let why = error.message.clone();
            if is_machine || tree == base {
                verdicts.note_fit(tree, Some(error));
            }
            if verdicts.unfit(base).is_none() && (!is_machine || self.is_landing) {
                verdicts.note(tree, Ran::Failed { why, is_lasting: false });
            }
        }
        questions
    }

    /// Checks a tree out into a folder of its own.
    fn prepare(&mut self, tree: ObjectId, gate: &Gate) -> Result<Scratch, Unfit> {
        let parent = gate.scratch_parent();
        let scratch = Scratch::new(self.session.lock.state_dir(), &parent).map_err(|error| {
            let message =
                format!("cannot make a folder for the gate in {}: {error}", parent.display());
            Unfit::Machine(OpError::new(OpErrorKind::Gate, message))
        })?;
        let git = self.session.git.clone();
        self.session.store.export(tree, &git, &scratch)?;
        Ok(scratch)
    }

    /// Whether the gate lets pass what a branch and what the remote has got meanwhile make together. If it
    /// has not seen that yet, the branch waits until nothing is locked.
    pub(super) fn check_caught_up(
        &mut self,
        name: &FullName,
        commit: ObjectId,
    ) -> Result<(), Outcome> {
        if self.session.settings.gate.is_none() {
            return Ok(());
        }
        // A batch that another process had begun is asked for again by whoever wants it.
        let Some(mut verdicts) = self.passage.verdicts.take() else { return Err(moved(name)) };
        let passes = self.ask_later(name, commit, &mut verdicts);
        self.passage.verdicts = Some(verdicts);
        passes
    }

    fn ask_later(
        &mut self,
        name: &FullName,
        commit: ObjectId,
        verdicts: &mut Verdicts,
    ) -> Result<(), Outcome> {
        let store = &self.session.store;
        let tree = store.tree_of(commit)?;
        // What has passed without the remote's part.
        let passed = self.passed.get(name).and_then(|passed| passed.first());
        let base = passed.map_or(Ok(tree), |passed| store.tree_of(*passed))?;
        loop {
            match verdicts.judge(tree, &[]) {
                Verdict::Passes => return Ok(()),
                Verdict::Culprit(_, why) | Verdict::Base(why) => {
                    return Err(OpError::new(OpErrorKind::Gate, why).into());
                }
                Verdict::Ask(tree) => {
                    self.passage.note_moved(name, tree)?;
                    let is_asked = self.questions.iter().any(|(other, _)| *other == tree);
                    if !is_asked && self.questions.len() < MAX_QUESTIONS {
                        let is_alone = self.questions.is_empty();
                        let prepared = self.prepare_all(&[(tree, base)].into(), verdicts, is_alone);
                        if let Some(error) = verdicts.unfit(base).or(verdicts.unfit(tree)) {
                            return Err(error.clone().into());
                        }
                        if prepared.is_empty() && is_alone {
                            // It has failed by that.
                            continue;
                        }
                        self.questions.extend(prepared);
                    }
                    self.waiting.insert(name.clone());
                    return Err(moved(name));
                }
            }
        }
    }
}
