//! Builds one commit of what a worktree has.

use std::collections::BTreeMap;
use std::time::Instant;

use bstr::{BString, ByteSlice};
use gix::ObjectId;
use gix::refs::FullName;

use super::commit::{base_not_ancestor, two_sources};
use super::{Batch, Built, Pending, PendingKind, Step, branch_name};
use crate::record::Wire;
use crate::store::{
    Captured, Checkout, NewCommit, Request, TreeEdit, WorktreeMove, check_message,
    check_not_checked_out,
};
use crate::{Commit, OpError, OpErrorKind, Outcome, Worktree, guard};

/// How often a worktree is read in which somebody commits all the time.
const MAX_READS: u32 = 5;

impl Batch<'_, '_> {
    pub(super) fn capture(&mut self, index: usize, commit: &Commit, from: &Worktree) -> Built {
        let name = branch_name(&commit.branch)?;
        let message = check_message(commit.message.as_bstr())?;
        if !commit.changes.is_empty() {
            return Err(two_sources(&commit.branch).into());
        }
        for path in from.files.iter().flatten() {
            guard::path::check(path.as_bstr())
                .map_err(|error| OpError::new(OpErrorKind::InvalidPath, error.to_string()))?;
        }
        let (author, committer) = self.session.signer.sign(commit.author.as_ref())?;
        let checkout = self.session.store.checkout(&from.dir)?;
        if checkout.branch != name {
            return Err(other_branch(&checkout, &name).into());
        }
        check_not_checked_out(&self.checked_out, &name, Some(&checkout.git_dir))?;
        self.check_captures_only(&name, &checkout)?;

        let (tip, old_tree, captured) = self.read_at_tip(&name, &checkout, from)?;
        match (tip, &commit.base) {
            (_, None) => {}
            (Some(tip), Some(base)) => {
                let base_commit = self.named_base(base)?;
                if !self.session.store.is_ancestor(base_commit, tip)? {
                    return Err(base_not_ancestor(&commit.branch, base).into());
                }
            }
            (None, Some(base)) => return Err(base_not_ancestor(&commit.branch, base).into()),
        }
        if captured.changes.is_empty() {
            self.note_captured(index, from, old_tree)?;
            return Err(match tip {
                Some(commit) => Outcome::NoChange { commit, left_out: captured.left_out },
                None => OpError::new(
                    OpErrorKind::InvalidChange,
                    format!("{} has nothing for a first commit", from.dir.display()),
                )
                .into(),
            });
        }
        let mut tree = TreeEdit::new(&self.session.store, old_tree)?;
        let store = &self.session.store;
        for path in captured.changes.iter().filter(|(_, new)| new.is_none()).map(|(path, _)| path) {
            tree.remove(store, path.as_bstr())?;
        }
        for (path, new) in &captured.changes {
            if let Some((mode, id)) = new {
                tree.put(store, path.as_bstr(), *mode, *id)?;
            }
        }
        let new_tree = tree.write(store)?;
        self.note_captured(index, from, new_tree)?;
        if captured.changes.values().any(Option::is_none) {
            self.check_deletions(old_tree, new_tree)?;
        }
        let written = captured.changes.iter().filter(|(_, new)| new.is_some());
        let written: Vec<&BString> = written.map(|(path, _)| path).collect();
        self.check_paths(old_tree, new_tree, &written)?;

        let message = self.hooked(message, Some(&checkout.git_dir))?;
        let subject = message.lines().next().unwrap_or_default().as_bstr().to_owned();
        let id = self.session.store.write_commit(NewCommit {
            tree: new_tree,
            parents: tip.into_iter().collect(),
            author,
            committer,
            message,
        })?;
        let message: BString = [b"commit: ".as_slice(), &subject].concat().into();
        let state = self.branch(&name)?;
        let needs = state.steps.last().map(|step| step.operation).into_iter().collect();
        state.tip = Some(id);
        state.steps.push(Step { operation: index, old_tree, new_tree, message });
        let moved = state
            .worktree
            .get_or_insert_with(|| WorktreeMove { checkout, updates: BTreeMap::new() });
        moved.updates.extend(captured.updates);
        Ok(Pending {
            operation: index,
            branch: name,
            commit: id,
            kind: PendingKind::Local,
            needs,
            left_out: captured.left_out,
        })
    }

    /// Notes what was found in the worktree at the paths that were asked for.
    fn note_captured(
        &mut self,
        index: usize,
        from: &Worktree,
        tree: ObjectId,
    ) -> Result<(), OpError> {
        let mut found = Vec::new();
        match &from.files {
            None => tree.put(&mut found),
            Some(files) => {
                for path in files {
                    let entry = self.session.store.entry_at(tree, path.as_bstr())?;
                    entry.map(|(mode, id)| (u32::from(mode.value()), id)).put(&mut found);
                }
            }
        }
        self.references.insert(index, found);
        Ok(())
    }

    /// Reads the worktree, once more where somebody commits in it meanwhile.
    fn read_at_tip(
        &mut self,
        name: &FullName,
        checkout: &Checkout,
        from: &Worktree,
    ) -> Result<(Option<ObjectId>, ObjectId, Captured), OpError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let tip = self.branch(name)?.tip;
            let tree = match tip {
                Some(tip) => self.session.store.tree_of(tip)?,
                None => self.session.store.empty_tree(),
            };
            let captured = self.read(checkout, from, tree)?;
            let now = self.session.store.branch_tip(name)?;
            let state = self.branch(name)?;
            // What has been built on it stands on the old tip; moving the branch will say so.
            if now == state.start || !state.steps.is_empty() || tries == MAX_READS {
                return Ok((tip, tree, captured));
            }
            (state.start, state.tip) = (now, now);
        }
    }

    fn read(
        &mut self,
        checkout: &Checkout,
        from: &Worktree,
        tree: ObjectId,
    ) -> Result<Captured, OpError> {
        let wait = self.session.settings.worktree_wait;
        let end = *self.worktree_end.get_or_insert_with(|| Instant::now() + wait);
        let git = self.session.git.in_git_dir(&checkout.git_dir);
        let max_file_bytes = self.session.settings.max_file_bytes;
        let state = self.session.lock.state_dir();
        self.session.store.capture(&Request {
            checkout,
            files: from.files.as_deref(),
            tree,
            max_file_bytes,
            git: &git,
            state,
            end,
        })
    }

    /// Refuses to capture on top of a commit that the worktree knows nothing of.
    fn check_captures_only(&mut self, name: &FullName, checkout: &Checkout) -> Result<(), OpError> {
        let state = self.branch(name)?;
        let is_captured = state.worktree.as_ref().is_some_and(|moved| moved.checkout == *checkout);
        if state.steps.is_empty() || is_captured {
            return Ok(());
        }
        Err(OpError::new(
            OpErrorKind::CheckedOut,
            format!(
                "branch {:?} was changed by another operation of this batch, which the worktree {} \
                 knows nothing of",
                name.shorten(),
                checkout.top.display()
            ),
        ))
    }
}

fn other_branch(checkout: &Checkout, name: &FullName) -> OpError {
    OpError::new(
        OpErrorKind::OtherBranch,
        format!(
            "{} is on branch {:?}, not on {:?}; a commit from a worktree goes to the branch that \
             is checked out there",
            checkout.top.display(),
            checkout.branch.shorten(),
            name.shorten()
        ),
    )
}
