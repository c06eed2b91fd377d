//! Refuses commits of submodules that nobody else could check out.

use bstr::{BStr, ByteSlice};
use gix::ObjectId;

use super::Batch;
use crate::{Action, Change, Guard, Mode, OpError, OpErrorKind};

impl Batch<'_, '_> {
    /// Checks the submodules that a commit names by id, where their repositories are here.
    pub(super) fn check_submodules(
        &mut self,
        tree: ObjectId,
        changes: &[Change],
    ) -> Result<(), OpError> {
        if self.session.settings.allowed.contains(&Guard::Submodules) {
            return Ok(());
        }
        for Change { path, action, .. } in changes {
            if let Action::Object { oid, mode: Mode::Submodule } = action {
                self.check_pushed(tree, path.as_bstr(), *oid)?;
            }
        }
        Ok(())
    }

    fn check_pushed(&mut self, tree: ObjectId, path: &BStr, id: ObjectId) -> Result<(), OpError> {
        let Some(repository) = self.session.store.submodule_dir(tree, path)? else {
            return Ok(());
        };
        let fault = |error: &dyn std::error::Error| {
            OpError::repository(&format!("cannot look into the submodule {path:?}"), error)
        };
        let git = self.session.git.in_git_dir(&repository);
        self.receipt.processes += 1;
        let output = git
            .run(["for-each-ref", "--count=1", "--contains", &id.to_string(), "refs/remotes"], None)
            .map_err(|error| fault(&error))?;
        // A commit that is not there at all makes git fail.
        if output.is_success() && !output.stdout.trim().is_empty() {
            return Ok(());
        }
        Err(OpError::new(
            OpErrorKind::Submodule,
            format!(
                "path {path:?}: the submodule has not pushed its commit {id}, so nobody else could \
                 check it out; push it there first, or fetch"
            ),
        ))
    }
}
