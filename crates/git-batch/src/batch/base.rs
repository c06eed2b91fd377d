//! Where a branch starts, and what the remote has.

use bstr::ByteSlice;
use gix::ObjectId;
use gix::refs::FullName;

use super::deliver::pause;
use super::{Batch, Branch};
use crate::outcome::causes;
use crate::program::Git;
use crate::publish::{self, Ahead, PublishError, RemoteState};
use crate::{Class, OpError, OpErrorKind, guard};

/// How often a remote is asked again that could not be reached.
const MAX_ASKS: u32 = 5;

impl Batch<'_, '_> {
    /// What the remote has, asked once per batch.
    pub(super) fn remote(&mut self) -> Result<&RemoteState, OpError> {
        let first = self.take_answers();
        if self.remote.is_none() {
            let state = self.ask(first, publish::remote_refs)?;
            self.remote = Some(state);
        }
        Ok(self.remote.as_ref().expect("it was set above"))
    }

    /// Begins to ask what a push will need, now that there is something to push. Where a gate comes before
    /// that, the answer would be too old.
    pub(super) fn ask_ahead(&mut self) {
        let has_gate = self.session.settings.gate.is_some();
        if self.ahead.is_none() && self.named.is_none() && !has_gate {
            let (git, remote) = (&self.session.git, &self.session.settings.remote);
            let ahead = Ahead::ask(git, remote, self.remote.is_none());
            self.receipt.processes += ahead.processes;
            self.ahead = Some(ahead);
        }
    }

    /// Waits for what was asked ahead; gives what the remote said it has.
    fn take_answers(&mut self) -> Option<Result<RemoteState, PublishError>> {
        let mut answers = self.ahead.take()?.take();
        self.named = answers.settings.take();
        answers.refs()
    }

    /// Asks the remote, once more where a network or a server may just have been busy. The `first` answer
    /// may be there already.
    fn ask<T>(
        &mut self,
        mut first: Option<Result<T, PublishError>>,
        question: impl Fn(&Git, &str) -> Result<T, PublishError>,
    ) -> Result<T, OpError> {
        let mut retry = 0;
        loop {
            let answer = first.take().unwrap_or_else(|| {
                self.receipt.processes += 1;
                question(&self.session.git, &self.session.settings.remote)
            });
            match answer {
                Err(PublishError::Failed { class: Class::Transient, .. }) if retry < MAX_ASKS => {
                    std::thread::park_timeout(pause(retry));
                    retry += 1;
                }
                answer => {
                    return answer
                        .map_err(|error| OpError::new(OpErrorKind::Remote, causes(&error)));
                }
            }
        }
    }

    /// The commit that a base names: a branch of this batch or repository, any other revision, or
    /// a branch of the remote.
    pub(super) fn named_base(&mut self, base: &str) -> Result<ObjectId, OpError> {
        let branch = guard::refname::branch(base).ok();
        if let Some(name) = &branch
            && let Some(tip) = self.branch(name)?.tip
        {
            return Ok(tip);
        }
        if let Some(&id) = self.bases.named.get(base) {
            return Ok(id);
        }
        let found = match (self.session.store.resolve(base), branch) {
            (Some(id), _) => Some(id),
            (None, Some(name)) => self.remote_tip(&name)?,
            (None, None) => None,
        };
        let id = found.ok_or_else(|| {
            OpError::new(
                OpErrorKind::UnknownBase,
                format!(
                    "base {base:?} is no branch and no other commit, neither here nor at the remote"
                ),
            )
        })?;
        self.bases.named.insert(base.to_owned(), id);
        Ok(id)
    }

    /// The commit of the remote's default branch; `None` where both sides have no commit at all yet.
    pub(super) fn default_base(&mut self) -> Result<Option<ObjectId>, OpError> {
        if self.bases.default.is_none() {
            self.bases.default = self.find_default_base()?;
        }
        Ok(self.bases.default)
    }

    fn find_default_base(&mut self) -> Result<Option<ObjectId>, OpError> {
        let here = self.session.store.head_branch();
        let here = here.as_ref().map(FullName::as_bstr);
        let name = self.remote()?.default_branch(here).map(ToOwned::to_owned);
        let Some(name) = name.and_then(|name| FullName::try_from(name).ok()) else {
            if self.session.store.is_unborn()? {
                return Ok(None);
            }
            return Err(OpError::new(
                OpErrorKind::UnknownBase,
                "the remote has no default branch with a commit; give a base",
            ));
        };
        self.remote_tip(&name)
    }

    /// The commit of a remote's branch, fetched into a private ref if it is not here yet.
    pub(super) fn remote_tip(&mut self, name: &FullName) -> Result<Option<ObjectId>, OpError> {
        let Some(&id) = self.remote()?.refs.get(name.as_bstr()) else { return Ok(None) };
        if self.session.store.has_object(id) {
            return Ok(Some(id));
        }
        let wanted = name.as_bstr().to_owned();
        let wanted = [wanted];
        let fetched = self.ask(None, |git, remote| publish::fetch(git, remote, &wanted))?;
        // It takes two.
        self.receipt.processes += 1;
        // It may have moved once more since it was listed; the lease of the push notices.
        Ok(fetched.into_iter().next().map(|(_, id)| id))
    }

    /// Starts the branch at the remote's commit, to be moved there first.
    pub(super) fn start_at_remote(&mut self, name: &FullName) -> Result<(), OpError> {
        let Some(tip) = self.remote_tip(name)? else {
            return Err(OpError::new(
                OpErrorKind::UnknownBranch,
                format!(
                    "remote {:?} has no branch {:?}",
                    &self.session.settings.remote,
                    name.shorten().to_str_lossy()
                ),
            ));
        };
        let state = Branch {
            start: Some(tip),
            tip: Some(tip),
            remote_only: true,
            starts_at_remote: true,
            ..Branch::default()
        };
        self.branches.insert(name.clone(), state);
        Ok(())
    }
}
