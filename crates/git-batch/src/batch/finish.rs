//! Makes durable what was built, moves the local branches, pushes once.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::refs::FullName;

use super::push::unheard;
use super::session::Job;
use super::{Batch, Pending, PendingKind};
use crate::store::RefMove;
use crate::{Extent, OpError, Outcome, Place, RefChange};

impl Batch<'_, '_> {
    pub(super) fn finish(
        &mut self,
        mut pending: Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
        job: &Job<'_>,
    ) {
        self.settle_unchanged(outcomes);
        let held = match self.extent {
            Extent::All => Vec::new(),
            Extent::Local => pending.extract_if(.., |p| p.kind != PendingKind::Local).collect(),
            Extent::Preview => std::mem::take(&mut pending),
        };
        self.foresee(&held, outcomes);
        if self.extent == Extent::Preview {
            return;
        }
        let tips: Vec<ObjectId> = pending.iter().map(|p| p.commit).collect();
        match self.keep_built(&tips, &mut pending, outcomes, job) {
            Ok(()) => {
                self.carry_out(pending, outcomes, job.onto);
                self.close(job.recorded, outcomes);
                self.keeps.clear();
            }
            Err(error) => {
                for p in pending {
                    outcomes[p.operation] = Some(Outcome::Failed(error.clone()));
                }
                self.settle_unchanged(outcomes);
            }
        }
        // What was only foreseen does not come without what it needs.
        for p in held {
            let is_missing =
                |need: &&usize| outcomes[**need].as_ref().is_some_and(|end| !end.is_success());
            if let Some(&need) = p.needs.iter().find(is_missing) {
                let because = self.operations[need].id.clone();
                outcomes[p.operation] = Some(Outcome::Skipped { because });
            }
        }
    }

    /// Moves the refs, here and at the remote.
    pub(super) fn carry_out(
        &mut self,
        pending: Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
        onto: Option<&FullName>,
    ) {
        let mut left = pending;
        while !left.is_empty() {
            let mut pending = self.next_step(&mut left);
            let pushes = left.iter().filter(|p| p.kind == PendingKind::Push);
            self.later = pushes.map(|p| p.branch.clone()).collect();
            self.push_groups(&mut pending, outcomes);
            self.wait_for_worktrees();
            self.move_local(&mut pending, outcomes);
            self.follow_groups(outcomes);
            self.drop_unjudged(&mut pending, outcomes);
            // What has lost its push is brought by the next one.
            let unpushed = self.unpushed(&pending);
            let kept = pending.extract_if(.., |p| unpushed.contains_key(&p.operation));
            left.splice(0..0, kept);
            self.later.clear();
            self.push_all(&pending, outcomes);
            if let Some(onto) = onto {
                self.follow_landing(onto, &pending, outcomes);
            }
            self.skip_failed(&mut left, outcomes);
        }
        self.settle_unchanged(outcomes);
    }

    /// Says what would become of all, as far as it can be known without doing it.
    fn foresee(&mut self, pending: &[Pending], outcomes: &mut [Option<Outcome>]) {
        for p in pending {
            let outcome = match p.kind {
                PendingKind::Push => self.foresee_push(&p.branch, p.commit),
                PendingKind::Local | PendingKind::Remote => Ok(()),
            };
            outcomes[p.operation] = Some(match outcome {
                Ok(()) => landed_as(p),
                Err(outcome) => outcome,
            });
        }
    }

    /// Lets others finish who hold the index of a worktree that is to move: while that one is waited
    /// for, no lock is held. Who holds it still, fails its operation when the branches move.
    pub(super) fn wait_for_worktrees(&self) {
        let Some(end) = self.worktree_end else { return };
        for moved in self.branches.values().filter_map(|state| state.worktree.as_ref()) {
            let _ = moved.checkout.wait_for_index(end);
        }
    }

    /// Moves the local branches. What cannot be moved fails, together with what needs it, before
    /// any branch has moved.
    fn move_local(&mut self, pending: &mut Vec<Pending>, outcomes: &mut [Option<Outcome>]) {
        loop {
            let moves = self.moves(pending);
            if moves.is_empty() {
                return;
            }
            let faults = match self.session.store.move_refs(&moves, &self.session.signer) {
                Ok(results) => {
                    self.settle(&moves, results, pending, outcomes);
                    return;
                }
                Err(faults) => faults,
            };
            for (name, error) in faults {
                self.stays(&name, &error, pending, outcomes);
            }
        }
    }

    /// A local branch does not move. Its operations fail, but for those that the remote has confirmed:
    /// they are done, wherever somebody has moved the branch here.
    pub(super) fn stays(
        &self,
        name: &FullName,
        error: &OpError,
        pending: &mut Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
    ) {
        let is_of = |p: &Pending| p.branch == *name && p.kind == PendingKind::Local;
        pending.retain(|p| {
            let is_there = is_of(p) && self.is_confirmed(p);
            if is_there {
                outcomes[p.operation] = Some(landed_as(p));
            }
            !is_there
        });
        let failed = pending.iter().filter(|p| is_of(p)).map(|p| p.operation).collect();
        self.fail(failed, error, pending, outcomes);
    }

    /// Whether the remote has it already, by the push of its group.
    fn is_confirmed(&self, p: &Pending) -> bool {
        let confirmed = self.confirmed.get(&p.branch);
        confirmed.is_some_and(|(commit, _)| self.session.store.contains(*commit, p.commit))
    }

    pub(super) fn moves(&self, pending: &[Pending]) -> Vec<RefMove> {
        let waiting: BTreeSet<&FullName> =
            pending.iter().filter(|p| p.kind == PendingKind::Local).map(|p| &p.branch).collect();
        let of_branch = |name: &FullName| {
            let state = self.branches.get(name)?;
            let message = state.steps.last()?.message.clone();
            let worktree = state.worktree.clone();
            let (name, old) = (name.clone(), state.start);
            let is_again = self.resumed.is_some();
            let new = state.tip?;
            let instead = self.instead(&name, new);
            Some(RefMove { name, old, new, message, worktree, is_again, instead })
        };
        waiting.into_iter().filter_map(of_branch).collect()
    }

    pub(super) fn settle(
        &mut self,
        moves: &[RefMove],
        results: Vec<Result<(), OpError>>,
        pending: &mut Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
    ) {
        let is_of = |p: &Pending, m: &RefMove| p.branch == m.name && p.kind == PendingKind::Local;
        let mut refused = Vec::new();
        for (m, result) in moves.iter().zip(results) {
            if let Err(error) = result {
                refused.push((m, error));
                continue;
            }
            self.receipt.refs.push(RefChange {
                name: m.name.as_bstr().to_owned(),
                place: Place::Local,
                old: m.old,
                new: m.new,
            });
            pending.retain(|p| {
                if is_of(p, m) {
                    outcomes[p.operation] = Some(landed_as(p));
                }
                !is_of(p, m)
            });
        }
        // Only now: what has moved has landed, whatever became of what it needs.
        for (m, error) in refused {
            self.stays(&m.name, &error, pending, outcomes);
        }
    }

    /// Fails operations and skips what cannot be done without them.
    pub(super) fn fail(
        &self,
        failed: BTreeSet<usize>,
        error: &OpError,
        pending: &mut Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
    ) {
        for &operation in &failed {
            outcomes[operation] = Some(Outcome::Failed(error.clone()));
        }
        pending.retain(|p| !failed.contains(&p.operation));
        self.skip(failed, pending, outcomes);
    }

    /// Skips all that needs one of `gone`, what stands on the same local branches, and what was to
    /// move at the remote only and has no push left.
    pub(super) fn skip(
        &self,
        mut gone: BTreeSet<usize>,
        pending: &mut Vec<Pending>,
        outcomes: &mut [Option<Outcome>],
    ) {
        // Where several of its needs are gone, the one that began it is named.
        let culprits = gone.clone();
        let mut because: BTreeMap<FullName, usize> = BTreeMap::new();
        loop {
            let before = gone.len();
            let unpushed = self.unpushed(pending);
            pending.retain(|p| {
                let find = |gone: &BTreeSet<usize>| p.needs.iter().find(|need| gone.contains(need));
                let need = find(&culprits).or_else(|| find(&gone));
                // A push in a later step brings it all the same.
                let unpushed = unpushed.get(&p.operation);
                let unpushed = unpushed.filter(|_| !self.later.contains(&p.branch));
                let other = need.or(because.get(&p.branch)).or(unpushed);
                let Some(&other) = other else { return true };
                if p.kind == PendingKind::Local && self.is_confirmed(p) {
                    // Its branch follows, unless more stands on it here.
                    let tip = self.branches.get(&p.branch).and_then(|branch| branch.tip);
                    let is_all = self.confirmed.get(&p.branch).map(|(commit, _)| *commit) == tip;
                    if !is_all {
                        outcomes[p.operation] = Some(landed_as(p));
                    }
                    return is_all;
                }
                // A local branch moves as a whole, or not at all.
                if p.kind == PendingKind::Local {
                    because.insert(p.branch.clone(), other);
                }
                gone.insert(p.operation);
                outcomes[p.operation] =
                    Some(Outcome::Skipped { because: self.operations[other].id.clone() });
                false
            });
            if gone.len() == before {
                return;
            }
        }
    }

    /// The operations that are to move a branch at the remote only, and that no push of it follows in this
    /// step; each with the push that should have been.
    fn unpushed(&self, pending: &[Pending]) -> BTreeMap<usize, usize> {
        let mut pushed = BTreeSet::new();
        let mut unpushed = BTreeMap::new();
        for p in pending.iter().rev() {
            match p.kind {
                PendingKind::Push => {
                    pushed.insert(&p.branch);
                }
                PendingKind::Remote if !pushed.contains(&p.branch) => {
                    let push = self.last_push.get(&p.branch).map_or(p.operation, |(_, push)| *push);
                    unpushed.insert(p.operation, push);
                }
                PendingKind::Remote | PendingKind::Local => {}
            }
        }
        unpushed
    }

    /// Pushes every branch that is asked for, with one command and a lease for each.
    fn push_all(&mut self, pending: &[Pending], outcomes: &mut [Option<Outcome>]) {
        let wanted = wanted(pending);
        if wanted.is_empty() {
            return;
        }
        let results = self.deliver(&wanted, outcomes);
        for p in pending.iter().filter(|p| p.kind != PendingKind::Local) {
            let outcome = match results.get(&p.branch) {
                Some(Ok(pushed)) => Outcome::landed(match p.kind {
                    PendingKind::Push => *pushed,
                    PendingKind::Local | PendingKind::Remote => self.image_in(*pushed, p.commit),
                }),
                Some(Err(outcome)) => outcome.clone(),
                None => unheard(&p.branch).into(),
            };
            outcomes[p.operation] = Some(outcome);
        }
    }

    /// After a landing: the local branch follows the remote's, if it is behind and not checked out.
    fn follow_landing(
        &mut self,
        onto: &FullName,
        pending: &[Pending],
        outcomes: &[Option<Outcome>],
    ) {
        let is_push = |p: &&Pending| p.kind == PendingKind::Push && p.branch == *onto;
        let Some(p) = pending.iter().rfind(is_push) else { return };
        let Some(Outcome::Landed { commit: new, .. }) = outcomes[p.operation] else { return };
        if self.checked_out.contains_key(onto) {
            return;
        }
        let store = &mut self.session.store;
        let Ok(Some(old)) = store.branch_tip(onto) else { return };
        if old == new || store.is_ancestor(old, new) != Ok(true) {
            return;
        }
        let message = "git-batch: landed".into();
        let (name, old, worktree) = (onto.clone(), Some(old), None);
        let (is_again, instead) = (false, None);
        let moves = [RefMove { name, old, new, message, worktree, is_again, instead }];
        // Whether it follows or not, the landing is confirmed by the remote.
        if store.move_refs(&moves, &self.session.signer).is_ok_and(|results| results == [Ok(())]) {
            self.receipt.refs.push(RefChange {
                name: onto.as_bstr().to_owned(),
                place: Place::Local,
                old,
                new,
            });
        }
    }
}

/// What is pushed of each branch: several pushes of one are one push of its last state.
pub(super) fn wanted(pending: &[Pending]) -> BTreeMap<FullName, ObjectId> {
    let pushes = pending.iter().filter(|p| p.kind == PendingKind::Push);
    pushes.map(|p| (p.branch.clone(), p.commit)).collect()
}

/// The end of an operation whose own commit has landed.
fn landed_as(p: &Pending) -> Outcome {
    Outcome::Landed { commit: p.commit, left_out: p.left_out.clone() }
}
