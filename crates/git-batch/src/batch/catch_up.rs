//! Brings a branch together with what the remote has got meanwhile.

use std::collections::BTreeMap;

use bstr::{BString, ByteSlice};
use gix::ObjectId;
use gix::refs::FullName;

use super::Batch;
use super::push::moved;
use crate::store::{Merged, NewCommit, RefMove, check_not_checked_out, unrelated};
use crate::{OnMoved, OpError, OpErrorKind, Outcome, Place, RefChange};

impl Batch<'_, '_> {
    /// The commit that can be pushed now: `ours`, or one that the remote's commits are in too.
    pub(super) fn catch_up(
        &mut self,
        name: &FullName,
        ours: ObjectId,
    ) -> Result<ObjectId, Outcome> {
        let listed = self.remote()?.refs.get(name.as_bstr()).copied();
        let Some(listed) = listed else { return Ok(ours) };
        let store = &self.session.store;
        if store.has_object(listed) && store.is_ancestor(listed, ours)? {
            return Ok(ours);
        }
        let on_moved = self.session.settings.on_moved;
        let may_be_there = self.may_be_there(name);
        if on_moved == OnMoved::Fail && !may_be_there {
            return Err(moved(name));
        }
        let theirs = self.remote_tip(name)?.unwrap_or(listed);
        if let Some(remote) = &mut self.remote {
            remote.refs.insert(name.as_bstr().to_owned(), theirs);
        }
        if let Some(arrived) = self.arrived(name, ours, theirs) {
            return Ok(arrived);
        }
        match self.session.store.is_ancestor(ours, theirs)? {
            // It was pushed, and others have gone on from there.
            true if may_be_there => return Ok(ours),
            true => return Err(Outcome::Superseded),
            false => {}
        }
        if !self.has_any(name, theirs) {
            // It has gone on without it, and what is under way still is held back by its lease.
            self.unheard.remove(name);
        }
        match on_moved {
            OnMoved::Fail => Err(moved(name)),
            OnMoved::Rebase => {
                let (id, remade) = self.rebase(ours, theirs)?;
                self.images.extend(remade.iter().copied());
                self.remade.extend(remade);
                Ok(id)
            }
            OnMoved::Merge => self.merge_theirs(name, ours, theirs),
        }
    }

    /// Whether the branch was pushed before, by this process or an earlier one, and nobody knows what
    /// became of that.
    pub(super) fn may_be_there(&self, name: &FullName) -> bool {
        self.resumed.is_some() || self.sent.contains_key(name)
    }

    /// Whether a commit contains anything of what was sent of the branch, by this process or an earlier one.
    fn has_any(&self, name: &FullName, theirs: ObjectId) -> bool {
        let sent = self.sent.get(name).into_iter().flatten();
        let resumed = self.resumed.as_ref().and_then(|resumed| resumed.get(name));
        sent.chain(resumed).any(|id| self.session.store.contains(theirs, *id))
    }

    /// Whether the commit is at the remote already.
    pub(super) fn has_arrived(&self, name: &FullName, id: ObjectId) -> bool {
        let remote = self.remote.as_ref();
        let there = remote.and_then(|remote| remote.refs.get(name.as_bstr()).copied());
        there.is_some_and(|there| self.session.store.contains(there, id))
    }

    /// What this process has sent of a branch in place of `ours` and is in what the remote has.
    fn arrived(&self, name: &FullName, ours: ObjectId, theirs: ObjectId) -> Option<ObjectId> {
        let sent = self.sent.get(name)?;
        let is_there = |id: &ObjectId| self.session.store.contains(theirs, *id);
        sent.iter().rev().copied().find(|id| is_there(id) && self.stands_for(*id, ours))
    }

    /// Whether the commit has all of `ours`, or of what `ours` was made anew as. A branch may be
    /// pushed twice by one batch, and what went in place of the first commit has not the second.
    pub(super) fn stands_for(&self, id: ObjectId, ours: ObjectId) -> bool {
        let store = &self.session.store;
        let null = store.null_id();
        let mut images = self
            .images
            .range((ours, null)..)
            .take_while(|(old, _)| *old == ours)
            .map(|(_, new)| *new);
        store.contains(id, ours) || images.any(|image| store.contains(id, image))
    }

    /// What a commit is in what was pushed: itself, or what it was made again as.
    pub(super) fn image_in(&self, pushed: ObjectId, commit: ObjectId) -> ObjectId {
        match self.remade.get(&commit) {
            Some(new) if !self.session.store.contains(pushed, commit) => *new,
            _ => commit,
        }
    }

    /// What an earlier process has brought together with the remote's in place of `ours`.
    pub(super) fn instead(&self, name: &FullName, ours: ObjectId) -> Option<ObjectId> {
        let id = *self.resumed.as_ref()?.get(name)?;
        // One that is gone here cannot be looked into; the remote has been asked for it.
        (self.session.store.has_object(id) && self.stands_for(id, ours)).then_some(id)
    }

    /// Brings branches together with what the remote has now: gives what can be pushed of each, durable
    /// and written down, or its end.
    pub(super) fn catch_up_all(
        &mut self,
        wanted: &BTreeMap<FullName, ObjectId>,
    ) -> BTreeMap<FullName, Result<ObjectId, Outcome>> {
        let mut caught_up = BTreeMap::new();
        let mut new = Vec::new();
        for (name, &ours) in wanted {
            let mut result = self.catch_up(name, ours);
            if let Ok(id) = result
                && id != ours
                && !self.has_arrived(name, id)
            {
                result = self.check_caught_up(name, id).map(|()| id);
            }
            if let Ok(id) = result
                && id != ours
            {
                new.push((name.clone(), id));
            }
            caught_up.insert(name.clone(), result);
        }
        if let Err(error) = self.keep_caught_up(new) {
            for (name, result) in &mut caught_up {
                if result.as_ref().is_ok_and(|id| wanted.get(name) != Some(id)) {
                    *result = Err(error.clone().into());
                }
            }
        }
        caught_up
    }

    fn merge_theirs(
        &mut self,
        name: &FullName,
        ours: ObjectId,
        theirs: ObjectId,
    ) -> Result<ObjectId, Outcome> {
        let (author, committer) = self.session.signer.sign(None)?;
        let branch = name.shorten().to_str_lossy();
        let remote = &self.session.settings.remote;
        let state = self.session.lock.state_dir();
        let tree = match self.session.store.merge(ours, theirs, state)? {
            Merged::Clean(tree) => tree,
            Merged::Conflict(paths) => {
                let with = self.who_changed(name, &paths)?;
                return Err(Outcome::Conflict { paths, with });
            }
            Merged::Unrelated => {
                return Err(unrelated(&format!("{remote}/{branch}"), &branch).into());
            }
        };
        let message: BString = format!("Merge branch '{branch}' of {remote}\n").into();
        let parents = vec![ours, theirs];
        let new = NewCommit { tree, parents, author, committer, message };
        Ok(self.session.store.write_commit(new)?)
    }

    /// Makes the commits that `tip` has and `onto` has not again on top of `onto`. What changes
    /// nothing there is left out. Gives the last one, and what became of each that is another now.
    pub(super) fn rebase(
        &mut self,
        tip: ObjectId,
        onto: ObjectId,
    ) -> Result<(ObjectId, Vec<(ObjectId, ObjectId)>), Outcome> {
        let mut commits = Vec::new();
        let mut at = tip;
        while !self.session.store.is_ancestor(at, onto)? {
            let [parent] = self.session.store.parents(at)?[..] else {
                return Err(OpError::new(
                    OpErrorKind::NotLinear,
                    format!("commit {at} has not one parent and cannot be rebased; merge instead"),
                )
                .into());
            };
            commits.push((at, parent));
            at = parent;
        }
        let mut top = onto;
        let mut remade = Vec::new();
        for (commit, parent) in commits.into_iter().rev() {
            if parent == top {
                top = commit;
                continue;
            }
            let (author, committer) = self.session.signer.sign(None)?;
            let store = &mut self.session.store;
            let old_tree = store.tree_of(top)?;
            // A commit that lives for this merge only: seen from it, `commit` is one change away.
            let beside = store.write_unsigned(NewCommit {
                tree: old_tree,
                parents: vec![parent],
                author,
                committer: committer.clone(),
                message: "beside".into(),
            })?;
            let tree = match store.merge(beside, commit, self.session.lock.state_dir())? {
                Merged::Clean(tree) => tree,
                Merged::Conflict(paths) => {
                    return Err(Outcome::Conflict { paths, with: Vec::new() });
                }
                Merged::Unrelated => {
                    return Err(unrelated(&commit.to_string(), &top.to_string()).into());
                }
            };
            if tree != old_tree {
                top = store.rewrite_commit(commit, tree, top, committer)?;
            }
            remade.push((commit, top));
        }
        Ok((top, remade))
    }

    /// Lets the local branch follow to what was pushed in its place, unless it has moved again or is
    /// checked out. The push is confirmed in any case. Tells whether it is there.
    pub(super) fn follow_push(
        &mut self,
        name: &FullName,
        old: Option<ObjectId>,
        new: ObjectId,
    ) -> bool {
        let tip = self.session.store.branch_tip(name);
        if tip == Ok(Some(new)) {
            return true;
        }
        // Never off a commit that what was pushed has not.
        if old.is_some_and(|old| !self.stands_for(new, old)) {
            return false;
        }
        if tip != Ok(old) || check_not_checked_out(&self.checked_out, name, None).is_err() {
            return false;
        }
        let message = "git-batch: with what the remote had".into();
        let is_again = self.resumed.is_some();
        let (name, worktree, instead) = (name.clone(), None, None);
        let moves = [RefMove { name, old, new, message, worktree, is_again, instead }];
        let results = self.session.store.move_refs(&moves, &self.session.signer);
        let has_moved = results.is_ok_and(|results| results == [Ok(())]);
        if has_moved {
            let name = moves[0].name.as_bstr().to_owned();
            self.receipt.refs.push(RefChange { name, place: Place::Local, old, new });
        }
        has_moved
    }

    /// Lets the outcomes of a branch that has followed name the commits that are on it now.
    pub(super) fn rename_remade(&self, name: &FullName, outcomes: &mut [Option<Outcome>]) {
        for step in self.branches.get(name).map_or(&[][..], |branch| &branch.steps) {
            if let Some(Outcome::Landed { commit, .. }) = &mut outcomes[step.operation]
                && let Some(new) = self.remade.get(commit)
            {
                *commit = *new;
            }
        }
    }
}
