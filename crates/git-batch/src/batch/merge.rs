//! Builds one merge.

use std::collections::BTreeSet;

use bstr::{BString, ByteSlice};

use super::{Batch, Built, Step, branch_name, unknown_branch};
use crate::store::{Fork, Merged, NewCommit, check_message, unrelated};
use crate::{Merge, OpError, OpErrorKind, Outcome, Strategy};

impl Batch<'_, '_> {
    pub(super) fn merge(&mut self, index: usize, position: usize, merge: &Merge) -> Built {
        let source = branch_name(&merge.source)?;
        let into = branch_name(&merge.into)?;
        let message = check_message(merge_message(merge).as_bstr())?;
        self.check_movable(&into, position)?;
        let state = self.branch(&source)?;
        // A new branch without any change is what it would have started from.
        let theirs = state.tip.or(state.unchanged);
        let theirs =
            if state.starts_at_remote { self.session.store.branch_tip(&source)? } else { theirs };
        let theirs = theirs.ok_or_else(|| self.no_branch(&merge.source))?;
        let ours = self.branch(&into)?.tip.ok_or_else(|| self.no_branch(&merge.into))?;
        let needs: BTreeSet<usize> = self.last_step(&source).into_iter().collect();

        let store = &mut self.session.store;
        let is_contained = match store.fork(ours, theirs)? {
            Fork::Contained => true,
            Fork::At(_) => false,
            Fork::Unknown => store.is_ancestor(theirs, ours)?,
        };
        if is_contained {
            return Err(Outcome::no_change(ours));
        }
        let old_tree = store.tree_of(ours)?;
        if merge.strategy == Strategy::FastForward {
            if !store.is_ancestor(ours, theirs)? {
                return Err(OpError::new(
                    OpErrorKind::NotFastForward,
                    format!("{:?} is not behind {:?}; merge it", merge.into, merge.source),
                )
                .into());
            }
            let new_tree = store.tree_of(theirs)?;
            let message = format!("merge {}: Fast-forward", merge.source).into();
            let step = Step { operation: index, old_tree, new_tree, message };
            return self.advance(into, theirs, step, needs);
        }

        if merge.strategy == Strategy::Rebase {
            let id = match self.rebase(theirs, ours) {
                Err(Outcome::Conflict { paths, .. }) => {
                    let with = self.who_changed(&into, &paths)?;
                    return Err(Outcome::Conflict { paths, with });
                }
                other => other?.0,
            };
            if id == ours {
                return Err(Outcome::no_change(ours));
            }
            let new_tree = self.session.store.tree_of(id)?;
            let message = format!("rebase {} (git-batch)", merge.source).into();
            let step = Step { operation: index, old_tree, new_tree, message };
            return self.advance(into, id, step, needs);
        }

        let (author, committer) = self.session.signer.sign(None)?;
        let new_tree =
            match self.session.store.merge(ours, theirs, self.session.lock.state_dir())? {
                Merged::Clean(tree) => tree,
                Merged::Conflict(paths) => {
                    let with = self.who_changed(&into, &paths)?;
                    return Err(Outcome::Conflict { paths, with });
                }
                Merged::Unrelated => return Err(unrelated(&merge.source, &merge.into).into()),
            };
        let parents = match merge.strategy {
            Strategy::Squash if new_tree == old_tree => {
                return Err(Outcome::no_change(ours));
            }
            Strategy::Squash => vec![ours],
            _ => vec![ours, theirs],
        };
        let message = self.hooked(message, None)?;
        let id = self.session.store.write_commit(NewCommit {
            tree: new_tree,
            parents,
            author,
            committer,
            message,
        })?;
        let message = format!("merge {}: Merge made by git-batch", merge.source).into();
        self.advance(into, id, Step { operation: index, old_tree, new_tree, message }, needs)
    }

    /// Why a branch is not there: it never was, or an operation of this batch failed to make it.
    fn no_branch(&self, branch: &str) -> Outcome {
        let failed = branch_name(branch)
            .ok()
            .and_then(|name| self.branches.get(&name))
            .and_then(|state| state.failed);
        match failed {
            Some(other) => Outcome::Skipped { because: self.operations[other].id.clone() },
            None => unknown_branch(branch).into(),
        }
    }
}

fn merge_message(merge: &Merge) -> BString {
    merge.message.clone().unwrap_or_else(|| {
        let what = match merge.strategy {
            Strategy::Squash => "Squash branch",
            _ => "Merge branch",
        };
        format!("{what} '{}' into {}", merge.source, merge.into).into()
    })
}
