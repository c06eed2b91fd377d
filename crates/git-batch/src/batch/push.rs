//! Pushes branches and reads what became of them.

use std::collections::BTreeMap;

use bstr::{BStr, ByteSlice};
use gix::ObjectId;
use gix::refs::FullName;

use super::{Batch, Session};
use crate::outcome::causes;
use crate::publish::{self, PublishError, PushOptions, PushStatus, RefUpdate, push};
use crate::{Class, OnMoved, OpError, OpErrorKind, Outcome, Place, RefChange, stops};

impl Batch<'_, '_> {
    /// Pushes branches with one command and a lease for each; if it is atomic, all move or none.
    pub(super) fn push_refs(
        &mut self,
        wanted: &BTreeMap<FullName, ObjectId>,
        is_atomic: bool,
    ) -> BTreeMap<FullName, Result<(), Outcome>> {
        let all = |outcome: Outcome| {
            wanted.keys().map(|name| (name.clone(), Err(outcome.clone()))).collect()
        };
        let theirs = match self.look_behind(wanted).and_then(|()| self.remote()) {
            Ok(state) => state.refs.clone(),
            Err(error) => {
                self.note_unheard(self.in_doubt(wanted.keys()), is_atomic);
                return all(error.into());
            }
        };
        self.unheard.retain(|name| !wanted.contains_key(name));
        let mut results = BTreeMap::new();
        let mut updates = Vec::new();
        for (name, &new) in wanted {
            let expect = theirs.get(name.as_bstr()).copied();
            if expect == Some(new) {
                results.insert(name.clone(), Ok(()));
            } else if expect.is_some_and(|old| self.is_behind(new, old)) {
                // A group of this batch may have brought the branch further.
                let is_ours =
                    self.receipt.refs.iter().any(|change| {
                        change.place == Place::Remote && change.name == name.as_bstr()
                    });
                let is_known = is_ours || self.may_be_there(name);
                let result = if is_known { Ok(()) } else { Err(Outcome::Superseded) };
                results.insert(name.clone(), result);
            } else if let Err(outcome) = self.check_forward(name, expect, new) {
                results.insert(name.clone(), Err(outcome));
            } else {
                updates.push(RefUpdate { name: name.as_bstr().to_owned(), expect, new });
            }
        }
        if is_atomic && results.values().any(Result::is_err) {
            // All or none: what could be sent waits for what cannot.
            for name in names(&updates) {
                let reason = push::ATOMIC.to_owned();
                results.insert(name, Err(Outcome::Rejected { class: Class::Transient, reason }));
            }
            return results;
        }
        if updates.is_empty() {
            return results;
        }
        let settings = &self.session.settings;
        let options = PushOptions { is_atomic, options: settings.push_options.clone() };
        let (remote, known) = (settings.remote.clone(), &mut self.named);
        let Session { store, git, .. } = &mut *self.session;
        // Who goes on from a branch after a power cut is not to miss what the remote has of it.
        store.sync_names();
        stops::reach("before push");
        let pushed = publish::push_known(git, &remote, known, &updates, &options);
        stops::reach("pushed");
        match pushed {
            Err(error) => {
                let has_run = u32::from(error.has_run());
                self.receipt.pushes += has_run;
                self.receipt.processes += has_run;
                let outcome = match &error {
                    // The network, or a server that was busy.
                    PublishError::Failed { class: Class::Transient, .. } => {
                        Outcome::Rejected { class: Class::Transient, reason: causes(&error) }
                    }
                    _ => OpError::new(OpErrorKind::Remote, causes(&error)).into(),
                };
                let names: Vec<FullName> = names(&updates).collect();
                if has_run > 0 {
                    self.note_sent(&names, wanted);
                }
                self.note_unheard(self.in_doubt(&names), is_atomic);
                results.extend(names.into_iter().map(|name| (name, Err(outcome.clone()))));
            }
            Ok(report) => {
                self.receipt.pushes += report.pushes;
                self.receipt.processes += report.processes;
                for (name, status) in report.refs {
                    let Ok(name) = FullName::try_from(name) else { continue };
                    if matches!(status, PushStatus::Unknown { .. }) {
                        self.note_sent(std::slice::from_ref(&name), wanted);
                        self.note_unheard([name.clone()], is_atomic);
                    }
                    let result = self.read_status(name.as_bstr(), &updates, status);
                    results.insert(name, result);
                }
            }
        }
        results
    }

    /// Those of some branches that may be at the remote.
    fn in_doubt<'n, I: IntoIterator<Item = &'n FullName>>(&self, names: I) -> Vec<FullName> {
        names.into_iter().filter(|name| self.may_be_there(name)).cloned().collect()
    }

    /// Notes what was sent of branches and may have arrived although nobody has said so.
    fn note_sent(&mut self, names: &[FullName], wanted: &BTreeMap<FullName, ObjectId>) {
        for name in names {
            if let Some(&id) = wanted.get(name) {
                self.sent.entry(name.clone()).or_default().push(id);
            }
        }
    }

    /// Notes branches that may have arrived at the remote although nobody has said so, where their
    /// commits are not on the local branches either: those of a group, and those that move at the remote
    /// only.
    pub(super) fn note_unheard(
        &mut self,
        names: impl IntoIterator<Item = FullName>,
        is_group: bool,
    ) {
        let branches = &self.branches;
        let is_remote_only =
            |name: &FullName| branches.get(name).is_some_and(|branch| branch.remote_only);
        self.unheard.extend(names.into_iter().filter(|name| is_group || is_remote_only(name)));
    }

    /// Whether a push would be tried, by what the remote has now.
    pub(super) fn foresee_push(&mut self, name: &FullName, new: ObjectId) -> Result<(), Outcome> {
        let theirs = self.remote()?.refs.get(name.as_bstr()).copied();
        match theirs {
            Some(theirs) if theirs != new && self.is_behind(new, theirs) => {
                Err(Outcome::Superseded)
            }
            _ if self.session.settings.on_moved == OnMoved::Fail || self.is_landing => {
                self.check_forward(name, theirs, new)
            }
            _ => Ok(()),
        }
    }

    /// Whether the remote has the commit, and more on top of it.
    fn is_behind(&self, new: ObjectId, theirs: ObjectId) -> bool {
        let store = &self.session.store;
        store.has_object(theirs) && store.is_ancestor(new, theirs) == Ok(true)
    }

    /// A lease lets git overwrite what it names, so it is checked here that nothing is lost.
    fn check_forward(
        &self,
        name: &FullName,
        expect: Option<ObjectId>,
        new: ObjectId,
    ) -> Result<(), Outcome> {
        let Some(old) = expect else { return Ok(()) };
        let store = &self.session.store;
        if store.has_object(old) && store.is_ancestor(old, new)? {
            return Ok(());
        }
        Err(moved(name))
    }

    fn read_status(
        &mut self,
        name: &BStr,
        updates: &[RefUpdate],
        status: PushStatus,
    ) -> Result<(), Outcome> {
        match status {
            PushStatus::UpToDate => Ok(()),
            PushStatus::Rejected { class, reason } => Err(Outcome::Rejected { class, reason }),
            PushStatus::Unknown { reason } => {
                Err(Outcome::Rejected { class: Class::Transient, reason })
            }
            PushStatus::Updated
            | PushStatus::Created
            | PushStatus::Forced
            | PushStatus::Deleted => {
                if let Some(update) = updates.iter().find(|update| update.name == *name) {
                    self.receipt.refs.push(RefChange {
                        name: name.to_owned(),
                        place: Place::Remote,
                        old: update.expect,
                        new: update.new,
                    });
                    if let Some(remote) = &mut self.remote {
                        remote.refs.insert(name.to_owned(), update.new);
                    }
                }
                Ok(())
            }
        }
    }
}

fn names(updates: &[RefUpdate]) -> impl Iterator<Item = FullName> {
    updates.iter().filter_map(|update| FullName::try_from(update.name.clone()).ok())
}

pub(super) fn moved(name: &FullName) -> Outcome {
    Outcome::Rejected {
        class: Class::Transient,
        reason: format!(
            "the remote's branch {:?} has commits that the local one has not (non-fast-forward)",
            name.shorten().to_str_lossy()
        ),
    }
}

pub(super) fn unheard(branch: &FullName) -> OpError {
    let message = format!("git did not say what became of {:?}", branch.shorten());
    OpError::new(OpErrorKind::Remote, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moved_before_the_push_says_that_it_moved() {
        assert!(moved(&FullName::try_from("refs/heads/a").unwrap()).is_moved());
    }
}
